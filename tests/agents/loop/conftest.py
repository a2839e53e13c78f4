"""Fixtures for loops: agents with definitions, a clock, and a way to drive a loop through time."""

import textwrap
from datetime import timedelta

import pytest
import time_machine
from django.core.cache import cache

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import EventKind, Status
from agents.ledger.outages import model_wait_of
from agents.loop.cycle import run_loop as engine
from agents.loop.state import hot_write
from agents.loop.turns import alert_push
from agents.models import AgentEvent, ModelPrice, Turn
from agents.providers.scripted import ScriptedProvider, Step
from agents.roster.loops import loop_start
from agents.runner import run_session
from agents.sessions.leases import model_waiters_wake, sleepers_wake
from agents.sessions.lifecycle import session_row
from agents.skills.registry import installed_skills
from tests.agents.conftest import MODEL
from tests.agents.loop import samples
from tests.agents.loop.scripted_replies import SHORT, SMALL, START
from tests.factories import make_agent, make_price
from tests.serving import serving

SKILLS = "[echo, look, fail, act, press, set_state]"  # few, so that each turn is quick


@pytest.fixture(autouse=True)
def _sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples", "tests.agents.loop.samples"]
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [MODEL], "main": [MODEL]}
    settings.LQOPS_HEARTBEAT_SECONDS = 60  # no second connection while the test's own transaction is open
    installed_skills.cache_clear()
    cache.clear()
    samples.pressed.clear()
    samples.price["now"] = 31
    yield
    installed_skills.cache_clear()


def price_once(model):
    if not ModelPrice.objects.filter(model=model).exists():
        make_price(model, input_usd="0", output_usd="10")


@pytest.fixture
def time():
    """The clock; it stands still unless a test moves it."""
    with time_machine.travel(START, tick=False) as traveller:
        yield traveller


@pytest.fixture
def agent(time):
    """`agent(yaml, …)` makes an autonomous agent with that definition."""

    def make(text="autonomy: {enabled: true}", **fields):
        said = textwrap.dedent(text)
        price_once(MODEL)
        return make_agent(definition=f"skills: {SKILLS}\n{said}", definition_version=1, **fields)

    return make


class Driven:
    """A loop driven by hand: one call per task of the queue; time passes when it sleeps."""

    def __init__(self, session, time):
        self.session, self.time = session, time

    @property
    def row(self):
        self.session = session_row(self.session.pk)
        return self.session

    def task(self):
        """Run one task of the queue; return the session's status."""
        assert run_session(self.session.pk, engine, owner="worker")
        return self.row.status

    def sleep_out(self):
        """Move the clock to its wake time, and wake it."""
        row = self.row
        wait = model_wait_of(row)
        self.time.move_to(wait.next_try_at if wait else row.next_wake_at)
        sleepers_wake(clock())
        model_waiters_wake(clock())
        assert self.row.status == Status.QUEUED

    def until(self, when, most=2_000):
        """Run it as workers and the ticker would, until a moment or its end."""
        for _ in range(most):
            row = self.row
            if row.status == Status.QUEUED:
                self.task()
            elif row.status == Status.SLEEPING and row.next_wake_at <= when:
                self.sleep_out()
            else:
                return row
        raise AssertionError(f"still going after {most} tasks")

    def for_(self, **length):
        return self.until(clock() + timedelta(**length))

    def turns(self, **which):
        return list(Turn.objects.filter(session=self.session, **which).order_by("number"))

    def events(self, *kinds):
        rows = AgentEvent.objects.filter(session=self.session).order_by("id")
        return [row for row in rows if not kinds or row.kind in kinds]

    def guardrails(self):
        return [event.data["guardrail"] for event in self.events(EventKind.GUARDRAIL_TRIGGERED)]

    def see(self, name, value, **more):
        """Write a field of the hot state, as a sensor would."""
        said = {"source": "sensor", "source_name": "feed", "now": clock(), **more}
        return hot_write(self.session, definition=definition_of(self.session.agent), name=name, value=value, **said)

    def alert(self, name, text="", **more):
        return alert_push(self.session, name=name, text=text, source_name="feed", now=clock(), **more)


@pytest.fixture
def drive(time):
    def begin(agent):
        return Driven(loop_start(agent=agent, by=None, now=clock()), time)

    return begin


@pytest.fixture
def small():
    """`small("no", …)` gives the replies of the gate's model."""

    def answering(*answers):
        price_once(SMALL)
        return serving(
            SMALL, ScriptedProvider([one if isinstance(one, Step) else Step(one, usage=SHORT) for one in answers])
        )

    return answering
