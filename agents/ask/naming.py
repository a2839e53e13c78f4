"""The rows that a request names: by id, by the beginning of an id, or by name. Reads only.

However many rows a person has, one query per kind finds those whose names are in the text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from agents.ask.language import PATTERNS, Pattern, Request, Strategy, When, Word, when_of, words
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
    key_id: str = ""
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
    return MIN_ID_CHARS <= len(digits) <= _LONGEST and _HEX.fullmatch(digits) is not None


def _hyphenated(digits: str) -> str:
    parts = [digits[start:end] for start, end in zip((0, *_HYPHENS), (*_HYPHENS, _LONGEST), strict=True)]
    return "-".join(part for part in parts if part)


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


# --- A request that matches the phrases of a fast path, with the rows that it names and how often ---


_NO_NAMES: Final = Names()


@dataclass(frozen=True)
class Match:
    """`action` is the one that was asked for where a path has several."""

    request: Request
    action: str = ""
    names: Names = _NO_NAMES
    when: When | None = None


def _by_path() -> Mapping[str, dict[str, Pattern]]:
    found: dict[str, dict[str, Pattern]] = {}
    for key, pattern in PATTERNS.items():
        path, _, action = key.partition(":")
        found.setdefault(path, {})[action] = pattern
    return found


_PATTERNS: Final = _by_path()


def match_path(path: str, request: Request, user: User | None, kinds: tuple[str, ...], *, timed: bool) -> Match | None:
    """Match a request with the phrases of a path. Names are those of the user's rows of these kinds."""
    when = when_of(request.text) if timed else None
    if when is not None:
        request = request.without(when.places(request))
    elif timed:
        return None
    for action, pattern in _PATTERNS[path].items():
        if pattern.matches(request):
            return Match(request, action, when=when)
        if kinds and user is not None and pattern.may_match(request):
            names = names_in(request, user, kinds)
            if pattern.matches(names.as_slots(request)):
                return Match(request, action, names, when)
    return None
