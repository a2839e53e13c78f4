"""Rows by what a person says of their id: all of it, or enough of its beginning."""

import re
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import models

Row = TypeVar("Row", bound=models.Model)
SHORTEST: Final = 6
_LONGEST: Final = 32
_HEX: Final = re.compile(r"[0-9a-f]+", re.ASCII)
_HYPHENS: Final = (8, 12, 16, 20)


def is_id(said: str) -> bool:
    """Whether it can be an id or the beginning of one, and no other number, such as an amount or a date."""
    plain = said.replace("-", "")
    return SHORTEST <= len(plain) <= _LONGEST and bool(_HEX.fullmatch(plain)) and said in {plain, _hyphenated(plain)}


def rows_by_id(rows: models.QuerySet[Row], said: str) -> list[Row]:
    """The rows meant by an id or the beginning of one; a shorter one than six digits means nothing."""
    plain = said.replace("-", "")
    if not SHORTEST <= len(plain) <= _LONGEST:
        return []
    if not _HEX.fullmatch(plain):
        return []
    if len(plain) == _LONGEST:
        return list(rows.filter(public_id=UUID(plain)))
    return list(rows.filter(public_id__startswith=_hyphenated(plain))[:3])


def _hyphenated(plain: str) -> str:
    parts = [plain[start:end] for start, end in zip((0, *_HYPHENS), (*_HYPHENS, _LONGEST), strict=True)]
    return "-".join(part for part in parts if part)


def short(row: Any) -> str:
    """What a person types of an id."""
    return str(row.public_id)[:8]
