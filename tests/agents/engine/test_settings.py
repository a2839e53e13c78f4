"""Settings of a run: installation, agent, trigger. The narrowest wins."""

from decimal import Decimal

import pytest

from agents.ask.chats import chat_send
from agents.definitions.in_force import guardrails_config_of, loop_config_of
from agents.engine.prompting import skills_of
from agents.models import SkillSetting
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.policy.run_spec import RunSpec
from agents.triggers.firing import trigger_fire
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

DEFINED = """
name: clerk
skills: [look, echo]
loop: {max_steps: 20, token_budget: 900}
guardrails: {reserve_cost_fraction: 0.2, reserve_tokens: 64}
"""


def spawned(**fields):
    owner = make_user()
    trigger = make_trigger(owner=owner, analysis_mode="agentic", **{"agent": make_agent(owner=owner), **fields})
    return trigger, trigger_fire(trigger=trigger, slot="s", inputs=RunSpec(), now=NOW).session


def test_defaults_apply_without_settings():
    _, session = spawned()
    assert (loop_config_of(session), guardrails_config_of(session)) == (LoopConfig(), GuardrailsConfig())
    assert loop_config_of(make_session(), streaming=True) == LoopConfig(streaming=True)


def test_narrowest_setting_wins(settings):
    settings.LQOPS_LOOP = {"max_steps": 40, "timeout": 60, "streaming": False}
    settings.LQOPS_GUARDRAILS = {"max_tokens_recoveries": 3, "reserve_tokens": 128}
    owner = make_user()
    agent = make_agent(owner=owner, definition=DEFINED)
    _, session = spawned(agent=agent, loop={"max_steps": 5}, guardrails={"reserve_tokens": 1})
    _, plain = spawned(agent=agent)

    assert loop_config_of(session, streaming=True) == LoopConfig(max_steps=5, timeout=60, token_budget=900)
    assert loop_config_of(plain).max_steps == 20
    assert guardrails_config_of(session) == GuardrailsConfig(
        max_tokens_recoveries=3, reserve_tokens=1, reserve_cost_fraction=Decimal("0.2")
    )
    assert guardrails_config_of(plain).reserve_tokens == 64
    assert plain.token_budget == 900


def test_trigger_change_applies_to_later_runs():
    trigger, session = spawned(loop={"max_steps": 5})
    trigger.loop = {"max_steps": 7}
    trigger.save()
    assert loop_config_of(session).max_steps == 5


def test_chat_uses_the_settings_and_skills_of_its_agent():
    owner = make_user()
    agent = make_agent(owner=owner, definition=DEFINED)
    session = chat_send(owner=owner, by=owner, text="Hi", agent=agent, now=NOW)

    assert session.token_budget == 900
    assert set(skills_of(session.agent)) == {"look", "echo"}
    assert "ask_person" in skills_of(None)
    assert not {"look", "echo"} & set(skills_of(None))


def test_disabled_skill_is_not_offered():
    session = make_session(agent=make_agent(definition="name: A\nskills: all\n"))
    assert {"look", "echo"} <= set(skills_of(session.agent))
    SkillSetting.objects.create(name="look", enabled=False)
    SkillSetting.objects.create(name="echo", enabled=True)
    assert "look" not in skills_of(session.agent)
    assert "echo" in skills_of(session.agent)
