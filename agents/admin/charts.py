"""Charts: figures by day as a chart, a table and CSV. The page Charts, and the small charts of other pages.

A chart is drawn by static/lqops/charts.js from JSON in the page; the table below it has the same figures.
"""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from agents.admin.base import ID_DIGITS, current_user, require_permission, site_page
from agents.admin.display import span, usd
from agents.conf import clock
from agents.enums import RunResult
from agents.models import Agent, Trigger
from agents.sessions.figures import (
    ALL,
    MONTH_DAYS,
    RANGES,
    Figures,
    Period,
    Subject,
    approval_waits_by_day,
    cost_per_finding_by_day,
    durations_by_day,
    outcomes_by_day,
    spend_by_day,
    wakes_by_day,
)
from agents.text.shown import visible

VIEW: Final = "agents.view_agentsession"
SMALL: Final = ("spend", "outcomes", "durations", "cost-per-finding")  # on the pages of agents and triggers
MOST_CHOICES: Final = 200
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # a cell that a spreadsheet would run
# Colours of room.css; all others take the next one of the palette.
COLORS: Final[Mapping[str, str]] = {
    RunResult.OK: "good-fill",
    RunResult.FINDINGS: "info-fill",
    RunResult.EMPTY: "rest-fill",
    RunResult.PARTIAL: "warn-fill",
    RunResult.FAILED: "bad-fill",
    "Other": "rest-fill",
    "Turns": "rest-fill",
}
PALETTE: Final = ("fill-1", "fill-2", "fill-3", "fill-4", "fill-5")


def seconds(length: float | None) -> str:
    """A length of time for reading; tenths below ten seconds."""
    if length is None:
        return "—"
    return f"{length:.1f} seconds" if length < 10 else span(timedelta(seconds=length))  # noqa: PLR2004


UNITS: Final[Mapping[str, Callable[[Any], str]]] = {
    "usd": usd,
    "count": lambda number: "—" if number is None else f"{number:,}",
    "seconds": seconds,
}


@dataclass(frozen=True)
class Kind:
    """A kind of chart: what it reads, and who may see it."""

    name: str
    title: str
    note: str
    unit: str
    read: Callable[[Period, Subject], Figures]
    permission: str = VIEW
    is_line: bool = False
    by_trigger: bool = True
    not_counted: tuple[str, ...] = ()


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            "spend",
            "Spend",
            "Spent per UTC day: the larger of approved and reported cost.",
            "usd",
            spend_by_day,
            "agents.view_budget",
        ),
        Kind("outcomes", "Outcomes", "Runs that ended, by result.", "count", outcomes_by_day),
        Kind(
            "durations",
            "Durations",
            "From the start of a run to its end, waits included. Half of the runs took at most p50.",
            "seconds",
            durations_by_day,
            is_line=True,
        ),
        Kind(
            "approvals",
            "Waiting for approval",
            "From the request until somebody approved or denied the call.",
            "seconds",
            approval_waits_by_day,
            "agents.view_approval",
            is_line=True,
        ),
        Kind(
            "wakes",
            "Wakes avoided",
            "Wakes of loops: turns, and those that the gate avoided. Not available by trigger.",
            "count",
            wakes_by_day,
            "agents.view_agent",
            by_trigger=False,
            not_counted=("Turns",),
        ),
        Kind(
            "cost-per-finding",
            "Cost per finding",
            "Cost of the runs that ended on a day, divided by their findings.",
            "usd",
            cost_per_finding_by_day,
            "agents.view_budget",
            is_line=True,
        ),
    )
}


def chart(kind: Kind, figures: Figures, *, key: str = "", query: str = "") -> dict[str, Any]:
    """Return the context of parts/chart.html. Names are shown with invisible characters spelled out."""
    show = UNITS[kind.unit]
    palette = iter(PALETTE)
    series = [
        {
            "name": visible(one.name),
            "values": [None if value is None else float(value) for value in one.values],
            "color": COLORS.get(one.name) or next(palette),
        }
        for one in figures.series
    ]
    rows = [
        (day, [show(one.values[place]) for one in figures.series])
        for place, day in reversed(list(enumerate(figures.days)))
    ]
    return {
        "kind": kind,
        "key": key or f"chart-{kind.name}",
        "is_empty": figures.is_empty,
        "data": {
            "type": "line" if kind.is_line else "bar",
            "unit": kind.unit,
            "days": [day.isoformat() for day in figures.days],
            "series": series,
        },
        "heads": [one["name"] for one in series],
        "rows": rows,
        "total": _total(kind, figures),
        "number": len(figures.days),
        "csv": f"{reverse('admin:charts_csv', args=[kind.name])}{f'?{query}' if query else ''}",
    }


def _total(kind: Kind, figures: Figures) -> str:
    """The sum of all values; measures have none."""
    if kind.is_line:
        return ""
    counted = [one for one in figures.series if one.name not in kind.not_counted]
    values = [value for one in counted for value in one.values if value is not None]
    return UNITS[kind.unit](sum(values, Decimal(0) if kind.unit == "usd" else 0))


def small_charts(by: User, subject: Subject, now: datetime) -> dict[str, Any]:
    """Return the context of parts/small_charts.html: 30 days of an agent or a trigger, and a link to all its charts."""
    period = Period.last_days(MONTH_DAYS, now)
    query = _query(MONTH_DAYS, subject)
    kinds = [KINDS[name] for name in SMALL if by.has_perm(KINDS[name].permission)]
    return {
        "small_charts": [chart(kind, kind.read(period, subject), query=query) for kind in kinds],
        "all_charts": f"{reverse('admin:charts')}?{query}" if by.has_perm(VIEW) else "",
    }


# --- The page ---


@dataclass(frozen=True)
class Choice:
    """Read the range and the filters of the address; anything that cannot be is left out."""

    days: int
    subject: Subject

    @classmethod
    def of(cls, request: HttpRequest) -> "Choice":
        days = request.GET.get("days", "")
        chosen = int(days) if days.isdecimal() and len(days) < ID_DIGITS else 0
        subject = Subject(_pk(request, "agent"), _pk(request, "trigger"))
        return cls(chosen if chosen in RANGES else MONTH_DAYS, subject)

    @property
    def query(self) -> str:
        return _query(self.days, self.subject)


def _pk(request: HttpRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    may_choose = current_user(request).has_perm(f"agents.view_{name}")
    return int(given) if may_choose and given.isdecimal() and len(given) < ID_DIGITS else None


def _query(days: int, subject: Subject) -> str:
    query = QueryDict(mutable=True)
    query["days"] = str(days)
    for name, pk in (("agent", subject.agent_id), ("trigger", subject.trigger_id)):
        if pk is not None:
            query[name] = str(pk)
    return query.urlencode()


@dataclass(frozen=True)
class Choices:
    """Rows to choose from. `has_others`: there are more, which have charts on their own pages."""

    rows: list[Any] = field(default_factory=list)
    has_others: bool = False


def _choices(rows: QuerySet[Any], chosen: int | None) -> Choices:
    """The first by name, with the one that is chosen."""
    named = rows.order_by("name", "pk").only("name")
    found = list(named[: MOST_CHOICES + 2])  # of two that are left out, one may be chosen
    offered = found[:MOST_CHOICES]
    if chosen is not None and all(row.pk != chosen for row in offered):
        offered += named.filter(pk=chosen)
    return Choices(offered, has_others=len(found) > len(offered))


@never_cache
def charts_page(request: HttpRequest) -> TemplateResponse:
    by = require_permission(request, VIEW)
    choice = Choice.of(request)
    period = Period.last_days(choice.days, clock())
    kinds = [kind for kind in KINDS.values() if by.has_perm(kind.permission)]
    if choice.subject.trigger_id is not None:
        kinds = [kind for kind in kinds if kind.by_trigger]
    return site_page(
        request,
        "admin/charts.html",
        "Charts",
        charts=[chart(kind, kind.read(period, choice.subject), query=choice.query) for kind in kinds],
        choice=choice,
        ranges=[(days, f"?{_query(days, choice.subject)}") for days in RANGES],
        agents=_choices(Agent.objects.all(), choice.subject.agent_id)
        if by.has_perm("agents.view_agent")
        else Choices(),
        triggers=_choices(Trigger.objects.filter(deleted_at__isnull=True), choice.subject.trigger_id)
        if by.has_perm("agents.view_trigger")
        else Choices(),
        everything=choice.subject == ALL,
    )


@never_cache
def charts_csv(request: HttpRequest, name: str) -> HttpResponse:
    """One chart as CSV: a line for each day, exact amounts in US dollars, lengths of time in seconds."""
    require_permission(request, VIEW)
    kind = KINDS.get(name)
    if kind is None:
        raise Http404(f"There is no chart {name}.")
    require_permission(request, kind.permission)
    choice = Choice.of(request)
    figures = kind.read(Period.last_days(choice.days, clock()), choice.subject)
    text = io.StringIO()
    lines = csv.writer(text)
    unit = {"usd": " (USD)", "seconds": " (seconds)"}.get(kind.unit, "")
    lines.writerow(["day", *(_cell(f"{visible(one.name)}{unit}") for one in figures.series)])
    for place, day in enumerate(figures.days):
        values = (one.values[place] for one in figures.series)
        lines.writerow([day.isoformat(), *("" if value is None else _number(value) for value in values)])
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="lqops-{kind.name}-{choice.days}-days.csv"'
    return response


def _number(value: Decimal | float) -> str:
    return f"{value:.6f}" if isinstance(value, Decimal) else str(value)


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
