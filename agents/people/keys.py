"""Keys that integrations show instead of a password: made, shown once, checked, revoked. Only a hash is kept.

A key carries 256 random bits, so a plain SHA-256 of it cannot be searched; its prefix finds the row, and the hash is
compared in constant time. What a key may do is its scopes; whose rows it sees is its user's.

Whoever makes a key holds it, and can act as its user. So people make keys for themselves; a superuser makes them for
others too, though never one that decides: a decision is its maker's own. A command on the host may make any key, for
who is there has the database.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.exceptions import Invalid, NotAllowed
from agents.models import ApiKey
from agents.people.actors import actor_of
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
    _record(key, "api_key.created", by=by, now=now, user_id=user.pk, scopes=chosen)
    return key, secret


@transaction.atomic
def api_key_revoke(*, key: ApiKey, by: User | None, now: datetime) -> ApiKey:
    """Ends a key for good. Revoking it again changes nothing."""
    if by is not None and by.pk != key.user_id and not by.has_perm("agents.change_apikey"):
        raise NotAllowed("Revoking a key of somebody else needs the permission agents.change_apikey.")
    if ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now):
        _record(key, "api_key.revoked", by=by, now=now)
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


def _record(key: ApiKey, kind: str, *, by: User | None, now: datetime, **details: int | list[str]) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"api_key:{key.public_id}",
        details={"key_id": str(key.public_id), **details},
    )
