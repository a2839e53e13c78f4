"""The engine of sensor sessions outside of slices: one whose day is over, or whose loop has stopped, ends."""

from agents.conf import clock
from agents.models import AgentSession
from agents.sensors.sensor_sessions import DAY, day_of, end_of_day, is_needed
from agents.types import Asleep, End, Finished


def sensor_day(session: AgentSession) -> End:
    now = clock()
    return Asleep(end_of_day(now)) if session.params[DAY] == day_of(now) and is_needed(session) else Finished()
