"""Sections of a text: they cover it, fit their room, and end where something ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.sections import halves, section_spans

WORDS = st.text(st.sampled_from("ab .\n\f#1A"), max_size=400)


def covers(spans, start, end):
    return [start, *(stop for _, stop in spans)] == [*(first for first, _ in spans), end]


@given(WORDS, st.integers(2, 50), st.integers(0, 20))
def test_sections_cover_the_text_and_fit(text, room, start):
    start = min(start, len(text))
    spans = section_spans(text, start, len(text), room=room)
    assert covers(spans, start, len(text))
    assert all(0 < stop - first <= room for first, stop in spans)


@given(WORDS.filter(lambda text: len(text) >= 10))
def test_halves_cover_the_text_and_neither_is_small(text):
    first, second = halves(text, 0, len(text))
    assert covers([first, second], 0, len(text))
    assert min(first[1] - first[0], second[1] - second[0]) >= len(text) // 3


def test_text_that_fits_is_one_section():
    assert section_spans("short", 0, 5, room=5) == [(0, 5)]
    assert section_spans("", 0, 0, room=5) == []


@pytest.mark.parametrize(
    "beginning",
    ["\fPage two", "# Term", "Article 12", "SECTION 3", "§ 7 Notice", "12.3 Notice", "7) Notice", "GOVERNING LAW"],
)
def test_section_begins_with_what_begins_something(beginning):
    filler = "The parties agree on it. " * 20
    text = f"{filler}\n\n{filler}\n{beginning}\n{filler}\n\n{filler}"
    [(_, end), *_] = section_spans(text, 0, len(text), room=text.index(beginning) + 200)
    assert text[end:].startswith(beginning.lstrip("\f"))


@pytest.mark.parametrize(
    ("text", "ends_with"), [("a b c\n\nd e f g", "\n\n"), ("a b c\nd e f g h", "\n"), ("ab cd ef", " ")]
)
def test_without_structure_a_section_ends_at_a_paragraph_a_line_or_a_word(text, ends_with):
    [(_, end), *_] = section_spans(text, 0, len(text), room=8 if len(text) > 8 else 7)
    assert text[:end].endswith(ends_with)
