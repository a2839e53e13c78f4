"""One test over a table of cases: it costs far less than a test for each, and still tells every row that fails."""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

brief = reprlib.Repr()
brief.maxstring = brief.maxother = 200


def every_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like pytest's `parametrize`, for tests that leave nothing behind: the rows share one run of the fixtures."""
    several = not isinstance(names, str)
    table = [dict(zip(names, row, strict=True)) if several else {names: row} for row in rows]
    assert table, "a table without rows proves nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**others: Any) -> None:
            failed = {}
            for number, row in enumerate(table):
                try:
                    test(**row, **others)
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below
                    values = ", ".join(f"{name}={brief.repr(value)}" for name, value in row.items())
                    error.add_note(f"in row {number}: {values}")
                    failed[f"row {number}: {values}"] = error
            if failed:
                told = "\n".join(failed)  # a traceback shows the first fifteen
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows failed:\n{told}", list(failed.values()))

        signature = inspect.signature(test)
        others = [given for name, given in signature.parameters.items() if name not in table[0]]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
