"""The tasks of the queue. Each takes one id and reads everything else from the rows."""

import os
import socket
from functools import partial

from agents import runner
from agents.ask.chats import chat
from agents.engine.indexing import run_index
from agents.enums import Mode
from agents.loop.cycle import run_loop
from agents.loop.heartbeat import run_heartbeat
from agents.queue import work_beside_others
from agents.runner import Engine
from agents.sensors.slice import run_sensor_session, run_slice
from agents.sessions.fairness import urgent_waits
from agents.walk.walk import walk

ENGINES: dict[str, Engine] = {
    Mode.PHASED: walk,
    Mode.CHAT: chat,
    Mode.LOOP: run_loop,
    Mode.HEARTBEAT: run_heartbeat,
    Mode.SENSOR: run_sensor_session,
    Mode.INDEX: run_index,
}


def run_session(session_pk: int) -> None:
    """Work on the session that is next; the id only says for which one the task was sent (0: for any)."""
    owner = f"{socket.gethostname()}:{os.getpid()}"[-96:]
    work = partial(runner.run_next, ENGINES, owner=owner)
    work_beside_others(work, lambda: partial(work, only_urgent=True) if urgent_waits() else None)


def sensor_slice(shard: int) -> None:
    run_slice(shard)
