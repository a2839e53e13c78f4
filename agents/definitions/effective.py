"""What holds for an agent in the end: its text, what people have set since, and the installation's own below. Reads."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from agents.conf import default_session_cap, guardrails_defaults, loop_defaults, model_for
from agents.definitions.in_force import SETTLED, definition_of, definition_said
from agents.definitions.schema import AgentDefinition, Autonomy
from agents.models import Agent
from agents.policy.guardrails import GuardrailsConfig, LoopConfig

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
