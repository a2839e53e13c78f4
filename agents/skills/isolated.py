"""A process for one call of one skill: reads what to do from its input, and writes that it begins and, in one line of
JSON, what came of it."""

import gc
import json
import sys
from datetime import datetime
from typing import Any
from uuid import UUID

import django

_OUT = sys.stdout


def main() -> None:
    django.setup()
    from agents.skills.registry import skill_named
    from agents.skills.skill import SkillContext

    told = json.load(sys.stdin)
    skill, given = skill_named(told["skill"]), told["context"]
    context = SkillContext(
        session_pk=given["session_pk"],
        session_id=UUID(given["session_id"]),
        owner_id=given["owner_id"],
        call_id=UUID(given["call_id"]),
        idempotency_key=given["idempotency_key"],
        now=datetime.fromisoformat(given["now"]),
        infer=_no_model,
    )
    _tell(told["mark"])
    try:
        if skill is None:
            raise LookupError(f"there is no skill {told['skill']} in this process")
        said = {"output": skill.run(context, **told["arguments"])}
        line = json.dumps(said)
    except BaseException as error:  # noqa: BLE001 whatever it is, the other side hears of it
        line = json.dumps({"error": f"{type(error).__name__}: {error}"})
    _tell(told["mark"] + line)
    gc.freeze()  # what is loaded goes with the process: its end looks through nothing for garbage


def _tell(line: str) -> None:
    """Beside whatever the skill prints, and at once: the process may not come to its end."""
    print(f"\n{line}", file=_OUT, flush=True)


def _no_model(*_: Any) -> Any:
    raise RuntimeError("a skill in a process of its own cannot ask a model; ask it in a skill without isolation")


if __name__ == "__main__":
    main()
