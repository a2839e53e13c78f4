"""Agents as files: the only writer of definitions. A text that changes something is the next version, with a digest.

A session keeps the version and digest that it was born with; a loop goes by the newest text from its next turn on.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet

from agents.definitions.in_force import SETTLED, definition_checked, definition_said
from agents.definitions.loader import in_order, write_definition
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem, TriggerSpec
from agents.enums import TriggerKind
from agents.exceptions import Superseded
from agents.knowledge.documents import collection_create
from agents.ledger.budgets import budgets_lock
from agents.ledger.trigger_health import trigger_lock
from agents.models import Agent, Collection, Playbook, Project, PromptSkill, Trigger
from agents.people.access import actor_of, demand_access
from agents.roster.agents import agent_create, agent_edit, agent_fit, agent_record
from agents.sensors.rows import sensors_sync
from agents.triggers.triggers import trigger_create, trigger_edit
from audit import recorder
from audit.models import SYSTEM_CHAIN

# --- The triggers that an agent's file names: made, changed and switched off as the file changes ---
#
# Only what a new text changes is applied: what people have set since in the admin, and the text does not touch,
# stays. Everything is looked up, and every lock taken, before the first row is written.


@dataclass(frozen=True)
class TriggerChange:
    """One trigger of the file: `trigger` is the row that there is; `fields` is what to set."""

    spec: TriggerSpec
    trigger: Trigger | None
    fields: dict[str, Any]
    collection: str | None = None  # to be made first


@dataclass(frozen=True)
class TriggerPlan:
    changes: tuple[TriggerChange, ...]
    dropped: tuple[Trigger, ...]
    told: tuple[str, ...]


def triggers_plan(
    agent: Agent, definition: AgentDefinition, before: AgentDefinition | None, *, file: str
) -> TriggerPlan:
    """What a new definition asks for, with the agent's triggers locked; every problem at once."""
    live = _locked(agent)
    old = {spec.name: spec for spec in before.triggers} if before else {}
    problems: list[Problem] = []
    changes, told = [], []
    for number, spec in enumerate(definition.triggers):
        key = f"triggers[{number}]"
        found = [trigger for trigger in live if trigger.name == spec.name]
        if not found and old.get(spec.name) == spec:
            told.append(f"Trigger {spec.name!r} was deleted here, and stays so.")
            continue
        bound, refused = _bound(agent, spec)
        refused.update(_misfits(spec, found))
        problems += _told(definition, key, refused, file)
        fields = _fields(spec, definition, old.get(spec.name), before, is_new=not found)
        missing = spec.collection if spec.collection is not None and "collection" not in bound else None
        changes.append(TriggerChange(spec, found[0] if found else None, {**fields, **bound}, missing))
    if problems:
        raise DefinitionError(tuple(problems))
    named = {spec.name for spec in definition.triggers}
    dropped = [trigger for trigger in live if trigger.name in old.keys() - named and trigger.enabled]
    return TriggerPlan(tuple(changes), tuple(dropped), tuple(told))


def names_missing(agent: Agent, definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """What the triggers of a definition name that its owner does not have."""
    for number, spec in enumerate(definition.triggers):
        yield from _told(definition, f"triggers[{number}]", _bound(agent, spec)[1], file)


def _told(definition: AgentDefinition, key: str, refused: dict[str, str], file: str) -> Iterator[Problem]:
    for name, wanted in refused.items():
        line = definition.line_of(f"{key}.{name}") or definition.line_of(key)
        yield Problem(file, line, f"{key}.{name}", wanted)


def triggers_apply(plan: TriggerPlan, *, agent: Agent, by: User | None, now: datetime) -> Iterator[str]:
    """Writes what was planned, and says what was done."""
    yield from plan.told
    for change in plan.changes:
        name, fields = change.spec.name, dict(change.fields)
        if change.collection is not None:
            fields["collection"] = _collection(agent, change.collection, by=by, now=now)
        if change.trigger is None:
            kind = change.spec.kind
            trigger_create(owner=agent.owner, kind=kind, name=name, agent=agent, by=by, now=now, **fields)
            yield f"Trigger {name!r} is made."
        elif _differs(change.trigger, fields):
            trigger_edit(trigger=change.trigger, by=by, now=now, **fields)
            yield f"Trigger {name!r} is changed."
    for trigger in plan.dropped:
        trigger_edit(trigger=trigger, by=by, now=now, enabled=False)
        yield f"Trigger {trigger.name!r} is no longer in the file: it is switched off."


def triggers_written(agent: Agent) -> Iterator[dict[str, Any]]:
    """The agent's triggers as a file says them: what differs from the default. Names are made different."""
    joined = ("playbook", "skill", "project", "collection")
    known: set[str] = set()
    rows = agent.triggers.filter(deleted_at__isnull=True).select_related(*joined).order_by("pk")
    for trigger in rows:
        unset = TriggerSpec.model_construct(name="", kind=TriggerKind(trigger.kind))
        name = trigger.name if trigger.name not in known else f"{trigger.name} {trigger.pk}"
        known.add(name)
        fields = {key: getattr(trigger, key) for key in unset.fields("UTC")}
        bound = {key: getattr(trigger, key).name for key in joined if getattr(trigger, key) is not None}
        said = {key: value for key, value in fields.items() if value != unset.fields("UTC")[key]}
        yield {"name": name, "kind": trigger.kind, **bound, **said}


def _locked(agent: Agent) -> list[Trigger]:
    """Lowest id first, as everybody who locks several."""
    ids = Trigger.objects.filter(agent=agent, deleted_at__isnull=True).order_by("pk").values_list("pk", flat=True)
    rows = [trigger_lock(pk) for pk in list(ids)]
    return [row for row in rows if row is not None and row.deleted_at is None]


def _fields(
    spec: TriggerSpec,
    definition: AgentDefinition,
    old: TriggerSpec | None,
    before: AgentDefinition | None,
    *,
    is_new: bool,
) -> dict[str, Any]:
    """Of a new trigger everything; of one that the last text named what has changed; of any other what is said."""
    wanted = spec.fields(definition.zone)
    if is_new:
        return wanted
    if old is not None and before is not None:
        last = old.fields(before.zone)
        return {name: value for name, value in wanted.items() if value != last.get(name)}
    return {name: value for name, value in wanted.items() if name in spec.model_fields_set or name == "enabled"}


def _bound(agent: Agent, spec: TriggerSpec) -> tuple[dict[str, Model | None], dict[str, str]]:
    """The rows that the trigger binds to, and what is wrong with the names that lead to none. A collection may be
    missing: it is made."""
    named = {"playbook": _playbooks, "skill": _skills, "project": _projects, "collection": _collections}
    bound: dict[str, Model | None] = {}
    refused: dict[str, str] = {}
    for key, rows_of in named.items():
        name = getattr(spec, key)
        if name is None:
            bound[key] = None
            continue
        rows = list(rows_of(agent, name)[:2])
        if len(rows) == 1:
            bound[key] = rows[0]
        elif rows:
            refused[key] = f"the name of one {key}: there are several named {name!r}"
        elif key != "collection":
            refused[key] = f"the name of a {key}: no {key} is named {name!r}"
    return bound, refused


def _playbooks(agent: Agent, name: str) -> QuerySet[Playbook]:
    return Playbook.objects.filter(owner_id=agent.owner_id, name=name, deleted_at__isnull=True)


def _skills(agent: Agent, name: str) -> QuerySet[PromptSkill]:
    return PromptSkill.objects.filter(name=name, enabled=True)


def _projects(agent: Agent, name: str) -> QuerySet[Project]:
    return Project.objects.filter(owner_id=agent.owner_id, name=name)


def _collections(agent: Agent, name: str) -> QuerySet[Collection]:
    return Collection.objects.filter(owner_id=agent.owner_id, name=name, deleted_at__isnull=True)


def _collection(agent: Agent, name: str, *, by: User | None, now: datetime) -> Collection:
    """The one of that name; two triggers of one file may ask for it."""
    return _collections(agent, name).first() or collection_create(owner=agent.owner, name=name, by=by, now=now)


def _misfits(spec: TriggerSpec, found: list[Trigger]) -> dict[str, str]:
    if len(found) > 1:
        return {"name": f"a name of its own: the agent has {len(found)} triggers of this one"}
    if not found:
        return {}
    trigger = found[0]
    if trigger.kind != spec.kind:
        return {"kind": f"{trigger.kind}, which the trigger of that name is: give a new one another name"}
    watched = trigger.collection.name if trigger.collection else None
    if spec.kind == TriggerKind.WATCH and watched != spec.collection:
        return {"collection": f"{watched!r}: a watch keeps its collection; give a new one another name"}
    return {}


def _differs(trigger: Trigger, fields: dict[str, Any]) -> bool:
    return any(getattr(trigger, name) != value for name, value in fields.items())


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
