"""The phrases of the thirteen fast paths, by a corpus of paraphrases and of requests that only resemble them.

A request that is not understood costs one answer of a model; an action that nobody asked for costs more.
"""

import json

import pytest

from agents.ask.fast_paths import FAST_PATHS, scope_of
from agents.models import Agent, AgentSession, Trigger
from tests.agents.ask.corpus import FOR_THE_MODEL, UNDERSTOOD, rows
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def test_there_are_thirteen_paths_and_each_has_paraphrases():
    names = [path.name for path in FAST_PATHS]
    labels = [path for path, _ in rows(UNDERSTOOD)]
    assert len(names) == len(set(names)) == 13
    assert set(names) == set(labels)
    assert all(labels.count(name) >= 15 for name in names)
    assert len(rows(FOR_THE_MODEL)) >= 180


@pytest.mark.parametrize(("path", "text"), rows(UNDERSTOOD))
def test_paraphrase_is_answered_without_a_model(scene, path, text):
    answer = asked(scene, text)

    assert (answer.path, answer.strategy) == (path, None)
    assert answer.text
    assert json.dumps(dict(answer.data))
    assert nothing_was_inferred()


@pytest.mark.parametrize("text", [text for (text,) in rows(FOR_THE_MODEL)])
def test_similar_request_goes_to_the_model_and_changes_nothing(scene, text):
    before = last_row()
    answer = asked(scene, text)

    assert answer.path == ""
    assert answer.strategy is not None
    assert {kind for kind, *_ in trail(before)} <= {"autonomous_trigger.run_now"}  # the message itself
    assert not AgentSession.objects.exclude(halt_state="running").exists()
    assert is_pending(scene.approval)
    assert not Agent.objects.filter(enabled=False).exists()
    assert not Trigger.objects.filter(kind="schedule").exists()


@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
def test_example_of_the_help_is_understood(scene, path):
    examples = path.example.replace("1f2e3d4c", "{a}" if path.scope == "decide" else "{s}").split("; ")
    assert {asked(scene, example).path for example in examples} == {path.name}


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("list sessions", "read"),
        ("list sessions 1f2e3d4c", "write"),
        ("approve {a} {d}", "decide"),
        ("reject {a}", "decide"),
        ("halt session {s}", "write"),
        ("run the weekly scan", "write"),
        ("pause active agents", "write"),
        ("tell me a story", "write"),
        ("x" * 5_000, "write"),
    ],
)
def test_request_needs_the_scope_of_what_it_does(scene, text, scope):
    assert scope_of(text.format(s=scene.s, a=scene.a, d=scene.d)) == scope
