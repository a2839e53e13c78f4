"""Copies of notifications for channels: written with the notification, sent later, retried, kept as dead letters.

A copy is a row of its own, written in the transaction of its notification. The ticker sends it later, outside of any
transaction. A ticker that dies after the receiver took the message, and before it noted that, leaves a copy that is
sent again under the same id. A channel that fails rests: its other copies wait, and those of other channels do not.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse

from agents.conf import base_url
from agents.enums import ChannelKind, NewsChoice, NoticeKind, OutboxStatus
from agents.exceptions import Invalid, OpenTransaction
from agents.models import AgentSession, Channel, Notification, OutboxMessage
from agents.people.access import record_act, require_access
from agents.people.channels import PERMISSION, address_of, channels_for, email_channel, signing_secrets
from agents.people.senders import Message, NotSent, send_chat, send_email, send_webhook
from agents.policy.news import GROUPS, choice_for, next_digest, quiet_end
from agents.queue import in_open_transaction
from audit.redaction import redact

logger = logging.getLogger(__name__)

NOTIFICATIONS_PATH: Final = "/admin/agents/notification/"  # not by reverse(): workers load no pages
ERROR_CHARS: Final = 500
# Delay of the next attempt after each failed one; after the last, the copy is a dead letter.
_MAIL_DELAYS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60))
_POST_DELAYS: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18000, 36000, 50400))
RETRY_DELAYS: Final[Mapping[str, tuple[timedelta, ...]]] = MappingProxyType(
    {ChannelKind.EMAIL: _MAIL_DELAYS, ChannelKind.WEBHOOK: _POST_DELAYS, ChannelKind.CHAT: _POST_DELAYS}
)
# Nobody else tries meanwhile; longer than sending takes
CLAIMED_FOR: Final = timedelta(minutes=6)
MOST_IN_A_DIGEST: Final = 200


def copies_write(notice: Notification, *, now: datetime, not_to: Channel | None = None) -> None:
    """Write a copy for each channel of the owner that gets such news. In the transaction of the notification."""
    for channel, choice in channels_for(notice.owner_id, NoticeKind(notice.kind)):
        if not_to is not None and channel.pk == not_to.pk:
            continue
        digest_for = next_digest(channel.digest_at, channel.zone, now) if choice == NewsChoice.DIGEST else None
        OutboxMessage.objects.create(
            notification=notice,
            channel=channel if channel.pk else email_channel(notice.owner_id),
            due_at=digest_for or now,
            digest_for=digest_for,
            created_at=now,
        )


def copies_due(now: datetime, limit: int = 100) -> list[int]:
    """Return the copies to send or to retry, one for each digest. A copy that is being sent is not due."""
    if not OutboxMessage.objects.filter(status=OutboxStatus.PENDING, due_at__lte=now).exists():
        return []  # nearly always, and the question below takes six times as long
    return list(_sendable(now).order_by("due_at", "pk").values_list("pk", flat=True)[:limit])


def _sendable(now: datetime) -> QuerySet[OutboxMessage]:
    rests = Q(channel__retry_at__gt=now)
    same = {name: OuterRef(name) for name in ("channel", "digest_for")}
    first = OutboxMessage.objects.filter(status=OutboxStatus.PENDING, pk__lt=OuterRef("pk"), **same)
    return OutboxMessage.objects.filter(~Exists(first), status=OutboxStatus.PENDING, due_at__lte=now).exclude(rests)


def copy_send(message_pk: int, *, now: datetime) -> bool:
    """Send one copy, or the digest that it begins, if it is due and not claimed. Failures are noted, not raised."""
    if in_open_transaction():
        raise OpenTransaction("A message was about to be sent inside a transaction.")
    copy = _claim(message_pk, now)
    if copy is None:
        return False
    batch = _batch(copy)
    try:
        send(copy.channel, _message(batch), now=now)
    except NotSent as error:
        logger.warning("copy %s was not sent at attempt %s: %s", copy.public_id, copy.attempts, type(error).__name__)
        _note_failure(copy, batch, error, now)
        return False
    _note_sent(copy, batch, now)
    return True


def send(channel: Channel, message: Message, *, now: datetime) -> str:
    """Send a message through a channel, at once. Returns what the receiver said; raises NotSent."""
    try:
        if channel.kind == ChannelKind.EMAIL:
            return send_email(message, to=channel.owner.email)
        if channel.kind == ChannelKind.CHAT:
            return send_chat(message, url=address_of(channel))
        return send_webhook(message, url=address_of(channel), secrets=signing_secrets(channel, now), now=now)
    except NotSent:
        raise
    except Exception as error:
        logger.exception("a message could not be sent by channel %s", channel.public_id)
        raise NotSent(f"The message could not be sent: {type(error).__name__}.") from None


def _claim(message_pk: int, now: datetime) -> OutboxMessage | None:
    """Claim a copy by one conditional UPDATE: of two tickers, one gets it. In quiet hours it is put off."""
    found = _sendable(now).filter(pk=message_pk)
    copy = found.select_related("channel__owner", "notification__session", "notification__finding").first()
    if copy is None:
        return None
    claim = _claimed(copy).filter(due_at__lte=now)
    channel = copy.channel
    if not (channel.enabled and channel.owner.is_active):
        claim.delete()
        return None
    if quiet := _quiet_end(copy, now):
        claim.update(due_at=quiet)
        return None
    if copy.attempts >= max_attempts(channel):  # its last attempt was lost
        claim.update(status=OutboxStatus.FAILED)
        return None
    if not claim.update(attempts=copy.attempts + 1, due_at=now + CLAIMED_FOR):
        return None
    copy.attempts += 1
    return copy


def copy_put_off(message_pk: int, *, now: datetime) -> None:
    """Try a copy again later, so that one that cannot even be read does not stand before the others."""
    OutboxMessage.objects.filter(pk=message_pk, status=OutboxStatus.PENDING, due_at__lte=now).update(
        due_at=now + CLAIMED_FOR
    )


def _quiet_end(copy: OutboxMessage, now: datetime) -> datetime | None:
    channel = copy.channel
    if choice_for(channel.choices, copy.notification.kind) == NewsChoice.ALWAYS:
        return None
    return quiet_end(channel.quiet_from, channel.quiet_until, channel.zone, now)


def max_attempts(channel: Channel) -> int:
    return len(RETRY_DELAYS[channel.kind]) + 1


def _claimed(copy: OutboxMessage) -> QuerySet[OutboxMessage]:
    """Select the row while this attempt is the latest."""
    return OutboxMessage.objects.filter(pk=copy.pk, status=OutboxStatus.PENDING, attempts=copy.attempts)


def _batch(copy: OutboxMessage) -> list[OutboxMessage]:
    """Return the copy, or all copies of its digest."""
    if copy.digest_for is None:
        return [copy]
    rows = OutboxMessage.objects.filter(
        channel=copy.channel, digest_for=copy.digest_for, status=OutboxStatus.PENDING, pk__gte=copy.pk
    )
    return list(rows.select_related("notification").order_by("pk")[:MOST_IN_A_DIGEST])


@transaction.atomic
def _note_sent(copy: OutboxMessage, batch: Sequence[OutboxMessage], now: datetime) -> None:
    if _claimed(copy).exists():
        _all(batch).update(status=OutboxStatus.SENT, sent_at=now, error="")
    Channel.objects.filter(pk=copy.channel_id).update(failures=0, retry_at=None, error="", last_sent_at=now)


def _all(batch: Sequence[OutboxMessage]) -> QuerySet[OutboxMessage]:
    return OutboxMessage.objects.filter(pk__in=[row.pk for row in batch], status=OutboxStatus.PENDING)


@transaction.atomic
def _note_failure(copy: OutboxMessage, batch: Sequence[OutboxMessage], error: NotSent, now: datetime) -> None:
    """Plan the next attempt. A channel that has failed too often gets nothing more until somebody looks."""
    text = redact(str(error))[:ERROR_CHARS]
    channel = Channel.objects.select_for_update(no_key=True).get(pk=copy.channel_id)
    delays = RETRY_DELAYS[channel.kind]
    channel.failures += 1
    channel.error = text
    is_over = error.gone or channel.failures >= max_attempts(channel)
    channel.retry_at = now + delays[min(channel.failures, len(delays)) - 1]
    channel.enabled = channel.enabled and not error.gone
    channel.save(update_fields=["failures", "error", "retry_at", "enabled"])
    if copy.attempts >= max_attempts(channel):
        _all(batch).update(status=OutboxStatus.FAILED, error=text)
    else:
        _claimed(copy).update(due_at=now + delays[copy.attempts - 1], error=text)
    if is_over:
        _give_up(channel, is_first=error.gone or channel.failures == max_attempts(channel), now=now)


def _give_up(channel: Channel, *, is_first: bool, now: datetime) -> None:
    """Make dead letters of what waits for the channel, and tell its owner once, where that is still possible."""
    waiting = OutboxMessage.objects.filter(channel=channel, status=OutboxStatus.PENDING)
    if channel.enabled:
        waiting = waiting.filter(Q(digest_for__isnull=True) | Q(digest_for__lte=now))
    waiting.update(status=OutboxStatus.FAILED, error=channel.error)
    if not is_first:
        return
    off = "" if channel.enabled else " Its receiver wants no further messages, so it is switched off."
    record_act("channel.failing", by=None, now=now, channel_id=str(channel.public_id), failures=channel.failures)
    notice = Notification.objects.create(
        owner_id=channel.owner_id,
        kind=NoticeKind.CHANNEL_FAILING,
        title=f"You are not reached by {channel.name}"[:200],
        body=f"{channel.error}{off}\nMend the channel, test it, and send again what was not delivered.",
        page=f"/admin/agents/channel/{channel.pk}/change/",
        created_at=now,
    )
    copies_write(notice, now=now, not_to=channel)


# --- Messages ---


def _message(batch: Sequence[OutboxMessage]) -> Message:
    """Build the message of one copy or of a digest. Each leads to the page where it is settled."""
    [first, *others] = batch
    if first.digest_for is None:
        notice = first.notification
        return Message(
            id=str(first.public_id),
            type=f"notification.{notice.kind}",
            title=notice.title,
            text=_text(notice),
            link=link_of(notice),
            at=notice.created_at,
            data=_data(notice),
        )
    notices = [row.notification for row in batch]
    number = len(notices)
    return Message(
        # Of its parts: a digest that has grown since a lost attempt is another message.
        id=str(uuid.uuid5(first.public_id, " ".join(str(row.public_id) for row in others))),
        type="digest",
        title=f"Daily digest: {number} notification{'' if number == 1 else 's'}",
        text="\n\n".join(f"{notice.title}\n{link_of(notice)}" for notice in notices),
        link=f"{base_url()}{NOTIFICATIONS_PATH}",
        at=first.digest_for,
        data={"notifications": [_data(notice) for notice in notices]},
    )


def _data(notice: Notification) -> dict[str, Any]:
    return {
        "id": str(notice.public_id),
        "kind": notice.kind,
        "news": GROUPS[NoticeKind(notice.kind)],
        "title": notice.title,
        "body": _text(notice),
        "link": link_of(notice),
        "session": str(notice.session.public_id) if notice.session else None,
        "finding": str(notice.finding.public_id) if notice.finding else None,
        "created_at": notice.created_at.isoformat(),
    }


def _text(notice: Notification) -> str:
    """Return the body without the path of the receipt: the message has one link."""
    if notice.session is None:
        return notice.body
    receipt = f"Receipt: {receipt_path(notice.session)}"
    return "\n".join(line for line in notice.body.splitlines() if line != receipt)


def link_of(notice: Notification) -> str:
    """Return the address that leads to the page where a notification is settled."""
    return f"{base_url()}{NOTIFICATIONS_PATH}go/{notice.public_id}/"


def receipt_path(session: AgentSession) -> str:
    """Return the path of a receipt. Uses the URLs of the audit app alone, so that workers load no other pages."""
    return reverse("receipt", urlconf="audit.views", args=[session.chain])


# --- What people do: test a channel, send again, discard ---


@dataclass(frozen=True)
class Trial:
    """Whether a test message arrived, and what the receiver said."""

    ok: bool
    text: str


def channel_test(*, channel: Channel, by: User | None, now: datetime) -> Trial:
    """Send a test message at once. Success lets the channel go on that rested."""
    require_access(by, owner_id=channel.owner_id, permission=PERMISSION)
    title = "Test of a channel of lqops"
    link = f"{base_url()}/admin/agents/channel/{channel.pk}/change/"
    text = f"If you read this, {channel.name} works."
    data = {"title": title, "body": text, "link": link}
    message = Message(id=str(uuid.uuid4()), type="test", title=title, text=text, link=link, at=now, data=data)
    try:
        trial = Trial(ok=True, text=send(channel, message, now=now))
    except NotSent as error:
        trial = Trial(ok=False, text=redact(str(error))[:ERROR_CHARS])
    with transaction.atomic():
        noted = (
            {"failures": 0, "retry_at": None, "error": "", "last_sent_at": now} if trial.ok else {"error": trial.text}
        )
        Channel.objects.filter(pk=channel.pk).update(**noted)
        record_act("channel.tested", by=by, now=now, channel_id=str(channel.public_id), ok=trial.ok)
    return trial


@transaction.atomic
def copy_replay(*, copy: OutboxMessage, by: User | None, now: datetime) -> OutboxMessage:
    """Send a dead letter again, under its old id, from the first attempt on."""
    require_access(by, owner_id=copy.channel.owner_id, permission=PERMISSION)
    if not copy.channel.enabled:
        raise Invalid("The channel is off: switch it on first.")
    dead = OutboxMessage.objects.filter(pk=copy.pk, status=OutboxStatus.FAILED)
    if not dead.update(status=OutboxStatus.PENDING, attempts=0, due_at=now, error=""):
        raise Invalid("Only a message that could not be delivered is sent again.")
    Channel.objects.filter(pk=copy.channel_id).update(retry_at=None, failures=0)
    record_act("delivery.replayed", by=by, now=now, delivery_id=str(copy.public_id))
    copy.refresh_from_db()
    return copy


@transaction.atomic
def copy_discard(*, copy: OutboxMessage, by: User | None, now: datetime) -> None:
    """Delete a dead letter. Its notification stays."""
    require_access(by, owner_id=copy.channel.owner_id, permission=PERMISSION)
    if not OutboxMessage.objects.filter(pk=copy.pk, status=OutboxStatus.FAILED).delete()[0]:
        raise Invalid("Only a message that could not be delivered is discarded.")
    record_act("delivery.discarded", by=by, now=now, delivery_id=str(copy.public_id))
