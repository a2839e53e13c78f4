"""The measure of work tells what grows with its text from what grows with its square."""

import pytest

from tests.effort import grows_too_fast, takes_at_most


def in_pairs(text):
    return sum(1 for one in text for other in text if one == other)


def letter_by_letter(text):
    return sum(1 for one in text if one == "a")


@pytest.mark.long
def test_work_that_grows_with_the_square_is_found():
    assert grows_too_fast(in_pairs, lambda size: "a" * size, 150)


def test_work_that_grows_with_the_text_passes():
    assert not grows_too_fast(letter_by_letter, lambda size: "a" * size, 20_000)


def test_a_limit_that_is_always_passed_is_found():
    assert not takes_at_most(0.001, lambda: in_pairs("a" * 1_000))
    assert takes_at_most(5, lambda: in_pairs("a" * 1_000))
