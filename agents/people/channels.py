"""Channels: where a person is told outside the application, what each gets, and its signing secret.

Addresses of webhooks and chats hold tokens: they are encrypted in the database and never shown again. Everybody has
their own channels; the e-mail channel uses the address of the account and exists once a person has one.
"""

import base64
import hmac
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from functools import cache
from typing import Any, Final

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.crypto import salted_hmac

from agents.conf import mail_is_configured
from agents.enums import ChannelKind, NewsChoice, NoticeKind, OutboxStatus
from agents.exceptions import Invalid
from agents.models import Channel, OutboxMessage
from agents.people.access import record_act, require_access
from agents.people.senders import NotSent, check_address, shown_address
from agents.policy.news import checked_choices, choice_for
from agents.policy.schedule import require_zone
from agents.text.clean import one_line

PERMISSION: Final = "agents.change_profile"
MOST_CHANNELS: Final = 20
NAME_CHARS: Final = 120
ADDRESS_CHARS: Final = 2_000
OLD_SECRET_LASTS: Final = timedelta(hours=24)
FIELDS: Final = ("name", "enabled", "choices", "zone", "quiet_from", "quiet_until", "digest_at")


@transaction.atomic
def _store(row: Channel, event: str, *, by: User | None, now: datetime, **details: Any) -> Channel:
    row.save()
    _record(row, event, by=by, now=now, **details)
    return row


def channel_create(*, owner: User, kind: str, address: str, by: User | None, now: datetime, **fields: Any) -> Channel:
    """Add a webhook or a chat service for a person. The address is checked by looking up its name."""
    require_access(by, owner_id=owner.pk, permission=PERMISSION)
    if kind not in {ChannelKind.WEBHOOK, ChannelKind.CHAT}:
        raise Invalid("kind: add a webhook or a chat. There is one e-mail channel, to the address of the account.")
    if Channel.objects.filter(owner=owner).count() >= MOST_CHANNELS:
        raise Invalid(f"There are {MOST_CHANNELS} channels already; delete one first.")
    row = Channel(owner=owner, kind=kind, created_at=now)
    _set_address(row, address)
    _set_fields(row, fields)
    return _store(row, "channel.created", by=by, now=now, channel_kind=str(kind))


def channel_update(*, channel: Channel, by: User | None, now: datetime, address: str = "", **fields: Any) -> Channel:
    """Change a channel. An empty address keeps the old one. Switching it off drops what it still had to send."""
    require_access(by, owner_id=channel.owner_id, permission=PERMISSION)
    if address and channel.kind == ChannelKind.EMAIL:
        raise Invalid("address: e-mail goes to the address of the account; change it there.")
    if address:
        _set_address(channel, address)  # asks the gate, before the row is locked
    changed = sorted({*fields, *(["address"] if address else [])})
    with transaction.atomic():
        row = Channel.objects.select_for_update().get(pk=channel.pk)
        if address:
            row.sealed_address, row.shown_address = channel.sealed_address, channel.shown_address
            row.failures, row.retry_at, row.error = 0, None, ""
        _set_fields(row, fields)
        _store(row, "channel.changed", by=by, now=now, fields=changed, enabled=row.enabled)
        if not row.enabled:
            OutboxMessage.objects.filter(channel=row, status=OutboxStatus.PENDING).delete()
    return row


@transaction.atomic
def channel_delete(*, channel: Channel, by: User | None, now: datetime) -> None:
    """Delete a channel and what it still had to send. The e-mail channel is switched off instead."""
    require_access(by, owner_id=channel.owner_id, permission=PERMISSION)
    if channel.kind == ChannelKind.EMAIL:
        raise Invalid("The e-mail channel cannot be deleted; switch it off.")
    _record(channel, "channel.deleted", by=by, now=now)
    channel.delete()


# --- E-mail: one channel of each person ---


def email_channel(owner_id: int) -> Channel:
    """Return a person's e-mail channel. It is written when it is first asked for."""
    defaults = {"name": "E-mail"}
    return Channel.objects.get_or_create(owner_id=owner_id, kind=ChannelKind.EMAIL, defaults=defaults)[0]


def email_is_on(owner_id: int) -> bool:
    """Return whether a person gets e-mail; they do unless it was switched off."""
    return not Channel.objects.filter(owner_id=owner_id, kind=ChannelKind.EMAIL, enabled=False).exists()


def channels_for(owner_id: int, kind: NoticeKind) -> list[tuple[Channel, NewsChoice]]:
    """Return the channels of a person that get such a notification, and when."""
    rows = list(Channel.objects.filter(owner_id=owner_id).order_by("pk"))
    if not rows and not mail_is_configured():
        return []
    person = User.objects.filter(pk=owner_id, is_active=True).select_related("lqops_profile").first()
    if person is None:
        return []
    can_mail = mail_is_configured() and bool(person.email) and hasattr(person, "lqops_profile")
    if can_mail and not any(row.kind == ChannelKind.EMAIL for row in rows):
        rows.append(Channel(owner_id=owner_id, kind=ChannelKind.EMAIL, name="E-mail"))  # written with its first copy
    chosen = [(row, choice_for(row.choices, kind)) for row in rows if row.enabled]
    return [
        (row, choice)
        for row, choice in chosen
        if choice != NewsChoice.OFF and (can_mail or row.kind != ChannelKind.EMAIL)
    ]


# --- Addresses, encrypted ---


def seal(address: str) -> str:
    return _cipher(settings.SECRET_KEY).encrypt(address.encode()).decode()


def address_of(channel: Channel) -> str:
    try:
        return _cipher(settings.SECRET_KEY).decrypt(channel.sealed_address.encode()).decode()
    except InvalidToken:
        raise NotSent("The address was encrypted with another LQOPS_SECRET_KEY. Enter it again.") from None


def _set_address(row: Channel, address: str) -> None:
    if not address or len(address) > ADDRESS_CHARS:
        raise Invalid(f"address: it needs 1 to {ADDRESS_CHARS} characters.")
    check_address(ChannelKind(row.kind), address)
    row.sealed_address = seal(address)
    row.shown_address = shown_address(address)


@cache
def _cipher(secret_key: str) -> Fernet:
    key = salted_hmac("lqops.channel", "key", secret=secret_key, algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))


# --- Secrets of webhooks: derived when needed, stored nowhere ---


@transaction.atomic
def channel_rotate_secret(*, channel: Channel, by: User | None, now: datetime) -> str:
    """Create and return a new signing secret. For 24 hours messages are signed with the old one too."""
    require_access(by, owner_id=channel.owner_id, permission=PERMISSION)
    row = Channel.objects.select_for_update().get(pk=channel.pk)
    if row.kind != ChannelKind.WEBHOOK:
        raise Invalid("Only messages to webhooks are signed.")
    row.secret_generation += 1
    row.old_secret_until = now + OLD_SECRET_LASTS
    _store(row, "channel.secret_rotated", by=by, now=now, generation=row.secret_generation)
    return channel_secret(row)


def channel_secret(channel: Channel, generation: int | None = None) -> str:
    number = channel.secret_generation if generation is None else generation
    key = settings.LQOPS_WEBHOOK_KEY.encode()
    derived = hmac.digest(key, f"channel:{channel.public_id}:{number}".encode(), "sha256")
    return f"whsec_{base64.b64encode(derived).decode()}"


def signing_secrets(channel: Channel, now: datetime) -> list[str]:
    """Return the current secret, and the old one while it is valid."""
    is_old_valid = channel.old_secret_until is not None and now < channel.old_secret_until
    older = [channel_secret(channel, channel.secret_generation - 1)] if is_old_valid else []
    return [channel_secret(channel), *older]


# --- Fields ---


def _set_fields(row: Channel, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if name not in FIELDS:
            raise Invalid(f"{name}: a channel has no such setting.")
        setattr(row, name, value)
    row.name = one_line(row.name, NAME_CHARS)
    if not row.name:
        raise Invalid("name: a channel needs a name.")
    row.choices = checked_choices(row.choices)
    require_zone(row.zone)
    _require_quiet_hours(row.quiet_from, row.quiet_until)


def _require_quiet_hours(start: time | None, end: time | None) -> None:
    if (start is None) != (end is None):
        raise Invalid("quiet_from and quiet_until: set both, or none.")
    if start is not None and start == end:
        raise Invalid("quiet_until: quiet hours cannot end when they begin.")
    if any(one is not None and (one.second or one.microsecond) for one in (start, end)):
        raise Invalid("quiet_from and quiet_until: whole minutes, please, such as 22:00 and 07:30.")


def _record(row: Channel, event: str, *, by: User | None, now: datetime, **details: Any) -> None:
    details |= {"channel_id": str(row.public_id), "owner_id": row.owner_id}
    record_act(event, by=by, now=now, subject=f"channel:{row.public_id}", **details)
