"""The runner: claim, work, and an end that is always recorded."""

import threading
from contextlib import ExitStack
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import InterfaceError, OperationalError, transaction

from agents import runner
from agents.conf import clock
from agents.enums import HaltState, Phase, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import OpenTransaction, OutcomeUnknown, Unarmed
from agents.guard import guarded_tool_call, selftest
from agents.models import AgentSession, SuspendedModel, ToolCall
from agents.runner import run_session
from agents.sessions.leases import lease_claim
from agents.types import Asleep, Finished, SliceOver, Waiting
from audit.models import AuditEvent
from tests.agents.conftest import MODEL, ask
from tests.factories import NOW, make_price, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_heartbeat_from_another_connection():
    """Inside a test's own transaction the row is not visible to the heartbeat's connection."""
    with patch.object(runner, "lease_renewal_seconds", return_value=60):
        yield


def run(engine, **fields):
    session = make_session(status=Status.QUEUED, **{"current_phase": Phase.TURN, **fields})
    assert run_session(session.pk, engine, owner="worker-1")
    session.refresh_from_db()
    return session


def test_a_run_that_ends_well_is_completed_with_a_receipt():
    session = run(lambda held: Finished())
    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert session.result["terminal_reason"] == "completed"
    assert (session.lease_owner, session.lease_until) == ("", None)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (SliceOver(), {"status": Status.QUEUED}),
        (Asleep(NOW), {"status": Status.SLEEPING, "next_wake_at": NOW}),
        (Waiting(WaitingOn.APPROVAL), {"status": Status.QUEUED, "waiting_on": ""}),
        (Waiting(WaitingOn.OPERATOR), {"status": Status.QUEUED, "waiting_on": ""}),
        (Waiting(WaitingOn.INPUT), {"status": Status.QUEUED, "waiting_on": ""}),
    ],
)
def test_a_run_that_rests_gives_its_worker_back(end, expected):
    session = run(lambda held: end)
    assert {name: getattr(session, name) for name in expected} == expected
    assert session.lease_owner == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_run_whose_database_broke_off_is_left_to_be_taken_over(error):
    def engine(held):
        raise error("the connection is closed")

    session = run(engine)
    assert (session.status, session.recoveries) == (Status.RUNNING, 0)
    later = clock() + timedelta(hours=1)
    assert lease_claim(session.pk, owner="another", now=later).recoveries == 1


@pytest.mark.django_db(transaction=True)
def test_run_whose_end_could_not_be_written_is_left_to_be_taken_over(monkeypatch):
    def refuse(*_, **__):
        raise OperationalError("the server is away")

    monkeypatch.setattr("agents.runner.session_finish", refuse)
    assert run(lambda held: Finished()).status == Status.RUNNING


def test_any_error_ends_the_run_and_never_escapes():
    def engine(held):
        raise RuntimeError("x" * 5_000)

    session = run(engine)
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_ERROR)
    assert session.error.startswith("RuntimeError: x")
    assert len(session.error) <= 2_000


def test_each_brake_ends_the_run_with_its_own_reason(provider):
    make_price(MODEL)

    def ask_model(held):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, ask())
        return Finished()

    def ungranted(held):
        guarded_tool_call(held, ToolIntent.EMIT_ARTIFACT, {})

    def halted(held):
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
        guarded_tool_call(held, ToolIntent.EMIT_FINDING, {})

    def unpriced(held):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, ask(model="unknown"))

    capped = run(ask_model, max_cost_usd=Decimal("0.001"))
    assert (capped.status, capped.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    assert run(halted).terminal_reason == TerminalReason.EXTERNAL_HALT
    notify = run(lambda held: guarded_tool_call(held, ToolIntent.NOTIFY, {}), current_phase=Phase.INTAKE)
    assert (notify.status, notify.terminal_reason) == (Status.FAILED, TerminalReason.TOOL_NOT_GRANTED)
    assert run(unpriced).terminal_reason == TerminalReason.UNPRICED_MODEL
    assert run(ungranted).terminal_reason == TerminalReason.TOOL_NOT_GRANTED
    for session in AgentSession.objects.all():
        terminal = AuditEvent.objects.filter(chain=session.chain, details__has_key="reason")
        assert terminal.count() == 1, session.terminal_reason


def test_an_unknown_outcome_makes_the_run_wait_for_a_person():
    def engine(held):
        ToolCall.objects.create(
            session=held, key="k", intent="run_skill", phase="turn", arguments={}, digest="d", asked_digest="d",
            fencing=1, started_at=NOW, settled_at=NOW, outcome="unknown", unknown_since=NOW,
        )  # fmt: skip
        raise OutcomeUnknown("a letter may have gone out")

    session = run(engine)
    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.OPERATOR)


def test_nothing_is_run_twice_at_once():
    session = make_session(status=Status.QUEUED)
    inner = []

    def engine(held):
        inner.append(run_session(session.pk, engine, owner="worker-2"))
        return Finished()

    assert run_session(session.pk, engine, owner="worker-1")
    assert inner == [False]


def test_a_worker_that_lost_its_session_leaves_it_alone(caplog):
    def engine(held):
        AgentSession.objects.update(fencing=held.fencing + 1, lease_owner="worker-2")
        return Finished()

    session = run(engine)
    assert (session.status, session.lease_owner) == (Status.RUNNING, "worker-2")
    assert "taken over" in caplog.text


def test_a_call_of_a_worker_that_lost_its_session_ends_its_work_silently():
    def engine(held):
        AgentSession.objects.update(fencing=held.fencing + 1, lease_owner="worker-2")
        guarded_tool_call(held, ToolIntent.EMIT_FINDING, {})

    assert run(engine).status == Status.RUNNING


def test_the_runner_refuses_to_start_inside_a_transaction():
    with transaction.atomic(), pytest.raises(OpenTransaction):
        run_session(1, lambda held: Finished(), owner="worker-1")


def test_a_worker_whose_brakes_do_not_refuse_takes_no_work(monkeypatch):
    monkeypatch.setattr(selftest, "_armed", False)
    failing = [selftest.Check("R5 refuses a halted session", ok=False, found="it was allowed")]
    session = make_session(status=Status.QUEUED)
    with patch.object(selftest, "run_checks", return_value=failing), pytest.raises(Unarmed, match="it was allowed"):
        run_session(session.pk, lambda held: Finished(), owner="worker-1")
    session.refresh_from_db()
    assert session.status == Status.QUEUED


def test_a_process_proves_its_brakes_once(monkeypatch):
    monkeypatch.setattr(selftest, "_armed", False)
    with patch.object(selftest, "run_checks", wraps=selftest.run_checks) as checks:
        run(lambda held: Finished())
        run(lambda held: Finished())
    assert checks.call_count == 1


def beats_of(*sessions, answers, stuck=()):
    """Hold the sessions until their heartbeat has beaten as often as there are answers, and return what it renewed."""
    beaten, left, renewed = threading.Semaphore(0), iter(answers), []
    are_held = threading.Event()

    def soon():
        assert are_held.wait(60)
        return 0.01

    def renew(held, now):
        renewed.append(list(held))
        beaten.release()
        answer = next(left, len(held))
        if isinstance(answer, Exception):
            raise answer
        return answer

    with (
        patch.object(runner, "lease_renewal_seconds", side_effect=soon),
        patch.object(runner, "leases_renew", side_effect=renew),
        patch.object(runner, "worker_retire") as retired,
        ExitStack() as held,
    ):
        for session in sessions:
            held.enter_context(runner._heartbeat.of(session))
        for session in stuck:
            runner._heartbeat._held[session.pk, session.fencing] -= 601
        are_held.set()
        for _ in answers:
            assert beaten.acquire(timeout=60)
    assert retired.called == bool(stuck)
    return renewed


def test_a_heartbeat_that_fails_is_a_beat_missed(caplog):
    session = make_session(lease_until=NOW + timedelta(hours=1))

    beats_of(session, answers=[OperationalError("down"), 1, 0])

    assert "could not be renewed" in caplog.text
    assert SuspendedModel.objects.count() == 0


def test_one_heartbeat_renews_the_leases_of_all_runs_of_a_process():
    sessions = [make_session(fencing=number) for number in (1, 2)]

    renewed = beats_of(*sessions, answers=[2])

    assert renewed[0] == [(session.pk, session.fencing) for session in sessions]
    assert not any(thread.name.startswith("heartbeat-") for thread in threading.enumerate())


def test_run_that_takes_longer_than_a_task_may_is_given_up():
    stuck, fresh = make_session(), make_session()

    renewed = beats_of(stuck, fresh, answers=[1], stuck=[stuck])

    assert renewed[0] == [(fresh.pk, fresh.fencing)]
