"""Approvals: request, approve, edit, deny, expire, use.

An approval is a single-use ticket for one digest of a call; whoever decides shows that digest. The guard checks it
again, with every brake, when the ticket is used. Who may decide, and how many must, is said by second_eyes.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Protocol

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from agents.conf import skill_hosts
from agents.enums import (
    ApprovalStatus,
    EventKind,
    Level,
    NoticeKind,
    Outcome,
    Risk,
    RuleEffect,
    Status,
    ToolIntent,
    WaitingOn,
)
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, TicketRefused
from agents.models import AgentSession, Approval, ApprovalVote, StandingApproval, ToolCall
from agents.people.access import DECIDE_PERMISSION, actor_of
from agents.people.activity import event_emit
from agents.people.delegations import is_approver
from agents.people.notifications import ABOUT_APPROVALS, approval_path, notification_create, notifications_settle
from agents.policy.consent import call_digest, free_values_are_harmless, held_arguments, named_arguments, reshaped
from agents.policy.transitions import TERMINAL
from agents.sessions.approval_rules import skill_facts, verdict_on
from agents.sessions.lifecycle import each_under_lock, session_lock, session_wake
from agents.sessions.second_eyes import (
    approvers,
    bound_people,
    is_watched,
    recipients,
    require_approver,
    require_right,
    tally,
    yeses_needed,
)
from agents.text.shown import Shown, hosts_in, shown
from agents.types import Capability
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.receipts import label_of
from audit.redaction import redact, redact_data
from audit.rows import canonical

# --- What a person is shown ---


def call_shown(approval: Approval, arguments: Any = None) -> Shown:
    """Return a call's arguments, or changed ones, for reading; hosts that read like ones used before are warned of."""
    used = Approval.objects.filter(resolved_by__isnull=False, status=ApprovalStatus.APPROVED).exclude(pk=approval.pk)
    before = used.order_by("-resolved_at").values_list("arguments", flat=True)[:REMEMBERED_CALLS]
    known = {host for found in before for host in hosts_in(found)}
    return shown(approval.arguments if arguments is None else arguments, known.union(skill_hosts()))


# --- Standing approvals: a yes for similar calls of one session; and who may decide on approvals ---
#
# A standing approval holds for one capability in one version, with the same arguments except the free ones. An
# argument that names a destination is never free. It never covers a PRIVILEGED or high-risk call, nor one above the
# level or risk of the call that the person saw. Each covered call still gets a ticket of its own. It covers nothing
# while the person may not decide: their right was taken, a delegation is over, or their account is not active.


REMEMBERED_CALLS: Final = 300  # decided last, whose hosts a reader may take another host for
_GRADES: Final = ("", *Risk.values)  # ascending; a harmless call has none


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
        if not is_approver(standing.created_by, now) or (is_watched(capability.level) and _binds_its_maker(standing)):
            continue
        if StandingApproval.objects.filter(pk=standing.pk, uses_left__gt=0).update(uses_left=F("uses_left") - 1):
            return standing
    return None


def is_single(level: str, risk: str | None) -> bool:
    """Return whether such calls are approved one by one only: PRIVILEGED, of high risk, or in need of several yeses."""
    return level == Level.PRIVILEGED or risk == Risk.HIGH or yeses_needed(level) > 1


def _binds_its_maker(standing: StandingApproval) -> bool:
    call = (standing.session_id, standing.action)
    return standing.created_by_id in bound_people([call])[call]


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


PERMISSION = DECIDE_PERMISSION


def notify_approvers(approval: Approval, *, now: datetime) -> None:
    """Notify those who may decide that a call waits."""
    title = f"A call waits for approval: {label_of('action', approval.action)}"
    notify_of_call(approval, recipients(approval, now), kind=NoticeKind.APPROVAL_WAITING, title=title, now=now)


def notify_of_call(approval: Approval, people: Iterable[User], *, kind: NoticeKind, title: str, now: datetime) -> None:
    """Notify people of a pending call with counts and labels; arguments are shown only where one decides."""
    said = f" {tally(approval)}." if yeses_needed(approval.level) > 1 else ""
    until = f"{approval.expires_at:%-d %B, %H:%M} UTC"
    body = f"Level {approval.level}.{said} Without a decision by {until} it expires unused."
    for user in people:
        notification_create(
            owner_id=user.pk,
            kind=kind,
            title=title,
            body=body,
            now=now,
            session_id=approval.session_id,
            page=approval_path(approval),
        )


def last_alike(approval: Approval) -> Approval | None:
    """Return the call of the same skill, agent and owner that a person decided on last, among the latest decisions."""
    decided = Approval.objects.filter(action=approval.action, resolved_by__isnull=False)
    latest = decided.exclude(pk=approval.pk).order_by("-resolved_at").values("pk")[:MOST_COMPARED]
    session = approval.session
    alike = Approval.objects.filter(
        pk__in=latest, session__agent_id=session.agent_id, session__owner_id=session.owner_id
    ).select_related("resolved_by", "session__owner")
    # A call that a standing approval covered was shown to nobody: nobody said yes to it.
    seen = alike.filter(
        Q(status=ApprovalStatus.REJECTED) | Q(Exists(ApprovalVote.objects.filter(approval=OuterRef("pk"))))
    )
    return seen.order_by("-resolved_at", "-pk").first()


def are_identical(approvals: Sequence[Approval]) -> bool:
    """Return whether these are the same call of several runs: the same skill, version, grade, rules and arguments."""
    calls = {canonical({name: getattr(row, name) for name in _CALL_FIELDS}) for row in approvals}
    return len(calls) == 1


def together_refusal(approvals: Sequence[Approval]) -> str:
    """Return why these calls cannot be decided on together; "" if they can: calls of one run, or the same call."""
    if len({row.session_id for row in approvals}) <= 1:
        return ""
    if not are_identical(approvals):
        return "Calls of several runs are decided together only if they are the same call with the same arguments."
    if any(is_single(row.level, row.risk_level) for row in approvals):
        return "A call that is PRIVILEGED, of high risk or needs several yeses is not decided on across runs."
    return ""


# Returns the arguments as a call of the intent stores them; raises ValueError if no call could be made with them.
Fits = Callable[[str, Mapping[str, Any]], dict[str, Any]]
LIVE: Final = (ApprovalStatus.PENDING, ApprovalStatus.APPROVED)
MAX_PENDING = 20
MOST_COMPARED = 500
_CALL_FIELDS = ("intent", "action", "version", "phase", "level", "risk_level", "rules", "arguments")
MAX_STANDING_USES = 20
_EVENT_KINDS = {
    "requested": EventKind.APPROVAL_REQUESTED,
    **dict.fromkeys(("approved", "edited", "rejected", "expired", "cancelled"), EventKind.APPROVAL_RESOLVED),
}


class ApprovalSubject(Protocol):
    """A call that needs approval, as the server describes it; never in the model's own words."""

    @property
    def key(self) -> str: ...
    @property
    def intent(self) -> ToolIntent: ...
    @property
    def capability(self) -> Capability: ...
    @property
    def phase(self) -> str: ...
    @property
    def arguments(self) -> Mapping[str, Any]: ...
    @property
    def digest(self) -> str: ...
    @property
    def signature(self) -> str: ...
    @property
    def risk(self) -> Risk | None: ...
    @property
    def simulation(self) -> str: ...


def approval_for(session: AgentSession, key: str) -> Approval | None:
    """Return the newest unused ticket at this place of the run."""
    return Approval.objects.filter(session=session, call_key=key, consumed_at__isnull=True).order_by("-pk").first()


def approval_binds(session: AgentSession, key: str, signature: str) -> bool:
    """Return whether a ticket of this place may still be decided or used, or a person denied the same call."""
    here = Q(call_key=key, consumed_at__isnull=True, status__in=(*LIVE, ApprovalStatus.REJECTED))
    denied = Q(signature=signature, status=ApprovalStatus.REJECTED)
    return Approval.objects.filter(here | denied, session=session).exists()


def approval_refused_before(session: AgentSession, signature: str) -> Approval | None:
    """Return the same call's ticket if it was denied or expired earlier in this session."""
    refused = (ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED)
    return Approval.objects.filter(session=session, signature=signature, status__in=refused).order_by("-pk").first()


def approval_request(
    session: AgentSession, call: ApprovalSubject, *, now: datetime, rules: Sequence[Mapping[str, Any]] = ()
) -> Approval | str:
    """Write a pending ticket, or return why none can be requested.

    The caller holds the session's row. A standing approval that covers the call decides the ticket at once; the call
    still gets a ticket of its own. A call that a rule asks for is approved by itself.
    """
    if not approvers().exists():
        return "no_approver"
    pending = Approval.objects.filter(session=session, status=ApprovalStatus.PENDING).count()
    if pending >= MAX_PENDING:
        return "too_many_pending"
    standing = None if rules else standing_use(session, call.capability, call.arguments, risk=call.risk, now=now)
    approval = Approval.objects.create(
        session=session,
        call_key=call.key,
        intent=call.intent,
        action=call.capability.name,
        version=call.capability.version,
        phase=call.phase,
        level=call.capability.level,
        risk_level=call.risk or "",
        description=f"{call.capability.name} (level {call.capability.level}) in phase {call.phase}",
        simulation=redact(call.simulation),
        arguments=redact_data(call.arguments),
        digest=call.digest,
        signature=call.signature,
        rules=list(rules),
        status=ApprovalStatus.APPROVED if standing else ApprovalStatus.PENDING,
        resolved_by=standing.created_by if standing else None,
        resolved_at=now if standing else None,
        standing=standing,
        expires_at=now + settings.LQOPS_APPROVAL_LIFETIME,
        created_at=now,
    )
    details = {"action": call.capability.name, "level": call.capability.level, "risk": call.risk, "call_key": call.key}
    _record(approval, "approval.requested", now=now, actor="system", **details)
    if standing:
        _record(approval, "approval.approved", now=now, actor="system", standing_id=str(standing.public_id))
    else:
        notify_approvers(approval, now=now)
    return approval


@transaction.atomic
def approval_approve(approval_pk: int, *, by: User, digest: str, now: datetime, note: str = "") -> Approval:
    """Say yes to the call whose digest the person saw. It may be made when there are enough yeses."""
    approval, holder = _lock_pending(approval_pk, by=by, digest=digest, now=now)
    _say_yes(approval, "approval.approved", by=by, holder=holder, now=now, note=note)
    return approval


@transaction.atomic
def approval_approve_edited(
    approval_pk: int,
    *,
    by: User,
    digest: str,
    arguments: Mapping[str, Any],
    fits: Fits,
    now: datetime,
    note: str = "",
) -> Approval:
    """Say yes to the call with changed arguments. The ticket gets a new digest, keeps the original, and loses the yeses
    to the call as it was.
    """
    approval, holder = _lock_pending(approval_pk, by=by, digest=digest, now=now)
    changed = edited(approval, arguments, fits=fits)
    before = approval.digest
    if not approval.original_digest:
        approval.original_arguments = approval.arguments
        approval.original_digest = before
    approval.arguments = changed
    approval.digest = call_digest(
        session_id=str(approval.session.public_id),
        key=approval.call_key,
        intent=approval.intent,
        name=approval.action,
        version=approval.version,
        phase=approval.phase,
        arguments=changed,
    )
    approval.save(update_fields=["original_arguments", "original_digest", "arguments", "digest"])
    approval.votes.all().delete()
    _say_yes(approval, "approval.edited", by=by, holder=holder, now=now, note=note, old_digest=before)
    return approval


def _say_yes(
    approval: Approval, kind: str, *, by: User, holder: User, now: datetime, note: str = "", **details: Any
) -> None:
    """Store a person's yes; with enough of them, approve. Each yes is in the audit log with the digest it is for."""
    ApprovalVote.objects.create(
        approval=approval,
        user_id=by.pk,
        holder_id=holder.pk,
        digest=approval.digest,
        note=redact(note),
        created_at=now,
    )
    said = tally(approval)
    details["four_eyes"] = is_watched(approval.level)
    if holder.pk != by.pk:
        details["for_user"] = holder.pk
    if said.needed > 1:
        details |= {"yes": len(said.yeses), "needed": said.needed}
    if said.is_enough:
        _resolve(approval, ApprovalStatus.APPROVED, by=by, now=now, note=note)
    _decided(approval, kind if said.is_enough else "approval.yes", by=by, now=now, **details)


def edited(approval: Approval, arguments: Mapping[str, Any], *, fits: Fits) -> dict[str, Any]:
    """Return an approver's arguments if the call could be made with them, and no rule is against it."""
    if odd := reshaped(approval.arguments, dict(arguments)):
        raise Invalid(f"An edit changes the values of arguments and nothing else: {odd}.")
    try:
        changed = fits(approval.intent, arguments)
    except ValueError as error:
        raise Invalid(f"The call cannot be made with these arguments: {error}") from error
    facts = skill_facts(changed, agent_id=approval.session.agent_id, cost_usd=Decimal(0))
    ruled = verdict_on(approval.session, facts) if facts else None
    if ruled is not None and ruled.effect == RuleEffect.DENY:
        raise Invalid(f"An approval rule denies the call with these arguments: {ruled.rules[0].name}")
    if ruled is not None and not set(ruled.roles) <= {rule["role"] for rule in approval.rules}:
        raise Invalid(f"With these arguments the call needs people of the role {', '.join(ruled.roles)}.")
    return changed


@transaction.atomic
def approval_reject(approval_pk: int, *, by: User, digest: str, now: datetime, note: str = "") -> Approval:
    """Deny the call. The model gets the note; the same call is refused for the rest of the session."""
    approval, holder = _lock_pending(approval_pk, by=by, digest=digest, now=now, says_no=True)
    _resolve(approval, ApprovalStatus.REJECTED, by=by, now=now, note=note)
    _decided(approval, "approval.rejected", by=by, now=now, **({"for_user": holder.pk} if holder.pk != by.pk else {}))
    return approval


def approvals_expire(now: datetime) -> int:
    """End every ticket that was not decided or not used in time."""
    due = Approval.objects.filter(status__in=LIVE, consumed_at__isnull=True, expires_at__lte=now)
    return each_under_lock(due.order_by("pk"), _expire, now=now)


def _expire(approval: Approval, now: datetime) -> bool:
    expired = Approval.objects.filter(pk=approval.pk, status=approval.status, consumed_at__isnull=True).update(
        status=ApprovalStatus.EXPIRED, resolved_at=now
    )
    if expired:
        _record(approval, "approval.expired", now=now, actor="system")
        _go_on(approval.session_id, now=now)
    return bool(expired)


@transaction.atomic
def standing_create(
    approval_pk: int,
    *,
    by: User,
    digest: str,
    now: datetime,
    free_arguments: tuple[str, ...] = (),
    uses: int = MAX_STANDING_USES,
) -> StandingApproval:
    """Approve the call and, for this session, calls like it.

    Like it means the same capability and the same arguments, except for the free ones.
    """
    approval, holder = _lock_pending(approval_pk, by=by, digest=digest, now=now)
    if is_single(approval.level, approval.risk_level):
        raise NotAllowed("A call that is PRIVILEGED, of high risk or needs several yeses is approved one by one.")
    if approval.rules:
        raise NotAllowed("A rule asks about this call: it is approved one by one.")
    if not 1 <= uses <= MAX_STANDING_USES:
        raise NotAllowed(f"A standing approval has 1 to {MAX_STANDING_USES} uses, not {uses}.")
    if unknown := sorted(set(free_arguments) - named_arguments(approval.arguments).keys()):
        raise Invalid(f"The call has no argument {', '.join(unknown)} that could be left free.")
    if not free_values_are_harmless(approval.arguments, free_arguments):
        raise NotAllowed("An argument that holds an address cannot be left free.")
    standing = StandingApproval.objects.create(
        session_id=approval.session_id,
        action=approval.action,
        version=approval.version,
        fixed_arguments=held_arguments(approval.arguments, free_arguments),
        free_arguments=sorted(free_arguments),
        uses_left=uses,
        expires_at=now + settings.LQOPS_APPROVAL_LIFETIME,
        created_by=by,
        created_at=now,
    )
    approval.standing = standing
    approval.save(update_fields=["standing"])
    who: dict[str, Any] = {"by": by, "now": now, "standing_id": str(standing.public_id)}
    _decided(approval, "approval.standing_created", action=approval.action, uses=uses, **who)
    _say_yes(approval, "approval.approved", holder=holder, **who)
    return standing


def _lock_pending(
    approval_pk: int, *, by: User, digest: str, now: datetime, says_no: bool = False
) -> tuple[Approval, User]:
    """Return the pending ticket with its session's row locked, and in whose right this person decides."""
    approval = Approval.objects.select_related("session", "session__agent").get(pk=approval_pk)
    session_lock(approval.session_id)
    approval.refresh_from_db()
    return approval, require_decidable(approval, by=by, digest=digest, now=now, says_no=says_no)


def require_decidable(approval: Approval, *, by: User, digest: str, now: datetime, says_no: bool = False) -> User:
    """Return in whose right this person decides; raise if they may not, or the ticket or its digest is another."""
    require_approver(by, now)
    if approval.status != ApprovalStatus.PENDING or approval.expires_at <= now:
        raise InvalidTransition(
            f"Approval {approval.public_id} is {approval.status_text}; it cannot be decided any more."
        )
    holder = require_right(approval, by=by, now=now, says_no=says_no)
    if digest != approval.digest:
        raise TicketRefused("The call has changed since it was shown; look at it again.")
    return holder


def _resolve(approval: Approval, status: ApprovalStatus, *, by: User, now: datetime, note: str) -> None:
    changed = Approval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=status, resolved_by=by.pk, resolved_at=now, note=redact(note)
    )
    if changed != 1:
        raise InvalidTransition(f"Approval {approval.public_id} was decided by somebody else.")
    approval.refresh_from_db()
    _go_on(approval.session_id, now=now)


def _go_on(session_pk: int, *, now: datetime) -> None:
    """When no approval of a session is pending: wake it if it waits for one, and settle what people were told."""
    if Approval.objects.filter(session_id=session_pk, status=ApprovalStatus.PENDING).exists():
        return
    notifications_settle(session_pk, ABOUT_APPROVALS, now=now)
    session = AgentSession.objects.get(pk=session_pk)
    if session.status == Status.WAITING and session.waiting_on == WaitingOn.APPROVAL:
        session_wake(session_pk, now=now)


def _decided(approval: Approval, kind: str, *, by: User, now: datetime, **details: Any) -> None:
    _record(approval, kind, now=now, actor=actor_of(by), **details)


def _record(approval: Approval, kind: str, *, now: datetime, actor: str, **details: Any) -> None:
    recorder.append(
        approval.session.chain,
        kind,
        now=now,
        actor=actor,
        subject=f"approval:{approval.public_id}",
        details={"approval_id": str(approval.public_id), "digest": approval.digest, **details},
    )
    decision = kind.removeprefix("approval.")
    if decision not in _EVENT_KINDS:
        return
    facts: dict[str, Any] = {"approval_id": str(approval.public_id), "action": approval.action, "level": approval.level}
    if decision != "requested":
        facts["decision"] = decision
    # Read afresh: the row in a worker's hands may name an agent that was deleted.
    event_emit(_EVENT_KINDS[decision], session=AgentSession.objects.get(pk=approval.session_id), now=now, **facts)


# --- Unknown outcomes ---


class Decision(StrEnum):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


@transaction.atomic
def tool_call_resolve(call_pk: int, decision: Decision, *, by: User, now: datetime, result: Any = None) -> ToolCall:
    """Record what a person says about a call of unknown outcome.

    The session goes on when no call of unknown outcome is left. The chain of a session that is over is closed, so the
    decision on its call is written to `system`.
    """
    if not by.is_active or not by.has_perm(PERMISSION):
        raise NotAllowed(f"{by} may not decide what became of a call: the permission {PERMISSION} is missing.")
    call = ToolCall.objects.select_related("session").get(pk=call_pk)
    session = session_lock(call.session_id)
    happened = decision == Decision.HAPPENED
    decided = (
        ToolCall.objects.unknown()
        .filter(pk=call.pk)
        .update(
            outcome=Outcome.SUCCESS if happened else Outcome.WORKER_LOST,
            result=redact_data(result) if happened else None,
            resolved_at=now,
            unknown_since=None,
        )
    )
    if not decided:
        raise InvalidTransition(f"Call {call.public_id} has no unknown outcome to decide on.")
    recorder.append(
        SYSTEM_CHAIN if session.status in TERMINAL else session.chain,
        "tool_call.resolved",
        now=now,
        actor=actor_of(by),
        subject=f"session:{session.public_id}",
        details={"call_id": str(call.public_id), "tool": call.intent, "decision": decision},
    )
    left = ToolCall.objects.unknown().filter(session=session).exists()
    if not left and session.status == Status.WAITING:
        session_wake(session.pk, now=now)
    call.refresh_from_db()
    return call


# --- Tickets ---


def ticket_consume(approval: Approval, *, digest: str, now: datetime) -> bool:
    """Use the ticket for this call. Return True for exactly one caller, ever."""
    return (
        Approval.objects.filter(
            pk=approval.pk,
            status=ApprovalStatus.APPROVED,
            consumed_at__isnull=True,
            digest=digest,
            expires_at__gt=now,
        ).update(consumed_at=now)
        == 1
    )


def ticket_record(approval: Approval, *, call_id: str, now: datetime) -> None:
    """Write to the audit log which call used the ticket."""
    details = {"approval_id": str(approval.public_id), "digest": approval.digest, "call_id": call_id}
    recorder.append(str(approval.session.public_id), "approval.consumed", now=now, details=details)


def tickets_unused(session: AgentSession) -> QuerySet[Approval]:
    return Approval.objects.filter(session=session, status__in=LIVE, consumed_at__isnull=True)


def tickets_cancel(session: AgentSession, *, now: datetime, cause: str, actor: str) -> None:
    """Cancel the session's unused tickets. The caller holds the session's row."""
    unused = list(tickets_unused(session))
    for approval in unused:
        ticket_cancel(approval, now=now, cause=cause, actor=actor)
    if unused:
        notifications_settle(session.pk, ABOUT_APPROVALS, now=now)


def ticket_cancel(approval: Approval, *, now: datetime, cause: str, actor: str) -> None:
    """Cancel one unused ticket. The caller holds the session's row."""
    if Approval.objects.filter(pk=approval.pk, status=approval.status, consumed_at__isnull=True).update(
        status=ApprovalStatus.CANCELLED, resolved_at=now
    ):
        _record(approval, "approval.cancelled", now=now, actor=actor, cause=cause)
