"""Runs a skill: in the worker itself, in a thread, or in a process that can be killed.

A skill is abandoned when it exceeds its timeout or its run is halted. A thread cannot be killed: it is left behind, and
its worker is replaced after the current task, which ends the thread. A skill that must be killable declares a process.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from django.db import connections

from agents.conf import isolation_is_strict
from agents.queue import worker_retire
from agents.skills.fetching import Fetcher
from agents.skills.isolation import Answer, SkillFailed, call_isolated
from agents.skills.process import Exchange
from agents.skills.skill import Skill, SkillContext
from agents.types import ToolResult

MAX_PARALLEL = 8
LOOK_SECONDS = 0.25  # how often a halt is looked at
STOP_SECONDS = 0.5
Result = TypeVar("Result")


class SkillTimeout(Exception):
    """A skill exceeded its timeout; it may still be running or have taken effect."""

    def __init__(self, skill: Skill) -> None:
        super().__init__(f"{skill.name} exceeded its timeout of {skill.timeout_seconds:g} s")


class SkillStopped(Exception):
    """The run was halted while the skill was at work; it may have taken effect."""


def perform(
    skill: Skill, context: SkillContext, arguments: Mapping[str, Any], *, check: Callable[[str], None] | None = None
) -> Any:
    """Run a skill as it declares, and return its output. `check` refuses addresses that its secrets may not go to."""
    if skill.local:
        return _contained(skill, context, arguments)
    context = replace(context, fetch=Fetcher(skill, arguments, check=check))
    if skill.isolation == "process":
        return run_isolated(skill, context, arguments, strict=isolation_is_strict()).output
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


def run_isolated(skill: Skill, context: SkillContext, arguments: Mapping[str, Any], *, strict: bool) -> Answer:
    """Run a skill in a process of its own, where it cannot ask a model because the meter is here."""

    def wait(exchange: Exchange) -> None:
        _wait(skill, context, exchange.step, lambda: exchange.is_open)

    return call_isolated(skill, context, arguments, strict=strict, wait=wait)
