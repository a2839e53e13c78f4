"""`yield`: how an agent that paces itself ends its turn. Offered in the turns of loops alone.

It changes nothing by itself: the loop reads the last good call of the turn from the journal, and acts on it.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from agents.enums import Level
from agents.exceptions import Invalid
from agents.policy.guardrails import YIELD
from agents.skills.skill import Skill, skill

Name = Annotated[str, Field(min_length=1, max_length=64)]


@skill(name=YIELD, level=Level.SAFE, side_effects=False, local=True)
def yield_turn(
    mode: Annotated[
        Literal["continue", "sleep", "shutdown"],
        Field(description="continue: another turn at once. sleep: the next turn later. shutdown: no more turns."),
    ],
    sleep: Annotated[int | None, Field(gt=0, description="Seconds; needed for mode sleep.")] = None,
    wake_early_if: Annotated[
        list[Name] | None, Field(max_length=50, description="Names of alerts or events that end the sleep early.")
    ] = None,
    reason: Annotated[str, Field(max_length=2_000, description="Why, in a few words.")] = "",
) -> dict[str, Any]:
    """Ends your turn and says when the next one comes. The turn ends when the calls beside this one went well, too."""
    if mode == "sleep" and sleep is None:
        raise Invalid("Say for how many seconds: mode sleep needs sleep, a whole number above 0.")
    return {"yielded": mode}


LOOP_SKILLS: Final[dict[str, Skill]] = {yield_turn.name: yield_turn}
