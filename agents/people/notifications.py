"""Notifications for people, and copies of them by e-mail. A copy is best effort.

A copy is a row of its own, written in the transaction of its notification. The ticker sends it later, outside of any
transaction. A ticker that dies after the mail server accepted the mail, and before it noted that, leaves a copy that
is sent again under the same Message-ID.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F, QuerySet
from django.urls import reverse

from agents.conf import base_url, mail_is_configured, mail_sender
from agents.enums import NoticeKind, OutboxStatus
from agents.exceptions import OpenTransaction
from agents.models import AgentSession, Approval, Finding, Notification, OutboxMessage
from agents.people.access import HALT_PERMISSION, record_act, require_access
from agents.queue import in_open_transaction
from agents.text.clean import one_line
from audit.redaction import redact, redact_exception

logger = logging.getLogger(__name__)

# Not by reverse(): workers load no pages.
FINDINGS_PATH: Final = "/admin/agents/finding/"
APPROVALS_PATH: Final = "/admin/agents/approval/"
DECIDE: Final = f"Decide: {APPROVALS_PATH}by-id/"
TITLE_CHARS: Final = 200
BODY_CHARS: Final = 4_000
SUBJECT_CHARS: Final = 160
ERROR_CHARS: Final = 500
MAX_ATTEMPTS: Final = 5
# Delay of the next attempt after each failed one
RETRY_DELAYS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60))
# Nobody else tries meanwhile; longer than sending takes
CLAIMED_FOR: Final = timedelta(minutes=6)


@transaction.atomic
def notification_create(
    *,
    owner_id: int,
    kind: NoticeKind,
    title: str,
    body: str,
    now: datetime,
    session_id: int | None = None,
    finding_id: int | None = None,
) -> Notification:
    """Create a notification, and an e-mail copy for an owner who has an address and wants copies."""
    notice = Notification.objects.create(
        owner_id=owner_id,
        session_id=session_id,
        finding_id=finding_id,
        kind=kind,
        title=one_line(redact(title), TITLE_CHARS) or "(untitled)",
        body=redact(body)[:BODY_CHARS],
        created_at=now,
    )
    if mail_is_configured() and _address(owner_id):
        OutboxMessage.objects.create(notification=notice, due_at=now, created_at=now)
    return notice


def notify_operators(kind: NoticeKind, *, title: str, body: str, now: datetime) -> None:
    """Notify everybody who may halt all work."""
    for user in User.objects.with_perm(HALT_PERMISSION, backend="django.contrib.auth.backends.ModelBackend"):
        notification_create(owner_id=user.pk, kind=kind, title=title, body=body, now=now)


@transaction.atomic
def notification_mark_read(*, notification: Notification, by: User | None, now: datetime) -> Notification:
    """Mark a notification as read. Doing it again changes nothing."""
    require_access(by, owner_id=notification.owner_id, permission="agents.change_notification")
    if Notification.objects.filter(pk=notification.pk, read_at__isnull=True).update(read_at=now):
        read_id = str(notification.public_id)
        record_act("notification.read", by=by, now=now, subject=f"notification:{read_id}", notification_id=read_id)
    notification.refresh_from_db()
    return notification


def email_copies_due(now: datetime, limit: int = 100) -> list[int]:
    """Return the copies to send or to retry. A copy that is being sent is not due."""
    rows = OutboxMessage.objects.filter(status=OutboxStatus.PENDING, due_at__lte=now)
    return list(rows.order_by("due_at", "pk").values_list("pk", flat=True)[:limit])


def email_copy_send(message_pk: int, *, now: datetime) -> bool:
    """Send one copy if it is due and not claimed. Failures of the mail server are noted, not raised."""
    if in_open_transaction():
        raise OpenTransaction("An e-mail was about to be sent inside a transaction.")
    copy = _claim(message_pk, now)
    if copy is None:
        return False
    try:
        _mail(copy).send()
    except (OSError, ValueError) as error:  # smtplib raises OSError, an invalid address ValueError
        logger.warning("copy %s was not sent at attempt %s: %s", copy.public_id, copy.attempts, type(error).__name__)
        _note_failure(copy, redact_exception(error), now)
        return False
    _claimed(copy).update(status=OutboxStatus.SENT, sent_at=now, error="")
    return True


def _claim(message_pk: int, now: datetime) -> OutboxMessage | None:
    """Claim a copy by one conditional UPDATE: of two tickers, one gets it."""
    due = OutboxMessage.objects.filter(pk=message_pk, status=OutboxStatus.PENDING, due_at__lte=now)
    due.filter(attempts__gte=MAX_ATTEMPTS).update(status=OutboxStatus.FAILED)  # its last attempt was lost
    if not due.filter(attempts__lt=MAX_ATTEMPTS).update(attempts=F("attempts") + 1, due_at=now + CLAIMED_FOR):
        return None
    return OutboxMessage.objects.select_related(
        "notification__owner", "notification__session", "notification__finding"
    ).get(pk=message_pk)


def _mail(copy: OutboxMessage) -> EmailMessage:
    """Build the mail: plain text with title, body and the link to the receipt. The subject is one line."""
    notice = copy.notification
    address = _address(notice.owner_id)
    if not address:
        raise ValueError("the owner has no address, or no longer wants copies")
    parts = [notice.title, notice.body.replace(DECIDE, DECIDE.replace("/", f"{base_url()}/", 1))]
    if notice.finding is not None:
        parts.append(f"Finding: {base_url()}{finding_path(notice.finding)}")
    elif notice.session is not None:
        receipt = receipt_path(notice.session)
        parts[1] = "\n".join(line for line in parts[1].splitlines() if line != f"Receipt: {receipt}")
        parts += [f"Findings: {base_url()}{findings_path(notice.session)}"] * notice.session.findings.work().exists()
        parts.append(f"Receipt: {base_url()}{receipt}")
    domain = mail_sender().rpartition("@")[2].rstrip(">") or "localhost"
    return EmailMessage(
        subject=one_line(f"[lqops] {notice.title}", SUBJECT_CHARS),
        body="\n\n".join(part for part in parts if part),
        from_email=mail_sender(),
        to=[address],
        headers={"Message-ID": f"<{copy.public_id}@{domain}>", "Auto-Submitted": "auto-generated"},
    )


def receipt_path(session: AgentSession) -> str:
    """Return the path of a receipt. Uses the URLs of the audit app alone, so that workers load no other pages."""
    return reverse("receipt", urlconf="audit.views", args=[session.chain])


def decide_line(approval: Approval) -> str:
    """Return the line of a notification that leads to the page where a call is decided on, by its public id."""
    return f"{DECIDE}{approval.public_id}/"


def finding_path(finding: Finding) -> str:
    """Return the path of the page where a finding is settled, by its public id."""
    return f"{FINDINGS_PATH}by-id/{finding.public_id}/"


def findings_path(session: AgentSession) -> str:
    """Return the path of the list of a run's open findings."""
    return f"{FINDINGS_PATH}?q={session.chain}"


def _address(owner_id: int) -> str:
    """Return the address for copies; empty when there is none, or the user wants no copies."""
    wanted = User.objects.filter(pk=owner_id, is_active=True, lqops_profile__email_notices=True)
    return wanted.values_list("email", flat=True).first() or ""


def _note_failure(copy: OutboxMessage, error: str, now: datetime) -> None:
    if copy.attempts >= MAX_ATTEMPTS:
        _claimed(copy).update(status=OutboxStatus.FAILED, error=error[:ERROR_CHARS])
    else:
        _claimed(copy).update(due_at=now + RETRY_DELAYS[copy.attempts - 1], error=error[:ERROR_CHARS])


def _claimed(copy: OutboxMessage) -> QuerySet[OutboxMessage]:
    """Select the row while this attempt is the latest."""
    return OutboxMessage.objects.filter(pk=copy.pk, status=OutboxStatus.PENDING, attempts=copy.attempts)
