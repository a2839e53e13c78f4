"""The triggers that an agent's file names: made, changed and switched off as the file changes.

Only what a new text changes is applied: what people have set since in the admin, and the text does not touch, stays.
Everything is looked up, and every lock taken, before the first row is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from agents.definitions.schema import AgentDefinition, DefinitionError, Problem, TriggerSpec
from agents.enums import TriggerKind
from agents.knowledge.documents import collection_create
from agents.ledger.trigger_health import trigger_lock
from agents.models import Agent, Collection, Playbook, Project, PromptSkill, Trigger
from agents.triggers.triggers import trigger_create, trigger_edit


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
