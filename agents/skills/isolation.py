"""A call of an isolated skill: what its process is told, what its answer means, and what it cannot do here.

The process writes a line when it starts the skill and a line with the result. If it ends in between, the outcome is
unknown.
"""

import json
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.exceptions import OutcomeUnknown
from agents.skills.fetching import fetch_desk
from agents.skills.limits import MAX_ERROR_CHARS, hint_of_code
from agents.skills.places import readable_places, without_private
from agents.skills.process import LINES, Ended, Exchange, own_folder, run_process
from agents.skills.skill import Skill, SkillContext
from agents.skills.system_calls import filter_of


class SkillFailed(Exception):
    """A skill failed in its own process, or tried to end the process it ran in."""


@dataclass(frozen=True)
class Answer:
    """The output of a skill, and the protections that its process lacked, with the reasons."""

    output: Any
    unprotected: Mapping[str, str]


def call_isolated(
    skill: Skill,
    context: SkillContext,
    arguments: Mapping[str, Any],
    *,
    strict: bool,
    wait: Callable[[Exchange], None],
) -> Answer:
    """Run a skill in a process of its own. `strict`: not if a protection is lacking."""
    with own_folder() as folder, fetch_desk(context.fetch) as (desk, connection):
        job = {**_job(skill, context, folder), "arguments": dict(arguments), "strict": strict}
        sent = json.dumps(job, default=str).encode()
        ended = run_process(
            sent, folder=folder, variables=skill.variables, limits=skill.limits, connection=connection, wait=wait
        )
    try:
        return _answer(skill, ended)
    except SkillFailed as failed:
        if desk.unknown:
            raise OutcomeUnknown(f"{desk.unknown} Then {skill.name} failed: {failed}") from None
        raise


def _job(skill: Skill, context: SkillContext, folder: str) -> dict[str, Any]:
    return {
        "module": skill.module,
        "skill": skill.name,
        "context": {name: value for name, value in vars(context).items() if not callable(value)},
        "limits": vars(skill.limits),
        "reads": readable_places(skill.module),
        "writes": [folder, os.devnull, *without_private(skill.folders)],
        "system_calls": b64encode(filter_of(may_start_processes=skill.limits.processes > 0)).decode(),
    }


def _answer(skill: Skill, ended: Ended) -> Answer:
    """Return the answer, or raise what the process says or its end means."""
    messages = [_message(line) for line in ended.lines]
    failed = next((message for message in messages if "error" in message), None)
    if failed:
        raise SkillFailed(_with_hint(str(failed["error"]), str(failed.get("hint", "")))[:MAX_ERROR_CHARS])
    why = _with_hint(f"code {ended.code}", ended.limit_reached or hint_of_code(ended.code, skill.limits))
    if not messages or "started" not in messages[0]:
        raise SkillFailed(f"{skill.name} did not start: its process ended with {why}")
    if ended.wrote_too_much or (len(messages) == LINES and "output" not in messages[1]):
        raise OutcomeUnknown(f"{skill.name} wrote something that is not a result.")
    if len(messages) < LINES:
        raise OutcomeUnknown(f"{skill.name} ended with {why} without a result.")
    return Answer(messages[1]["output"], messages[0]["started"])


def _message(line: bytes) -> dict[str, Any]:
    """Read a line of a process, which may be anything."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _with_hint(text: str, hint: str) -> str:
    return f"{text} ({hint})" if hint else text
