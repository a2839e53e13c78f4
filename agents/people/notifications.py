"""Notifications for people. Copies for their channels are written with them (agents/people/outbox.py)."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import News, NewsChoice, NoticeKind
from agents.models import AgentSession, Approval, Channel, Finding, Notification
from agents.people.access import HALT_PERMISSION, record_act, require_access
from agents.people.outbox import copies_write
from agents.policy.news import choice_of
from agents.text.clean import one_line
from audit.redaction import redact

# Not by reverse(): workers load no pages.
FINDINGS_PATH: Final = "/admin/agents/finding/"
APPROVALS_PATH: Final = "/admin/agents/approval/"
ABOUT_APPROVALS: Final = frozenset({NoticeKind.APPROVAL_WAITING, NoticeKind.APPROVAL_ESCALATED})
ABOUT_QUESTIONS: Final = frozenset({NoticeKind.QUESTION_WAITING})
TITLE_CHARS: Final = 200
BODY_CHARS: Final = 4_000


@transaction.atomic(savepoint=False)
def notification_create(
    *,
    owner_id: int,
    kind: NoticeKind,
    title: str,
    body: str,
    now: datetime,
    session_id: int | None = None,
    finding_id: int | None = None,
    page: str = "",
) -> Notification:
    """Create a notification, and a copy for each channel of the owner that gets such news.

    `page` is the path of the page where it is settled, if that is neither a run nor a finding.
    """
    notice = Notification.objects.create(
        owner_id=owner_id,
        session_id=session_id,
        finding_id=finding_id,
        kind=kind,
        title=one_line(redact(title), TITLE_CHARS) or "(untitled)",
        body=redact(body)[:BODY_CHARS],
        page=page,
        created_at=now,
    )
    copies_write(notice, now=now)
    return notice


def notify_operators(kind: NoticeKind, *, title: str, body: str, now: datetime, page: str = "") -> None:
    """Notify everybody who may halt all work."""
    for user in User.objects.with_perm(HALT_PERMISSION, backend="django.contrib.auth.backends.ModelBackend"):
        notification_create(owner_id=user.pk, kind=kind, title=title, body=body, now=now, page=page)


def wants_successes(owner_id: int) -> bool:
    """Return whether a channel of the person gets news of runs that completed without findings."""
    rows = Channel.objects.filter(owner_id=owner_id, enabled=True)
    return any(choice_of(row.choices, News.SUCCESSES) != NewsChoice.OFF for row in rows)


@transaction.atomic
def notification_mark_read(*, notification: Notification, by: User | None, now: datetime) -> Notification:
    """Mark a notification as read. Doing it again changes nothing."""
    require_access(by, owner_id=notification.owner_id, permission="agents.change_notification")
    if Notification.objects.filter(pk=notification.pk, read_at__isnull=True).update(read_at=now):
        read_id = str(notification.public_id)
        record_act("notification.read", by=by, now=now, subject=f"notification:{read_id}", notification_id=read_id)
    notification.refresh_from_db()
    return notification


def notifications_settle(session_id: int, kinds: Collection[NoticeKind], *, now: datetime) -> None:
    """Mark all notifications of a decided matter as read."""
    Notification.objects.filter(session_id=session_id, kind__in=kinds, read_at__isnull=True).update(read_at=now)


def approval_path(approval: Approval) -> str:
    """Return the path of the page where a call is decided on, by its public id."""
    return f"{APPROVALS_PATH}by-id/{approval.public_id}/"


def finding_path(finding: Finding) -> str:
    """Return the path of the page where a finding is settled, by its public id."""
    return f"{FINDINGS_PATH}by-id/{finding.public_id}/"


def findings_path(session: AgentSession) -> str:
    """Return the path of the list of a run's open findings."""
    return f"{FINDINGS_PATH}?q={session.chain}"
