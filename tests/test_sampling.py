"""A sample shows every argument, and parts leave nothing out."""

from types import SimpleNamespace

import pytest

from tests.sampling import mark_long_rows, part_of, sample


def test_sample_of_one_argument_has_both_ends_and_the_middle():
    assert sample([{"row": number} for number in range(11)], 3) == {0, 5, 10}


def test_sample_of_two_arguments_shows_every_value_of_each():
    rows = [{"role": role, "page": page} for page in range(7) for role in range(5)]
    kept = [rows[number] for number in sample(rows, 7)]
    assert {row["role"] for row in kept} == set(range(5))
    assert {row["page"] for row in kept} == set(range(7))


ITEMS = [
    SimpleNamespace(nodeid=f"tests/{room}/test_{file}.py::test_{number}")
    for room in ("guard", "pages")
    for file in range(1, 7)
    for number in range(file)
]


def names(items):
    return [item.nodeid for item in items]


def test_every_item_is_in_one_part_beside_those_of_its_file():
    parts = [names(part_of(ITEMS, f"{number}/4")[0]) for number in range(1, 5)]
    assert sorted(name for part in parts for name in part) == sorted(names(ITEMS))
    files = [{name.partition("::")[0] for name in part} for part in parts]
    assert sum(map(len, files)) == len(set().union(*files)) == 12
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    assert part_of(ITEMS, "1/1") == (ITEMS, [])


def test_files_that_are_always_run_are_in_every_part():
    parts = [part_of(ITEMS, f"{number}/3", ("tests/guard/",)) for number in range(1, 4)]
    guard, pages = ITEMS[:21], ITEMS[21:]
    assert all(part[:21] == guard for part, _ in parts)
    assert sorted(name for part, _ in parts for name in names(part[21:])) == sorted(names(pages))
    assert all(names(left) == [name for name in names(ITEMS) if name not in names(part)] for part, left in parts)


@pytest.mark.parametrize("part", ["0/8", "9/8", "2", "a/8", "2/", "-1/8"])
def test_impossible_part_is_refused(part):
    with pytest.raises(pytest.UsageError, match="as in 2/8"):
        part_of([], part)


class Row:
    """As much of a test's row as marking looks at."""

    def __init__(self, test, number, *marks):
        self.nodeid, self.marks = f"{test}[{number}]", {mark.name: mark for mark in marks}
        self.callspec = SimpleNamespace(indices={"row": number})

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, name):
        self.marks[name] = getattr(pytest.mark, name).mark


def left_in_make_test(test, count, *marks):
    rows = [Row(test, number, *marks) for number in range(count)]
    mark_long_rows(rows)
    return sum("long" not in row.marks for row in rows)


def test_two_rows_of_a_table_above_services_stay_and_all_of_others():
    assert left_in_make_test("tests/agents/api/test_lists.py::test_list", 5) == 2
    assert left_in_make_test("tests/agents/admin/test_approvals.py::test_call", 5) == 2
    assert left_in_make_test("tests/agents/guard/test_brakes.py::test_phase", 5) == 5


def test_one_row_of_a_list_of_pages_or_runs_stays_and_both_sides_of_a_pair():
    assert left_in_make_test("tests/agents/admin/test_home.py::test_role", 5) == 1
    assert left_in_make_test("tests/agents/admin/test_home.py::test_role", 2) == 2


def test_tables_of_permissions_stay_whole():
    assert left_in_make_test("tests/agents/admin/test_matrix.py::test_role", 5) == 5


def test_sampled_names_how_many_rows_stay():
    assert left_in_make_test("tests/agents/admin/test_home.py::test_role", 5, pytest.mark.sampled(3).mark) == 3
    assert left_in_make_test("tests/agents/guard/test_brakes.py::test_phase", 5, pytest.mark.sampled(1).mark) == 1
