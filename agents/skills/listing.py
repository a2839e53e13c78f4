"""Callable skills as people look after them: what each declares, what an operator has set, and how often it ran.

It reads only; agents.skills.skills writes. What is installed is in no table, so it stands beside the registry.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q, Sum

from agents.enums import Level
from agents.exceptions import NotFound
from agents.models import SkillCount, SkillSetting
from agents.skills.registry import installed_skills
from agents.skills.skill import Skill
from agents.skills.skills import hour_of, limit_of

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
