"""Sensors in rows: as their agent's definition says, wanted while its loop is under way, held by one slice at a time.

The fencing number rises with every lease and with every change, and stands in the WHERE of every write of a slice: a
slice that was thought dead, or reads what nobody wants any more, writes nothing. Whether they are wanted changes under
the lock of their agent. Locks are taken in the order: the agent, the loop's session, sensors by id, the agent's session
of the day.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet

from agents.conf import lease_lifetime
from agents.definitions.schema import AgentDefinition, SensorSpec
from agents.enums import HaltState, Mode, SensorKind, SensorState, Status
from agents.exceptions import LeaseLost, NotAllowed, SessionHalted
from agents.loop.reads import loop_current
from agents.models import Agent, AgentSession, Installation, Sensor, agents_may_run
from agents.policy.transitions import TERMINAL
from agents.queue import Queue, TaskName, enqueue, waiting
from agents.sessions.ending import session_rest
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from agents.text.clean import storable
from audit.receipts import worded
from audit.redaction import redact

# The session under which an agent's sensors call tools and ask models: one for each UTC day and run of its loop.
#
# A slice holds it as a runner holds any session, under a lease and all brakes. Between slices it sleeps; when its day
# is over, or its loop has stopped, it is woken and ends (agents/sensors/slice.py).


KEY: Final = "key"
DAY: Final = "day"


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def end_of_day(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


@transaction.atomic
def sensor_session_claim(
    *, agent: Agent, loop_pk: int, sensor_pk: int, fencing: int, owner: str, cap: Decimal | None, now: datetime
) -> AgentSession | str | None:
    """Today's session of the agent, held by the slice that holds the sensor; or why there is none to be had.

    None while another slice holds it: that one gives it back, or its lease runs out. One that was halted, or reached a
    limit, is not begun anew on the same day, unless the loop was.
    """
    if not _holds(sensor_pk, fencing, owner):
        raise LeaseLost(f"Sensor {sensor_pk} is held by another slice now.")
    day = day_of(now)
    row = _latest(agent.pk, day)
    if row is not None and row.status in TERMINAL:
        began_at = AgentSession.objects.values_list("created_at", flat=True).get(pk=loop_pk)
        if row.created_at >= began_at:
            return f"the sensors' run of today has ended: {worded('reason', str(row.terminal_reason))}"
        row = None
    if row is None:
        try:
            row = session_create(
                owner=agent.owner,
                agent=agent,
                mode=Mode.SENSOR,
                max_cost_usd=cap,
                params={KEY: f"agent:{agent.public_id}:sensors:{day}", DAY: day},
                now=now,
            )
        except (NotAllowed, SessionHalted) as refused:
            return str(refused)
    # Claimed in this transaction, it need not be handed to a worker: whoever is, finds nothing to take.
    AgentSession.objects.filter(pk=row.pk, status=Status.SLEEPING).update(status=Status.QUEUED, next_wake_at=None)
    claimed = lease_claim(row.pk, owner=owner, now=now)
    return claimed if claimed is not None else _why_not(row.pk)


def _holds(sensor_pk: int, fencing: int, owner: str) -> bool:
    """Under the sensor's lock, so that of two slices one makes the session."""
    rows = Sensor.objects.filter(pk=sensor_pk, fencing=fencing, lease_owner=owner)
    if transaction.get_connection().features.has_select_for_update:
        rows = rows.select_for_update(no_key=True)
    return rows.first() is not None


def _latest(agent_pk: int, day: str) -> AgentSession | None:
    rows = AgentSession.objects.filter(agent_id=agent_pk, mode=Mode.SENSOR, params__day=day)
    return rows.order_by("-pk").first()


def _why_not(pk: int) -> str | None:
    row = AgentSession.objects.get(pk=pk)
    if row.status == Status.RUNNING:
        return None
    if row.status == Status.WAITING:
        return f"the sensors' run of today waits on {row.waiting_on}"
    return f"the sensors' run of today is {row.status}"


def sensor_sessions_renew(*, owner: str, now: datetime) -> int:
    """Says that the slice is alive, for all sessions that it holds."""
    mine = AgentSession.objects.filter(lease_owner=owner, status=Status.RUNNING, mode=Mode.SENSOR)
    return mine.update(lease_until=now + lease_lifetime())


def sensor_session_rest(session: AgentSession, *, now: datetime) -> None:
    """Lets it sleep to the end of its day; to now, if its sensors are not wanted any more, or its loop is over."""
    same_day = session.params[DAY] == day_of(now)
    wake_at = end_of_day(now) if same_day and is_needed(session) else now
    session_rest(session, Status.SLEEPING, wake_at=wake_at, now=now)
    if wake_at != now and not is_needed(session):  # who ended its loop meanwhile has found it awake
        sensor_sessions_let_go([session.agent_id or 0], now=now)


def is_needed(session: AgentSession) -> bool:
    """Its loop is under way, and its sensors are wanted."""
    wanted = Sensor.objects.filter(agent__sessions=session, wanted=True).exists()
    return wanted and AgentSession.objects.active().filter(agent=session.agent_id, mode=Mode.LOOP).exists()


def sensor_sessions_let_go(agent_ids: Iterable[int], *, now: datetime) -> None:
    """Those that sleep are woken, to end. One that a slice holds, or is about to, comes to rest with it."""
    asleep = AgentSession.objects.filter(agent_id__in=list(agent_ids), mode=Mode.SENSOR, status=Status.SLEEPING)
    with transaction.atomic():
        free = [row.pk for row in asleep.select_for_update(no_key=True, skip_locked=True)]
        asleep.filter(pk__in=free).update(next_wake_at=now)


MOST_HELD: Final = 250
MOST_SLICES: Final = 16
NAME_CHARS: Final = 64
PROBLEM_CHARS: Final = 500


@dataclass(frozen=True)
class Held:
    """A sensor in the hands of a slice, as it was when the slice took it."""

    pk: int
    agent_id: int
    fencing: int
    spec: SensorSpec
    definition: AgentDefinition
    cursor: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Any] = field(default_factory=dict)
    failures: int = 0
    next_due_at: datetime | None = None

    @classmethod
    def of(cls, row: Sensor, spec: SensorSpec, definition: AgentDefinition) -> "Held":
        return cls(
            pk=row.pk,
            agent_id=row.agent_id,
            fencing=row.fencing,
            spec=spec,
            definition=definition,
            cursor=row.cursor,
            signals=row.signals,
            failures=row.failures,
            next_due_at=row.next_due_at,
        )


@dataclass(frozen=True)
class Standing:
    """What of a slice's sensors is still its own: by id, the fencing number; by agent, the loop that they are for."""

    fencing: Mapping[int, int]
    loops: Mapping[int, int]

    def holds(self, held: Held) -> bool:
        return self.fencing.get(held.pk) == held.fencing and held.agent_id in self.loops


# --- As the definition says, while the loop runs ---


@transaction.atomic
def sensors_sync(agent: Agent, definition: AgentDefinition, now: datetime) -> None:
    """Rows for what the definition names, and for nothing else. A sensor that did not change goes on undisturbed."""
    rows = {row.name: row for row in _locked(Sensor.objects.filter(agent=agent))}
    wanted = loop_current(agent.pk) is not None
    said = _said(definition)
    for name, (kind, config, problem) in said.items():
        row = rows.get(name) or Sensor(agent=agent, name=name, wanted=wanted)
        if row.pk is None or (row.kind, row.config) != (kind, config) or row.state == SensorState.INVALID:
            _rewrite(row, kind, config, problem, now=now)
    Sensor.objects.filter(pk__in=[row.pk for name, row in rows.items() if name not in said]).delete()


def _said(definition: AgentDefinition) -> dict[str, tuple[SensorKind, dict[str, Any], str]]:
    """By name: kind, configuration, and why it cannot run, if it cannot."""
    said: dict[str, tuple[SensorKind, dict[str, Any], str]] = {}
    for one in definition.broken_sensors:
        said[one.name[:NAME_CHARS]] = one.kind, {}, one.problem
    for spec in definition.sensors:
        said[spec.name] = spec.type, spec.model_dump(mode="json"), ""
    return said


def _rewrite(row: Sensor, kind: SensorKind, config: dict[str, Any], problem: str, *, now: datetime) -> None:
    if row.kind != kind or row.config.get("source") != config.get("source"):
        row.cursor, row.value, row.read_at = {}, "", None  # they belong to another source
    row.kind, row.config, row.problem = kind, config, problem[:PROBLEM_CHARS]
    row.state = SensorState.INVALID if problem else SensorState.WAITING
    row.signals, row.failures, row.next_due_at = {}, 0, now
    row.lease_owner, row.lease_until, row.fencing = "", None, row.fencing + 1
    row.save()


@transaction.atomic
def sensors_want(agent: Agent, wanted: bool, now: datetime) -> None:  # noqa: FBT001 the loop starts or stops them
    """Starts or stops all sensors of an agent, whose row the caller holds. What holds them notices within a second or
    two; the ticker hands them out. One that was set aside, not by its own text, is tried anew.

    Nobody who stops waits for a slice: a sensor that is being written is left, and the ticker stops it later.
    """
    rows = Sensor.objects.filter(agent=agent)
    if not wanted:
        free = [row.pk for row in rows.filter(wanted=True).select_for_update(no_key=True, skip_locked=True)]
        let_go = {"lease_owner": "", "lease_until": None, "fencing": F("fencing") + 1}
        Sensor.objects.filter(pk__in=free).update(wanted=False, **let_go)
        sensor_sessions_let_go([agent.pk], now=now)
        return
    again = Q(state__in=[SensorState.UNRESOLVED, SensorState.FAILING]) | Q(~Q(config={}), state=SensorState.INVALID)
    rows.filter(again).update(state=SensorState.WAITING, problem="")
    rows.filter(wanted=False).update(wanted=True, failures=0, next_due_at=now)


def loops_going() -> QuerySet[AgentSession]:
    """The loops whose sensors may look: under way, not halted, of an agent that is on and an owner who is opted in."""
    return AgentSession.objects.active().filter(
        agents_may_run("owner"),
        Exists(Installation.objects.filter(pk=1, halt__isnull=True)),
        mode=Mode.LOOP,
        halt_state__in=(HaltState.RUNNING, HaltState.PAUSED),
        agent__enabled=True,
    )


# --- One holder ---


@transaction.atomic
def sensors_lease(*, owner: str, now: datetime, limit: int = MOST_HELD) -> list[Sensor]:
    """Takes sensors that nobody holds, those of an agent together, the longest unheld first."""
    agents: list[int] = []
    room = limit
    for agent_id, number in _agents_unheld(now)[:limit]:
        if agents and number > room:
            break
        agents.append(agent_id)
        room -= number
    return _take(agents, owner=owner, now=now)


@transaction.atomic
def sensors_adopt(*, owner: str, agent_ids: Iterable[int], now: datetime) -> list[Sensor]:
    """Sensors that have been added to agents whose others this slice holds already."""
    fresh = Sensor.objects.unheld(now).filter(agent_id__in=list(agent_ids))
    return _take(sorted(set(fresh.values_list("agent_id", flat=True))), owner=owner, now=now)


def _agents_unheld(now: datetime) -> QuerySet[Sensor, tuple[int, int]]:
    """Agents with sensors that nobody holds, and how many; not those of which some slice holds a part."""
    held = Sensor.objects.held(now).filter(agent_id=OuterRef("agent_id"))
    unheld = Sensor.objects.unheld(now).filter(~Exists(held), agent_id__in=loops_going().values("agent_id"))
    grouped = unheld.order_by().values("agent_id").annotate(number=Count("pk"), since=Min("lease_until"))
    return grouped.order_by(F("since").asc(nulls_first=True), "agent_id").values_list("agent_id", "number")


def _take(agent_ids: list[int], *, owner: str, now: datetime) -> list[Sensor]:
    rows = _locked(Sensor.objects.running().filter(agent_id__in=agent_ids)) if agent_ids else []
    taken = {row.agent_id for row in rows if row.is_held(now) and row.lease_owner != owner}
    free = [row.pk for row in rows if row.agent_id not in taken and row.lease_owner != owner]
    if not free:
        return []
    mine = Sensor.objects.filter(pk__in=free)
    mine.update(lease_owner=owner, lease_until=now + lease_lifetime(), fencing=F("fencing") + 1)
    return list(mine.select_related("agent").order_by("pk"))


def _locked(rows: QuerySet[Sensor]) -> list[Sensor]:
    """In one order for everybody. SQLite's transaction is the lock."""
    if transaction.get_connection().features.has_select_for_update:
        rows = rows.select_for_update(no_key=True)
    return list(rows.order_by("pk"))


def sensors_renew(*, owner: str, now: datetime) -> int:
    """Says that the slice is alive, for all that it holds."""
    return Sensor.objects.filter(lease_owner=owner, wanted=True).update(lease_until=now + lease_lifetime())


def sensors_standing(*, owner: str) -> Standing:
    """Two reads, whatever the number of sensors."""
    rows = Sensor.objects.running().filter(lease_owner=owner).values_list("pk", "fencing", "agent_id")
    held = list(rows)
    return Standing({pk: fencing for pk, fencing, _ in held}, loops_of({agent_id for *_, agent_id in held}))


def loops_of(agent_ids: Iterable[int]) -> dict[int, int]:
    """The loop of each agent that may go on."""
    found = loops_going().filter(agent_id__in=list(agent_ids)).order_by("pk").values_list("agent_id", "pk")
    return {agent_id: pk for agent_id, pk in found if agent_id is not None}


@transaction.atomic
def sensors_release(*, owner: str, shard: int, now: datetime) -> int:
    """Gives everything back, and asks for the next slice in the same transaction while there is something to hold."""
    released = _released(Sensor.objects.filter(lease_owner=owner), now)
    if released and Sensor.objects.unheld(now).exists():
        enqueue(TaskName.SENSOR_SLICE, shard)
    return released


def sensors_drop(*, owner: str, pks: Iterable[int], now: datetime) -> int:
    """Gives some back that may not go on, and goes on with the rest."""
    return _released(Sensor.objects.filter(lease_owner=owner, pk__in=list(pks)), now)


def _released(rows: QuerySet[Sensor], now: datetime) -> int:
    return rows.update(lease_owner="", lease_until=now, fencing=F("fencing") + 1)


def sensor_reject(held: Held | Sensor, *, state: SensorState, problem: str) -> bool:
    """Sets a sensor aside that cannot run as it is: until its definition changes or its loop starts anew."""
    return bool(
        Sensor.objects.filter(pk=held.pk, fencing=held.fencing).update(
            state=state, problem=problem[:PROBLEM_CHARS], lease_owner="", lease_until=None, fencing=F("fencing") + 1
        )
    )


# --- Handing out ---


def sensors_wanted() -> bool:
    return Sensor.objects.filter(wanted=True).exists()


def sensors_hand_over(now: datetime) -> int:
    """Asks for as many slices as the sensors need that nobody holds; one read while no sensor is wanted."""
    if not sensors_wanted():
        return 0
    _let_go(now)
    unheld = sum(number for _, number in _agents_unheld(now)[: MOST_SLICES * MOST_HELD])
    needed = min(-(-unheld // MOST_HELD), MOST_SLICES)
    missing = max(needed - waiting(now, Queue.SENSORS).count, 0) if needed else 0
    for shard in range(missing):
        enqueue(TaskName.SENSOR_SLICE, shard)
    return missing


def _let_go(now: datetime) -> None:
    """Stops the sensors of loops that are over, however they ended. A halted loop that still ends is left to end."""
    under_way = AgentSession.objects.active().filter(mode=Mode.LOOP)
    left = Sensor.objects.filter(~Exists(under_way.filter(agent_id=OuterRef("agent_id"))), wanted=True)
    agents = Agent.objects.filter(pk__in=left.values("agent_id")).order_by("pk")
    for pk in agents.values_list("pk", flat=True)[:MOST_HELD]:
        with transaction.atomic():
            agent = Agent.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=pk).first()
            if agent is not None and not under_way.filter(agent=agent).exists():  # it may have been started meanwhile
                sensors_want(agent, False, now)  # noqa: FBT003 as above


def sensors_unheld(now: datetime) -> bool:
    """True while sensors that may look are nobody's."""
    return _agents_unheld(now).exists()


def slices_alive(*, host: str, now: datetime) -> int:
    """How many slices of a host hold sensors."""
    rows = Sensor.objects.held(now).filter(lease_owner__startswith=f"{host}:")
    return rows.values("lease_owner").distinct().count()


# --- What a look at a sensor's source came to, on its way from the slice that looked to the rows ---


SHOWN_CHARS: Final = 500
QUOTED_CHARS: Final = 1_500


@dataclass(frozen=True)
class Fired:
    """A signal that fired. `happening` names what it fired on: the same happening alerts and spawns once.

    `items` are the data that were judged, oldest first.
    """

    name: str
    score: str
    happening: str
    items: tuple[Any, ...] = ()
    notify: bool = True
    spawn: str = ""


@dataclass(frozen=True)
class Reading:
    """What came of a look: data, oldest first. `same`: the source says that nothing is new, and is as it was.

    `late`: no look, but what signals say of data that were handed in before.
    """

    held: Held
    at: datetime
    items: tuple[Any, ...] = ()
    same: bool = False
    late: bool = False
    cursor: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Any] = field(default_factory=dict)
    fired: tuple[Fired, ...] = ()
    problem: str = ""
    next_due_at: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """A look that came to nothing, for the so-many-th time in a row; `tell` once, when the circuit opens."""

    held: Held
    at: datetime
    problem: str
    failures: int
    wait_seconds: float
    tell: bool = False
    cursor: Mapping[str, Any] | None = None
    next_due_at: datetime | None = None


def shown(item: Any) -> str:
    """The beginning of a value, as text that can be kept."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
    return plain(text[: 2 * SHOWN_CHARS])[:SHOWN_CHARS]


def quoted(items: Sequence[Any]) -> str:
    """Data that were judged together, oldest first; as many of the newest as fit, and how many there are."""
    if len(items) == 1:
        return shown(items[0])
    quotes: list[str] = []
    left = QUOTED_CHARS
    for item in reversed(items):
        quote = shown(item)
        if quotes and len(quote) > left:
            break
        quotes.insert(0, quote)
        left -= len(quote)
    newest = f", the newest {len(quotes)}" if len(quotes) < len(items) else ""
    return f"{len(items)} judged together{newest}: {' | '.join(quotes)}"


def plain(text: str) -> str:
    """Without secrets, and without what no database holds."""
    return redact(str(storable(text)))
