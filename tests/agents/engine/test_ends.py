"""Ends of a run: published errors, model retries, and recovery after a lost worker."""

from unittest.mock import patch

import pytest
import time_machine

from agents.engine import loop as engine
from agents.engine.loop import Answered
from agents.enums import EventKind, Mode, TerminalReason, WaitingOn
from agents.exceptions import BudgetRefused, CostCapReached, LeaseLost, RetryLater, SessionHalted
from agents.guard import metering
from agents.models import AgentEvent, Approval, InferenceLog
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.providers.base import Fault, ProviderError
from agents.sessions.approvals import approval_approve, approval_reject, approvals_expire
from agents.sessions.halts import session_halt
from agents.types import Finished, Waiting
from tests.factories import NOW

from .conftest import Step, calls, native, script

pytestmark = pytest.mark.django_db

DONE = Step("All done.")
REFUSED = Step(error=ProviderError("401 from the model server", fault=Fault.AUTH))
BROKEN = Step(error=ProviderError("503 from the model server", fault=Fault.SERVER))


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False), patch.object(metering.Meter, "_wait"):
        yield


def errors(session, **data):
    told = AgentEvent.objects.filter(session=session, kind=EventKind.ERROR).order_by("pk")
    return [event.data for event in told if data.items() <= event.data.items()]


# --- Retries ---


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("retries", "tries", "attempts"), [(0, 5, 1), (1, 5, 1), (2, 5, 2), (3, 5, 3), (9, 2, 2)], ids=str
)
def test_failing_model_is_tried_as_often_as_both_limits_allow(loop, settings, retries, tries, attempts):
    settings.LQOPS_MODEL_TRIES = tries
    with script(BROKEN) as model, pytest.raises(RetryLater):
        loop(config=LoopConfig(max_retries=retries)).run()
    assert len(model.requests) == attempts


def test_success_on_the_third_attempt_answers(loop):
    with script(BROKEN, BROKEN, DONE):
        assert loop().run() == Answered("All done.")
    assert InferenceLog.objects.count() == 3


# --- Published errors ---


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("steps", "config", "reason", "words"),
    [
        ([calls('look(place="a")')], LoopConfig(), "stuck_loop", "max_repeated_tool_steps"),
        ([native("look", place="a"), native("look", place="b")], LoopConfig(max_steps=1), "max_steps", "max steps"),
        ([REFUSED], LoopConfig(), "provider_error", "401 from the model server"),
        ([Step("No.", stop_reason="refusal")], LoopConfig(), "refused", "refused to answer"),
    ],
    ids=["stuck", "steps", "provider", "refusal"],
)
def test_end_without_an_answer_is_published_once(loop, session, steps, config, reason, words):
    with script(*steps):
        assert isinstance(loop(config=config).run(), Finished)
        loop(config=config).run()  # as the next worker does when this one is lost before it records the end
    [error] = errors(session)
    assert (error["reason"], error["recoverable"]) == (reason, False)
    assert words in error["message"]


def test_brake_is_published_once(loop, session):
    session.max_cost_usd = "0.006"
    session.save()
    with script(calls('look(place="a")'), DONE), pytest.raises(CostCapReached):
        loop().run()
    [error] = errors(session, recoverable=False)
    assert error["reason"] == "cost_cap_reached"


def test_halt_is_published_once(loop, session):
    session_halt(session.pk, by=None, reason="enough", now=NOW)
    with script(DONE), pytest.raises(SessionHalted):
        loop().run()
    assert [error["reason"] for error in errors(session)] == ["session_halted"]


def test_internal_error_is_published(loop, session):
    with (
        script(DONE),
        patch.object(engine, "read_reply", side_effect=RuntimeError("oops")),
        pytest.raises(RuntimeError),
    ):
        loop().run()
    [error] = errors(session)
    assert (error["reason"], error["message"]) == ("worker_error", "RuntimeError: oops")


def test_answer_wait_and_lost_lease_are_not_errors(loop, session, approver):
    with script(calls('act(what="it")'), Step("risky"), DONE):
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        with patch.object(engine, "transcript_append", side_effect=LeaseLost("gone")), pytest.raises(LeaseLost):
            loop().run()
        assert loop().run() == Answered("All done.")
    assert errors(session) == []


def test_round_limit_and_budget_window_are_no_errors_in_a_loop(loop, session):
    session.mode = Mode.LOOP
    session.save()
    refused = BudgetRefused("agent", 1, NOW)
    with script(calls('look(place="a")')):
        assert loop(config=LoopConfig(max_tool_rounds=1)).run() == Finished(TerminalReason.MAX_STEPS)
        with patch.object(engine, "preflight", side_effect=refused), pytest.raises(BudgetRefused):
            loop().run()
    assert errors(session) == []


def test_budget_warning_is_published_once_as_recoverable(loop, session):
    session.cost_total_usd = "4.6"
    session.save()
    with script(calls('look(place="1")'), DONE):
        loop().run()
    assert [error["recoverable"] for error in errors(session)] == [True]


# --- Recovery after a lost worker ---


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("steps", "asked", "end"),
    [
        ([DONE], 1, Answered("All done.")),
        ([Step("one ", stop_reason="max_tokens"), Step("two")], 2, Answered("one two")),
        ([Step("No.", stop_reason="refusal")], 1, TerminalReason.REFUSED),
        ([calls('look(place="a")')], 4, TerminalReason.STUCK_LOOP),
        ([Step('<skill>look(place="a', stop_reason="max_tokens")], 3, TerminalReason.REFUSED),
        ([calls('fail(words="no")'), Step(""), Step("It failed.")], 3, Answered("It failed.")),
    ],
    ids=["answer", "cut", "refusal", "stuck", "cut call", "premature"],
)
def test_next_worker_judges_a_stored_reply(loop, steps, asked, end):
    """The worker dies after every write of a reply; nothing is asked twice."""
    append, found = engine.transcript_append, None

    def dying(session, entries, **more):
        added = append(session, entries, **more)
        if entries[0].role == "assistant":
            raise KeyboardInterrupt
        return added

    with script(*steps) as model, patch.object(engine, "transcript_append", dying):
        for _ in range(10):
            try:
                found = loop().run()
                break
            except KeyboardInterrupt:
                continue
    assert end in {found, getattr(found, "reason", None)}
    assert len(model.requests) == asked


def test_answer_at_the_last_step_survives_a_lost_worker(loop):
    with script(DONE) as model:
        first = loop(config=LoopConfig(max_steps=1)).run()
        assert (
            loop(config=LoopConfig(max_steps=1), guardrails=GuardrailsConfig()).run() == first == Answered("All done.")
        )
    assert len(model.requests) == 1


# --- Approvals ---


def test_approval_requests_and_decisions_are_published(loop, session, approver):
    def told():
        rows = AgentEvent.objects.filter(session=session, kind__startswith="approval:").order_by("pk")
        return [(row.kind, row.data.get("decision")) for row in rows]

    with script(calls('act(what="it")', 'act(what="that")', 'act(what="more")'), Step("risky"), DONE):
        for decide in (approval_approve, approval_reject):
            loop().run()
            ticket = Approval.objects.get(status="pending")
            decide(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        loop().run()
        approvals_expire(Approval.objects.get(status="pending").expires_at)

    first = AgentEvent.objects.filter(kind="approval:requested").earliest("pk")
    assert (first.data["action"], first.data["level"]) == ("act", "RESTRICTED")
    assert told() == [
        ("approval:requested", None), ("approval:resolved", "approved"),
        ("approval:requested", None), ("approval:resolved", "rejected"),
        ("approval:requested", None), ("approval:resolved", "expired"),
    ]  # fmt: skip
