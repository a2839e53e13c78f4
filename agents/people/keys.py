"""API keys: create, verify, revoke. The key is shown once; only its hash is stored.

A key has 256 random bits, so a plain SHA-256 of it cannot be searched. Its prefix finds the row, and the hash is
compared in constant time. Scopes limit what a key may do; it sees the rows of its user.

Whoever creates a key can act as its user. So people create keys for themselves. A superuser may create keys for others,
but none with the scopes `decide` or `admin`. Whoever must have a second factor needs one to create a key. A command on
the host may create any key: it has the database anyway.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.exceptions import Invalid, NotAllowed
from agents.models import ApiKey
from agents.people.access import ADMIN_SCOPE, record_act
from agents.people.second_factor import require_factor
from audit.redaction import redact

MARK: Final = "lqk"
NAME_CHARS: Final = 120
KEY_CHARS: Final = 128
# `last_used_at` is this coarse: a busy key would otherwise write its row with every request.
USE_INTERVAL: Final = timedelta(minutes=1)
_NO_HASH: Final = "0" * 64


class Scope(StrEnum):
    """A permission of a key. No scope implies another: a key with `write` alone can never approve."""

    READ = "read"
    WRITE = "write"
    DECIDE = "decide"
    ADMIN = ADMIN_SCOPE


@transaction.atomic
def api_key_create(
    *, user: User, name: str, scopes: Iterable[str], expires_at: datetime | None, by: User | None, now: datetime
) -> tuple[ApiKey, str]:
    """Create a key for a user. Returns the row and the key itself, which is never shown again."""
    clean_name = redact(name.strip())
    chosen = _checked_scopes(scopes)
    _require_maker(user=user, by=by, scopes=chosen)
    require_factor(by)
    if not clean_name or len(clean_name) > NAME_CHARS:
        raise Invalid(f"The name of a key has 1 to {NAME_CHARS} characters, not {len(clean_name)}.")
    if not user.is_active:
        raise Invalid(f"{user} is not active: the key could not be used.")
    if expires_at is not None and expires_at <= now:
        raise Invalid(f"The key would expire at {expires_at:%Y-%m-%d %H:%M} UTC, which is in the past.")
    prefix = secrets.token_hex(6)
    secret = f"{MARK}_{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey.objects.create(
        user=user,
        name=clean_name,
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
    """Revoke a key for good. Revoking it again changes nothing."""
    if by is not None and by.pk != key.user_id and not by.has_perm("agents.change_apikey"):
        raise NotAllowed("Revoking a key of somebody else needs the permission agents.change_apikey.")
    if ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=now):
        _record_key(key, "api_key.revoked", by=by, now=now)
    key.refresh_from_db()
    return key


def api_key_verify(secret: str, *, now: datetime) -> ApiKey | None:
    """Return the key if it is known, not revoked, not expired, and its user is active."""
    mark, _, rest = secret.partition("_")
    prefix, _, _ = rest.partition("_")
    if mark != MARK or len(secret) > KEY_CHARS or not secret.isascii() or not prefix.isalnum():
        return None
    key = ApiKey.objects.select_related("user").filter(prefix=prefix).first()
    # Compare for an unknown prefix too, so that the time does not reveal which prefixes exist.
    matches = hmac.compare_digest(_hash(secret), key.hash if key else _NO_HASH)
    if key is None or not matches or not _is_valid(key, now):
        return None
    _note_use(key, now)
    return key


def _require_maker(*, user: User, by: User | None, scopes: list[str]) -> None:
    if by is None or by.pk == user.pk:
        return
    if not by.is_superuser:
        raise NotAllowed("Only a superuser may create a key for somebody else: whoever has it can act as its user.")
    if own := {Scope.DECIDE, Scope.ADMIN} & set(scopes):
        raise NotAllowed(f"A key with the scope {', '.join(sorted(own))} can only be created by its user.")


def _is_valid(key: ApiKey, now: datetime) -> bool:
    expired = key.expires_at is not None and key.expires_at <= now
    return key.revoked_at is None and not expired and key.user.is_active


def _note_use(key: ApiKey, now: datetime) -> None:
    if key.last_used_at is None or key.last_used_at <= now - USE_INTERVAL:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - USE_INTERVAL)
        ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    requested = set(scopes)
    unknown = requested - set(Scope)
    if unknown or not requested:
        got = ", ".join(sorted(unknown)) or "nothing"
        raise Invalid(f"Expected one or more of the scopes {', '.join(Scope)}; got {got}.")
    return [str(scope) for scope in Scope if scope in requested]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _record_key(key: ApiKey, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    key_id = str(key.public_id)
    record_act(kind, by=by, now=now, subject=f"api_key:{key_id}", key_id=key_id, **details)
