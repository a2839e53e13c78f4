"""A test over a table fails when one row does, and names every row that does."""

import inspect

import pytest

from tests.table import every_row


@every_row(("number", "doubled"), [(1, 2), (2, 3), (3, 6), (4, 9)])
def doubles(number, doubled):
    assert 2 * number == doubled


@every_row("error", [ValueError, KeyError])
@every_row("raised", [ValueError, OSError])
def raises(error, raised, fixture):
    with pytest.raises(raised):
        raise error(fixture)


def test_every_row_that_fails_is_told_and_only_those():
    with pytest.raises(ExceptionGroup, match="2 of 4 rows failed") as told:
        doubles()

    assert ["number=2, doubled=3" in str(told.value), "number=4, doubled=9" in str(told.value)] == [True, True]
    assert "number=1" not in str(told.value)
    assert [error.__notes__ for error in told.value.exceptions] == [
        ["in row 1: number=2, doubled=3"],
        ["in row 3: number=4, doubled=9"],
    ]


def test_rows_of_several_tables_are_crossed_and_fixtures_stay_asked_for():
    assert list(inspect.signature(raises).parameters) == ["fixture"]
    with pytest.raises(BaseExceptionGroup) as told:
        raises(fixture="x")

    assert [len(group.exceptions) for group in told.value.exceptions] == [1, 2]


def test_what_did_not_raise_is_a_row_that_failed():
    @every_row("error", [ValueError])
    def silent(error):
        with pytest.raises(error):
            pass

    with pytest.raises(BaseExceptionGroup, match="1 of 1 rows failed"):
        silent()


def test_a_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="proves nothing"):
        every_row("row", [])
