"""A quote is verified only if exactly these characters stand in the source."""

import time

from hypothesis import given
from hypothesis import strategies as st

from agents.text.chunks import find_quote, is_verifiable_quote
from audit.redaction import redact
from tests.table import every_row

SOURCE = "Pay within 60 days. Notice: 60 days. Pay within 60 days."


def test_a_quote_is_found_where_it_stands():
    assert find_quote("Notice: 60 days.", SOURCE, 0) == (20, 36)


@every_row(("hint", "start"), [(0, 0), (18, 0), (19, 37), (37, 37), (56, 37), (10**9, 37), (-5, 0)])
def test_the_place_nearest_to_the_hint_is_chosen(hint, start):
    assert find_quote("Pay within 60 days.", SOURCE, hint) == (start, start + 19)


@every_row(
    "quote", ["pay within 60 days.", "Pay within 61 days.", "Pay within  60 days.", "Pay within 60 days", " Notice"]
)
def test_a_similar_quote_is_not_verified(quote):
    assert (find_quote(quote, SOURCE) is None) == (quote not in SOURCE)


@every_row("quote", ["", "   ", "60", " 60 ", "Pay"])
def test_a_quote_that_is_too_short_is_not_verified(quote):
    assert not is_verifiable_quote(quote)
    assert find_quote(quote, SOURCE) is None


def test_a_masked_secret_is_not_verified():
    masked = redact("The key is AKIAIOSFODNN7EXAMPLE.")
    assert "[redacted:" in masked
    assert find_quote(masked, masked) is None


@given(st.text(st.characters(), max_size=200), st.data())
def test_every_slice_of_a_text_is_verified_at_its_own_place(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    place = find_quote(text[start:end], text, start)
    if is_verifiable_quote(text[start:end]):
        assert place == (start, end)
    else:
        assert place is None


def test_a_repetitive_text_is_searched_quickly():
    source = "ab" * 1_000_000
    started = time.process_time()
    assert find_quote("ab" * 2_000 + "c", source, 1_000_000) is None
    assert time.process_time() - started < 2
