"""How values look on the pages: money, times, bars, badges, filters, and invisible characters spelled out."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import ndiff
from typing import Any, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display

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
# Values of enums inside a sentence of the audit log; names of calls and tools stay as they are.
_VALUE: Final = re.compile(
    rf"\b({'|'.join(sorted(value for enum in (TerminalReason, Outcome, HaltState) for value in enum.values))})\b"
)
_ERROR_TYPE: Final = re.compile(r"^[A-Z]\w+: (?=\S)")
# Values of enums that need other words on the pages.
_WORDS: Final = {
    "agent_shutdown": "ended by the agent",
    "approval_waiting": "waiting for approval",
    "autonomous_executor": "run",
    "external_halt": "stopped by a person",
    "no_match": "no matching trigger",
    "organisation": "whole installation",
    "session": "run",
    "warn": "warning",
}
SHORT_ID: Final = 8
WARN_PERCENT: Final = 80
FULL_PERCENT: Final = 100


def visible(text: str) -> str:
    """The text with every character that is invisible or changes the reading direction spelled out."""
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
    """JSON for reading: one key a line, sorted, invisible characters spelled out."""
    return visible(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))


def plain_sentence(sentence: str) -> str:
    """A sentence of the audit log with amounts and enum values in the form that every page shows."""
    return _VALUE.sub(lambda found: words(found[1]), _AMOUNT.sub(lambda found: usd(Decimal(found[1])), sentence))


def words(value: object) -> str:
    """An enum's value as people write it: budget_exceeded becomes "budget exceeded"."""
    return _WORDS.get(str(value), str(value).replace("_", " "))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with an ellipsis if it was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def short_id(row: Any) -> str:
    return str(row.public_id)[:SHORT_ID]


def plain_error(text: str) -> str:
    """An error without the name of its exception class."""
    return plain_sentence(_ERROR_TYPE.sub("", text))


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
    """How much of a cap is used, in whole percent up to 100; `level` is fine, warn or full."""

    percent: int
    level: str

    @classmethod
    def of(cls, spent: Decimal, cap: Decimal | None) -> "Bar | None":
        if cap is None:
            return None
        share = FULL_PERCENT if cap == 0 else int(spent * 100 / cap)
        level = "full" if share >= FULL_PERCENT else "warn" if share >= WARN_PERCENT else "fine"
        return cls(min(share, FULL_PERCENT), level)


def session_bar(session: Any) -> Bar | None:
    """The larger of reserved plus approved cost and reported cost, against the cap. No bar without a cap, or for a cap
    of zero: a run that calls no model cannot reach it.
    """
    if not session.max_cost_usd:
        return None
    approved = session.cost_total_usd + session.cost_reserved_usd
    return Bar.of(max(approved, session.cost_actual_usd), session.max_cost_usd)


def meter_bar(meter: Any) -> Bar | None:
    return Bar.of(max(meter.charged_usd + meter.open_usd, meter.actual_usd), meter.cap_usd)


@dataclass(frozen=True)
class Line:
    """One line of a diff: `kind` is same, old or new."""

    kind: str
    text: str


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Line]:
    """The diff of two sets of arguments, line by line."""
    kinds = {" ": "same", "-": "old", "+": "new"}
    lines = ndiff(pretty(before).splitlines(), pretty(after).splitlines())
    return [Line(kinds[line[0]], line[2:]) for line in lines if line[0] in kinds]


# --- Columns of lists ---


def column(
    field: str,
    show: Callable[[Any], Any] | None = None,
    *,
    title: str = "",
    label: Mapping[str, str] | bool | None = None,
) -> Any:
    """A method for `list_display` that shows a field of the row; `label` is unfold's colour for each value."""

    @display(description=title or field.replace("_", " "), label=label)
    def method(self: Any, row: Any) -> Any:
        value = getattr(row, field)
        if show is None:
            return value
        return (value, show(value)) if label else show(value)

    return method


# --- Filters of lists. Each has declared choices, so that none reads a table to find them ---


class AbsentFilter(admin.SimpleListFilter):
    """Hides rows whose column is filled unless they are asked for."""

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
    """The declared choices of a column, in the words of the list."""

    def choices(self, changelist: Any) -> Any:
        named = {str(label): words(value).capitalize() for value, label in self.field.flatchoices}
        for choice in super().choices(changelist):
            yield {**choice, "display": named.get(str(choice["display"]), choice["display"])}


class DeletedFilter(AbsentFilter):
    title = "status"
    parameter_name = "use"
    column = "deleted_at"
    empty = "In use"
    filled = "Deleted"


class DismissedFilter(AbsentFilter):
    title = "status"
    parameter_name = "board"
    column = "dismissed_at"
    empty = "Open"
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
    """The user's own rows unless everybody's are asked for."""

    title = "owner"
    parameter_name = "whose"

    @classmethod
    def is_everybody(cls, request: HttpRequest) -> bool:
        return request.GET.get(cls.parameter_name) == "everybody"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("everybody", "Everybody's")]

    def choices(self, changelist: Any) -> Any:
        mine, everybody = super().choices(changelist)
        yield {**mine, "display": "Mine"}
        yield everybody

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() == "everybody" else queryset.filter(owner=request.user)


# --- Colours of chips and labels. A colour never says anything that the word does not ---


STATUS_COLORS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warn",
    Status.COMPLETED: "good",
    Status.HALTED: "warn",
    Status.FAILED: "bad",
}
LEVEL_COLORS: Final[dict[str, str]] = {Level.CONTROLLED: "info", Level.RESTRICTED: "warn", Level.PRIVILEGED: "bad"}
RISK_COLORS: Final[dict[str, str]] = {"low": "good", "medium": "warn", "high": "bad"}
_UNFOLD: Final = {"info": "info", "good": "success", "warn": "warning", "bad": "danger"}


def unfold_labels(colors: Mapping[str, str]) -> dict[str, str]:
    """The same colours by the names that unfold's labels in lists have."""
    return {value: _UNFOLD[color] for value, color in colors.items()}


STATUS_LABELS: Final = unfold_labels(STATUS_COLORS)
LEVEL_LABELS: Final = unfold_labels(LEVEL_COLORS)
RISK_LABELS: Final = unfold_labels(RISK_COLORS)
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
