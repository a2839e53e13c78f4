"""How commands find an agent: by name, public id or the beginning of the id."""

from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from agents.enums import HaltState
from agents.management.base import row_named
from agents.models import Agent
from tests.factories import make_agent, make_session, make_user

pytestmark = pytest.mark.django_db
ID = "f6344a8c-17d0-4b5a-9d0c-1c2d3e4f5a6b"


@pytest.mark.parametrize("text", ["Supply watcher", ID, ID[:8], ID[:13].upper()])
def test_halt_takes_a_name_an_id_or_its_beginning(text):
    session = make_session(agent=make_agent(name="Supply watcher", public_id=UUID(ID)))
    other = make_session(agent=make_agent())

    call_command("halt", "--agent", text)

    for row, state in ((session, HaltState.HALT_REQUESTED), (other, HaltState.RUNNING)):
        row.refresh_from_db()
        assert row.halt_state == state


def test_ambiguous_name_lists_the_ids():
    twins = [make_agent(name="Twin"), make_agent(name="Twin")]

    with pytest.raises(CommandError, match="Several agents match 'Twin'") as refused:
        call_command("halt", "--agent", "Twin")

    for twin in twins:
        assert f"{twin.public_id}  of {twin.owner}" in str(refused.value)
        assert row_named(Agent, "Twin", owner=twin.owner) == twin


def test_name_equal_to_another_id_does_not_win():
    meant = make_agent(public_id=UUID(ID))
    make_agent(name=ID)

    assert row_named(Agent, ID) == meant


@pytest.mark.parametrize(
    "command", [["halt", "--agent", "Mine"], ["agent", "status", "Mine"], ["export_agent", "Mine"],
                ["run_now", "--owner", "ada", "--goal", "x", "--agent", "Mine"]]
)  # fmt: skip
def test_unknown_agent_has_the_same_error_everywhere(command):
    make_user(username="ada")

    with pytest.raises(CommandError, match=r"(There is no|ada has no) agent 'Mine'"):
        call_command(*command)
