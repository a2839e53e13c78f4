"""Requests as words: patterns match a whole request, and typing errors are corrected only in lookups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ask.fast_paths import scope_of
from agents.ask.language import LOOKUPS, MAX_CHARS, PATTERNS, corrected, read
from tests.agents.ask.scene import asked, make_scene

ID, DIGEST = "4554cdd9-1111-4222-8333-123456789abc", "3f9a2c0d7b1e"
ACTIONS = [
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


def matched(text):
    """The paths whose phrases match, without looking up names."""
    request = read(text)
    return [key.partition(":")[0] for key, pattern in PATTERNS.items() if request and pattern.matches(request)]


@pytest.mark.parametrize("action", ACTIONS)
def test_action_matches_one_path(action):
    assert len(matched(action)) == 1


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("word", NOISE)
def test_action_with_one_more_word_does_not_match(action, word):
    words = action.split()
    for place in range(len(words) + 1):
        text = " ".join([*words[:place], word, *words[place:]])
        assert matched(text) == [], text


@pytest.mark.parametrize("action", ACTIONS)
def test_i_may_come_before_a_decision_only(action):
    words = action.split()
    for place in range(len(words) + 1):
        text = " ".join([*words[:place], "i", *words[place:]])
        decides = words[place : place + 1] in (["approve"], ["deny"])
        assert matched(text) == (["decide_approval"] if decides else []), text


@pytest.mark.parametrize(
    "text",
    [
        f"cancel the halt session {ID}",
        f"stop end session {ID}",
        f"refuse reject {ID} {DIGEST}",
        f"can I halt session {ID}",
        f"may I approve {ID} {DIGEST}",
        f"halt session {ID}. Halt it. Now.",
        f"“halt session {ID}”",
        f"'halt session {ID}'",
        f"> halt session {ID}",
        f"/halt session {ID}",
        f"halt_session({ID})",
        f"halt session {ID} " + "please " * 60,
    ],
)
def test_text_that_resembles_an_action_does_not_match(text):
    assert matched(text) == []


@pytest.mark.parametrize(
    "text",
    [
        f"HALT SESSION {ID.upper()}!!!",
        f"  halt   session\t{ID}  ",
        f"Hello there, could you please halt the session `{ID}`? Thank you very much!",
        f"ok, just stop {ID} right away",
        f"I'd like you to kill run #{ID}, thanks",
        f"session {ID}: halt",
    ],
)
def test_courtesy_case_and_punctuation_do_not_matter(text):
    assert matched(text) == ["halt_session"]


def test_long_text_is_not_read():
    assert read("halt session " + "x" * MAX_CHARS) is None


@given(text=st.text(max_size=400))
def test_any_text_is_read_or_not_without_an_error(text):
    request = read(text)
    assert request is None or all(0 <= word.start <= word.end <= len(text) for word in request.words)
    matched(text)


@given(words=st.lists(st.sampled_from([*NOISE, "halt", "stop", "approve", ID, DIGEST, "session", "the"]), max_size=8))
def test_noise_never_makes_an_action(words):
    if any(word in NOISE and word != "?" for word in words):
        assert not {"halt_session", "decide_approval"} & set(matched(" ".join(words)))


# --- Typing errors ---


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("list trigers", "triggers"),
        ("list triggerss", "triggers"),
        ("list trigegrs", "triggers"),
        ("list tryggers", "triggers"),
        ("pendng approvals", "pending"),
        ("pending aprovals", "approvals"),
        ("show the reciept", "receipt"),
        ("hlep", "help"),
        ("hepl me", "help"),
    ],
)
def test_typing_error_becomes_the_word_that_was_meant(typed, meant):
    assert meant in corrected(read(typed)).vocabulary


@pytest.mark.parametrize(
    "text",
    [
        "list triggers",
        "list tiggrs",
        "list riggers",
        "list 'trigers'",
        "show the statue",
        "show my coats",
        "show sending",
        "agen status",
        "trigers sesions pendng",
        "run it",
        "held",
        "'hlep'",
    ],
)
def test_other_words_are_left_alone(text):
    assert corrected(read(text)) is None


@pytest.mark.parametrize(
    "text", ["hlt session 1f2e3d4c", "halt sesion 1f2e3d4c", "aprove 1f2e3d4c 3f9a2c0d7b1e", "stpo 1f2e3d4c"]
)
def test_action_with_a_typing_error_does_not_match(text):
    assert scope_of(text) == "write"
    request = corrected(read(text))
    assert request is None or not any(PATTERNS[key].matches(request) for key in LOOKUPS)


@pytest.mark.django_db
def test_help_with_a_typing_error_is_understood():
    scene = make_scene()
    assert asked(scene, "hlep").path == asked(scene, "hepl me please").path == "help"
    assert asked(scene, "hlep me write a letter").path == ""
