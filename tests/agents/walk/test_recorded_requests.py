"""What walks really send: the one question, judges, steps with skills, and goals."""

import json

import pytest

from agents.providers.scripted import ScriptedProvider, Step
from agents.types import RequestedCall
from tests.agents.walk.scene import model, reply, run
from tests.factories import make_agent, make_price
from tests.serving import serving
from tests.wire import BOTH_FORMS, recording

pytestmark = pytest.mark.django_db


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_every_request_of_a_walk_is_what_strict_servers_take(scene, settings, form):
    settings.LQOPS_MODEL_ROLES = {"main": ["offline"], "small": ["offline"], "judges": ["judge-a"]}
    make_price("judge-a")
    call = Step(stop_reason="tool_use", calls=(RequestedCall("x", "current_time", json.dumps({})),))
    with recording(form) as bodies, serving("judge-a", ScriptedProvider([Step("Yes.")])):
        with model(reply()):
            run(scene.of_document(judge_citations=True))
        assert len(bodies) == 2
        for more in ({"analysis_mode": "agentic"}, {"goal": "Compare the leases.", "analysis_mode": "agentic"}):
            session = scene.of_document(**more)
            session.agent = make_agent(owner=scene.owner)
            session.save()
            with model(call, reply()):
                assert run(session).terminal_reason == "completed"
    assert len(bodies) == 6
