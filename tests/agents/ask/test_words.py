"""Orders in words: one word too many, and it is no order any more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ask.fast_paths import FAST_PATHS
from agents.ask.language import LONGEST, read

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


def hit(text):
    request = read(text)
    return [path.name for path in FAST_PATHS if request and path.grammars and path.fits(request)]


@pytest.mark.parametrize("order", ORDERS)
def test_order_is_understood(order):
    assert len(hit(order)) == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("word", NOISE)
def test_one_word_too_many_and_it_is_no_order(order, word):
    words = order.split()
    for place in range(len(words) + 1):
        text = " ".join([*words[:place], word, *words[place:]])
        assert hit(text) == [], text


@pytest.mark.parametrize("order", ORDERS)
def test_who_decides_may_say_so_and_nobody_else_gives_orders_by_saying_i(order):
    words = order.split()
    for place in range(len(words) + 1):
        text = " ".join([*words[:place], "i", *words[place:]])
        said = words[place : place + 1] in (["approve"], ["deny"])
        assert hit(text) == (["decide_approval"] if said else []), text


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
def test_what_only_looks_like_an_order_is_none(text):
    assert hit(text) == []


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
def test_courtesy_case_and_marks_do_not_matter(text):
    assert hit(text) == ["halt_session"]


def test_longer_texts_are_not_read():
    assert read("halt session " + "x" * LONGEST) is None


@given(text=st.text(max_size=400))
def test_any_text_is_read_or_not_but_breaks_nothing(text):
    request = read(text)
    assert request is None or all(0 <= word.start <= word.end <= len(text) for word in request.words)
    hit(text)


@given(words=st.lists(st.sampled_from([*NOISE, "halt", "stop", "approve", ID, DIGEST, "session", "the"]), max_size=8))
def test_no_order_is_made_of_noise(words):
    if any(word in NOISE and word != "?" for word in words):
        assert not {"halt_session", "decide_approval"} & set(hit(" ".join(words)))
