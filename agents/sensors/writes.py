"""What sensors have read, into rows: many readings in one transaction, each under the fencing number of its holder.

The sensor's row comes first and decides: a slice that holds the sensor no longer writes nothing. Its cursor, the fields
of the hot state, the alerts and the events of a reading are committed together, so that after a crash the source is
read on from where its last effect stands. Nothing in a reading picks a field, a trigger or a call: the definition does.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from django.db import DatabaseError, transaction

from agents.enums import EventKind, NoticeKind, SensorState
from agents.loop.alerts import alert_push
from agents.models import Agent, AgentSession, Sensor
from agents.people.activity import event_emit
from agents.people.notifications import notice_create
from agents.sensors.rows import PROBLEM_CHARS, Held, loops_going
from agents.sensors.sensor_fields import fields_write
from agents.sensors.sensor_results import Failure, Reading, plain, quoted, shown
from agents.sessions.lifecycle import session_lock
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

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
