"""The idle watchdog: marks what does nothing, halts what stays idle; what rests or has a call out is left alone."""

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection

from agents.enums import HaltState, Outcome, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import LeaseLost
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Finding, Notification, ToolCall
from agents.sessions import leases
from agents.sessions.ending import session_finish
from agents.sessions.leases import idle_sweep
from agents.sessions.lifecycle import session_lock
from audit.models import AuditEvent
from audit.receipts import build_receipt
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db


def after(minutes):
    return NOW + timedelta(minutes=minutes)


def where(session):
    session.refresh_from_db()
    return session.status, session.halt_state, session.terminal_reason


def kinds(session):
    return list(AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("kind", flat=True))


RUNNING = (Status.RUNNING, HaltState.RUNNING, None)
IDLE = (Status.RUNNING, HaltState.IDLE, None)
HALTED = (Status.HALTED, HaltState.HALTED, TerminalReason.IDLE_TIMEOUT)


@pytest.mark.parametrize(
    ("state", "minutes", "then"),
    [
        (HaltState.RUNNING, 4, RUNNING),
        (HaltState.RUNNING, 5, IDLE),
        (HaltState.RUNNING, 6, IDLE),
        (HaltState.RUNNING, 11, IDLE),
        (HaltState.IDLE, 6, IDLE),
        (HaltState.IDLE, 10, HALTED),
        (HaltState.IDLE, 11, HALTED),
        (HaltState.HALT_REQUESTED, 11, (Status.RUNNING, HaltState.HALT_REQUESTED, None)),
    ],
)
def test_one_sweep(state, minutes, then):
    session = make_session(halt_state=state)
    swept = idle_sweep(after(minutes))
    assert where(session) == then
    assert swept == (then[1] != state)


def test_a_session_is_first_marked_idle_and_in_a_later_sweep_halted():
    session = make_session()
    assert [idle_sweep(after(minutes)) for minutes in (6, 9, 11, 12)] == [1, 0, 1, 0]
    assert where(session) == HALTED
    assert kinds(session) == ["session.paused", "autonomous_session.halted"]
    paused, halted = AuditEvent.objects.filter(chain=session.chain).order_by("seq")
    assert (paused.details, paused.actor) == ({"idle_seconds": 360}, "system")
    assert (halted.details["reason"], halted.actor) == ("idle_timeout", "system")
    assert (session.completed_at, session.result) == (after(11), build_receipt(session.chain))
    notice = Notification.objects.get()
    assert (notice.owner, notice.session, notice.kind) == (session.owner, session, "run_stopped")
    assert notice.title == f"Run halted: idle for too long, {session.mode} run"


def test_each_session_has_its_own_patience():
    patient, hasty = make_session(idle_halt_minutes=60), make_session(idle_halt_minutes=1)
    idle_sweep(after(6))
    assert (where(patient), where(hasty)) == (RUNNING, IDLE)


def test_a_call_takes_the_mark_away_and_starts_the_clock_anew():
    session = make_session()
    idle_sweep(after(6))
    assert guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=after(7)).ok
    assert where(session) == RUNNING
    assert idle_sweep(after(11)) == 0


@pytest.mark.parametrize("state", [HaltState.RUNNING, HaltState.IDLE])
def test_a_call_that_is_out_counts_as_activity(state):
    session = make_session(halt_state=state)
    call = ToolCall.objects.create(
        session=session, key="turn:1", intent=ToolIntent.RUN_SKILL, phase="turn", arguments={}, digest="d",
        asked_digest="d", fencing=session.fencing, started_at=NOW,
    )  # fmt: skip
    assert idle_sweep(after(600)) == 0
    ToolCall.objects.filter(pk=call.pk).update(outcome=Outcome.SUCCESS, settled_at=NOW)
    assert idle_sweep(after(600)) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "rest",
    [
        {"status": Status.QUEUED},
        {"status": Status.SLEEPING, "next_wake_at": after(30)},
        *({"status": Status.WAITING, "waiting_on": what} for what in WaitingOn),
        {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW},
    ],
)
def test_a_session_at_rest_survives_half_an_hour_of_sweeps(rest):
    sessions = [make_session(**rest), make_session(halt_state=HaltState.IDLE, **rest)]
    assert [idle_sweep(after(minutes)) for minutes in range(31)] == [0] * 31
    assert [where(session)[0] for session in sessions] == [rest["status"]] * 2


def test_a_worker_that_hangs_and_comes_back_can_write_nothing():
    session = make_session(halt_state=HaltState.IDLE, lease_owner="worker:1", lease_until=after(60))
    idle_sweep(after(11))
    for late in (
        lambda: guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=after(12)),
        lambda: session_finish(session, TerminalReason.COMPLETED, now=after(12)),
    ):
        with pytest.raises(LeaseLost):
            late()
    assert AgentSession.objects.get().fencing == session.fencing + 1
    assert (where(session), Finding.objects.count()) == (HALTED, 0)


def test_activity_between_the_look_and_the_lock_is_seen():
    session = make_session()

    def then_it_acts(pk):
        AgentSession.objects.filter(pk=pk).update(last_activity_at=after(6))
        return session_lock(pk)

    with patch.object(leases, "session_lock", side_effect=then_it_acts):
        assert idle_sweep(after(6)) == 0
    assert where(session) == RUNNING


def test_a_session_that_ends_between_the_look_and_the_lock_is_left_alone():
    session = make_session()

    def then_it_rests(pk):
        AgentSession.objects.filter(pk=pk).update(status=Status.QUEUED)
        return session_lock(pk)

    with patch.object(leases, "session_lock", side_effect=then_it_rests):
        assert idle_sweep(after(6)) == 0
    assert where(session)[:2] == (Status.QUEUED, HaltState.RUNNING)


def test_a_session_that_cannot_be_marked_keeps_no_other_from_it(caplog):
    bad, good = make_session(), make_session()
    real = leases.session_lock

    def lock(pk):
        if pk == bad.pk:
            raise OperationalError("database is locked")
        return real(pk)

    with patch.object(leases, "session_lock", side_effect=lock):
        assert idle_sweep(after(6)) == 1
    assert (where(bad), where(good)) == (RUNNING, IDLE)
    assert "tried again" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_the_look_holds_no_lock_and_each_step_its_own_transaction():
    sessions = [make_session() for _ in range(3)]
    open_before = []
    real = leases._mark_idle

    def pause(row, now):
        states = AgentSession.objects.filter(halt_state=HaltState.IDLE).count()
        open_before.append((connection.in_atomic_block, states))
        real(row, now)

    with patch.object(leases, "_mark_idle", pause):
        idle_sweep(after(6))
    assert open_before == [(True, 0), (True, 1), (True, 2)]
    assert not connection.in_atomic_block
    assert [where(session) for session in sessions] == [IDLE] * 3
