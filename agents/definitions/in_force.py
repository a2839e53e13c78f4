"""The definition in force for an agent: its text, with what people have set on the agent since.

Reads only; agents.roster.files writes definitions. Also resolves the settings of a run: installation, agent, trigger.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from django.conf import settings

from agents.conf import default_session_cap
from agents.definitions.catalogue import model_for
from agents.definitions.loader import read_definition, sort_problems
from agents.definitions.schema import MONTH_CAP, AgentDefinition, Autonomy, DefinitionError, Problem
from agents.enums import AnalysisMode, ApprovalMode, BudgetPeriod, BudgetScope
from agents.models import Agent, AgentSession, Cap, Project
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from audit.redaction import redact

# Settings that are columns of the agent, because people and brakes use them without reading the text.
COLUMN_SETTINGS: Final = ("name", "mode", "enabled", "max_cost_per_day_usd")
CACHED_DEFINITIONS: Final = 64


def definition_of(agent: Agent) -> AgentDefinition:
    """Return the definition in force, but for the cap per month, which is the text's.

    An agent without a text has an empty definition, which starts nothing.
    """
    columns = {name: getattr(agent, name) for name in COLUMN_SETTINGS}
    return stored_definition(agent.definition).model_copy(update={**columns, "mode": ApprovalMode(agent.mode)})


def project_of(agent: Agent | None) -> Project | None:
    """Return the project that the agent works for: its owner's only one of the name in its definition."""
    try:
        name = definition_of(agent).project if agent else None
    except DefinitionError:  # its runs say so
        return None
    rows = list(Project.objects.filter(owner_id=agent.owner_id, name=name)[:2]) if agent and name else []
    return rows[0] if len(rows) == 1 else None


@lru_cache(maxsize=CACHED_DEFINITIONS)
def stored_definition(text: str) -> AgentDefinition:
    """Return the definition in a stored text, without later changes by people."""
    return read_definition(text)


def checked_definition(text: str, *, file: str, name: str = "") -> AgentDefinition:
    """Return the definition of a text that may be stored.

    What looks like a secret is refused, even in a comment, because people can read the text. So is a trigger without a
    playbook or a skill; texts that were stored before stay readable.
    """
    found = _secrets(text, file)
    try:
        definition = read_definition(text, file=file, name=name)
    except DefinitionError as error:
        wrong = {problem.key.partition(".")[0] for problem in error.problems}  # a misspelt key may be the missing one
        without = _without_target(error.rest, file) if error.rest else ()
        found += [problem for problem in without if problem.key.partition(".")[0] not in wrong]
        raise DefinitionError(sort_problems((*error.problems, *found)), rest=error.rest) from None
    if definition.lines.keys() == {""}:
        found.append(Problem(file, 1, "", "the keys of an agent, such as name and instructions", "nothing"))
    found += _without_target(definition, file)
    if found:
        broken = [problem for sensor in definition.broken_sensors for problem in sensor.problems]
        raise DefinitionError(sort_problems((*broken, *found)), rest=definition)
    return definition


def definition_drift(agent: Agent) -> list[str]:
    """Return the settings where the agent differs from its text, one sentence each."""
    stored = stored_definition(agent.definition)
    here: dict[str, Any] = {name: getattr(agent, name) for name in COLUMN_SETTINGS if name in stored.model_fields_set}
    if MONTH_CAP in stored.model_fields_set:
        here[MONTH_CAP] = _month_cap(agent)
    return [
        f"{name} is {_format(value)} here, and {_format(getattr(stored, name))} in its text"
        for name, value in here.items()
        if getattr(stored, name) != value
    ]


def _month_cap(agent: Agent) -> Decimal | None:
    caps = Cap.objects.filter(scope=BudgetScope.AGENT, subject_id=agent.pk, period=BudgetPeriod.MONTH)
    return caps.values_list("cap_usd", flat=True).first()


def _format(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return str(value).lower() if isinstance(value, bool) else "empty" if value is None else str(value)


def _without_target(definition: AgentDefinition, file: str) -> Iterator[Problem]:
    for number, trigger in enumerate(definition.triggers):
        if not trigger.playbook and not trigger.skill:
            place = f"triggers[{number}]"
            expected = "a playbook or a skill to check against"
            yield Problem(file, definition.lines.get(place, 0), f"{place}.playbook", expected, "nothing")


def _secrets(text: str, file: str) -> list[Problem]:
    expected = "no secrets: this looks like one; use its handle, {$secret: name}, where a skill takes one"
    masked = redact(text)
    if masked == text:
        return []
    lines = [number for number, line in enumerate(text.splitlines(), 1) if redact(line) != line]
    if not lines:  # a secret over several lines, such as a private key
        start = next(index for index, char in enumerate(text) if masked[index : index + 1] != char)
        lines = [text.count("\n", 0, start) + 1]
    return [Problem(file, line, "", expected) for line in lines]


# --- Resolved settings of an agent, each with its source ---


TEXT: Final = "its text"
PEOPLE: Final = "set here"
INSTALLATION: Final = "the installation"
DEFAULT: Final = "default"

_INSTALLATION_DEFAULTS: Final = frozenset({"model", "max_cost_usd"})
_LISTED: Final = (
    "project", "model", "mode", "enabled", "zone", "max_cost_usd", "max_cost_per_day_usd", MONTH_CAP, "skills",
    "autonomy", "heartbeat", "loop", "guardrails",
)  # fmt: skip


@dataclass(frozen=True)
class ResolvedSetting:
    """A resolved setting, by its key in the file, and its source. None means none, or no limit."""

    key: str
    value: Any
    said_by: str


def resolved_settings(agent: Agent) -> list[ResolvedSetting]:
    """Return the resolved settings. Raises DefinitionError for a text that can no longer be read."""
    definition = definition_of(agent).model_copy(update={MONTH_CAP: _month_cap(agent)})
    stored = stored_definition(agent.definition)
    values = definition.model_dump(mode="json", include=set(_LISTED))
    values |= {
        "model": definition.model or model_for("main"),
        "max_cost_usd": str(default_session_cap() if definition.max_cost_usd is None else definition.max_cost_usd),
        "loop": asdict(LoopConfig.merged(settings.LQOPS_LOOP, definition.loop)),
        "guardrails": asdict(GuardrailsConfig.merged(settings.LQOPS_GUARDRAILS, definition.guardrails)),
    }
    return [
        ResolvedSetting(key, value, _source(key, definition, stored))
        for name in _LISTED
        for key, value in _flat(name, values[name])
    ]


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        yield key, value


def _source(key: str, definition: AgentDefinition, stored: AgentDefinition) -> str:
    section, _, name = key.partition(".")
    if key in COLUMN_SETTINGS or key == MONTH_CAP:
        return _column_source(key, definition, stored)
    if definition.line_of(key):
        return TEXT
    installation = {"loop": settings.LQOPS_LOOP, "guardrails": settings.LQOPS_GUARDRAILS}.get(section, {})
    return INSTALLATION if name in installation or key in _INSTALLATION_DEFAULTS else DEFAULT


def _column_source(key: str, definition: AgentDefinition, stored: AgentDefinition) -> str:
    """Return who says it: the text if it says the same, the default if nobody changed it, or else people."""
    value = getattr(definition, key)
    if key in stored.model_fields_set:
        return TEXT if getattr(stored, key) == value else PEOPLE
    return DEFAULT if getattr(Agent(), key, None) == value else PEOPLE


# --- Settings of a run: the trigger's win over the agent's, and those over the installation's ---
#
# A trigger's settings were copied to the session when it was created; an agent's definition is read as it is now.


def autonomy_of(definition: AgentDefinition) -> Autonomy:
    """Return the autonomy settings of a definition, or the defaults."""
    return definition.autonomy or Autonomy()


def loop_config_of(session: AgentSession, **defaults: Any) -> LoopConfig:
    """Return the loop settings of a session. `defaults` apply where nothing is set."""
    return loop_config_for(session.agent, session.params, **defaults)


def loop_config_for(agent: Agent | None, params: Mapping[str, Any], **defaults: Any) -> LoopConfig:
    """Return the loop settings of a session that is about to be created."""
    defined = definition_of(agent).loop if agent else {}
    return LoopConfig.merged(defaults, settings.LQOPS_LOOP, defined, params.get("loop") or {})


def walk_token_budget(agent: Agent | None, params: Mapping[str, Any]) -> int:
    """Return the token budget of a walk that is about to be created; 0 is no limit. Only agentic walks have one."""
    return loop_config_for(agent, params).token_budget if params.get("analysis_mode") == AnalysisMode.AGENTIC else 0


def guardrails_config_of(session: AgentSession) -> GuardrailsConfig:
    """Return the guardrail settings of a session."""
    defined = definition_of(session.agent).guardrails if session.agent else {}
    return GuardrailsConfig.merged(settings.LQOPS_GUARDRAILS, defined, session.params.get("guardrails") or {})
