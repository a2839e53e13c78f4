"""Projects and the versions of their context. `context_write` is the only writer of a context.

It is called for the owner's own edit and for a proposal that the owner accepts or retires, with the project's row
locked: every text that a run can have read stands in a revision of its own.
"""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from agents.enums import Outcome, ProposalStatus, ToolIntent
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.models import AgentSession, ContextProposal, ContextRevision, Memory, Precedent, Project, ToolCall
from agents.people.access import actor_of, demand_access, demand_owner
from agents.text.clean import one_line
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

NAME_CHARS = 200
CONTEXT_CHARS = 100_000
PARTIES_CHARS = 100_000


@transaction.atomic
def project_create(
    *, owner: User, name: str, by: User | None, now: datetime, context_md: str = "", parties: str = ""
) -> Project:
    """A project of the owner's. A context to begin with is version 1, and only the owner can give one."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_project")
    context = _context(context_md)
    project = Project.objects.create(owner=owner, name=_name(name), parties=_parties(parties), created_at=now)
    _record_project(project, "project.created", by=by, now=now)
    if context:
        demand_owner(by, owner_id=owner.pk)
        context_write(project, context, by=by, now=now)
        _record_project(project, "project.edited", by=by, now=now, fields=["context_md"], context_version=1)
    return project


@transaction.atomic
def project_edit(
    *, project: Project, by: User | None, now: datetime, seen_version: int | None = None, **changes: str
) -> Project:
    """Changes the name, the parties or the context; the context only for the owner. What stays the same is no change.

    `seen_version` is the version of the context that the person has edited: if another one was written meanwhile,
    nothing is changed, so that no accepted line is lost by an older form.
    """
    demand_access(by, owner_id=project.owner_id, permission="agents.change_project")
    row = project_lock(project.pk)
    checks = {"name": _name, "parties": _parties, "context_md": _context}
    if unknown := changes.keys() - checks.keys():
        raise Invalid(f"A project has no {', '.join(sorted(unknown))} to change: name {', '.join(sorted(checks))}.")
    wanted = {field: checks[field](value) for field, value in changes.items()}
    wanted = {field: value for field, value in wanted.items() if value != getattr(row, field)}
    if "context_md" in wanted:
        demand_owner(by, owner_id=row.owner_id)
        if seen_version not in {None, row.context_version}:
            raise InvalidTransition(
                f"The context is at version {row.context_version} now, not {seen_version}: look at it again."
            )
        context_write(row, wanted["context_md"], by=by, now=now)
    if not wanted:
        return row
    plain = [field for field in wanted if field != "context_md"]
    for field in plain:
        setattr(row, field, wanted[field])
    row.save(update_fields=plain)
    _record_project(row, "project.edited", by=by, now=now, fields=sorted(wanted), context_version=row.context_version)
    return row


@transaction.atomic
def project_delete(*, project: Project, by: User | None, now: datetime) -> Project:
    """Deletes the project with its proposals and versions. Runs and triggers stay, bound to none."""
    demand_access(by, owner_id=project.owner_id, permission="agents.delete_project")
    row = project_lock(project.pk)
    Project.objects.filter(pk=row.pk).delete()
    _record_project(row, "project.deleted", by=by, now=now)
    return row


def project_lock(project_pk: int) -> Project:
    """The project's row, locked until the transaction ends. SQLite's transaction is the lock."""
    row = Project.objects.select_for_update(no_key=True).filter(pk=project_pk).first()
    if row is None:
        raise NotFound("There is no such project.")
    return row


def context_write(
    row: Project, text: str, *, by: User | None, now: datetime, proposal: ContextProposal | None = None
) -> int:
    """The next version of the context. The caller has locked the row, and has made sure that the owner wants this."""
    if len(text) > CONTEXT_CHARS:
        raise Invalid(
            f"The context would be {len(text)} characters long; at most {CONTEXT_CHARS} are kept: shorten it."
        )
    row.context_md, row.context_version = text, row.context_version + 1
    row.save(update_fields=["context_md", "context_version"])
    ContextRevision.objects.create(
        project=row, version=row.context_version, text=text, proposal=proposal, written_by=by, created_at=now
    )
    return row.context_version


def _name(value: object) -> str:
    name = one_line(redact(_text("name", value, 10 * NAME_CHARS)), NAME_CHARS)
    if not name:
        raise Invalid("A project needs a name.")
    return name


def _context(value: object) -> str:
    return redact(_text("context_md", value, CONTEXT_CHARS))


def _parties(value: object) -> str:
    """Not redacted: these names are looked for, letter by letter, in what is sent to models."""
    return _text("parties", value, PARTIES_CHARS)


def _text(field: str, value: object, limit: int) -> str:
    """The text with plain line ends, whatever a browser made of them."""
    if not isinstance(value, str) or "\x00" in value:
        raise Invalid(f"{field} must be text without null characters.")
    if len(value) > limit:
        raise Invalid(f"{field} is {len(value)} characters long; at most {limit} are kept: shorten it.")
    return value.replace("\r\n", "\n").replace("\r", "\n")


def _record_project(project: Project, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"project:{project.public_id}",
        details={"project_id": str(project.public_id), **details},
    )


# What a person makes of a note that an agent proposes: keeps it, perhaps in other words, dismisses it, or deletes it.
#
# state: proposed ──► kept ◄──► dismissed ◄── proposed; a deleted note is gone for everybody, and its row stays.


CONTENT_CHARS = 10_000


@transaction.atomic
def memory_keep(*, memory: Memory, by: User | None, now: datetime, content: str | None = None) -> Memory:
    """From now on prompts may hold it. `kept_at` is the first time that it was kept, whatever happens later."""
    row = _lock(memory, by, "agents.change_memory")
    wanted = row.content if content is None else _content(content)
    edited = wanted != row.content
    if row.state == "kept" and not edited:
        return row
    row.state, row.content, row.kept_at = "kept", wanted, row.kept_at or now
    row.save(update_fields=["state", "content", "kept_at"])
    _record_memory(row, "autonomous_memory.keep", by=by, now=now, edited=edited)
    return row


@transaction.atomic
def memory_dismiss(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """No prompt holds it any more. Dismissing it again changes nothing."""
    row = _lock(memory, by, "agents.change_memory")
    if row.state != "dismissed":
        row.state = "dismissed"
        row.save(update_fields=["state"])
        _record_memory(row, "autonomous_memory.dismiss", by=by, now=now)
    return row


@transaction.atomic
def memory_delete(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """Puts it away for good."""
    row = _lock(memory, by, "agents.delete_memory")
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    _record_memory(row, "autonomous_memory.delete", by=by, now=now)
    return row


def _lock(memory: Memory, by: User | None, permission: str) -> Memory:
    demand_access(by, owner_id=memory.owner_id, permission=permission)
    row = Memory.objects.select_for_update().filter(pk=memory.pk, deleted_at__isnull=True).first()
    if row is None:
        raise NotFound("There is no such note.")
    return row


def _content(value: str) -> str:
    content = redact(value.replace("\x00", "")).strip()
    if not content:
        raise Invalid("A note that is kept needs some words; dismiss it instead.")
    if len(content) > CONTENT_CHARS:
        raise Invalid(f"The note is {len(content)} characters long; at most {CONTENT_CHARS} are kept: shorten it.")
    return content


def _record_memory(row: Memory, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"memory:{row.public_id}",
        details={"memory_id": str(row.public_id), **details},
    )


# What becomes of a recurring pattern: dismissed, or proposed for a project's context and decided on by its owner.
#
# A proposal's text is derived here from the precedent and enters the context at most once in the proposal's life;
# `applied_version` is the latch. Every decision locks the project's row first, so decisions on one project are
# serial.


SUMMARY_CHARS = 1_000
PERMISSION = "agents.change_precedent"
_LIVE = (ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED)


@transaction.atomic
def precedent_dismiss(*, precedent: Precedent, by: User | None, now: datetime) -> Precedent:
    """Takes it off the board; the next sighting begins a new count. Dismissing it again changes nothing."""
    demand_access(by, owner_id=precedent.owner_id, permission=PERMISSION)
    dismissed = Precedent.objects.filter(pk=precedent.pk, dismissed_at__isnull=True).update(dismissed_at=now)
    if dismissed:
        _record_proposal(
            f"precedent:{precedent.public_id}", "autonomous_precedent.dismiss", by=by, now=now, precedent=precedent
        )
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
    _record_proposal(subject, "autonomous_precedent.promote", by=by, now=now, precedent=precedent, proposal=proposal)
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
    _record_proposal(subject, f"project_context_proposal.{verb}", by=by, now=now, proposal=row, **details)


def _record_proposal(
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
