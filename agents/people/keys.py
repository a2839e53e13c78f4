"""Keys that integrations show instead of a password: made, shown once, checked, revoked. Only a hash is kept.

A key carries 256 random bits, so a plain SHA-256 of it cannot be searched; its prefix finds the row, and the hash is
compared in constant time. What a key may do is its scopes; whose rows it sees is its user's.

Whoever makes a key holds it, and can act as its user. So people make keys for themselves; a superuser makes them for
others too, though never one that decides: a decision is its maker's own. A command on the host may make any key, for
who is there has the database.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q
from django.utils.crypto import salted_hmac

from agents.exceptions import Invalid, NotAllowed
from agents.models import ApiKey, SignInCount
from agents.people.access import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

MARK: Final = "lqk"
NAME_CHARS: Final = 120
LONGEST_KEY: Final = 128
# A busy key would otherwise write its row with every request.
USED_EVERY: Final = timedelta(minutes=1)
_NO_HASH: Final = "0" * 64


class Scope(StrEnum):
    """What a key may do. None implies another: a key that may write and not decide can never approve."""

    READ = "read"
    WRITE = "write"
    DECIDE = "decide"


@transaction.atomic
def api_key_create(
    *, user: User, name: str, scopes: Iterable[str], expires_at: datetime | None, by: User | None, now: datetime
) -> tuple[ApiKey, str]:
    """A key for a user, and the key itself: this is the only time that anybody sees it."""
    named, chosen = redact(name.strip()), _checked_scopes(scopes)
    _refuse_impostor(user=user, by=by, scopes=chosen)
    if not named or len(named) > NAME_CHARS:
        raise Invalid(f"The name of a key has 1 to {NAME_CHARS} characters, not {len(named)}.")
    if not user.is_active:
        raise Invalid(f"{user} is not active: a key would open nothing.")
    if expires_at is not None and expires_at <= now:
        raise Invalid(f"A key that ends at {expires_at:%Y-%m-%d %H:%M} UTC has ended already.")
    prefix = secrets.token_hex(6)
    secret = f"{MARK}_{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey.objects.create(
        user=user,
        name=named,
        prefix=prefix,
        hash=_hash(secret),
        scopes=chosen,
        expires_at=expires_at,
        created_at=now,
    )
    _record_key(key, "api_key.created", by=by, now=now, user_id=user.pk, scopes=chosen)
    return key, secret


@transaction.atomic
def api_key_revoke(*, key: ApiKey, by: User | None, now: datetime) -> ApiKey:
    """Ends a key for good. Revoking it again changes nothing."""
    if by is not None and by.pk != key.user_id and not by.has_perm("agents.change_apikey"):
        raise NotAllowed("Revoking a key of somebody else needs the permission agents.change_apikey.")
    if ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now):
        _record_key(key, "api_key.revoked", by=by, now=now)
    key.refresh_from_db()
    return key


def api_key_verify(secret: str, *, now: datetime) -> ApiKey | None:
    """The key that this is, if it opens anything now: known, not revoked, not expired, and its user is active."""
    mark, _, rest = secret.partition("_")
    prefix, _, _ = rest.partition("_")
    if mark != MARK or len(secret) > LONGEST_KEY or not secret.isascii() or not prefix.isalnum():
        return None
    key = ApiKey.objects.select_related("user").filter(prefix=prefix).first()
    # The comparison is made for an unknown prefix too, so that the time tells nothing about which prefixes exist.
    matches = hmac.compare_digest(_hash(secret), key.hash if key else _NO_HASH)
    if key is None or not matches or not _is_open(key, now):
        return None
    _note_use(key, now)
    return key


def _refuse_impostor(*, user: User, by: User | None, scopes: list[str]) -> None:
    if by is None or by.pk == user.pk:
        return
    if not by.is_superuser:
        raise NotAllowed("A key lets its maker act as its user: people make keys for themselves, not for others.")
    if Scope.DECIDE in scopes:
        raise NotAllowed("A key with the scope decide is made by the one whose decisions it makes.")


def _is_open(key: ApiKey, now: datetime) -> bool:
    expired = key.expires_at is not None and key.expires_at <= now
    return key.revoked_at is None and not expired and key.user.is_active


def _note_use(key: ApiKey, now: datetime) -> None:
    if key.last_used_at is None or key.last_used_at <= now - USED_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - USED_EVERY)
        ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    asked = set(scopes)
    unknown = asked - set(Scope)
    if unknown or not asked:
        named = ", ".join(sorted(unknown)) or "nothing"
        raise Invalid(f"A key has one or more of the scopes {', '.join(Scope)}; {named} was asked for.")
    return [str(scope) for scope in Scope if scope in asked]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record_key(key: ApiKey, kind: str, *, by: User | None, now: datetime, **details: int | list[str]) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"api_key:{key.public_id}",
        details={"key_id": str(key.public_id), **details},
    )


# Sign-ins: the brake on guessing passwords. Tries are counted by account and by address; after too many one waits.
#
# A name counts whether or not there is such an account, so the brake tells nobody which there are; it is kept as a
# keyed hash, for people type passwords there. An account at an address that it has signed in from is counted by
# itself: nobody elsewhere can lock its owner out.


WINDOW: Final = timedelta(minutes=15)
ACCOUNT_TRIES: Final = 20
ADDRESS_TRIES: Final = 100
KNOWN_FOR: Final = timedelta(days=90)
_SALT: Final = "lqops.web"
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
            _record_lockout(subject, most, username=username, now=now)
    return row.began_at + WINDOW - now if row.failures > most else None


def _forget_old(now: datetime) -> None:
    SignInCount.objects.filter(began_at__lte=now - WINDOW).exclude(known_until__gt=now).delete()


def _record_lockout(subject: str, most: int, *, username: str, now: datetime) -> None:
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
