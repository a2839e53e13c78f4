"""Requests that are almost a fast path get a suggestion; questions and other talk reach the model."""

import pytest

from agents.ask.naming import Kind
from agents.models import AgentSession, Installation
from tests.agents.ask.corpus import SUGGESTED, rows
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail
from tests.agents.triggers.rows import halt_all
from tests.factories import NOW, make_starter, make_trigger

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def test_suggestion_costs_and_changes_nothing(scene):
    before, sessions = last_row(), AgentSession.objects.count()
    for path, text in rows(SUGGESTED):
        answer = asked(scene, text)
        assert (answer.kind, answer.path, answer.strategy) == (Kind.ANSWER, path, None), text
        assert answer.text.startswith(("Nothing was ", "No agent was changed."))
        assert not answer.changed
    assert trail(before) == []
    assert AgentSession.objects.count() == sessions
    assert is_pending(scene.approval)
    assert nothing_was_inferred()


def test_suggestion_lists_what_exists(scene):
    assert asked(scene, "pause agent Clark").text == (
        f"No agent was changed. Say which one: `pause agent <name>`.\n- agent Clerk, {scene.agent.public_id}"
    )
    choices = asked(scene, "run playbook Lease on collection Contractz").data["choices"]
    assert [(row["kind"], row["name"]) for row in choices] == [
        ("trigger", "Weekly scan"),
        ("playbook", "Lease"),
        ("collection", "Leases"),
    ]
    assert scene.a[:8] in asked(scene, "reject the request of Jane").text
    assert scene.s[:8] in asked(scene, "halt session nonsense").text


def test_suggestion_repeats_the_request_without_typing_errors(scene):
    answer = asked(scene, "aprove {a}")
    assert answer.text == f"Nothing was done. Did you mean: approve {scene.a}"
    assert answer.data["repeat"] == f"approve {scene.a}"
    assert asked(scene, answer.data["repeat"]).path == "decide_approval"


def test_beginning_of_a_trigger_name_is_completed(scene):
    make_trigger(owner=scene.owner, name="Monthly review of reports", query="reports", playbook=scene.playbook)
    for text in ("run the monthly review", "Start my schedule Monthly Review."):
        answer = asked(scene, text)
        assert answer.data["repeat"] == "run trigger Monthly review of reports"
        assert not answer.changed
    assert asked(scene, answer.data["repeat"]).kind == Kind.SESSION
    make_trigger(owner=scene.owner, name="Monthly review of leases")
    assert "repeat" not in asked(scene, "run the monthly review").data


def test_user_without_rows_gets_no_choices(scene):
    new = make_starter()
    assert asked(scene, "pause agent Clerk", by=new).data["choices"] == []
    assert asked(scene, "run playbook Lease on Leases", by=new).data["choices"] == []


@pytest.mark.parametrize(
    "text",
    [
        "halt session {s}?",
        "stop the inbox clerk",
        "resume Clark",
        "approve the merger",
        "pause the music",
        "run away",
        "never halt {s}",
        "run the weekly scan?",
        "Stopping distance of a car at 50 km/h",
        "ever wondered what a lease is",
        "Run this script and show me the output",
        "Run a review of everything that follows. " + "Long text. " * 40,
        "stop being so formal",
        "stop sending me so many notifications",
        "stop using the word 'shall' in drafts",
        "resume the discussion about the garden fence",
        "approve the budget for marketing, but politely",
        "reject the landlord's offer politely",
        "run a quick sanity check of my reasoning",
        "run the numbers on the rent increase",
        "start a discussion about Leases",
        "start by reading acme.txt and tell me the risks",
        "every tenant complains about noise, draft an answer",
    ],
)
def test_text_that_begins_with_an_action_word_reaches_the_model(scene, text):
    assert asked(scene, text).kind == Kind.SESSION


@pytest.mark.parametrize("text", ["release everything", "Please release all work!", "lift the halt", "release"])
def test_release_by_words_says_how_to_release(scene, text):
    assert asked(scene, text).text == "Nothing was done: nothing is halted."
    halt_all(reason="an incident", requested_by=scene.owner)
    answer = asked(scene, text)
    assert answer.text.startswith(f"Nothing was released. All work is halted by {scene.owner} since")
    assert all(how in answer.text for how in ("an incident", "admin", "manage.py release", "POST /api/v1/release"))
    assert Installation.objects.get().halt is not None
    assert not answer.changed


@pytest.mark.parametrize("text", ["release everything?", "release the deposit", "draft a release of all claims"])
def test_other_uses_of_release_go_to_the_model(scene, text):
    assert asked(scene, text).kind == Kind.SESSION


def test_no_suggestion_in_a_chat(scene):
    chat = asked(scene, "What is a lease?").session
    AgentSession.objects.filter(pk=chat.pk).update(status="completed", terminal_reason="completed", completed_at=NOW)
    assert asked(scene, "stop being so formal", chat=chat.params["chat"]).kind == Kind.SESSION
