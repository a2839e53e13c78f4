"""Tools of AgentDojo, declared by somebody who forgets everything: forgetting costs convenience, never safety."""

import inspect
from pathlib import Path

import pytest

from agents.engine.prompting import skills_of
from agents.enums import ApprovalMode, Level, Phase
from agents.policy.consent import needs_person
from agents.skills import registry
from agents.skills.skill import BadSkill, Skill, skill
from tests.factories import make_agent

TOOLS = [line.strip().partition(":") for line in Path(__file__).with_name("agentdojo.txt").read_text().splitlines()]


def declared(name, arguments):
    """The skill as it is declared bare; None if it is refused."""

    def function(**given):
        """Do it."""

    function.__name__ = name
    text = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature([inspect.Parameter(one, text, annotation=str) for one in arguments])
    function.__annotations__ = dict.fromkeys(arguments, str)
    try:
        return skill(function)
    except BadSkill:
        return None


@pytest.fixture(scope="module")
def bare():
    return {name: declared(name, arguments.split()) for name, _, arguments in TOOLS}


def test_every_tool_asks_or_is_refused_when_it_is_declared(bare):
    assert len(bare) == 69
    taken = [one for one in bare.values() if one]
    for one in taken:
        assert one.level == Level.RESTRICTED
        assert needs_person(one.capability(one.level), mode=ApprovalMode.SEMI)
        assert needs_person(one.capability(one.level), mode=ApprovalMode.MANUAL)
    refused = {name for name, one in bare.items() if one is None}
    assert {"send_money", "send_email", "get_webpage", "post_webpage", "share_file", "send_direct_message"} <= refused


@pytest.mark.django_db
def test_agents_are_offered_them_only_when_they_are_named_or_all_are(bare, monkeypatch):
    installed = dict(registry.installed_skills())
    installed |= {name: one for name, one in bare.items() if isinstance(one, Skill) and name not in installed}
    monkeypatch.setattr(registry, "installed_skills", lambda: installed)
    forgotten = bare.keys() - {"send_email"}  # lqops has one of its own, which reaches out and is not offered either

    def offered(skills):
        agent = make_agent(definition=f"name: A\n{skills}", definition_digest=skills or "none", definition_version=1)
        return skills_of(agent, phase=Phase.TURN).keys()

    assert not offered("") & forgotten
    assert not skills_of(None, phase=Phase.TURN).keys() & forgotten
    assert offered("skills: [get_balance]\n") == {"get_balance"}
    assert offered("skills: all\n") == {name for name, one in installed.items() if not one.console}
    assert not {"fetch_url", "send_email"} & offered("")
    assert {"search_documents", "remember", "ask_person"} <= offered("")
