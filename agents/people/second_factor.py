"""Second factors: who must have one, who has one, and the removal of lost ones.

`LQOPS_SECOND_FACTOR_FOR` names roles and permissions, or `everybody`. If it names anything, superusers are included.
The factors are rows of django-allauth: authenticator apps, passkeys and recovery codes. Recovery codes alone are none.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q, QuerySet

from agents.conf import clock
from agents.exceptions import NotAllowed
from agents.people.access import COMMAND, HALT_PERMISSION, LOOSEN_PERMISSION, record_act
from agents.people.browser_sessions import browser_sessions_delete
from agents.people.delegations import delegations_in_force, holders

EVERYBODY: Final = "everybody"
FACTORS: Final = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
FACTOR_NAMES: Final = {
    Authenticator.Type.TOTP: "authenticator app",
    Authenticator.Type.WEBAUTHN: "passkey or security key",
    Authenticator.Type.RECOVERY_CODES: "recovery codes",
}
# Permissions of people who decide: `doctor` names those who have no second factor.
DECIDING: Final = ("agents.resolve_approval", LOOSEN_PERMISSION, HALT_PERMISSION)


def must_have_factor(user: User) -> bool:
    """True if a setting demands a second factor of this user, or of somebody for whom the user decides."""
    names = settings.LQOPS_SECOND_FACTOR_FOR
    if not names:
        return False
    return _is_named(user, names) or any(_is_named(one, names) for one in holders(user, clock()) if one.pk != user.pk)


def _is_named(user: User, names: Collection[str]) -> bool:
    if user.is_superuser or EVERYBODY in names:
        return True
    permissions = [name for name in names if "." in name]
    return any(map(user.has_perm, permissions)) or user.groups.filter(name__in=names).exists()


def has_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user_id=user.pk, type__in=FACTORS).exists())


def require_factor(by: User | None) -> None:
    """Refuse people who must have a second factor and have none. A command on the host may."""
    if by is not None and must_have_factor(by) and not has_factor(by):
        raise NotAllowed("Your role needs a second factor for this: set one up under Second factor, then try again.")


def factors_of(user: User) -> QuerySet[Any]:
    """Return the factors and recovery codes of a user."""
    rows: QuerySet[Any] = Authenticator.objects.filter(user_id=user.pk).order_by("pk")
    return rows


@transaction.atomic
def factors_remove(*, user: User, by: User | None, now: datetime) -> int:
    """Remove all factors and recovery codes of a user who has lost them, and sign the user out everywhere."""
    if by is not None and not by.is_superuser:
        raise NotAllowed("Only a superuser may remove the second factors of a user.")
    removed = list(factors_of(user).values_list("type", flat=True))
    factors_of(user).delete()
    ended = browser_sessions_delete(user)
    details = {"user_id": user.pk, "factors": removed, "sessions": ended}
    record_act("people.factors_removed", by=by, now=now, subject=f"user:{user.pk}", unnamed=COMMAND, **details)
    return len(removed)


def deciders_without_factor() -> list[str]:
    """Return the names of active people who can decide and have no second factor."""
    holds = Q()
    for permission in DECIDING:
        app, codename = permission.split(".")
        rows = Permission.objects.filter(content_type__app_label=app, codename=codename)
        holds |= Q(groups__permissions__in=rows) | Q(user_permissions__in=rows)
    equipped = Authenticator.objects.filter(type__in=FACTORS).values("user_id")
    delegates = delegations_in_force(clock()).values("delegate_id")
    users = User.objects.filter(Q(is_superuser=True) | Q(pk__in=delegates) | holds, is_active=True)
    users = users.exclude(pk__in=equipped)
    return sorted(users.values_list("username", flat=True).distinct())


def unknown_names() -> list[str]:
    """Return what the setting names although there is no such role or permission."""
    names = set(settings.LQOPS_SECOND_FACTOR_FOR) - {EVERYBODY}
    groups = Group.objects.filter(name__in=names).values_list("name", flat=True)
    permissions = Permission.objects.select_related("content_type").all()
    known = {f"{row.content_type.app_label}.{row.codename}" for row in permissions} if names else set()
    return sorted(names - known - set(groups))
