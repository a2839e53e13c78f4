"""Runs of every mode by the real engines, each halted while a slow model is answering it, and how long that took."""

import json
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import connections
from django.test import override_settings

from agents.ask.chats import chat_send
from agents.conf import clock
from agents.enums import Mode, Status
from agents.ledger.journal import HALTED
from agents.ledger.prices import invalidate_estimates
from agents.loop.heartbeat import heartbeat_start
from agents.models import Agent, AgentSession, ModelPrice, Sensor, ToolCall
from agents.policy.transitions import TERMINAL
from agents.providers import registry
from agents.roster.loops import loop_start
from agents.runner import run_session
from agents.sessions.halts import HaltAnswer, agents_halt, session_halt
from agents.sessions.leases import session_wake
from agents.sessions.lifecycle import session_create
from agents.tasks import ENGINES
from tests.agents.sensors.scene import Scene as SensorScene
from tests.agents.sensors.scene import poll, running_slice
from tests.factories import make_agent, make_user
from tests.flows import slow_model
from tests.flows.processes import PATIENCE, in_threads, until
from tests.flows.scenes import Scene
from tests.flows.slow_model import SlowModel

LATEST = 2.5  # seconds after the first word: a halt comes at a random moment before
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BEAT_SECONDS = 3_600
P95_BAR = 1.0  # seconds from the commit of a halt to the last byte of the model
MAX_BAR = 3.0


@dataclass(frozen=True)
class Halted:
    """One run that was halted, and the seconds from the commit of the halt."""

    mode: str
    status: str
    reason: str
    call: str  # intent and key of the one call that was halted
    asked_later: int  # requests that reached the model after the halt
    unnoticed: int  # replies of which the server did not see the end
    to_last_byte: float  # 0 if the last word was sent before the halt
    to_disconnect: float  # when the server found the connection closed; it could send nothing after that
    to_ended: float


@contextmanager
def serving_slowly():
    """Let every role be played by the slow model."""
    with SlowModel() as model:
        declared = {
            "provider": "openai_compatible",
            "url": f"{model.url}/v1",
            "input_usd": "0",
            "output_usd": "0",
            "concurrency": 32,
        }
        ModelPrice.objects.get_or_create(model=slow_model.NAME, defaults={"input_usd": 0, "output_usd": 0})
        invalidate_estimates()
        registry._made.pop(slow_model.NAME, None)
        roles = {role: [slow_model.NAME] for role in ("main", "small", "judges")}
        with override_settings(
            LQOPS_MODELS={**settings.LQOPS_MODELS, slow_model.NAME: declared},
            LQOPS_MODEL_ROLES=roles,
            LQOPS_NET_ALLOW_NETWORKS=["127.0.0.0/8"],  # sensors read from the server as well
        ):
            yield model
        made = registry._made.pop(slow_model.NAME, None)
        if made is not None:
            made._inner.close()
        invalidate_estimates()


def halts(model, count, seed):
    """Halt so many runs, one of each mode at a time."""
    source = random.Random(seed)
    done = []
    while len(done) < count:
        modes = list(MODES)[: count - len(done)]
        moments = [source.uniform(0, LATEST) for _ in modes]
        done += in_threads(
            len(modes), lambda place, modes=modes, moments=moments: _halted(model, modes[place], moments[place])
        )
    return done


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def figures(done):
    """p50, p95 and the most of each time, in seconds."""
    return {
        name: {
            "p50": round(percentile(values, 50), 3),
            "p95": round(percentile(values, 95), 3),
            "max": round(max(values), 3),
        }
        for name, values in {
            "last_byte": [one.to_last_byte for one in done],
            "disconnect": [one.to_disconnect for one in done],
            "ended": [one.to_ended for one in done],
        }.items()
    }


def meets_bars(done):
    """Return whether the model was left in time. No byte can be sent after the disconnect, so it is the judge."""
    found = figures(done)["disconnect"]
    return found["p95"] <= P95_BAR and found["max"] <= MAX_BAR


def report(done, *, database, seed):
    """A table, and the same figures as one line of JSON."""
    found = figures(done)
    lines = [f"{database}: {len(done)} runs halted while a model was answering, seed {seed}; seconds from the commit"]
    lines.append(f"{'halt to':<12}{'p50':>8}{'p95':>8}{'max':>8}")
    for name, values in found.items():
        label = name.replace("_", " ")
        lines.append(f"{label:<12}{values['p50']:>8.3f}{values['p95']:>8.3f}{values['max']:>8.3f}")
    lines.append(
        json.dumps({"benchmark": "halt_in_flight", "database": database, "halts": len(done), "seed": seed, **found})
    )
    return "\n".join(lines)


# --- One halt ---


def new_mark(mode):
    """A word by which the model knows a run; no other run has it, on a database that is used again either."""
    return f"halts-{mode}-{''.join(random.SystemRandom().choices(LETTERS, k=12))}"


def _halted(model, mode, moment):
    mark = new_mark(mode)
    with MODES[mode](model, mark) as run:
        assert model.wait_for_word(mark, PATIENCE), f"the model was not asked by {mark}"
        time.sleep(moment)
        session = run.session()
        answer = session_halt(session.pk, by=None, reason="halted in flight", now=clock())
        committed = time.monotonic()
        assert answer == HaltAnswer.REQUESTED, f"the halt of {mark} was answered {answer}"
        ended = run.ended_at()
    session.refresh_from_db()
    call = ToolCall.objects.get(session=session, detail=HALTED)
    replies = model.replies(mark)
    deadline = time.monotonic() + PATIENCE
    unnoticed = [reply for reply in replies if not reply.left.wait(max(0, deadline - time.monotonic()))]
    return Halted(
        mode=mode,
        status=session.status,
        reason=session.terminal_reason,
        call=f"{call.intent} {call.key}",
        asked_later=sum(reply.asked_at > committed for reply in replies),
        unnoticed=len(unnoticed),
        to_last_byte=max(0.0, *(reply.last_byte_at - committed for reply in replies)),
        to_disconnect=max(0.0, *(reply.left_at - committed for reply in replies)),
        to_ended=ended - committed,
    )


class Worked:
    """A session that a thread works on as a worker would, until nothing is left to do."""

    def __init__(self, session):
        self._session = session
        self._ended_at = 0.0
        self._raised = []
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def session(self):
        return self._session

    def ended_at(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker did not end"
        if self._raised:
            raise self._raised[0]
        return self._ended_at

    def _work(self):
        try:
            while AgentSession.objects.get(pk=self._session.pk).status == Status.QUEUED:
                run_session(self._session.pk, ENGINES[self._session.mode], owner=f"worker-{self._session.pk}")
            self._ended_at = time.monotonic()
        except BaseException as error:  # noqa: BLE001 raised again above, in the test
            self._raised.append(error)
        finally:
            connections.close_all()


class Sensed:
    """The session of an agent's sensors, which a slice holds."""

    def __init__(self, agent):
        self._agent = agent

    def session(self):
        return AgentSession.objects.get(agent=self._agent, mode=Mode.SENSOR)

    def ended_at(self):
        until(lambda: self.session().status in TERMINAL)
        return time.monotonic()


# --- The modes ---


@contextmanager
def _chat(model, mark):
    owner = make_user(username=mark)
    yield Worked(chat_send(owner=owner, by=owner, text=f"What is new, {mark}?", now=clock()))


@contextmanager
def _walk(model, mark, text="Liability is capped.", **params):
    scene = Scene(username=mark)
    document = scene.attach(text)
    with _agent(mark, owner=scene.owner) as agent:
        params |= {"playbook": str(scene.playbook.public_id), "document": str(document.public_id)}
        yield Worked(session_create(owner=scene.owner, agent=agent, params=params, now=clock()))


def _agentic(model, mark):
    return _walk(model, mark, analysis_mode="agentic")


def _judged(model, mark):
    return _walk(model, mark, slow_model.AT_ONCE, judge_citations=True)


@contextmanager
def _loop(model, mark):
    with _agent(mark, definition="autonomy: {enabled: true}") as agent:
        yield Worked(loop_start(agent=agent, by=None, now=clock()))


@contextmanager
def _heartbeat(model, mark):
    with _agent(mark, definition=f"heartbeat: {{interval: {BEAT_SECONDS}, prompt: Look around.}}") as agent:
        planned = heartbeat_start(agent=agent, by=None, now=clock() - timedelta(seconds=BEAT_SECONDS))
        session_wake(planned.pk, now=clock())
        yield Worked(planned)


@contextmanager
def _sensor(model, mark):
    agent = agent_with_sensor(model, mark)
    with _stopped_at_the_end(agent), running_slice():
        yield Sensed(agent)


def agent_with_sensor(model, mark):
    """An agent whose sensor has something for the model to score at once."""
    signal = {"name": "odd", "prompt": f"Is this odd, {mark}?"}
    sensor = poll(f"{model.url}/", signals=[signal])
    return SensorScene(sensor, fields={"value": "object"}, owner=make_user(username=mark)).agent


@contextmanager
def _agent(mark, **fields):
    owner = fields.pop("owner", None) or make_user(username=mark)
    agent = make_agent(owner=owner, name=mark, definition_version=1, **fields)
    with _stopped_at_the_end(agent):
        yield agent


@contextmanager
def _stopped_at_the_end(agent):
    """Leave nothing behind that would run again: no loop, no planned beat, no sensor."""
    try:
        yield
    finally:
        Agent.objects.filter(pk=agent.pk).update(enabled=False, wanted=False)
        Sensor.objects.filter(agent=agent).update(wanted=False)
        agents_halt([agent.pk], by=None, reason="the test is over", now=clock())


MODES = {
    "chat": _chat,
    "walk": _walk,
    "agentic": _agentic,
    "judged": _judged,
    "loop": _loop,
    "heartbeat": _heartbeat,
    "sensor": _sensor,
}
