"""A sample shows every argument, and parts leave nothing out."""

import pytest

from tests.sampling import part_of, sample


def test_sample_of_one_argument_has_both_ends_and_the_middle():
    assert sample([{"row": number} for number in range(11)], 3) == {0, 5, 10}


def test_sample_of_two_arguments_shows_every_value_of_each():
    rows = [{"role": role, "page": page} for page in range(7) for role in range(5)]
    kept = [rows[number] for number in sample(rows, 7)]
    assert {row["role"] for row in kept} == set(range(5))
    assert {row["page"] for row in kept} == set(range(7))


def test_every_item_is_in_one_part():
    items = [str(number) for number in range(21)]
    parts = [part_of(items, f"{number}/8")[0] for number in range(1, 9)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert part_of(items, "1/1") == (items, [])


@pytest.mark.parametrize("part", ["0/8", "9/8", "2", "a/8", "2/", "-1/8"])
def test_impossible_part_is_refused(part):
    with pytest.raises(pytest.UsageError, match="as in 2/8"):
        part_of([], part)
