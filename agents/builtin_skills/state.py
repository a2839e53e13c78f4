"""What an agent keeps of its own from one turn to the next, in fields that were declared for it."""

from typing import Annotated, Any

from pydantic import Field, JsonValue

from agents.enums import Level
from agents.loop.states import NAME_CHARS, session_set_state
from agents.skills.skill import SkillContext, skill


@skill(level=Level.CONTROLLED, idempotent=True, local=True)
def set_state(
    context: SkillContext,
    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS, description="A field that was declared for you.")],
    value: Annotated[JsonValue, Field(description="What it is to hold; null empties it.")],
) -> dict[str, Any]:
    """Sets one field of your own state, which you will see again in later turns. Only declared fields can be set."""
    return {"state": session_set_state(context.session_pk, name=name, value=value, now=context.now)}
