"""Sensors in rows: as their agent's definition says, wanted while its loop is under way, held by one slice at a time.

The fencing number rises with every lease and with every change, and stands in the WHERE of every write of a slice: a
slice that was thought dead, or reads what nobody wants any more, writes nothing. Whether they are wanted changes under
the lock of their agent. Locks are taken in the order: the agent, the loop's session, sensors by id, the agent's session
of the day.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet

from agents.conf import lease_lifetime
from agents.definitions.schema import AgentDefinition, SensorSpec
from agents.enums import HaltState, Mode, SensorKind, SensorState
from agents.loop.reads import loop_current
from agents.models import Agent, AgentSession, Installation, Sensor, agents_may_run
from agents.queue import Queue, TaskName, enqueue, waiting
from agents.sensors.sensor_sessions import sensor_sessions_let_go

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
