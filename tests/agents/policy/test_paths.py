"""Which part of a reading a field gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy.paths import MAX_PATH_STEPS, BadPath, PathNotFound, path_steps, path_text, value_at_path

READING = {"data": {"items": [{"price": 1.5}, {"price": None}], "a b": {"é-1": 2}}, "0": "zero", "": "empty"}


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (None, READING),
        ("data.items[0].price", 1.5),
        ("data.items[1].price", None),
        ("data.items[-1]", {"price": None}),
        ("data.a b.é-1", 2),
        ("0", "zero"),
    ],
)
def test_part_is_found(path, part):
    assert value_at_path(READING, path) == part


def test_places_may_come_first_and_follow_each_other():
    assert value_at_path([[1, 2], [3]], "[1][0]") == 3
    assert value_at_path([{"a": 4}], "[0].a") == 4


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("price", "price"),
        ("data.items[2].price", "data.items[2]"),
        ("data.items.price", "data.items.price"),
        ("data[0]", "data[0]"),
        ("data.items[0].price.x", "data.items[0].price.x"),
        ("data.items[-3]", "data.items[-3]"),
    ],
)
def test_part_that_is_not_there_is_named(path, where):
    with pytest.raises(PathNotFound, match=f"there is nothing at {where.replace('[', chr(92) + '[')}$"):
        value_at_path(READING, path)


def test_text_has_no_parts():
    with pytest.raises(PathNotFound):
        value_at_path("text", "[0]")


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a]b", "[0]a", "a[1.5]", "a.[0]"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(BadPath, match="is not a path"):
        path_steps(path)


def test_path_is_bounded():
    assert len(path_steps(".".join("a" * MAX_PATH_STEPS))) == MAX_PATH_STEPS
    with pytest.raises(BadPath):
        path_steps(".".join("a" * (MAX_PATH_STEPS + 1)))


KEYS = st.text(st.characters(exclude_characters=".[]", exclude_categories=["Cs"]), min_size=1, max_size=10)


@given(st.lists(KEYS | st.integers(-999, 999), min_size=1, max_size=MAX_PATH_STEPS))
def test_path_that_is_shown_reads_as_its_steps(steps):
    assert path_steps(path_text(tuple(steps))) == tuple(steps)
