"""Figures that only grow, counted from audit events: ended runs and settled calls.

What was archived is counted in rows of its own, so that a figure stays the same when its events are dropped.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from django.db.models import Count, F, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from agents.models import ArchivedTotal
from audit.kinds import TERMINAL_KINDS, TOOL_CALL
from audit.models import AuditEvent
from audit.seals import Range


class Figure(NamedTuple):
    """The rows of a figure, and the columns that are its labels."""

    rows: Callable[[], QuerySet[Any]]
    labels: tuple[str, ...]


def _ended_runs() -> QuerySet[Any]:
    rows = AuditEvent.objects.of_kind(*sorted(TERMINAL_KINDS))
    # Older events have none.
    result = Coalesce(KeyTextTransform("result", "details"), Value("unknown"), output_field=TextField())
    return rows.annotate(reason=KeyTextTransform("reason", "details"), result=result)


def _recorded_calls() -> QuerySet[Any]:
    named = {"intent": KeyTextTransform("tool", "details"), "outcome": KeyTextTransform("outcome", "details")}
    return AuditEvent.objects.of_kind(TOOL_CALL).annotate(**named)


FIGURES: Final[Mapping[str, Figure]] = MappingProxyType(
    {
        "runs": Figure(_ended_runs, ("kind", "reason", "result")),
        "calls": Figure(_recorded_calls, ("intent", "outcome")),
    }
)


def note_dropped(ranges: list[Range]) -> None:
    """Count the events of these ranges, which are about to be dropped in the same transaction."""
    where = Q(chain__in=[one.chain for one in ranges if not one.is_system])
    for one in ranges:
        if one.is_system:
            where |= Q(chain=one.chain, seq__range=(one.first_seq, one.last_seq))
    for name, figure in FIGURES.items():
        rows = figure.rows().filter(where).order_by().values(*figure.labels).annotate(number=Count("id"))
        for row in rows:
            labels = json.dumps([str(row[label]) for label in figure.labels])
            ArchivedTotal.objects.get_or_create(figure=name, labels=labels)
            ArchivedTotal.objects.filter(figure=name, labels=labels).update(number=F("number") + row["number"])


def archived_totals(name: str) -> dict[tuple[str, ...], float]:
    """Return how many events of a figure were archived, by its labels."""
    rows = ArchivedTotal.objects.filter(figure=name).values_list("labels", "number")
    return {tuple(json.loads(labels)): float(number) for labels, number in rows}
