"""Archived agents are out of the lists, start nothing, and can be brought back."""

import json

import pytest
from django.core.management import call_command

from agents.ask.chats import chat_send
from agents.conf import clock
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.loop.reads import loop_current
from agents.models import Agent
from agents.roster.agents import agent_archive, agent_edit, agent_start, agent_unarchive
from audit.models import AuditEvent
from tests.agents.autonomy import make_autonomous
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent():
    return make_autonomous("autonomy: {enabled: true}")


def act(service, agent, **more):
    return service(agent=agent, by=agent.owner, now=clock(), **more)


def test_archived_agent_is_stopped_and_starts_nothing(agent):
    act(agent_start, agent)
    archived = act(agent_archive, agent)
    assert (archived.enabled, archived.archived_at is not None, archived.wanted) == (False, True, False)
    assert loop_current(agent.pk) is None
    with pytest.raises(Invalid, match="switched off"):
        act(agent_start, archived)
    with pytest.raises(Invalid, match="switched off"):
        chat_send(owner=agent.owner, by=agent.owner, text="hello", agent=archived, now=clock())
    with pytest.raises(InvalidTransition, match="Bring it back first"):
        act(agent_edit, archived, enabled=True)


def test_agent_is_brought_back_switched_off(agent):
    act(agent_archive, agent)
    back = act(agent_unarchive, agent)
    assert (back.enabled, back.archived_at) == (False, None)
    act(agent_edit, back, enabled=True)
    assert act(agent_start, back).loop is not None


def test_archiving_twice_records_once(agent):
    for _ in range(2):
        act(agent_archive, agent)
    for _ in range(2):
        act(agent_unarchive, agent)
    kinds = AuditEvent.objects.filter(kind__contains="archived").order_by("pk").values_list("kind", flat=True)
    assert list(kinds) == ["agent.archived", "agent.unarchived"]


@pytest.mark.parametrize("service", [agent_archive, agent_unarchive])
def test_others_cannot_archive(agent, service):
    with pytest.raises(NotFound):
        service(agent=agent, by=make_user(), now=clock())


def test_command_archives_and_brings_back(agent, capsys):
    call_command("agent", "archive", agent.name)
    assert "is archived" in capsys.readouterr().out
    call_command("agent", "unarchive", agent.name, "--json")
    assert json.loads(capsys.readouterr().out)["archived_at"] is None
    assert Agent.objects.get().archived_at is None
