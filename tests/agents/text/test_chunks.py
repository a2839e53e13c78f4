"""Chunks cover their text exactly, in order, and end where a reader would pause."""

from hypothesis import example, given
from hypothesis import strategies as st

from agents.text.chunks import LONGEST_CHARS, SHORTEST_CHARS, TARGET_CHARS, chunk_spans
from tests.effort import takes_at_most

# Long texts out of few parts: letters, pauses of every kind, and characters beyond the first plane
TEXTS = st.lists(
    st.sampled_from(
        ["word ", "x" * 700, "y" * 2_500, ". ", "! ", '." ', "\n", "\n\n", " ", "\t", "🙂", "é\u0301", "。"]
    ),
    max_size=60,
).map("".join)


@given(text=TEXTS | st.text(max_size=5_000))
@example(text="")
@example(text="x" * 10_000)
@example(text="\n" * 10_000)
@example(text=" " * (LONGEST_CHARS + 1))
def test_chunks_cover_the_text_exactly_and_in_order(text):
    spans = chunk_spans(text)

    assert "".join(text[start:end] for start, end in spans) == text
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert all(0 < end - start <= LONGEST_CHARS for start, end in spans)
    assert all(SHORTEST_CHARS <= end - start <= TARGET_CHARS for start, end in spans[:-1])


def first_chunk(text):
    start, end = chunk_spans(text)[0]
    return text[start:end]


def test_a_short_text_is_one_chunk():
    assert chunk_spans("x" * LONGEST_CHARS) == [(0, LONGEST_CHARS)]
    assert chunk_spans("x") == [(0, 1)]
    assert chunk_spans("") == []


def test_a_chunk_ends_with_a_paragraph_rather_than_with_a_line():
    text = "a" * 1_000 + "\n\n" + "b" * 300 + "\n" + "c" * 2_000
    assert first_chunk(text) == "a" * 1_000 + "\n\n"


def test_a_chunk_ends_with_a_line_rather_than_with_a_sentence():
    text = "a" * 1_000 + "\n" + "b" * 300 + ". " + "c" * 2_000
    assert first_chunk(text) == "a" * 1_000 + "\n"


def test_a_chunk_ends_with_a_sentence_rather_than_with_a_word():
    text = "a" * 1_000 + '." ' + "b" * 300 + " " + "c" * 2_000
    assert first_chunk(text) == "a" * 1_000 + '." '


def test_a_chunk_ends_with_a_word_rather_than_within_one():
    text = "a" * 1_000 + " " + "b" * 300 + " " + "c" * 2_000
    assert first_chunk(text) == "a" * 1_000 + " " + "b" * 300 + " "


def test_an_endless_word_is_cut():
    assert first_chunk("a" * 5_000) == "a" * TARGET_CHARS


def test_no_chunk_ends_before_the_shortest_length():
    assert len(first_chunk("a" * 100 + "\n\n" + "b" * 5_000)) == TARGET_CHARS


def test_a_very_long_text_is_cut_quickly():
    text = "some words. " * 400_000
    assert len(chunk_spans(text)) > 2_000
    assert takes_at_most(2, lambda: chunk_spans(text))
