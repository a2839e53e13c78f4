"""Pausing while others are at work, with real connections and processes: no call begins after it, and none is lost."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from agents.conf import clock
from agents.enums import Outcome, Status, ToolIntent, WaitingOn
from agents.exceptions import AutonomousBrake, InvalidTransition, SessionPaused
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Pause, ToolCall
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.halts import session_halt
from agents.sessions.leases import lease_claim
from agents.sessions.pauses import agent_pause, agent_resume, pauses_apply, session_pause, session_resume, work_pause
from agents.types import Usage
from audit.models import AuditEvent
from audit.verify import verify_log
from tests.factories import make_agent, make_price, make_session
from tests.flows.processes import Worker, in_threads, until
from tests.flows.workers import ASK, MODEL
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 8


def where(session):
    session.refresh_from_db()
    return session.status, session.waiting_on


PAUSED = (Status.WAITING, WaitingOn.RESUME)


def effects(path):
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def let_the_lease_run_out(session):
    AgentSession.objects.filter(pk=session.pk).update(lease_until=clock() - timedelta(seconds=1))


def calls_started_after_the_pause(session):
    events = list(AuditEvent.objects.filter(chain=session.chain).order_by("seq"))
    paused = next(event.seq for event in events if event.kind == "autonomous_session.pause_requested")
    return [event for event in events if event.seq > paused and event.details.get("outcome") == "started"]


@pytest.mark.parametrize("scope", ["session", "agent"])
def test_no_call_begins_after_the_pause_that_it_raced_with(scope):
    make_price(MODEL, input_usd="0", output_usd="0")
    for _ in range(ROUNDS):
        session = make_session(agent=make_agent())

        def work(number, session=session):
            if number:
                pause = {"by": None, "now": clock()}
                if scope == "session":
                    return session_pause(session.pk, **pause)
                return agent_pause(agent=session.agent, **pause)
            try:
                while True:
                    guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK)
            except SessionPaused:
                return None

        with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, 1))])):
            in_threads(2, work)
        assert calls_started_after_the_pause(session) == []
        assert not ToolCall.objects.filter(session=session).exclude(outcome=Outcome.SUCCESS).exists()


def test_a_call_in_flight_ends_normally_and_the_next_one_waits():
    make_price(MODEL, input_usd="0", output_usd="0")
    session, outcome = make_session(), []
    asked, go_on = threading.Event(), threading.Event()

    def think():
        asked.set()
        assert go_on.wait(60)

    def call():
        try:
            outcome.append(guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK))
            outcome.append(guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK))
        except SessionPaused as paused:
            outcome.append(paused)
        finally:
            connection.close()

    thread = threading.Thread(target=call)
    with serving(MODEL, ScriptedProvider([Step("at last", usage=Usage(0, 1), before_reply=think)])):
        thread.start()
        assert asked.wait(60)
        session_pause(session.pk, by=None, now=clock())
        assert outcome == []  # the call is still out
        go_on.set()
        thread.join(60)
    done, paused = outcome
    assert done.ok
    assert isinstance(paused, SessionPaused)


def test_of_a_resumption_and_a_halt_at_once_the_halt_stays():
    for _ in range(ROUNDS):
        session = make_session(status=Status.QUEUED)
        session_pause(session.pk, by=None, now=clock())

        def work(number, session=session):
            if number:
                return session_halt(session.pk, by=None, reason="", now=clock())
            try:
                return session_resume(session.pk, by=None, now=clock())
            except InvalidTransition:  # the halt was first
                return None

        in_threads(2, work)
        assert where(session) == (Status.HALTED, "")
        assert session.paused_at is None
        assert lease_claim(session.pk, owner="w", now=clock()) is None
    assert not Pause.objects.open().exists()
    assert verify_log().problems == []


def test_two_who_pause_and_resume_at_once_leave_one_pause_or_none():
    agent = make_agent()
    for _ in range(ROUNDS):
        paused = in_threads(3, lambda _: agent_pause(agent=agent, by=None, now=clock()))
        assert sum(not one.already for one in paused) == 1

        def resume(_):
            try:
                return agent_resume(agent=agent, by=None, now=clock())
            except InvalidTransition:
                return None

        assert sum(one is not None for one in in_threads(3, resume)) == 1


def test_runs_that_are_claimed_while_all_work_is_paused_are_put_aside():
    sessions = [make_session(status=Status.QUEUED) for _ in range(10)]

    def work(number):
        if number == 0:
            return work_pause(by=None, now=clock())
        for session in sessions[number - 1 :: 2]:
            held = lease_claim(session.pk, owner=f"w{number}", now=clock())
            if held is not None:
                try:
                    guarded_tool_call(held, ToolIntent.EMIT_FINDING, {"title": "late"})
                except (SessionPaused, AutonomousBrake):
                    continue
        return None

    in_threads(3, work)
    for session in sessions:
        session.refresh_from_db()
        assert session.paused_at is not None
        assert calls_started_after_the_pause(session) == []


def test_a_worker_killed_in_its_call_leaves_a_paused_run_that_goes_on_when_it_is_resumed(tmp_path):
    session = make_session(status=Status.QUEUED)
    done = tmp_path / "effects"
    worker = Worker("run", session_pk=session.pk, effects=str(done), repeatable=True)
    worker.wait_for("acted")
    session_pause(session.pk, by=None, now=clock())
    worker.kill()
    let_the_lease_run_out(session)

    assert Worker("run", session_pk=session.pk, effects=str(done), block=False, repeatable=True).result() is False
    assert where(session) == PAUSED
    assert effects(done) == ["1", "2"]
    session_resume(session.pk, by=None, now=clock())
    assert Worker("run", session_pk=session.pk, effects=str(done), block=False, repeatable=True).result() is True
    assert where(session) == (Status.COMPLETED, "")
    assert effects(done) == ["1", "2", "2", "3"]  # the call that was lost is repeated with its key, no other
    assert verify_log().problems == []


def test_a_worker_that_lives_ends_its_call_and_puts_the_run_aside(tmp_path):
    session = make_session(status=Status.QUEUED)
    done = tmp_path / "effects"
    worker = Worker("run", session_pk=session.pk, effects=str(done))
    worker.wait_for("acted")
    session_pause(session.pk, by=None, now=clock())
    worker.tell("go on")
    assert worker.result() is True
    assert where(session) == PAUSED
    session_resume(session.pk, by=None, now=clock())
    assert Worker("run", session_pk=session.pk, effects=str(done), block=False).result() is True
    assert where(session) == (Status.COMPLETED, "")
    assert effects(done) == ["1", "2", "3"]


def test_whoever_pauses_and_is_killed_before_the_runs_are_marked_is_finished_by_the_ticker(tmp_path):
    session = make_session(status=Status.QUEUED)
    worker = Worker("run", session_pk=session.pk, effects=str(tmp_path / "effects"))
    worker.wait_for("acted")
    Pause.objects.create(scope="organisation")  # committed, and nothing after it
    assert pauses_apply(clock()) == 1
    worker.tell("go on")
    assert worker.result() is True
    until(lambda: where(session) == PAUSED)
