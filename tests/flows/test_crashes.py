"""Workers that are killed or frozen in the middle of a call: what was done is known, and nothing is done twice."""

import signal
from datetime import timedelta
from decimal import Decimal

import pytest

from agents.conf import clock
from agents.enums import Outcome, Status, TerminalReason, WaitingOn
from agents.models import AgentSession, Budget, Finding, ToolCall
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.leases import lease_claim
from audit.receipts import build_receipt
from audit.verify import verify_log
from tests.factories import make_price, make_session, make_user
from tests.flows.processes import Worker, until
from tests.flows.workers import MODEL

pytestmark = pytest.mark.django_db(transaction=True)


def let_the_lease_run_out(session):
    """As if by waiting."""
    AgentSession.objects.filter(pk=session.pk).update(lease_until=clock() - timedelta(seconds=1))


def effects(path):
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_worker_killed_after_the_effect_and_before_it_was_noted_leaves_an_unknown_outcome(tmp_path):
    session = make_session(status=Status.QUEUED)
    done = tmp_path / "effects"
    worker = Worker("run", session_pk=session.pk, effects=str(done))
    worker.wait_for("acted")
    worker.kill()
    assert effects(done) == ["1", "2"]
    assert ToolCall.objects.get(key="step:2").outcome == Outcome.STARTED
    let_the_lease_run_out(session)

    assert Worker("run", session_pk=session.pk, effects=str(done), block=False).result() is False
    session.refresh_from_db()
    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.OPERATOR)
    assert effects(done) == ["1", "2"]  # nothing was repeated

    unknown = ToolCall.objects.get(outcome=Outcome.UNKNOWN)
    tool_call_resolve(unknown.pk, Decision.HAPPENED, by=make_user(is_superuser=True), now=clock(), result={"step": 2})
    assert Worker("run", session_pk=session.pk, effects=str(done), block=False).result() is True
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert effects(done) == ["1", "2", "3"]
    assert session.result == build_receipt(session.chain)
    assert verify_log().problems == []


def test_a_killed_worker_s_call_that_takes_a_key_is_repeated_with_the_same_key(tmp_path):
    session = make_session(status=Status.QUEUED)
    done = tmp_path / "effects"
    worker = Worker("run", session_pk=session.pk, effects=str(done), repeatable=True)
    worker.wait_for("acted")
    worker.kill()
    let_the_lease_run_out(session)
    assert Worker("run", session_pk=session.pk, effects=str(done), block=False, repeatable=True).result() is True
    lines = done.read_text().split("\n")
    assert effects(done) == ["1", "2", "2", "3"]
    assert lines[1] == lines[2]  # the second attempt carries the key of the first
    session.refresh_from_db()
    assert session.status == Status.COMPLETED


def test_a_worker_killed_while_the_model_thinks_is_charged_once_and_the_question_is_asked_again(tmp_path):
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session(status=Status.QUEUED)
    asked = tmp_path / "asked"
    worker = Worker("infer", session_pk=session.pk, asked=str(asked))
    worker.wait_for("asked")
    worker.kill()
    session.refresh_from_db()
    assert session.cost_reserved_usd == Decimal("0.005")
    let_the_lease_run_out(session)
    assert Worker("infer", session_pk=session.pk, asked=str(asked), block=False).result() is True
    session.refresh_from_db()
    assert session.status == Status.COMPLETED
    assert asked.read_text().split() == ["asked", "asked"]
    lost, answered = ToolCall.objects.order_by("attempt")
    assert (lost.outcome, answered.outcome) == (Outcome.WORKER_LOST, Outcome.SUCCESS)
    assert session.cost_total_usd == Decimal("0.010")
    assert session.cost_actual_usd == lost.held_usd + Decimal("0.0001")
    assert session.cost_reserved_usd == session.cost_held_usd == 0
    budget = Budget.objects.get()
    assert (budget.charged_usd, budget.actual_usd) == (session.cost_total_usd, session.cost_actual_usd)
    assert verify_log().problems == []


def test_a_session_that_always_kills_its_worker_ends_and_is_given_up(tmp_path):
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(status=Status.QUEUED)
    asked = tmp_path / "asked"
    for _ in range(4):
        worker = Worker("infer", session_pk=session.pk, asked=str(asked))
        worker.wait_for("asked")
        worker.kill()
        let_the_lease_run_out(session)
    assert Worker("infer", session_pk=session.pk, asked=str(asked), block=False).result() is False
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_LOST)
    assert session.result["terminal_reason"] == "worker_lost"
    assert asked.read_text().split() == ["asked"] * 4


def freeze_past_the_lease(session):
    frozen = Worker("stall", session_pk=session.pk, owner="frozen")
    frozen.wait_for("holding")
    frozen.send(signal.SIGSTOP)
    let_the_lease_run_out(session)
    taken = lease_claim(session.pk, owner="awake", now=clock())
    assert taken is not None
    frozen.send(signal.SIGCONT)
    frozen.tell("go on")
    assert frozen.result() == "refused"
    assert not Finding.objects.filter(session=session).exists()


def test_a_frozen_worker_that_wakes_up_after_the_takeover_can_write_nothing():
    freeze_past_the_lease(make_session(status=Status.QUEUED))


def test_a_running_worker_keeps_its_lease_by_its_heartbeat(tmp_path):
    session = make_session(status=Status.QUEUED)
    worker = Worker("run", session_pk=session.pk, effects=str(tmp_path / "effects"))
    worker.wait_for("acted")
    first = AgentSession.objects.get(pk=session.pk).lease_until
    until(lambda: AgentSession.objects.get(pk=session.pk).lease_until > first)
    assert lease_claim(session.pk, owner="other", now=first) is None  # when it would have run out
    worker.tell("go on")
    assert worker.result() is True


@pytest.mark.stress
def test_fifty_frozen_workers_write_nothing():
    for _ in range(50):
        freeze_past_the_lease(make_session(status=Status.QUEUED))
