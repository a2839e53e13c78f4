"""What an agent's definition means: its text, read once, with what people have set on the agent itself since.

Reads only. agents.roster.files writes definitions; it stands apart because it makes triggers, and whatever
makes sessions asks here how they are to run.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Final

from agents.definitions.loader import DefinitionError, Problem, in_order, read_definition
from agents.definitions.schema import AgentDefinition
from agents.enums import ApprovalMode
from agents.models import Agent
from audit.redaction import redact

# What stands in columns of the agent, because people and brakes go by it without reading any text.
SETTLED: Final = ("name", "mode", "enabled", "max_cost_per_day_usd")
_KEPT: Final = 64


def definition_of(agent: Agent) -> AgentDefinition:
    """What holds for the agent now. One without a text has a bare definition: it starts nothing by itself."""
    settled = {name: getattr(agent, name) for name in SETTLED}
    return definition_said(agent.definition).model_copy(update={**settled, "mode": ApprovalMode(agent.mode)})


@lru_cache(maxsize=_KEPT)
def definition_said(text: str) -> AgentDefinition:
    """What a kept text says, whatever people have set since."""
    return read_definition(text)


def definition_checked(text: str, *, file: str, name: str = "") -> AgentDefinition:
    """A text that may be kept. What looks like a secret is refused, also in a comment: the text is shown to people."""
    found = _secrets(text, file)
    try:
        definition = read_definition(text, file=file, name=name)
    except DefinitionError as error:
        raise DefinitionError(in_order((*error.problems, *found)), rest=error.rest) from None
    if not definition.lines:
        found.append(Problem(file, 1, "", "the keys of an agent, such as name and instructions", "nothing"))
    if found:
        broken = [problem for sensor in definition.broken_sensors for problem in sensor.problems]
        raise DefinitionError(in_order((*broken, *found)), rest=definition)
    return definition


def definition_drift(agent: Agent) -> list[str]:
    """Where people have set the agent otherwise than its text says."""
    said = definition_said(agent.definition)
    drifted = [
        name for name in SETTLED if name in said.model_fields_set and getattr(said, name) != getattr(agent, name)
    ]
    return [
        f"{name} is {_word(getattr(agent, name))} here, and {_word(getattr(said, name))} in its text"
        for name in drifted
    ]


def _word(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return str(value).lower() if isinstance(value, bool) else "empty" if value is None else str(value)


def _secrets(text: str, file: str) -> list[Problem]:
    wanted = "no secrets: this looks like one; where a skill takes one, name its handle, {$secret: name}"
    masked = redact(text)
    if masked == text:
        return []
    lines = [number for number, line in enumerate(text.splitlines(), 1) if redact(line) != line]
    if not lines:  # one that goes over several lines, such as a private key
        same = next(place for place, letter in enumerate(text) if masked[place : place + 1] != letter)
        lines = [text.count("\n", 0, same) + 1]
    return [Problem(file, line, "", wanted) for line in lines]
