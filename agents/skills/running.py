"""Carries a skill out: in the worker itself, in a thread beside it, or in a process that can be killed.

What is not done in its time is given up. A thread cannot be killed: it is left behind, and its worker is replaced when
the task at hand is over, which ends the thread. A skill that must be killable declares a process.
"""

import contextvars
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from django.db import connections

from agents.exceptions import OutcomeUnknown
from agents.queue import worker_retire
from agents.skills.skill import Skill, SkillContext
from agents.types import ToolResult

MOST_AT_ONCE = 8
Result = TypeVar("Result")


class SkillTimeout(Exception):
    """A skill was not done in its time; what it had begun may go on, or have taken effect."""

    def __init__(self, skill: Skill) -> None:
        super().__init__(f"{skill.name} exceeded its timeout of {skill.timeout_seconds:g} s")


class SkillFailed(Exception):
    """What a skill said when it failed, in a process of its own, or by something that would end a process."""


def perform(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    if skill.local:
        return _contained(skill, context, arguments)
    if skill.isolation == "process":
        return _in_process(skill, context, arguments)
    return _in_thread(skill, context, arguments)


def at_once(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Does all of them side by side, in order of their results. What one raises is raised when all have ended."""
    if len(works) == 1:
        return [works[0]()]
    with ThreadPoolExecutor(max_workers=min(MOST_AT_ONCE, len(works) or 1), thread_name_prefix="group") as pool:
        futures = [pool.submit(contextvars.copy_context().run, _with_own_connection, work) for work in works]
    return [future.result() for future in futures]


def timed(work: Callable[[], ToolResult]) -> ToolResult:
    """What came of it, with the time that it took; not that for which it waited for others to make room."""
    started = time.monotonic()
    result = work()
    return replace(result, took_ms=round((time.monotonic() - started) * 1_000))


def _with_own_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()


def _contained(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """A skill that ends itself (SystemExit and the like) has failed; it ends no worker. Ctrl-C is not the skill's."""
    try:
        return skill.run(context, **arguments)
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        raise SkillFailed(f"{skill.name} ended itself") from error


def _in_thread(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    done: Future[Any] = Future()
    here = contextvars.copy_context()

    def work() -> None:
        try:
            done.set_result(here.run(_contained, skill, context, arguments))
        except Exception as error:  # noqa: BLE001 it is raised again where the skill was asked for
            done.set_exception(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name=f"skill-{skill.name}", daemon=True)
    thread.start()
    thread.join(skill.timeout_seconds)
    if not done.done():
        worker_retire()
        raise SkillTimeout(skill)
    return done.result()


def _in_process(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """The skill by its name in a fresh interpreter; it may ask no model there, for the meter is here.

    What it tells is known from what the skill prints by a mark at the beginning of the line: that it begins, and what
    came of it. If it dies in between, nobody knows what it did.
    """
    mark = uuid.uuid4().hex
    told = {
        "mark": mark,
        "skill": skill.name,
        "arguments": dict(arguments),
        "context": {
            "session_pk": context.session_pk,
            "session_id": str(context.session_id),
            "owner_id": context.owner_id,
            "call_id": str(context.call_id),
            "idempotency_key": context.idempotency_key,
            "now": context.now.isoformat(),
        },
    }
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "agents.skills.isolated"],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=skill.timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SkillTimeout(skill) from None
    lines = [line.removeprefix(mark) for line in answer.stdout.split("\n") if line.startswith(mark)]
    if not lines:
        raise SkillFailed(f"{skill.name} did not begin: its process ended with code {answer.returncode}")
    if len(lines) == 1:
        raise OutcomeUnknown(f"{skill.name} ended with code {answer.returncode} and did not say what came of it.")
    said = json.loads(lines[-1])
    if "error" in said:
        raise SkillFailed(said["error"])
    return said["output"]
