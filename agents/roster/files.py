"""Agents as files: the only writer of definitions. A text that changes something is the next version, with a digest.

A session keeps the version and digest that it was born with; a loop goes by the newest text from its next turn on.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import SETTLED, definition_checked, definition_said
from agents.definitions.loader import in_order, write_definition
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.exceptions import Superseded
from agents.ledger.budgets import budgets_lock
from agents.models import Agent
from agents.people.access import actor_of, demand_access
from agents.roster.agents import agent_create, agent_edit
from agents.roster.definition_triggers import (
    TriggerPlan,
    names_missing,
    triggers_apply,
    triggers_plan,
    triggers_written,
)
from agents.roster.lifecycles import agent_fit, agent_record
from agents.sensors.rows import sensors_sync
from audit import recorder
from audit.models import SYSTEM_CHAIN

DEFAULT_FILE = "agent.yaml"


@dataclass(frozen=True)
class Defined:
    """What came of a text: the agent, whether anything changed, and what was done beside it."""

    agent: Agent
    definition: AgentDefinition
    changed: bool
    told: tuple[str, ...] = ()


def agent_define(*, agent: Agent, text: str, by: User | None, now: datetime, version: int | None = None) -> Agent:
    """The agent, by its new text."""
    return definition_write(agent=agent, text=text, by=by, now=now, version=version).agent


@transaction.atomic
def definition_write(
    *,
    agent: Agent,
    text: str,
    by: User | None,
    now: datetime,
    file: str = DEFAULT_FILE,
    version: int | None = None,
) -> Defined:
    """The next version of the definition, with the triggers and sensors that it names; the same text changes nothing.

    What the text says of the agent's name, mode, cap and whether it is on goes the way of every such change. What it no
    longer has, loop or heartbeat, ends. `version` is the one that the text was made from: if there is a newer one,
    nobody's changes are lost, and this text is refused.
    """
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    plain = _normal(text)
    definition = _checked(plain, row, file=file, name=row.name)
    if plain == row.definition:
        return Defined(row, definition, changed=False)
    if version is not None and version != row.definition_version:
        raise Superseded(_newer(row, version))
    before = _before(row)
    plan = _plan(row, definition, before, file=file)
    stopped = agent_fit(agent=row, definition=definition, now=now, actor=actor_of(by))
    sensors_sync(row, definition_said(plain), now)  # which calls the text agent.yaml, as the agent's page does
    budgets_lock(agent_id=row.pk, trigger_id=None, now=now)  # a cap may change: before the first word to the record
    row = agent_edit(agent=row, by=by, now=now, **_settings(definition, before))
    row.definition, row.definition_version = plain, row.definition_version + 1
    row.definition_digest, row.edited_by = hashlib.sha256(plain.encode()).hexdigest(), by
    row.save(update_fields=["definition", "definition_version", "definition_digest", "edited_by"])
    told = tuple(triggers_apply(plan, agent=row, by=by, now=now))
    if stopped:
        agent_record(row, "agent.stopped", actor_of(by), now=now)
    _record(row, definition, by=by, now=now)
    return Defined(row, definition, changed=True, told=told)


@transaction.atomic
def agent_import(*, owner: User, text: str, by: User | None, now: datetime, file: str = DEFAULT_FILE) -> Defined:
    """A new agent of the owner's, or the next version of the one of that name."""
    definition = _checked(_normal(text), Agent(owner=owner), file=file)
    agent = Agent.objects.filter(owner=owner, name=definition.name).first()
    if agent is None:
        given = _settings(definition, None)
        agent = agent_create(owner=owner, by=by, now=now, **{**given, "name": definition.name})
    return definition_write(agent=agent, text=text, by=by, now=now, file=file)


def agent_export(agent: Agent) -> str:
    """The agent's text as it was given. For one that never had a text: what is known of it and of its triggers."""
    if agent.definition:
        return agent.definition
    known: dict[str, Any] = {name: getattr(agent, name) for name in SETTLED}
    return write_definition({**known, "triggers": list(triggers_written(agent))})


def _normal(text: str) -> str:
    """One kind of line break, whoever sent it: the same text has one digest."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _checked(text: str, agent: Agent, *, file: str, name: str = "") -> AgentDefinition:
    """Of a text with problems also the names are looked up that can be read."""
    try:
        return definition_checked(text, file=file, name=name)
    except DefinitionError as error:
        missing = names_missing(agent, error.rest, file=file) if error.rest else ()
        raise DefinitionError(in_order((*error.problems, *missing)), rest=error.rest) from None


def _plan(row: Agent, definition: AgentDefinition, before: AgentDefinition | None, *, file: str) -> TriggerPlan:
    taken = _name_taken(row, definition, file)
    try:
        plan = triggers_plan(row, definition, before, file=file)
    except DefinitionError as error:
        raise DefinitionError(in_order((*taken, *error.problems)), rest=definition) from None
    if taken:
        raise DefinitionError(taken, rest=definition)
    return plan


def _newer(row: Agent, version: int) -> str:
    by = f" by {row.edited_by.get_username()}" if row.edited_by else ""
    return (
        f"The definition was changed{by} meanwhile: it is at version {row.definition_version}, and this text was made "
        f"from version {version}. Look at what is new there; saved again, this text takes its place."
    )


def _before(row: Agent) -> AgentDefinition | None:
    """What the last text said; nothing if there was none, or if it can no longer be read."""
    try:
        return definition_said(row.definition) if row.definition else None
    except DefinitionError:
        return None


def _settings(definition: AgentDefinition, before: AgentDefinition | None) -> dict[str, Any]:
    """What the text changes about the agent itself. What it never said is left as people have set it, and so is a mode
    or a name that it says no longer."""
    given = {name: getattr(definition, name) for name in SETTLED}
    said = definition.model_fields_set
    if before is None:
        return {name: value for name, value in given.items() if name in said}
    kept = {name for name in ("name", "mode") if name not in said}
    return {name: value for name, value in given.items() if name not in kept and value != getattr(before, name)}


def _name_taken(row: Agent, definition: AgentDefinition, file: str) -> tuple[Problem, ...]:
    if not Agent.objects.filter(owner_id=row.owner_id, name=definition.name).exclude(pk=row.pk).exists():
        return ()
    wanted = "a name that no other agent of the owner has"
    return (Problem(file, definition.line_of("name"), "name", wanted, f'"{definition.name}"'),)


def _record(row: Agent, definition: AgentDefinition, *, by: User | None, now: datetime) -> None:
    details = {
        "agent_id": str(row.public_id),
        "version": row.definition_version,
        "digest": row.definition_digest,
        "sensors": len(definition.sensors),
        "broken_sensors": len(definition.broken_sensors),
        "triggers": len(definition.triggers),
    }
    subject = f"agent:{row.public_id}"
    recorder.append(SYSTEM_CHAIN, "agent.defined", now=now, actor=actor_of(by), subject=subject, details=details)
