"""Alerts: what a loop must see at its next turn. They are pending until a turn that showed them is completed.

An alert that the agent wants to be woken for ends its sleep at once; any other waits for the next turn. When too many
are pending, further ones are dropped, and one alert above all others says how many.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Case, Value, When

from agents.enums import EventKind, Status
from agents.loop.reads import DROPPED, alerts_dropped
from agents.models import AgentSession, Alert
from agents.people.activity import event_emit
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_lock, session_wake, wakes_for
from agents.text.clean import json_safe
from audit.redaction import redact

NAME_CHARS: Final = 64
TEXT_CHARS: Final = 2_000
MOST_PENDING: Final = 500
MOST_SHOWN: Final = 100


@transaction.atomic
def alert_push(
    session: AgentSession, *, name: str, text: str, source_name: str, now: datetime, dedupe: str = ""
) -> Alert | None:
    """Add an alert; None when the run is over, too many are pending, or one with that `dedupe` exists."""
    row = session_lock(session.pk)
    if row.status in TERMINAL:
        return None
    alerts = Alert.objects.filter(session=row)
    if dedupe and alerts.filter(dedupe=dedupe).exists():
        return None
    if alerts.pending().count() >= MOST_PENDING:
        _drop(row, name, now)
        return None
    return _push(row, name=name, text=text, source_name=source_name, dedupe=dedupe, now=now)


def _push(row: AgentSession, *, name: str, text: str, source_name: str, dedupe: str, now: datetime) -> Alert:
    alert = Alert.objects.create(
        session=row,
        name=name[:NAME_CHARS],
        text=redact(json_safe(text))[:TEXT_CHARS],
        source_name=source_name[:NAME_CHARS],
        dedupe=dedupe,
        created_at=now,
    )
    event_emit(
        EventKind.NOTIFICATION_PUSHED,
        session=row,
        now=now,
        woken=_wake(row, alert.name, now),
        name=alert.name,
        source=alert.source_name,
        text=alert.text,
        alert=alert.pk,
    )
    return alert


def _drop(row: AgentSession, name: str, now: datetime) -> None:
    """Count a dropped alert, and keep one alert about all of them. It wakes the loop like any other."""
    row.metadata[DROPPED] = dropped = alerts_dropped(row) + 1
    row.save(update_fields=["metadata"])
    text = f"{dropped} alerts of this run were dropped because {MOST_PENDING} were pending. The last was {name}."
    pending = Alert.objects.pending().filter(session=row, name=DROPPED, source_name="")
    if not pending.update(text=redact(json_safe(text))[:TEXT_CHARS]):
        _push(row, name=DROPPED, text=text, source_name="", dedupe="", now=now)
    _wake(row, name, now)


def _wake(row: AgentSession, name: str, now: datetime) -> bool:
    """Wake a sleeping loop whose agent wants to be woken for this alert. The caller has locked its row."""
    return row.status == Status.SLEEPING and wakes_for(row, name) and session_wake(row.pk, now=now)


def alerts_pending(session: AgentSession) -> list[Alert]:
    """Return pending alerts, the oldest first, after the one about dropped alerts."""
    first = Case(When(name=DROPPED, source_name="", then=Value(0)), default=Value(1))
    return list(Alert.objects.pending().filter(session=session).order_by(first, "pk")[:MOST_SHOWN])


def alerts_clear(session: AgentSession, pks: Sequence[int], now: datetime) -> int:
    """Clear alerts after a completed turn that showed them."""
    return Alert.objects.pending().filter(session=session, pk__in=pks).update(cleared_at=now)
