"""What comes back to whoever asked, and who that is."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from agents.ask.language import Request, Strategy
from agents.models import Agent, AgentSession, Collection, Document, Playbook, PromptSkill, Trigger


class Kind(StrEnum):
    """`answer`: all is said. `session`: a session works on it. `draft`: something was made that is not in use yet."""

    ANSWER = "answer"
    SESSION = "session"
    DRAFT = "draft"


@dataclass(frozen=True)
class Answer:
    """`path` names the fast path that answered; without one, `strategy` is what was decided on.

    `changed`: a lever was pulled; asked again, it would be pulled again.
    """

    kind: Kind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None
    strategy: Strategy | None = None
    path: str = ""
    changed: bool = False


@dataclass(frozen=True)
class Asker:
    """The person who asks, when, in which words, for which agent, by which API key, if by one, and what it may cost.

    In a chat, `at_work` is the message that is being worked on. `dry`: nothing is to be done, only said what would be.
    """

    by: User
    now: datetime
    text: str
    agent: Agent | None = None
    key_id: str = ""
    max_cost_usd: Decimal | None = None
    in_chat: bool = False
    at_work: AgentSession | None = None
    dry: bool = False


def told(text: str, **data: Any) -> Answer:
    return Answer(Kind.ANSWER, text, data)


def done(text: str, **data: Any) -> Answer:
    return Answer(Kind.ANSWER, text, data, changed=True)


def would(text: str, kind: Kind = Kind.ANSWER, **data: Any) -> Answer:
    """What would be done, said instead of doing it."""
    return Answer(kind, text, data, changed=True)


def at_work(session: AgentSession, text: str) -> Answer:
    chat = session.params.get("chat")
    data = {"session": str(session.public_id), **({"chat": chat} if chat else {})}
    return Answer(Kind.SESSION, text, data, session)


def drafted(text: str, **data: Any) -> Answer:
    return Answer(Kind.DRAFT, text, data)


def lines(head: str, rows: Sequence[str], *, empty: str = "") -> str:
    """A heading and a line for each; or the word for nothing."""
    return "\n".join([head, *(f"- {row}" for row in rows)]) if rows or not empty else empty


def heading(count: int, noun: str, more: str = "", *, most: int) -> str:
    kept = f"; at most {most} are shown" if count > most else ""
    return f"{count} {noun}{'' if count == 1 else 's'}{more}{kept}:"


# --- The days that people name, in UTC. Pure ---


Span = tuple[datetime, datetime]

# What is said, as grammars know it, and the days that are meant; the first that is said counts.
_SAID: Final = {
    "today": "today",
    "today's": "today",
    "yesterday": "yesterday",
    "yesterday's": "yesterday",
    "last-week": "last week",
    "last-month": "last month",
    "week": "this week",
    "month": "this month",
}


def days_of(now: datetime) -> dict[str, Span]:
    """From when to when each of these reaches. Weeks begin on Monday, but for the last seven days."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    monday, first = today - today.weekday() * day, today.replace(day=1)
    return {
        "today": (today, today + day),
        "yesterday": (today - day, today),
        "last 7 days": (today - 6 * day, today + day),
        "this week": (monday, today + day),
        "last week": (monday - 7 * day, monday),
        "this month": (first, today + day),
        "last month": ((first - day).replace(day=1), first),
    }


def named_days(said: Set[str]) -> str:
    """Which of them a request names; empty if none."""
    return next((name for word, name in _SAID.items() if word in said), "")


def dated(name: str, span: Span) -> str:
    """A name for days, and which ones these are: last week (2 to 8 March)."""
    first, last = span[0], span[1] - timedelta(days=1)
    one = "%-d" if first.month == last.month else "%-d %B"
    return name if first == last else f"{name} ({first:{one}} to {last:%-d %B})"


# --- Rows by what a person says of their id: all of it, or enough of its beginning ---


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


# Which rows of a person a request names: by name, letter case aside, or by public id. Reads, and writes nothing.
#
# However many rows there are, one statement for each kind asks for those whose names stand in the text.


KINDS: Final[dict[str, type[models.Model]]] = {
    "agent": Agent,
    "trigger": Trigger,
    "playbook": Playbook,
    "skill": PromptSkill,
    "collection": Collection,
    "document": Document,
}
# Words that stand beside a name and say what it is the name of.
CUES: Final = {
    "agent": "agent", "trigger": "trigger", "schedule": "trigger", "watch": "trigger", "playbook": "playbook",
    "skill": "skill", "collection": "collection", "folder": "collection", "document": "document", "file": "document",
}  # fmt: skip
READ: Final = frozenset({"collection", "document"})
_TO_READ: Final = frozenset({"on", "over", "in", "through", "for"})
_TO_GO_BY: Final = frozenset({"with", "using", "by", "against"})
# Names that stand for something else unless they are marked as names.
_PRONOUNS: Final = frozenset(
    [
        "it",
        "this",
        "that",
        "them",
        "these",
        "those",
        "one",
        "all",
        "everything",
        "me",
        "you",
        "he",
        "she",
        "they",
        "now",
        "again",
    ]
)
MOST_WORDS: Final = 12
MOST_ROWS: Final = 50


@dataclass(frozen=True)
class Named:
    """One name in the request: the words that it takes up, and the rows that bear it, by kind."""

    places: frozenset[int]
    rows: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Names:
    """All names in a request. `of` gives the rows of some kinds, once each."""

    found: tuple[Named, ...]

    @property
    def places(self) -> frozenset[int]:
        return frozenset().union(*(named.places for named in self.found))

    @property
    def is_ambiguous(self) -> bool:
        return any(len(named.rows) > 1 for named in self.found)

    def of(self, *kinds: str) -> list[Any]:
        rows = [row for named in self.found for kind, row in named.rows if kind in kinds]
        return list(dict.fromkeys(rows))

    @property
    def candidates(self) -> list[tuple[str, Any]]:
        return [pair for named in self.found if len(named.rows) > 1 for pair in named.rows]


def names_in(request: Request, owner: User, kinds: Iterable[str]) -> Names:
    """The longest names first; what is part of a longer name is not looked at again."""
    spans = _spans(request)
    borne: dict[str, list[tuple[str, Any]]] = {}
    for kind in kinds:
        for row in _rows(KINDS[kind], owner, set(spans.values())):
            borne.setdefault(row.name.casefold(), []).append((kind, row))
            borne.setdefault(str(row.public_id), []).append((kind, row))
    taken: set[int] = set()
    found: list[Named] = []
    for (start, end), name in sorted(spans.items(), key=lambda span: (span[0][0] - span[0][1], span[0][0])):
        places = frozenset(range(start, end))
        if name.casefold() in _PRONOUNS and not _is_marked(request, start, end):
            continue
        if (rows := borne.get(name.casefold())) and not places & taken:
            taken |= places
            found.append(Named(places, _meant(request, start, end, rows)))
    return Names(tuple(sorted(found, key=lambda named: min(named.places))))


def _is_marked(request: Request, start: int, end: int) -> bool:
    """In quotes, or beside a word that says what it is the name of."""
    beside = [*request.words[max(start - 1, 0) : start], *request.words[end : end + 1]]
    return request.words[start].quoted or any(word.said in CUES for word in beside)


def rows_of(kind: str, owner: User) -> list[Any]:
    """A person's rows of a kind, for a list to choose from."""
    return list(_own(KINDS[kind], owner).order_by("name", "pk")[:MOST_ROWS])


def _spans(request: Request) -> dict[tuple[int, int], str]:
    """Every run of words as it is written in the text, by the places of its first and last word."""
    words = request.words
    return {
        (start, end): " ".join(request.text[words[start].start : words[end - 1].end].split())
        for start in range(len(words))
        for end in range(start + 1, min(start + MOST_WORDS, len(words)) + 1)
    }


def _own(model: type[models.Model], owner: User) -> models.QuerySet[Any]:
    if model is PromptSkill:
        return PromptSkill.objects.filter(enabled=True)
    mine: models.QuerySet[Any] = models.QuerySet(model).filter(owner=owner)
    if any(field.name == "deleted_at" for field in model._meta.fields):
        mine = mine.filter(deleted_at__isnull=True)
    return mine


def _rows(model: type[models.Model], owner: User, said: set[str]) -> list[Any]:
    ids = [public_id for name in said if (public_id := _uuid(name))]
    lowered = {name.lower() for name in said}
    named = _own(model, owner).annotate(lower_name=Lower("name"))
    fits = named.filter(Q(name__in=said) | Q(lower_name__in=lowered) | Q(public_id__in=ids))
    return list(fits.order_by("pk")[:MOST_ROWS])


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _meant(request: Request, start: int, end: int, rows: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The rows that bear the name, without those that the words beside it rule out."""
    before = request.words[start - 1].said if start else ""
    after = request.words[end].said if end < len(request.words) else ""
    earlier = request.words[start - 2].said if start > 1 and before in {"the", "my"} else before
    cued = [CUES[word] for word in (before, after) if word in CUES]
    fitting = [pair for pair in rows if pair[0] in cued]
    if not cued and earlier in _TO_READ:
        fitting = [pair for pair in rows if pair[0] in READ]
    elif not cued and earlier in _TO_GO_BY:
        fitting = [pair for pair in rows if pair[0] not in READ]
    return tuple(fitting or rows)
