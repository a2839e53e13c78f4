"""How values look on the pages: money, times, bars, badges, columns, filters, and the filters of templates.

Template filters return plain text, which the template escapes.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from difflib import unified_diff
from functools import cache
from ipaddress import ip_address
from typing import Any, ClassVar, Final

from django import template
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.auth.models import User
from django.db.models import Case, DateTimeField, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.template.defaultfilters import stringfilter
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from agents.conf import clock
from agents.enums import FindingState, HaltState, Level, Mode, Outcome, Phase, RunResult, Status, TerminalReason
from agents.models import AgentSession, Budget, Pause
from agents.policy.transitions import TERMINAL
from agents.sessions.approvals import are_identical
from agents.sessions.control_room import Meter, sessions_unfinished
from agents.sessions.pauses import pause_message
from agents.sessions.reads import SEVERITIES, asked_by, newest, progress_of, purposes
from agents.text.shown import Field, field_lines, fields, shown, visible
from audit import receipts

register = template.Library()
register.filter(shown)


@register.filter
def takes_passkeys(request: HttpRequest) -> bool:
    """Whether browsers offer passkeys at the address of a request: they do at host names, and at no IP address."""
    host, _ = split_domain_port(request.get_host())
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


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
    "rejected": "denied",
    "session": "run",
    "warn": "warning",
}
_RULED: Final = {"allow": "allowed", "ask": "asked about", "deny": "denied"}
_PHASES: Final = [phase for phase in Phase.values if phase != Phase.TURN]
SHORT_ID: Final = 8
SECOND_MS: Final = 1_000
MINUTE: Final = timedelta(minutes=1)
SMALLEST_USD: Final = Decimal("0.0001")
CENT_USD: Final = Decimal("0.01")
WARN_PERCENT: Final = 80
FULL_PERCENT: Final = 100
MOST_CHOICES: Final = 100
MOST_COMPARED_LINES: Final = 2_000
_NAMES: Final = {User: "username"}  # what the rows of a filter are sorted by, where that is not their name
# A button and a link of a row. The button sends the form of the list to the address of its act.
_ICON: Final = '<span class="material-symbols-outlined md-18" aria-hidden="true">{2}</span>'
ROW_BUTTON: Final = (
    '<button class="lq-icon" type="submit" name="confirmed" value="1" formaction="{0}" title="{1}" aria-label="{1}">'
    f"{_ICON}</button>"
)
# An empty cell of a list; phones leave it out.
NOTHING: Final = format_html('<span class="lq-none">{}</span>', "—")
ROW_LINK: Final = f'<a class="lq-icon" href="{{0}}" title="{{1}}" aria-label="{{1}}">{_ICON}</a>'


@register.filter
def pretty(value: Any) -> str:
    """JSON for reading: one key a line, sorted, invisible characters spelled out."""
    return visible(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))


def plain_sentence(sentence: str) -> str:
    """A sentence of the audit log with amounts and enum values in the form that every page shows."""
    return _VALUE.sub(lambda found: words(found[1]), _AMOUNT.sub(lambda found: usd(Decimal(found[1])), sentence))


@register.filter
def words(value: object) -> str:
    """An enum's value as people write it: budget_exceeded becomes "budget exceeded"."""
    return _WORDS.get(str(value), str(value).replace("_", " "))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with an ellipsis if it was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


@register.filter
def short_id(row: Any) -> str:
    return str(row.public_id)[:SHORT_ID]


def plain_error(text: str) -> str:
    """An error without the name of its exception class."""
    return plain_sentence(_ERROR_TYPE.sub("", text))


def moment(at: datetime | None, *, empty: str = "—") -> str:
    return empty if at is None else f"{at:%d %b %Y %H:%M:%S}"


def when(at: datetime | None, *, empty: str = NOTHING) -> str:
    """A time in a list, short: the year only if it is another one. The exact time is the tooltip."""
    if at is None:
        return empty
    short = f"{at:%d %b %H:%M}" if at.year == clock().year else f"{at:%d %b %Y %H:%M}"
    return format_html('<span class="lq-when" title="{} UTC">{}</span>', moment(at), short)


def span(length: timedelta) -> str:
    """A length of time in its largest unit."""
    length = abs(length)
    for unit, word in _UNITS:
        if length >= unit:
            return counted(length // unit, word)
    return counted(int(length.total_seconds()), "second")


def short_span(length: timedelta) -> str:
    """A length of time in its two largest units, short enough for a column: 2m 05s."""
    seconds = max(int(length.total_seconds()), 0)
    for size, inner, (big, small) in ((86_400, 3_600, "dh"), (3_600, 60, "hm"), (60, 1, "ms")):
        if seconds >= size:
            return f"{seconds // size}{big} {seconds % size // inner:02}{small}"
    return f"{seconds}s"


def ago(at: datetime | None, now: datetime, *, empty: str = "never") -> str:
    if at is None:
        return empty
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


@register.filter("ago")
def ago_now(at: datetime | None) -> str:
    return ago(at, clock())


@register.filter
def took(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < SECOND_MS else f"{milliseconds / SECOND_MS:.1f} s"


# --- Money: one figure for what was spent. Exact figures of both ledgers are in the cost details of a run ---


exact_usd = receipts.usd


def usd(amount: Decimal | None, *, empty: str = "—") -> str:
    """An amount with two places from $1, and up to four below."""
    if amount is None:
        return empty
    if 0 < amount < SMALLEST_USD:
        return f"<{exact_usd(SMALLEST_USD)}"
    return exact_usd(round(amount, 2 if amount >= 1 else 4))


def even_usd(amount: Decimal) -> str:
    """An amount in a column or beside others of its sum: always four places, so that they visibly add up."""
    return usd(amount) if amount < SMALLEST_USD else f"${amount:.4f}"


def in_cents(amount: Decimal) -> str:
    """An amount with two places from a cent, and up to four below."""
    return usd(amount if amount < CENT_USD else round(amount, 2))


@register.filter
def short_usd(amount: Decimal | None, empty: str = "—") -> str:
    """An amount in a list; the exact one is the tooltip."""
    if amount is None:
        return empty
    return format_html('<span title="{}">{}</span>', exact_usd(amount), even_usd(amount))


def _register_money(name: str, show: Callable[[Decimal | None], str]) -> None:
    """A filter for an amount, also as the audit log writes it; an unreadable one is shown as it is."""

    @register.filter(name)
    def text(amount: Decimal | str | None) -> str:
        try:
            return show(Decimal(amount) if isinstance(amount, str) else amount)
        except InvalidOperation:
            return str(amount)


_register_money("usd", usd)
register.filter("even_usd", even_usd)
_register_money("exact_usd", exact_usd)


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


# Approved cost, reported cost, what is in flight, and the cap.
COST_FIELDS: Final[Mapping[type, tuple[str, str, str, str]]] = {
    AgentSession: ("cost_total_usd", "cost_actual_usd", "cost_reserved_usd", "max_cost_usd"),
    Budget: ("charged_usd", "actual_usd", "reserved_usd", "cap_usd"),
    Meter: ("charged_usd", "actual_usd", "open_usd", "cap_usd"),
}


@register.inclusion_tag("admin/parts/cost.html", name="cost")
def cost_context(row: Any) -> dict[str, Any]:
    """The cost of a run, a day's budget or a meter against its cap: the larger of approved and reported cost.

    A run with a cap of zero has no bar: it calls no model and cannot reach the cap.
    """
    approved, reported, in_flight, cap = (getattr(row, name) for name in COST_FIELDS[type(row)])
    bar = Bar.of(max(approved + in_flight, reported), cap)
    is_free = isinstance(row, AgentSession) and not cap
    return {"spent": max(approved, reported), "in_flight": in_flight, "cap": cap, "bar": None if is_free else bar}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The diff of two sets of arguments, line by line; each is same, old or new."""
    kinds = {" ": "same", "-": "old", "+": "new"}
    old, new = (shown(one).text.splitlines() for one in (before, after))
    head = 3  # lines that name the files and the place
    lines = list(unified_diff(old, new, n=len(old) + len(new), lineterm=""))[head:] or [f" {line}" for line in new]
    return [(kinds[line[0]], line[1:]) for line in lines]


# --- Arguments of a call, by field ---

# Spaces and tabs that a reader could overlook: at the ends of a line, and several in a row.
_SPACES: Final = re.compile(r"(\t+|^ +| +$|  +)")


@register.filter
def by_field(arguments: Mapping[str, Any]) -> SafeString:
    """Each argument by its name, all of it: texts by their lines, objects and lists as a tree that closes."""
    return _tree(fields(arguments))


def _tree(found: Iterable[Field]) -> SafeString:
    return format_html('<div class="lq-tree">{}</div>', format_html_join("", "{}", ((_node(one),) for one in found)))


def _node(field: Field) -> SafeString:
    given = field.name, _described(field)
    if field.kind in _TREES:
        head = '<details open data-kind="{}"><summary><b>{}</b> <i>{}</i></summary>{}</details>'
        return format_html(head, field.kind, *given, _tree(field.inner))
    body = '<div data-kind="{}" class="{}"><p><b>{}</b> <i>{}</i></p><div class="value">{}</div></div>'
    lines = field.text.split("\n")
    marked = format_html_join("", '<pre class="line">{}</pre>', ((_spaces_marked(line),) for line in lines))
    return format_html(body, field.kind, "lines" if len(lines) > 1 else "one", *given, marked)


def _spaces_marked(line: str) -> SafeString:
    parts = enumerate(_SPACES.split(line))
    return format_html_join("", "{}", ((format_html("<u>{}</u>", part) if n % 2 else part,) for n, part in parts))


_TREES: Final = {"object": "field", "list": "item"}


def _described(field: Field) -> str:
    """Return the kind of the value and its size, in words."""
    if field.kind in _TREES:
        return f"{field.kind}, {counted(len(field.inner), _TREES[field.kind])}"
    if field.kind != "text":
        return field.kind
    if not field.text:
        return "text, empty"
    lines = field.text.count("\n") + 1
    return f"text, {counted(lines, 'line')}" if lines > 1 else "text"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """The lines in which two sets of arguments differ, with the two beside each; None if there are too many lines."""
    old, new = (list(field_lines(fields(one))) for one in (before, after))
    if len(old) + len(new) > MOST_COMPARED_LINES:
        return None
    kinds = {" ": "same", "-": "old", "+": "new", "@": "gap"}
    head = 3  # lines that name the files and the first place
    lines = list(unified_diff(old, new, n=2, lineterm=""))[head:]
    return [(kinds[line[0]], "" if line[0] == "@" else line[1:]) for line in lines]


# --- Runs ---


@register.filter
def status_text(session: AgentSession) -> str:
    """The status in one phrase: why it ended, the halt, what it waits for, or the status itself."""
    if session.status in TERMINAL:
        return words(session.terminal_reason)
    if session.halt_state != HaltState.RUNNING:
        return words(session.halt_state)
    if session.paused_at is not None:
        return "pausing" if session.status == Status.RUNNING else "paused"
    return f"waiting for {session.waiting_on}" if session.waiting_on else session.status


@register.filter
def length_text(length: timedelta) -> str:
    """A length of time: milliseconds below a second, else its two largest units."""
    return short_span(length) if length >= MINUTE else took(int(length.total_seconds() * SECOND_MS))


@register.filter
def unlocalize_number(number: float) -> str:
    """A number for a style sheet, whatever the language."""
    return f"{number:.3f}"


@register.filter
def pause_text(pause: Pause) -> str:
    return pause_message(pause)


@register.filter
def run_text(session: AgentSession) -> str:
    """The result of a run that completed; else its status in one phrase."""
    return words(session.run_result) if _has_result(session) else status_text(session)


@register.filter
def run_color(session: AgentSession) -> str:
    """The colour of the chip: never that of success for a run that did not do all its work."""
    if _has_result(session):
        return RESULT_COLORS.get(session.run_result, "")
    return STATUS_COLORS.get(session.status, "")


def _has_result(session: AgentSession) -> bool:
    return session.status == Status.COMPLETED and bool(session.run_result)


@register.filter
def progress_text(session: AgentSession) -> str:
    """How far a run has read: section 7 of 23, about $0.12; empty if it is not reading in sections."""
    progress = progress_of(session)
    return "" if progress is None else f"{progress}, about {usd(progress.estimate_usd)}"


@register.filter
def elapsed(session: AgentSession) -> str:
    """How long a run has been under way; before its start, how long it has been queued."""
    now = clock()
    if session.started_at is None:
        return f"queued {span(now - session.created_at)}"
    return span((session.completed_at or now) - session.started_at)


@register.filter
def phase_percent(session: AgentSession) -> int | None:
    """How far a run is through its phases, in percent; None for loops and chats, which have no end to reach."""
    if session.current_phase not in _PHASES or session.mode != Mode.PHASED:
        return None
    progress = progress_of(session)
    part = (progress.section - 1) / progress.sections if progress else 0
    return int((_PHASES.index(session.current_phase) + part) * 100 / len(_PHASES))


def with_purposes(sessions: Iterable[Any]) -> list[Any]:
    """The sessions, each with its `purpose`, by a fixed number of statements."""
    rows = list(sessions)
    known = purposes(rows)
    for row in rows:
        row.purpose = known[row.pk]
    return rows


def run_link(session: Any, text: str, classes: str = "lq-link lq-wrap") -> str:
    """A link to a run; its whole id is the tooltip."""
    link = reverse("admin:agents_agentsession_change", args=[session.pk])
    return format_html('<a class="{}" href="{}" title="{}">{}</a>', classes, link, session.chain, visible(text))


# --- Columns of lists ---


def column(
    read: str | Callable[[Any], Any],
    show: Callable[[Any], Any] | None = None,
    *,
    title: str = "",
    label: Mapping[Any, str] | bool | None = None,
    sort: Any = None,
) -> Any:
    """A method for `list_display` that shows a field of the row, or the value of a function of the row.

    `label` is unfold's colour for each value; a function then returns the value and its text. `sort` is the field or
    the expression to sort by. A time is shown as in every list.
    """
    heading = title if callable(read) else title or read.replace("_", " ")

    @display(description=heading, label=label, ordering=sort)
    def method(self: Any, row: Any) -> Any:
        value = read(row) if callable(read) else getattr(row, read)
        if show is None:
            shown_value = when(value) if isinstance(value, datetime) else value
        else:
            shown_value = (value, show(value)) if label else show(value)
        return NOTHING if not label and shown_value in (None, "—") else shown_value

    return method


@cache
def time_column(field: "DateTimeField[Any, Any]") -> Callable[[Any], str]:
    """The column of a list for a field that holds a time."""

    def time_cell(row: Any) -> str:
        return when(getattr(row, field.name))

    time_cell.__name__ = field.name
    method: Callable[[Any], str] = display(time_cell, description=field.verbose_name, ordering=field.name)
    return method


def two_lines(first: object, second: object) -> str:
    return format_html('<span>{}<br><span class="lq-faint">{}</span></span>', first, second)


def with_tooltip(text: object) -> str:
    """A text that a list may cut, whole as its tooltip."""
    return NOTHING if text == "—" else format_html('<span title="{0}">{0}</span>', visible(str(text)))


# --- Filters of lists. Each has declared choices, so that none reads a table to find them ---


class OptionFilter(admin.SimpleListFilter):
    """Options with a title and a condition each. The first applies unless another is chosen.

    `is_indexed` off: no index serves the conditions, so all but the first are looked for in the newest rows only.
    """

    options: ClassVar[Mapping[str, tuple[str, Q]]] = {}
    is_indexed: ClassVar[bool] = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, title) for value, (title, _) in self.options.items()][1:]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        yield {**first, "display": next(iter(self.options.values()))[0]}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        if value not in self.options:
            value = ""
        found = queryset.filter(self.options[value][1])
        return found if self.is_indexed or not value else found.filter(newest(queryset.model))


class WhoseFilter(OptionFilter):
    """The user's own rows unless everybody's are asked for."""

    title = "owner"
    parameter_name = "whose"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {"": ("Mine", Q()), "everybody": ("Everybody's", Q())}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() == "everybody" else queryset.filter(owner=request.user)


# A further choice of a column: its value in the address, its words, and the rows that it stands for at a time.
UNFINISHED_RUNS: Final = "unfinished"
_FURTHER: Final[Mapping[Any, tuple[str, str, Callable[[datetime], QuerySet[Any]]]]] = {
    AgentSession._meta.get_field("run_result"): (
        UNFINISHED_RUNS,
        "Failed or partial, last 24 hours",
        sessions_unfinished,
    )
}


class WordedFilter(admin.ChoicesFieldListFilter):
    """The declared choices of a column, in the words of the list, and for some columns a further one."""

    def choices(self, changelist: Any) -> Any:
        named = {str(label): words(value).capitalize() for value, label in self.field.flatchoices}
        for choice in super().choices(changelist):
            yield {**choice, "display": named.get(str(choice["display"]), choice["display"])}
        if self.field in _FURTHER:
            value, title, _ = _FURTHER[self.field]
            query = changelist.get_query_string({self.lookup_kwarg: value}, [self.lookup_kwarg_isnull])
            yield {"selected": self._is_chosen(value), "query_string": query, "display": title}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        if self.field in _FURTHER:
            value, _, rows = _FURTHER[self.field]
            if self._is_chosen(value):
                return queryset.filter(pk__in=rows(clock()).values("pk"))
        return super().queryset(request, queryset)

    def _is_chosen(self, value: str) -> bool:
        return value in (self.lookup_val or ())


class NamedFilter(admin.RelatedFieldListFilter):
    """The rows of a related table by name, as many as a person can choose from; the others are found by search."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        model = field.related_model
        rows: QuerySet[Any] = QuerySet(model).order_by(_NAMES.get(model, "name"))[:MOST_CHOICES]
        return [(row.pk, visible(str(row))) for row in rows]


class PeriodFilter(admin.SimpleListFilter):
    """From one day to another, both included, in UTC; the last days are offered."""

    title = "date"
    parameter_name = "from"
    last_parameter = "to"
    template = "admin/parts/period_filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        if self.last_parameter in params:
            self.used_parameters[self.last_parameter] = params.pop(self.last_parameter)[-1]

    def expected_parameters(self) -> Any:
        return [self.parameter_name, self.last_parameter]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        today = clock().date()
        days = {0: "Today", 6: "Last 7 days", 29: "Last 30 days"}
        return [(str(today - timedelta(days=number)), label) for number, label in days.items()]

    def choices(self, changelist: Any) -> Any:
        given = self.expected_parameters()
        self.others = [(name, value) for name, value in changelist.params.items() if name not in {*given, "p"}]
        self.chosen = {name: self.used_parameters.get(name) or "" for name in given}
        is_any = not any(self.chosen.values())
        yield {"selected": is_any, "query_string": _query(changelist, {}, given), "display": "Any"}
        for value, label in self.lookup_choices:
            query = _query(changelist, {self.parameter_name: value}, given)
            selected = self.chosen == {self.parameter_name: value, self.last_parameter: ""}
            yield {"selected": selected, "query_string": query, "display": label}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, last = (self._day(name) for name in self.expected_parameters())
        if first:
            queryset = queryset.filter(created_at__gte=first)
        return queryset.filter(created_at__lt=last + timedelta(days=1)) if last else queryset

    def _day(self, name: str) -> datetime | None:
        given = self.used_parameters.get(name)
        try:
            return datetime.combine(date.fromisoformat(given), time(), UTC) if given else None
        except ValueError as error:
            raise IncorrectLookupParameters from error


def _query(changelist: Any, new: Mapping[str, str], without: Iterable[str]) -> str:
    query: str = changelist.get_query_string(new, [name for name in without if name not in new])
    return query


class DeletedFilter(OptionFilter):
    title = "status"
    parameter_name = "use"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("In use", Q(deleted_at__isnull=True)),
        "filled": ("Deleted", Q(deleted_at__isnull=False)),
        "all": ("All", Q()),
    }


# --- Colours of chips and labels. A colour never says anything that the word does not ---


STATUS_COLORS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warn",
    Status.COMPLETED: "good",
    Status.HALTED: "warn",
    Status.FAILED: "bad",
}
RESULT_COLORS: Final[dict[str, str]] = {
    RunResult.OK: "good",
    RunResult.FINDINGS: "info",
    RunResult.PARTIAL: "warn",
    RunResult.FAILED: "bad",
}
LEVEL_COLORS: Final[dict[str, str]] = {Level.CONTROLLED: "info", Level.RESTRICTED: "warn", Level.PRIVILEGED: "bad"}
RISK_COLORS: Final[dict[str, str]] = {"low": "good", "medium": "warn", "high": "bad"}
SEVERITY_COLORS: Final[dict[str, str]] = {"info": "info", "warn": "warn", "critical": "bad"}
FINDING_COLORS: Final[dict[str, str]] = {
    FindingState.OPEN: "warn",
    FindingState.ACKNOWLEDGED: "info",
    FindingState.RESOLVED: "good",
}
# The most severe first.
SEVERITY_ORDER: Final = Case(
    *(When(severity=word, then=Value(place)) for place, word in enumerate(SEVERITIES)), default=Value(len(SEVERITIES))
)
_UNFOLD: Final = {"info": "info", "good": "success", "warn": "warning", "bad": "danger"}


def unfold_labels(colors: Mapping[str, str]) -> dict[str, str]:
    """The same colours by the names that unfold's labels in lists have."""
    return {value: _UNFOLD[color] for value, color in colors.items()}


STATUS_LABELS: Final = unfold_labels(STATUS_COLORS)
RESULT_LABELS: Final[dict[str, str]] = {"": "", RunResult.EMPTY.value: "", **unfold_labels(RESULT_COLORS)}
RUN_LABELS: Final = {"": "", **_UNFOLD}
LEVEL_LABELS: Final = unfold_labels(LEVEL_COLORS)
RISK_LABELS: Final = unfold_labels(RISK_COLORS)
SEVERITY_LABELS: Final = unfold_labels(SEVERITY_COLORS)
FINDING_LABELS: Final[dict[str, str]] = {
    FindingState.DISMISSED.value: "",
    FindingState.EXPIRED.value: "",
    **unfold_labels(FINDING_COLORS),
}
# What a person decides: approvals, questions, proposals and memories.
DECISION_LABELS: Final[dict[str, str]] = {
    **dict.fromkeys(("pending", "proposed"), "warning"),
    **dict.fromkeys(("approved", "answered", "accepted", "kept"), "success"),
    "rejected": "danger",
}
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

register.filter("visible", stringfilter(visible))
register.filter("are_identical", are_identical)
register.filter("ruled", lambda effect: _RULED[effect])
register.filter("plain_sentence", stringfilter(plain_sentence))
register.filter("plain_error", stringfilter(plain_error))
register.filter("asked_by", asked_by)
register.filter("reason_label", lambda reason: receipts.label_of("reason", reason))
register.filter("spent", lambda row: cost_context(row)["spent"])
register.filter("status_color", lambda status: STATUS_COLORS.get(status, ""))
register.filter("result_color", lambda result: RESULT_COLORS.get(result, ""))
register.filter("level_color", lambda level: LEVEL_COLORS.get(level, ""))
register.filter("risk_color", lambda risk: RISK_COLORS.get(risk, ""))
register.filter("finding_color", lambda state: FINDING_COLORS.get(state, ""))
register.filter("severity_color", lambda severity: SEVERITY_COLORS.get(severity, "info"))
