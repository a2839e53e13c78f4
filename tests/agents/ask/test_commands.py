"""The short forms, their aliases, and the words of an emergency."""

import pytest

from agents.ask.commands import FAST_PATHS, is_emergency, nearest_commands
from agents.ask.entry import EMERGENCY
from agents.models import AgentSession, Halt
from tests.agents.ask.scene import asked, make_scene, nothing_was_inferred
from tests.agents.triggers.rows import halt_all

pytestmark = pytest.mark.django_db

FORMS = {
    "help": ("help", "?", "What can you do?"),
    "service_status": ("status", "agents", "list agents", "Is everything ok?"),
    "list_triggers": ("triggers", "show my triggers", "triggers paused"),
    "list_sessions": ("runs", "runs failed yesterday", "Which runs are active?", "what's running?"),
    "show_receipt": ("receipt {s}", "receipt last"),
    "halt_session": ("halt {s}", "halt run {s}", "kill {s}", "halt Clerk", "cancel"),
    "switch_agent": ("pause Clerk", "resume agent clerk", "stop Clerk", "disable Clerk", "pause"),
    "list_approvals": ("approvals", "what needs my approval?", "questions"),
    "decide_approval": ("approve {a}", "deny {a}", "reject {a}", "approve"),
    "list_precedents": ("precedents",),
    "cost_summary": ("costs", "costs last week", "costs per agent", "costs Clerk", "What have I spent?"),
    "run_now": ("run weekly scan", "run Lease on Leases", "please run the Weekly scan", "run"),
    "create_schedule": ("schedule Lease on Leases every 6 hours",),
}


@pytest.fixture
def scene():
    return make_scene()


def test_there_are_thirteen_paths_with_one_form_each():
    assert [path.name for path in FAST_PATHS] == list(FORMS)
    assert len({path.form for path in FAST_PATHS}) == 13


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("path", "text"), [(path, text) for path, texts in FORMS.items() for text in texts])
def test_form_and_alias_are_answered_without_a_model_and_change_nothing(scene, path, text):
    before = AgentSession.objects.count()
    answer = asked(scene, text)
    assert (answer.path, answer.session) == (path, None)
    assert nothing_was_inferred()
    assert AgentSession.objects.count() == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    ["runs that were denied", "pause the music", "approve the merger", "run away", "receipt of the shop", "halt Clark"],
)
def test_words_too_many_are_no_command(scene, text):
    assert asked(scene, text, model=False).path == ""


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("stop everything", True),
        ("please STOP ALL AGENTS now!!", True),
        ("turn it all off", True),
        ("emergency", True),
        ("who stopped everything", False),
        ("stop the clerk", False),
        ("documents about emergency exits", False),
        ("is there a document that says stop everything", False),
        ("x" * 400 + " stop everything", False),
    ],
)
def test_emergency_is_told_by_its_words(text, is_one):
    assert is_emergency(text) == is_one


def test_emergency_halts_nothing_by_itself(scene):
    answer = asked(scene, "stop everything")
    assert (answer.path, [one.action for one in answer.wanted]) == (EMERGENCY, ["halt_own"])
    assert not Halt.objects.exists()


def test_emergency_while_halted_says_so(scene):
    halt_all(reason="a fire")
    assert "a fire" in asked(scene, "stop everything").text


@pytest.mark.parametrize("text", ["release", "Release everything!", "lift the halt"])
def test_words_release_nothing(scene, text):
    halt_all(reason="a fire")
    assert asked(scene, text).text.startswith("Nothing was released.")


def test_nearest_commands_share_words():
    assert nearest_commands("what are the costs of this")[0].startswith("costs")
    assert nearest_commands("xyzzy") == ["help"]
