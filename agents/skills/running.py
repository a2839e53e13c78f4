"""Runs a skill: in the worker itself, in a thread, or in a process that can be killed.

A skill is abandoned when it exceeds its timeout or its run is halted. A thread cannot be killed: it is left behind, and
its worker is replaced after the current task, which ends the thread. A skill that must be killable declares a process.
"""

import contextvars
import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from django.db import connections

from agents.conf import isolation_is_strict
from agents.exceptions import OutcomeUnknown
from agents.queue import worker_retire
from agents.skills.limits import hint_of_code
from agents.skills.places import readable_places, without_private
from agents.skills.process import LINES, Ended, Exchange, own_folder, run_process
from agents.skills.skill import Skill, SkillContext
from agents.skills.system_calls import filter_of
from agents.types import ToolResult

MAX_PARALLEL = 8
LOOK_SECONDS = 0.25  # how often a halt is looked at
STOP_SECONDS = 0.5
MAX_ERROR_CHARS = 10_000
Result = TypeVar("Result")


class SkillTimeout(Exception):
    """A skill exceeded its timeout; it may still be running or have taken effect."""

    def __init__(self, skill: Skill) -> None:
        super().__init__(f"{skill.name} exceeded its timeout of {skill.timeout_seconds:g} s")


class SkillStopped(Exception):
    """The run was halted while the skill was at work; it may have taken effect."""


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
    try:
        _wait(skill, context, thread.join, thread.is_alive)
    except SkillStopped:
        thread.join(STOP_SECONDS)  # one that looks at `stopped`, or waits for a model, ends by itself
        if thread.is_alive():
            worker_retire()
            raise
    except SkillTimeout:
        worker_retire()
        raise
    return done.result()


def _wait(skill: Skill, context: SkillContext, wait: Callable[[float], object], is_at_work: Callable[[], bool]) -> None:
    """Wait until the skill has ended; raise if its time is over or its run is halted."""
    end = time.monotonic() + skill.timeout_seconds
    while is_at_work():
        if context.stopped():
            raise SkillStopped(f"The run was halted; {skill.name} was abandoned and may have taken effect.")
        left = end - time.monotonic()
        if left <= 0:
            raise SkillTimeout(skill)
        wait(min(left, LOOK_SECONDS))


def _in_process(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """Run the skill in a process of its own, where it cannot ask a model because the meter is here.

    The process writes a line when it starts the skill and a line with the result. If it ends in between, the outcome is
    unknown.
    """

    def wait(exchange: Exchange) -> None:
        _wait(skill, context, exchange.step, lambda: exchange.is_open)

    with own_folder() as folder:
        job = json.dumps(_job(skill, context, arguments, folder), default=str).encode()
        ended = run_process(job, folder=folder, variables=skill.variables, wait=wait)
    return _result(skill, ended)


def _job(skill: Skill, context: SkillContext, arguments: Mapping[str, Any], folder: str) -> dict[str, Any]:
    facts = {name: value for name, value in vars(context).items() if not callable(value)}
    return {
        "module": skill.module,
        "skill": skill.name,
        "arguments": dict(arguments),
        "context": {**facts, "now": str(facts["now"])},
        "limits": vars(skill.limits),
        "reads": readable_places(skill.module),
        "writes": [folder, os.devnull, *without_private(skill.folders)],
        "system_calls": b64encode(filter_of(may_start_processes=skill.limits.processes > 0)).decode(),
        "strict": isolation_is_strict(),
    }


def _result(skill: Skill, ended: Ended) -> Any:
    """Return the skill's output, or raise what its process says or its end means."""
    messages = [_message(line) for line in ended.lines]
    failed = next((message for message in messages if "error" in message), None)
    if failed:
        raise SkillFailed(_with_hint(str(failed["error"]), str(failed.get("hint", "")))[:MAX_ERROR_CHARS])
    why = _with_hint(f"code {ended.code}", hint_of_code(ended.code, skill.limits))
    if not messages or "started" not in messages[0]:
        raise SkillFailed(f"{skill.name} did not start: its process ended with {why}")
    if ended.wrote_too_much or (len(messages) == LINES and "output" not in messages[1]):
        raise OutcomeUnknown(f"{skill.name} wrote something that is not a result.")
    if len(messages) < LINES:
        raise OutcomeUnknown(f"{skill.name} ended with {why} without a result.")
    return messages[1]["output"]


def _message(line: bytes) -> dict[str, Any]:
    """Read a line of a process, which may be anything."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _with_hint(text: str, hint: str) -> str:
    return f"{text} ({hint})" if hint else text
