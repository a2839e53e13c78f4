"""Shared by tests of the step loop: sample skills, a scripted model and a held session."""

import json

import pytest

from agents.conf import clock
from agents.engine.loop import StepLoop
from agents.engine.prompting import Brief
from agents.enums import Mode, Phase, Status
from agents.models import Message
from agents.policy.guardrails import Counters
from agents.providers.scripted import Step
from agents.sessions.transcripts import GUARDRAILS, Entry
from agents.skills.registry import installed_skills
from agents.types import RequestedCall
from tests.agents.conftest import MODEL, script
from tests.factories import make_agent, make_price, make_session

__all__ = ["MODEL", "Step", "calls", "native", "script"]


@pytest.fixture(autouse=True)
def _sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [MODEL], "main": [MODEL]}
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()


@pytest.fixture
def session():
    make_price(MODEL, input_usd="0", output_usd="10")
    agent = make_agent(mode="semi")
    return make_session(Status.RUNNING, mode=Mode.CHAT, current_phase=Phase.TURN, agent=agent, max_cost_usd=5)


def native(name, **arguments):
    """A reply with one call in the provider's own form."""
    return Step(stop_reason="tool_use", calls=(RequestedCall("x", name, json.dumps(arguments)),))


def calls(*texts, parallel=False):
    """A reply with calls in tags."""
    tags = "".join(f"<skill>{text}</skill>" for text in texts)
    return Step(f"<parallel>{tags}</parallel>" if parallel else tags)


@pytest.fixture
def loop(session):
    """`loop(**changes)`: the loop over the held session, as a worker starts it anew each time."""

    def begin(**changes):
        session.refresh_from_db()
        opening = (Entry("system", "You are careful."), Entry("user", "Do it."))
        brief = Brief(MODEL, opening, dict(installed_skills()), **changes)
        return StepLoop(session, brief, started_at=clock())

    return begin


@pytest.fixture
def messages(session):
    def read(**which):
        return list(Message.objects.filter(session=session, **which).order_by("seq"))

    return read


@pytest.fixture
def counted(session):
    def read():
        session.refresh_from_db()
        return Counters.from_json(session.metadata.get(GUARDRAILS))

    return read
