"""Answers to requests, and the rows that a request names: by id, by the beginning of an id, or by name. Reads only."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Length

from agents.ask.language import QUOTE, Strategy, When
from agents.models import Agent, AgentSession, Collection, Document, Playbook, PromptSkill, Trigger

# --- The answer to a request, and the context in which it was made ---


class Kind(StrEnum):
    """`answer`: complete. `session`: a run works on it. `draft`: something was created that is switched off."""

    ANSWER = "answer"
    SESSION = "session"
    DRAFT = "draft"


@dataclass(frozen=True)
class Answer:
    """`path` is the fast path that answered; without one, `strategy` says how the request is handled.

    `changed`: the request acted on something. Sent again, it would act again.
    """

    kind: Kind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None
    strategy: Strategy | None = None
    path: str = ""
    changed: bool = False


@dataclass(frozen=True)
class AskContext:
    """Who sent the request, when, for which agent, with which API key, and what it may cost.

    `running` is the message of the chat that is being answered. In a `dry_run` nothing is done.
    """

    user: User
    now: datetime
    text: str
    agent: Agent | None = None
    max_cost_usd: Decimal | None = None
    in_chat: bool = False
    running: AgentSession | None = None
    dry_run: bool = False


def message(text: str, **data: Any) -> Answer:
    """An answer to a request that changed nothing."""
    return Answer(Kind.ANSWER, text, data)


def done(text: str, kind: Kind = Kind.ANSWER, **data: Any) -> Answer:
    """An answer to a request that acted; in a dry run, what it would do."""
    return Answer(kind, text, data, changed=True)


def drafted(text: str, **data: Any) -> Answer:
    return Answer(Kind.DRAFT, text, data)


def started(session: AgentSession, text: str) -> Answer:
    chat = session.params.get("chat")
    data = {"session": str(session.public_id), **({"chat": chat} if chat else {})}
    return Answer(Kind.SESSION, text, data, session)


def lines(head: str, rows: Sequence[str]) -> str:
    """A heading and one line for each row."""
    return "\n".join([head, *(f"- {row}" for row in rows)])


def listing(head: str, rows: Sequence[tuple[str, Any]], key: str, *, empty: str, **data: Any) -> Answer:
    """A list of rows, each given as its line and its data."""
    text = lines(head, [line for line, _ in rows]) if rows else empty
    return message(text, **data, **{key: [row for _, row in rows]})


# --- Rows by id ---


Row = TypeVar("Row", bound=models.Model)
MIN_ID_CHARS: Final = 6
_LONGEST: Final = 32
_HEX: Final = re.compile(rf"[0-9a-f]{{{MIN_ID_CHARS},{_LONGEST}}}", re.ASCII)


def id_range(text: str) -> tuple[UUID, UUID] | None:
    """The lowest and the highest id that begin with this text; six digits at least."""
    digits = text.replace("-", "").lower()
    if not _HEX.fullmatch(digits):
        return None
    return UUID(digits.ljust(_LONGEST, "0")), UUID(digits.ljust(_LONGEST, "f"))


def rows_by_id(rows: models.QuerySet[Row], text: str) -> list[Row]:
    """The rows with this id, or whose id begins with it."""
    ids = id_range(text)
    return list(rows.filter(public_id__range=ids)[:3]) if ids else []


def short_id(row: Any) -> str:
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
MAX_ROWS: Final = 50
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
# A word before a name that says what it is the name of.
_KIND_BEFORE: Final = re.compile(rf"\b({'|'.join(KINDS)}|schedule) $", re.IGNORECASE)
# Names only behind such a word.
_PRONOUNS: Final = frozenset({"it", "this", "that", "them", "all", "everything"})

RowOfKind = tuple[str, Any]


@dataclass(frozen=True)
class Names:
    """For each name in a text, in order, the rows that have it; `masked` is the text with `<name>` in their place."""

    found: tuple[tuple[RowOfKind, ...], ...] = ()
    masked: str = ""

    @property
    def is_ambiguous(self) -> bool:
        return any(len(rows) > 1 for rows in self.found)

    def of(self, *kinds: str) -> list[Any]:
        """The rows of these kinds, once each."""
        return list(dict.fromkeys(row for rows in self.found for kind, row in rows if kind in kinds))


def rows_named_in(text: str, owner: User, kinds: Iterable[str] = KINDS) -> list[RowOfKind]:
    """The owner's rows whose name or id is part of a text: one query for each kind."""
    named = Q(request__icontains=F("name")) | Q(public_id__in=_UUID.findall(text))
    return [
        (kind, row)
        for kind in kinds
        for row in _own(kind, owner)
        .alias(request=Value(text))
        .filter(named)
        .order_by(Length("name").desc(), "pk")[:MAX_ROWS]
    ]


def names_in(text: str, rows: Iterable[RowOfKind]) -> Names:
    """Find the names and ids of rows in a text; parts of a longer name are not names."""
    known: dict[str, list[RowOfKind]] = {}
    for kind, row in rows:
        for name in (row.name.lower(), str(row.public_id)):
            known.setdefault(name, []).append((kind, row))
    found: list[tuple[RowOfKind, ...]] = []

    def mask(match: re.Match[str]) -> str:
        before = _KIND_BEFORE.search(text, 0, match.start())
        named = known.get(match[1].lower(), [])
        if not named or (match[1].lower() in _PRONOUNS and not before):
            return match[0]
        kind = before[1].lower().replace("schedule", "trigger") if before else ""
        found.append(tuple([pair for pair in named if pair[0] == kind] or named))
        return "<name>"

    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    pattern = rf"{QUOTE}(?<![\w-])({names})(?![\w-]){QUOTE}"
    masked = re.sub(pattern, mask, text, flags=re.IGNORECASE) if known else text
    return Names(tuple(found), masked)


def rows_of(kind: str, owner: User) -> list[Any]:
    """A person's rows of a kind, to choose from."""
    return list(_own(kind, owner).order_by("name", "pk")[:MAX_ROWS])


def kind_of(row: Any) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(row, model))


def _own(kind: str, owner: User) -> models.QuerySet[Any]:
    if kind == "skill":
        return PromptSkill.objects.filter(enabled=True)
    rows: models.QuerySet[Any] = models.QuerySet(KINDS[kind]).filter(owner=owner)
    return rows if kind == "agent" else rows.filter(deleted_at__isnull=True)


# --- A request that matches a phrase of a fast path ---


_NO_NAMES: Final = Names()


@dataclass(frozen=True)
class Match:
    """`action` is the one that was asked for where a path has several; `words` are those of the request."""

    action: str = ""
    words: str = ""
    ids: tuple[str, ...] = ()
    names: Names = _NO_NAMES
    when: When | None = None
