"""The skills of this installation: which are installed, what operators set for them, and how often they ran.

Loads built-in skills, those of configured modules and those of installed packages. A skill that cannot be loaded is
reported and left out; the others work. Skills that only loops may use are found by name, but not listed.
"""

import importlib
import logging
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum, auto
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Final, Literal, TypedDict, Unpack

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from pydantic import Field

from agents.definitions.catalogue import models_in_force
from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, Problem
from agents.enums import Level
from agents.exceptions import Invalid, NotAllowed, NotFound
from agents.models import Agent, SkillCount, SkillSetting, Trigger
from agents.people.access import actor_of, bound_owners, require_may_loosen
from agents.policy.guardrails import CHAT_MESSAGE, RUN_FINISHED, YIELD
from agents.policy.loosening import loosened
from agents.policy.schedule import hour_of
from agents.skills.skill import ALL, Isolation, Skill, SkillContext, skill
from agents.types import SkillPace, SkillStanding
from audit import recorder
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)


# --- The `yield` skill: offered in the turns of loops only ---
#
# It changes nothing: the loop reads the turn's last successful call from the journal and acts on it.


Name = Annotated[str, Field(min_length=1, max_length=64)]


@skill(name=YIELD, level=Level.SAFE, side_effects=False, local=True)
def yield_turn(
    context: SkillContext,
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
    """Ends your turn and says when the next one starts. The turn ends only if the other calls of this reply succeed."""
    if mode == "sleep" and sleep is None:
        raise Invalid("Mode sleep needs sleep: the number of seconds, a whole number above 0.")
    _check_wakes(context, wake_early_if or ())
    return {"yielded": mode}


def wake_names(definition: AgentDefinition) -> list[str]:
    """Return the names that can end a sleep: signals that alert, declared events, and messages of people."""
    signals = [signal.name for sensor in definition.sensors for signal in sensor.signals if signal.notify]
    return list(
        dict.fromkeys(
            [*signals, *(definition.autonomy.events if definition.autonomy else ()), RUN_FINISHED, CHAT_MESSAGE]
        )
    )


def _check_wakes(context: SkillContext, names: Iterable[str]) -> None:
    """Refuse names that nothing can ever have. An agent that declares none may name any type of event.

    Types of events that a trigger of the owner waits for are known too.
    """
    agent = Agent.objects.filter(sessions=context.session_pk).first()
    known = wake_names(definition_of(agent)) if agent else []
    if set(known) <= {CHAT_MESSAGE, RUN_FINISHED}:
        return
    triggers = Trigger.objects.filter(owner_id=context.owner_id, deleted_at__isnull=True)
    if unknown := sorted(set(names) - set(known) - set(triggers.values_list("event_type", flat=True))):
        raise Invalid(
            f"wake_early_if: there is no alert or event named {', '.join(unknown)}; there are: {', '.join(known)}. "
            "Yield again with these names, or without wake_early_if."
        )


LOOP_SKILLS: Final[dict[str, Skill]] = {yield_turn.name: yield_turn}


# --- Installed skills ---


class Source(Enum):
    """Where skills come from: lqops itself, modules that operators name, and installed packages."""

    BUILTIN = auto()
    NAMED = auto()
    PACKAGE = auto()


GROUP = "lqops_skills"
BUILTIN = "agents.builtin_skills"
_TRUST: Final = "to trust it, name {} in LQOPS_SKILL_MODULES"
_left_out: list[str] = []  # problems of the last load


@cache
def installed_skills() -> Mapping[str, Skill]:
    """Return the installed skills, sorted by name. Loaded once per process."""
    _left_out.clear()
    found = dict(LOOP_SKILLS)
    for source, module in _modules():
        for declared in vars(module).values():
            if isinstance(declared, Skill):
                _add(found, declared, module.__name__, source)
    return MappingProxyType({name: found[name] for name in sorted(found.keys() - LOOP_SKILLS.keys())})


def skills_offered(named: Collection[str] | None) -> dict[str, Skill]:
    """Return the skills that a definition names; with `all`, every one; without a list, those that cannot reach out.

    These are lqops' own whose whole effect is rows of this database. Those of the console are for no agent.
    """
    installed = {name: one for name, one in installed_skills().items() if not one.console}
    if named is not None and ALL in named:
        return installed
    return {
        name: one
        for name, one in installed.items()
        if (name in named if named is not None else one.local and one.function.__module__.startswith(BUILTIN))
    }


def console_skills() -> dict[str, Skill]:
    """Return the skills of the console that no operator has disabled."""
    disabled = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    return {name: one for name, one in installed_skills().items() if one.console and name not in disabled}


def skills_left_out() -> tuple[str, ...]:
    """Return what could not be loaded and why, one sentence each."""
    installed_skills()
    return tuple(_left_out)


def skill_named(name: str) -> Skill | None:
    """Return a skill by name, including those that only loops may use."""
    return LOOP_SKILLS.get(name) or installed_skills().get(name)


def _add(found: dict[str, Skill], declared: Skill, module: str, source: Source) -> None:
    known = found.get(declared.name)
    if known is not None and known.function is declared.function:
        return
    if known is not None:
        _leave_out(f"the skill {declared.name} of {module} is left out: the name is taken")
    elif default_isolation(source) == "thread":
        found[declared.name] = declared
    elif problem := _needs_trust(declared):
        _leave_out(f"the skill {declared.name} of {module} is left out: {problem}; {_TRUST.format(module)}")
    else:
        found[declared.name] = replace(declared, isolation="process", module=module)


def default_isolation(source: Source) -> Isolation:
    """Return where skills of a source run: code that no operator named runs in a process of its own."""
    return "process" if source == Source.PACKAGE else "thread"


def _needs_trust(declared: Skill) -> str:
    """Return what a skill declares that only trusted code is given; "" if nothing."""
    if declared.local or declared.request is not None:
        return "it runs in the worker itself"
    return "it names folders of this machine" if declared.folders else ""


def _leave_out(reason: str) -> None:
    _left_out.append(f"{reason[:1].upper()}{reason[1:]}.")
    logger.error("%s", reason)


def _modules() -> Iterable[tuple[Source, ModuleType]]:
    builtin = [f"{BUILTIN}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(BUILTIN).__path__)]
    named = list(settings.LQOPS_SKILL_MODULES)
    packaged = {entry.value for entry in entry_points(group=GROUP)} - set(named)
    sources = ((Source.BUILTIN, sorted(builtin)), (Source.NAMED, named), (Source.PACKAGE, sorted(packaged)))
    for source, names in sources:
        for name in names:
            if (module := _imported(name)) is not None:
                yield source, module


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 a faulty module must not break the others
        _leave_out(f"the skills of {name} are left out: {type(error).__name__}: {error}")
        return None


# --- Settings by operators ---


MAX_PRIVILEGED_PER_HOUR: Final = 20
MAX_PER_HOUR: Final = 1_000_000
PERMISSION: Final = "agents.change_skillsetting"


class SkillChanges(TypedDict, total=False):
    """The settings to change. A level of None: as declared. A limit of None: the limit of the level."""

    enabled: bool
    level: str | None
    hourly_limit: int | None


def skill_standing(name: str, declared: Level) -> SkillStanding:
    """Return a skill's current settings. One query; without a row, as declared."""
    row = SkillSetting.objects.filter(name=name).values_list("enabled", "level", "hourly_limit").first()
    enabled, level, limit = row or (True, "", None)
    return SkillStanding(enabled, Level(level) if level else declared, hourly_limit=limit, chosen_level=level)


def limit_of(level: Level, chosen: int | None) -> int | None:
    """Return the calls per hour: the skill's own limit, else its level's. PRIVILEGED skills also have a hard limit."""
    limit = settings.LQOPS_SKILL_LIMITS.get(level) if chosen is None else chosen
    if level == Level.PRIVILEGED:
        return MAX_PRIVILEGED_PER_HOUR if limit is None else min(limit, MAX_PRIVILEGED_PER_HOUR)
    return limit


@transaction.atomic
def skill_set(*, name: str, declared: Level, by: User, now: datetime, **changes: Unpack[SkillChanges]) -> SkillSetting:
    """Change a skill's settings.

    Operators may raise a level, lower a limit and switch a skill off. Undoing that loosens, also by the same person.
    """
    if not by.has_perm(PERMISSION):
        raise NotAllowed("You may not change skill settings.")
    SkillSetting.objects.bulk_create([SkillSetting(name=name)], ignore_conflicts=True)
    row = SkillSetting.objects.select_for_update().get(name=name)
    before = (row.enabled, row.level, row.hourly_limit)
    old_level, old_limit = Level(row.level or declared), row.hourly_limit
    if "level" in changes:
        row.level = _level(changes["level"])
    level = Level(row.level or declared)
    if "hourly_limit" in changes:
        row.hourly_limit = _limit(changes["hourly_limit"], level)
    row.enabled = changes.get("enabled", row.enabled)
    if (row.enabled, row.level, row.hourly_limit) == before:
        return row
    bound_by = {"level": old_level, "skill_enabled": before[0], "hourly_limit": limit_of(old_level, old_limit)}
    binds_now = {"level": level, "skill_enabled": row.enabled, "hourly_limit": limit_of(level, row.hourly_limit)}
    require_may_loosen(by, loosened(bound_by, binds_now), bound=bound_owners())
    row.updated_at = now
    row.updated_by = by
    row.save()
    recorder.append(
        SYSTEM_CHAIN,
        "skill.set",
        now=now,
        actor=actor_of(by),
        subject=f"skill:{name}",
        details={
            "skill": name,
            "enabled": row.enabled,
            "level": row.level or declared,
            "hourly_limit": row.hourly_limit,
        },
    )
    return row


def _level(wanted: str | None) -> str:
    """Return the level to store; "" stands for the declared one."""
    if wanted and wanted not in Level.values:
        raise Invalid(f"The level must be one of {', '.join(Level.values)}, not {wanted!r}.")
    return wanted or ""


def _limit(wanted: int | None, level: Level) -> int | None:
    highest = MAX_PRIVILEGED_PER_HOUR if level == Level.PRIVILEGED else MAX_PER_HOUR
    if wanted is not None and not 0 <= wanted <= highest:
        raise Invalid(f"The hourly limit of a {level} skill must be from 0 to {highest}, not {wanted}.")
    return wanted


# --- Rate limits: calls per clock hour, and the cooldown between two calls ---


def call_pace(skill: Skill, level: Level, standing: SkillStanding) -> SkillPace:
    """Return how often a call of this level may be made, with the settings that it is planned by."""
    return SkillPace(
        name=skill.name,
        limit=limit_of(level, standing.hourly_limit),
        cooldown=timedelta(seconds=skill.cooldown_seconds),
        chosen_level=standing.chosen_level,
        chosen_limit=standing.hourly_limit,
    )


def skill_settings_hold(pace: SkillPace) -> bool:
    """Return whether the skill is enabled, with the level and limit that the call was planned by. One query."""
    row = SkillSetting.objects.filter(name=pace.name).values_list("enabled", "level", "hourly_limit").first()
    return (row or (True, "", None)) == (True, pace.chosen_level, pace.chosen_limit)


def skill_refusal(pace: SkillPace, *, now: datetime) -> str:
    """Return why a call may not be made now; "" if it may. Counts nothing."""
    if pace.limit == 0:
        return f"{pace.name} has a limit of 0 calls per hour"
    if pace.limit is not None and _counts(pace, now).filter(used__gte=pace.limit).exists():
        again = hour_of(now) + timedelta(hours=1)
        return f"{pace.name} ran {pace.limit} times in this hour, which is its limit; try again at {again:%H:%M} UTC"
    if _is_cooling_down(pace, now):
        return f"{pace.name} ran less than {pace.cooldown.total_seconds():g} seconds ago; wait before you call it again"
    return ""


def skill_count_refuse(pace: SkillPace, *, now: datetime) -> str:
    """Return why a call may not be made now, and count the refusal."""
    reason = skill_refusal(pace, now=now)
    if reason:
        _counts_of_hour(pace, now).update(refused=F("refused") + 1)
    return reason


def skill_count_lock(pace: SkillPace, *, now: datetime) -> None:
    """Lock the count of this skill's calls until the transaction ends."""
    list(_counts_of_hour(pace, now).select_for_update(no_key=True).values_list("pk"))


def skill_count_take(pace: SkillPace, *, now: datetime) -> str:
    """Count one call, or return why it may not be made.

    Belongs in the transaction that authorises the call, after `skill_count_lock`: a call that is not made is not
    counted, and concurrent calls are counted one by one.
    """
    rows = _counts(pace, now)
    if pace.limit is not None:
        rows = rows.filter(used__lt=pace.limit)
    if pace.cooldown:
        rows = rows.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - pace.cooldown))
    if not _is_cooling_down(pace, now) and rows.update(used=F("used") + 1, last_used_at=now):
        return ""
    return skill_count_refuse(pace, now=now)


def _counts(pace: SkillPace, now: datetime) -> QuerySet[SkillCount]:
    return SkillCount.objects.filter(skill=pace.name, hour=hour_of(now))


def _counts_of_hour(pace: SkillPace, now: datetime) -> QuerySet[SkillCount]:
    """Return this hour's row, and create it if there is none."""
    SkillCount.objects.bulk_create([SkillCount(skill=pace.name, hour=hour_of(now))], ignore_conflicts=True)
    return _counts(pace, now)


def _is_cooling_down(pace: SkillPace, now: datetime) -> bool:
    """Check the last call in any hour."""
    recent = SkillCount.objects.filter(skill=pace.name, last_used_at__gt=now - pace.cooldown)
    return bool(pace.cooldown) and recent.exists()


# --- The list of skills: declaration, settings and use ---


SHOWN_HOURS: Final = 24
# Facts of a declaration that the list shows as they are.
_DECLARED: Final = (
    "version",
    "side_effects",
    "idempotent",
    "requires_approval",
    "timeout_seconds",
    "isolation",
    "local",
    "cooldown_seconds",
)


@dataclass(frozen=True)
class SkillUse:
    """Calls made and refused in this clock hour and since midnight, UTC."""

    used_this_hour: int = 0
    refused_this_hour: int = 0
    used_today: int = 0
    refused_today: int = 0


@dataclass(frozen=True)
class ListedSkill:
    """One skill. No `skill`: it is no longer installed. No `setting`: nothing was set."""

    name: str
    skill: Skill | None
    setting: SkillSetting | None
    use: SkillUse

    @property
    def enabled(self) -> bool:
        return self.setting.enabled if self.setting else True

    @property
    def declared(self) -> Level | None:
        return self.skill.level if self.skill else None

    @property
    def level(self) -> Level | None:
        """The level in force; None for a skill that is not installed and has no level set."""
        chosen = self.setting.level if self.setting else ""
        return Level(chosen) if chosen else self.declared

    @property
    def chosen_limit(self) -> int | None:
        return self.setting.hourly_limit if self.setting else None

    @property
    def limit(self) -> int | None:
        """The limit of calls per clock hour in force; None: no limit."""
        return limit_of(self.level, self.chosen_limit) if self.level else self.chosen_limit

    @property
    def facts(self) -> dict[str, Any]:
        """All facts, by the names that the API and the command use."""
        skill = self.skill
        return {
            "name": self.name,
            "installed": skill is not None,
            "description": skill.description if skill else "",
            "enabled": self.enabled,
            "lacking": skill.lacking if skill else "",
            "declared_level": self.declared,
            "level": self.level,
            "hourly_limit": self.chosen_limit,
            "hourly_limit_in_force": self.limit,
            **vars(self.use),
            **{name: getattr(skill, name, None) for name in _DECLARED},
            "addresses": list(skill.addresses) if skill else [],
            "hosts": list(skill.hosts) if skill else [],
            "arguments": skill.parameters if skill else None,
            "updated_at": self.setting.updated_at if self.setting else None,
        }


def skills_listed(*, now: datetime) -> list[ListedSkill]:
    """Return the installed skills by name, then settings of skills that are not installed. Two queries."""
    rows = {row.name: row for row in SkillSetting.objects.select_related("updated_by").order_by("name")}
    installed = installed_skills()
    names = [*installed, *(name for name in rows if name not in installed)]
    uses = _uses(names, now=now)
    return [ListedSkill(name, installed.get(name), rows.get(name), uses.get(name, SkillUse())) for name in names]


def skill_listed(name: str, *, now: datetime) -> ListedSkill | None:
    """Return one skill; None if it is neither installed nor set."""
    return next((listed for listed in skills_listed(now=now) if listed.name == name), None)


def installed_skill(name: str) -> Skill:
    """Return the installed skill whose settings are to be changed."""
    found = installed_skills().get(name)
    if found is None:
        raise NotFound(f"There is no installed skill {name[:64]}.")
    return found


def skill_hours(name: str, *, now: datetime) -> list[SkillCount]:
    """Return the clock hours of the last day in which a skill was called, newest first."""
    since = hour_of(now) - timedelta(hours=SHOWN_HOURS - 1)
    return list(SkillCount.objects.filter(skill=name, hour__gte=since).order_by("-hour"))


def _uses(names: Iterable[str], *, now: datetime) -> dict[str, SkillUse]:
    hour = hour_of(now)
    today = SkillCount.objects.filter(skill__in=list(names), hour__gte=hour.replace(hour=0), hour__lte=hour)
    this_hour = Q(hour=hour)
    sums = today.values("skill").annotate(
        used_this_hour=Sum("used", filter=this_hour, default=0),
        refused_this_hour=Sum("refused", filter=this_hour, default=0),
        used_today=Sum("used"),
        refused_today=Sum("refused"),
    )
    columns = ("used_this_hour", "refused_this_hour", "used_today", "refused_today")
    return {name: SkillUse(*counts) for name, *counts in sums.order_by().values_list("skill", *columns)}


# --- Skills and models that an agent.yaml names and this installation does not have ---


def unresolved_names(definition: AgentDefinition, *, file: str = "agent.yaml") -> list[Problem]:
    """Return the missing skills and models with their lines. They are warnings: the agent starts."""
    off = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    return missing_names(skills_offered([ALL]).keys() - off, definition, file=file)


def missing_names(skills: Set[str], definition: AgentDefinition, *, file: str) -> list[Problem]:
    """Return the missing skills and models, given the available skills; without a database."""
    sensors = [(definition.sensor_keys[sensor.name], sensor) for sensor in definition.sensors]
    fields = definition.hot_state.fields.items()
    tools = [(f"skills[{number}]", name) for number, name in enumerate(definition.skills or ()) if name != ALL]
    tools += [(f"hot_state.fields.{field}.refresh_tool", spec.refresh_tool or "") for field, spec in fields]
    tools += [(f"{key}.source.tool", sensor.source.tool or "") for key, sensor in sensors]
    models = [("model", definition.model)]
    models += [("autonomy.precheck_model", definition.autonomy.precheck_model)] if definition.autonomy else []
    for key, sensor in sensors:
        models += [(f"{key}.signals[{number}].model", signal.model) for number, signal in enumerate(sensor.signals)]
    missing = [(key, name, expected) for key, name in tools if name and (expected := _expected_skill(name, skills))]
    for key, model in models:
        if model is not None and model not in models_in_force().declared:
            missing.append((key, model, "the name of a declared model"))
    return [Problem(file, definition.line_of(key), key, expected, name) for key, name, expected in missing]


def _expected_skill(name: str, skills: Set[str]) -> str:
    """Return what to write instead of this skill; "" if it is available."""
    if name in skills:
        lacking = installed_skills()[name].lacking
        return f"a skill that is available in this installation: {lacking}" if lacking else ""
    near = get_close_matches(name, skills, n=1)
    return "the name of an installed and enabled skill" + (f" (did you mean {near[0]}?)" if near else "")
