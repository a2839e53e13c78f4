"""Rows of sensors: kept in step with the definition, leased by one slice at a time, handed out by the ticker.

The fencing number rises with every lease and every change, and is part of the WHERE of every write of a slice: a slice
that lost its lease writes nothing. Locks are taken in this order: the agent, the loop's session, sensors by id, the
agent's sensor session. Readings and failures are written in agents/sensors/writes.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet

from agents.conf import lease_lifetime
from agents.database_clock import shared, time_to_claim
from agents.definitions.schema import AgentDefinition, SensorSpec, Signal
from agents.enums import HaltState, Mode, SensorKind, SensorState, Status
from agents.exceptions import LeaseLost, NotAllowed, SessionHalted
from agents.loop.pacing import next_day
from agents.loop.reads import loop_current
from agents.models import Agent, AgentSession, Installation, Sensor, agents_may_run
from agents.policy.transitions import TERMINAL
from agents.queue import Queue, TaskName, enqueue, queue_length
from agents.sessions.ending import session_rest
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from agents.text.clean import json_safe
from audit.receipts import label_of
from audit.redaction import redact

MOST_HELD: Final = 250  # sensors of one slice
MOST_SLICES: Final = 16
NAME_CHARS: Final = 64
PROBLEM_CHARS: Final = 500
PREVIEW_CHARS: Final = 500
QUOTED_CHARS: Final = 1_500
DAY: Final = "day"  # in the params of a sensor session: the UTC day that it is for
_NO_LEASE: Final[Mapping[str, Any]] = {"lease_owner": "", "lease_until": None, "fencing": F("fencing") + 1}


@dataclass(frozen=True)
class LeasedSensor:
    """A sensor that a slice has leased, with its row as it was at that moment."""

    row: Sensor
    spec: SensorSpec
    definition: AgentDefinition


@dataclass(frozen=True)
class LeaseState:
    """The leases of a slice: fencing numbers by sensor, and loop sessions by agent."""

    fencing: Mapping[int, int]
    loops: Mapping[int, int]

    def holds(self, held: LeasedSensor) -> bool:
        return self.fencing.get(held.row.pk) == held.row.fencing and held.row.agent_id in self.loops


@dataclass(frozen=True)
class FiredSignal:
    """A signal that fired on `items`, oldest first, and why. One `occurrence` alerts and spawns once."""

    signal: Signal
    reason: str
    occurrence: str
    items: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Reading:
    """The result of a look at a source: data, oldest first.

    `unchanged`: the source reports that nothing is new. `late`: no look, but scores of data handed in before.
    `problem` is new, `faults` of signals stand until they are judged again; `failing`: the last look failed.
    """

    held: LeasedSensor
    at: datetime
    items: tuple[Any, ...] = ()
    unchanged: bool = False
    late: bool = False
    cursor: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Any] = field(default_factory=dict)
    fired: tuple[FiredSignal, ...] = ()
    problem: str = ""
    faults: tuple[str, ...] = ()
    failing: bool = False
    notice: str = ""  # for the owner, once
    next_due_at: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """A look that failed. `failures` counts them in a row."""

    held: LeasedSensor
    at: datetime
    problem: str
    failures: int
    wait_seconds: float
    cursor: Mapping[str, Any] | None = None
    next_due_at: datetime | None = None


# --- State of signals ---


def is_cooling(signal: Signal, state: Mapping[str, Any], now: datetime) -> bool:
    """Tell whether the signal fired within its cooldown. A clock that was set back ends the cooldown."""
    fired_at = state.get("fired_at")
    if not fired_at or not signal.cooldown:
        return False
    return timedelta(0) <= now - datetime.fromisoformat(fired_at) < timedelta(seconds=signal.cooldown)


def suppress(state: dict[str, Any], number: int) -> None:
    """Count items that came during the cooldown."""
    state["suppressed"] = state.get("suppressed", 0) + number


# --- Text of readings ---


def safe_text(text: str) -> str:
    """Remove secrets and characters that a database cannot store."""
    return redact(str(json_safe(text)))


def line_of(item: Any) -> str:
    """Return a value as text; JSON on one line unless it is text already."""
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)


def preview(item: Any) -> str:
    """Return the beginning of a value as text that can be stored."""
    return safe_text(line_of(item)[: 2 * PREVIEW_CHARS])[:PREVIEW_CHARS]


def newest(items: Sequence[Any], most: int) -> list[Any]:
    """Return as many of the newest items as fit into so many characters, at least one; oldest first."""
    kept: list[Any] = []
    left = most
    for item in reversed(items):
        size = len(line_of(item))
        if kept and size >= left:
            break
        kept.append(item)
        left -= size + 1
    return kept[::-1]


def quote(items: Sequence[Any]) -> str:
    """Quote data that were scored together: as many of the newest as fit, and their number."""
    quotes = newest([preview(item) for item in items], QUOTED_CHARS)
    if len(items) == 1:
        return str(quotes[0])
    dropped = f", the newest {len(quotes)}" if len(quotes) < len(items) else ""
    return f"{len(items)} judged together{dropped}: {' | '.join(quotes)}"


# --- Rows of a definition ---


@transaction.atomic
def sensors_sync(agent: Agent, definition: AgentDefinition, now: datetime) -> None:
    """Create, change and delete rows to match the definition. Unchanged sensors keep their lease."""
    rows = {row.name: row for row in _locked(Sensor.objects.filter(agent=agent))}
    wanted = loop_current(agent.pk) is not None
    declared = _declared(definition)
    for name, (kind, config, problem) in declared.items():
        row = rows.get(name) or Sensor(agent=agent, name=name, wanted=wanted)
        if row.pk is None or (row.kind, row.config) != (kind, config) or row.state == SensorState.INVALID:
            _rewrite(row, kind, config, problem, now=now)
    Sensor.objects.filter(pk__in=[row.pk for name, row in rows.items() if name not in declared]).delete()


def _declared(definition: AgentDefinition) -> dict[str, tuple[SensorKind, dict[str, Any], str]]:
    """Return kind, configuration and problem of each sensor by name; no problem: it can run."""
    broken = {one.name[:NAME_CHARS]: (one.kind, dict[str, Any](), one.problem) for one in definition.broken_sensors}
    return broken | {spec.name: (spec.type, spec.model_dump(mode="json"), "") for spec in definition.sensors}


def _rewrite(row: Sensor, kind: SensorKind, config: dict[str, Any], problem: str, *, now: datetime) -> None:
    if row.kind != kind or row.config.get("source") != config.get("source"):
        row.cursor, row.value, row.read_at = {}, "", None  # they belong to another source
    row.kind, row.config, row.problem = kind, config, problem[:PROBLEM_CHARS]
    row.state = SensorState.INVALID if problem else SensorState.WAITING
    row.signals, row.failures, row.next_due_at = {}, 0, now
    row.lease_owner, row.lease_until, row.fencing = "", None, row.fencing + 1
    row.save()


@transaction.atomic
def sensors_start(agent: Agent, now: datetime) -> None:
    """Start an agent's sensors; the ticker hands them out. The caller has locked the agent.

    Sensors that were set aside are tried again, unless their own definition is broken.
    """
    rows = Sensor.objects.filter(agent=agent)
    retry = Q(state__in=[SensorState.UNRESOLVED, SensorState.FAILING]) | Q(~Q(config={}), state=SensorState.INVALID)
    rows.filter(retry).update(state=SensorState.WAITING, problem="")
    rows.filter(wanted=False).update(wanted=True, failures=0, next_due_at=now)


@transaction.atomic
def sensors_stop(agent: Agent, now: datetime) -> None:
    """Stop an agent's sensors; slices notice within two seconds. The caller has locked the agent.

    Does not wait for a slice: a sensor that is being written is skipped, and the ticker stops it later.
    """
    rows = Sensor.objects.filter(agent=agent, wanted=True).select_for_update(no_key=True, skip_locked=True)
    Sensor.objects.filter(pk__in=[row.pk for row in rows]).update(wanted=False, **_NO_LEASE)
    _sensor_sessions_wake(agent.pk, now=now)


def sensor_reject(row: Sensor, *, state: SensorState, problem: str) -> None:
    """Set a sensor aside that cannot run, until its definition changes or its loop starts again."""
    rows = Sensor.objects.filter(pk=row.pk, fencing=row.fencing)
    rows.update(state=state, problem=problem[:PROBLEM_CHARS], **_NO_LEASE)


# --- Leases ---


def loops_going() -> QuerySet[AgentSession]:
    """Return the loops whose sensors may run: active, neither halted nor paused, agent enabled, owner opted in."""
    return _loops_going().all()


@cache
def _loops_going() -> QuerySet[AgentSession]:
    """Compose it once: every slice asks several times a second, and nothing in it depends on the moment."""
    return AgentSession.objects.active().filter(
        agents_may_run("owner"),
        Exists(Installation.objects.filter(pk=1, halt__isnull=True)),
        mode=Mode.LOOP,
        halt_state__in=(HaltState.RUNNING, HaltState.IDLE),
        paused_at__isnull=True,
        agent__enabled=True,
    )


@transaction.atomic
def sensors_lease(*, owner: str, now: datetime, limit: int = MOST_HELD) -> list[Sensor]:
    """Lease sensors that nobody holds: all of an agent together, the longest unheld first.

    Sensors that were added to an agent go to the slice that holds its others.
    """
    at = time_to_claim(now)
    return _lease_at(at, owner=owner, limit=limit) if at else []


def _lease_at(now: datetime, *, owner: str, limit: int) -> list[Sensor]:
    """Lease them by the database's time."""
    agents: list[int] = []
    room = limit
    for agent_id, number in _agents_unheld(now, owner=owner)[:limit]:
        if agents and number > room:
            break
        agents.append(agent_id)
        room -= number
    rows = _locked(Sensor.objects.running().filter(agent_id__in=agents)) if agents else []
    taken = {row.agent_id for row in rows if row.is_held(now) and row.lease_owner != owner}
    free = [row.pk for row in rows if row.agent_id not in taken and row.lease_owner != owner]
    if not free:
        return []
    leased = Sensor.objects.filter(pk__in=free)
    leased.update(lease_owner=owner, lease_until=now + lease_lifetime(), fencing=F("fencing") + 1)
    return list(leased.select_related("agent").order_by("pk"))


def _agents_unheld(now: datetime, *, owner: str = "") -> QuerySet[Sensor, tuple[int, int]]:
    """Return agents with their number of unheld sensors; not those that another slice holds in part."""
    held = Sensor.objects.held(now).filter(agent_id=OuterRef("agent_id")).exclude(lease_owner=owner)
    unheld = Sensor.objects.unheld(now).filter(~Exists(held), agent_id__in=loops_going().values("agent_id"))
    grouped = unheld.order_by().values("agent_id").annotate(number=Count("pk"), since=Min("lease_until"))
    return grouped.order_by(F("since").asc(nulls_first=True), "agent_id").values_list("agent_id", "number")


def _locked(rows: QuerySet[Sensor]) -> list[Sensor]:
    """Lock rows in the order of their ids. On SQLite the transaction is the lock."""
    return list(rows.select_for_update(no_key=True).order_by("pk"))


def lease_state(*, owner: str) -> LeaseState:
    """Read what a slice still holds: two statements, however many sensors there are."""
    held = list(Sensor.objects.running().filter(lease_owner=owner).values_list("pk", "fencing", "agent_id"))
    agents = {agent_id for *_, agent_id in held}
    loops = loops_going().filter(agent_id__in=agents).order_by("pk").values_list("agent_id", "pk")
    return LeaseState(
        fencing={pk: fencing for pk, fencing, _ in held},
        loops={agent_id: pk for agent_id, pk in loops if agent_id is not None},
    )


def leases_renew(*, owner: str, now: datetime) -> int:
    """Renew the leases of a slice on its sensors and sensor sessions; return how many there were."""
    until = shared(now) + lease_lifetime()
    sessions = AgentSession.objects.filter(lease_owner=owner, status=Status.RUNNING, mode=Mode.SENSOR)
    sensors = Sensor.objects.filter(lease_owner=owner, wanted=True)
    return sensors.update(lease_until=until) + sessions.update(lease_until=until)


@transaction.atomic
def sensors_release(*, owner: str, shard: int, now: datetime) -> int:
    """Release all sensors of a slice, and enqueue the next slice in the same transaction."""
    now = shared(now)
    released = _release(Sensor.objects.filter(lease_owner=owner), now)
    if released and Sensor.objects.unheld(now).exists():
        enqueue(TaskName.SENSOR_SLICE, shard)
    return released


def sensors_drop(*, owner: str, pks: Iterable[int], now: datetime) -> None:
    """Release some sensors of a slice that may not go on."""
    _release(Sensor.objects.filter(lease_owner=owner, pk__in=list(pks)), shared(now))


def _release(rows: QuerySet[Sensor], now: datetime) -> int:
    return rows.update(lease_owner="", lease_until=now, fencing=F("fencing") + 1)


# --- Handing out, for the ticker and the supervisor ---


def has_wanted_sensors() -> bool:
    """Tell whether any sensor is to run."""
    return Sensor.objects.filter(wanted=True).exists()


def has_unheld_sensors(now: datetime) -> bool:
    """Tell whether a sensor that may run is held by nobody."""
    return _agents_unheld(now).exists()


def count_live_slices(*, host: str, now: datetime) -> int:
    """Count the slices of a host that hold sensors."""
    rows = Sensor.objects.held(now).filter(lease_owner__startswith=f"{host}:")
    return rows.values("lease_owner").distinct().count()


def sensor_slices_enqueue(now: datetime) -> int:
    """Enqueue as many slices as the unheld sensors need. One statement while no sensor is wanted."""
    if not has_wanted_sensors():
        return 0
    _stop_orphans(now)
    unheld = sum(number for _, number in _agents_unheld(now)[: MOST_SLICES * MOST_HELD])
    needed = min(-(-unheld // MOST_HELD), MOST_SLICES)
    missing = max(needed - queue_length(now, Queue.SENSORS).count, 0) if needed else 0
    for shard in range(missing):
        enqueue(TaskName.SENSOR_SLICE, shard)
    return missing


def _stop_orphans(now: datetime) -> None:
    """Stop the sensors of loops that are over, however they ended."""
    active = AgentSession.objects.active().filter(mode=Mode.LOOP)
    orphans = Sensor.objects.filter(~Exists(active.filter(agent_id=OuterRef("agent_id"))), wanted=True)
    agents = Agent.objects.filter(pk__in=orphans.values("agent_id")).order_by("pk")
    for pk in agents.values_list("pk", flat=True)[:MOST_HELD]:
        with transaction.atomic():
            agent = Agent.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=pk).first()
            if agent is not None and not active.filter(agent=agent).exists():  # it may have been started meanwhile
                sensors_stop(agent, now)


# --- The sensor session ---
#
# An agent's sensors call tools and models under a session of their own: one for each UTC day and run of the loop. A
# slice holds it under a lease and all brakes, like a runner. Between slices it sleeps; when its day or its loop is
# over it is woken, and ends (`run_sensor_session` in agents/sensors/slice.py).


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


@transaction.atomic
def sensor_session_claim(held: LeasedSensor, *, loop_pk: int, owner: str, now: datetime) -> AgentSession | str | None:
    """Claim today's session of the agent for a slice; or say why there is none to claim.

    None while another slice holds it. One that was halted, or reached a limit, is not replaced on the same day unless
    the loop was started again.
    """
    rows = Sensor.objects.filter(pk=held.row.pk, fencing=held.row.fencing, lease_owner=owner)
    if not _locked(rows):  # under the sensor's lock, so that of two slices one creates the session
        raise LeaseLost(f"Sensor {held.row.pk} is held by another slice now.")
    agent = Agent.objects.select_related("owner").get(pk=held.row.agent_id)
    day = day_of(now)
    row = AgentSession.objects.filter(agent=agent, mode=Mode.SENSOR, params__day=day).order_by("-pk").first()
    if row is not None and row.status in TERMINAL:
        loop_started_at = AgentSession.objects.values_list("created_at", flat=True).get(pk=loop_pk)
        if row.created_at >= loop_started_at:
            return f"today's sensor session has ended: {label_of('reason', str(row.terminal_reason))}"
        row = None
    if row is None:
        try:
            row = session_create(
                owner=agent.owner,
                agent=agent,
                mode=Mode.SENSOR,
                max_cost_usd=held.definition.max_cost_usd,
                params={"key": f"agent:{agent.public_id}:sensors:{day}", DAY: day},
                now=now,
            )
        except (NotAllowed, SessionHalted) as refused:
            return str(refused)
    # Queued and claimed in one transaction: no worker can take it in between.
    AgentSession.objects.filter(pk=row.pk, status=Status.SLEEPING).update(status=Status.QUEUED, next_wake_at=None)
    return lease_claim(row.pk, owner=owner, now=now) or _unclaimable(row.pk)


def _unclaimable(pk: int) -> str | None:
    row = AgentSession.objects.get(pk=pk)
    if row.status == Status.RUNNING:
        return None
    if row.status == Status.WAITING:
        return f"today's sensor session waits for {row.waiting_on}"
    return f"today's sensor session is {row.status}"


def sensor_session_rest(session: AgentSession, *, now: datetime) -> None:
    """Let it sleep until its day ends; wake it now if its day is over or its sensors are not wanted."""
    wake_at = next_day(now) if session.params[DAY] == day_of(now) and sensor_session_is_needed(session) else now
    session_rest(session, Status.SLEEPING, wake_at=wake_at, now=now)
    if wake_at != now and not sensor_session_is_needed(session):  # its loop ended meanwhile, and found it awake
        _sensor_sessions_wake(session.agent_id or 0, now=now)


def sensor_session_is_needed(session: AgentSession) -> bool:
    """Tell whether its sensors are wanted and its loop is active."""
    wanted = Sensor.objects.filter(agent__sessions=session, wanted=True).exists()
    return wanted and AgentSession.objects.active().filter(agent=session.agent_id, mode=Mode.LOOP).exists()


def _sensor_sessions_wake(agent_id: int, *, now: datetime) -> None:
    """Wake the sleeping ones, to end. One that a slice holds ends when the slice puts it to rest."""
    asleep = AgentSession.objects.filter(agent_id=agent_id, mode=Mode.SENSOR, status=Status.SLEEPING)
    with transaction.atomic():
        free = [row.pk for row in asleep.select_for_update(no_key=True, skip_locked=True)]
        asleep.filter(pk__in=free).update(next_wake_at=now)
