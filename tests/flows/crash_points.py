"""Kills a process with SIGKILL at the n-th point of a story: just before or after a commit or an effect.

Nothing in the product knows of it. The commits and the statements of the database connections are watched from here; a
point is named after what the transaction wrote, audit rows by their kind.
"""

import os
import re
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test import override_settings

from agents import database_clock
from agents.conf import clock
from agents.ledger import at_once
from audit.kinds import KINDS
from tests.flows.processes import PATIENCE, _forking, database_url
from tests.flows.story import START, Outside, Story, told

WRITE = re.compile(r'\s*(?:WITH head AS .*written AS \()?(INSERT INTO|UPDATE|DELETE FROM) "?(\w+)"?')
WRITES = re.compile(r"(INSERT INTO|(?<!KEY )UPDATE) (\w+)")
LATER = timedelta(minutes=3)  # every lease of the killed process is over, and nothing else is late
ASIDE = ("heartbeat-", "halt-watch")  # threads that write, or read, whenever they like

# The points that every run of the story passes, by a part of what is written at them.
NAMED = {
    "event kept": "INSERT agents_inboundevent",
    "trigger fired, session row": "INSERT agents_agentsession",
    "task queued": "INSERT django_q_ormq",
    "claim": "autonomous_session.started",
    "claim of a session that rested": "autonomous_session.resumed",
    "inputs recorded": "session.inputs",
    "phase change": "autonomous_session.phase_transition",
    "model call reserved": "UPDATE agents_budget",
    "model call sent": "the model is asked",
    "model reply received": "the model was asked",
    "model call settled": "INSERT agents_inferencelog",
    "reply saved": "INSERT agents_message",
    "verdict and call saved": "INSERT agents_toolcall",
    "call settled": "UPDATE agents_toolcall",
    "approval asked": "approval.requested",
    "approval decided": "approval.approved",
    "approval consumed, tool reserved": "approval.consumed",
    "tool dispatched": "the tool acts",
    "tool returned, not saved": "the tool acted",
    "finding saved": "INSERT agents_finding",
    "memory saved": "INSERT agents_memory",
    "hot state written": "agents_hotfield",
    "turn opened": "INSERT agents_turn",
    "turn closed": "UPDATE agents_turn",
    "outbox row": "INSERT agents_outboxmessage",
    "outbox claimed and marked": "UPDATE agents_outboxmessage",
    "outbox sent": "the mail",
    "session finished, receipt saved": "autonomous_session.completed",
    "halt set": "autonomous_session.halt_requested",
    "all work halted": "organisation.halted",
    "all work released": "organisation.released",
    "task acknowledged": "DELETE django_q_ormq",
    "retention": "DELETE agents_agentevent",
}


class Points:
    """The points that were passed so far; at number `kill_at` the process ends."""

    def __init__(self, kill_at: int | None) -> None:
        self.kill_at = kill_at
        self.passed: list[str] = []
        self._writes: list[str] = []

    def reach(self, label: str) -> None:
        self.passed.append(label)
        if len(self.passed) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, original: Callable, cursor: CursorWrapper, sql: str, params, *ignored):
        written = WRITE.match(sql)
        if written is None or _is_aside():
            return original(cursor, sql, params, *ignored)
        what = _named(written[1].split()[0], written[2], params)
        if cursor.db.in_atomic_block:
            self._writes.append(what)
            return original(cursor, sql, params, *ignored)
        self.reach(f"before {what}")
        result = original(cursor, sql, params, *ignored)
        self.reach(f"after {what}")
        return result

    def execute_at_once(self, original: Callable, sql: str, params, *more, **how):
        """A statement that the driver is given directly: several writes, by themselves or in a transaction."""
        writes = [f"{verb.split()[0]} {table}" for verb, table in WRITES.findall(sql)]
        if connection.in_atomic_block or not writes:
            self._writes += writes
            return original(sql, params, *more, **how)
        what = ", ".join([params["kind"], *dict.fromkeys(writes)])
        self.reach(f"before {what}")
        result = original(sql, params, *more, **how)
        self.reach(f"after {what}")
        return result

    def commit(self, original: Callable, connection: BaseDatabaseWrapper) -> None:
        what = ", ".join(dict.fromkeys(self._writes))
        if not what or _is_aside():
            original(connection)
            return
        self._writes.clear()
        self.reach(f"before {what}")
        original(connection)
        self.reach(f"after {what}")

    def rollback(self, original: Callable, connection: BaseDatabaseWrapper) -> None:
        if not _is_aside():
            self._writes.clear()
        original(connection)


class RenewalPoints(Points):
    """Kills the process when its heartbeat renews the lease, while the model is being asked."""

    def __init__(self, when: str) -> None:
        super().__init__(None)
        self._when = when

    def reach(self, label: str) -> None:
        if "the model" in label:
            threading.Event().wait(PATIENCE)

    def execute(self, original: Callable, cursor: CursorWrapper, sql: str, params, *ignored):
        renews = threading.current_thread().name.startswith("heartbeat-") and WRITE.match(sql)
        if renews and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(cursor, sql, params, *ignored)
        if renews:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def _is_aside() -> bool:
    return threading.current_thread().name.startswith(ASIDE)


def _named(verb: str, table: str, params) -> str:
    if table == "audit_auditevent":
        given = [params["kind"]] if isinstance(params, dict) else params
        return next(str(one) for one in given if one in KINDS)
    return f"{verb} {table}"


def drive(story: Story, folder: Path, points: Points, line) -> None:
    """Tell the story in this process, watched; say which points were passed."""

    def watched(watch: Callable, original: Callable) -> Callable:
        return lambda *arguments, **how: watch(original, *arguments, **how)

    with (
        patch.object(CursorWrapper, "_execute", watched(points.execute, CursorWrapper._execute)),
        patch.object(BaseDatabaseWrapper, "_commit", watched(points.commit, BaseDatabaseWrapper._commit)),
        patch.object(BaseDatabaseWrapper, "_rollback", watched(points.rollback, BaseDatabaseWrapper._rollback)),
        patch.object(at_once, "run_on_postgres", watched(points.execute_at_once, at_once.run_on_postgres)),
        patch.object(at_once, "run_on_sqlite", watched(points.execute_at_once, at_once.run_on_sqlite)),
        patch.object(Outside, "passed", points.reach),
        patch.object(database_clock, "_ask", clock),  # the time of the story is no time of PostgreSQL's
        override_settings(LQOPS_HEARTBEAT_SECONDS=0.01 if isinstance(points, RenewalPoints) else 60),
        told(folder / "effects") as time,
    ):
        story.drive(_Noted(time, folder))
    line.send(points.passed)


class _Noted:
    """A clock that leaves a note of the time, for the process that comes after."""

    def __init__(self, time, folder: Path) -> None:
        self._time = time
        self._folder = folder

    def shift(self, by) -> None:
        self._time.shift(by)
        (self._folder / "clock").write_text(clock().isoformat())


def run(story: Story, folder: Path, points: Points) -> list[str] | None:
    """Tell the story in a process of its own; return the points it passed, or None if it was killed."""
    ours, theirs = _forking.Pipe()
    process = _forking.Process(target=drive, args=(story, folder, points, theirs))
    with patch.dict(os.environ, LQOPS_TEST_DATABASE_URL=database_url()):
        process.start()
    theirs.close()
    try:
        passed = ours.recv() if ours.poll(PATIENCE) else []
    except EOFError:
        passed = None
    process.join(PATIENCE)
    assert process.exitcode == (0 if passed is not None else -signal.SIGKILL), f"it left with {process.exitcode}"
    return passed


def go_on(story: Story, folder: Path) -> list[str]:
    """Go on with the story of a process that was killed; return what came out wrong."""
    noted = folder / "clock"
    stopped = datetime.fromisoformat(noted.read_text()) if noted.exists() else START
    with told(folder / "effects", at=stopped + LATER) as time:
        story.drive(time)
    return story.faults()
