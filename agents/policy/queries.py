"""Queries of sensors: one statement that reads. Pure.

This finds mistakes early and refuses what is plainly a write. What keeps a query from writing is the read-only
transaction that it runs in, and the role that the operator gave the connection.
"""

import re
from typing import Final

_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READS: Final = frozenset({"select", "with", "values", "table"})
_WORD: Final = re.compile(r"[a-z]+")


def query_problem(query: str) -> str:
    """Return why a text cannot be the query of a sensor; "" if it can."""
    plain = _COMMENT.sub(" ", query).strip().rstrip(";").strip().lower()
    first = _WORD.match(plain.lstrip("("))
    if first is None or first[0] not in _READS:
        return "it has to begin with SELECT, WITH, VALUES or TABLE"
    if ";" in plain:
        return "it contains a semicolon"
    return ""
