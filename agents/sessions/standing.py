"""Standing approvals: a yes for similar calls of one session; and who may decide on approvals.

A standing approval holds for one capability in one version, with the same arguments except the free ones. An argument
that names a destination is never free. It never covers a PRIVILEGED or high-risk call, nor one above the level or risk
of the call that the person saw. Each covered call still gets a ticket of its own.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import F, QuerySet

from agents.conf import approval_lifetime
from agents.enums import Level, NoticeKind, Risk
from agents.exceptions import Invalid, NotAllowed
from agents.models import AgentSession, Approval, StandingApproval
from agents.people.notifications import notification_create
from agents.policy.consent import free_values_are_harmless, held_arguments, named_arguments
from agents.types import Capability
from audit.receipts import label_of
from audit.rows import canonical

_GRADES: Final = ("", *Risk.values)  # ascending; a harmless call has none


def standing_write(
    approval: Approval, *, free: tuple[str, ...], uses: int, by: User, now: datetime
) -> StandingApproval:
    """Write the row and link its ticket.

    The caller has checked who decides, on what and how often, and holds the session's lock.
    """
    if unknown := sorted(set(free) - named_arguments(approval.arguments).keys()):
        raise Invalid(f"The call has no argument {', '.join(unknown)} that could be left free.")
    if not free_values_are_harmless(approval.arguments, free):
        raise NotAllowed("An argument that holds an address cannot be left free.")
    approval.standing = StandingApproval.objects.create(
        session_id=approval.session_id,
        action=approval.action,
        version=approval.version,
        fixed_arguments=held_arguments(approval.arguments, free),
        free_arguments=sorted(free),
        uses_left=uses,
        expires_at=now + approval_lifetime(),
        created_by=by,
        created_at=now,
    )
    approval.save(update_fields=["standing"])
    return approval.standing


def standing_use(
    session: AgentSession, capability: Capability, arguments: Mapping[str, Any], *, risk: Risk | None, now: datetime
) -> StandingApproval | None:
    """Use one of the standing approval's uses if it covers this call; else return None."""
    if is_single(capability.level, risk):
        return None
    rows = StandingApproval.objects.filter(
        session=session, action=capability.name, version=capability.version, expires_at__gt=now, uses_left__gt=0
    )
    for standing in rows.select_related("created_by").order_by("pk"):
        if _goes_beyond(standing, capability.level, risk) or not _covers(standing, capability, arguments):
            continue
        if StandingApproval.objects.filter(pk=standing.pk, uses_left__gt=0).update(uses_left=F("uses_left") - 1):
            return standing
    return None


def is_single(level: str, risk: str | None) -> bool:
    """Return whether calls of this level and risk are approved one by one only."""
    return level == Level.PRIVILEGED or risk == Risk.HIGH


def _goes_beyond(standing: StandingApproval, level: Level, risk: Risk | None) -> bool:
    """Return whether the call is above the level or risk of the call that the person saw."""
    seen = standing.tickets.order_by("pk").first()
    if seen is None or level.rank > Level(seen.level).rank:
        return True
    return _GRADES.index(risk or "") > _GRADES.index(seen.risk_level)


def _covers(standing: StandingApproval, capability: Capability, arguments: Mapping[str, Any]) -> bool:
    free = tuple(standing.free_arguments)
    return (
        not set(free) & set(capability.addresses)
        and canonical(held_arguments(arguments, free)) == canonical(standing.fixed_arguments)
        and free_values_are_harmless(arguments, free)
    )


# --- Approvers ---


PERMISSION = "agents.resolve_approval"


def approvers() -> QuerySet[User]:
    """Return every active user who may decide on approvals."""
    users = get_user_model().objects
    return users.with_perm(PERMISSION, backend="django.contrib.auth.backends.ModelBackend").order_by("pk")


def notify_approvers(approval: Approval, *, now: datetime) -> None:
    """Notify every approver with counts and labels; arguments are shown only where one decides."""
    until = f"{approval.expires_at:%-d %B, %H:%M} UTC"
    for user in approvers():
        notification_create(
            owner_id=user.pk,
            kind=NoticeKind.APPROVAL_WAITING,
            title=f"A call waits for approval: {label_of('action', approval.action)}",
            body=f"Level {approval.level}. Without an answer by {until} it is refused.",
            now=now,
            session_id=approval.session_id,
        )
