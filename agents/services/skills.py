"""What operators decide about callable skills, and how often each runs in a clock hour."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q

from agents.enums import Level
from agents.exceptions import Invalid, NotAllowed
from agents.models import SkillCount, SkillSetting
from agents.services.actors import actor_of
from agents.types import SkillStanding
from audit import recorder
from audit.models import SYSTEM_CHAIN

MOST_PRIVILEGED_PER_HOUR = 20
PERMISSION = "agents.change_skillsetting"


@dataclass(frozen=True)
class Change:
    """What is to be set; None leaves a thing as it is. An empty level means: as declared."""

    enabled: bool | None = None
    level: str | None = None
    hourly_limit: int | None = None


def skill_standing(name: str, declared: Level) -> SkillStanding:
    """How a skill stands now. One query; without a row it is as declared."""
    row = SkillSetting.objects.filter(name=name).values_list("enabled", "level", "hourly_limit").first()
    enabled, level, limit = row or (True, "", None)
    return SkillStanding(enabled=enabled, level=Level(level) if level else declared, hourly_limit=limit)


def limit_of(level: Level, chosen: int | None) -> int | None:
    """Calls in an hour. For PRIVILEGED skills an operator may only choose fewer than the hard limit."""
    if level == Level.PRIVILEGED:
        return min(MOST_PRIVILEGED_PER_HOUR, MOST_PRIVILEGED_PER_HOUR if chosen is None else chosen)
    return chosen


@transaction.atomic
def skill_set(*, name: str, declared: Level, change: Change, by: User, now: datetime) -> SkillSetting:
    """Raising a level is an operator's decision; lowering it below what its author declared is a superuser's."""
    if not by.has_perm(PERMISSION):
        raise NotAllowed("Skills are changed by those who may change skill settings.")
    SkillSetting.objects.bulk_create([SkillSetting(name=name)], ignore_conflicts=True)
    row = SkillSetting.objects.select_for_update().get(name=name)
    before = Level(row.level) if row.level else declared
    if change.level is not None:
        if change.level and change.level not in Level.values:
            raise Invalid(f"A level is one of {', '.join(Level.values)}, not {change.level!r}.")
        after = Level(change.level) if change.level else declared
        if after.rank < before.rank and not by.is_superuser:
            raise NotAllowed(f"Only a superuser may lower {name} from {before} to {after}.")
        row.level = change.level
    if change.enabled is not None:
        row.enabled = change.enabled
    if change.hourly_limit is not None:
        row.hourly_limit = change.hourly_limit
    row.updated_at, row.updated_by = now, by
    row.save()
    recorder.append(
        SYSTEM_CHAIN,
        "skill.set",
        now=now,
        actor=actor_of(by),
        subject=f"skill:{name}",
        details={"enabled": row.enabled, "level": row.level or declared, "hourly_limit": row.hourly_limit},
    )
    return row


def skill_count_take(name: str, *, limit: int | None, cooldown: timedelta, now: datetime) -> str:
    """Counts one call, or says why it may not be made. Inside the block that authorises it, so that a call which is
    not made is not counted, and calls at the same time are counted one by one."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    SkillCount.objects.bulk_create([SkillCount(skill=name, hour=hour)], ignore_conflicts=True)
    row = SkillCount.objects.filter(skill=name, hour=hour)
    free = row if limit is None else row.filter(used__lt=limit)
    if cooldown:
        free = free.filter(Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - cooldown))
    if free.update(used=F("used") + 1, last_used_at=now):
        return ""
    row.update(refused=F("refused") + 1)
    spent = limit is not None and row.filter(used__gte=limit).exists()
    if spent:
        return f"{name} ran {limit} times in this hour, which is its limit; it may run again at {_next(hour):%H:%M} UTC"
    return f"{name} ran less than {cooldown.total_seconds():g} seconds ago; wait before you call it again"


def _next(hour: datetime) -> datetime:
    return hour + timedelta(hours=1)
