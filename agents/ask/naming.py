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

from agents.ask.strategies import Strategy
from agents.models import Agent, AgentSession, Collection, Document, Playbook, PromptSkill, Trigger

# --- The answer to a request, and the context in which it was made ---


class Kind(StrEnum):
    """`answer`: complete. `session`: a run works on it."""

    ANSWER = "answer"
    SESSION = "session"


@dataclass(frozen=True)
class Wanted:
    """An action that somebody may want: what is needed to make a button for it. Nothing is done by it."""

    action: str
    target: str = ""  # the id of a row with its kind, such as agent:1f2e…
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """`path` is the fast path that answered; without one, `strategy` says how the request is handled.

    `wanted` are the actions to propose: an answer itself changes nothing.
    """

    kind: Kind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None
    strategy: Strategy | None = None
    path: str = ""
    wanted: tuple[Wanted, ...] = ()


@dataclass(frozen=True)
class AskContext:
    """Who sent the request, when, for which agent, and what it may cost.

    `running` is the message of the chat that is being answered.
    """

    user: User
    now: datetime
    text: str
    agent: Agent | None = None
    max_cost_usd: Decimal | None = None
    in_chat: bool = False
    running: AgentSession | None = None


def message(text: str, *wanted: Wanted, **data: Any) -> Answer:
    """An answer, with the actions that it proposes."""
    return Answer(Kind.ANSWER, text, data, wanted=wanted)


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


def rows_called(words: str, owner: User, kinds: Iterable[str]) -> list[Any]:
    """The person's rows of this name or id; if there is none, those whose name holds all of the words."""
    rows = [(kind, own_rows(kind, owner)) for kind in kinds]
    if not words:
        return []
    named = Q(name__iexact=words)
    if ids := id_range(words):
        named |= Q(public_id__range=ids)
    found = [row for _, own in rows for row in own.filter(named)[:MAX_ROWS]]
    if found:
        return found
    wanted = set(words.lower().split())
    holds = Q()
    for word in wanted:
        holds &= Q(name__icontains=word)
    near = [row for _, own in rows for row in own.filter(holds).order_by("name", "pk")[:MAX_ROWS]]
    return [row for row in near if wanted <= set(row.name.lower().split())]


def rows_mentioned(text: str, owner: User, kinds: Iterable[str]) -> list[Any]:
    """The person's rows whose whole name or id stands in a text; the part of a longer name is not a name."""
    named = Q(request__icontains=F("name")) | Q(public_id__in=_UUID.findall(text))
    rows = [
        row
        for kind in kinds
        for row in own_rows(kind, owner)
        .alias(request=Value(text))
        .filter(named)
        .order_by(Length("name").desc(), "pk")[:MAX_ROWS]
        if _stands_in(row, text)
    ]
    names = {row.name.lower() for row in rows}
    return [row for row in rows if not any(row.name.lower() in name != row.name.lower() for name in names)]


def _stands_in(row: Any, text: str) -> bool:
    name = re.compile(rf"(?<![\w-]){re.escape(row.name)}(?![\w-])", re.IGNORECASE)
    return str(row.public_id) in text.lower() or name.search(text) is not None


def rows_of(kind: str, owner: User) -> list[Any]:
    """A person's rows of a kind, to choose from."""
    return list(own_rows(kind, owner).order_by("name", "pk")[:MAX_ROWS])


def kind_of(row: Any) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(row, model))


def own_rows(kind: str, owner: User) -> models.QuerySet[Any]:
    if kind == "skill":
        return PromptSkill.objects.filter(enabled=True)
    rows: models.QuerySet[Any] = models.QuerySet(KINDS[kind]).filter(owner=owner)
    gone = "archived_at" if kind == "agent" else "deleted_at"
    return rows.filter(**{f"{gone}__isnull": True})


# --- A request that is one of the fast paths ---


@dataclass(frozen=True)
class Match:
    """`action` is the one that was asked for where a path has several; `words` are what stands behind it.

    `ids` are those among the words; `rows` the rows that the words name.
    """

    action: str = ""
    words: str = ""
    ids: tuple[str, ...] = ()
    rows: tuple[Any, ...] = ()

    def of(self, *kinds: str) -> list[Any]:
        return [row for row in self.rows if kind_of(row) in kinds]
