"""A halt while a call is out: the call ends, is booked at what came in, and the run ends as halted."""

import os
import threading
import time
from contextlib import contextmanager
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import connection

from agents.conf import clock
from agents.enums import HaltState, Level, Outcome, Phase, Status, TerminalReason, ToolIntent
from agents.exceptions import LeaseLost, SessionHalted
from agents.guard import guarded_tool_call
from agents.ledger import halt_watch
from agents.models import AgentSession, InferenceLog, ToolCall
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import Endpoint
from agents.providers.openai_compat import OpenAICompatible
from agents.providers.registry import Limited
from agents.providers.scripted import ScriptedProvider, Step
from agents.runner import run_session
from agents.sessions.halts import halt_all_work, release_all_work, session_halt
from agents.skills.skill import SkillContext, skill
from agents.types import Finished, Usage
from tests.agents.conftest import MODEL, ask, tool
from tests.agents.providers.hostile_servers import SSE_HEAD, delta, events
from tests.agents.providers.hostile_servers import serving as server_playing
from tests.agents.skills.conftest import sample_skills  # noqa: F401 a fixture
from tests.factories import make_agent, make_price, make_session
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 30  # seconds: what is waited for happens within one, on a machine that is not busy
LONG = 600


@contextmanager
def halted_when(is_out, halt):
    """Halt from another connection as soon as the call is out."""

    def work():
        try:
            assert is_out.wait(SOON)
            halt()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


class Happened:
    """A condition, awaited like an event."""

    def __init__(self, condition):
        self._condition = condition

    def wait(self, seconds):
        _until(self._condition)
        return True


def halted(session, is_out, *, halt=None, key="turn:1", params=None):
    """Make a call that is halted while it is out; return what it raised and how long it took."""
    halt = halt or (lambda: session_halt(session.pk, by=None, reason="stop", now=clock()))
    started = time.monotonic()
    with halted_when(is_out, halt), pytest.raises((SessionHalted, LeaseLost)) as raised:
        guarded_tool_call(session, ToolIntent.RUN_SKILL, params or ask(), key=key)
    assert time.monotonic() - started < SOON
    return raised.value


@contextmanager
def model_of(*scripts):
    with server_playing(*scripts) as server:
        provider = OpenAICompatible("local", Endpoint(server.url, "m"))
        with serving(MODEL, provider):
            yield server
        provider.close()


class Dripping:
    """A server that streams one word now and then, and notices that it was left alone."""

    def __init__(self, pause=0.1, piece=None):
        self.pause = pause
        self.piece = piece or delta("word ")
        self.began, self.left = threading.Event(), threading.Event()

    def __call__(self, sock, _):
        sock.sendall(SSE_HEAD)
        try:
            for _ in range(int(LONG / self.pause)):
                sock.sendall(events(self.piece, done=False))
                self.began.set()
                time.sleep(self.pause)
        except OSError:
            self.left.set()


@pytest.mark.parametrize(
    ("piece", "declared"), [(delta(reasoning_content="hm"), {}), (delta("word "), {"reasoning": True})]
)
def test_a_model_that_thinks_is_booked_at_its_worst_case(piece, declared, settings):
    """Servers send a summary of what is thought, or nothing, and bill all of it."""
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "max_tokens": 500, **declared}}
    make_price(MODEL, input_usd="0", output_usd="1000")
    session = make_session(max_cost_usd=Decimal(10))
    server = Dripping(piece=piece)
    with model_of(server):
        halted(session, server.began, params={**ask(), "max_tokens": 500})
    session.refresh_from_db()
    assert session.cost_actual_usd == Decimal("0.5")


def test_a_stream_is_cut_and_booked_at_what_came_in():
    make_price(MODEL, input_usd="0", output_usd="1000")
    session = make_session(max_cost_usd=Decimal(10))
    dripping = Dripping()
    with model_of(dripping):
        error = halted(session, dripping.began)
        assert dripping.left.wait(SOON)  # the server sees the disconnect, and stops computing
    assert error.reason == TerminalReason.EXTERNAL_HALT
    row = ToolCall.objects.get()
    assert (row.outcome, row.detail) == (Outcome.ERROR, "halted")
    words = row.actual_usd * 1_000 / len("word ")  # as if each byte were a token: never less than was served
    assert words == int(words)
    assert 1 <= words < 100
    assert InferenceLog.objects.get().outcome == Outcome.ERROR
    session.refresh_from_db()
    assert (session.halt_state, session.terminal_reason) == (HaltState.HALTED, "external_halt")
    assert session.cost_held_usd == session.cost_reserved_usd == 0


def test_a_silent_model_is_left():
    make_price(MODEL)
    session, asked, let_go = make_session(), threading.Event(), threading.Event()

    def say_nothing(sock, _):
        asked.set()
        let_go.wait(LONG)

    with model_of(say_nothing):
        halted(session, asked)
        let_go.set()
    assert ToolCall.objects.get().detail == "halted"


def test_the_wait_between_two_attempts_is_left_and_the_first_one_booked_once():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session()
    error = ProviderError("503", fault=Fault.SERVER, usage=Usage(0, 100))
    waiting = patch("agents.guard.metering.next_wait", return_value=200.0)
    patient = patch("agents.guard.metering.LONGEST_WAIT_SECONDS", LONG)
    with serving(MODEL, ScriptedProvider([Step(error=error)])) as model, waiting, patient:
        halted(session, Happened(InferenceLog.objects.exists))
    assert len(model.requests) == InferenceLog.objects.count() == 1
    session.refresh_from_db()
    assert session.cost_actual_usd == ToolCall.objects.get().actual_usd == Decimal("0.001")


def test_a_call_that_waits_for_its_turn_is_left_and_costs_nothing():
    make_price(MODEL, input_usd="0", output_usd="10")
    session, let_go, first = make_session(), threading.Event(), threading.Event()

    class Waiting(Limited):
        def stream(self, request, on_chunk):
            waits.set()
            return super().stream(request, on_chunk)

    def hold():
        first.set()
        let_go.wait(LONG)

    waits = threading.Event()
    model = Waiting(ScriptedProvider([Step("ok", before_reply=hold)]), {"concurrency": 1})
    other = threading.Thread(target=lambda: Limited.stream(model, None, lambda chunk: None))
    with serving(MODEL, model):
        other.start()
        assert first.wait(SOON)
        halted(session, waits)
        let_go.set()
        other.join()
    assert ToolCall.objects.get().actual_usd == 0


@pytest.mark.parametrize(
    "stop",
    [
        lambda session: halt_all_work(by=None, reason="all", now=clock()),
        lambda session: AgentSession.objects.filter(pk=session.pk).update(fencing=session.fencing + 1),
    ],
    ids=["all work is halted", "another worker holds the session"],
)
def test_whatever_takes_the_session_away_ends_the_call(stop):
    make_price(MODEL)
    session = make_session()
    dripping = Dripping()
    with model_of(dripping):
        halted(session, dripping.began, halt=lambda: stop(session))
        assert dripping.left.wait(SOON)


def test_a_halt_that_is_gone_before_the_call_is_settled_leaves_a_failed_call():
    make_price(MODEL)
    session = make_session()
    out = threading.Event()

    class Releasing(ScriptedProvider):
        def stream(self, request, on_chunk):
            try:
                out.set()
                while True:
                    on_chunk(Chunk())
            finally:
                AgentSession.objects.update(halt_state=HaltState.RUNNING)

    def halt():
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)

    with serving(MODEL, Releasing()), halted_when(out, halt):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="turn:1")
    assert (result.outcome, result.detail) == (Outcome.ERROR, "halted")


# --- Skills ---


@pytest.fixture
def at_work(monkeypatch):
    """Skills that work for long and say so."""
    begun, let_go, looked = threading.Event(), threading.Event(), []

    def in_thread(context: SkillContext) -> str:
        """Works on whatever happens."""
        begun.set()
        let_go.wait(LONG)
        return "done"

    def looking(context: SkillContext) -> str:
        """Ends early when its run is halted."""
        begun.set()
        while not context.stopped():
            time.sleep(0.01)
        looked.append("halted")
        return "ended early"

    declared = [
        skill(level=Level.SAFE, timeout_seconds=180)(in_thread),
        skill(level=Level.SAFE, side_effects=False, timeout_seconds=180)(looking),
    ]
    monkeypatch.setattr(
        "agents.guard.intents.skill_named", lambda name: next(one for one in declared if one.name == name)
    )
    yield begun, looked
    let_go.set()


def skill_session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="auto"))


def test_a_skill_in_a_thread_is_abandoned_and_said_to_be(at_work, monkeypatch):
    retired = []
    monkeypatch.setattr("agents.skills.running.worker_retire", lambda: retired.append(True))
    session = skill_session()
    halted(session, at_work[0], params={"skill": "in_thread", "arguments": {}})
    row = ToolCall.objects.get()
    assert (row.outcome, row.detail, retired) == (Outcome.UNKNOWN, "halted", [True])
    assert "in_thread was abandoned and may have taken effect" in row.error


def test_a_skill_that_looks_ends_early_and_keeps_its_result(at_work):
    begun, looked = at_work
    session = skill_session()
    done = []
    with halted_when(begun, lambda: session_halt(session.pk, by=None, reason="stop", now=clock())):
        done.append(
            guarded_tool_call(session, ToolIntent.RUN_SKILL, {"skill": "looking", "arguments": {}}, key="turn:1")
        )
    assert (done[0].outcome, done[0].data, looked) == (Outcome.SUCCESS, "ended early", ["halted"])


@pytest.mark.usefixtures("sample_skills")
def test_a_skill_in_a_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("LQOPS_SKILL_MODULES", "tests.agents.skills.samples")
    session = skill_session()
    path = tmp_path / "pid"
    halted(
        session,
        Happened(lambda: path.exists() and path.read_text()),
        params={"skill": "linger", "arguments": {"path": str(path)}},
    )
    row = ToolCall.objects.get()
    assert (row.outcome, row.detail) == (Outcome.UNKNOWN, "halted")
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_a_local_call_is_never_interrupted():
    def act(context, params):
        return {"stopped": context.stopped()}

    with tool(ToolIntent.NOTIFY, probe=act, remote=False):
        result = guarded_tool_call(make_session(), ToolIntent.NOTIFY, {})
    assert result.data == {"stopped": False}


# --- The end of the run ---


def test_a_halted_run_never_ends_completed():
    session = make_session(Status.QUEUED)

    def engine(held):
        session_halt(held.pk, by=None, reason="stop", now=clock())
        return Finished()

    run_session(session.pk, engine, owner="w")
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, "external_halt")


def test_a_run_that_ends_while_all_work_is_halted_is_halted(monkeypatch):
    session = make_session(Status.QUEUED)

    def engine(held):
        monkeypatch.setattr("agents.sessions.halts.sessions_halt", lambda *_, **__: None)  # it was not reached yet
        halt_all_work(by=None, reason="stop", now=clock())
        monkeypatch.undo()
        return Finished()

    run_session(session.pk, engine, owner="w")
    session.refresh_from_db()
    assert session.status == Status.HALTED
    release_all_work(by=None, now=clock())


# --- The reader ---


def test_the_reader_ends_after_the_last_call_and_survives_a_broken_database(monkeypatch, caplog):
    monkeypatch.setattr(halt_watch, "READ_SECONDS", 0.01)
    watch = halt_watch.HaltWatch()
    session = make_session()
    reads = []
    real = halt_watch._stopped

    def failing_once(held):
        reads.append(held)
        if len(reads) == 1:
            raise RuntimeError("the database is away")
        return real(held)

    monkeypatch.setattr(halt_watch, "_stopped", failing_once)
    with watch.watching(session) as stopped, watch.watching(session):
        reader = watch._thread
        _until(lambda: len(reads) > 2 * halt_watch.IDLE_READS)  # it is not idle while calls are out
        AgentSession.objects.filter(pk=session.pk).update(halt_state=HaltState.HALTED)
        _until(stopped)
    assert "halts could not be read" in caplog.text
    reader.join(SOON)
    assert not reader.is_alive()
    assert watch._thread is None


def test_a_forked_process_watches_for_itself(monkeypatch):
    before = halt_watch._watch
    monkeypatch.setattr(halt_watch, "_watch", before)
    halt_watch._after_fork()
    assert halt_watch._watch is not before


def test_a_session_that_cannot_be_seen_is_not_taken_for_stopped():
    session = make_session()
    assert list(halt_watch._stopped([(session.pk, session.fencing), (session.pk + 1, 1)])) == []


def _until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
