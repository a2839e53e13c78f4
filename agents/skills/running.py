"""Carries a skill out: in the worker itself, in a thread beside it, or in a process that can be killed.

What is not done in its time is given up. A thread cannot be killed: it is left behind, and ends with its worker at the
latest. A skill that must be killable declares a process.
"""

import contextvars
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections

from agents.skills.skill import Skill, SkillContext

MOST_AT_ONCE = 8
Result = TypeVar("Result")


class SkillTimeout(Exception):
    """A skill was not done in its time; what it had begun may go on, or have taken effect."""

    def __init__(self, skill: Skill) -> None:
        super().__init__(f"{skill.name} exceeded its timeout of {skill.timeout_seconds:g} s")


class SkillFailed(Exception):
    """What a skill in a process of its own said when it failed."""


def perform(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    if skill.local:
        return skill.run(context, **arguments)
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


def _with_own_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()


def _in_thread(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    done: Future[Any] = Future()
    here = contextvars.copy_context()

    def work() -> None:
        try:
            done.set_result(here.run(skill.run, context, **arguments))
        except BaseException as error:  # noqa: BLE001 it is raised again where the skill was asked for
            done.set_exception(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name=f"skill-{skill.name}", daemon=True)
    thread.start()
    thread.join(skill.timeout_seconds)
    if not done.done():
        raise SkillTimeout(skill)
    return done.result()


def _in_process(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """The skill by its name in a fresh interpreter; it may ask no model there, for the meter is here."""
    told = {
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
            timeout=skill.timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SkillTimeout(skill) from None
    lines = answer.stdout.strip().splitlines()
    if answer.returncode != 0 or not lines:
        raise SkillFailed(f"{skill.name} ended with code {answer.returncode} and said nothing that can be read")
    said = json.loads(lines[-1])
    if "error" in said:
        raise SkillFailed(said["error"])
    return said["output"]
