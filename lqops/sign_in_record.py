"""Audit events of sign-ins and second factors, written where django-allauth reports them."""

from typing import Any

from allauth.account.internal.flows.login import get_authentication_records, record_authentication
from allauth.account.signals import user_logged_in
from allauth.core import context
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db.models.signals import post_delete, post_save
from django.http import HttpRequest

from agents.conf import clock
from agents.people.access import record_act
from agents.people.sign_ins import record_sign_in, sign_in_done

WAYS = {"socialaccount": "single_sign_on"}  # by allauth's name


def connect() -> None:
    user_logged_in.connect(_signed_in)
    post_save.connect(_factor_saved, sender=Authenticator)
    post_delete.connect(_factor_deleted, sender=Authenticator)


def client_address(request: HttpRequest) -> str:
    """Return the address that the server sees. A header counts only if the server trusts the proxy that set it."""
    return str(request.META.get("REMOTE_ADDR", ""))


def record_factor(kind: str, user: User, **details: Any) -> None:
    record_act(kind, by=user, now=clock(), subject=f"user:{user.pk}", user_id=user.pk, **details)


def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    address = client_address(request)
    sign_in_done(username=user.username, address=address, now=clock())
    how = "+".join(map(_way, get_authentication_records(request, user)))
    record_sign_in(user=user, how=how, address=address, now=clock())


def _way(record: dict[str, Any]) -> str:
    if record.get("passwordless"):
        return "passkey"
    return WAYS.get(record["method"], str(record.get("type") or record["method"]))


def _factor_saved(instance: Any, created: bool, **_: Any) -> None:  # noqa: FBT001 Django's signal
    if not created or not (user := _own_user(instance)):
        return
    record_factor("factor.added", user, factor_id=instance.pk, type=instance.type)
    if instance.type != Authenticator.Type.RECOVERY_CODES:
        # Whoever sets a factor up has just used it, in this session.
        record_authentication(context.request, user, "mfa", id=instance.pk, type=instance.type)


def _factor_deleted(instance: Any, **_: Any) -> None:
    if user := _own_user(instance):
        record_factor("factor.removed", user, factor_id=instance.pk, type=instance.type)


def _own_user(factor: Any) -> User | None:
    """Return the user of a factor if it is they who change it. Other changes have an event of their own."""
    user = getattr(context.request, "user", None)
    return user if user is not None and user.pk == factor.user_id else None
