"""The process of one skill call: reads the call from standard input, and writes a start line and a result line.

Started by agents.skills.running as `python -m agents.skills.isolated <process id of the caller>`; ends with the caller.
"""

import gc
import json
import sys
from typing import Any

import django
from pydantic import TypeAdapter

from agents.process_end import end_with_parent

_OUT = sys.stdout


def main() -> None:
    django.setup()
    from agents.skills.registry import skill_named
    from agents.skills.skill import SkillContext

    job = json.load(sys.stdin)
    skill = skill_named(job["skill"])
    context = TypeAdapter(SkillContext).validate_python({**job["context"], "infer": _no_model})
    _write(job["mark"])
    try:
        if skill is None:
            raise LookupError(f"there is no skill {job['skill']} in this process")
        line = json.dumps({"output": skill.run(context, **job["arguments"])})
    except BaseException as error:  # noqa: BLE001 every error is reported to the caller
        line = json.dumps({"error": f"{type(error).__name__}: {error}"})
    _write(job["mark"] + line)
    gc.freeze()  # saves a garbage collection at exit


def _write(line: str) -> None:
    """Write a line of our own at once: the process may not end normally."""
    print(f"\n{line}", file=_OUT, flush=True)


def _no_model(*_: Any) -> Any:
    raise RuntimeError("a skill with process isolation cannot ask a model; declare it without isolation")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    main()
