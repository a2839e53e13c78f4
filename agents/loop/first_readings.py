"""The wait of a loop's first turn for the first readings of its sensors.

A turn that runs before any sensor has read sees nothing, and is paid for all the same.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from agents.definitions.schema import Autonomy
from agents.enums import SensorState
from agents.models import Agent, AgentSession, Alert, Sensor

LONGEST: Final = timedelta(seconds=60)
LOOK_AGAIN: Final = timedelta(seconds=2)


@dataclass(frozen=True)
class ReadingsWait:
    until: datetime  # when the loop looks again
    why: str


def wait_for_readings(session: AgentSession, agent: Agent, limits: Autonomy, *, now: datetime) -> ReadingsWait | None:
    """Return how long the first turn waits; None when it begins.

    It begins when all sensors have read or failed, when an alert came, or when the time is up.
    """
    deadline = session.created_at + LONGEST
    if limits.start == "at_once" or now >= deadline or Alert.objects.pending().filter(session=session).exists():
        return None
    unread = Sensor.objects.filter(agent=agent, wanted=True, state=SensorState.WAITING).order_by("name")
    names = list(unread.values_list("name", flat=True))
    if not names:
        return None
    return ReadingsWait(min(now + LOOK_AGAIN, deadline), f"Its first turn waits for readings of {', '.join(names)}.")
