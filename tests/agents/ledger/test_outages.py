"""A model that does not answer: runs wait, one call at a time tries it, people are told once, all go on at its end."""

from datetime import timedelta
from itertools import pairwise

import pytest
import time_machine
from django.contrib.auth.models import Permission

from agents.enums import Mode, NoticeKind, Outcome, Status, TerminalReason, ToolIntent
from agents.exceptions import BudgetExceeded, InvalidTransition, NotFound, RetryLater, SessionHalted
from agents.guard import guarded_tool_call, metering
from agents.ledger import outages
from agents.ledger.outages import (
    BUSY_PAUSE,
    WOKEN_PER_SECOND,
    model_wait_note,
    model_wait_of,
    outage_note,
    outage_over,
    outage_probe,
    ping_note,
    pings_due,
    probers_due,
)
from agents.ledger.prices import model_accept
from agents.models import AgentSession, InferenceLog, ModelOutage, Notification, SuspendedModel, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.halts import session_halt
from agents.sessions.leases import model_waiters_wake, session_try_now
from agents.types import Finished, Usage
from audit.models import AuditEvent
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_price, make_session, make_user, make_waiting_for_model

pytestmark = pytest.mark.django_db

DOWN = Step(error=ProviderError("503 from the model server", fault=Fault.SERVER, usage=Usage(0, 0)))


@pytest.fixture(autouse=True)
def travel(monkeypatch):
    monkeypatch.setattr(metering.Meter, "_wait", lambda *_: None)
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)
    with time_machine.travel(NOW, tick=False) as moved:
        yield moved


@pytest.fixture
def operator():
    user = make_user()
    user.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    return user


def engine(held):
    guarded_tool_call(held, ToolIntent.RUN_SKILL, ask(), key="step:1")
    return Finished()


def run(session):
    run_session(session.pk, engine, owner="worker")
    session.refresh_from_db()
    return session


def waits(session):
    return (session.status, session.waiting_on) == (Status.WAITING, "model")


def test_run_waits_and_goes_on_where_it_was(travel):
    make_price(MODEL)
    session = make_session(Status.QUEUED)
    with script(DOWN, DOWN, DOWN, Step("ok")) as model:
        assert waits(run(session))
        wait = model_wait_of(session)
        assert (wait.model, wait.since) == (MODEL, NOW)
        assert "503 from the model server" in wait.error
        assert model_waiters_wake(NOW) == 0
        travel.move_to(wait.next_try_at)
        assert model_waiters_wake(wait.next_try_at) == 1
        assert run(session).status == Status.COMPLETED
    assert len(model.requests) == 4
    assert not ModelOutage.objects.exists()


def test_one_run_tries_the_model_and_the_others_wait_without_asking(travel):
    make_price(MODEL)
    sessions = [make_session(Status.QUEUED) for _ in range(5)]
    with script(DOWN, DOWN, DOWN, Step("ok")) as model:
        for session in sessions:
            assert waits(run(session))
        assert len(model.requests) == 3  # all of the first run
        later = ModelOutage.objects.get().next_try_at
        travel.move_to(later)
        assert model_waiters_wake(later) == 1
        assert model_waiters_wake(later) == 0  # the first is on its way
        assert run(sessions[0]).status == Status.COMPLETED
        assert model_waiters_wake(later + timedelta(seconds=9)) == 4  # it is back, so all go on
        assert [run(session).status for session in sessions[1:]] == [Status.COMPLETED] * 4


def test_of_two_calls_one_tries():
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    later = NOW + timedelta(minutes=1)
    assert [outage_probe(MODEL, now=later) for _ in range(2)] == [True, False]


def test_another_run_is_woken_when_the_first_does_not_ask():
    first, second = make_waiting_for_model(), make_waiting_for_model()
    later = NOW + timedelta(hours=2)
    assert probers_due(later) == [first.pk]
    AgentSession.objects.filter(pk=first.pk).update(status=Status.QUEUED, waiting_on="")
    assert probers_due(later) == []
    assert probers_due(later + timedelta(minutes=1)) == [second.pk]


def test_paused_run_does_not_try_the_model():
    paused, going = make_waiting_for_model(), make_waiting_for_model()
    AgentSession.objects.filter(pk=paused.pk).update(paused_at=NOW)
    later = NOW + timedelta(hours=2)
    assert probers_due(later) == [going.pk]
    AgentSession.objects.filter(pk=going.pk).update(paused_at=NOW)
    assert probers_due(later + timedelta(hours=2)) == []


def test_an_outage_that_nobody_waits_for_wakes_nobody():
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    assert probers_due(NOW + timedelta(hours=2)) == []


def test_pauses_grow_from_seconds_to_an_hour_and_keep_to_what_the_server_asks():
    pauses = [(outage_note(MODEL, "down", pause=None, is_try=True, now=NOW) - NOW).total_seconds() for _ in range(14)]
    assert 4 <= pauses[0] <= 6
    assert all(later > earlier for earlier, later in pairwise(pauses[:9]))
    assert 2_880 <= pauses[-1] <= 3_600
    ModelOutage.objects.all().delete()
    assert outage_note(MODEL, "slow down", pause=90, is_try=True, now=NOW) == NOW + timedelta(seconds=90)


def test_pauses_are_five_minutes_at_most_while_the_server_cannot_be_reached():
    def pause():
        return (outage_note(MODEL, "refused", pause=None, is_try=True, is_gone=True, now=NOW) - NOW).total_seconds()

    assert 240 <= [pause() for _ in range(14)][-1] <= 300


# --- Asking for free whether a server is back ---


def always(model):
    return True


def never(model):
    return False


def test_server_is_asked_every_twenty_seconds_while_a_run_waits_for_it():
    row = make_waiting_for_model()
    ModelOutage.objects.update(next_try_at=NOW + timedelta(hours=1))
    assert pings_due(NOW, can_ask=never) == []
    assert pings_due(NOW, can_ask=always) == [MODEL]
    assert pings_due(NOW + timedelta(seconds=19), can_ask=always) == []
    assert pings_due(NOW + timedelta(seconds=20), can_ask=always) == [MODEL]
    assert pings_due(NOW - timedelta(hours=1), can_ask=always) == [MODEL], "a clock that was set back"
    later = NOW + timedelta(minutes=5)
    AgentSession.objects.filter(pk=row.pk).update(paused_at=NOW)
    assert pings_due(later, can_ask=always) == []
    AgentSession.objects.filter(pk=row.pk).update(paused_at=None)
    assert pings_due(later, can_ask=always) == [MODEL]
    AgentSession.objects.filter(pk=row.pk).delete()
    assert pings_due(later + timedelta(minutes=1), can_ask=always) == []


def test_of_two_tickers_one_asks(monkeypatch):
    make_waiting_for_model()
    ModelOutage.objects.update(next_try_at=NOW + timedelta(hours=1))
    others = []

    def asked_meanwhile(model):
        if not others:
            others.append(True)
            others.append(pings_due(NOW, can_ask=always))
        return True

    assert pings_due(NOW, can_ask=asked_meanwhile) == []
    assert others[1] == [MODEL]


def test_server_that_is_to_be_tried_anyway_is_not_asked():
    make_waiting_for_model()
    ModelOutage.objects.update(next_try_at=NOW)
    assert pings_due(NOW, can_ask=always) == []


def test_return_of_a_server_that_was_gone_lets_a_run_try_at_once():
    outage_note(MODEL, "refused", pause=None, is_try=True, is_gone=True, now=NOW)
    later = NOW + timedelta(seconds=2)
    assert not ping_note(MODEL, is_there=False, now=later)
    assert not outage_probe(MODEL, now=later)
    assert ping_note(MODEL, is_there=True, now=later)
    assert outage_probe(MODEL, now=later)


def test_server_that_fails_calls_and_was_there_all_the_time_is_tried_after_its_pauses_alone():
    outage_note(MODEL, "500", pause=None, is_try=True, now=NOW)
    later = NOW + timedelta(seconds=2)
    assert not ping_note(MODEL, is_there=True, now=later)
    assert not outage_probe(MODEL, now=later)
    ping_note(MODEL, is_there=False, now=later)
    assert ping_note(MODEL, is_there=True, now=later)
    assert outage_probe(MODEL, now=later)


def test_those_who_have_waited_longest_are_first_and_all_are_woken_little_by_little():
    rows = [make_waiting_for_model() for _ in range(2 * WOKEN_PER_SECOND)]
    for number, row in enumerate(rows):
        since = NOW - timedelta(seconds=number)
        row.metadata["model_wait"]["since"] = since.isoformat()
        row.save(update_fields=["metadata"])
    longest = [row.pk for row in reversed(rows)]
    assert probers_due(NOW + timedelta(hours=2)) == longest[:1]

    outage_over(MODEL, now=NOW)

    assert model_waiters_wake(NOW) == WOKEN_PER_SECOND
    woken = AgentSession.objects.filter(status=Status.QUEUED).values_list("pk", flat=True)
    assert set(woken) == set(longest[:WOKEN_PER_SECOND])
    assert model_waiters_wake(NOW + timedelta(seconds=1)) == WOKEN_PER_SECOND


def test_calls_that_were_out_when_it_was_noted_do_not_make_the_pause_longer():
    first = outage_note(MODEL, "down", pause=None, is_try=False, now=NOW)
    assert [outage_note(MODEL, "down", pause=None, is_try=False, now=NOW) for _ in range(9)] == [first] * 9
    assert ModelOutage.objects.get().tries == 1


def test_a_moment_is_no_news(operator):
    outage_note(MODEL, "429", pause=20, is_try=False, now=NOW)
    outage_over(MODEL, now=NOW + timedelta(seconds=21))
    assert not Notification.objects.exists()


def test_people_are_told_once_that_it_is_away_and_once_that_it_is_back(operator):
    make_user()
    for _ in range(3):
        outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    make_waiting_for_model()
    for _ in range(2):
        outage_over(MODEL, now=NOW + timedelta(minutes=7))
    told = Notification.objects.order_by("pk").values_list("owner", "kind", "title")
    assert list(told) == [
        (operator.pk, NoticeKind.MODEL_AWAY, f"Model {MODEL} does not answer"),
        (operator.pk, NoticeKind.MODEL_BACK, f"Model {MODEL} answers again"),
    ]
    assert "waited for it: 1" in Notification.objects.get(kind=NoticeKind.MODEL_BACK).body
    kinds = AuditEvent.objects.filter(kind__startswith="model.").order_by("pk").values_list("kind", "details")
    assert [kind for kind, _ in kinds] == ["model.away", "model.back"]
    assert kinds[1][1] == {"model": MODEL, "seconds": 420}


def test_run_is_given_up_when_its_patience_is_over(travel, settings):
    settings.LQOPS_MODEL_WAIT_HOURS = 2
    make_price(MODEL)
    session = make_session(Status.QUEUED)
    with script(DOWN):
        assert waits(run(session))
        for minutes in (30, 110):
            travel.move_to(NOW + timedelta(minutes=minutes))
            session_try_now(session.pk, by=None, now=NOW + timedelta(minutes=minutes))
            assert waits(run(session))
        over = NOW + timedelta(hours=2)
        travel.move_to(over)
        assert model_waiters_wake(over) == 1
        run(session)
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.PROVIDER_ERROR)
    assert "waited 2 hours for it" in session.error


def test_no_patience_ends_the_run_at_once(settings):
    settings.LQOPS_MODEL_WAIT_HOURS = 0
    make_price(MODEL)
    with script(DOWN):
        assert run(make_session(Status.QUEUED)).terminal_reason == TerminalReason.PROVIDER_ERROR


def test_patience_begins_anew_with_each_outage(travel):
    make_price(MODEL)
    session = make_session(Status.QUEUED)
    with script(DOWN):
        assert waits(run(session))
        later = NOW + timedelta(hours=20)
        outage_over(MODEL, now=later)
        travel.move_to(later)
        assert model_waiters_wake(later) == 1
        assert waits(run(session))
    assert model_wait_of(session).since == later


def test_model_that_came_back_before_the_run_rested_is_asked_at_once():
    make_price(MODEL)
    session = make_session(Status.QUEUED)

    def unlucky(held):
        try:
            return engine(held)
        finally:
            outage_over(MODEL, now=NOW)

    with script(DOWN):
        run_session(session.pk, unlucky, owner="worker")
    session.refresh_from_db()
    assert session.status == Status.QUEUED


def test_suspended_model_is_waited_for_until_it_is_accepted():
    make_price(MODEL)
    SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2)
    session = make_session(Status.QUEUED)
    with script(Step("ok")):
        assert waits(run(session))
        assert model_wait_of(session).next_try_at is None
        model_accept(model=MODEL, actor="system", now=NOW)
        assert model_waiters_wake(NOW) == 1
        assert run(session).status == Status.COMPLETED


def test_halt_ends_a_run_that_waits():
    session = make_waiting_for_model()
    session_halt(session.pk, by=None, reason="", now=NOW)
    session.refresh_from_db()
    assert session.status == Status.HALTED


# --- Try now ---


def test_try_now_wakes_the_run_and_lets_it_ask():
    session = make_waiting_for_model()
    session_try_now(session.pk, by=session.owner, now=NOW)
    session.refresh_from_db()
    assert session.status == Status.QUEUED
    assert outage_probe(MODEL, now=NOW)


def test_try_now_is_for_those_who_may_and_for_runs_that_wait():
    with pytest.raises(NotFound):
        session_try_now(make_waiting_for_model().pk, by=make_user(), now=NOW)
    with pytest.raises(InvalidTransition, match="does not wait for a model"):
        session_try_now(make_session().pk, by=None, now=NOW)


def test_a_run_that_does_not_wait_has_no_wait():
    assert model_wait_of(make_session()) is None


def test_any_answer_ends_the_outage():
    make_price(MODEL)
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    refused = Step(error=ProviderError("401", fault=Fault.AUTH))
    with script(refused):
        later = NOW + timedelta(minutes=1)
        result = guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask(), key="step:1", now=later)
    assert result.outcome == Outcome.GATEWAY_ERROR
    assert not ModelOutage.objects.exists()


def test_call_that_cannot_be_paid_does_not_count_as_a_try():
    make_price(MODEL, output_usd="1000000")
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    later = NOW + timedelta(minutes=1)
    with script(Step("ok")), pytest.raises(BudgetExceeded):
        guarded_tool_call(make_session(max_cost_usd=1), ToolIntent.RUN_SKILL, ask(), key="step:1", now=later)
    assert outage_probe(MODEL, now=later)


@pytest.mark.django_db(transaction=True)
def test_halted_try_lets_another_run_try():
    make_price(MODEL)
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    session = make_session()
    later = NOW + timedelta(minutes=1)
    slow = Step("too late", before_reply=lambda: halted(session), delay_seconds=600)
    with script(slow), pytest.raises(SessionHalted):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="step:1", now=later)
    assert outage_probe(MODEL, now=later + timedelta(minutes=1))


def halted(session):
    session_halt(session.pk, by=None, reason="", now=NOW)


def test_refused_call_leaves_no_row_in_the_journal():
    make_price(MODEL)
    outage_note(MODEL, "down", pause=None, is_try=True, now=NOW)
    session = make_session()
    with script(Step("ok")) as model, pytest.raises(RetryLater, match="does not answer; it is tried again at"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="step:1", now=NOW)
    assert not model.requests
    assert not session.tool_calls.exists()


def test_owner_whose_loop_another_process_told_of_meanwhile_is_not_told_again(monkeypatch):
    loops = [make_waiting_for_model(MODEL, mode=Mode.LOOP) for _ in range(2)]
    for loop in loops:
        loop.metadata["model_wait"]["told"] = False
        loop.save()
    ModelOutage.objects.update(tries=2)
    real = outages._tell_owner

    def tell_with_another(row, *, now):
        other = AgentSession.objects.get(pk=loops[1].pk)
        other.metadata["model_wait"]["told"] = True
        other.save()
        return real(row, now=now)

    monkeypatch.setattr(outages, "_tell_owner", tell_with_another)
    assert outages.owners_tell(NOW, most=10) == 1
    assert list(Notification.objects.values_list("owner", flat=True)) == [loops[0].owner_id]


# --- A server that is at work for other runs ---

SLOW = Step(error=ProviderError("No answer within 30 seconds.", fault=Fault.TIMEOUT, usage=Usage(0, 0)))


def sent_before(session, seconds):
    """A call of another run that is out, sent so many seconds ago."""
    with script(Step("late")):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="step:other")
    ToolCall.objects.filter(session=session).update(
        outcome=Outcome.STARTED, settled_at=None, started_at=NOW - timedelta(seconds=seconds)
    )
    InferenceLog.objects.all().delete()


def test_timeout_behind_another_run_is_no_outage_and_is_tried_again_soon(travel):
    """A local server answers one request at a time: the second one waits in its line."""
    make_price(MODEL)
    sent_before(make_session(), 40)
    session = make_session(Status.QUEUED)
    with script(SLOW, SLOW, SLOW, Step("ok")):
        assert waits(run(session))
        assert not ModelOutage.objects.exists()
        assert not AuditEvent.objects.filter(kind="model.away").exists()
        wait = model_wait_of(session)
        assert (wait.next_try_at, "at work for other runs" in wait.error) == (NOW + BUSY_PAUSE, True)
        travel.move_to(NOW + BUSY_PAUSE)
        assert model_waiters_wake(NOW + BUSY_PAUSE) == 1
        assert run(session).status == Status.COMPLETED


def test_timeout_while_another_run_is_answered_is_no_outage():
    make_price(MODEL)
    other = make_session()

    def answer_other():
        InferenceLog.objects.create(
            session=other, model=MODEL, purpose="skill", outcome=Outcome.SUCCESS, created_at=NOW + timedelta(seconds=5)
        )

    slow = Step(error=SLOW.error, before_reply=answer_other)
    session = make_session(Status.QUEUED)
    with script(slow, slow, slow):
        assert waits(run(session))
    assert not ModelOutage.objects.exists()


def test_server_that_hangs_is_away_for_the_call_that_was_sent_first():
    make_price(MODEL)
    other = make_session()
    sent_before(other, 40)
    ToolCall.objects.filter(session=other).update(started_at=NOW + timedelta(seconds=3))
    with script(SLOW, SLOW, SLOW):
        assert waits(run(make_session(Status.QUEUED)))
    assert ModelOutage.objects.get().error == "No answer within 30 seconds."


def test_call_that_was_left_behind_long_ago_makes_no_server_busy():
    make_price(MODEL)
    sent_before(make_session(), 400)
    with script(SLOW, SLOW, SLOW):
        assert waits(run(make_session(Status.QUEUED)))
    assert ModelOutage.objects.exists()


def test_refused_connection_is_an_outage_however_busy_the_server_was():
    make_price(MODEL)
    sent_before(make_session(), 40)
    with script(DOWN, DOWN, DOWN):
        assert waits(run(make_session(Status.QUEUED)))
    assert ModelOutage.objects.exists()


def test_run_that_always_finds_the_server_at_work_is_given_up_in_the_end(travel, settings):
    settings.LQOPS_MODEL_WAIT_HOURS = 1
    make_price(MODEL)
    session = make_session(Status.QUEUED)
    moment = NOW
    for _ in range(3):
        sent_before(make_session(), -(moment - NOW).total_seconds() + 40)
        with script(SLOW, SLOW, SLOW):
            run(session)
        moment += timedelta(minutes=31)
        travel.move_to(moment)
        model_waiters_wake(moment)
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.PROVIDER_ERROR)


def test_wait_for_a_busy_server_begins_anew_after_an_answer(settings):
    """A run may find the server at work again, days after it was answered."""
    settings.LQOPS_MODEL_WAIT_HOURS = 1
    later = NOW + timedelta(days=2)
    session = make_session()
    assert model_wait_note(session, MODEL, is_busy=True, now=NOW) == NOW + BUSY_PAUSE
    assert model_wait_note(session, MODEL, is_busy=True, now=later) < later
    InferenceLog.objects.create(
        session=session, model=MODEL, purpose="skill", outcome=Outcome.SUCCESS, created_at=NOW + BUSY_PAUSE
    )
    assert model_wait_note(session, MODEL, is_busy=True, now=later) == later + BUSY_PAUSE


def test_loop_that_finds_the_server_at_work_looks_again_soon():
    loop = make_session(mode=Mode.LOOP)
    assert model_wait_note(loop, MODEL, is_busy=True, now=NOW) == NOW + BUSY_PAUSE
