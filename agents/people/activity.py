"""Events for those who watch: written with what they tell of, both or neither. The newest are kept."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F, Max, OuterRef, Q, QuerySet

from agents.conf import events_kept
from agents.enums import EventKind
from agents.models import Agent, AgentEvent, AgentSession
from audit.redaction import redact_data

logger = logging.getLogger(__name__)


TEXT_CHARS: Final = 500
TRIMMED_AT_ONCE: Final = 5_000
AGENTS_AT_ONCE: Final = 100
MOST_BATCHES: Final = 50


def event_emit(
    kind: EventKind, *, now: datetime, session: AgentSession | None = None, agent: Agent | None = None, **data: Any
) -> None:
    """Told by a session, or by an agent outside of any. A failure to tell is logged and stops nothing."""
    agent_id = agent.pk if agent else session.agent_id if session else None
    owner_id = session.owner_id if session else agent.owner_id if agent else None
    if owner_id is None:
        raise ValueError("An event is about a session or an agent.")
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
    except Exception:  # whatever it is, those who watch do not stop those who act
        logger.exception("event %s could not be written", kind)


def _short(value: Any) -> Any:
    return value[:TEXT_CHARS] if isinstance(value, str) else value


def events_trim() -> int:
    """Removes all but the newest of each agent, and of all work without an agent. What it does not get to, is first the
    next time; however many agents there are, the number of statements is bounded."""
    removed = 0
    crowded = _crowded(events_kept())
    for _ in range(MOST_BATCHES):
        too_many = Q(*crowded[:AGENTS_AT_ONCE], _connector=Q.OR)
        if not too_many:
            break
        rows = AgentEvent.objects.filter(too_many).order_by("id")
        gone = list(rows.values_list("id", flat=True)[:TRIMMED_AT_ONCE])
        removed += AgentEvent.objects.filter(id__in=gone).delete()[0]
        if len(gone) < TRIMMED_AT_ONCE:
            crowded = crowded[AGENTS_AT_ONCE:]
    return removed


def _crowded(kept: int) -> list[Q]:
    """Of each agent that has too many events, those that are too old; the agent with the oldest comes first."""
    mine, nobodys = AgentEvent.objects.filter(agent=OuterRef("pk")), AgentEvent.objects.filter(agent__isnull=True)
    agents = Agent.objects.annotate(end=_oldest_kept(mine, kept), first=mine.order_by("id").values("id")[:1])
    ends = agents.filter(first__lt=F("end")).order_by("first").values_list("pk", "end")
    found = [Q(agent=pk, id__lt=end) for pk, end in ends]
    return [Q(agent__isnull=True, id__lt=end) for end in _oldest_kept(nobodys, kept)] + found


def _oldest_kept(rows: QuerySet[AgentEvent], kept: int) -> QuerySet[AgentEvent, int]:
    return rows.order_by("-id").values_list("id", flat=True)[kept - 1 : kept]


# What an event says to people, in one sentence. Made of what it holds, which may be of any shape: it never fails.


CHARS: Final = 300
MINUTE, HOUR = 60, 3_600
Data = Mapping[str, Any]


def event_sentence(kind: str, data: Data) -> str:
    tell = _SENTENCES.get(kind)
    said = " ".join((tell(data) if tell else kind).split())
    return said if len(said) <= CHARS else f"{said[: CHARS - 1].rstrip()}…"


def seconds_words(seconds: object) -> str:
    """A length of time, truncated: 90 is 1 min."""
    if not isinstance(seconds, int | float):
        return "a while"
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    return f"{int(seconds) // MINUTE} min" if seconds < HOUR else f"{int(seconds) // HOUR} h"


def _started(data: Data) -> str:
    fields, alerts = _names(data.get("hot_state")), _names(data.get("alerts"))
    seen = [f"{len(fields)} field{'' if len(fields) == 1 else 's'}"] if fields else []
    seen += [f"alerts {', '.join(alerts)}"] if alerts else []
    return f"Turn {_of(data, 'turn')} began{': it sees ' + ' and '.join(seen) if seen else ''}."


def _completed(data: Data) -> str:
    ends = {
        "sleep": f"sleeps for {seconds_words(data.get('sleep_seconds'))}",
        "shutdown": "ends its loop",
        "continue": "goes on",
    }
    said = ends.get(str(data.get("yield") or ""), "goes on")
    did = f" after {', '.join(actions)}" if (actions := _names(data.get("actions"))) else ""
    return f"Turn {_of(data, 'turn')} is over{did}: the agent {said}{_because(data, 'reason')}"


def _skipped(data: Data) -> str:
    causes = {"unchanged": "nothing has changed", "immaterial": "the small model sees nothing in what has changed"}
    cause = str(data.get("cause", ""))
    return f"Turn {_of(data, 'turn')} was skipped: {causes.get(cause, cause or 'the gate stayed shut')}."


def _guardrail(data: Data) -> str:
    numbers = ", ".join(f"{name} {value}" for name, value in data.items() if name != "guardrail" and value is not None)
    return f"The guardrail {_of(data, 'guardrail')} stepped in{f' ({numbers})' if numbers else ''}."


def _sensor_error(data: Data) -> str:
    times = data.get("failures")
    often = f", {times} times in a row" if isinstance(times, int) and times > 1 else ""
    return f"The sensor {_of(data, 'sensor')} failed{often}{_because(data, 'error')}"


def _alert(data: Data) -> str:
    source = f" from {data['source']}" if data.get("source") else ""
    woken = ", and woke the agent" if data.get("woken") else ""
    return f"The alert {_of(data, 'name')} came{source}{woken}{_because(data, 'text')}"


def _decided(data: Data) -> str:
    decisions = {
        "edited": "was approved with changes",
        "expired": "was not decided on in time",
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
    EventKind.SENSOR_UPDATED: lambda data: f"The sensor {_of(data, 'sensor')} wrote {_of(data, 'field')}.",
    EventKind.SENSOR_ERROR: _sensor_error,
    EventKind.NOTIFICATION_PUSHED: _alert,
    EventKind.APPROVAL_REQUESTED: lambda data: f"{_of(data, 'action')} waits for a person's approval.",
    EventKind.APPROVAL_RESOLVED: lambda data: f"{_of(data, 'action')} {_decided(data)}.",
    EventKind.ERROR: _error,
}


def _of(data: Data, name: str) -> str:
    return str(data.get(name) or "?")


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | dict) else []


def _because(data: Data, name: str) -> str:
    said = str(data.get(name) or "").strip().rstrip(".")
    return f": {said}." if said else "."


# --- Events for those who watch, in the order of their ids, none left out ---
#
# On PostgreSQL an id is taken before its row can be seen: a transaction that took a smaller one may commit later, and
# who remembers only the largest id that he has seen would never hear of it. So events are handed out up to a horizon,
# behind which no row can appear any more. Whoever inserts an event holds a lock on the table from before the id is
# taken until its row can be seen, and the database tells who does: when all who held it after the newest id was read
# have let go of it, everything up to that id is there, or never will be. SQLite writes one transaction after the
# other.


PATIENCE_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 0.5
LOOK_AGAIN_SECONDS: Final = 0.01
_WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = %s::regclass AND mode = 'RowExclusiveLock' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""


class Horizon:
    """How far events can be handed out. One for each process; looks may come from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = 0
        self._ahead = 0  # the newest id when the present wait began
        self._open: frozenset[str] = frozenset()  # who could still write an id up to it
        self._since = 0.0
        self._given_up: frozenset[str] = frozenset()

    def look(self) -> int:
        """The id up to which everything is there."""
        with self._lock:
            newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
            if connection.vendor != "postgresql" or newest < self._reached:  # the second: another, older database
                self._reached = newest
            if newest > self._reached:
                self._move(newest)
            return self._reached

    def wait(self) -> int:
        """The same, for who asks once: what is being written at this moment is waited for, but not for long."""
        over_at = time.monotonic() + WAIT_SECONDS
        newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
        while (reached := self.look()) < newest and time.monotonic() < over_at:
            time.sleep(LOOK_AGAIN_SECONDS)
        return reached

    def _move(self, newest: int) -> None:
        writing = _writers()
        self._given_up &= writing
        self._open &= writing
        if self._open and time.monotonic() - self._since > PATIENCE_SECONDS:
            logger.warning("events up to %s are handed out, although %s may write more", self._ahead, set(self._open))
            self._given_up |= self._open
            self._open = frozenset()
        if not self._open:
            self._reached = max(self._reached, self._ahead)
            self._ahead, self._since = newest, time.monotonic()
            self._open = _writers() - self._given_up  # asked after the newest id was read
            if not self._open:
                self._reached = newest


def _writers() -> frozenset[str]:
    """The transactions of others that have written events, or begin to."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS, [AgentEvent._meta.db_table])
        return frozenset(row[0] for row in cursor.fetchall())


horizon: Final = Horizon()


def events_between(after: int, until: int, *, owner_ids: Collection[int]) -> QuerySet[AgentEvent]:
    """Events of some people behind one id and up to another, in order."""
    rows = AgentEvent.objects.filter(owner_id__in=owner_ids, id__gt=after, id__lte=until)
    return rows.select_related("agent", "session").order_by("id")
