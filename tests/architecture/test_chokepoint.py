"""Only agents/guard/guard.py reaches handlers and models: a bypass is found by the checker and refused at run time."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model

from agents.enums import Outcome, Phase, ToolIntent
from agents.guard import dispatch, guard
from agents.guard.tools import Tool
from agents.models import (
    AgentSession,
    Collection,
    Document,
    Finding,
    Memory,
    ModelPrice,
    Notification,
    Precedent,
    Profile,
    ToolCall,
)
from agents.providers.scripted import ScriptedProvider, Step
from agents.runner import run_session
from agents.sessions.lifecycle import session_create, session_enter_phase
from agents.skills.skill import SkillContext
from agents.types import Capability, Finished
from tests.serving import serving

from .bypass import Bypass, bypasses

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
BYPASSES = {
    "from agents.providers.registry import provider_for": "imports agents.providers.registry",
    "from agents.providers import registry": "imports agents.providers.registry",
    "import agents.guard.metering": "imports agents.guard.metering",
    "from agents.guard import metering": "imports agents.guard.metering",
    "from ..guard import metering": "imports agents.guard.metering",
    "from agents.guard.dispatch import run": "imports agents.guard.dispatch",
    "from agents.guard import intents": "imports agents.guard.intents",
    "from agents.guard.retrieve import retrieve_chunks": "imports agents.guard.retrieve",
    'import_module("agents.guard.dispatch")': "imports agents.guard.dispatch",
    "from agents.skills.running import perform": "imports agents.skills.running",
    "from agents.builtin_skills.lqops import now": "imports agents.builtin_skills",
    "skill.run(None, text='x')": "calls skill.run",
    "tool.handler(context, {})": "calls handler",
    "provider.complete(request)": "calls complete",
    "provider.stream(request, print)": "calls provider.stream",
    "dispatch.run(permit, tool, context, {})": "calls dispatch.run",
    "make_pass = dispatch.take_pass_maker()": "calls take_pass_maker",
}


@pytest.fixture
def sneaky(tmp_path):
    """Return a module in a tree of its own."""
    (tmp_path / "agents/sessions").mkdir(parents=True)
    return tmp_path / "agents/sessions/sneaky.py"


@pytest.mark.parametrize(("line", "what"), BYPASSES.items())
def test_bypass_is_found(tmp_path, sneaky, line, what):
    sneaky.write_text(f"def act(tool, context):\n    {line}\n")

    assert bypasses(tmp_path) == [Bypass("agents/sessions/sneaky.py", 2, what)]


# --- At run time ---


def context_of(call_id):
    return SkillContext(
        session_pk=1,
        session_id=uuid.uuid4(),
        owner_id=1,
        call_id=call_id,
        idempotency_key="k",
        now=NOW,
        infer=lambda: pytest.fail("no model may be asked"),
    )


@pytest.fixture
def probe():
    reached = []
    return Tool(lambda context, params: reached.append(params), Capability("probe")), reached


def test_mint_cannot_be_taken_twice():
    with pytest.raises(dispatch.NoPass):
        dispatch.take_pass_maker()


def test_pass_cannot_be_constructed():
    with pytest.raises(dispatch.NoPass):
        dispatch.Pass(uuid.uuid4(), _made_by=object())


@pytest.mark.parametrize("forged", [None, object(), "pass"])
def test_handler_does_not_run_without_a_pass(probe, forged):
    tool, reached = probe

    with pytest.raises(dispatch.NoPass):
        dispatch.run(forged, tool, context_of(uuid.uuid4()), {})

    assert reached == []


def test_subclass_of_a_pass_is_refused(probe):
    tool, reached = probe

    class LookAlike(dispatch.Pass):
        def __init__(self, call_id):
            self.call_id, self.spent = call_id, False

    call_id = uuid.uuid4()

    with pytest.raises(dispatch.NoPass):
        dispatch.run(LookAlike(call_id), tool, context_of(call_id), {})

    assert reached == []


def test_pass_works_once_and_only_for_its_call(probe):
    tool, reached = probe
    call_id = uuid.uuid4()
    permit = guard._make_pass(call_id)

    with pytest.raises(dispatch.NoPass):
        dispatch.run(permit, tool, context_of(uuid.uuid4()), {"other": True})
    dispatch.run(permit, tool, context_of(call_id), {"first": True})
    with pytest.raises(dispatch.NoPass):
        dispatch.run(permit, tool, context_of(call_id), {"again": True})

    assert reached == [{"first": True}]


MODEL = "chokepoint-model"
COLLECTION = uuid.uuid4()
CALLS = [
    (Phase.INTAKE, ToolIntent.RETRIEVE_CHUNKS, {"collection": str(COLLECTION)}),
    (Phase.ANALYSIS, ToolIntent.RUN_SKILL, {"model": MODEL, "prompt": "p", "max_tokens": 16}),
    (Phase.ANALYSIS, ToolIntent.RUN_PLAYBOOK, {"model": MODEL, "prompt": "p", "max_tokens": 16}),
    (Phase.ANALYSIS, ToolIntent.PROPOSE_PRECEDENT, {"pattern_kind": "k", "summary": "s"}),
    (Phase.DRAFTING, ToolIntent.EMIT_FINDING, {"title": "t"}),
    (Phase.DRAFTING, ToolIntent.PROPOSE_MEMORY, {"content": "c"}),
    (Phase.DRAFTING, ToolIntent.EMIT_ARTIFACT, {"collection": str(COLLECTION), "name": "n", "content": "c"}),
    (Phase.DELIVERY, ToolIntent.NOTIFY, {"title": "t"}),
]
EFFECTS = (Document, Finding, Memory, Notification, Precedent)


def full_run(provider):
    """Run a session that makes every kind of call that has a handler."""
    user = get_user_model().objects.create_user("owner")
    Profile.objects.create(user=user, opted_in=True)
    ModelPrice.objects.create(model=MODEL, input_usd=1, output_usd=1)
    Collection.objects.create(owner=user, name="drafts", public_id=COLLECTION)
    session = session_create(owner=user, now=NOW)
    results = []

    def engine(held):
        for phase, intent, params in CALLS:
            session_enter_phase(held, phase, now=NOW)
            results.append(guard.guarded_tool_call(held, intent, params))
        return Finished()

    with serving(MODEL, provider):
        assert run_session(session.pk, engine, owner="worker:1")
    return AgentSession.objects.get(pk=session.pk), results


def test_full_run_uses_every_handler():
    assert {intent for _, intent, _ in CALLS} == set(ToolIntent)


@pytest.mark.django_db(transaction=True)
def test_full_run_has_its_effects():
    provider = ScriptedProvider([Step(text="fine")])

    session, results = full_run(provider)

    assert session.status == "completed", session.error
    assert [result.outcome for result in results] == [Outcome.SUCCESS] * len(CALLS)
    assert [model.objects.count() for model in EFFECTS] == [1] * len(EFFECTS)
    assert len(provider.requests) == 2


@pytest.mark.django_db(transaction=True)
def test_full_run_without_dispatch_has_no_effect(monkeypatch):
    real = guard._dispatch

    def without_handler(call, stopped):
        inert = replace(call.tool, handler=lambda context, params: None)
        return real(replace(call, tool=inert), stopped)

    monkeypatch.setattr(guard, "_dispatch", without_handler)
    monkeypatch.setattr("agents.guard.selftest._armed", True)
    provider = ScriptedProvider([Step(text="fine")])

    session, results = full_run(provider)

    assert session.status == "completed", session.error
    assert len(results) == ToolCall.objects.count() == len(CALLS)
    assert [model.objects.count() for model in EFFECTS] == [0] * len(EFFECTS)
    assert provider.requests == []
