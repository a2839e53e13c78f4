"""Creating, editing and deleting agents."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission

from agents.enums import ApprovalMode, BudgetScope, HaltState, Status, TerminalReason
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound
from agents.ledger.budgets import budgets_lock
from agents.models import Agent, Budget
from agents.roster.agents import agent_create, agent_delete, agent_edit, agent_start
from audit.models import AuditEvent
from tests.agents.autonomy import make_autonomous
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db


def last():
    return AuditEvent.objects.latest("pk")


def test_agent_is_created_and_audited():
    owner = make_user()

    agent = agent_create(owner=owner, name=" Reviewer ", by=owner, now=NOW, max_cost_per_day_usd=Decimal(4))

    assert (agent.name, agent.mode, agent.edited_by) == ("Reviewer", ApprovalMode.SEMI, owner)
    assert (last().kind, last().actor) == ("agent.created", f"user:{owner.pk}")
    assert last().details == {"agent_id": str(agent.public_id), "mode": "semi", "cap_usd": "4"}


def test_agent_of_another_owner_needs_the_permission():
    owner, other = make_user(), make_user()
    with pytest.raises(NotFound):
        agent_create(owner=owner, name="a", by=other, now=NOW)
    other.user_permissions.add(Permission.objects.get(codename="add_agent"))
    other = type(other).objects.get(pk=other.pk)

    assert agent_create(owner=owner, name="a", by=other, now=NOW).edited_by == other
    with pytest.raises(NotFound):
        agent_edit(agent=Agent.objects.get(), by=other, now=NOW, name="b")
    with pytest.raises(NotFound):
        agent_delete(agent=Agent.objects.get(), by=other, now=NOW)


@every_row(
    ("given", "complaint"),
    [
        ({"name": "  "}, "1 to 120 characters, not 0"),
        ({"name": "x" * 121}, "not 121"),
        ({"name": "a", "mode": "never"}, "'never' is no approval mode"),
        ({"name": "a", "rank": 1}, "has no rank"),
        ({"name": "taken"}, "named 'taken' already"),
    ],
)
def test_invalid_fields_are_explained(given, complaint):
    owner = make_user()
    make_agent(owner=owner, name="taken")

    with pytest.raises(Invalid, match=complaint):
        agent_create(owner=owner, by=owner, now=NOW, **given)


def test_edit_records_its_fields_and_the_editor():
    agent, by = make_agent(), make_user(is_superuser=True)

    edited = agent_edit(agent=agent, by=by, now=NOW, name="new", mode="manual", enabled=False)

    assert (edited.name, edited.mode, edited.enabled, edited.edited_by) == ("new", "manual", False, by)
    assert last().details["fields"] == ["enabled", "mode", "name"]


def test_edit_without_a_difference_is_no_change():
    agent = make_agent(name="same")

    agent_edit(agent=agent, by=None, now=NOW, name="same", mode=agent.mode)

    assert not AuditEvent.objects.exists()


def test_rename_to_a_taken_name_is_refused():
    agent = make_agent(name="one")
    make_agent(owner=agent.owner, name="two")

    with pytest.raises(Invalid, match="named 'two' already"):
        agent_edit(agent=agent, by=None, now=NOW, name="two")


def test_new_daily_cap_applies_today():
    agent = make_agent()
    budgets_lock(session_id=make_session(agent=agent).pk, now=NOW)

    agent_edit(agent=agent, by=None, now=NOW, max_cost_per_day_usd=Decimal("0.5"))

    agent.refresh_from_db()
    assert agent.max_cost_per_day_usd == Decimal("0.5")
    assert Budget.objects.get(scope=BudgetScope.AGENT).cap_usd == Decimal("0.5")
    assert [event.kind for event in AuditEvent.objects.order_by("pk")] == ["budget.cap_set", "agent.edited"]


def test_mode_can_only_be_tightened_while_sessions_are_active():
    agent = make_agent(mode=ApprovalMode.SEMI)
    session = make_session(agent=agent)

    with pytest.raises(InvalidTransition, match="can be tightened now, not loosened to auto"):
        agent_edit(agent=agent, by=None, now=NOW, mode=ApprovalMode.AUTO)
    assert agent_edit(agent=agent, by=None, now=NOW, mode=ApprovalMode.MANUAL).mode == ApprovalMode.MANUAL

    session.status, session.terminal_reason, session.completed_at = Status.COMPLETED, "completed", NOW
    session.save()
    assert agent_edit(agent=agent, by=None, now=NOW, mode=ApprovalMode.AUTO).mode == ApprovalMode.AUTO


def test_only_a_superuser_may_waive_approval_of_high_risk_calls():
    owner, root = make_user(), make_user(is_superuser=True)
    agent = make_agent(owner=owner)
    for by in (owner, None):
        with pytest.raises(NotAllowed, match="Only a superuser may waive"):
            agent_edit(agent=agent, by=by, now=NOW, allow_high_risk=True)
    with pytest.raises(NotAllowed, match="Only a superuser may waive"):
        agent_create(owner=owner, name="bold", by=owner, now=NOW, allow_high_risk=True)
    with pytest.raises(Invalid, match="true or false"):
        agent_edit(agent=agent, by=root, now=NOW, allow_high_risk="yes")

    assert agent_create(owner=owner, name="bold", by=root, now=NOW, allow_high_risk=True).allow_high_risk
    assert last().details["allow_high_risk"] is True
    assert agent_edit(agent=agent, by=root, now=NOW, allow_high_risk=True).allow_high_risk
    assert not agent_edit(
        agent=agent, by=owner, now=NOW, allow_high_risk=False
    ).allow_high_risk  # anybody may take it back
    assert (last().details["fields"], last().details["allow_high_risk"]) == (["allow_high_risk"], False)


def test_high_risk_waiver_is_refused_while_sessions_are_active():
    agent = make_agent()
    make_session(agent=agent)
    with pytest.raises(InvalidTransition, match="must be asked about cannot be allowed now"):
        agent_edit(agent=agent, by=make_user(is_superuser=True), now=NOW, allow_high_risk=True)


def test_agent_without_history_is_deleted():
    agent = make_agent()

    agent_delete(agent=agent, by=agent.owner, now=NOW)

    assert not Agent.objects.exists()
    assert last().kind == "agent.deleted"


@pytest.mark.parametrize("make", [make_session, make_trigger])
def test_agent_with_history_cannot_be_deleted(make):
    agent = make_agent()
    make(agent=agent)

    with pytest.raises(InvalidTransition, match="switch it off"):
        agent_delete(agent=agent, by=agent.owner, now=NOW)


def test_agent_switched_off_stops_its_loop_and_heartbeat():
    agent = make_autonomous()
    loop = agent_start(agent=agent, by=agent.owner, now=NOW).loop
    run = make_session(Status.RUNNING, owner=agent.owner, agent=agent)

    agent_edit(agent=agent, by=agent.owner, now=NOW, enabled=False)

    loop.refresh_from_db()
    run.refresh_from_db()
    assert (loop.status, loop.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert (run.status, run.halt_state) == (Status.RUNNING, HaltState.RUNNING)
    assert not agent.sensors.filter(wanted=True).exists()
