"""The process of one isolated skill call: reads the call from standard input, and writes two lines of JSON.

Started by agents.skills.process with the process id of its caller and an environment of its own; ends with the caller.
It knows no settings and no database. Before it imports the skill's module it limits and confines itself. The first line
says that the skill starts, the second one is its result.
"""

import base64
import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib.machinery import PathFinder
from typing import Any
from uuid import UUID

from agents.process_end import end_with_parent
from agents.skills.confinement import confine
from agents.skills.limits import MAX_ERROR_CHARS, MAX_RESULT_BYTES, Limits, hint, set_limits
from agents.skills.skill import Skill, SkillContext
from agents.types import Fetched


def main() -> None:
    end_with_parent(int(sys.argv[1]))
    job = json.load(sys.stdin)
    out = _take_output()
    limits = Limits(**job["limits"])
    faults = _confined(job, limits)
    try:
        if job["strict"] and faults:
            raise NotConfined("; ".join(f"{what}: {reason}" for what, reason in faults.items()))
        skill = _skill(job["module"], job["skill"])
        context = _context(job["context"], int(sys.argv[2]))
        _write(out, json.dumps({"started": faults}))
        line = json.dumps({"output": skill.run(context, **job["arguments"])})
        if len(line) > MAX_RESULT_BYTES:
            raise TooLong(f"its result has {len(line):,} characters; {MAX_RESULT_BYTES:,} are allowed")
    except BaseException as error:  # noqa: BLE001 every error is reported to the caller
        error.__traceback__ = None  # what it holds may be all memory that there is
        words = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS]
        line = json.dumps({"error": words, "hint": hint(error, limits)})
    _write(out, line)


class NotConfined(Exception):
    """The system does not allow a protection, and the installation insists on all."""


class TooLong(Exception):
    """A skill returned more than is passed on."""


def _take_output() -> int:
    """Keep the way back for results: what the skill prints goes nowhere."""
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return out


def _confined(job: Mapping[str, Any], limits: Limits) -> dict[str, str]:
    """Limit and confine this process. Return what is not protected and why."""
    for place in sys.path:
        PathFinder.find_spec("no_module", [place])  # lists the folder, which is not possible later
    not_limited = set_limits(limits)
    faults = confine(
        reads=job["reads"], writes=job["writes"], system_calls=base64.b64decode(job["system_calls"].encode())
    )
    return {**({"limits": not_limited} if not_limited else {}), **faults}


def _skill(module: str, name: str) -> Skill:
    for declared in vars(importlib.import_module(module)).values():
        if isinstance(declared, Skill) and declared.name == name:
            return declared
    raise LookupError(f"the module {module} holds no skill {name}")


def _context(facts: Mapping[str, Any], connection: int) -> SkillContext:
    return SkillContext(
        **{
            **facts,
            "session_id": UUID(facts["session_id"]),
            "call_id": UUID(facts["call_id"]),
            "now": datetime.fromisoformat(facts["now"]),
            "infer": _no_model,
            "fetch": Web(connection).fetch,
        }
    )


class NotFetched(Exception):
    """The worker did not fetch something; the message says why."""


class Web:
    """The way to the web: the worker fetches. One request at a time."""

    def __init__(self, connection: int) -> None:
        os.set_inheritable(connection, False)  # noqa: FBT003 its interface
        self._answers = open(connection, "rb", closefd=False)  # noqa: SIM115 open until this process ends
        self._requests = open(connection, "wb", closefd=False)  # noqa: SIM115
        self._lock = threading.Lock()

    def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, content: bytes | str = b""
    ) -> Fetched:
        sent = content.encode() if isinstance(content, str) else content
        asked = {"url": url, "method": method, "headers": dict(headers or {})}
        line = b""
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):
            self._requests.write(json.dumps({**asked, "content": base64.b64encode(sent).decode()}).encode() + b"\n")
            self._requests.flush()
            line = self._answers.readline()
        if not line:
            raise NotFetched("the worker does not answer; a request may have at most 1 MB")
        answer = json.loads(line)
        if "error" in answer:
            raise NotFetched(answer["error"])
        return Fetched(**{**answer, "content": base64.b64decode(answer["content"])})


def _no_model(*_: Any) -> Any:
    """Stand in for the way to a model, which is in the worker."""
    raise RuntimeError("an isolated skill cannot ask a model; declare it with isolation='thread'")


def _write(out: int, line: str) -> None:
    """Write a line at once: the process may not end normally."""
    left = f"{line}\n".encode(errors="replace")
    while left:
        left = left[os.write(out, left) :]
