"""The tasks of the queue. Each takes one id and reads everything else from the rows."""

import logging
import os
import socket
from functools import partial

from django.db import connections, transaction

from agents import runner
from agents.ask.chats import chat
from agents.engine.indexing import run_index
from agents.enums import Mode
from agents.guard.selftest import arm
from agents.loop.cycle import run_loop
from agents.loop.heartbeat import run_heartbeat
from agents.queue import work_beside_others
from agents.runner import Engine
from agents.sensors.slice import run_sensor_session, run_slice
from agents.sessions.fairness import urgent_waits
from agents.walk.walk import walk

logger = logging.getLogger(__name__)

ENGINES: dict[str, Engine] = {
    Mode.PHASED: walk,
    Mode.CHAT: chat,
    Mode.LOOP: run_loop,
    Mode.HEARTBEAT: run_heartbeat,
    Mode.SENSOR: run_sensor_session,
    Mode.INDEX: run_index,
}


def prepare() -> None:
    """Test the brakes in a process that forks others: workers below it begin their first run without doing so.

    If that fails, each of them tests for itself, and works on nothing before the brakes refuse.
    """
    try:
        with transaction.atomic():
            pass  # a database that is away or locked is found out here, and not by each of the tests
        arm()
    except Exception:
        logger.warning("the brakes could not be tested yet; every worker does so before its first run", exc_info=True)
    finally:
        connections.close_all()  # none is shared by two processes


def run_session(session_pk: int) -> None:
    """Work on the session that is next; the id only says for which one the task was sent (0: for any)."""
    owner = f"{socket.gethostname()}:{os.getpid()}"[-96:]
    work = partial(runner.run_next, ENGINES, owner=owner)
    work_beside_others(work, lambda: partial(work, only_urgent=True) if urgent_waits() else None)


def sensor_slice(shard: int) -> None:
    run_slice(shard)
