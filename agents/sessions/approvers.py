"""The people who may decide on calls that need somebody, and what they are told."""

from datetime import datetime

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import QuerySet

from agents.enums import NoticeKind
from agents.models import Approval
from agents.people.notifications import notice_create
from audit.receipts import worded

PERMISSION = "agents.resolve_approval"


def approvers() -> QuerySet[User]:
    """Every active user who may decide on approvals."""
    users = get_user_model().objects
    return users.with_perm(PERMISSION, backend="django.contrib.auth.backends.ModelBackend").order_by("pk")


def approvers_tell(approval: Approval, *, now: datetime) -> None:
    """A notice for each of them, in counts and labels; what is asked for is shown where it is decided."""
    until = f"{approval.expires_at:%-d %B, %H:%M} UTC"
    for user in approvers():
        notice_create(
            owner_id=user.pk,
            kind=NoticeKind.APPROVAL_WAITING,
            title=f"A call waits for approval: {worded('action', approval.action)}",
            body=f"Level {approval.level}. Without an answer by {until} it is refused.",
            now=now,
            session_id=approval.session_id,
        )
