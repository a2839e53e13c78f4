"""Alerts: what a loop must see at its next turn. Kept until a turn that showed them has ended well.

An alert that the agent wants to be woken for ends its sleep at once; any other waits for the next turn. When too many
wait, further ones are dropped: one alert says so, above all others, and how many.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import Case, Value, When

from agents.enums import EventKind, Status
from agents.loop.reads import DROPPED, alerts_dropped
from agents.models import AgentSession, Alert
from agents.people.activity import event_emit
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_lock, session_wake, wakes_for
from agents.text.clean import storable
from audit.redaction import redact

NAME_CHARS: Final = 64
TEXT_CHARS: Final = 2_000
MOST_PENDING: Final = 500
MOST_SHOWN: Final = 100


@transaction.atomic
def alert_push(
    session: AgentSession, *, name: str, text: str, source_name: str, now: datetime, dedupe: str = ""
) -> Alert | None:
    """One alert for one happening: None when it was told before, when the run is over, or when too many wait."""
    row = session_lock(session.pk)
    if row.status in TERMINAL:
        return None
    told = Alert.objects.filter(session=row)
    if dedupe and told.filter(dedupe=dedupe).exists():
        return None
    if told.pending().count() >= MOST_PENDING:
        _drop(row, name, now)
        return None
    return _told(row, name=name, text=text, source_name=source_name, dedupe=dedupe, now=now)


def _told(row: AgentSession, *, name: str, text: str, source_name: str, dedupe: str, now: datetime) -> Alert:
    alert = Alert.objects.create(
        session=row,
        name=name[:NAME_CHARS],
        text=redact(storable(text))[:TEXT_CHARS],
        source_name=source_name[:NAME_CHARS],
        dedupe=dedupe,
        created_at=now,
    )
    woken = sleep_end(row, alert.name, now)
    told_of: dict[str, Any] = {"name": alert.name, "source": alert.source_name, "text": alert.text, "alert": alert.pk}
    event_emit(EventKind.NOTIFICATION_PUSHED, session=row, now=now, woken=woken, **told_of)
    return alert


def _drop(row: AgentSession, name: str, now: datetime) -> None:
    """Counted, and told of once until that is seen. The loop is woken for it as for one that is kept."""
    row.metadata[DROPPED] = dropped = alerts_dropped(row) + 1
    row.save(update_fields=["metadata"])
    text = f"{dropped} alerts of this run were dropped, because {MOST_PENDING} waited to be seen. The last was {name}."
    waiting = Alert.objects.pending().filter(session=row, name=DROPPED, source_name="")
    if not waiting.update(text=redact(storable(text))[:TEXT_CHARS]):
        _told(row, name=DROPPED, text=text, source_name="", dedupe="", now=now)
    sleep_end(row, name, now)


def sleep_end(row: AgentSession, name: str, now: datetime) -> bool:
    """Wakes a loop whose agent wants to be woken for this. The caller holds its row."""
    return row.status == Status.SLEEPING and wakes_for(row, name) and session_wake(row.pk, now=now)


def alerts_pending(session: AgentSession) -> list[Alert]:
    """The oldest first, and above them the one that tells of those that were dropped."""
    first = Case(When(name=DROPPED, source_name="", then=Value(0)), default=Value(1))
    return list(Alert.objects.pending().filter(session=session).order_by(first, "pk")[:MOST_SHOWN])


def alerts_clear(session: AgentSession, pks: Sequence[int], now: datetime) -> int:
    """A turn that showed them has ended well."""
    return Alert.objects.pending().filter(session=session, pk__in=pks).update(cleared_at=now)
