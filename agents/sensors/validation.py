"""Checks that a sensor can run.

Its definition can be read; its path, address and database are allowed here, and its secrets exist; its tool is
installed, read-only and runs without approval.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from django.conf import settings

from agents.conf import secret_names, sensor_roots, skill_hosts
from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem, Source
from agents.enums import SensorKind, SensorState
from agents.models import Agent, Sensor
from agents.net import UrlRefused, check_host, check_url
from agents.policy.consent import needs_person
from agents.policy.destinations import Destination
from agents.sensors.paths import PathRefused, resolve_path
from agents.sensors.rows import LeasedSensor, safe_text, sensor_reject
from agents.skills.handles import (
    SecretNotBound,
    destination_of,
    destination_of_host,
    destinations_of_call,
    unbound_problem,
)
from agents.skills.registry import skill_named, skill_standing
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments, Skill, names_in

_SCHEMES: Final = {
    SensorKind.POLL: ("http", "https"),
    SensorKind.STREAM: ("http", "https", "ws", "wss"),
    SensorKind.WATCH: (),
}


def runnable(rows: list[Sensor]) -> list[LeasedSensor]:
    """Return the sensors that can run; set the others aside, with the reason."""
    found: list[LeasedSensor] = []
    for agent, sensors in groupby(sorted(rows, key=lambda row: row.agent_id), key=lambda row: row.agent):
        try:
            definition = definition_of(agent)
        except DefinitionError as error:
            problem = safe_text(f"the definition cannot be read: {error}")
            for row in sensors:
                sensor_reject(row, state=SensorState.INVALID, problem=problem)
            continue
        specs = {spec.name: spec for spec in definition.sensors}
        for row in sensors:
            if row.name not in specs:
                continue  # the definition has just changed; its rows follow
            held = LeasedSensor(row, specs[row.name], definition)
            if (rejected := tool_problem(held, agent) or _source_rejected(held)) is not None:
                sensor_reject(row, state=rejected[0], problem=rejected[1])
            else:
                found.append(held)
    return found


def tool_problem(held: LeasedSensor, agent: Agent) -> tuple[SensorState, str] | None:
    """Return the state and problem of a sensor whose tool cannot be polled; None when it can."""
    name, given = held.spec.source.tool, held.spec.source.params
    if name is None:
        return None
    skill = skill_named(name)
    standing = skill_standing(skill.name, skill.level) if skill else None
    if skill is None or standing is None or not standing.enabled:
        return SensorState.UNRESOLVED, f"the tool {name} is not installed, or switched off"
    if (misuse := _misuse(skill, given)) is not None:
        return SensorState.INVALID, misuse[1]
    level = level_for(skill, standing.level, given, skill_hosts())
    if needs_person(skill.capability(level), mode=agent.mode):
        return SensorState.INVALID, f"the tool {name} needs approval for each call: a sensor cannot use it"
    return None


def _source_rejected(held: LeasedSensor) -> tuple[SensorState, str] | None:
    """Return the state and problem of a source that can never be read here; None when it may be."""
    problem = source_problem(held.spec.source, held.spec.type)
    return (SensorState.INVALID, problem) if problem else None


def sensor_problems(definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """Yield what keeps sensors from ever running, as far as it is known without a database."""
    for spec in definition.sensors:
        skill = skill_named(spec.source.tool) if spec.source.tool else None
        misuse = _misuse(skill, spec.source.params) if skill else None
        for name, problem in [misuse] if misuse else _source_problems(spec.source, spec.type):
            key = f"{definition.sensor_keys[spec.name]}.source.{name}"
            line = definition.line_of(key) or definition.line_of(definition.sensor_keys[spec.name])
            yield Problem(file, line, key, f"a source that a sensor can read: {problem}")


def _misuse(skill: Skill, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and the problem of a tool that cannot be polled."""
    try:
        skill.arguments(given)
    except BadArguments as error:
        return "params", str(error)
    if skill.side_effects:
        return "tool", f"the tool {skill.name} has side effects: a sensor may only read"
    return None


def source_problem(source: Source, kind: SensorKind) -> str:
    """Return why a source can never be read with the settings of this installation; empty if it may be."""
    return next((problem for _, problem in _source_problems(source, kind)), "")


def _source_problems(source: Source, kind: SensorKind) -> Iterator[tuple[str, str]]:
    """Yield the key and the problem of each part of a source that can never be read here."""
    try:
        if source.file is not None:
            resolve_path(source.file, sensor_roots())
        if source.address is not None:
            check_url(source.address, schemes=_SCHEMES[kind], resolve=_any_public, allow_hosts=_allowed_hosts())
        if source.imap is not None:
            check_host(source.imap.host, source.imap.port, resolve=_any_public)
    except (PathRefused, UrlRefused) as error:
        yield source.key, str(error)
    if source.database is not None and source.database not in settings.LQOPS_SENSOR_DATABASES:
        known = ", ".join(sorted(settings.LQOPS_SENSOR_DATABASES)) or "none"
        missing = f"there is no database {source.database!r} for sensors; known names: {known}"
        yield "database", f"{missing}; set LQOPS_SENSOR_DATABASE_{source.database.upper()}"
    yield from _secret_problems(source)


def _secret_problems(source: Source) -> Iterator[tuple[str, str]]:
    known = secret_names()
    for key, name in _handles(source):
        if source.tool is None and name not in known:
            missing = f"there is no secret {name!r}; known names: {', '.join(known) or 'none'}"
            yield key, f"{missing}; set LQOPS_SECRET_{name.upper()}"


# --- Secrets, and where sources send them ---


@dataclass(frozen=True)
class SentSecret:
    """A secret that a sensor sends, where to, and the key of the source that names it."""

    sensor: str
    key: str
    name: str
    destination: Destination


def _handles(source: Source) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of each secret that a source names."""
    given = {"headers": source.headers, "params": source.params}
    given |= {"imap": {"password": source.imap.password}} if source.imap is not None else {}
    for key, values in given.items():
        yield from ((key, name) for name in dict.fromkeys(names_in(values)))


def secrets_sent(definition: AgentDefinition) -> Iterator[SentSecret]:
    """Yield the secrets that the sensors of a definition send. What is unknown here, or leads nowhere, is left out."""
    known = frozenset(secret_names())
    for spec in definition.sensors:
        handles = [(key, name) for key, name in _handles(spec.source) if name in known]
        for destination in _destinations(spec.source) if handles else ():
            yield from (SentSecret(spec.name, key, name, destination) for key, name in handles)


def _destinations(source: Source) -> list[Destination]:
    try:
        if source.address is not None:
            return [destination_of(source.address)]
        if source.imap is not None:
            return [destination_of_host(source.imap.host, source.imap.port)]
        skill = skill_named(source.tool) if source.tool else None
        return destinations_of_call(skill, source.params) if skill else []
    except (UrlRefused, SecretNotBound):  # nothing is fetched from there
        return []


def unbound_problems(definition: AgentDefinition, before: AgentDefinition | None, *, file: str) -> Iterator[Problem]:
    """Yield a problem for each secret that a text newly sends to a host that it is not bound to.

    What the text before sent already is not judged again here: it is refused when the sensor looks.
    """
    kept = {(sent.name, sent.destination) for sent in secrets_sent(before)} if before else set()
    for sent in secrets_sent(definition):
        if (sent.name, sent.destination) in kept:
            continue
        if problem := unbound_problem([sent.name], [sent.destination]):
            key = f"{definition.sensor_keys[sent.sensor]}.source.{sent.key}"
            line = definition.line_of(key) or definition.line_of(definition.sensor_keys[sent.sensor])
            yield Problem(file, line, key, f"a secret that may go there: {problem}")


def secrets_unbound() -> list[str]:
    """Return a sentence for each secret that a sensor of an agent sends to a host which it is not bound to."""
    if not secret_names():
        return []
    found: dict[str, None] = {}
    for agent in Agent.objects.filter(archived_at__isnull=True).exclude(definition="").order_by("name", "pk"):
        try:
            sent = list(secrets_sent(definition_of(agent)))
        except DefinitionError:
            continue  # told where agents are
        for one in sent:
            if unbound_problem([one.name], [one.destination]):
                found[f"{one.name} for {one.destination.host} (sensor {one.sensor} of {agent.name})"] = None
    return list(found)


def _allowed_hosts() -> list[str]:
    """Return the hosts that are allowed, with the sample figures, which `manage.py up` lets sensors reach."""
    return [*settings.LQOPS_NET_ALLOW_HOSTS, f"127.0.0.1:{settings.LQOPS_SAMPLE_METRICS_PORT}"]


def _any_public(host: str) -> list[str]:
    """Stand in for a name server: what a name leads to is checked with each look."""
    return ["8.8.8.8"]
