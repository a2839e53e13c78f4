"""What a person's agents, triggers and runs may be at most: approval mode, level of skills, cap of a run and of a day.

An agent that an admin has tightened would be no limit if its owner could make another beside it. So everything new is
measured by its owner: by ceilings that an admin has set for them, else by those of the installation. Whoever may loosen
may go beyond. What exists stays as it is until somebody changes it. When somebody who may loosen tightens an agent of
another person, that person's ceilings follow.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import default_session_cap
from agents.enums import ApprovalMode, BudgetPeriod, BudgetScope, Level
from agents.exceptions import Invalid, NotAllowed
from agents.models import Cap, Installation, Profile
from agents.people.access import COMMAND, LOOSEN_PERMISSION, record_act, require_may_loosen
from agents.policy.loosening import LOOSER, looser_settings, tighter

# Settings by the names that agents and triggers have for them, and the columns of a person's own ceilings.
COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "mode": "ceiling_mode",
        "highest_level": "ceiling_level",
        "max_cost_usd": "ceiling_run_usd",
        "max_cost_per_day_usd": "ceiling_agent_day_usd",
    }
)
_CHOICES: Final = {"mode": ApprovalMode, "highest_level": Level}
_HOW: Final = "An admin can raise the ceiling: Set ceilings on the page of {user} under People, or manage.py ceilings."


def own_ceilings(owner_id: int) -> dict[str, Any]:
    """Return the ceilings that an admin has set for a person, or that followed from an admin's act."""
    row = Profile.objects.filter(user_id=owner_id).values_list(*COLUMNS.values()).first() or ()
    found = dict(zip(COLUMNS, row, strict=False))
    return {name: value for name, value in found.items() if value not in {None, ""}}


def ceilings_of(owner_id: int) -> dict[str, Any]:
    """Return the ceilings that hold for a person, by the names of the settings.

    The cap of a day is at most what all the person's runs may spend together, and what the installation may.
    """
    held = {**_defaults(), **own_ceilings(owner_id)}
    days = Cap.objects.filter(scope=BudgetScope.OWNER, subject_id=owner_id, period=BudgetPeriod.DAY)
    whole = Installation.objects.values_list("max_cost_per_day_usd", flat=True)
    caps = (held.get("max_cost_per_day_usd"), *days.values_list("cap_usd", flat=True), *whole)
    held["max_cost_per_day_usd"] = min(cap for cap in caps if cap is not None)
    return held


def _defaults() -> dict[str, Any]:
    return {
        "mode": settings.LQOPS_CEILING_MODE,
        "highest_level": settings.LQOPS_CEILING_LEVEL,
        "max_cost_usd": settings.LQOPS_CEILING_RUN_USD,
    }


def default_mode_of(owner_id: int, mode: str) -> str:
    """Return the default approval mode: the given one, unless the owner's ceiling is stricter."""
    default = {"mode": settings.LQOPS_CEILING_MODE, **own_ceilings(owner_id)}["mode"]
    return str(tighter({"mode": mode}, {"mode": default})["mode"])


def default_run_cap(profile: Profile | None) -> Decimal:
    """Return the cap of a run for which none is stated: the installation's default, at most the owner's ceiling."""
    own = profile.ceiling_run_usd if profile else None
    return min(default_session_cap(), settings.LQOPS_CEILING_RUN_USD if own is None else own)


def require_within_ceilings(by: User | None, *, owner: User, **wanted: Any) -> None:
    """Refuse settings above the ceilings of an owner, unless `by` may loosen. None is not measured: it is no amount."""
    measured = {name: value for name, value in wanted.items() if value is not None}
    if not measured or by is None:
        return
    limits = ceilings_of(owner.pk)
    above = looser_settings(limits, measured)
    words = [f"{LOOSER[name][0]} ({measured[name]}; the ceiling of {owner} is {limits[name]})" for name in above]
    try:
        require_may_loosen(by, words, bound=[owner.pk])
    except NotAllowed as error:
        raise NotAllowed(f"{error} {_HOW.format(user=owner)}") from None


# --- Changing them ---


@transaction.atomic
def ceilings_set(*, user: User, by: User | None, now: datetime, **ceilings: Any) -> Profile:
    """Set some of a person's own ceilings; None or "" stands for the installation's. Equal values are no change.

    They bind what is new or changed from now on. For those who may loosen.
    """
    require_may_loosen(by, [f"or changes the ceilings of {user}"], bound=[user.pk])
    given = {COLUMNS[name]: _checked(name, value) for name, value in _known(ceilings).items()}
    Profile.objects.get_or_create(user=user)
    profile = Profile.objects.select_for_update(no_key=True).get(user=user)
    changed = {column: value for column, value in given.items() if getattr(profile, column) != value}
    if changed:
        Profile.objects.filter(pk=profile.pk).update(**changed)
        profile.refresh_from_db()
        ceilings_record(user.pk, _by_name(changed), by=by, now=now)
    return profile


def ceilings_lower(owner_id: int, *, by: User | None, **to: Any) -> dict[str, Any]:
    """Lower an owner's ceilings to what an admin has tightened; return those that were higher.

    Whoever may not loosen lowers nothing: they could not take it back. Call it before the first audit event, and after
    budgets are locked; then record what it returns.
    """
    if by is None or by.pk == owner_id or not by.has_perm(LOOSEN_PERMISSION):
        return {}
    wanted = {name: value for name, value in to.items() if value is not None}
    lower = looser_settings(wanted, {name: value for name, value in ceilings_of(owner_id).items() if name in wanted})
    followed = {name: wanted[name] for name in lower}
    if followed:
        Profile.objects.get_or_create(user_id=owner_id)
        Profile.objects.filter(user_id=owner_id).update(**{COLUMNS[name]: followed[name] for name in followed})
    return followed


def ceilings_record(
    owner_id: int, ceilings: Mapping[str, Any], *, by: User | None, now: datetime, follows: str = ""
) -> None:
    """Append the audit event of changed ceilings. `follows` is what was tightened, if they follow from that."""
    if not ceilings:
        return
    said: dict[str, Any] = {name: "default" if value in {None, ""} else str(value) for name, value in ceilings.items()}
    if follows:
        said["follows"] = follows
    subject, fields = f"user:{owner_id}", sorted(ceilings)
    record_act(
        "people.ceilings_set", by=by, now=now, subject=subject, unnamed=COMMAND, user_id=owner_id, fields=fields, **said
    )


def _known(ceilings: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := sorted(ceilings.keys() - COLUMNS.keys()):
        raise Invalid(f"There is no ceiling {', '.join(unknown)}; there are {', '.join(COLUMNS)}.")
    return ceilings


def _checked(name: str, value: Any) -> Any:
    if name in _CHOICES:
        if value and value not in _CHOICES[name].values:
            raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(_CHOICES[name].values)}.")
        return value or ""
    if value is not None and not (isinstance(value, Decimal) and value.is_finite() and value >= 0):
        raise Invalid(f"{name} is {value!r}; it must be an amount of US dollars, 0 or more.")
    return value


def _by_name(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: columns[column] for name, column in COLUMNS.items() if column in columns}
