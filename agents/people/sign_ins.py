"""Sign-in limits against password guessing: tries are counted by account and by address.

A user name counts whether or not the account exists, so the limit does not reveal which accounts there are. Names are
stored as keyed hashes, because people sometimes type their password there. An account at an address where it has
signed in before has a count of its own, so that nobody elsewhere can lock its owner out. Codes of a second factor have
a lower limit, by account alone: whoever is asked for one has given the password.
"""

import ipaddress
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils.crypto import salted_hmac

from agents.models import SignInCount
from agents.people.access import record_act
from audit.models import AuditEvent

WINDOW: Final = timedelta(minutes=15)
ACCOUNT_TRIES: Final = 20
ADDRESS_TRIES: Final = 100
CODE_TRIES: Final = 10
KNOWN_FOR: Final = timedelta(days=90)
_SALT: Final = "lqops.web"
_IPV6_PREFIX: Final = 64  # one household or machine has all addresses of such a network


def sign_in_begin(*, username: str, address: str, now: datetime) -> timedelta | None:
    """Count a try before the password is checked. Returns how long to wait if there were too many.

    Then the password must not be checked. Further tries do not extend the wait.
    """
    account = _account(username)
    place = _place(address)
    for subject in _subjects(account, place, now):
        limit = ADDRESS_TRIES if subject == place else ACCOUNT_TRIES
        if wait := _count_try(subject, limit, username=username, now=now):
            return wait
    return None


@transaction.atomic
def sign_in_done(*, username: str, address: str, now: datetime) -> None:
    """Reset the counts after a successful sign-in, and remember the address for this account."""
    account = _account(username)
    place = _place(address)
    for subject in _subjects(account, place, now):
        rows = SignInCount.objects.filter(subject=subject, failures__gt=0)
        rows.update(failures=F("failures") - 1 if subject == place else 0)
    if place:
        known = {"failures": 0, "began_at": now, "known_until": now + KNOWN_FOR}
        SignInCount.objects.update_or_create(subject=f"{account}@{place}", defaults=known)


def code_begin(*, user: User, now: datetime) -> timedelta | None:
    """Count a try before a code, or the password of somebody signed in, is checked. Returns how long to wait."""
    return _count_try(_code(user), CODE_TRIES, username=user.username, now=now)


def code_done(*, user: User) -> None:
    """Reset the count after a right code."""
    SignInCount.objects.filter(subject=_code(user), failures__gt=0).update(failures=0)


@transaction.atomic
def sign_ins_clear(*, username: str = "", by: User | None, now: datetime) -> int:
    """Unlock an account at all addresses; without a name, all accounts and addresses."""
    rows = SignInCount.objects.filter(failures__gt=0)
    if username:
        account = _account(username)
        rows = rows.filter(Q(subject__startswith=account) | Q(subject=account.replace("account:", "code:")))
    cleared = rows.update(failures=0)
    record_act("sign_in.cleared", by=by, now=now, counts=cleared)
    return cleared


# --- Audit events of signing in ---

PASSWORD: Final = "wrong_password"  # noqa: S105 the name of a failure
CODE: Final = "wrong_code"
SSO: Final = "single_sign_on"
SHOWN: Final = 10


def record_sign_in(*, user: User, how: str, address: str, now: datetime) -> None:
    subject = f"user:{user.pk}"
    record_act("sign_in.done", by=user, now=now, subject=subject, user_id=user.pk, how=how, address=address)


def record_failure(*, username: str, what: str, address: str, now: datetime) -> None:
    """Record a wrong password or code. Names the user if the account exists; what was typed is not stored."""
    user = User.objects.filter(username=username).first()
    details: dict[str, Any] = {"what": what, "address": address} | ({"user_id": user.pk} if user else {})
    record_act("sign_in.failed", by=None, now=now, subject=f"user:{user.pk}" if user else "", **details)


def last_sign_ins(user: User) -> QuerySet[AuditEvent]:
    """Return the newest sign-ins and failures of a user, newest first."""
    events = AuditEvent.objects.of_kind("sign_in.done", "sign_in.failed")
    return events.filter(subject=f"user:{user.pk}").order_by("-id")[:SHOWN]


def _subjects(account: str, place: str, now: datetime) -> list[str]:
    """Return what a try counts for. The address comes first: a locked address adds nothing to an account."""
    pair = f"{account}@{place}"
    if place and SignInCount.objects.filter(subject=pair, known_until__gt=now).exists():
        return [pair]
    return [place, account] if place else [account]


@transaction.atomic
def _count_try(subject: str, limit: int, *, username: str, now: datetime) -> timedelta | None:
    row, created = SignInCount.objects.select_for_update().get_or_create(subject=subject, defaults={"began_at": now})
    if created:
        _delete_expired(now)
    if not now - WINDOW < row.began_at <= now:
        row.began_at = now
        row.failures = 0
    if row.failures <= limit:  # later tries write nothing: a flood costs nothing more
        row.failures += 1
        row.save(update_fields=["failures", "began_at"])
        if row.failures > limit:
            _record_lockout(subject, limit, username=username, now=now)
    return row.began_at + WINDOW - now if row.failures > limit else None


def _delete_expired(now: datetime) -> None:
    SignInCount.objects.filter(began_at__lte=now - WINDOW).exclude(known_until__gt=now).delete()


def _record_lockout(subject: str, limit: int, *, username: str, now: datetime) -> None:
    """Record a lock-out, once per wait. Names the user if the account exists."""
    scope, _, rest = subject.partition(":")
    user = User.objects.filter(username=username).first() if scope in {"account", "code"} else None
    details: dict[str, Any] = {"scope": scope, "tries": limit} | ({"address": rest} if scope == "address" else {})
    record_act("sign_in.refused", by=None, now=now, subject=f"user:{user.pk}" if user else "", **details)


def _account(username: str) -> str:
    return f"account:{salted_hmac(_SALT, username, algorithm='sha256').hexdigest()}"


def _code(user: User) -> str:
    return _account(user.username).replace("account:", "code:")


def _place(address: str) -> str:
    """Return the address, or the network of an IPv6 address; empty when the server does not know it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return f"address:{ipaddress.ip_network((int(found), _IPV6_PREFIX), strict=False)}"
        found = found.ipv4_mapped
    return f"address:{found}"
