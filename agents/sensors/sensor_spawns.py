"""Runs that signals ask for: one for each happening, after the reading that it fired on has been committed.

What is to be spawned stands on the sensor's row until it is; whoever carries it out twice finds the slot taken.
"""

import hashlib
import uuid
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from agents.enums import EventKind, EventOutcome, EventSeverity
from agents.models import Agent, AgentSession, InboundEvent, Sensor, Trigger
from agents.people.activity import event_emit
from agents.sensors.rows import Held, loops_of
from agents.triggers.firing import Fired, collection_params, trigger_fire
from agents.triggers.firing_limits import Refused

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
    params = {**collection_params(trigger.collection), "event": {"id": str(event_id)}}
    answer = trigger_fire(trigger=trigger, slot=slot, params=params, parent=loop, now=now)
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
