"""What time it is: the time of the call itself, so that the same call tells the same time again."""

from functools import cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from agents.enums import Level
from agents.exceptions import Invalid
from agents.skills.skill import SkillContext, skill


@skill(level=Level.SAFE, side_effects=False, local=True)
def now(
    context: SkillContext,
    zone: Annotated[str, Field(max_length=64, description="An IANA time zone, such as Europe/Paris.")] = "UTC",
) -> dict[str, Any]:
    """The present date, time and weekday in a time zone."""
    if zone not in _zones():
        raise Invalid(f"{zone!r} is no time zone; use an IANA name such as Europe/Paris, or UTC.")
    there = context.now.astimezone(ZoneInfo(zone))
    return {
        "time": there.isoformat(timespec="seconds"),
        "weekday": f"{there:%A}",
        "week": there.isocalendar().week,
        "zone": zone,
    }


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
