"""What an agent's definition means: its text, read once, with what people have set on the agent itself since.

Reads only. agents.roster.files writes definitions; it stands apart because it makes triggers, and whatever
makes sessions asks here how they are to run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from agents.conf import default_session_cap, guardrails_defaults, loop_defaults, model_for
from agents.definitions.loader import in_order, read_definition
from agents.definitions.schema import AgentDefinition, Autonomy, DefinitionError, Problem
from agents.enums import AnalysisMode, ApprovalMode
from agents.models import Agent, AgentSession
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
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


# What holds for an agent in the end: its text, what people have set since, and the installation's own below. Reads.


# Who said so.
TEXT: Final = "its text"
PEOPLE: Final = "set here"
INSTALLATION: Final = "the installation"
DEFAULT: Final = "default"

_OF_THE_INSTALLATION: Final = frozenset({"model", "max_cost_usd"})
_SHOWN: Final = (
    "model",
    "mode",
    "enabled",
    "zone",
    "max_cost_usd",
    "max_cost_per_day_usd",
    "skills",
    "autonomy",
    "heartbeat",
    "loop",
    "guardrails",
)


@dataclass(frozen=True)
class Setting:
    """One setting that holds, by its place in the file, and who said so. None is none, or no limit."""

    key: str
    value: Any
    said_by: str


def effective_settings(agent: Agent) -> list[Setting]:
    """Raises DefinitionError for a text that can no longer be read."""
    definition = definition_of(agent)
    said = definition_said(agent.definition)
    known = definition.model_dump(mode="json", include=set(_SHOWN))
    known |= {
        "model": definition.model or model_for("main"),
        "max_cost_usd": str(default_session_cap() if definition.max_cost_usd is None else definition.max_cost_usd),
        "loop": asdict(LoopConfig.merged(loop_defaults(), definition.loop)),
        "guardrails": asdict(GuardrailsConfig.merged(guardrails_defaults(), definition.guardrails)),
    }
    return [
        Setting(key, value, _said_by(key, definition, said))
        for name in _SHOWN
        for key, value in _flat(name, known[name])
    ]


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        yield key, value


def _settled_by(key: str, definition: AgentDefinition, said: AgentDefinition) -> str:
    """Of what stands in a column: the text, if that is what it says; else people, if it is not as it was at first."""
    holds = getattr(definition, key)
    if key in said.model_fields_set and getattr(said, key) == holds:
        return TEXT
    at_first = key not in said.model_fields_set and getattr(Agent(), key) == holds
    return DEFAULT if at_first else PEOPLE


def _said_by(key: str, definition: AgentDefinition, said: AgentDefinition) -> str:
    section, _, name = key.partition(".")
    if key in SETTLED:
        return _settled_by(key, definition, said)
    if definition.line_of(key):
        return TEXT
    below = {"loop": loop_defaults(), "guardrails": guardrails_defaults()}.get(section, {})
    return INSTALLATION if name in below or key in _OF_THE_INSTALLATION else DEFAULT


def pace_of(definition: AgentDefinition) -> Autonomy:
    return definition.autonomy or Autonomy()


# How a run of steps is set: the installation's words, then its agent's, then its trigger's. The narrowest wins.
#
# What a trigger says was copied to the session when it was spawned; an agent's definition is read as it is now.


def loop_of(session: AgentSession, **unless_said: Any) -> LoopConfig:
    """How its steps run. What is `unless_said` holds where nobody has said otherwise."""
    return loop_for(session.agent, session.params, **unless_said)


def loop_for(agent: Agent | None, params: Mapping[str, Any], **unless_said: Any) -> LoopConfig:
    """The same, of a session that is about to be made."""
    defined = definition_of(agent).loop if agent else {}
    return LoopConfig.merged(unless_said, loop_defaults(), defined, params.get("loop") or {})


def walk_token_budget(agent: Agent | None, params: Mapping[str, Any]) -> int:
    """The token budget of a walk that is about to be made: of one that thinks in steps. 0 is no limit."""
    return loop_for(agent, params).token_budget if params.get("analysis_mode") == AnalysisMode.AGENTIC else 0


def guardrails_of(session: AgentSession) -> GuardrailsConfig:
    defined = definition_of(session.agent).guardrails if session.agent else {}
    return GuardrailsConfig.merged(guardrails_defaults(), defined, session.params.get("guardrails") or {})
