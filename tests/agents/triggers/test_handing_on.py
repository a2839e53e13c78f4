"""start_run: the cap comes out of the caller's rest and its rest comes back; the tree is bounded; halts go down it."""

import threading
from decimal import Decimal

import pytest
from django.db import connection, transaction

from agents.conf import clock
from agents.enums import HaltState, Mode, Status, TerminalReason, ToolIntent
from agents.exceptions import Invalid, NotFound
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Alert, Approval, ToolCall
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import session_end_unheld
from agents.sessions.halts import session_halt
from agents.sessions.lifecycle import session_lock
from agents.triggers.handing_on import agent_run_within, children_attend, run_result
from audit.models import AuditEvent
from tests.factories import make_agent, make_session, make_user

CAP = Decimal("1.00")
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def parent(owner):
    return make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), mode=Mode.LOOP, max_cost_usd=CAP)


@pytest.fixture
def helper(owner):
    return make_agent(owner=owner, name="Helper", mode="auto")


def start(parent, agent, usd="0.30"):
    return agent_run_within(parent, agent, "Do it.", max_cost_usd=None if usd is None else Decimal(usd), now=clock())


def caps(*rows):
    found = dict(AgentSession.objects.values_list("pk", "max_cost_usd"))
    return [found[row.pk] for row in rows]


def end(session, *, spent="0"):
    """End a run that nobody holds, after it has spent something."""
    AgentSession.objects.filter(pk=session.pk).update(cost_total_usd=Decimal(spent), cost_actual_usd=Decimal(spent))
    with transaction.atomic():
        session_end_unheld(session_lock(session.pk), TerminalReason.WORKER_ERROR, now=clock(), actor="system")


def test_cap_is_taken_out_of_the_rest_and_what_is_left_comes_back_once(parent, helper):
    child = start(parent, helper)
    assert caps(parent, child) == [Decimal("0.70"), Decimal("0.30")]
    assert (child.parent_id, child.depth, child.mode, child.params["way"]) == (parent.pk, 1, Mode.CHAT, "goal")
    assert children_attend(clock()) == 0
    end(child, spent="0.10")
    assert [children_attend(clock()) for _ in range(2)] == [1, 0]
    assert caps(parent) == [Decimal("0.90")]
    kinds = AuditEvent.objects.filter(chain=parent.chain, kind__startswith="run.").order_by("pk")
    assert [(row.kind, row.details["child_id"]) for row in kinds] == [
        ("run.handed_on", str(child.public_id)),
        ("run.handed_back", str(child.public_id)),
    ]


def test_caller_gets_an_alert_and_reads_the_result_as_data(parent, helper):
    child = start(parent, helper)
    assert run_result(parent, str(child.public_id))["is_over"] is False
    end(child)
    children_attend(clock())
    assert Alert.objects.get(session=parent).name == "run_finished"
    found = run_result(parent, str(child.public_id))
    assert (found["is_over"], found["status"]) == (True, Status.FAILED)


@pytest.mark.parametrize("run_id", ["nonsense", "6b0e2d50-0000-4000-8000-000000000000"])
def test_only_runs_that_it_started_are_shown(parent, run_id):
    with pytest.raises(NotFound):
        run_result(parent, run_id)


def test_stated_amount_leaves_the_caller_its_floor_or_is_refused(parent, helper):
    with pytest.raises(
        Invalid, match=r"\$0.91 cannot be lent: \$1.00 is left .* keeps \$0.10 .* Ask for \$0.90 at most"
    ):
        start(parent, helper, "0.91")
    assert caps(parent) == [CAP]
    child = start(parent, helper, "0.90")
    assert caps(parent, child) == [Decimal("0.10"), Decimal("0.90")]


@pytest.mark.parametrize(
    ("cap", "callee", "lent"),
    [
        ("5", None, "2.5"),
        ("5", "0.40", "0.40"),
        ("30", None, "5"),
        ("0.2", None, "0.1"),
        ("5", "9", "2.5"),
        ("5", "0", "0"),
    ],
)
def test_without_an_amount_the_smallest_of_half_the_callee_s_cap_and_the_default_is_lent(owner, cap, callee, lent):
    parent = make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), max_cost_usd=Decimal(cap))
    definition = "" if callee is None else f"name: Helper\nmodel: offline-analyst\nmax_cost_usd: {callee}\n"
    child = start(parent, make_agent(owner=owner, name="Helper", mode="auto", definition=definition), None)
    assert caps(parent, child) == [Decimal(cap) - Decimal(lent), Decimal(lent)]


@pytest.mark.parametrize(("cap", "stated"), [("0.19", None), ("0.1", None), ("0.1", "0.01"), ("0", None)])
def test_loan_that_would_leave_less_than_the_floor_is_refused(owner, cap, stated):
    parent = make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), max_cost_usd=Decimal(cap))
    with pytest.raises(Invalid, match=r"keeps .* to finish.* Do the work yourself"):
        start(parent, make_agent(owner=owner, mode="auto"), stated)
    assert caps(parent) == [Decimal(cap)]
    assert not AgentSession.objects.filter(parent=parent).exists()


def test_floor_is_a_setting(parent, helper, settings):
    settings.LQOPS_LENDER_FLOOR_USD = Decimal("0.60")
    with pytest.raises(Invalid, match=r"keeps \$0.60"):
        start(parent, helper, None)


def test_run_without_a_cap_lends_what_is_asked_for_or_the_default(owner, helper):
    parent = make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), max_cost_usd=None)
    AgentSession.objects.filter(pk=parent.pk).update(max_cost_usd=None)
    assert caps(start(parent, helper, None)) == [Decimal(5)]
    assert caps(start(parent, make_agent(owner=owner, mode="auto"), "7"), parent) == [Decimal(7), None]


def test_tree_is_at_most_three_levels_deep(parent, owner):
    row = parent
    for usd in ("0.6", "0.4", "0.2"):
        row = start(row, make_agent(owner=owner, mode="auto"), usd)
    with pytest.raises(Invalid, match="3 levels deep"):
        start(row, make_agent(owner=owner, mode="auto"), "0.01")


def test_agent_that_is_at_work_above_is_refused(parent, helper):
    child = start(parent, helper)
    for agent in (parent.agent, helper):
        with pytest.raises(Invalid, match="at work in this tree"):
            start(child, agent, "0.01")


@pytest.mark.parametrize(
    ("caller", "callee"),
    [
        ({"mode": "manual"}, {"mode": "semi"}),
        ({"mode": "semi"}, {"mode": "auto"}),
        ({"mode": "auto"}, {"mode": "auto", "allow_high_risk": True}),
        ({"mode": "auto"}, {"mode": "auto", "waived_skills": ["http_request"]}),
    ],
)
def test_work_is_not_handed_to_an_agent_that_needs_fewer_approvals(owner, caller, callee):
    parent = make_session(owner=owner, agent=make_agent(owner=owner, **caller), max_cost_usd=CAP)
    with pytest.raises(Invalid, match="fewer approvals"):
        start(parent, make_agent(owner=owner, **callee))
    assert caps(parent) == [CAP]


def test_halt_goes_down_the_tree(parent, helper, owner):
    child = start(parent, helper)
    grandchild = start(child, make_agent(owner=owner, mode="auto"), "0.1")
    session_halt(parent.pk, by=None, reason="enough", now=clock())
    for _ in range(3):
        children_attend(clock())
    states = AgentSession.objects.filter(pk__in=[child.pk, grandchild.pk]).values_list("status", "halt_state")
    assert set(states) == {(Status.HALTED, HaltState.HALTED)}


def test_rest_goes_to_the_nearest_run_that_is_not_over(parent, helper, owner):
    child = start(parent, helper)
    grandchild = start(child, make_agent(owner=owner, mode="auto"), "0.1")
    end(child)
    end(grandchild)
    children_attend(clock())
    assert caps(parent) == [CAP]


def test_rest_passes_by_a_run_that_ends_while_it_is_handed_back(parent, helper, owner, monkeypatch):
    """Seen as at work, and over when it is locked: the rest goes to the run above it."""
    child = start(parent, helper)
    grandchild = start(child, make_agent(owner=owner, mode="auto"), "0.1")
    end(grandchild)

    def ends_first(pk):
        if pk == child.pk and session_lock(pk).status not in TERMINAL:
            end(child)
        return session_lock(pk)

    monkeypatch.setattr("agents.triggers.handing_on.session_lock", ends_first)
    assert [children_attend(clock()) for _ in range(3)] == [0, 2, 0]
    assert caps(parent) == [CAP]


def test_it_passes_the_guard_like_any_skill(parent, helper):
    AgentSession.objects.filter(pk=parent.pk).update(current_phase="turn")
    parent.refresh_from_db()
    arguments = {"agent": "Helper", "task": "Do it.", "max_cost_usd": 0.3}
    params = {"skill": "start_run", "arguments": arguments}
    result = guarded_tool_call(parent, ToolIntent.RUN_PLAYBOOK, params, key="one", now=clock())
    assert result.ok, result.error
    again = guarded_tool_call(parent, ToolIntent.RUN_PLAYBOOK, params, key="one", now=clock())
    assert again.data == result.data, "a call that is repeated starts no second run"
    assert AgentSession.objects.filter(parent=parent).count() == ToolCall.objects.filter(name="start_run").count() == 1
    wrong = {"skill": "start_run", "arguments": {**arguments, "agent": "Nobody"}}
    refused = guarded_tool_call(parent, ToolIntent.RUN_PLAYBOOK, wrong, key="two", now=clock())
    assert "there are: Helper" in refused.error


def test_semi_agent_asks_a_person_first(owner, approver):
    parent = make_session(owner=owner, agent=make_agent(owner=owner, mode="semi"), max_cost_usd=CAP)
    make_agent(owner=owner, name="Helper", mode="semi")
    AgentSession.objects.filter(pk=parent.pk).update(current_phase="turn")
    parent.refresh_from_db()
    params = {"skill": "start_run", "arguments": {"agent": "Helper", "task": "Do it."}}
    result = guarded_tool_call(parent, ToolIntent.RUN_PLAYBOOK, params, key="one", now=clock())
    assert result.outcome == "approval_pending", result
    assert Approval.objects.filter(session=parent).exists()
    assert not AgentSession.objects.filter(parent=parent).exists()


def test_death_between_reservation_and_start_leaves_neither(parent, helper, monkeypatch):
    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("agents.triggers.handing_on.session_create", die)
    with pytest.raises(KeyboardInterrupt):
        start(parent, helper)
    assert caps(parent) == [CAP]
    assert not AgentSession.objects.filter(parent=parent).exists()


@pytest.mark.django_db(transaction=True)
def test_runs_that_are_started_at_once_never_get_more_than_the_cap(parent, owner):
    agents = [make_agent(owner=owner, mode="auto") for _ in range(6)]
    outcomes = []

    def hand_on(agent):
        try:
            start(parent, agent, "0.30")
            outcomes.append("started")
        except Invalid:
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=hand_on, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["started"] * 3
    given = sum(AgentSession.objects.filter(parent=parent).values_list("max_cost_usd", flat=True))
    assert (given, *caps(parent)) == (Decimal("0.90"), Decimal("0.10"))


@pytest.mark.django_db(transaction=True)
def test_rest_comes_back_once_when_two_tickers_give_it(parent, helper):
    child = start(parent, helper)
    end(child)
    counts = []

    def attend():
        try:
            counts.append(children_attend(clock()))
        finally:
            connection.close()

    threads = [threading.Thread(target=attend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 1
    assert caps(parent) == [CAP]
