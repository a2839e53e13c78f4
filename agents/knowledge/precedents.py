"""What becomes of a recurring pattern: dismissed, or proposed for a project's context and decided on by its owner.

A proposal's text is derived here from the precedent and enters the context at most once in the proposal's life;
`applied_version` is the latch. Every decision locks the project's row first, so decisions on one project are serial.
"""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from agents.enums import Outcome, ProposalStatus, ToolIntent
from agents.exceptions import InvalidTransition, NotFound
from agents.knowledge.projects import context_write, project_lock
from agents.models import AgentSession, ContextProposal, Precedent, Project, ToolCall
from agents.people.access import demand_access, demand_owner
from agents.people.actors import actor_of
from agents.text.clean import one_line
from audit import recorder
from audit.models import SYSTEM_CHAIN

SUMMARY_CHARS = 1_000
PERMISSION = "agents.change_precedent"
_LIVE = (ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED)


@transaction.atomic
def precedent_dismiss(*, precedent: Precedent, by: User | None, now: datetime) -> Precedent:
    """Takes it off the board; the next sighting begins a new count. Dismissing it again changes nothing."""
    demand_access(by, owner_id=precedent.owner_id, permission=PERMISSION)
    dismissed = Precedent.objects.filter(pk=precedent.pk, dismissed_at__isnull=True).update(dismissed_at=now)
    if dismissed:
        _record(f"precedent:{precedent.public_id}", "autonomous_precedent.dismiss", by=by, now=now, precedent=precedent)
    precedent.refresh_from_db()
    return precedent


def precedents_board(owner_id: int, pattern_kind: str = "") -> QuerySet[Precedent]:
    """What keeps coming back for a user and was not dismissed, newest sighting first."""
    rows = Precedent.objects.filter(owner_id=owner_id, dismissed_at__isnull=True)
    return (rows.filter(pattern_kind=pattern_kind) if pattern_kind else rows).order_by("-last_seen_at", "-id")


@transaction.atomic
def precedent_promote(*, precedent: Precedent, project: Project, by: User | None, now: datetime) -> ContextProposal:
    """Proposes a precedent for the context of a project that the person owns. An open proposal is given back as it is.

    Nothing reaches the context until the proposal is accepted.
    """
    demand_owner(by, owner_id=project.owner_id)
    demand_access(by, owner_id=precedent.owner_id, permission=PERMISSION)
    row = project_lock(project.pk)
    precedent.refresh_from_db()
    if precedent.dismissed_at is not None:
        raise InvalidTransition(f"Precedent {precedent.public_id} was dismissed; wait until it is seen again.")
    same = ContextProposal.objects.filter(precedent=precedent, project=row)
    if (opened := same.filter(status=ProposalStatus.PROPOSED).first()) is not None:
        return opened
    in_context = same.filter(applied_version__isnull=False, retired_version__isnull=True).first()
    if in_context is not None:
        raise InvalidTransition(
            f"Proposal {in_context.public_id} has put it into the context already; retire that one first."
        )
    proposal = ContextProposal.objects.create(
        owner_id=row.owner_id,
        project=row,
        precedent=precedent,
        text=proposal_text(precedent),
        proposed_by=by,
        created_at=now,
    )
    subject = f"precedent:{precedent.public_id}"
    _record(subject, "autonomous_precedent.promote", by=by, now=now, precedent=precedent, proposal=proposal)
    return proposal


def proposal_text(precedent: Precedent) -> str:
    """One line in the server's words; of the model's own there is only the summary, made harmless."""
    times = "1 time" if precedent.observed_count == 1 else f"{precedent.observed_count} times"
    return f"Seen {times}: {one_line(precedent.summary, SUMMARY_CHARS)}"


@transaction.atomic
def proposal_accept(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Adds the text to the context, unless this proposal has added it before. Accepting it again changes nothing."""
    project, row = _locked(proposal, by)
    if row.status == ProposalStatus.ACCEPTED:
        return row
    if row.status == ProposalStatus.RETIRED:
        raise InvalidTransition(f"Proposal {row.public_id} was retired; promote the precedent again instead.")
    if (other := _other_live(row)) is not None:
        raise InvalidTransition(f"Proposal {other.public_id} stands for the same precedent; decide on that one.")
    if row.applied_version is None:
        text = _joined(project.context_md, row.text)
        row.applied_version = context_write(project, text, by=by, now=now, proposal=row)
    _decide(row, ProposalStatus.ACCEPTED, by=by, now=now)
    _record_decision(row, "accept", by=by, now=now, context_version=project.context_version)
    return row


@transaction.atomic
def proposal_reject(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Says no. The context stays as it is, also when the text stands in it already: retiring takes that out."""
    _, row = _locked(proposal, by)
    if row.status == ProposalStatus.REJECTED:
        return row
    if row.status == ProposalStatus.RETIRED:
        raise InvalidTransition(f"Proposal {row.public_id} was retired; there is nothing left to reject.")
    _decide(row, ProposalStatus.REJECTED, by=by, now=now)
    _record_decision(row, "reject", by=by, now=now)
    return row


@transaction.atomic
def proposal_retire(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Takes the text that this proposal added out of the context, in a new version. It cannot be accepted again."""
    project, row = _locked(proposal, by)
    if row.status == ProposalStatus.RETIRED:
        return row
    if row.applied_version is None:
        raise InvalidTransition(f"Proposal {row.public_id} never entered the context; reject it instead.")
    lines = project.context_md.split("\n")
    if row.text not in lines:
        raise InvalidTransition(
            f"The line of proposal {row.public_id} is not in the context as it was added; edit the context by hand."
        )
    del lines[len(lines) - 1 - lines[::-1].index(row.text)]  # the last of its like: that is where it was added
    row.retired_version = context_write(project, "\n".join(lines), by=by, now=now, proposal=row)
    _decide(row, ProposalStatus.RETIRED, by=by, now=now)
    _record_decision(row, "retire", by=by, now=now, context_version=project.context_version)
    return row


def proposal_trace(proposal: ContextProposal) -> QuerySet[AgentSession]:
    """The runs that read a version of the context which held the proposal's text, newest first."""
    if proposal.applied_version is None:
        return AgentSession.objects.none()
    held = Q(context_version__gte=proposal.applied_version)
    if proposal.retired_version is not None:
        held &= Q(context_version__lt=proposal.retired_version)
    return AgentSession.objects.filter(held, project_id=proposal.project_id).order_by("-id")


def precedent_trace(precedent: Precedent) -> QuerySet[AgentSession]:
    """The runs in which it was seen, by their journals, newest first."""
    sightings = ToolCall.objects.filter(
        session__owner_id=precedent.owner_id,
        intent=ToolIntent.PROPOSE_PRECEDENT,
        outcome=Outcome.SUCCESS,
        result__precedent_id=str(precedent.public_id),
    )
    return AgentSession.objects.filter(pk__in=sightings.values("session_id")).order_by("-id")


def _locked(proposal: ContextProposal, by: User | None) -> tuple[Project, ContextProposal]:
    """The project's row, locked, and the proposal as it stands under that lock. The owner of the project decides."""
    project = project_lock(proposal.project_id)
    demand_owner(by, owner_id=project.owner_id)
    row = ContextProposal.objects.filter(pk=proposal.pk, project=project).first()
    if row is None:
        raise NotFound("There is no such proposal.")
    row.project = project
    return project, row


def _other_live(row: ContextProposal) -> ContextProposal | None:
    """A newer proposal of the same precedent; of two only one may stand."""
    if row.precedent is None:
        return None
    same = ContextProposal.objects.filter(precedent=row.precedent, project=row.project, status__in=_LIVE)
    return same.exclude(pk=row.pk).first()


def _joined(context: str, line: str) -> str:
    between = "\n" if context and not context.endswith("\n") else ""
    return f"{context}{between}{line}"


def _decide(row: ContextProposal, status: ProposalStatus, *, by: User | None, now: datetime) -> None:
    row.status, row.decided_by, row.decided_at = status, by, now
    row.save(update_fields=["status", "decided_by", "decided_at", "applied_version", "retired_version"])


def _record_decision(row: ContextProposal, verb: str, *, by: User | None, now: datetime, **details: Any) -> None:
    details["project_id"] = str(row.project.public_id)
    subject = f"proposal:{row.public_id}"
    _record(subject, f"project_context_proposal.{verb}", by=by, now=now, proposal=row, **details)


def _record(
    subject: str,
    kind: str,
    *,
    by: User | None,
    now: datetime,
    precedent: Precedent | None = None,
    proposal: ContextProposal | None = None,
    **details: Any,
) -> None:
    named = {"precedent_id": precedent, "proposal_id": proposal}
    ids = {key: str(entity.public_id) for key, entity in named.items() if entity is not None}
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), subject=subject, details={**ids, **details})
