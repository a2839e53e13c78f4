"""What the worker processes of the tests do; what a function returns is its result."""

import os
import threading
import time
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import django

django.setup()

from django.db import transaction  # noqa: E402
from django.test import override_settings  # noqa: E402

from agents import conf, database_clock  # noqa: E402
from agents.conf import clock  # noqa: E402
from agents.enums import Level, Mode, Status, ToolIntent  # noqa: E402
from agents.exceptions import AutonomousBrake, LeaseLost  # noqa: E402
from agents.guard import guarded_tool_call  # noqa: E402
from agents.guard.intents import override  # noqa: E402
from agents.guard.tools import Tool  # noqa: E402
from agents.models import Agent, AgentSession  # noqa: E402
from agents.providers import slots  # noqa: E402
from agents.providers.registry import Limited  # noqa: E402
from agents.providers.scripted import ScriptedProvider, Step  # noqa: E402
from agents.runner import run_next, run_session  # noqa: E402
from agents.sessions.leases import lease_claim  # noqa: E402
from agents.triggers.firing import Fired  # noqa: E402
from agents.triggers.handing_on import agent_run_within  # noqa: E402
from agents.triggers.schedules import schedules_fire  # noqa: E402
from agents.triggers.watches import watches_fire  # noqa: E402
from agents.types import Capability, Finished, ModelRequest, Usage  # noqa: E402
from tests.flows.processes import in_threads  # noqa: E402
from tests.serving import serving  # noqa: E402

MODEL = "test-model"
ASK = {"model": MODEL, "prompt": "Is it in order?", "max_tokens": 500}
line = None  # to the test


def say(word):
    line.send(word)


def wait_to_be_told():
    line.recv()


def start_together():
    say("ready")
    wait_to_be_told()


def spend(session: AgentSession) -> int:
    """Asks the model until a brake ends it; a budget held by calls in flight is tried again."""
    made = 0
    while True:
        try:
            made += guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK).ok
        except AutonomousBrake:
            return made


def spend_in_threads(session_pks, output_tokens):
    """One thread per session; returns how many calls went through."""
    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, output_tokens))])):
        return sum(in_threads(len(session_pks), lambda n: spend(AgentSession.objects.get(pk=session_pks[n]))))


def claim(session_pks, owner, at):
    """Tries to claim each session, all at one moment: no lease runs out meanwhile. Returns those it got."""
    start_together()
    return [pk for pk in session_pks if lease_claim(pk, owner=owner, now=at) is not None]


def run(session_pk, effects, *, block=True, repeatable=False, owner="worker"):
    """A run of three calls, each leaving a line in the file `effects`; the second one may hang after its effect."""

    def act(context, params):
        with Path(effects).open("a") as out:
            out.write(f"{params['step']} {context.idempotency_key}\n")
            out.flush()
            os.fsync(out.fileno())
        if block and params["step"] == 2:
            say("acted")
            wait_to_be_told()
        return {"step": params["step"]}

    def engine(held):
        capability = Capability("act", level=Level.SAFE, idempotent=repeatable)
        with override({ToolIntent.RUN_SKILL: Tool(act, capability, remote=True)}):
            for step in (1, 2, 3):
                guarded_tool_call(held, ToolIntent.RUN_SKILL, {"step": step}, key=f"step:{step}")
        return Finished()

    return run_session(session_pk, engine, owner=owner)


def infer(session_pk, asked, *, block=True, owner="worker"):
    """A run of one question to a model, which notes that it was asked and may never answer."""

    def note():
        with Path(asked).open("a") as out:
            out.write("asked\n")
        if block:
            say("asked")
            wait_to_be_told()

    def engine(held):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, ASK, key="question")
        return Finished()

    with serving(MODEL, ScriptedProvider([Step("fine", usage=Usage(0, 10), before_reply=note)])):
        return run_session(session_pk, engine, owner=owner)


def take_turns(owner, ahead, lease, *, ignore_limit=False, dies=False):
    """A worker on a host whose clock is so many seconds ahead takes runs that last longer than a lease, until stopped.

    Returns how many runs it ended. With `ignore_limit` it claims although its clock is off; one that `dies` is killed
    in its first run.
    """
    conf.datetime = type("Shifted", (datetime,), {"now": lambda tz=None: datetime.now(tz) + timedelta(seconds=ahead)})
    if ignore_limit:
        database_clock.claim_limit = lambda: timedelta.max

    def engine(held):
        if dies:
            say("holding")
            wait_to_be_told()
        until = time.monotonic() + 1.5 * lease
        while time.monotonic() < until:
            guarded_tool_call(held, ToolIntent.RUN_SKILL, {}, key=str(time.monotonic()))
            time.sleep(lease / 10)
        return Finished()

    ended = 0
    capability = Capability("act", level=Level.SAFE)
    with (
        override_settings(LQOPS_LEASE_SECONDS=lease, LQOPS_HEARTBEAT_SECONDS=lease / 6),
        override({ToolIntent.RUN_SKILL: Tool(lambda context, params: {}, capability, remote=True)}),
    ):
        say("ready")
        while not line.poll(0.05):
            ended += run_next({Mode.PHASED: engine}, owner=owner)
    wait_to_be_told()
    return ended


def stall(session_pk, owner):
    """Claims a session, is stopped for a while, and then tries to write; returns what became of it."""
    held = lease_claim(session_pk, owner=owner, now=clock())
    say("holding")
    wait_to_be_told()
    try:
        guarded_tool_call(held, ToolIntent.EMIT_FINDING, {"title": "late"})
    except LeaseLost:
        return "refused"
    return "written"


def loop_until_halted(session_pk, delay):
    """Asks a slow model again and again until a halt ends it; returns how many calls went through."""
    session = AgentSession.objects.get(pk=session_pk)
    assert session.status == Status.RUNNING
    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, 1), delay_seconds=delay)])):
        say("looping")
        return spend(session)


@override_settings(LQOPS_SKILL_MODULES=["tests.agents.skills.samples"])
def reign(session_pks, at):
    """Calls a PRIVILEGED skill for each session at once; returns what became of each call."""
    sessions = list(AgentSession.objects.filter(pk__in=session_pks).order_by("pk"))

    def call(number):
        params = {"skill": "reign", "arguments": {}}
        return guarded_tool_call(sessions[number], ToolIntent.RUN_SKILL, params, key="step:1", now=at).outcome

    return in_threads(len(sessions), call)


def fire_schedules(now):
    """Sweeps, as a ticker does, until nothing is due any more; returns how many sessions it spawned."""
    start_together()
    spawned = 0
    while found := schedules_fire(now=now, limit=20):
        spawned += found
    return spawned


def tell_watches(attachment_pks, now):
    """Tells of each attachment; returns how many sessions that spawned."""
    start_together()
    answers = [answer for pk in attachment_pks for answer in watches_fire(pk, now=now)]
    return sum(isinstance(answer, Fired) and answer.first for answer in answers)


def hand_on(parent_pk, agent_pk, *, committed):
    """Start a run within another, and stand still before or after the commit."""
    parent = AgentSession.objects.get(pk=parent_pk)
    with nullcontext() if committed else transaction.atomic():
        agent_run_within(parent, Agent.objects.get(pk=agent_pk), "Read it.", max_cost_usd=Decimal("0.4"), now=clock())
        say("handed on")
        wait_to_be_told()


def ask_in_turn(marks, most, threads, requests, holds=False):
    """Makes requests to a model of which `most` may be out at once in the installation; marks when each is out."""

    def hold():
        _mark(marks, "in")
        if holds:
            say("holds")
            threading.Event().wait()
        time.sleep(0.02)
        _mark(marks, "out")

    with (
        patch.object(slots, "LEASE_END", slots.lease_end(timedelta(seconds=2))),
        patch.object(slots, "RENEWED_AFTER", 0.5),
    ):
        limited = Limited(ScriptedProvider([Step("ok", before_reply=hold)]), {"concurrency": most}, model=MODEL)
        request = ModelRequest(MODEL, ({"role": "user", "content": "?"},))
        in_threads(threads, lambda _: [limited.stream(request, lambda chunk: None) for _ in range(requests)])


def _mark(path, word):
    with Path(path).open("a") as out:
        out.write(f"{word}\n")
