"""A model that fails: asked again within reason, each attempt in the books, interruptible by a halt."""

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest

from agents.enums import HaltState, Outcome, Status, TerminalReason, ToolIntent
from agents.exceptions import BudgetExceeded, RetryLater
from agents.guard import guarded_tool_call, metering
from agents.guard.tools import persisting
from agents.models import AgentSession, Budget, InferenceLog, ModelOutage, ToolCall
from agents.providers.base import Chunk, Fault, ProviderError, ended_once, wait_listening
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.leases import lease_claim, session_try_now
from agents.types import Finished, ModelReply, Usage
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_price, make_session
from tests.serving import serving

pytestmark = pytest.mark.django_db


@pytest.fixture
def _no_waiting():
    with patch.object(metering, "next_wait", wraps=metering.next_wait) as next_wait:
        real = metering.next_wait._mock_wraps
        next_wait.side_effect = lambda *a: None if real(*a) is None else 0.0
        yield


def broken(fault=Fault.SERVER, usage=None, **more):
    return Step(error=ProviderError("503 from the model server", fault=fault, usage=usage, **more))


def call(session, **more):
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="turn:1", now=NOW, **more)


def books(session):
    session.refresh_from_db()
    budget = Budget.objects.get()
    assert (budget.charged_usd, budget.actual_usd) == (session.cost_total_usd, session.cost_actual_usd)
    assert session.cost_reserved_usd == session.cost_held_usd == budget.reserved_usd == budget.held_usd == 0
    return session.cost_total_usd, session.cost_actual_usd


@pytest.mark.usefixtures("_no_waiting")
def test_a_call_that_fails_twice_and_then_works_is_charged_once_and_every_attempt_is_booked():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session()
    with script(broken(), broken(usage=Usage(0, 20)), Step("ok", usage=Usage(0, 100))) as model:
        result = call(session)
    row = ToolCall.objects.get()
    worst = row.held_usd
    assert result.ok
    assert len(model.requests) == 3
    charged, actual = books(session)
    assert charged == result.cost_usd == Decimal("0.005")
    assert actual == worst + Decimal("0.0002") + Decimal("0.001") == row.actual_usd
    assert session.total_tokens == row.tokens == 120
    logged = InferenceLog.objects.order_by("attempt").values_list("attempt", "outcome", "cost_estimate")
    assert list(logged) == [
        (1, "gateway_error", None),
        (2, "gateway_error", Decimal("0.0002")),
        (3, "success", Decimal("0.001")),
    ]


@pytest.mark.usefixtures("_no_waiting")
def test_a_model_that_does_not_work_is_left_after_three_attempts_and_not_charged():
    make_price(MODEL, input_usd="0", output_usd="1")
    session = make_session()
    with script(broken()) as model, pytest.raises(RetryLater):
        call(session)
    assert len(model.requests) == 3
    charged, actual = books(session)
    assert charged == 0
    assert actual == 3 * ToolCall.objects.get().held_usd


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize(("wanted", "tried"), [(1, 1), (2, 2), (9, 3)])
def test_a_caller_may_want_fewer_attempts_and_never_more(wanted, tried):
    make_price(MODEL)
    with script(broken()) as model, persisting(wanted), pytest.raises(RetryLater):
        call(make_session())
    assert len(model.requests) == tried


def test_all_attempts_of_a_call_share_one_time_limit(settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"total_seconds": 0.6}}
    make_price(MODEL)
    slow = Step("too late", delay_seconds=0.4)
    down = Step(error=ProviderError("503", fault=Fault.SERVER, usage=Usage(0, 0)), delay_seconds=0.4)
    with patch.object(metering, "next_wait", return_value=0.0), script(down, slow) as model, pytest.raises(RetryLater):
        call(make_session())
    assert len(model.requests) == 2
    assert "took too long" in ToolCall.objects.get().error


class Busy:
    """A server at which others have their turn first, for ten seconds; then it answers within so many more."""

    name = "busy"

    def __init__(self, seconds):
        self.now = 0.0
        self._seconds = seconds

    def monotonic(self):
        return self.now

    def stream(self, request, on_chunk):
        for _ in range(10):
            self.now += 1
            on_chunk(Chunk(is_before=True))
        with ended_once(on_chunk) as on_text:
            self.now += self._seconds
            on_text("ok")
        return ModelReply("ok", usage=Usage(0, 1))


@pytest.mark.parametrize(("seconds", "outcome"), [(2.9, Outcome.SUCCESS), (3.1, Outcome.GATEWAY_ERROR)])
def test_wait_for_the_turns_of_others_is_not_the_model_s_time(settings, seconds, outcome):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"total_seconds": 3}}
    make_price(MODEL)
    server = Busy(seconds)
    with serving(MODEL, server), patch.object(metering, "time", server), suppress(RetryLater):
        call(make_session())
    assert ToolCall.objects.get().outcome == outcome


class OneTokenASecond:
    """A server that never comes to an end, at its own pace."""

    name = "slow"

    def stream(self, request, on_chunk):
        received = 0
        with ended_once(on_chunk) as on_text:
            try:
                while True:
                    on_text("word ")
                    received += 5
                    wait_listening(0.1, on_chunk)
            except ProviderError as error:
                error.received_bytes = received
                raise


def test_a_model_that_is_still_answering_when_the_time_is_over_has_given_a_part(settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"total_seconds": 0.25}}
    make_price(MODEL, input_usd="0", output_usd="1")
    session = make_session()
    with serving(MODEL, OneTokenASecond()):
        result = call(session)
    words = result.data["text"].split()
    assert (result.outcome, result.data["stop_reason"], set(words)) == (Outcome.SUCCESS, "out_of_time", {"word"})
    _, actual = books(session)
    assert actual == Decimal(5 * len(words)) / 1_000_000, "booked at what came in, a token a byte"


class ThinksForEver:
    """A server that sends thoughts and comes to no answer."""

    name = "thinking"

    def stream(self, request, on_chunk):
        with ended_once(on_chunk):
            while True:
                on_chunk(Chunk(is_thought=True))
                wait_listening(0.05, on_chunk)


@pytest.mark.parametrize("must_answer", [False, True])
def test_a_model_that_thinks_until_the_time_is_over_has_not_answered_and_is_not_away(settings, must_answer):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"total_seconds": 0.25}}
    make_price(MODEL)
    with serving(MODEL, ThinksForEver()):
        params = {**ask(), "must_answer": must_answer}
        result = guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, params, key="turn:1")
    if must_answer:
        assert (result.ok, result.data) == (False, None)
        assert "used all its tokens before it answered" in result.error
    else:
        assert (result.data["text"], result.data["stop_reason"]) == ("", "max_tokens")
    assert not ModelOutage.objects.exists()


def test_what_a_model_thought_is_paid_and_recorded():
    make_price(MODEL, input_usd="1", output_usd="1")
    session = make_session()
    with script(Step("yes", usage=Usage(10, 90, reasoning_tokens=80))):
        assert call(session).ok
    assert books(session)[1] == Decimal("0.0001")
    assert InferenceLog.objects.get().reasoning_tokens == 80


def test_a_count_of_thoughts_that_cannot_be_is_no_report():
    make_price(MODEL, input_usd="1", output_usd="1")
    with script(Step("yes", usage=Usage(100, 900, reasoning_tokens=10**30))):
        assert call(make_session()).ok
    assert InferenceLog.objects.get().cost_estimate is None


@pytest.mark.usefixtures("_no_waiting")
def test_a_model_that_talks_nonsense_is_given_up_after_three_attempts():
    make_price(MODEL)
    with script(broken(Fault.MALFORMED)) as model:
        assert call(make_session()).outcome == Outcome.GATEWAY_ERROR
    assert len(model.requests) == 3


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("fault", [Fault.AUTH, Fault.INVALID_REQUEST, Fault.NOT_SERVED])
def test_what_would_fail_again_is_not_asked_again(fault):
    make_price(MODEL)
    with script(broken(fault)) as model:
        assert call(make_session()).outcome == Outcome.GATEWAY_ERROR
    assert len(model.requests) == 1


@pytest.mark.usefixtures("_no_waiting")
def test_a_server_that_is_never_reached_is_tried_and_costs_nothing():
    make_price(MODEL)
    session = make_session()
    with script(broken(Fault.CONNECTION, contacted=False)) as model, pytest.raises(RetryLater):
        call(session)
    assert len(model.requests) == 3
    assert books(session) == (0, 0)


@pytest.mark.usefixtures("_no_waiting")
def test_no_second_attempt_is_made_that_the_cap_has_no_room_for():
    make_price(MODEL, input_usd="0", output_usd="20")
    session = make_session(max_cost_usd=Decimal("0.0100"))
    with script(broken()) as model:
        result = call(session)
    assert (result.outcome, len(model.requests)) == (Outcome.GATEWAY_ERROR, 1)
    _, actual = books(session)
    assert actual == Decimal("0.006") <= session.max_cost_usd


@pytest.mark.usefixtures("_no_waiting")
def test_an_attempt_beyond_its_bound_is_the_last_one():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session()
    with script(broken(usage=Usage(0, 400_000)), Step("ok")) as model, pytest.raises(BudgetExceeded):
        call(session)
    assert len(model.requests) == 1
    _, actual = books(session)
    assert actual == Decimal(4)


@pytest.mark.usefixtures("_no_waiting")
def test_a_session_halted_during_an_attempt_gets_no_other():
    make_price(MODEL)
    session = make_session()

    def halt():
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)

    error = ProviderError("503", fault=Fault.SERVER)
    with script(Step(error=error, before_reply=halt)) as model:
        assert call(session).outcome == Outcome.GATEWAY_ERROR
    assert len(model.requests) == 1


def test_a_long_wait_is_not_sat_out_but_becomes_a_row_and_the_call_is_made_again():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session(status=Status.QUEUED)

    def engine(held):
        call(held)
        return Finished()

    slow_down = Step(error=ProviderError("429", fault=Fault.RATE_LIMITED, usage=Usage(0, 0), retry_after=90))
    with (
        script(slow_down, Step("ok", usage=Usage(0, 100))) as model,
        patch("agents.runner.lease_renewal_seconds", return_value=60),
    ):
        run_session(session.pk, engine, owner="worker")
        session.refresh_from_db()
        assert (session.status, session.waiting_on) == (Status.WAITING, "model")
        assert timedelta(seconds=89) < ModelOutage.objects.get().next_try_at - NOW < timedelta(seconds=110)
        assert books(session) == (0, 0)  # nothing is charged for a call that is still to be made
        session_try_now(session.pk, by=None, now=NOW)
        run_session(session.pk, engine, owner="worker")
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert len(model.requests) == 2
    assert books(session) == (Decimal("0.005"), Decimal("0.001"))
    assert list(ToolCall.objects.order_by("pk").values_list("attempt", "outcome", "detail")) == [
        (1, "gateway_error", "retry_later"),
        (2, "success", ""),
    ]


@pytest.mark.usefixtures("_no_waiting")
def test_a_worker_lost_between_two_attempts_leaves_both_in_the_books():
    make_price(MODEL, input_usd="0", output_usd="10")
    queued = make_session(status=Status.QUEUED)
    session = lease_claim(queued.pk, owner="one", now=NOW)

    class Died(BaseException):
        pass

    def die():
        raise Died

    with script(broken(usage=Usage(0, 20)), Step(before_reply=die)), pytest.raises(Died):
        call(session)
    taken = lease_claim(queued.pk, owner="two", now=NOW + timedelta(minutes=5))
    row = ToolCall.objects.get()
    assert row.actual_usd == row.held_usd + Decimal("0.0002")
    assert taken is not None
    assert books(taken) == (Decimal("0.005"), row.actual_usd)
