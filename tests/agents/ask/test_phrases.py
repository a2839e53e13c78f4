"""The phrases of the thirteen fast paths: wordings that match, and requests that only resemble them.

A request that is not understood costs one answer of a model; an action that nobody asked for costs more.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ask.entry import route
from agents.ask.fast_paths import FAST_PATHS, fast_answer, scope_of
from agents.ask.language import ACTIONS, LOOKUPS, MAX_CHARS, PHRASES, corrected, read, words_of
from agents.ask.naming import KINDS, AskContext
from agents.models import Agent, AgentSession, Trigger
from tests.agents.ask.corpus import FOR_THE_MODEL, UNDERSTOOD, rows
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail
from tests.factories import NOW

ID, DIGEST = "4554cdd9-1111-4222-8333-123456789abc", "3f9a2c0d7b1e"
ORDERS = [
    f"halt session {ID}",
    f"please stop the run {ID} now",
    f"approve {ID} {DIGEST}",
    f"deny request {ID} {DIGEST}",
]
NOISE = [
    "not", "never", "don't", "no", "if", "unless", "why", "when", "should", "maybe", "or", "and", "then", "later",
    "tomorrow", "would", "could've", "what", "how", "explain", "translate", "?", ";", "(", "—", "without", "before",
    "because", "said", "you", "we", "they", "except", "anything", "nothing", "about", "happens", "undo", "is", "was",
]  # fmt: skip


@pytest.fixture
def scene():
    return make_scene()


def matched(text):
    """The paths with a phrase that matches, without looking up names."""
    request = read(text)
    words, _ = words_of(request.text) if request else ("", ())
    return [
        path
        for path, actions in PHRASES.items()
        if any(phrase.fullmatch(words) for phrases in actions.values() for phrase in phrases)
    ]


def test_there_are_thirteen_paths_and_each_has_a_few_phrases():
    names = [path.name for path in FAST_PATHS]
    assert len(names) == len(set(names)) == 13
    assert set(names) == PHRASES.keys() == {path for path, _ in rows(UNDERSTOOD)}
    assert all(len(phrases.strip().splitlines()) <= 8 for phrases in (LOOKUPS | ACTIONS).values())


@pytest.mark.django_db
@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
def test_wordings_and_examples_of_the_help_are_understood(scene, path):
    example = path.example.replace("1f2e3d4c", "{a}" if path.scope == "decide" else "{s}")
    for text in [*(text for name, text in rows(UNDERSTOOD) if name == path.name), *example.split("; ")]:
        written = text.format(s=scene.s, a=scene.a, d=scene.d)
        answer = fast_answer(AskContext(scene.owner, NOW, written, dry_run=True))
        assert answer is not None, text
        assert (answer.path, bool(answer.text)) == (path.name, True), text
        assert json.dumps(dict(answer.data))
    assert nothing_was_inferred()


@pytest.mark.django_db
def test_similar_requests_match_no_path(scene, monkeypatch):
    known = [(kind, getattr(scene, kind)) for kind in KINDS]
    monkeypatch.setattr("agents.ask.fast_paths.rows_named_in", lambda text, user: known)
    for (text,) in rows(FOR_THE_MODEL):
        context = AskContext(scene.owner, NOW, text.format(s=scene.s, a=scene.a, d=scene.d), dry_run=True)
        assert fast_answer(context) is None, text


@pytest.mark.django_db
@pytest.mark.parametrize("text", [text for (text,) in rows(FOR_THE_MODEL)][::12])
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


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("list sessions", "read"),
        ("list sessions 1f2e3d4c", "write"),
        (f"approve {ID} {DIGEST}", "decide"),
        (f"reject {ID}", "decide"),
        (f"halt session {ID}", "write"),
        ("run the weekly scan", "write"),
        ("pause active agents", "write"),
        ("tell me a story", "write"),
        ("x" * 5_000, "write"),
    ],
)
def test_request_needs_the_scope_of_what_it_does(text, scope):
    assert scope_of(text) == scope


@pytest.mark.django_db
def test_names_may_contain_words_of_phrases_and_times(scene):
    Trigger.objects.filter(pk=scene.trigger.pk).update(name="Lease on Leases, every 6 hours")
    assert asked(scene, "run Lease on Leases, every 6 hours").session.trigger == scene.trigger
    Agent.objects.filter(pk=scene.agent.pk).update(name="Stop if in doubt")
    assert asked(scene, "pause agent Stop if in doubt").changed
    type(scene.playbook).objects.filter(pk=scene.playbook.pk).update(name="Weekly review")
    assert route(text="run Weekly review on Leases daily", by=scene.owner, now=NOW).text.endswith("Leases, daily.")


# --- One word too many ---


@pytest.mark.parametrize("order", ORDERS)
def test_order_with_one_more_word_does_not_match(order):
    assert len(matched(order)) == 1
    words = order.split()
    for word in NOISE:
        for place in range(len(words) + 1):
            text = " ".join([*words[:place], word, *words[place:]])
            # A mark at the end makes a question of it, which is no order either.
            assert scope_of(text) == "write", text
            assert matched(text) == [] or word == "?", text


@pytest.mark.parametrize("order", ORDERS)
def test_i_may_come_before_a_decision_only(order):
    words = order.split()
    for place in range(len(words) + 1):
        text = " ".join([*words[:place], "i", *words[place:]])
        decides = words[place : place + 1] in (["approve"], ["deny"])
        assert matched(text) == (["decide_approval"] if decides else []), text


@pytest.mark.parametrize(
    "text",
    [
        f"cancel the halt session {ID}",
        f"reject approve {ID} {DIGEST}",
        f"can I halt session {ID}",
        f"may I approve {ID} {DIGEST}",
        f"halt session {ID}. Halt it. Now.",
        f"halt session {ID}\nrun the weekly scan",
        f"halt \x1b session {ID}",
        f"halt\u200b session {ID}",
        f"“halt session {ID}”",
        f"'halt session {ID}'",
        f"> halt session {ID}",
        f"/halt session {ID}",
        f"halt_session({ID})",
        f"halt {ID} {DIGEST}",
        "approve 2027-12-31",
        "stop 5",
        "halt session " + "x" * MAX_CHARS,
        f"halt session {ID} " + "please " * 60,
    ],
)
def test_text_that_resembles_an_order_does_not_match(text):
    assert matched(text) == []


@pytest.mark.parametrize(
    "text",
    [
        f"HALT SESSION {ID.upper()}!!!",
        f"  halt   session\t{ID}  ",
        f"Hello, could you please halt the session `{ID}`? Thank you!",
        f"ok, stop {ID} right now",
    ],
)
def test_courtesy_case_and_punctuation_do_not_matter(text):
    assert matched(text) == ["halt_session"]


@given(text=st.text(max_size=400))
def test_any_text_is_read_without_an_error(text):
    matched(text)
    matched(corrected(text))


@given(words=st.lists(st.sampled_from([*NOISE, "halt", "stop", "approve", ID, DIGEST, "session", "the"]), max_size=8))
def test_noise_never_makes_an_order(words):
    if any(word in NOISE and word != "?" for word in words):
        assert not {"halt_session", "decide_approval"} & set(matched(" ".join(words)))


# --- Typing errors ---


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("list trigers", "list triggers"),
        ("pendng aprovals", "pending approvals"),
        ("Show the reciept!", "Show the receipt!"),
        ("hlt everythng", "hlt everything"),
        ("show the statue and my coats", "show the statue and my coats"),
    ],
)
def test_typing_error_becomes_the_word_that_was_meant(typed, meant):
    assert corrected(typed) == meant


@pytest.mark.parametrize("text", ["halt sesion 1f2e3d4c", "aprove 1f2e3d4c 3f9a2c0d7b1e", "list trigers"])
def test_text_with_a_typing_error_does_not_match(text):
    assert matched(text) == []
    assert matched(corrected(text)) != []
