"""`every_row` runs a test for each row of a table and reports every row that fails."""

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


def test_only_failing_rows_are_reported():
    with pytest.raises(ExceptionGroup, match="2 of 4 rows failed") as failure:
        doubles()

    assert ["number=2, doubled=3" in str(failure.value), "number=4, doubled=9" in str(failure.value)] == [True, True]
    assert "number=1" not in str(failure.value)
    assert [error.__notes__ for error in failure.value.exceptions] == [
        ["in row 1: number=2, doubled=3"],
        ["in row 3: number=4, doubled=9"],
    ]


def test_tables_are_crossed_and_fixtures_stay():
    assert list(inspect.signature(raises).parameters) == ["fixture"]
    with pytest.raises(BaseExceptionGroup) as failure:
        raises(fixture="x")

    assert [len(group.exceptions) for group in failure.value.exceptions] == [1, 2]


def test_missing_exception_fails_the_row():
    @every_row("error", [ValueError])
    def silent(error):
        with pytest.raises(error):
            pass

    with pytest.raises(BaseExceptionGroup, match="1 of 1 rows failed"):
        silent()


def test_empty_table_is_refused():
    with pytest.raises(AssertionError, match="proves nothing"):
        every_row("row", [])
