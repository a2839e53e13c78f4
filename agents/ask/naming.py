"""The rows that a request names: by id, by the beginning of an id, or by name. Reads only.

However many rows a person has, one query per kind finds those whose names are in the text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from agents.ask.language import Request, Word, words
from agents.models import Agent, Collection, Document, Playbook, PromptSkill, Trigger

# --- Rows by id ---


Row = TypeVar("Row", bound=models.Model)
SHORTEST: Final = 6
_LONGEST: Final = 32
_HEX: Final = re.compile(r"[0-9a-f]+", re.ASCII)
_HYPHENS: Final = (8, 12, 16, 20)


def is_id(text: str) -> bool:
    """Whether a text can be an id or the beginning of one, not an amount or a date."""
    digits = text.replace("-", "")
    return _is_hex(digits) and text in {digits, _hyphenated(digits)}


def rows_by_id(rows: models.QuerySet[Row], text: str) -> list[Row]:
    """The rows with this id, or whose id begins with it; six digits at least."""
    digits = text.replace("-", "")
    if not _is_hex(digits):
        return []
    if len(digits) == _LONGEST:
        return list(rows.filter(public_id=UUID(digits)))
    return list(rows.filter(public_id__startswith=_hyphenated(digits))[:3])


def _is_hex(digits: str) -> bool:
    return SHORTEST <= len(digits) <= _LONGEST and _HEX.fullmatch(digits) is not None


def _hyphenated(digits: str) -> str:
    parts = [digits[start:end] for start, end in zip((0, *_HYPHENS), (*_HYPHENS, _LONGEST), strict=True)]
    return "-".join(part for part in parts if part)


def short(row: Any) -> str:
    """The part of an id that people type."""
    return str(row.public_id)[:8]


# --- Rows by name ---


KINDS: Final[dict[str, type[models.Model]]] = {
    "agent": Agent,
    "trigger": Trigger,
    "playbook": Playbook,
    "skill": PromptSkill,
    "collection": Collection,
    "document": Document,
}
INSTRUCTIONS: Final = ("playbook", "skill")
SOURCES: Final = ("collection", "document")
# Words beside a name that say what it is the name of.
KIND_WORDS: Final = {
    "agent": "agent", "trigger": "trigger", "schedule": "trigger", "watch": "trigger", "playbook": "playbook",
    "skill": "skill", "collection": "collection", "folder": "collection", "document": "document", "file": "document",
}  # fmt: skip
_BEFORE_SOURCE: Final = frozenset({"on", "over", "in", "through", "for"})
_BEFORE_INSTRUCTIONS: Final = frozenset({"with", "using", "by", "against"})
# Names only in quotes or beside a word for their kind.
_PRONOUNS: Final = words("it this that them these those one all everything me you he she they now again")
MAX_NAME_WORDS: Final = 12
MAX_ROWS: Final = 50


@dataclass(frozen=True)
class Named:
    """One name in the request: the places of its words, and the rows with that name, by kind."""

    places: frozenset[int]
    rows: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Names:
    """All names in a request, in order."""

    found: tuple[Named, ...] = ()

    @property
    def places(self) -> frozenset[int]:
        return frozenset().union(*(named.places for named in self.found))

    @property
    def is_ambiguous(self) -> bool:
        return any(len(named.rows) > 1 for named in self.found)

    @property
    def candidates(self) -> list[Any]:
        return [row for named in self.found if len(named.rows) > 1 for _, row in named.rows]

    def of(self, *kinds: str) -> list[Any]:
        """The rows of these kinds, once each."""
        rows = [row for named in self.found for kind, row in named.rows if kind in kinds]
        return list(dict.fromkeys(rows))

    def as_slots(self, request: Request) -> Request:
        """The request with the slot NAME for each name."""
        first = {min(named.places) for named in self.found}
        slots = [
            replace(word, text="NAME", quoted=False) if place in first else word
            for place, word in enumerate(request.words)
            if place in first or place not in self.places
        ]
        return replace(request, words=tuple(slots))


def names_in(request: Request, owner: User, kinds: Iterable[str]) -> Names:
    """Find names, the longest first; parts of a longer name are not names."""
    spans = _spans(request)
    known: dict[str, list[tuple[str, Any]]] = {}
    for kind in kinds:
        for row in _rows(KINDS[kind], owner, set(spans.values())):
            known.setdefault(row.name.casefold(), []).append((kind, row))
            known.setdefault(str(row.public_id), []).append((kind, row))
    taken: set[int] = set()
    found: list[Named] = []
    for (start, end), name in sorted(spans.items(), key=lambda span: (span[0][0] - span[0][1], span[0][0])):
        places = frozenset(range(start, end))
        if name.casefold() in _PRONOUNS and not _is_marked(request, start, end):
            continue
        if (rows := known.get(name.casefold())) and not places & taken:
            taken |= places
            found.append(Named(places, _meant(request, start, end, rows)))
    return Names(tuple(sorted(found, key=lambda named: min(named.places))))


def rows_of(kind: str, owner: User) -> list[Any]:
    """A person's rows of a kind, to choose from."""
    return list(_own(KINDS[kind], owner).order_by("name", "pk")[:MAX_ROWS])


def kind_of(row: Any) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(row, model))


def _spans(request: Request) -> dict[tuple[int, int], str]:
    """Every run of words as it is written, by the places of its first and last word."""
    count = len(request.words)
    return {
        (start, end): " ".join(request.text[request.words[start].start : request.words[end - 1].end].split())
        for start in range(count)
        for end in range(start + 1, min(start + MAX_NAME_WORDS, count) + 1)
    }


def _own(model: type[models.Model], owner: User) -> models.QuerySet[Any]:
    if model is PromptSkill:
        return PromptSkill.objects.filter(enabled=True)
    rows: models.QuerySet[Any] = models.QuerySet(model).filter(owner=owner)
    if any(field.name == "deleted_at" for field in model._meta.fields):
        rows = rows.filter(deleted_at__isnull=True)
    return rows


def _rows(model: type[models.Model], owner: User, texts: set[str]) -> list[Any]:
    ids = [text for text in texts if len(text.replace("-", "")) == _LONGEST and is_id(text.lower())]
    rows = _own(model, owner).annotate(lower_name=Lower("name"))
    lowered = {text.lower() for text in texts}
    return list(
        rows.filter(Q(name__in=texts) | Q(lower_name__in=lowered) | Q(public_id__in=ids)).order_by("pk")[:MAX_ROWS]
    )


def _beside(request: Request, start: int, end: int) -> list[Word]:
    return [*request.words[max(start - 1, 0) : start], *request.words[end : end + 1]]


def _is_marked(request: Request, start: int, end: int) -> bool:
    """In quotes, or beside a word that says what it is the name of."""
    return request.words[start].quoted or any(word.text in KIND_WORDS for word in _beside(request, start, end))


def _meant(request: Request, start: int, end: int, rows: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The rows with the name, without those that the words beside it rule out."""
    kinds: Iterable[str] = [KIND_WORDS[word.text] for word in _beside(request, start, end) if word.text in KIND_WORDS]
    if not kinds and start:
        before = request.words[start - 1].text
        before = request.words[start - 2].text if start > 1 and before in {"the", "my"} else before
        if before in _BEFORE_SOURCE:
            kinds = SOURCES
        elif before in _BEFORE_INSTRUCTIONS:
            kinds = KINDS.keys() - set(SOURCES)
    return tuple([pair for pair in rows if pair[0] in kinds] or rows)
