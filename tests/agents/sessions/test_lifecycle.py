"""The life of a session: birth, phases, rest, end."""

import threading
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import connection, transaction

from agents.enums import HaltState, Mode, Phase, Status, TerminalReason, WaitingOn
from agents.exceptions import InvalidTransition, LeaseLost, NotAllowed
from agents.models import AgentSession
from agents.policy.transitions import REASON_STATUS, TERMINAL
from agents.sessions import ending, lifecycle
from agents.sessions.ending import session_finish, session_rest
from agents.sessions.lifecycle import session_create, session_enter_phase, session_lock, session_row, session_wake
from agents.sessions.questions import question_ask
from audit.models import AuditEvent
from audit.receipts import build_receipt
from audit.recorder import append
from audit.verify import verify_chain
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user
from tests.flows.processes import PATIENCE, in_threads, until

pytestmark = pytest.mark.django_db


def test_nothing_runs_for_a_user_who_has_not_opted_in():
    with pytest.raises(NotAllowed, match="opted in"):
        session_create(owner=make_user(opted_in=False), now=NOW)


@pytest.mark.parametrize(
    ("own", "trigger_cap", "expected"),
    [(None, None, "5.00"), (None, "0.25", "0.25"), ("0.10", "0.25", "0.10"), ("0", "0.25", "0"), (None, "0", "0")],
)
def test_a_session_takes_its_own_cap_else_its_trigger_s_else_the_default(own, trigger_cap, expected):
    trigger = make_trigger(max_cost_usd=trigger_cap and Decimal(trigger_cap))
    session = session_create(owner=trigger.owner, trigger=trigger, max_cost_usd=own and Decimal(own), now=NOW)
    assert session.max_cost_usd == Decimal(expected)


def test_editing_the_trigger_s_cap_changes_new_sessions_only():
    trigger = make_trigger(max_cost_usd=Decimal("0.25"))
    session = session_create(owner=trigger.owner, trigger=trigger, now=NOW)
    trigger.max_cost_usd = Decimal(3)
    trigger.save()
    session.refresh_from_db()
    assert session.max_cost_usd == Decimal("0.25")


def test_a_loop_session_lives_in_the_pseudo_phase_turn():
    owner = make_user()
    assert session_create(owner=owner, mode=Mode.LOOP, agent=make_agent(owner=owner), now=NOW).current_phase == "turn"
    assert session_create(owner=owner, now=NOW).current_phase == Phase.INTAKE


def test_each_phase_is_entered_once_and_recorded():
    session = make_session(current_phase=Phase.INTAKE)
    for phase in (Phase.INTAKE, Phase.INTAKE, Phase.ANALYSIS):
        session_enter_phase(session, phase, now=NOW)
    rows = AuditEvent.objects.filter(chain=session.chain).order_by("seq")
    assert [row.details["to_phase"] for row in rows] == ["intake", "analysis"]
    session.refresh_from_db()
    assert session.last_activity_at == NOW  # a phase change alone is not activity
    assert session.current_phase == Phase.ANALYSIS


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite the second writer has not read anything yet")
@pytest.mark.django_db(transaction=True)
def test_phase_is_recorded_behind_what_another_wrote_while_it_waited():
    session = make_session(current_phase=Phase.INTAKE)
    append(session.chain, "autonomous_session.started", now=NOW)
    locked = threading.Event()

    def act(number):
        if number:
            assert locked.wait(PATIENCE)
            session_enter_phase(session, Phase.INTAKE, now=NOW)
            return
        with transaction.atomic():
            session_lock(session.pk)
            append(session.chain, "autonomous_session.resumed", now=NOW)
            locked.set()
            until(somebody_waits)

    in_threads(2, act)
    kinds = AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("kind", flat=True)
    assert [kind.partition(".")[2] for kind in kinds] == ["started", "resumed", "phase_transition"]
    assert verify_chain(session.chain).problems == []


def somebody_waits():
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid())")
        return cursor.fetchone()[0]


def test_notes_are_written_with_the_phase_and_only_with_it():
    session = make_session(current_phase=Phase.INTAKE, metadata={"asked_by": "user:1", "result": "ok"})
    session_enter_phase(session, Phase.DELIVERY, now=NOW, notes={"result": "empty"})
    session_enter_phase(session, Phase.DELIVERY, now=NOW, notes={"result": "failed"})
    noted = {"asked_by": "user:1", "result": "empty", "phase_entered": "delivery"}
    assert session.metadata == AgentSession.objects.get(pk=session.pk).metadata == noted


@pytest.mark.parametrize("reason", list(TerminalReason))
def test_every_reason_ends_a_session_with_one_terminal_row_a_receipt_and_a_closed_chain(reason):
    session = make_session()
    session_finish(session, reason, now=NOW, error="ValueError: boom")
    session.refresh_from_db()
    assert session.status == REASON_STATUS[reason]
    assert session.terminal_reason == reason
    terminal = [row for row in AuditEvent.objects.filter(chain=session.chain) if "reason" in row.details]
    assert [row.details["reason"] for row in terminal] == [reason]
    assert session.result["terminal_reason"] == reason
    assert session.result == build_receipt(session.chain)
    closed = AuditEvent.objects.filter(chain="system").latest("seq")
    assert (closed.kind, closed.details["closed"]) == ("audit.chain_closed", session.chain)


def test_a_failed_session_names_the_kind_of_error_in_the_record_and_its_text_only_on_the_row():
    session = make_session()
    session_finish(session, TerminalReason.WORKER_ERROR, now=NOW, error="ValueError: " + "x" * 3_000)
    session.refresh_from_db()
    assert AuditEvent.objects.get(kind="autonomous_session.failed").details["error_type"] == "ValueError"
    assert len(session.error) == 2_000


def test_the_end_that_a_brake_recorded_stands():
    session = make_session(halt_state=HaltState.HALTED, terminal_reason=TerminalReason.COST_CAP_REACHED)
    session_finish(session, TerminalReason.COMPLETED, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    assert not AuditEvent.objects.filter(chain=session.chain).exists()


def test_a_receipt_that_cannot_be_built_does_not_keep_a_session_from_ending(caplog):
    session = make_session()
    with patch.object(ending, "build_receipt", side_effect=RuntimeError("bug")):
        session_finish(session, TerminalReason.COMPLETED, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.result) == (Status.COMPLETED, None)
    assert "could not be built" in caplog.text


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_a_session_that_is_over_cannot_be_moved(status):
    session = make_session(status=status, terminal_reason="completed", completed_at=NOW)
    for move in (
        lambda: session_finish(session, TerminalReason.COMPLETED, now=NOW),
        lambda: session_rest(session, Status.QUEUED, now=NOW),
        lambda: session_enter_phase(session, Phase.DELIVERY, now=NOW),
    ):
        with pytest.raises(LeaseLost), transaction.atomic():
            move()
    assert not session_wake(session.pk, now=NOW)
    assert AgentSession.objects.get().status == status


def test_a_session_rests_and_wakes():
    session = make_session(recoveries=2, lease_owner="w", lease_until=NOW)
    question_ask(session, key="step:1", text="Which one?", now=NOW)
    session_rest(session, Status.WAITING, waiting_on=WaitingOn.INPUT, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.waiting_on, session.lease_owner, session.recoveries) == ("waiting", "input", "", 0)
    assert session_wake(session.pk, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.waiting_on) == ("queued", "")


def test_a_session_whose_halt_was_asked_for_does_not_lie_down():
    session = make_session(halt_state=HaltState.HALT_REQUESTED)
    session_rest(session, Status.SLEEPING, wake_at=NOW, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)


def test_a_session_cannot_rest_in_a_final_state():
    with pytest.raises(InvalidTransition, match="running to running"):
        session_rest(make_session(), Status.RUNNING, now=NOW)


def test_the_state_that_integrations_read_follows_the_row():
    session = make_session()
    assert session.state == "running"
    session.status = Status.SLEEPING
    assert session.state == "sleeping"


def test_a_session_that_is_gone_cannot_be_locked():
    with pytest.raises(AgentSession.DoesNotExist, match="no session 0"):
        lifecycle.session_lock(0)


def test_row_of_a_session_is_what_the_orm_would_read():
    session = make_session(agent=make_agent(), params={"query": "lease"}, metadata={"purpose": "x"}, next_wake_at=NOW)
    columns = [field.attname for field in AgentSession._meta.concrete_fields]
    expected = AgentSession.objects.get(pk=session.pk)
    with transaction.atomic():
        for row in (session_row(session.pk), session_lock(session.pk)):
            assert [getattr(row, name) for name in columns] == [getattr(expected, name) for name in columns]
            assert not row._state.adding
    with pytest.raises(AgentSession.DoesNotExist):
        session_row(session.pk + 1)
