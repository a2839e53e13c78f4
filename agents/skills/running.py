"""Runs a skill: in the worker itself, in a thread, or in a process that can be killed.

A skill that exceeds its timeout is abandoned. A thread cannot be killed: it is left behind, and its worker is replaced
after the current task, which ends the thread. A skill that must be killable declares a process.
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

MAX_PARALLEL = 8
Result = TypeVar("Result")


class SkillTimeout(Exception):
    """A skill exceeded its timeout; it may still be running or have taken effect."""

    def __init__(self, skill: Skill) -> None:
        super().__init__(f"{skill.name} exceeded its timeout of {skill.timeout_seconds:g} s")


class SkillFailed(Exception):
    """A skill failed in its own process, or tried to end the process it ran in."""


def perform(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """Run a skill as it declares, and return its output."""
    if skill.local:
        return _contained(skill, context, arguments)
    if skill.isolation == "process":
        return _in_process(skill, context, arguments)
    return _in_thread(skill, context, arguments)


def run_parallel(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run functions in parallel and return their results in order. An error is raised after all have ended."""
    if len(works) == 1:
        return [works[0]()]
    with ThreadPoolExecutor(max_workers=min(MAX_PARALLEL, len(works) or 1), thread_name_prefix="group") as pool:
        futures = [pool.submit(contextvars.copy_context().run, _with_own_connection, work) for work in works]
    return [future.result() for future in futures]


def timed(work: Callable[[], ToolResult]) -> ToolResult:
    """Return a result with its duration, without the time it waited for a free thread."""
    started = time.monotonic()
    result = work()
    return replace(result, took_ms=round((time.monotonic() - started) * 1_000))


def _with_own_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()


def _contained(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """Run a skill; SystemExit and the like fail the call, not the worker. Ctrl-C still ends the worker."""
    try:
        return skill.run(context, **arguments)
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        raise SkillFailed(f"{skill.name} tried to end its process") from error


def _in_thread(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    done: Future[Any] = Future()
    here = contextvars.copy_context()

    def work() -> None:
        try:
            done.set_result(here.run(_contained, skill, context, arguments))
        except Exception as error:  # noqa: BLE001 raised again in the calling thread
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
    """Run the skill in a new interpreter, where it cannot ask a model because the meter is here.

    The process writes a line when it starts and a line with the result, each with a random mark that tells them from
    what the skill prints. If it ends in between, its outcome is unknown.
    """
    mark = uuid.uuid4().hex
    job = {
        "mark": mark,
        "skill": skill.name,
        "arguments": dict(arguments),
        "context": {name: value for name, value in vars(context).items() if name != "infer"},
    }
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "agents.skills.isolated"],
            input=json.dumps(job, default=str),
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
        raise SkillFailed(f"{skill.name} did not start: its process ended with code {answer.returncode}")
    if len(lines) == 1:
        raise OutcomeUnknown(f"{skill.name} ended with code {answer.returncode} without a result.")
    result = json.loads(lines[-1])
    if "error" in result:
        raise SkillFailed(result["error"])
    return result["output"]
