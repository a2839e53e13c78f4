"""How values look to people: money, times, bars, and text whose invisible characters are made visible. Pure."""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import ndiff
from typing import Any, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.enums import (
    ApprovalStatus,
    HaltState,
    Level,
    Outcome,
    ProposalStatus,
    QuestionStatus,
    Status,
    TerminalReason,
)
from audit import receipts

usd = receipts.usd

_PLAIN: Final = frozenset("\n\t ")
# Characters that show nothing, or move what is shown, although Unicode calls them letters, marks or symbols.
_BLANK: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
_SELECTORS: Final = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F))
_UNITS: Final = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))
_AMOUNT: Final = re.compile(r"\b(\d+(?:\.\d+)?) USD\b")
# Values of enums inside a sentence of the record; names of calls and tools stay as they are.
_VALUE: Final = re.compile(
    rf"\b({'|'.join(sorted(value for enum in (TerminalReason, Outcome, HaltState) for value in enum.values))})\b"
)
_ERROR_TYPE: Final = re.compile(r"^[A-Z]\w+: (?=\S)")
# Values of enums that say little to people who have not read them.
_WORDS: Final = {
    "agent_shutdown": "ended by the agent",
    "approval_waiting": "waits for approval",
    "autonomous_executor": "work of a run",
    "external_halt": "stopped by a person",
    "no_match": "no trigger fits",
    "organisation": "whole installation",
    "warn": "warning",
}
SHORT_ID: Final = 8
WARN_PERCENT: Final = 80
FULL_PERCENT: Final = 100


def visible(text: str) -> str:
    """The text with every character that cannot be seen, or that turns the reading direction, spelled out."""
    return "".join(f"⟨U+{ord(char):04X}⟩" if _is_unseen(char) else char for char in text)


def _is_unseen(char: str) -> bool:
    if char in _PLAIN:
        return False
    return (
        char in _BLANK
        or unicodedata.category(char) in _UNSEEN
        or any(low <= ord(char) <= high for low, high in _SELECTORS)
    )


def pretty(value: Any) -> str:
    """JSON for reading: one key a line, sorted, with nothing hidden in it."""
    return visible(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))


def told(sentence: str) -> str:
    """A sentence of the record with its amounts and words in the form that every page shows."""
    return _VALUE.sub(lambda found: words(found[1]), _AMOUNT.sub(lambda found: usd(Decimal(found[1])), sentence))


def words(value: object) -> str:
    """An enum's value as people write it: budget_exceeded → budget exceeded."""
    return _WORDS.get(str(value), str(value).replace("_", " "))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with a sign that it is not all of it."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def short_id(row: Any) -> str:
    return str(row.public_id)[:SHORT_ID]


def plain_error(text: str) -> str:
    """What went wrong without the name that the program has for it."""
    return told(_ERROR_TYPE.sub("", text))


def moment(at: datetime | None, *, empty: str = "—") -> str:
    return empty if at is None else f"{at:%d %b %Y %H:%M:%S}"


def span(length: timedelta) -> str:
    """A length of time in its largest unit."""
    length = abs(length)
    for unit, word in _UNITS:
        if length >= unit:
            return counted(length // unit, word)
    return counted(int(length.total_seconds()), "second")


def ago(at: datetime | None, now: datetime, *, empty: str = "never") -> str:
    if at is None:
        return empty
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


@dataclass(frozen=True)
class Bar:
    """How much of a cap is used: whole percent, at most 100, and how grave that is."""

    percent: int
    grave: str

    @classmethod
    def of(cls, spent: Decimal, cap: Decimal | None) -> "Bar | None":
        if cap is None:
            return None
        share = FULL_PERCENT if cap == 0 else int(spent * 100 / cap)
        grave = "full" if share >= FULL_PERCENT else "warn" if share >= WARN_PERCENT else "fine"
        return cls(min(share, FULL_PERCENT), grave)


def session_bar(session: Any) -> Bar | None:
    """Both ledgers stand under the cap; the bar shows the fuller one, open calls counted. What no model was asked for
    has a cap of nothing, which it cannot reach: no bar.
    """
    if not session.max_cost_usd:
        return None
    charged, booked = session.cost_total_usd + session.cost_reserved_usd, session.cost_actual_usd
    return Bar.of(max(charged, booked), session.max_cost_usd)


def meter_bar(meter: Any) -> Bar | None:
    return Bar.of(max(meter.charged_usd + meter.open_usd, meter.actual_usd), meter.cap_usd)


@dataclass(frozen=True)
class Line:
    """One line of a difference: `kind` is same, old or new."""

    kind: str
    text: str


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Line]:
    """What changed between two sets of arguments, line by line."""
    kinds = {" ": "same", "-": "old", "+": "new"}
    lines = ndiff(pretty(before).splitlines(), pretty(after).splitlines())
    return [Line(kinds[line[0]], line[2:]) for line in lines if line[0] in kinds]


# --- Filters that several lists share. Each has declared choices, so that none reads a table to find them ---


class AbsentFilter(admin.SimpleListFilter):
    """Rows whose column is empty, unless others are asked for: what was put away is not in the way."""

    column = ""
    empty = ""
    filled = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("filled", self.filled), ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        chosen = self.value()
        for lookup, title in [(None, self.empty), *self.lookup_choices]:
            params = {self.parameter_name: lookup} if lookup else {}
            link = changelist.get_query_string(params, [] if lookup else [self.parameter_name])
            yield {"selected": chosen == lookup, "query_string": link, "display": title}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "all":
            return queryset
        return queryset.filter(**{f"{self.column}__isnull": self.value() != "filled"})


class WordedFilter(admin.ChoicesFieldListFilter):
    """The declared choices of a column, in the words that its list shows."""

    def choices(self, changelist: Any) -> Any:
        named = {str(label): words(value).capitalize() for value, label in self.field.flatchoices}
        for choice in super().choices(changelist):
            yield {**choice, "display": named.get(str(choice["display"]), choice["display"])}


class DeletedFilter(AbsentFilter):
    title = "use"
    parameter_name = "use"
    column = "deleted_at"
    empty = "In use"
    filled = "Deleted"


class DismissedFilter(AbsentFilter):
    title = "board"
    parameter_name = "board"
    column = "dismissed_at"
    empty = "On the board"
    filled = "Dismissed"


class ReadFilter(admin.SimpleListFilter):
    title = "read"
    parameter_name = "read"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("no", "Unread"), ("yes", "Read")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(read_at__isnull=self.value() == "no")


class WhoseFilter(admin.SimpleListFilter):
    """One's own rows, unless everybody's are asked for."""

    title = "whose"
    parameter_name = "whose"

    @classmethod
    def is_everybody(cls, request: HttpRequest) -> bool:
        return request.GET.get(cls.parameter_name) == "everybody"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("everybody", "Everybody's")]

    def choices(self, changelist: Any) -> Any:
        mine, everybody = super().choices(changelist)
        yield from ({**mine, "display": "Mine"}, everybody)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() == "everybody" else queryset.filter(owner=request.user)


# Which colour goes with which word, for chips and labels. Colour never says anything that the word does not.


STATUS_LOOKS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warn",
    Status.COMPLETED: "good",
    Status.HALTED: "warn",
    Status.FAILED: "bad",
}
# unfold's own words for the same, in lists
STATUS_LABELS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warning",
    Status.COMPLETED: "success",
    Status.HALTED: "warning",
    Status.FAILED: "danger",
}
LEVEL_LOOKS: Final[dict[str, str]] = {Level.CONTROLLED: "info", Level.RESTRICTED: "warn", Level.PRIVILEGED: "bad"}
RISK_LOOKS: Final[dict[str, str]] = {"low": "good", "medium": "warn", "high": "bad"}
LEVEL_LABELS: Final[dict[str, str]] = {
    Level.CONTROLLED: "info",
    Level.RESTRICTED: "warning",
    Level.PRIVILEGED: "danger",
}
RISK_LABELS: Final[dict[str, str]] = {"low": "success", "medium": "warning", "high": "danger"}
APPROVAL_LABELS: Final[dict[str, str]] = {
    ApprovalStatus.PENDING: "warning",
    ApprovalStatus.APPROVED: "success",
    ApprovalStatus.REJECTED: "danger",
}
QUESTION_LABELS: Final[dict[str, str]] = {QuestionStatus.PENDING: "warning", QuestionStatus.ANSWERED: "success"}
PROPOSAL_LABELS: Final[dict[str, str]] = {
    ProposalStatus.PROPOSED: "warning",
    ProposalStatus.ACCEPTED: "success",
    ProposalStatus.REJECTED: "danger",
}
MEMORY_LABELS: Final[dict[str, str]] = {"proposed": "warning", "kept": "success"}
OUTCOME_LABELS: Final[dict[str, str]] = {
    Outcome.STARTED: "info",
    Outcome.SUCCESS: "success",
    Outcome.UNKNOWN: "danger",
    Outcome.APPROVAL_PENDING: "warning",
    Outcome.WORKER_LOST: "warning",
    Outcome.DENIED: "danger",
    Outcome.ERROR: "danger",
    Outcome.GATEWAY_ERROR: "danger",
    Outcome.STORAGE_ERROR: "danger",
    Outcome.TIMEOUT: "danger",
}
SEVERITY_LABELS: Final[dict[str, str]] = {"info": "info", "warn": "warning", "critical": "danger"}
