"""Which changes loosen what binds an agent: one table, by the name of the setting. Pure.

Whoever is bound by a setting may tighten it. Loosening needs a permission of its own.
"""

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from agents.enums import ApprovalMode, Level

_MODES: Final = tuple(ApprovalMode)  # the loosest first


def _is_more(before: Decimal | None, after: Decimal | None) -> bool:
    """Of limits, where None is none; what is no amount is refused later, whoever sets it."""
    return before is not None and (after is None or not after.is_finite() or after > before)


def _is_greater(before: int | None, after: int | None) -> bool:
    """Of counts, where None is no limit."""
    return before is not None and (after is None or after > before)


def _is_later(before: int, after: int) -> bool:
    """Of counts after which something is stopped, where 0 is never."""
    return before != 0 and (after == 0 or after > before)


def _is_laxer_mode(before: str, after: str) -> bool:
    return _MODES.index(ApprovalMode(after)) < _MODES.index(ApprovalMode(before))


def _is_lower(before: str, after: str) -> bool:
    return Level(after).rank < Level(before).rank


def _is_higher(before: str, after: str) -> bool:
    return _is_lower(after, before)


def _is_wider(before: Collection[str], after: Collection[str]) -> bool:
    return not set(after) <= set(before)


def _is_on(before: bool, after: bool) -> bool:  # noqa: FBT001 a row of the table below
    return after and not before


def _is_off(before: bool, after: bool) -> bool:  # noqa: FBT001 a row of the table below
    return before and not after


# What a setting is called, and whether a new value is looser.
LOOSER: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "mode": ("the approval mode", _is_laxer_mode),
    "max_cost_usd": ("the cap of a run", _is_more),
    "max_cost_per_day_usd": ("the cap of a day", _is_more),
    "max_cost_per_month_usd": ("the cap of a month", _is_more),
    "allow_high_risk": ("the approval of calls of high risk", _is_on),
    "waived_skills": ("the approval of PRIVILEGED skills", _is_wider),
    "review_flagged": ("the review of flagged results", _is_off),
    "level": ("the level of a skill", _is_lower),
    "secret_hosts": ("the hosts that a secret may be sent to", _is_wider),
    "skill_enabled": ("a skill that is switched off", _is_on),
    "hourly_limit": ("the hourly limit of a skill", _is_greater),
    "max_runs_per_hour": ("the runs of a trigger in an hour", _is_greater),
    "pause_after": ("the runs after which a trigger pauses", _is_later),
    "highest_level": ("the level of the skills that are offered", _is_higher),
}


def loosened(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what `after` loosens, in words; settings that it does not name stay as they are."""
    return tuple(LOOSER[name][0] for name in looser_settings(before, after))


def looser_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the settings that `after` loosens, or has above a ceiling that is given as `before`."""
    rows = ((name, is_looser) for name, (_, is_looser) in LOOSER.items() if name in after)
    return tuple(name for name, is_looser in rows if is_looser(before[name], after[name]))


def tighter(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `one`, with those of `other` that are tighter in their place."""
    return {**one, **{name: other[name] for name in looser_settings(other, one)}}
