"""Sign-ins: the brake on guessing passwords. Tries are counted by account and by address; after too many one waits.

A name counts whether or not there is such an account, so the brake tells nobody which there are; it is kept as a keyed
hash, for people type passwords there. An account at an address that it has signed in from is counted by itself: nobody
elsewhere can lock its owner out.
"""

import ipaddress
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils.crypto import salted_hmac

from agents.models import SignInCount
from agents.people.actors import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN

WINDOW: Final = timedelta(minutes=15)
ACCOUNT_TRIES: Final = 20
ADDRESS_TRIES: Final = 100
KNOWN_FOR: Final = timedelta(days=90)
_SALT: Final = "lqops.sign_in"
_NEIGHBOURS: Final = 64  # one household or machine has all addresses of such a network of IPv6


def sign_in_begin(*, username: str, address: str, now: datetime) -> timedelta | None:
    """Counts a try before its password is looked at. How long to wait, if there were too many; the password is then
    not looked at, and the wait grows no longer."""
    account, place = _account(username), _place(address)
    for subject in _subjects(account, place, now):
        most = ADDRESS_TRIES if subject == place else ACCOUNT_TRIES
        if wait := _try(subject, most, username=username, now=now):
            return wait
    return None


@transaction.atomic
def sign_in_done(*, username: str, address: str, now: datetime) -> None:
    """The try led in: what counted it starts anew, and the account is known at this address from now on."""
    account, place = _account(username), _place(address)
    for subject in _subjects(account, place, now):
        rows = SignInCount.objects.filter(subject=subject, failures__gt=0)
        rows.update(failures=F("failures") - 1 if subject == place else 0)
    if place:
        known = {"failures": 0, "began_at": now, "known_until": now + KNOWN_FOR}
        SignInCount.objects.update_or_create(subject=f"{account}@{place}", defaults=known)


@transaction.atomic
def sign_ins_clear(*, username: str = "", by: User | None, now: datetime) -> int:
    """Lets an account be tried again at once, from everywhere; without a name all accounts and addresses."""
    rows = SignInCount.objects.filter(failures__gt=0)
    if username:
        rows = rows.filter(subject__startswith=_account(username))
    cleared = rows.update(failures=0)
    recorder.append(SYSTEM_CHAIN, "sign_in.cleared", now=now, actor=actor_of(by), details={"counts": cleared})
    return cleared


def _subjects(account: str, place: str, now: datetime) -> list[str]:
    """What a try counts for, the address first: one that has had enough adds nothing to anybody's account."""
    pair = f"{account}@{place}"
    if place and SignInCount.objects.filter(subject=pair, known_until__gt=now).exists():
        return [pair]
    return [place, account] if place else [account]


@transaction.atomic
def _try(subject: str, most: int, *, username: str, now: datetime) -> timedelta | None:
    row, made = SignInCount.objects.select_for_update().get_or_create(subject=subject, defaults={"began_at": now})
    if made:
        _forget_old(now)
    if not now - WINDOW < row.began_at <= now:
        row.began_at, row.failures = now, 0
    if row.failures <= most:  # what is beyond is refused and not written: a flood costs nothing more
        row.failures += 1
        row.save(update_fields=["failures", "began_at"])
        if row.failures > most:
            _record(subject, most, username=username, now=now)
    return row.began_at + WINDOW - now if row.failures > most else None


def _forget_old(now: datetime) -> None:
    SignInCount.objects.filter(began_at__lte=now - WINDOW).exclude(known_until__gt=now).delete()


def _record(subject: str, most: int, *, username: str, now: datetime) -> None:
    """Once for each wait. An account is named if there is one."""
    scope, _, rest = subject.partition(":")
    user = User.objects.filter(username=username).first() if scope == "account" else None
    recorder.append(
        SYSTEM_CHAIN,
        "sign_in.refused",
        now=now,
        subject=f"user:{user.pk}" if user else "",
        details={"scope": scope, "tries": most} | ({"address": rest} if scope == "address" else {}),
    )


def _account(username: str) -> str:
    return f"account:{salted_hmac(_SALT, username, algorithm='sha256').hexdigest()}"


def _place(address: str) -> str:
    """The address, or the network of an IPv6 address; nothing where the server does not know it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return f"address:{ipaddress.ip_network((int(found), _NEIGHBOURS), strict=False)}"
        found = found.ipv4_mapped
    return f"address:{found}"
