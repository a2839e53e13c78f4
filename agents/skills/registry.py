"""The skills of this installation: the built-in ones, those of named modules, and those of installed packages.

A skill that cannot be loaded is reported and left out; it keeps no other from working. What only the turns of loops are
offered is known by its name, and not listed.
"""

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Final, Literal, TypedDict, Unpack

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from pydantic import Field

from agents.conf import skill_limits, skill_modules
from agents.definitions.schema import AgentDefinition, Problem, SensorSpec
from agents.enums import Level
from agents.exceptions import Invalid, NotAllowed, NotFound
from agents.models import SkillCount, SkillSetting
from agents.people.access import actor_of
from agents.policy.guardrails import YIELD
from agents.skills.skill import Skill, skill
from agents.types import SkillStanding
from audit import recorder
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)


# --- `yield`: how an agent that paces itself ends its turn. Offered in the turns of loops alone ---
#
# It changes nothing by itself: the loop reads the last good call of the turn from the journal, and acts on it.


Name = Annotated[str, Field(min_length=1, max_length=64)]


@skill(name=YIELD, level=Level.SAFE, side_effects=False, local=True)
def yield_turn(
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
    """Ends your turn and says when the next one comes. The turn ends when the calls beside this one went well, too."""
    if mode == "sleep" and sleep is None:
        raise Invalid("Say for how many seconds: mode sleep needs sleep, a whole number above 0.")
    return {"yielded": mode}


LOOP_SKILLS: Final[dict[str, Skill]] = {yield_turn.name: yield_turn}


GROUP = "lqops_skills"
BUILTIN = "agents.builtin_skills"
_left_out: list[str] = []  # of the last time that they were loaded


@cache
def installed_skills() -> Mapping[str, Skill]:
    """By name, in the order of their names. Read once for a process."""
    _left_out.clear()
    found = dict(LOOP_SKILLS)
    for source, module in _modules():
        for declared in vars(module).values():
            if isinstance(declared, Skill):
                _add(found, declared, source)
    return MappingProxyType({name: found[name] for name in sorted(found.keys() - LOOP_SKILLS.keys())})


def skills_left_out() -> tuple[str, ...]:
    """What could not be loaded, and why, a sentence each."""
    installed_skills()
    return tuple(_left_out)


def skill_named(name: str) -> Skill | None:
    return LOOP_SKILLS.get(name) or installed_skills().get(name)


def _add(found: dict[str, Skill], declared: Skill, source: str) -> None:
    known = found.setdefault(declared.name, declared)
    if known is not declared:
        _leave_out(f"the skill {declared.name} of {source} is left out: there is one of that name already")


def _leave_out(why: str) -> None:
    _left_out.append(f"{why[:1].upper()}{why[1:]}.")
    logger.error("%s", why)


def _modules() -> Iterable[tuple[str, ModuleType]]:
    inside = [f"{BUILTIN}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(BUILTIN).__path__)]
    outside = [entry.value for entry in entry_points(group=GROUP)]
    for name in [*sorted(inside), *skill_modules(), *sorted(outside)]:
        if (module := _imported(name)) is not None:
            yield name, module


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 whatever is wrong with somebody's module, the others work
        _leave_out(f"no skills are taken from {name}: {type(error).__name__}: {error}")
        return None


# --- What operators decide about callable skills, and how often each runs in a clock hour ---


MOST_PRIVILEGED_PER_HOUR: Final = 20
MOST_PER_HOUR: Final = 1_000_000
PERMISSION: Final = "agents.change_skillsetting"


class Changes(TypedDict, total=False):
    """What is to be set; what is not named stays. None for the level: as declared. None for the limit: none chosen."""

    enabled: bool
    level: str | None
    hourly_limit: int | None


def skill_standing(name: str, declared: Level) -> SkillStanding:
    """How a skill stands now. One query; without a row it is as declared."""
    row = SkillSetting.objects.filter(name=name).values_list("enabled", "level", "hourly_limit").first()
    enabled, level, limit = row or (True, "", None)
    return SkillStanding(enabled=enabled, level=Level(level) if level else declared, hourly_limit=limit)


def limit_of(level: Level, chosen: int | None) -> int | None:
    """Calls in an hour: as chosen for the skill, or else for its level. PRIVILEGED skills have a hard limit besides."""
    limit = skill_limits().get(level) if chosen is None else chosen
    if level == Level.PRIVILEGED:
        return MOST_PRIVILEGED_PER_HOUR if limit is None else min(limit, MOST_PRIVILEGED_PER_HOUR)
    return limit


@transaction.atomic
def skill_set(*, name: str, declared: Level, by: User, now: datetime, **changes: Unpack[Changes]) -> SkillSetting:
    """Changes what differs. Raising a level is an operator's decision; lowering it from what it is, a superuser's."""
    if not by.has_perm(PERMISSION):
        raise NotAllowed("Skills are changed by those who may change skill settings.")
    SkillSetting.objects.bulk_create([SkillSetting(name=name)], ignore_conflicts=True)
    row = SkillSetting.objects.select_for_update().get(name=name)
    before = (row.enabled, row.level, row.hourly_limit)
    if "level" in changes:
        row.level = _level(row, changes["level"], declared=declared, by=by)
    if "hourly_limit" in changes:
        row.hourly_limit = _limit(changes["hourly_limit"], Level(row.level or declared))
    row.enabled = changes.get("enabled", row.enabled)
    if (row.enabled, row.level, row.hourly_limit) == before:
        return row
    row.updated_at, row.updated_by = now, by
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


def _level(row: SkillSetting, wanted: str | None, *, declared: Level, by: User) -> str:
    """What is stored for the level that is wanted; empty stands for the declared one."""
    if wanted and wanted not in Level.values:
        raise Invalid(f"A level is one of {', '.join(Level.values)}, not {wanted!r}.")
    before, after = Level(row.level or declared), Level(wanted or declared)
    if after.rank < before.rank and not by.is_superuser:
        raise NotAllowed(f"Only a superuser may lower {row.name} from {before} to {after}.")
    return wanted or ""


def _limit(wanted: int | None, level: Level) -> int | None:
    most = MOST_PRIVILEGED_PER_HOUR if level == Level.PRIVILEGED else MOST_PER_HOUR
    if wanted is not None and not 0 <= wanted <= most:
        raise Invalid(f"The hourly limit of a {level} skill is from 0 to {most}, not {wanted}.")
    return wanted


@dataclass(frozen=True)
class Pace:
    """How often a skill may be called: so often in a clock hour, and so long after the call before."""

    name: str
    limit: int | None
    cooldown: timedelta


def pace_of(name: str, level: Level, chosen: int | None, *, cooldown_seconds: float) -> Pace:
    return Pace(name, limit_of(level, chosen), timedelta(seconds=cooldown_seconds))


def skill_refusal(pace: Pace, *, now: datetime) -> str:
    """Why a call may not be made now; empty when it may. Nothing is counted."""
    if pace.limit == 0:
        return f"{pace.name} is set to 0 calls an hour: it is not to be called"
    if pace.limit is not None and _counts(pace, now).filter(used__gte=pace.limit).exists():
        spent, again = f"{pace.name} ran {pace.limit} times in this hour", hour_of(now) + timedelta(hours=1)
        return f"{spent}, which is its limit; it may run again at {again:%H:%M} UTC"
    if _cools(pace, now):
        return f"{pace.name} ran less than {pace.cooldown.total_seconds():g} seconds ago; wait before you call it again"
    return ""


def skill_count_refuse(pace: Pace, *, now: datetime) -> str:
    """The same, and the refusal is counted."""
    why = skill_refusal(pace, now=now)
    if why:
        _counted(pace, now).update(refused=F("refused") + 1)
    return why


def skill_count_take(pace: Pace, *, now: datetime) -> str:
    """Counts one call, or says why it may not be made. Inside the block that authorises it, so that a call which is
    not made is not counted, and calls at the same time are counted one by one."""
    free = _counted(pace, now)
    if pace.limit is not None:
        free = free.filter(used__lt=pace.limit)
    if pace.cooldown:
        free = free.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - pace.cooldown))
    if not _cools(pace, now) and free.update(used=F("used") + 1, last_used_at=now):
        return ""
    return skill_count_refuse(pace, now=now)


def _counts(pace: Pace, now: datetime) -> QuerySet[SkillCount]:
    return SkillCount.objects.filter(skill=pace.name, hour=hour_of(now))


def _counted(pace: Pace, now: datetime) -> QuerySet[SkillCount]:
    """The row of this hour, which is made if there is none."""
    SkillCount.objects.bulk_create([SkillCount(skill=pace.name, hour=hour_of(now))], ignore_conflicts=True)
    return _counts(pace, now)


def _cools(pace: Pace, now: datetime) -> bool:
    """Whatever hour the call before was counted in."""
    before = SkillCount.objects.filter(skill=pace.name, last_used_at__gt=now - pace.cooldown)
    return bool(pace.cooldown) and before.exists()


def hour_of(now: datetime) -> datetime:
    """The clock hour that a call at this moment is counted in."""
    return now.replace(minute=0, second=0, microsecond=0)


# Callable skills as people look after them: what each declares, what an operator has set, and how often it ran.
#
# It reads only; agents.skills.registry writes. What is installed is in no table, so it stands beside the registry.


SHOWN_HOURS: Final = 24


@dataclass(frozen=True)
class SkillUse:
    """Calls that were made and refused, in this clock hour and since midnight, both UTC."""

    used_this_hour: int = 0
    refused_this_hour: int = 0
    used_today: int = 0
    refused_today: int = 0


@dataclass(frozen=True)
class ListedSkill:
    """One skill. Without `skill` it is not installed any more; without `setting` nobody has set anything."""

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
        """The level that holds. Unknown for a skill that is not installed and has no level set."""
        chosen = self.setting.level if self.setting else ""
        return Level(chosen) if chosen else self.declared

    @property
    def chosen_limit(self) -> int | None:
        return self.setting.hourly_limit if self.setting else None

    @property
    def limit(self) -> int | None:
        """Calls in a clock hour that are let through; None: as many as are asked for."""
        return limit_of(self.level, self.chosen_limit) if self.level else self.chosen_limit

    @property
    def facts(self) -> dict[str, Any]:
        """Everything about it, by the names that the API and the command use."""
        skill = self.skill
        return {
            "name": self.name,
            "installed": skill is not None,
            "description": skill.description if skill else "",
            "version": skill.version if skill else None,
            "enabled": self.enabled,
            "lacking": skill.lacking if skill else "",
            "declared_level": self.declared,
            "level": self.level,
            "hourly_limit": self.chosen_limit,
            "hourly_limit_in_force": self.limit,
            **vars(self.use),
            "side_effects": skill.side_effects if skill else None,
            "idempotent": skill.idempotent if skill else None,
            "requires_approval": skill.requires_approval if skill else None,
            "timeout_seconds": skill.timeout_seconds if skill else None,
            "isolation": skill.isolation if skill else None,
            "local": skill.local if skill else None,
            "cooldown_seconds": skill.cooldown_seconds if skill else None,
            "addresses": list(skill.addresses) if skill else [],
            "arguments": skill.parameters if skill else None,
            "updated_at": self.setting.updated_at if self.setting else None,
        }


def skills_listed(*, now: datetime) -> list[ListedSkill]:
    """All that are installed, by name; then settings whose skill is not. Two statements, however many there are."""
    settings = {row.name: row for row in SkillSetting.objects.select_related("updated_by").order_by("name")}
    installed = installed_skills()
    gone = [name for name in settings if name not in installed]
    uses = _uses([*installed, *gone], now=now)
    return [
        ListedSkill(name, installed.get(name), settings.get(name), uses.get(name, SkillUse()))
        for name in [*installed, *gone]
    ]


def skill_listed(name: str, *, now: datetime) -> ListedSkill | None:
    """One of them; None when it is neither installed nor was ever set."""
    return next((listed for listed in skills_listed(now=now) if listed.name == name), None)


def skill_to_set(name: str) -> Skill:
    """The skill that somebody wants to set: only what is installed says what level it declares."""
    skill = installed_skills().get(name)
    if skill is None:
        raise NotFound(f"There is no callable skill {name[:64]} installed.")
    return skill


def skill_hours(name: str, *, now: datetime) -> list[SkillCount]:
    """The clock hours of the last day in which it was called, newest first."""
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


# What an agent.yaml names and this installation does not have: skills and models. Nothing of it stops an agent.


_SKILL: Final = "the name of a skill that is installed and switched on"
_SET_UP: Final = "a skill that can work as lqops is set up: "
_MODEL: Final = "the name of a model that is declared"


def unresolved(definition: AgentDefinition, *, file: str = "agent.yaml") -> list[Problem]:
    """Each with its place. A sensor or field whose skill is missing says so itself, and the agent starts."""
    off = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    return not_among(installed_skills().keys() - off, definition, file=file)


def not_among(skills: Set[str], definition: AgentDefinition, *, file: str) -> list[Problem]:
    """The same, with these skills and without a database."""
    return [
        *(
            Problem(file, definition.line_of(key), key, _wanted(name, skills), name)
            for key, name in _tools(definition, skills)
        ),
        *(Problem(file, definition.line_of(key), key, _MODEL, name) for key, name in _models(definition)),
    ]


def _wanted(name: str, skills: Set[str]) -> str:
    if name in skills:
        return f"{_SET_UP}{_lacking(name)}"
    near = get_close_matches(name, skills, n=1)
    return f"{_SKILL} (did you mean {near[0]}?)" if near else _SKILL


def _lacking(name: str) -> str:
    skill = installed_skills().get(name)
    return skill.lacking if skill else ""


def _tools(definition: AgentDefinition, skills: Set[str]) -> Iterator[tuple[str, str]]:
    named = [(f"skills[{number}]", name) for number, name in enumerate(definition.skills or ())]
    fields = definition.hot_state.fields.items()
    named += [(f"hot_state.fields.{field}.refresh_tool", spec.refresh_tool or "") for field, spec in fields]
    named += [(f"{key}.source.tool", sensor.source.tool or "") for key, sensor in _sensors(definition)]
    yield from ((key, name) for key, name in named if name and (name not in skills or _lacking(name)))


def _models(definition: AgentDefinition) -> Iterator[tuple[str, str]]:
    named = {"model": definition.model}
    if definition.autonomy is not None:
        named["autonomy.precheck_model"] = definition.autonomy.precheck_model
    for key, sensor in _sensors(definition):
        named |= {f"{key}.signals[{number}].model": signal.model for number, signal in enumerate(sensor.signals)}
    for key, name in named.items():
        if name is not None and name not in settings.LQOPS_MODELS:
            yield key, name


def _sensors(definition: AgentDefinition) -> Iterator[tuple[str, SensorSpec]]:
    return ((definition.sensor_keys[sensor.name], sensor) for sensor in definition.sensors)
