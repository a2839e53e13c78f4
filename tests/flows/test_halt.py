"""A halt while a call is in flight: it commits at once, and no call starts after it."""

import threading

import pytest
from django.db import connection, transaction

from agents.conf import clock
from agents.enums import HaltState, Status, ToolIntent
from agents.exceptions import SessionHalted
from agents.guard import guarded_tool_call
from agents.ledger.boundary import read_for_update
from agents.models import AgentSession
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.halts import halt_all_work, session_halt
from agents.types import Usage
from audit.models import AuditEvent
from audit.receipts import build_receipt
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


def test_the_halt_of_all_work_waits_for_a_block_that_has_judged_and_not_yet_committed():
    session, done = make_session(), threading.Event()

    def halt():
        try:
            halt_all_work(by=None, reason="incident", now=clock())
            done.set()
        finally:
            connection.close()

    thread = threading.Thread(target=halt)
    with transaction.atomic():
        assert read_for_update(session).boundary.all_work_halt is None
        thread.start()
        assert not done.wait(0.5)  # it cannot commit between the verdict and the commit of this block
    assert done.wait(60)
    thread.join(60)


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
