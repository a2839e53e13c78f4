"""Definitions of agents: import, write, export. The only writer of definitions.

A text that changes something becomes the next version, with a digest. A session keeps the version and digest that it
was created with; a loop uses the newest text from its next turn on. The triggers that a text names are created, changed
and switched off with it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet

from agents.definitions.in_force import COLUMN_SETTINGS, checked_definition, project_of, stored_definition
from agents.definitions.loader import sort_problems, write_definition
from agents.definitions.schema import MONTH_CAP, AgentDefinition, DefinitionError, Problem, TriggerSpec
from agents.enums import BudgetPeriod, BudgetScope, Level, TriggerKind
from agents.exceptions import Superseded
from agents.knowledge.documents import collection_create
from agents.ledger.budgets import budgets_lock_all, cap_of, caps_set
from agents.ledger.trigger_health import trigger_lock
from agents.loop.heartbeat import heartbeat_move
from agents.models import Agent, Collection, Playbook, Profile, Project, PromptSkill, SkillSetting, Trigger
from agents.people.access import actor_of, require_access, require_may_loosen
from agents.people.ceilings import (
    ceilings_lower,
    ceilings_record,
    default_run_cap,
    own_ceilings,
    require_within_ceilings,
)
from agents.policy.loosening import loosened, looser_settings
from agents.roster.agents import agent_create, agent_edit, agent_record, agent_stop_removed
from agents.sensors.rows import sensors_sync
from agents.sensors.validation import unbound_problems
from agents.skills.registry import skills_offered
from agents.skills.skill import Skill
from agents.triggers.triggers import caps_left, trigger_create, trigger_edit

DEFAULT_FILE: Final = "agent.yaml"
_BOUND: Final = ("playbook", "skill", "project", "collection")  # rows that a trigger refers to by name


@dataclass(frozen=True)
class DefinitionResult:
    """The result of writing a text: the agent, whether anything changed, and messages about its triggers."""

    agent: Agent
    definition: AgentDefinition
    changed: bool
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class TriggerChange:
    """One trigger of the file: the row, if it exists, and the fields to set."""

    spec: TriggerSpec
    trigger: Trigger | None
    fields: dict[str, Any]
    caps: dict[str, Any]  # per month, if the text changes it
    collection: str | None = None  # to be created first


@dataclass(frozen=True)
class TriggerPlan:
    changes: tuple[TriggerChange, ...]
    dropped: tuple[Trigger, ...]
    messages: tuple[str, ...]


@transaction.atomic
def definition_write(
    *,
    agent: Agent,
    text: str,
    by: User | None,
    now: datetime,
    file: str = DEFAULT_FILE,
    version: int | None = None,
    is_new: bool = False,
) -> DefinitionResult:
    """Write the next version of the definition, with its triggers and sensors; the same text changes nothing.

    Name, mode, cap and `enabled` are changed like any edit of the agent. A loop or heartbeat that the text no longer
    has is stopped. `version` is the one that the text was made from: it is refused if there is a newer one.
    Nothing follows for its owner from the first text of an agent that `is_new`: there was nothing to tighten.
    """
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    new_text = _normalized(text)
    definition = _checked(new_text, row, file=file, name=row.name)
    if new_text == row.definition:
        return DefinitionResult(row, definition, changed=False)
    if version is not None and version != row.definition_version:
        raise Superseded(_newer_version(row, version))
    before = _previous(row)
    _require_bound(definition, before, file=file)
    _require_may_define(row, definition, before, by)
    plan = triggers_plan(row, definition, before, file=file)
    stopped = agent_stop_removed(agent=row, definition=definition, now=now, actor=actor_of(by))
    heartbeat_move(agent=row, before=before, definition=definition, now=now)
    sensors_sync(row, stored_definition(new_text), now)  # problems name the file agent.yaml, as the agent's page does
    budgets_lock_all()  # a cap may change: locks come before audit events
    followed = ceilings_lower(row.owner_id, by=by, **({} if is_new else _tightened(row, definition, before)))
    row = agent_edit(agent=row, by=by, now=now, **_settings(definition, before))
    caps_set(subject=row, by=by, now=now, **_month_cap(definition, before))
    row.definition = new_text
    row.definition_version += 1
    row.definition_digest = hashlib.sha256(new_text.encode()).hexdigest()
    row.edited_by = by
    row.save(update_fields=["definition", "definition_version", "definition_digest", "edited_by"])
    messages = (*triggers_apply(plan, agent=row, by=by, now=now), *_create_collections(row, definition, by=by, now=now))
    if stopped:
        agent_record(row, "agent.stopped", actor=actor_of(by), now=now)
    ceilings_record(row.owner_id, followed, by=by, now=now, follows=f"agent:{row.public_id}")
    agent_record(
        row,
        "agent.defined",
        actor=actor_of(by),
        now=now,
        version=row.definition_version,
        digest=row.definition_digest,
        sensors=len(definition.sensors),
        broken_sensors=len(definition.broken_sensors),
        triggers=len(definition.triggers),
    )
    return DefinitionResult(row, definition, changed=True, messages=messages)


@transaction.atomic
def agent_import(
    *, owner: User, text: str, by: User | None, now: datetime, file: str = DEFAULT_FILE
) -> DefinitionResult:
    """Create an agent, or write the next version of the owner's agent of that name."""
    definition = _checked(_normalized(text), Agent(owner=owner), file=file)
    agent = Agent.objects.filter(owner=owner, name=definition.name).first()
    is_new = agent is None
    if agent is None:
        budgets_lock_all()  # before the first audit event
        given = _settings(definition, None)
        agent = agent_create(owner=owner, by=by, now=now, **{**given, "name": definition.name})
    return definition_write(agent=agent, text=text, by=by, now=now, file=file, is_new=is_new)


def definition_check(*, owner: User, text: str, agent: Agent | None = None) -> list[tuple[Problem, bool]]:
    """Return what is wrong with a text, by line, without writing anything.

    The second value says that it would be saved all the same, without the sensor that the problem is about.
    """
    row = agent or Agent(owner=owner)
    try:
        definition = _checked(_normalized(text), row, file=DEFAULT_FILE, name=row.name)
    except DefinitionError as error:
        return [(problem, False) for problem in error.problems]
    taken = _name_problems(row, definition, file=DEFAULT_FILE) if row.pk else ()
    sent = unbound_problems(definition, _previous(row), file=DEFAULT_FILE)
    found = dict.fromkeys((*taken, *names_missing(row, definition, file=DEFAULT_FILE), *sent))
    skipped = [problem for sensor in definition.broken_sensors for problem in sensor.problems]
    return [*((problem, False) for problem in sort_problems(found)), *((problem, True) for problem in skipped)]


def _require_bound(definition: AgentDefinition, before: AgentDefinition | None, *, file: str) -> None:
    """Refuse a text that newly sends a secret to a host that no admin has named for it."""
    if problems := list(unbound_problems(definition, before, file=file)):
        raise DefinitionError(sort_problems(problems), rest=definition)


def agent_export(agent: Agent) -> str:
    """Return the agent's text; if it never had one, a text of its settings and triggers."""
    if agent.definition:
        return agent.definition
    known: dict[str, Any] = {name: getattr(agent, name) for name in COLUMN_SETTINGS}
    known |= _month_cap_written(BudgetScope.AGENT, agent.pk)
    return write_definition({**known, "triggers": list(triggers_written(agent))})


def _normalized(text: str) -> str:
    """Use one kind of line break, so that the same text has one digest."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _checked(text: str, agent: Agent, *, file: str, name: str = "") -> AgentDefinition:
    """Parse a text. If it has problems, add the names in it that lead to nothing."""
    try:
        return checked_definition(text, file=file, name=name)
    except DefinitionError as error:
        missing = names_missing(agent, error.rest, file=file) if error.rest else ()
        raise DefinitionError(sort_problems((*error.problems, *missing)), rest=error.rest) from None


def _name_problems(row: Agent, definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    if Agent.objects.filter(owner_id=row.owner_id, name=definition.name).exclude(pk=row.pk).exists():
        wanted = "a name that no other agent of the owner has"
        yield Problem(file, definition.line_of("name"), "name", wanted, f'"{definition.name}"')
    yield from _project_problems(row, definition, file=file)


def _project_problems(agent: Agent, definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """Yield a problem if the project of the agent is not the name of one project of its owner."""
    if definition.project is None:
        return
    found = _rows_named(agent, "project", definition.project).count()
    if found != 1:
        which = "several are" if found else "none is"
        wanted = f"the name of one project: {which} named {definition.project!r}"
        yield Problem(file, definition.line_of("project"), "project", wanted)


def _newer_version(row: Agent, version: int) -> str:
    by = f" by {row.edited_by.get_username()}" if row.edited_by else ""
    return (
        f"The definition was changed{by} meanwhile: it is at version {row.definition_version}, and this text was made "
        f"from version {version}. Check the changes. Saving again replaces them with this text."
    )


def _previous(row: Agent) -> AgentDefinition | None:
    """Return the present definition; None if there is none, or it can no longer be read."""
    try:
        return stored_definition(row.definition) if row.definition else None
    except DefinitionError:
        return None


def _require_may_define(
    row: Agent, definition: AgentDefinition, before: AgentDefinition | None, by: User | None
) -> None:
    """Refuse what loosens the definition before, and what is new and above the owner's ceilings.

    Skills that stay are not measured, whatever level somebody has given them meanwhile.
    """
    old, new = _offered(row, before), _offered(row, definition)
    added = {name: skill for name, skill in new.items() if before is None or name not in old}
    level = _highest_level(added)
    words: list[str] = []
    if before is not None:
        default_cap = default_run_cap(Profile.objects.filter(user_id=row.owner_id).first())
        caps = [default_cap if one.max_cost_usd is None else one.max_cost_usd for one in (before, definition)]
        was = {"highest_level": _highest_level(old, as_declared=True), "max_cost_usd": caps[0]}
        words += loosened(was, {"highest_level": level, "max_cost_usd": caps[1]})
    words += _project_caps_left(row, definition)
    require_may_loosen(by, words, bound=[row.owner_id])
    measured: dict[str, Any] = {}
    if added and definition.skills is not None:
        measured["highest_level"] = level
    if before is None or definition.max_cost_usd != before.max_cost_usd:
        measured["max_cost_usd"] = definition.max_cost_usd
    require_within_ceilings(by, owner=row.owner, **measured)


def _project_caps_left(row: Agent, definition: AgentDefinition) -> Iterator[str]:
    """Yield the caps of the project that the agent's runs would leave."""
    old = project_of(row)
    if old is not None and old.name != definition.project:
        new = _rows_named(row, "project", definition.project).first() if definition.project is not None else None
        yield from caps_left(BudgetScope.PROJECT, old, new)


def _tightened(row: Agent, definition: AgentDefinition, before: AgentDefinition | None) -> dict[str, Any]:
    """Return what a text has tighter than the one before, of what the owner's ceilings follow."""
    new, old = _measured(row, definition), _measured(row, before)
    return {name: new[name] for name in looser_settings(new, old)}


def _measured(row: Agent, definition: AgentDefinition | None) -> dict[str, Any]:
    cap = definition.max_cost_usd if definition else None
    return {"highest_level": _highest_level(_offered(row, definition)), "max_cost_usd": cap}


def _offered(row: Agent, definition: AgentDefinition | None) -> dict[str, Skill]:
    """Return the skills that an agent is offered; where none are named, without those above its owner's own ceiling."""
    named = definition.skills if definition else None
    offered = skills_offered(named)
    ceiling = own_ceilings(row.owner_id).get("highest_level") if named is None else None
    levels = _levels(offered)
    return {name: one for name, one in offered.items() if ceiling is None or levels[name].rank <= Level(ceiling).rank}


def _highest_level(skills: Mapping[str, Skill], *, as_declared: bool = False) -> Level:
    """Return the highest level of skills in force. `as_declared`: a level that somebody has raised does not count."""
    levels = _levels(skills)
    if as_declared:
        levels = {name: min(level, skills[name].level, key=_rank) for name, level in levels.items()}
    return max(levels.values(), key=_rank, default=Level.SAFE)


def _levels(skills: Mapping[str, Skill]) -> dict[str, Level]:
    set_here = dict(SkillSetting.objects.exclude(level="").values_list("name", "level"))
    return {name: Level(set_here.get(name, skill.level)) for name, skill in skills.items()}


def _rank(level: Level) -> int:
    return level.rank


def _settings(definition: AgentDefinition, before: AgentDefinition | None) -> dict[str, Any]:
    """Return the settings of the agent that the text changes.

    Settings that it never had stay as people have set them, and so do a mode or a name that it no longer has.
    """
    given = {name: getattr(definition, name) for name in COLUMN_SETTINGS}
    present = definition.model_fields_set
    if before is None:
        return {name: value for name, value in given.items() if name in present}
    kept = {name for name in ("name", "mode") if name not in present}
    return {name: value for name, value in given.items() if name not in kept and value != getattr(before, name)}


def _month_cap(given: AgentDefinition | TriggerSpec, before: AgentDefinition | TriggerSpec | None) -> dict[str, Any]:
    """Return the cap per month of an agent or trigger, if the text changes it."""
    cap = given.max_cost_per_month_usd
    changed = cap != before.max_cost_per_month_usd if before else MONTH_CAP in given.model_fields_set
    return {MONTH_CAP: cap} if changed else {}


def _month_cap_written(scope: BudgetScope, pk: int) -> dict[str, Any]:
    cap = cap_of(scope, pk, BudgetPeriod.MONTH)
    return {} if cap is None else {MONTH_CAP: cap}


# --- Triggers of a definition ---
#
# Only what a new text changes is applied; what people have set since in the admin stays. Everything is looked up, and
# every lock taken, before the first row is written.


def triggers_plan(
    agent: Agent, definition: AgentDefinition, before: AgentDefinition | None, *, file: str
) -> TriggerPlan:
    """Plan the changes for a new definition, with the agent's triggers locked; report all problems at once."""
    live = _locked_triggers(agent)
    old = {spec.name: spec for spec in before.triggers} if before else {}
    problems = list(_name_problems(agent, definition, file=file))
    changes: list[TriggerChange] = []
    messages: list[str] = []
    for number, spec in enumerate(definition.triggers):
        key = f"triggers[{number}]"
        found = [trigger for trigger in live if trigger.name == spec.name]
        if not found and old.get(spec.name) == spec:
            messages.append(f"Trigger {spec.name!r} was deleted and is not created again.")
            continue
        bound, refused = _bound_rows(agent, spec)
        refused.update(_conflicts(spec, found))
        problems += _problems(definition, key, refused, file)
        fields = _changed_fields(spec, definition, old.get(spec.name), before, is_new=not found)
        missing = spec.collection if spec.collection is not None and "collection" not in bound else None
        caps = _month_cap(spec, old.get(spec.name) if found else None)
        if found and caps == dict.fromkeys(caps, cap_of(BudgetScope.TRIGGER, found[0].pk, BudgetPeriod.MONTH)):
            caps = {}
        changes.append(TriggerChange(spec, found[0] if found else None, {**fields, **bound}, caps, missing))
    if problems:
        raise DefinitionError(sort_problems(problems), rest=definition)
    named = {spec.name for spec in definition.triggers}
    dropped = [trigger for trigger in live if trigger.name in old.keys() - named and trigger.enabled]
    return TriggerPlan(tuple(changes), tuple(dropped), tuple(messages))


def names_missing(agent: Agent, definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """Yield a problem for each name in a definition that leads to nothing."""
    yield from _project_problems(agent, definition, file=file)
    for number, spec in enumerate(definition.triggers):
        yield from _problems(definition, f"triggers[{number}]", _bound_rows(agent, spec)[1], file)


def _problems(definition: AgentDefinition, key: str, refused: dict[str, str], file: str) -> Iterator[Problem]:
    for name, wanted in refused.items():
        line = definition.line_of(f"{key}.{name}") or definition.line_of(key)
        yield Problem(file, line, f"{key}.{name}", wanted)


def triggers_apply(plan: TriggerPlan, *, agent: Agent, by: User | None, now: datetime) -> Iterator[str]:
    """Write what was planned, and yield a message for each change."""
    yield from plan.messages
    for change in plan.changes:
        name, fields = change.spec.name, dict(change.fields)
        if change.collection is not None:
            found = _rows_named(agent, "collection", change.collection).first()  # two triggers may name the same
            if found is None:
                found = collection_create(owner=agent.owner, name=change.collection, by=by, now=now)
                yield f"Collection {change.collection!r} created."
            fields["collection"] = found
        if change.trigger is None:
            kind = change.spec.kind
            made = trigger_create(owner=agent.owner, kind=kind, name=name, agent=agent, by=by, now=now, **fields)
            if change.caps:
                caps_set(subject=made, by=by, now=now, **change.caps)
            yield f"Trigger {name!r} created."
        elif change.caps or any(getattr(change.trigger, key) != value for key, value in fields.items()):
            trigger_edit(trigger=change.trigger, by=by, now=now, **fields)
            if change.caps:
                caps_set(subject=change.trigger, by=by, now=now, **change.caps)
            yield f"Trigger {name!r} changed."
    for trigger in plan.dropped:
        trigger_edit(trigger=trigger, by=by, now=now, enabled=False)
        yield f"Trigger {trigger.name!r} switched off: it is no longer in the file."


def _create_collections(agent: Agent, definition: AgentDefinition, *, by: User | None, now: datetime) -> Iterator[str]:
    """Create the collections that sensors add files to, and yield a message for each."""
    for name in dict.fromkeys(spec.source.into for spec in definition.sensors if spec.source.into is not None):
        if not _rows_named(agent, "collection", name).exists():
            collection_create(owner=agent.owner, name=name, by=by, now=now)
            yield f"Collection {name!r} created."


def triggers_written(agent: Agent) -> Iterator[dict[str, Any]]:
    """Yield the agent's triggers for a file, without defaults and with unique names."""
    known: set[str] = set()
    rows = agent.triggers.filter(deleted_at__isnull=True).select_related(*_BOUND).order_by("pk")
    for trigger in rows:
        defaults = TriggerSpec.model_construct(name="", kind=TriggerKind(trigger.kind)).fields("UTC")
        name = trigger.name if trigger.name not in known else f"{trigger.name} {trigger.pk}"
        known.add(name)
        bound = {key: getattr(trigger, key).name for key in _BOUND if getattr(trigger, key) is not None}
        fields = {key: getattr(trigger, key) for key, value in defaults.items() if getattr(trigger, key) != value}
        month = _month_cap_written(BudgetScope.TRIGGER, trigger.pk)
        yield {"name": name, "kind": trigger.kind, **bound, **fields, **month}


def _locked_triggers(agent: Agent) -> list[Trigger]:
    """Lock the agent's triggers, lowest id first, the order of all who lock several."""
    ids = Trigger.objects.filter(agent=agent, deleted_at__isnull=True).order_by("pk").values_list("pk", flat=True)
    rows = [trigger_lock(pk) for pk in list(ids)]
    return [row for row in rows if row is not None and row.deleted_at is None]


def _changed_fields(
    spec: TriggerSpec,
    definition: AgentDefinition,
    old: TriggerSpec | None,
    before: AgentDefinition | None,
    *,
    is_new: bool,
) -> dict[str, Any]:
    """Return all fields of a new trigger, what changed since the last text, or else what the text sets."""
    wanted = spec.fields(definition.zone)
    if is_new:
        return wanted
    if old is not None and before is not None:
        last = old.fields(before.zone)
        return {name: value for name, value in wanted.items() if value != last.get(name)}
    return {name: value for name, value in wanted.items() if name in spec.model_fields_set or name == "enabled"}


def _bound_rows(agent: Agent, spec: TriggerSpec) -> tuple[dict[str, Model | None], dict[str, str]]:
    """Return the rows that the trigger refers to, and problems with names. A missing collection is created later."""
    bound: dict[str, Model | None] = {}
    refused: dict[str, str] = {}
    for key in _BOUND:
        name = getattr(spec, key)
        if name is None:
            bound[key] = None
            continue
        rows = list(_rows_named(agent, key, name)[:2])
        if len(rows) == 1:
            bound[key] = rows[0]
        elif rows:
            refused[key] = f"the name of one {key}: there are several named {name!r}"
        elif key != "collection":
            refused[key] = f"the name of a {key}: no {key} is named {name!r}"
    return bound, refused


def _rows_named(agent: Agent, key: str, name: str) -> QuerySet[Any]:
    own = {"owner_id": agent.owner_id}
    rows: dict[str, QuerySet[Any]] = {
        "playbook": Playbook.objects.filter(**own, deleted_at__isnull=True),
        "skill": PromptSkill.objects.filter(enabled=True),
        "project": Project.objects.filter(**own),
        "collection": Collection.objects.filter(**own, deleted_at__isnull=True),
    }
    return rows[key].filter(name=name)


def _conflicts(spec: TriggerSpec, found: list[Trigger]) -> dict[str, str]:
    """Return what the existing trigger of that name does not allow, by key."""
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
