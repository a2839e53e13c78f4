"""What sensors have read, into rows: many readings in one transaction, each under the fencing number of its holder.

The sensor's row comes first and decides: a slice that holds the sensor no longer writes nothing. Its cursor, the fields
of the hot state, the alerts and the events of a reading are committed together, so that after a crash the source is
read on from where its last effect stands. Nothing in a reading picks a field, a trigger or a call: the definition does.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.db import DatabaseError, transaction

from agents.definitions.schema import Update
from agents.definitions.values import NothingThere, part_of
from agents.enums import EventKind, EventOutcome, EventSeverity, HotSource, NoticeKind, SensorKind, SensorState
from agents.loop.alerts import alert_push
from agents.loop.state import VALUE_BYTES, hot_refusal, hot_write
from agents.models import Agent, AgentSession, HotField, InboundEvent, Sensor, Trigger
from agents.people.activity import event_emit
from agents.people.notifications import notice_create
from agents.policy.run_spec import RunSpec
from agents.sensors.rows import PROBLEM_CHARS, Failure, Held, Reading, loops_going, loops_of, plain, quoted, shown
from agents.sessions.lifecycle import session_lock
from agents.text.clean import storable
from agents.triggers.firing import Fired, Refused, trigger_fire
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)


# --- A reading, into the fields of the hot state that the sensor's definition names ---


MOST_APPENDED: Final = 200  # of one batch of a stream, to one array
ESCAPED: Final = 3  # a character takes at most so many times its bytes when JSON is written in ASCII


def fields_write(reading: Reading, loop: AgentSession) -> Iterator[tuple[str, str]]:
    """Each field that is due, when it has been written, and why it could not be, if it could not. The others are."""
    for update in reading.held.spec.updates:
        if reading.same and update.gated_by is None:  # what a gate let through may not be what the source shows
            row = HotField.objects.filter(session=loop, name=update.field).first()
            if row is not None and row.value is not None and _set(reading, loop, update.field, row.value):
                yield update.field, ""  # as it was, and fresh again
        elif items := _items(reading, update.gated_by):
            problem = _write(reading, items, loop, update)
            if problem is not None:
                yield update.field, problem


def _items(reading: Reading, gate: str | None) -> tuple[Any, ...]:
    """What the field is to have: a gated one what was judged, and nothing while its gate is closed."""
    if gate is None:
        return () if reading.late else reading.items
    fired = next((one for one in reading.fired if one.name == gate), None)
    if fired is None:
        return ()
    return reading.items if reading.held.spec.type == SensorKind.WATCH else fired.items


def _write(reading: Reading, items: Sequence[Any], loop: AgentSession, update: Update) -> str | None:
    """Why the field was not written; empty when it was, and None when there is nobody to write it for any more.

    A value takes the place of the one before; what is no list is added to an array, item by item.
    """
    held, name = reading.held, update.field
    try:
        last = _newest(held, name, _bounded(part_of(items[-1], update.path)))
    except (NothingThere, ValueError) as error:
        return f"{name}: {error}"
    adds = _adds(held, name, last)
    if why := hot_refusal(held.definition, name, [last] if adds else last):
        return why
    return "" if _set(reading, loop, name, _added(items, loop, update) if adds else last) else None


def _bounded(value: Any) -> Any:
    """Fit to be looked at: masking and storing take their time, and nobody gets what is far too large anyway."""
    if isinstance(value, str):
        return storable(value[:VALUE_BYTES])
    if (size := len(json.dumps(value, default=str))) > ESCAPED * VALUE_BYTES:
        raise ValueError(f"the value is about {size} bytes long; at most {VALUE_BYTES} are kept")
    return storable(value)


def _set(reading: Reading, loop: AgentSession, name: str, value: Any) -> bool:
    return hot_write(
        loop,
        definition=reading.held.definition,
        name=name,
        value=value,
        source=HotSource.SENSOR,
        source_name=reading.held.spec.name,
        now=reading.at,
    )


def _adds(held: Held, name: str, value: Any) -> bool:
    spec = held.definition.hot_state.fields.get(name)
    return spec is not None and spec.type == "array" and not isinstance(value, list)


def _added(items: Sequence[Any], loop: AgentSession, update: Update) -> list[Any]:
    """As many of the newest as a field holds: an array that nobody bounds must not come to a stop when it is full."""
    row = HotField.objects.select_for_update().filter(session=loop, name=update.field).first()
    values = [*(row.value or [] if row else []), *_parts(items, update.path)]
    left, place = VALUE_BYTES - 2, len(values)
    while place > 0 and (left := left - len(json.dumps(values[place - 1], default=str).encode()) - 1) >= 0:
        place -= 1
    return values[place:]


def _parts(items: Sequence[Any], path: str | None) -> Iterator[Any]:
    for item in items[-MOST_APPENDED:]:
        try:
            yield _bounded(part_of(item, path))
        except (NothingThere, ValueError):
            continue


def _newest(held: Held, name: str, value: Any) -> Any:
    """The changes of a folder have the newest first; an array of the hot state keeps its end."""
    spec = held.definition.hot_state.fields.get(name)
    if held.spec.type == SensorKind.WATCH and isinstance(value, list) and spec is not None and spec.max_items:
        return value[: spec.max_items]
    return value


MOST_SPAWNS: Final = 20  # that wait to be carried out


def sensors_write(results: Sequence[Reading | Failure]) -> list[Reading | Failure]:
    """Writes them, in one transaction; returns those that are not their holder's to write any more."""
    lost: list[Reading | Failure] = []
    with transaction.atomic():
        loops = _loops({result.held.agent_id for result in results})
        alerted = {loops[one.held.agent_id].pk for one in results if _alerts(one) and one.held.agent_id in loops}
        for pk in sorted(alerted):
            session_lock(pk)  # before any sensor, as those who end a loop do
        for result in sorted(results, key=lambda one: one.held.pk):
            loop = loops.get(result.held.agent_id)
            if loop is None or not _written(result, loop):
                lost.append(result)
    return lost


def _loops(agent_ids: set[int]) -> dict[int, AgentSession]:
    rows = loops_going().filter(agent_id__in=agent_ids).order_by("pk")
    return {row.agent_id: row for row in rows if row.agent_id is not None}


def _alerts(result: Reading | Failure) -> bool:
    return isinstance(result, Reading) and any(fired.notify for fired in result.fired)


def _written(result: Reading | Failure, loop: AgentSession) -> bool:
    """One that cannot be written is a failure of its sensor, and keeps no other from being written."""
    if isinstance(result, Failure):
        return _write_failure(result, loop)
    try:
        with transaction.atomic():
            return _write_reading(result, loop)
    except DatabaseError:
        raise
    except Exception as error:
        logger.exception("a reading of sensor %s could not be written", result.held.pk)
        failed = Failure(result.held, result.at, redact_exception(error), result.held.failures + 1, wait_seconds=0)
        return _write_failure(replace(failed, next_due_at=result.next_due_at), loop)


# --- A reading ---


def _write_reading(reading: Reading, loop: AgentSession) -> bool:
    held, now = reading.held, reading.at
    if not _mine(held).update(**_changed(reading)):
        return False
    problems = [reading.problem] if reading.problem else []
    for name, problem in fields_write(reading, loop):
        if problem:
            problems.append(problem)
        else:
            event_emit(EventKind.SENSOR_UPDATED, session=loop, now=now, sensor=held.spec.name, field=name)
    for problem in problems:
        event_emit(EventKind.SENSOR_ERROR, session=loop, now=now, sensor=held.spec.name, error=plain(problem))
    if problems and not reading.late:
        _mine(held).update(problem=plain("; ".join(problems))[:PROBLEM_CHARS])
    for fired in reading.fired:
        if fired.notify:
            told = f"{held.spec.name}: {fired.name} scored {fired.score}. {quoted(fired.items)}"
            where = {"source_name": held.spec.name, "dedupe": f"{held.pk}:{fired.name[:24]}:{fired.happening}"[:96]}
            alert_push(loop, name=fired.name, text=told, now=now, **where)
    return True


def _changed(reading: Reading) -> dict[str, Any]:
    """Of the sensor's row. What comes late leaves all that belongs to the look as it is."""
    changed: dict[str, Any] = {"signals": _with_spawns(reading)}
    if reading.late:
        return changed
    changed |= {
        "state": SensorState.FINE,
        "problem": "",
        "failures": 0,
        "read_at": reading.at,
        "cursor": dict(reading.cursor),
        "next_due_at": reading.next_due_at,
    }
    if reading.items:
        changed["value"] = shown(reading.items[-1])
    return changed


def _mine(held: Held) -> Any:
    return Sensor.objects.filter(pk=held.pk, fencing=held.fencing, wanted=True)


def _with_spawns(reading: Reading) -> dict[str, Any]:
    """The signals' state, with the firings that have yet to spawn: they are carried out after this is committed."""
    state = {name: dict(one) for name, one in reading.signals.items()}
    if not any(signal.spawn for signal in reading.held.spec.signals):
        return state
    for name, one in (_mine(reading.held).values_list("signals", flat=True).first() or {}).items():
        if due := one.get("spawns"):
            state.setdefault(name, {})["spawns"] = due
    for fired in reading.fired:
        if fired.spawn:
            asked = {"trigger": fired.spawn, "happening": fired.happening, "data": quoted(fired.items)}
            state[fired.name]["spawns"] = [*state[fired.name].get("spawns", []), asked][-MOST_SPAWNS:]
    return state


# --- A failure ---


def _write_failure(failure: Failure, loop: AgentSession) -> bool:
    held, now, problem = failure.held, failure.at, plain(failure.problem)[:PROBLEM_CHARS]
    changed: dict[str, Any] = {
        "state": SensorState.FAILING,
        "problem": problem,
        "failures": failure.failures,
        "next_due_at": failure.next_due_at,
    }
    if failure.cursor is not None:
        changed["cursor"] = dict(failure.cursor)
    if not _mine(held).update(**changed):
        return False
    event_emit(
        EventKind.SENSOR_ERROR,
        session=loop,
        now=now,
        sensor=held.spec.name,
        error=problem,
        failures=failure.failures,
        wait_seconds=round(failure.wait_seconds, 3),
    )
    if failure.tell:
        agent = Agent.objects.get(pk=held.agent_id)
        notice_create(
            owner_id=agent.owner_id,
            kind=NoticeKind.SENSOR_FAILING,
            title=f"Sensor {held.spec.name} of {agent.name} has failed {failure.failures} times in a row",
            body=f"{problem}\n\nIt is tried again every {failure.wait_seconds:.0f} seconds. You are told once.",
            session_id=loop.pk,
            now=now,
        )
    return True


# Runs that signals ask for: one for each happening, after the reading that it fired on has been committed.
#
# What is to be spawned stands on the sensor's row until it is; whoever carries it out twice finds the slot taken.


SOURCE: Final = "sensor"


def sensor_spawn(held: Held, *, now: datetime) -> int:
    """Fires the triggers that the sensor's signals ask for; returns how many runs that spawned."""
    row = Sensor.objects.filter(pk=held.pk, fencing=held.fencing).first()
    if row is None:
        return 0
    spawned = 0
    for name, state in row.signals.items():
        for asked in state.get("spawns", []):
            spawned += _fired(row, name, asked, now=now)
    rest = {name: {key: one for key, one in state.items() if key != "spawns"} for name, state in row.signals.items()}
    Sensor.objects.filter(pk=row.pk, fencing=held.fencing).update(signals=rest)
    return spawned


def _fired(row: Sensor, signal: str, asked: dict[str, Any], *, now: datetime) -> bool:
    agent = Agent.objects.select_related("owner").get(pk=row.agent_id)
    named = Trigger.objects.filter(agent=agent, name=asked["trigger"], deleted_at__isnull=True)
    trigger = named.order_by("-pk").first()
    loop = AgentSession.objects.filter(pk__in=loops_of([agent.pk]).values()).first()
    if trigger is None or loop is None:
        _tell(agent, row, f"there is no trigger {asked['trigger']!r} of this agent to fire", now=now)
        return False
    happening = hashlib.sha256(f"{signal}:{asked['happening']}".encode()).hexdigest()
    answer = _take(trigger, f"sensor:{row.pk}:{happening[:48]}", loop, _said(row, signal, asked), now=now)
    if isinstance(answer, Refused):
        _tell(agent, row, f"the trigger {trigger.name} did not fire: {answer.reason}", now=now)
        return False
    return answer.first


def _said(row: Sensor, signal: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "event_type": row.name,
        "category": signal,
        "severity": EventSeverity.INFO,
        "title": f"{row.name}: {signal}",
        "data": {"reading": asked["data"]},
    }


@transaction.atomic
def _take(trigger: Trigger, slot: str, loop: AgentSession, said: dict[str, Any], *, now: datetime) -> Fired | Refused:
    """The run, and the event that it reads, in one transaction."""
    event_id = uuid.uuid4()
    inputs = RunSpec.of(collection=trigger.collection, event=str(event_id))
    answer = trigger_fire(trigger=trigger, slot=slot, inputs=inputs, parent=loop, now=now)
    if isinstance(answer, Fired) and answer.first:
        InboundEvent.objects.create(
            public_id=event_id,
            owner_id=trigger.owner_id,
            trigger=trigger,
            session=answer.session,
            outcome=EventOutcome.SPAWNED,
            received_at=now,
            **said,
        )
    return answer


def _tell(agent: Agent, row: Sensor, error: str, *, now: datetime) -> None:
    event_emit(EventKind.SENSOR_ERROR, agent=agent, now=now, sensor=row.name, error=error)
