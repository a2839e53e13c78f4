"""A halt while a call is in flight: it commits at once, and no call starts after it."""

import threading
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connection, transaction

from agents.conf import clock
from agents.enums import HaltState, Status, ToolIntent
from agents.exceptions import SessionHalted
from agents.guard import dispatch, guarded_tool_call
from agents.models import AgentSession, Finding
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.halts import halt_all_work, session_halt
from agents.ticker import Ticker
from agents.types import Usage
from audit import recorder
from audit.models import SYSTEM_CHAIN, AuditEvent, PendingEvent
from audit.receipts import build_receipt
from audit.verify import verify_log
from tests.factories import make_price, make_session, make_user
from tests.flows.processes import Worker, in_threads
from tests.flows.workers import ASK, MODEL
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)


class Thinking:
    """A model that has been asked and does not answer until it is let go."""

    def __init__(self):
        self.asked, self.go_on = threading.Event(), threading.Event()

    def __call__(self):
        self.asked.set()
        assert self.go_on.wait(60)


def call_in_flight(session, outcome):
    thinking = Thinking()

    def call():
        try:
            outcome.append(guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK))
            outcome.append(guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK))
        except SessionHalted as halted:
            outcome.append(halted)
        finally:
            connection.close()

    thread = threading.Thread(target=call)
    step = Step("at last", usage=Usage(0, 1), before_reply=thinking)
    return thinking, thread, serving(MODEL, ScriptedProvider([step]))


def test_a_halt_from_another_connection_does_not_wait_for_the_call_in_flight():
    """How long it takes is measured by tests/benchmarks/halt.py; here the call cannot end before the halt is done."""
    make_price(MODEL, input_usd="0", output_usd="0")
    operator = make_user()
    session, outcome = make_session(), []
    thinking, thread, model = call_in_flight(session, outcome)
    with model:
        thread.start()
        assert thinking.asked.wait(60)
        if connection.vendor == "postgresql":
            assert idle_in_transaction() == 0
        session_halt(session.pk, by=operator, reason="too slow", now=clock())
        assert outcome == []  # the call is still out
        thinking.go_on.set()
        thread.join(60)
    assert isinstance(outcome[-1], SessionHalted)
    rows = list(AuditEvent.objects.filter(chain=session.chain).order_by("seq"))
    [started, requested, ended, halted] = [row.details.get("outcome", row.kind) for row in rows]
    assert (started, requested) == ("started", "autonomous_session.halt_requested")
    assert (ended, halted) in [(end, "autonomous_session.halted") for end in ("success", "error")]  # it came in, or not
    [call] = build_receipt(session.chain)["tool_calls"]
    assert call["in_flight_at_halt"]


@contextmanager
def writer_holding_the_system_chain():
    """A second connection that has appended to `system` and does not commit before the block ends.

    On SQLite a writer holds the lock of the whole database, and a halt can only wait for it: it commits soon there.
    """
    wrote, go_on = threading.Event(), threading.Event()
    if connection.vendor == "sqlite":
        go_on.set()

    def write():
        try:
            with transaction.atomic():
                recorder.append(SYSTEM_CHAIN, "model.accepted", now=clock(), details={"model": "m"})
                wrote.set()
                assert go_on.wait(60)
        finally:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    assert wrote.wait(60)
    try:
        yield
    finally:
        go_on.set()
        thread.join(60)


def halted_events():
    return list(AuditEvent.objects.filter(kind="organisation.halted").values_list("at", "actor"))


def test_the_halt_of_all_work_answers_while_another_writer_holds_the_system_chain():
    now, session = clock(), make_session()
    guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "x"})
    with writer_holding_the_system_chain():
        halt_all_work(by=None, reason="incident", now=now)  # it would hang here
        with pytest.raises(SessionHalted):
            guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "x"})
    Ticker().tick(clock())
    assert halted_events() == [(now, "system")]


def test_a_halt_whose_process_dies_before_its_audit_event_is_chained_gets_the_event():
    now = clock()
    with patch.object(recorder, "append_pending", side_effect=SystemExit), pytest.raises(SystemExit):
        halt_all_work(by=None, reason="incident", now=now, actor="command")
    Ticker().tick(clock() + timedelta(seconds=30))
    Ticker().tick(clock() + timedelta(seconds=60))
    assert halted_events() == [(now, "command")]
    assert verify_log().verified


def test_pending_events_are_appended_once_however_many_do_it():
    for number in range(20):
        with transaction.atomic():
            recorder.append_soon(SYSTEM_CHAIN, "model.accepted", now=clock(), details={"model": str(number)})
    in_threads(4, lambda _: recorder.append_pending())
    rows = AuditEvent.objects.filter(kind="model.accepted").order_by("seq")
    assert sorted(int(row.details["model"]) for row in rows) == list(range(20))
    assert not PendingEvent.objects.exists()


def test_a_local_call_that_a_halt_of_all_work_overtakes_leaves_nothing():
    session, run = make_session(), dispatch.run

    def run_and_halt(*arguments):
        """Between the verdict and the end of the call's block."""
        done = run(*arguments)
        if connection.vendor == "postgresql":
            in_threads(1, lambda _: halt_all_work(by=None, reason="incident", now=clock()))
        else:  # SQLite lets no other connection write meanwhile
            halt_all_work(by=None, reason="incident", now=clock())
        return done

    with patch.object(dispatch, "run", side_effect=run_and_halt), pytest.raises(SessionHalted):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "x"})
    assert not Finding.objects.exists()
    ended = [] if connection.vendor == "sqlite" else ["autonomous_session.halted"]  # there the halt was undone, too
    assert list(AuditEvent.objects.filter(chain=session.chain).values_list("kind", flat=True)) == ended


def idle_in_transaction():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        return cursor.fetchone()[0]


def started_after_halt(session):
    """The halt of all work may be obeyed before it is noted in the session's own chain; its end is the halt then."""
    rows = list(AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("kind", "details"))
    halts = {"autonomous_session.halt_requested", "autonomous_session.halted"}
    first = next(number for number, (kind, _) in enumerate(rows) if kind in halts)
    return [details for _, details in rows[first:] if details.get("outcome") == "started"]


def test_no_call_starts_after_the_halt_however_they_race():
    make_price(MODEL, input_usd="0", output_usd="0")
    for _ in range(5):
        session = make_session()

        def work(number, session=session):
            if number == 0:
                return session_halt(session.pk, by=None, reason="", now=clock())
            held = AgentSession.objects.get(pk=session.pk)
            try:
                for _ in range(100_000):  # whoever halts has to get the database's lock first
                    guarded_tool_call(held, ToolIntent.EMIT_FINDING, {"title": "x"})
            except SessionHalted:
                return "halted"

        results = in_threads(4, work)
        assert results[1:] == ["halted"] * 3
        assert started_after_halt(session) == []


def test_halting_all_work_stops_the_workers_of_other_processes():
    make_price(MODEL, input_usd="0", output_usd="0")
    sessions = [make_session(), make_session()]
    workers = [Worker("loop_until_halted", session_pk=session.pk, delay=0.01) for session in sessions]
    for worker in workers:
        worker.wait_for("looping")
    halt_all_work(by=make_user(), reason="incident", now=clock())
    for worker, session in zip(workers, sessions, strict=True):
        worker.result()
        session.refresh_from_db()
        assert (session.status, session.halt_state) == (Status.RUNNING, HaltState.HALTED)
        assert started_after_halt(session) == []


@pytest.mark.stress
def test_a_thousand_halts_at_random_moments_let_no_call_start():
    make_price(MODEL, input_usd="0", output_usd="0")
    for _ in range(250):
        sessions = [make_session() for _ in range(4)]

        def work(number, sessions=sessions):
            if number == 0:
                for session in sessions:
                    session_halt(session.pk, by=None, reason="", now=clock())
                return
            held = AgentSession.objects.get(pk=sessions[number - 1].pk)
            with pytest.raises(SessionHalted):
                while True:
                    guarded_tool_call(held, ToolIntent.EMIT_FINDING, {"title": "x"})

        in_threads(5, work)
        assert all(started_after_halt(session) == [] for session in sessions)
