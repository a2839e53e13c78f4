"""A streamed reply is restored wherever it is cut, with little held back; JSON stays JSON."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.anonymize import Anonymizer
from agents.anonymize.anonymizer import LONGEST

NAMES = ["Anna Müller", 'Acme "North" Ltd', "Zoë\nÅngström", "back\\slash Ltd"]


@pytest.fixture(scope="module")
def anonymizer():
    return Anonymizer(NAMES)


@pytest.fixture(scope="module")
def placeholders(anonymizer):
    return [anonymizer.hide(name) for name in NAMES] + [anonymizer.hide("a@example.com")]


def streamed(anonymizer, pieces):
    stream = anonymizer.stream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.close()])


def test_text_cut_at_every_offset(anonymizer, placeholders):
    text = "Dear {}, PERSON_ {}'s {}s or PERSON_1_ and {}{}EM".format(*placeholders)
    whole = anonymizer.restore(text)
    assert whole.startswith("Dear Anna Müller, PERSON_ Acme")
    for at in range(len(text) + 1):
        assert streamed(anonymizer, [text[:at], text[at:]]) == whole
        for other in range(at, min(at + 20, len(text) + 1)):
            assert streamed(anonymizer, [text[:at], text[at:other], text[other:]]) == whole
    for size in (1, 2, 3, 5):
        assert streamed(anonymizer, [text[at : at + size] for at in range(0, len(text), size)]) == whole


@given(st.lists(st.integers(0, 4) | st.text("PERSONMAILG_ \\1bx7-\u00fc", max_size=12)), st.lists(st.integers(0, 200)))
def test_any_text_in_any_pieces(parts, cuts):
    anonymizer = Anonymizer(NAMES)
    given_out = [anonymizer.hide(name) for name in [*NAMES, "a@example.com"]]
    text = "".join(given_out[part] if isinstance(part, int) else part for part in parts)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    assert streamed(anonymizer, pieces) == anonymizer.restore(text)


@pytest.mark.parametrize("ascii_only", [True, False])
def test_values_in_json_are_escaped(anonymizer, placeholders, ascii_only):
    first, second, third, fourth, fifth = placeholders
    sent = {"to": first, "cc": [second, f"x {third} y"], fifth: fourth, "quote": 'a "b" \\ \n \u00e9 \U0001f600'}
    restored = json.loads(anonymizer.restore_json(json.dumps(sent, ensure_ascii=ascii_only)))
    assert restored == {
        "to": NAMES[0],
        "cc": [NAMES[1], f"x {NAMES[2]} y"],
        "a@example.com": NAMES[3],
        "quote": sent["quote"],
    }
    assert anonymizer.restore_json('{"bad": "\\u12') == '{"bad": "\\u12'


@pytest.mark.parametrize(
    "respelt",
    [
        str.lower,
        str.title,
        lambda text: text.replace("_", "\\_"),
        lambda text: text.replace("_", "\\\\_"),
        lambda text: text.replace("_", "-"),
        lambda text: text.replace("_", " "),
        lambda text: text.replace("_", " _ "),
        lambda text: text.replace("_", "\u2011"),
        lambda text: text.replace("_", ""),
        lambda text: text.replace("_1", "_01"),
    ],
)
def test_a_retyped_placeholder_is_restored(anonymizer, placeholders, respelt):
    text = f"({respelt(placeholders[0])}'s, {respelt(placeholders[0])}s)"
    assert anonymizer.restore(text) == "(Anna Müller's, Anna Müllers)"
    assert streamed(anonymizer, list(text)) == "(Anna Müller's, Anna Müllers)"


def test_a_stream_holds_back_at_most_one_placeholder(anonymizer, placeholders):
    stream = anonymizer.stream()
    assert stream.feed("nothing to wait for, ") == "nothing to wait for, "
    assert stream.feed("PERSON_1") == ""
    assert stream.feed("2345 is no placeholder") == "PERSON_12345 is no placeholder"
    assert stream.feed(placeholders[0]) == "Anna Müller"
    assert stream.close() == ""
    for text in ("PERSON_1_" * 50, "E" * 500, "\\" * 500, "PERSON    " * 40):
        stream = anonymizer.stream()
        out = ""
        for at, char in enumerate(text, 1):
            out += stream.feed(char)
            assert at - len(out) <= LONGEST
        assert out + stream.close() == text
