"""What operators decide about callable skills, and how often each runs in a clock hour."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypedDict, Unpack

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from agents.conf import skill_limits
from agents.enums import Level
from agents.exceptions import Invalid, NotAllowed
from agents.models import SkillCount, SkillSetting
from agents.people.actors import actor_of
from agents.types import SkillStanding
from audit import recorder
from audit.models import SYSTEM_CHAIN

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
