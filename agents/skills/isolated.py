"""A process for one call of one skill: reads what to do from its input, and writes one line of JSON."""

import json
import sys
from datetime import datetime
from typing import Any
from uuid import UUID

import django


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
    try:
        if skill is None:
            raise LookupError(f"there is no skill {told['skill']} in this process")
        said = {"output": skill.run(context, **told["arguments"])}
        line = json.dumps(said)
    except Exception as error:  # noqa: BLE001 whatever it is, the other side hears of it
        line = json.dumps({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write(f"\n{line}\n")


def _no_model(*_: Any) -> Any:
    raise RuntimeError("a skill in a process of its own cannot ask a model; ask it in a skill without isolation")


if __name__ == "__main__":
    main()
