"""The live feed: events of agents and sessions, their sentences, and reading them in order.

An event is written in the transaction of what it reports, so there is both or neither. Only the newest are kept.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from agents.enums import EventKind
from agents.models import Agent, AgentEvent, AgentSession
from audit.redaction import redact_data

logger = logging.getLogger(__name__)

# --- Writing and trimming ---

TEXT_CHARS: Final = 500
ROWS_PER_BATCH: Final = 5_000
MAX_BATCHES: Final = 10


def event_emit(
    kind: EventKind, *, now: datetime, session: AgentSession | None = None, agent: Agent | None = None, **data: Any
) -> None:
    """Write an event of a session, or of an agent outside a session. A failure is logged and stops nothing."""
    agent_id = agent.pk if agent else session.agent_id if session else None
    owner_id = session.owner_id if session else agent.owner_id if agent else None
    if owner_id is None:
        raise ValueError("An event needs a session or an agent.")
    try:
        with transaction.atomic():
            AgentEvent.objects.create(
                agent_id=agent_id,
                session=session,
                owner_id=owner_id,
                kind=kind,
                data=redact_data({name: _short(value) for name, value in data.items()}),
                created_at=now,
            )
    except Exception:  # the feed never stops the work
        logger.exception("event %s could not be written", kind)


def _short(value: Any) -> Any:
    return value[:TEXT_CHARS] if isinstance(value, str) else value


def events_trim() -> int:
    """Delete all but the newest events of each agent, and of the work without an agent; the oldest first.

    The number of statements is bounded, and only agents with too many events are sorted; the rest follows next time.
    """
    by_agent = AgentEvent.objects.order_by().values("agent_id").annotate(number=Count("id"))
    crowded = by_agent.filter(number__gt=settings.LQOPS_EVENTS_KEPT).values("agent_id")
    events = AgentEvent.objects.filter(Q(agent_id__in=crowded) | Q(agent_id__isnull=True))  # NULL is in no list
    newest_first = Window(RowNumber(), partition_by=F("agent_id"), order_by=F("id").desc())
    excess = events.annotate(place=newest_first).filter(place__gt=settings.LQOPS_EVENTS_KEPT).order_by("id")
    removed = 0
    for _ in range(MAX_BATCHES):
        ids = list(excess.values_list("id", flat=True)[:ROWS_PER_BATCH])
        removed += AgentEvent.objects.filter(id__in=ids).delete()[0]
        if len(ids) < ROWS_PER_BATCH:
            break
    return removed


# --- Sentences. The data of an event may have any shape: a sentence never fails ---

SENTENCE_CHARS: Final = 300
MINUTE: Final = 60
HOUR: Final = 3_600
Data = Mapping[str, Any]


def event_sentence(kind: str, data: Data) -> str:
    """Describe an event in one sentence."""
    sentence_for = _SENTENCES.get(kind)
    text = " ".join((sentence_for(data) if sentence_for else kind).split())
    return text if len(text) <= SENTENCE_CHARS else f"{text[: SENTENCE_CHARS - 1].rstrip()}…"


def duration_text(seconds: object) -> str:
    """Format a duration, truncated: 90 is 1 min."""
    if not isinstance(seconds, int | float):
        return "a while"
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    return f"{int(seconds) // MINUTE} min" if seconds < HOUR else f"{int(seconds) // HOUR} h"


def _started(data: Data) -> str:
    fields = _names(data.get("hot_state"))
    alerts = _names(data.get("alerts"))
    inputs = [f"{len(fields)} field{'' if len(fields) == 1 else 's'}"] if fields else []
    inputs += [f"alerts {', '.join(alerts)}"] if alerts else []
    return f"Turn {_of(data, 'turn')} started{' with ' + ' and '.join(inputs) if inputs else ''}."


def _completed(data: Data) -> str:
    endings = {
        "sleep": f"sleeps for {duration_text(data.get('sleep_seconds'))}",
        "shutdown": "ends its loop",
        "continue": "continues",
    }
    ending = endings.get(str(data.get("yield") or ""), "continues")
    after = f" after {', '.join(actions)}" if (actions := _names(data.get("actions"))) else ""
    return f"Turn {_of(data, 'turn')} completed{after}: the agent {ending}{_because(data, 'reason')}"


def _skipped(data: Data) -> str:
    causes = {"unchanged": "nothing has changed", "immaterial": "the small model finds the changes immaterial"}
    cause = str(data.get("cause", ""))
    return f"Turn {_of(data, 'turn')} skipped: {causes.get(cause, cause or 'the gate stayed closed')}."


def _guardrail(data: Data) -> str:
    numbers = ", ".join(f"{name} {value}" for name, value in data.items() if name != "guardrail" and value is not None)
    return f"The guardrail {_of(data, 'guardrail')} triggered{f' ({numbers})' if numbers else ''}."


def _sensor_error(data: Data) -> str:
    times = data.get("failures")
    count = f", {times} times in a row" if isinstance(times, int) and times > 1 else ""
    return f"The sensor {_of(data, 'sensor')} failed{count}{_because(data, 'error')}"


def _alert(data: Data) -> str:
    source = f" from {data['source']}" if data.get("source") else ""
    woken = " and woke the agent" if data.get("woken") else ""
    return f"The alert {_of(data, 'name')} arrived{source}{woken}{_because(data, 'text')}"


def _decided(data: Data) -> str:
    decisions = {
        "edited": "was approved with changes",
        "expired": "expired without a decision",
        "rejected": "was denied",
    }
    return decisions.get(decision := _of(data, "decision"), f"was {decision}")


def _error(data: Data) -> str:
    return f"{'Warning' if data.get('recoverable') else 'The run failed'}{_because(data, 'message')}"


_SENTENCES: Final[Mapping[str, Callable[[Data], str]]] = {
    EventKind.TURN_STARTED: _started,
    EventKind.TURN_COMPLETED: _completed,
    EventKind.PRECHECK_SKIPPED: _skipped,
    EventKind.GUARDRAIL_TRIGGERED: _guardrail,
    EventKind.SENSOR_UPDATED: lambda data: f"The sensor {_of(data, 'sensor')} updated {_of(data, 'field')}.",
    EventKind.SENSOR_ERROR: _sensor_error,
    EventKind.NOTIFICATION_PUSHED: _alert,
    EventKind.APPROVAL_REQUESTED: lambda data: f"{_of(data, 'action')} needs approval.",
    EventKind.APPROVAL_RESOLVED: lambda data: f"{_of(data, 'action')} {_decided(data)}.",
    EventKind.ERROR: _error,
}


def _of(data: Data, name: str) -> str:
    return str(data.get(name) or "?")


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | dict) else []


def _because(data: Data, name: str) -> str:
    reason = str(data.get(name) or "").strip().rstrip(".")
    return f": {reason}." if reason else "."


# --- Reading in order of ids, without gaps ---
#
# On PostgreSQL an id is taken before its row is visible: a transaction that took a smaller id may commit later, and a
# reader that remembers only the largest id would miss its row. So events are read up to a horizon, below which no row
# can appear any more. A writer holds a lock on the table from before the id is taken until the row is visible, and
# pg_locks lists the writers. When all writers that held the lock after the newest id was read have released it, every
# row up to that id is visible or will never exist. SQLite writes one transaction after the other.

MAX_WAIT_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.01
_WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = %s::regclass AND mode = 'RowExclusiveLock' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""


class Horizon:
    """The id up to which events can be read. One per process; used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = 0
        self._ahead = 0  # the newest id when the present wait began
        self._open: frozenset[str] = frozenset()  # writers that could still write an id up to it
        self._since = 0.0
        self._given_up: frozenset[str] = frozenset()

    def look(self) -> int:
        """Return the id up to which every event is visible."""
        with self._lock:
            newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
            if connection.vendor != "postgresql" or newest < self._reached:  # the latter: a restored database
                self._reached = newest
            if newest > self._reached:
                self._move(newest)
            return self._reached

    def wait(self) -> int:
        """The same for a single read: wait shortly for events that are being written."""
        ends_at = time.monotonic() + WAIT_SECONDS
        newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
        while (reached := self.look()) < newest and time.monotonic() < ends_at:
            time.sleep(POLL_SECONDS)
        return reached

    def _move(self, newest: int) -> None:
        writing = _writers()
        self._given_up &= writing
        self._open &= writing
        if self._open and time.monotonic() - self._since > MAX_WAIT_SECONDS:
            logger.warning("events up to %s are read although %s may write more", self._ahead, set(self._open))
            self._given_up |= self._open
            self._open = frozenset()
        if not self._open:
            self._reached = max(self._reached, self._ahead)
            self._ahead = newest
            self._since = time.monotonic()
            self._open = _writers() - self._given_up  # read after the newest id
            if not self._open:
                self._reached = newest


def _writers() -> frozenset[str]:
    """Return the transactions of others that have written events or are about to."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS, [AgentEvent._meta.db_table])
        return frozenset(row[0] for row in cursor.fetchall())


horizon: Final = Horizon()


def events_between(after: int, until: int, *, owner_ids: Collection[int]) -> QuerySet[AgentEvent]:
    """Return events of some owners after one id and up to another, in order."""
    rows = AgentEvent.objects.filter(owner_id__in=owner_ids, id__gt=after, id__lte=until)
    return rows.select_related("agent", "session").order_by("id")
