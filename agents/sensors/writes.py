"""Write what sensors have read: many results in one transaction, each under the fencing number of its lease.

The sensor's row is written first and decides whether the slice still holds it. Cursor, hot state, alerts and events of
a reading are committed together, so after a crash the source is read on from its last effect. Nothing in a reading
picks a field, a trigger or a call: the definition does.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from agents.definitions.schema import Update
from agents.enums import EventKind, HotSource, NoticeKind, SensorState
from agents.loop.state import VALUE_BYTES, hot_refusal, hot_write
from agents.loop.turns import alert_push
from agents.models import Agent, AgentSession, HotField, Sensor, Trigger
from agents.people.activity import event_emit
from agents.people.notifications import notification_create
from agents.policy.paths import PathNotFound, value_at_path
from agents.sensors.rows import PROBLEM_CHARS, Failure, LeasedSensor, Reading, loops_going, preview, quote, safe_text
from agents.sessions.lifecycle import session_lock
from agents.text.clean import json_safe
from agents.triggers.events import EventIn, event_spawn
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

MOST_APPENDED: Final = 200  # items of one batch of a stream, to one array
MOST_SPAWNS: Final = 20  # pending, for one signal
ESCAPED: Final = 3  # a character takes at most this many times its bytes in ASCII JSON
FAILURES_BEFORE_NOTIFICATION: Final = 10  # in a row; the owner is notified once


def sensors_write(results: Sequence[Reading | Failure]) -> set[int]:
    """Write results in one transaction; return the ids of sensors that the slice no longer holds."""
    lost: set[int] = set()
    with transaction.atomic():
        agents = {result.held.row.agent_id for result in results}
        loops = {row.agent_id: row for row in loops_going().filter(agent_id__in=agents).order_by("pk")}
        alerting = {result.held.row.agent_id for result in results if _alerts(result)}
        for pk in sorted(loop.pk for agent_id, loop in loops.items() if agent_id in alerting):
            session_lock(pk)  # before any sensor, in the order of those who end a loop
        for result in sorted(results, key=lambda one: one.held.row.pk):
            loop = loops.get(result.held.row.agent_id)
            if loop is None or not _write(result, loop):
                lost.add(result.held.row.pk)
    return lost


def _alerts(result: Reading | Failure) -> bool:
    return isinstance(result, Reading) and any(fired.signal.notify for fired in result.fired)


def _write(result: Reading | Failure, loop: AgentSession) -> bool:
    """Write one result. A reading that cannot be written counts as a failure of its sensor alone."""
    if isinstance(result, Failure):
        return _write_failure(result, loop)
    try:
        with transaction.atomic():
            return _write_reading(result, loop)
    except DatabaseError:
        raise
    except Exception as error:
        logger.exception("a reading of sensor %s could not be written", result.held.row.pk)
        failure = Failure(
            held=result.held,
            at=result.at,
            problem=redact_exception(error),
            failures=result.held.row.failures + 1,
            wait_seconds=0,
            next_due_at=result.next_due_at,
        )
        return _write_failure(failure, loop)


def _held_row(held: LeasedSensor) -> QuerySet[Sensor]:
    return Sensor.objects.filter(pk=held.row.pk, fencing=held.row.fencing, wanted=True)


# --- Readings ---


def _write_reading(reading: Reading, loop: AgentSession) -> bool:
    held, now = reading.held, reading.at
    if not _held_row(held).update(**_changed_columns(reading)):
        return False
    problems = [reading.problem] if reading.problem else []
    for name, problem in _write_fields(reading, loop):
        if problem:
            problems.append(problem)
        else:
            event_emit(EventKind.SENSOR_UPDATED, session=loop, now=now, sensor=held.spec.name, field=name)
    for problem in problems:
        event_emit(EventKind.SENSOR_ERROR, session=loop, now=now, sensor=held.spec.name, error=safe_text(problem))
    standing = dict.fromkeys([*problems, *reading.faults])
    if standing and not reading.late:
        _held_row(held).update(problem=safe_text("; ".join(standing))[:PROBLEM_CHARS])
    if reading.notice:
        _notify(reading.held, f"A signal of sensor {held.spec.name} gets no scores", reading.notice, loop, now)
    for fired in reading.fired:
        if fired.signal.notify:
            name = fired.signal.name
            alert_push(
                loop,
                name=name,
                text=f"{held.spec.name}: {name} {fired.reason}. {quote(fired.items)}",
                source_name=held.spec.name,
                dedupe=f"{held.row.pk}:{name[:24]}:{fired.occurrence}"[:96],
                now=now,
            )
    return True


def _changed_columns(reading: Reading) -> dict[str, Any]:
    """Return what to change in the sensor's row. A late reading changes its signals, and what they say of its state."""
    changed: dict[str, Any] = {"signals": _with_spawns(reading)}
    state = SensorState.FAILING if reading.faults else SensorState.FINE
    if reading.late and reading.failing:
        return changed
    if reading.late:
        return changed | {"state": state, "problem": safe_text("; ".join(reading.faults))[:PROBLEM_CHARS]}
    changed |= {
        "state": state,
        "problem": "",
        "failures": 0,
        "read_at": reading.at,
        "cursor": dict(reading.cursor),
        "next_due_at": reading.next_due_at,
    }
    if reading.items:
        changed["value"] = preview(reading.items[-1])
    return changed


def _with_spawns(reading: Reading) -> dict[str, Any]:
    """Add the runs to spawn to the signals' state; `sensor_spawn` spawns them after the commit."""
    signals = {name: dict(state) for name, state in reading.signals.items()}
    if not any(signal.spawn for signal in reading.held.spec.signals):
        return signals
    for name, state in (_held_row(reading.held).values_list("signals", flat=True).first() or {}).items():
        if pending := state.get("spawns"):
            signals.setdefault(name, {})["spawns"] = pending
    for fired in reading.fired:
        if fired.signal.spawn:
            state = signals[fired.signal.name]
            spawn = {"trigger": fired.signal.spawn, "happening": fired.occurrence, "data": quote(fired.items)}
            state["spawns"] = [*state.get("spawns", []), spawn][-MOST_SPAWNS:]
    return signals


# --- Fields of the hot state ---


def _write_fields(reading: Reading, loop: AgentSession) -> Iterator[tuple[str, str]]:
    """Write each field that is due; yield its name and why it could not be written, if so."""
    for update in reading.held.spec.updates:
        if reading.unchanged and update.gated_by is None:  # a gated field may not hold what the source shows
            row = HotField.objects.filter(session=loop, name=update.field).first()
            if row is not None and row.value is not None and _set_field(reading, loop, update.field, row.value):
                yield update.field, ""  # the same value, fresh again
        elif items := _items_for(reading, update.gated_by):
            problem = _write_field(reading, items, loop, update)
            if problem is not None:
                yield update.field, problem


def _items_for(reading: Reading, gate: str | None) -> tuple[Any, ...]:
    """Return the data for a field; a gated field gets what was scored when its signal fires."""
    if gate is None:
        return () if reading.late else reading.items
    fired = next((one for one in reading.fired if one.signal.name == gate), None)
    if fired is None:
        return ()
    return reading.items if reading.held.spec.source.path is not None else fired.items


def _write_field(reading: Reading, items: Sequence[Any], loop: AgentSession, update: Update) -> str | None:
    """Return why the field was not written; empty when it was, None when the loop is over.

    A value replaces the one before; an array gets anything but a list appended, item by item.
    """
    held, name = reading.held, update.field
    spec = held.definition.hot_state.fields.get(name)
    try:
        value = _bounded(value_at_path(items[-1], update.path))
    except (PathNotFound, ValueError) as error:
        return f"{name}: {error}"
    if held.spec.source.path is not None and isinstance(value, list) and spec is not None and spec.max_items:
        value = value[: spec.max_items]  # changes have the newest first, while the hot state keeps the end of arrays
    appends = spec is not None and spec.type == "array" and not isinstance(value, list)
    if problem := hot_refusal(held.definition, name, [value] if appends else value):
        return problem
    return "" if _set_field(reading, loop, name, _appended(items, loop, update) if appends else value) else None


def _bounded(value: Any) -> Any:
    """Refuse or cut what is far too large, before time is spent on masking and storing it."""
    if isinstance(value, str):
        return json_safe(value[:VALUE_BYTES])
    if (size := len(json.dumps(value, default=str))) > ESCAPED * VALUE_BYTES:
        raise ValueError(f"the value is about {size} bytes long; the limit is {VALUE_BYTES}")
    return json_safe(value)


def _appended(items: Sequence[Any], loop: AgentSession, update: Update) -> list[Any]:
    """Return the array with the items appended; the oldest leave when it is full."""
    row = HotField.objects.select_for_update().filter(session=loop, name=update.field).first()
    values = [*(row.value or [] if row else []), *_parts(items, update.path)]
    left, start = VALUE_BYTES - 2, len(values)
    while start > 0 and (left := left - len(json.dumps(values[start - 1], default=str).encode()) - 1) >= 0:
        start -= 1
    return values[start:]


def _parts(items: Sequence[Any], path: str | None) -> Iterator[Any]:
    for item in items[-MOST_APPENDED:]:
        try:
            yield _bounded(value_at_path(item, path))
        except (PathNotFound, ValueError):
            continue


def _set_field(reading: Reading, loop: AgentSession, name: str, value: Any) -> bool:
    return hot_write(
        loop,
        definition=reading.held.definition,
        name=name,
        value=value,
        source=HotSource.SENSOR,
        source_name=reading.held.spec.name,
        now=reading.at,
    )


# --- Failures ---


def _write_failure(failure: Failure, loop: AgentSession) -> bool:
    held, now, problem = failure.held, failure.at, safe_text(failure.problem)[:PROBLEM_CHARS]
    changed: dict[str, Any] = {
        "state": SensorState.FAILING,
        "problem": problem,
        "failures": failure.failures,
        "next_due_at": failure.next_due_at,
    }
    if failure.cursor is not None:
        changed["cursor"] = dict(failure.cursor)
    if not _held_row(held).update(**changed):
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
    if failure.failures == FAILURES_BEFORE_NOTIFICATION:
        title = f"Sensor {held.spec.name} failed {failure.failures} times in a row"
        _notify(held, title, f"{problem}\n\nIt retries every {failure.wait_seconds:.0f} seconds.", loop, now)
    return True


def _notify(held: LeasedSensor, title: str, body: str, loop: AgentSession, now: datetime) -> None:
    """Notify the agent's owner."""
    agent = Agent.objects.get(pk=held.row.agent_id)
    notification_create(
        owner_id=agent.owner_id,
        kind=NoticeKind.SENSOR_FAILING,
        title=f"{agent.name}: {title}",
        body=f"{safe_text(body)}\n\nThis notification is sent once.",
        session_id=loop.pk,
        now=now,
    )


# --- Runs that signals spawn ---
#
# They are kept in the sensor's row until they are spawned, so a crash loses none; the slot of the trigger makes sure
# that none is spawned twice.


def sensor_spawn(held: LeasedSensor, *, now: datetime) -> int:
    """Fire the triggers that the sensor's signals asked for; return how many runs that spawned."""
    row = Sensor.objects.filter(pk=held.row.pk, fencing=held.row.fencing).first()
    if row is None:
        return 0
    spawned = 0
    for signal, state in row.signals.items():
        for spawn in state.get("spawns", []):
            spawned += _spawn(row, signal, spawn, now=now)
    rest = {name: {key: one for key, one in state.items() if key != "spawns"} for name, state in row.signals.items()}
    Sensor.objects.filter(pk=row.pk, fencing=held.row.fencing).update(signals=rest)
    return spawned


def _spawn(row: Sensor, signal: str, spawn: dict[str, Any], *, now: datetime) -> bool:
    agent = Agent.objects.select_related("owner").get(pk=row.agent_id)
    triggers = Trigger.objects.filter(agent=agent, name=spawn["trigger"], deleted_at__isnull=True)
    trigger = triggers.order_by("-pk").first()
    loop = loops_going().filter(agent=agent).order_by("-pk").first()
    if trigger is None or loop is None:
        error = f"the agent has no trigger {spawn['trigger']!r} to fire"
    else:
        occurrence = hashlib.sha256(f"{signal}:{spawn['happening']}".encode()).hexdigest()
        event = EventIn("sensor", row.name, signal, title=f"{row.name}: {signal}", data={"reading": spawn["data"]})
        answer = event_spawn(trigger, event, slot=f"sensor:{row.pk}:{occurrence[:48]}", parent=loop, now=now)
        if answer.session_id is not None:
            return answer.event_id is not None
        error = f"the trigger {trigger.name} did not fire: {answer.code}"
    event_emit(EventKind.SENSOR_ERROR, agent=agent, now=now, sensor=row.name, error=error)
    return False
