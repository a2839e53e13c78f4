"""A streamed reply is restored wherever it is cut, as text and as JSON, with little held back."""

import codecs
import json
import random
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


def streamed(anonymizer, pieces, *, as_json=False):
    stream = anonymizer.stream(as_json=as_json)
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


def as_arguments(placeholders):
    data = {"to": placeholders[0], "cc": [placeholders[1], f"x {placeholders[2]} y"], placeholders[4]: placeholders[3]}
    return {**data, "n": 1.5, "quote": 'a "b" \\ \n \u00e9 \U0001f600', "path": "C:\\PERSON_1"}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_cut_at_every_byte(anonymizer, placeholders, ascii_only):
    arguments = as_arguments(placeholders)
    expected = anonymizer.restore_data(arguments)
    assert expected["cc"] == ['Acme "North" Ltd', "x Zoë\nÅngström y"]
    sent = json.dumps(arguments, ensure_ascii=ascii_only).encode()
    for at in range(len(sent) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")()
        pieces = [decoder.decode(sent[:at]), decoder.decode(sent[at:], final=True)]
        assert json.loads(streamed(anonymizer, pieces, as_json=True)) == expected
    decoder = codecs.getincrementaldecoder("utf-8")()
    single = [decoder.decode(bytes([byte])) for byte in sent]
    assert json.loads(streamed(anonymizer, single, as_json=True)) == expected


def escaped(text, source):
    return "".join(f"\\u{ord(c):04{source.choice('xX')}}" if source.random() < 0.4 else c for c in text)


def test_json_whose_placeholders_are_written_as_escapes(anonymizer, placeholders):
    source = random.Random(3)
    for _ in range(30):
        first, second = (escaped(placeholders[n], source) for n in (1, 3))
        text = f'{{"a": "{first}", "b": "\\\\u0050 {second}"}}'
        expected = {"a": 'Acme "North" Ltd', "b": "\\u0050 back\\slash Ltd"}
        assert json.loads(anonymizer.restore_json(text)) == expected
        for at in range(len(text)):
            assert json.loads(streamed(anonymizer, [text[:at], text[at:]], as_json=True)) == expected


def test_escapes_that_are_not_placeholders_stay_as_written(anonymizer):
    text = '{"a": "\\"\\u0022\\u005c\\u0000\\u00fc\\ud83d\\ude00\\n", "bad": "\\u12'
    assert anonymizer.restore_json(text) == text
    assert streamed(anonymizer, list(text), as_json=True) == text
    assert anonymizer.restore_json('"\\uZZ \\') == '"\\uZZ \\'


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
        for as_json in (False, True):
            stream = anonymizer.stream(as_json=as_json)
            out = ""
            for at, char in enumerate(text, 1):
                out += stream.feed(char)
                assert at - len(out) <= LONGEST + 5
            assert out + stream.close() == text


def test_a_closed_stream_refuses_more_text(anonymizer):
    stream = anonymizer.stream()
    stream.feed("PERS")
    assert stream.close() == "PERS"
    with pytest.raises(ValueError, match="closed"):
        stream.feed("x")
