"""What the database itself refuses, what rows start with, and how they read."""

import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import IntegrityError, connection, models, transaction

from agents.enums import HaltState, Mode, Outcome, Phase, Status, TerminalReason, ToolIntent, TriggerKind, WaitingOn
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Budget,
    Cap,
    Finding,
    Halt,
    InferenceLog,
    Installation,
    Memory,
    ModelPrice,
    Notification,
    Precedent,
    Profile,
    Project,
    StandingApproval,
    SuspendedModel,
    ToolCall,
)
from tests.factories import NOW, make_agent, make_price, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

USD = Decimal


def refused(make, constraint):
    """The database, not Python, refuses the row, and names the constraint or the column."""
    with pytest.raises(IntegrityError) as error, transaction.atomic():
        make()
    return constraint in str(error.value)


def set_session(**columns):
    session = make_session()
    return lambda: AgentSession.objects.filter(pk=session.pk).update(**columns)


def make_call(session=None, **fields):
    defaults = {
        "session": session or make_session(),
        "key": "turn/1",
        "intent": ToolIntent.NOTIFY,
        "phase": Phase.TURN,
        "arguments": {},
        "digest": "d",
        "asked_digest": "d",
        "fencing": 0,
        "started_at": NOW,
    }
    return ToolCall.objects.create(**{**defaults, **fields})


def make_ticket(session=None, **fields):
    defaults = {
        "session": session or make_session(),
        "call_key": "turn/1",
        "intent": ToolIntent.RUN_SKILL,
        "action": "send_letter",
        "version": "1",
        "phase": Phase.TURN,
        "level": "RESTRICTED",
        "description": "send_letter",
        "arguments": {},
        "digest": "d",
        "signature": "s",
        "expires_at": NOW + timedelta(hours=1),
    }
    return Approval.objects.create(**{**defaults, **fields})


# --- sessions ---


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"status": "done"}, "session_status"),
        ({"status": ""}, "session_status"),
        ({"halt_state": "stopped"}, "session_halt_state"),
        ({"halt_state": ""}, "session_halt_state"),
        ({"current_phase": "review"}, "session_phase"),
        ({"mode": "free"}, "session_mode"),
        ({"terminal_reason": "because"}, "session_terminal_reason"),
        ({"terminal_reason": ""}, "session_terminal_reason"),
        ({"status": "waiting"}, "session_waiting_on"),
        ({"status": "waiting", "waiting_on": "godot"}, "session_waiting_on"),
        ({"waiting_on": "approval"}, "session_waiting_on"),
        ({"status": "sleeping", "waiting_on": "input"}, "session_waiting_on"),
        ({"completed_at": NOW}, "session_end"),
        ({"cost_total_usd": -1}, "session_money"),
        ({"cost_reserved_usd": -1}, "session_money"),
        ({"cost_actual_usd": -1}, "session_money"),
        ({"cost_held_usd": -1}, "session_money"),
    ],
)
def test_the_database_refuses_a_session_that_makes_no_sense(columns, constraint):
    session = make_session()
    names = ", ".join(f"{name} = %s" for name in columns)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE agents_agentsession SET {names} WHERE id = %s", [*columns.values(), session.pk])


@pytest.mark.parametrize("status", ["completed", "halted", "failed"])
@pytest.mark.parametrize("missing", ["terminal_reason", "completed_at"])
def test_a_session_that_is_over_has_a_reason_and_a_time(status, missing):
    end = {"status": status, "terminal_reason": "external_halt", "completed_at": NOW}
    assert refused(set_session(**{**end, missing: None}), "session_end")
    assert set_session(**end)() == 1


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("halt_state", HaltState),
        ("current_phase", Phase),
        ("mode", Mode),
        ("terminal_reason", [None, *TerminalReason]),
    ],
)
def test_the_database_takes_every_word_of_a_closed_set(column, words):
    assert all(set_session(**{column: word})() == 1 for word in words)


@pytest.mark.parametrize("waiting_on", WaitingOn)
def test_a_waiting_session_says_what_it_waits_for(waiting_on):
    assert set_session(status=Status.WAITING, waiting_on=waiting_on)() == 1


def test_one_firing_of_a_trigger_makes_one_session():
    trigger = make_trigger()
    make_session(trigger=trigger, slot="2026-03-14T09:00")
    with pytest.raises(IntegrityError), transaction.atomic():
        make_session(trigger=trigger, slot="2026-03-14T09:00")
    make_session(trigger=trigger, slot="2026-03-14T10:00")
    make_session(trigger=make_trigger(), slot="2026-03-14T09:00")
    for _ in range(2):
        make_session(trigger=trigger)


def test_what_a_session_starts_with():
    session = AgentSession.objects.create(owner=make_user())
    session.refresh_from_db()
    assert session.max_cost_usd is None
    books = ("cost_total_usd", "cost_reserved_usd", "cost_actual_usd", "cost_held_usd")
    assert [getattr(session, name) for name in books] == [0, 0, 0, 0]
    assert (session.cost_cap_reached, session.budget_warned) == (False, False)
    assert (session.token_budget, session.total_tokens) == (0, 0)
    assert (session.status, session.halt_state, session.current_phase) == ("queued", "running", "intake")
    assert (session.mode, session.trigger_kind, session.trigger_ref) == ("phased", "manual", "")
    assert (session.waiting_on, session.terminal_reason) == ("", None)
    assert session.idle_halt_minutes == 5
    assert (session.params, session.metadata, session.result, session.error) == ({}, {}, None, "")
    assert session.last_activity_at is not None
    assert session.created_at is not None
    assert session.started_at is session.completed_at is session.next_wake_at is session.lease_until is None
    assert (session.lease_owner, session.fencing, session.recoveries) == ("", 0, 0)


def test_the_columns_of_a_session_are_there_and_of_their_kind():
    columns = {field.name: field for field in AgentSession._meta.get_fields() if field.concrete}
    assert type(columns["status"]) is type(columns["halt_state"]) is models.CharField
    assert columns["error"].max_length == 2_000
    assert {name for name, field in columns.items() if isinstance(field, models.JSONField)} == {
        "params",
        "metadata",
        "result",
    }
    with pytest.raises(FieldDoesNotExist):
        AgentSession._meta.get_field("state")
    with connection.cursor() as cursor:
        table = connection.introspection.get_table_description(cursor, AgentSession._meta.db_table)
        constraints = connection.introspection.get_constraints(cursor, AgentSession._meta.db_table)
    stored = {column.name for column in table}
    assert {field.column for field in columns.values()} == stored
    checks = {name for name, about in constraints.items() if about["check"] and name.startswith("session_")}
    assert checks >= {f"session_{name}" for name in ("status", "halt_state", "phase", "mode", "terminal_reason", "end")}
    assert {"session_lease", "session_owner", "session_one_per_slot"} <= set(constraints)


def test_money_is_never_a_decimal_or_float_column():
    for model in (AgentSession, ToolCall, Budget, InferenceLog, ModelPrice, SuspendedModel, Installation, Agent):
        kinds = {type(field) for field in model._meta.get_fields()}
        assert kinds.isdisjoint({models.DecimalField, models.FloatField})


def test_the_state_of_a_session_is_read_from_its_row_and_its_open_calls():
    session = make_session()
    assert session.state == "running"
    call = make_call(session)
    assert session.state == "waiting_for_tool"
    ToolCall.objects.filter(pk=call.pk).update(outcome=Outcome.SUCCESS, settled_at=NOW)
    assert session.state == "running"
    assert make_session("waiting", waiting_on="approval").state == "waiting_for_approval"
    end = {"terminal_reason": "cost_cap_reached", "completed_at": NOW}
    assert make_session("halted", **end).state == "budget_exceeded"
    with pytest.raises(AttributeError):
        session.state = "completed"


def test_the_ledger_of_a_session_is_its_books():
    session = make_session(
        max_cost_usd=USD(1),
        cost_total_usd=USD("0.1"),
        cost_reserved_usd=USD("0.2"),
        cost_actual_usd=USD("0.3"),
        cost_held_usd=USD("0.4"),
        budget_warned=True,
    )
    ledger = session.ledger
    assert (ledger.name, ledger.cap, ledger.warned, ledger.id) == ("session", 1, True, None)
    assert (ledger.approved, ledger.exposed) == (USD("0.3"), USD("0.7"))


def test_active_sessions_are_those_that_are_not_over():
    end = {"terminal_reason": "completed", "completed_at": NOW}
    over = [make_session(status, **end) for status in ("completed", "halted", "failed")]
    active = [make_session(status) for status in ("queued", "running", "sleeping")]
    active.append(make_session("waiting", waiting_on="input"))
    assert set(AgentSession.objects.active()) == set(active)
    assert set(AgentSession.objects.all()) == {*over, *active}


# --- calls ---


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"intent": "delete_project"}, "tool_call_intent"),
        ({"outcome": "fine", "settled_at": NOW}, "tool_call_outcome"),
        ({"outcome": "success"}, "tool_call_settled"),
        ({"outcome": "started", "settled_at": NOW}, "tool_call_settled"),
    ],
)
def test_the_database_refuses_a_call_that_makes_no_sense(columns, constraint):
    assert refused(lambda: make_call(**columns), constraint)


def test_each_place_of_a_run_has_one_call_per_attempt():
    session = make_session()
    make_call(session)
    with pytest.raises(IntegrityError), transaction.atomic():
        make_call(session)
    make_call(session, attempt=2)
    make_call(session, key="turn/2")
    make_call()


# --- approvals ---


def test_a_place_of_a_run_has_one_live_ticket():
    session = make_session()
    first = make_ticket(session)
    for status in ("pending", "approved"):
        with pytest.raises(IntegrityError), transaction.atomic():
            make_ticket(session, status=status)
    for status in ("rejected", "expired", "cancelled"):
        make_ticket(session, status=status)
    make_ticket(session, call_key="turn/2")
    Approval.objects.filter(pk=first.pk).update(status="approved", consumed_at=NOW)
    make_ticket(session)


@pytest.mark.parametrize("status", ["pending", "rejected", "expired", "cancelled"])
def test_only_an_approved_ticket_can_be_used(status):
    assert refused(lambda: make_ticket(status=status, consumed_at=NOW), "approval_consumed")
    make_ticket(status="approved", consumed_at=NOW)


def test_a_ticket_has_a_known_status():
    assert refused(lambda: make_ticket(status="maybe"), "approval_status")


# --- budgets and the installation ---


def test_there_is_one_installation():
    assert Installation.objects.get().pk == 1
    assert refused(lambda: Installation.objects.create(pk=2, max_cost_per_day_usd=USD(1)), "installation_one_row")
    with pytest.raises(IntegrityError), transaction.atomic():
        Installation.objects.bulk_create([Installation(pk=1, max_cost_per_day_usd=USD(1))])
    with pytest.raises(IntegrityError), transaction.atomic():
        Installation.objects.update(max_cost_per_day_usd=None)


def test_a_halt_that_is_in_force_cannot_be_deleted():
    halt = Halt.objects.create(scope="organisation")
    Installation.objects.update(halt=halt)
    with pytest.raises(models.ProtectedError):
        halt.delete()


def test_a_scope_has_one_budget_a_day():
    Budget.objects.create(scope="agent", subject_id=1, day=NOW.date())
    with pytest.raises(IntegrityError), transaction.atomic():
        Budget.objects.create(scope="agent", subject_id=1, day=NOW.date())
    Budget.objects.create(scope="trigger", subject_id=1, day=NOW.date())
    Budget.objects.create(scope="agent", subject_id=1, day=NOW.date() + timedelta(days=1))
    Budget.objects.create(scope="agent", subject_id=1, day=NOW.date(), period="month")
    with pytest.raises(IntegrityError), transaction.atomic():
        Budget.objects.create(scope="agent", subject_id=1, day=NOW.date(), period="month")


@pytest.mark.parametrize("scope", ["installation", "agent", "trigger"])
def test_daily_caps_of_installation_agents_and_triggers_are_on_their_rows(scope):
    assert refused(lambda: Cap.objects.create(scope=scope, period="day", cap_usd=1), "cap_not_on_its_row")
    Cap.objects.create(scope=scope, period="month", cap_usd=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Cap.objects.create(scope=scope, period="month", cap_usd=2)


def test_the_installations_budget_has_a_cap():
    assert refused(lambda: Budget.objects.create(scope="installation", day=NOW.date()), "budget_installation_cap")
    Budget.objects.create(scope="installation", day=NOW.date(), period="month")


@pytest.mark.parametrize("column", ["charged_usd", "reserved_usd", "actual_usd", "held_usd"])
def test_no_book_is_below_zero(column):
    budget = Budget.objects.create(scope="agent", subject_id=1, day=NOW.date())
    with pytest.raises(IntegrityError, match="budget_money"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE agents_budget SET {column} = -1 WHERE id = %s", [budget.pk])


@pytest.mark.parametrize(
    "make", [make_price, lambda: SuspendedModel.objects.create(model="m", bound_usd=0, actual_usd=0)]
)
def test_a_model_has_one_price_and_is_suspended_once(make):
    make()
    with pytest.raises(IntegrityError), transaction.atomic():
        make()


# --- who and why ---


def test_an_owner_has_one_agent_of_a_name():
    agent = make_agent(name="clerk")
    with pytest.raises(IntegrityError), transaction.atomic():
        make_agent(name="clerk", owner=agent.owner)
    make_agent(name="clerk")


@pytest.mark.parametrize("kind", TriggerKind)
def test_a_trigger_is_of_a_known_kind(kind):
    make_trigger(kind=kind)
    assert refused(lambda: make_trigger(kind="whim"), "trigger_kind")


def test_nobody_is_opted_in_by_default():
    user = make_user(opted_in=False)
    assert not Profile(user=user).opted_in
    with pytest.raises(IntegrityError), transaction.atomic():
        Profile.objects.create(user=user)


def test_an_agent_asks_before_restricted_calls_by_default():
    assert (make_agent().mode, make_agent().max_cost_per_day_usd) == ("semi", None)


def test_a_user_has_one_undismissed_precedent_of_a_kind_and_summary():
    one = {"owner": make_user(), "pattern_kind": "clause", "summary": "s", "summary_hash": "h"}
    first = Precedent.objects.create(**one)
    with pytest.raises(IntegrityError), transaction.atomic():
        Precedent.objects.create(**one)
    Precedent.objects.filter(pk=first.pk).update(dismissed_at=NOW)
    Precedent.objects.create(**one)
    Precedent.objects.create(**{**one, "owner": make_user()})
    Precedent.objects.create(**{**one, "summary_hash": "other"})
    assert first.observed_count == 1


def test_rows_read_as_what_they_are():
    session, user = make_session(), make_user(username="ada")
    read = {
        str(Profile.objects.get(user=user)): "ada (opted in)",
        str(Profile(user=user)): "ada (not opted in)",
        str(Project(name="Acme")): "Acme",
        str(make_agent(name="clerk")): "clerk",
        str(make_trigger(name="daily", kind="schedule")): "daily (schedule)",
        str(session): f"{session.public_id} (running)",
        str(make_call(session)): "notify turn/1 (started)",
        str(make_ticket(session)): "send_letter (pending)",
        str(StandingApproval(action="send_letter", uses_left=3)): "send_letter (3 uses left)",
        str(Budget(scope="agent", subject_id=7, day=NOW.date())): "agent:7 on 2026-03-14",
        str(Budget(scope="installation", day=NOW.date())): "installation on 2026-03-14",
        str(Budget(scope="project", subject_id=3, day=NOW.date(), period="month")): "project:3/month in 2026-03",
        str(Cap(scope="project", subject_id=3, period="month", cap_usd=2)): "project:3/month: 2 USD",
        str(Halt()): "halt of all work",
        str(Halt(session=session)): f"halt of {session.pk}",
        str(Installation()): "installation",
        str(ModelPrice(model="m")): "m",
        str(SuspendedModel(model="n")): "n",
        str(InferenceLog(model="m", purpose="chat", outcome="success")): "m for chat (success)",
        str(Finding()): "(untitled)",
        str(Memory(public_id=uuid.UUID(int=1))): f"memory {uuid.UUID(int=1)} (proposed)",
        str(Precedent(pattern_kind="clause", observed_count=2)): "clause: seen 2 times",
        str(Notification(title="Done")): "Done",
    }
    assert list(read) == list(read.values())
    assert session.chain == str(session.public_id)
