"""Projects with the versions of their context, memories, precedents and proposals: the only writer of their rows.

Runs propose memories and count precedents through the guard, whose handlers and skills call `memory_propose` and
`precedent_count`; everything else here is a decision of a person, or of time.

`context_write` is the only writer of a context: for the owner's own edit, and for a proposal that the owner accepts or
retires. It runs with the project's row locked, so every text that a run can have read is a revision of its own.
"""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from agents.conf import precedent_lifetime
from agents.enums import BudgetPeriod, BudgetScope, Outcome, PrecedentEnd, ProposalStatus, ToolIntent
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.knowledge.documents import lock_row, record_change
from agents.models import (
    AgentSession,
    Cap,
    ContextProposal,
    ContextRevision,
    Finding,
    Memory,
    Precedent,
    Project,
    ToolCall,
)
from agents.models.money import budget_name
from agents.people.access import actor_of, require_access, require_may_loosen, require_owner
from agents.text.clean import one_line
from agents.text.wording import label, text_key
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

# --- Projects ---

NAME_CHARS = 200
CONTEXT_CHARS = 100_000
PARTIES_CHARS = 100_000


@transaction.atomic
def project_create(
    *, owner: User, name: str, by: User | None, now: datetime, context_md: str = "", parties: str = ""
) -> Project:
    """Create a project. An initial context is version 1, and only the owner can give one."""
    require_access(by, owner_id=owner.pk, permission="agents.add_project")
    context = _context(context_md)
    project = Project.objects.create(owner=owner, name=_name(name), parties=_parties(parties), created_at=now)
    record_change(project, "project.created", by=by, now=now)
    if context:
        require_owner(by, owner_id=owner.pk)
        context_write(project, context, by=by, now=now)
        record_change(project, "project.edited", by=by, now=now, fields=["context_md"], context_version=1)
    return project


@transaction.atomic
def project_edit(
    *, project: Project, by: User | None, now: datetime, seen_version: int | None = None, **changes: str
) -> Project:
    """Change the name, the parties or the context; the context only for the owner. Equal values are no change.

    `seen_version` is the version of the context that the person has edited: if another one was written meanwhile,
    nothing is changed, so that an older form cannot remove an accepted line.
    """
    require_access(by, owner_id=project.owner_id, permission="agents.change_project")
    row = _lock_project(project.pk)
    checks = {"name": _name, "parties": _parties, "context_md": _context}
    if unknown := changes.keys() - checks.keys():
        raise Invalid(f"A project has no {', '.join(sorted(unknown))} to change: name {', '.join(sorted(checks))}.")
    wanted = {field: checks[field](value) for field, value in changes.items()}
    wanted = {field: value for field, value in wanted.items() if value != getattr(row, field)}
    if not wanted:
        return row
    if "context_md" in wanted:
        require_owner(by, owner_id=row.owner_id)
        if seen_version not in {None, row.context_version}:
            raise InvalidTransition(
                f"The context is at version {row.context_version} now, not {seen_version}: review it again."
            )
        context_write(row, wanted["context_md"], by=by, now=now)
    plain = [field for field in wanted if field != "context_md"]
    for field in plain:
        setattr(row, field, wanted[field])
    row.save(update_fields=plain)
    record_change(row, "project.edited", by=by, now=now, fields=sorted(wanted), context_version=row.context_version)
    return row


@transaction.atomic
def project_delete(*, project: Project, by: User | None, now: datetime) -> Project:
    """Delete the project with its proposals and revisions. Its runs and triggers stay, without a project."""
    require_access(by, owner_id=project.owner_id, permission="agents.delete_project")
    row = _lock_project(project.pk)
    caps = Cap.objects.filter(scope=BudgetScope.PROJECT, subject_id=row.pk)
    if caps:
        require_may_loosen(by, ["the caps of the project"], bound=[row.owner_id])
    for cap in caps:
        budget = budget_name(BudgetScope.PROJECT, row.pk, BudgetPeriod(cap.period))
        details = {"budget": budget, "cap_usd": None, "old_cap_usd": str(cap.cap_usd)}
        recorder.append(SYSTEM_CHAIN, "budget.cap_set", now=now, actor=actor_of(by), subject=budget, details=details)
        cap.delete()
    Project.objects.filter(pk=row.pk).delete()
    record_change(row, "project.deleted", by=by, now=now)
    return row


def context_write(
    row: Project, text: str, *, by: User | None, now: datetime, proposal: ContextProposal | None = None
) -> int:
    """Write the next version of the context. The caller has locked the row and checked the owner's consent."""
    if len(text) > CONTEXT_CHARS:
        raise Invalid(
            f"The context would be {len(text)} characters long; at most {CONTEXT_CHARS} are kept: shorten it."
        )
    row.context_md = text
    row.context_version += 1
    row.save(update_fields=["context_md", "context_version"])
    ContextRevision.objects.create(
        project=row, version=row.context_version, text=text, proposal=proposal, written_by=by, created_at=now
    )
    return row.context_version


def _lock_project(project_pk: int) -> Project:
    return lock_row(Project.objects.filter(pk=project_pk), "project")


def _name(value: object) -> str:
    name = one_line(redact(_text("name", value, 10 * NAME_CHARS)), NAME_CHARS)
    if not name:
        raise Invalid("A project needs a name.")
    return name


def _context(value: object) -> str:
    return redact(_text("context_md", value, CONTEXT_CHARS))


def _parties(value: object) -> str:
    """Not redacted: these names are searched, letter by letter, in what is sent to models."""
    return _text("parties", value, PARTIES_CHARS)


def _text(field: str, value: object, limit: int) -> str:
    """Return the text with plain line ends, whatever a browser made of them."""
    if not isinstance(value, str) or "\x00" in value:
        raise Invalid(f"{field} must be text without null characters.")
    if len(value) > limit:
        raise Invalid(f"{field} is {len(value)} characters long; at most {limit} are kept: shorten it.")
    return value.replace("\r\n", "\n").replace("\r", "\n")


# --- Memories: proposed by a run, kept or dismissed by a person ---
#
# state: proposed ──► kept ◄──► dismissed ◄── proposed. A deleted memory is hidden from everybody; its row stays.

CONTENT_CHARS = 10_000


def memory_propose(*, owner_id: int, session_pk: int, content: str, now: datetime) -> tuple[Memory, bool]:
    """Return the proposed memory, and whether it is new.

    What somebody has kept or dismissed, or has still to decide on, is not proposed again in the same words.
    """
    same = Memory.objects.filter(owner_id=owner_id, content_hash=text_key(content), deleted_at__isnull=True)
    if (known := same.order_by("pk").first()) is not None:
        return known, False
    return Memory.objects.create(owner_id=owner_id, session_id=session_pk, content=content, created_at=now), True


@transaction.atomic
def memory_keep(*, memory: Memory, by: User | None, now: datetime, content: str | None = None) -> Memory:
    """Keep a memory, perhaps edited: prompts may hold it from now on. `kept_at` stays the first time it was kept."""
    row = _lock_memory(memory, by, "agents.change_memory")
    wanted = row.content if content is None else _content(content)
    edited = wanted != row.content
    if row.state == "kept" and not edited:
        return row
    row.state = "kept"
    row.content = wanted
    row.kept_at = row.kept_at or now
    row.save(update_fields=["state", "content", "kept_at"])
    record_change(row, "autonomous_memory.keep", by=by, now=now, edited=edited)
    return row


@transaction.atomic
def memory_dismiss(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """Dismiss a memory: prompts no longer hold it. Dismissing it again changes nothing."""
    row = _lock_memory(memory, by, "agents.change_memory")
    if row.state != "dismissed":
        row.state = "dismissed"
        row.save(update_fields=["state"])
        record_change(row, "autonomous_memory.dismiss", by=by, now=now)
    return row


@transaction.atomic
def memory_delete(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """Delete a memory; it cannot be kept again."""
    row = _lock_memory(memory, by, "agents.delete_memory")
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    record_change(row, "autonomous_memory.delete", by=by, now=now)
    return row


def _lock_memory(memory: Memory, by: User | None, permission: str) -> Memory:
    require_access(by, owner_id=memory.owner_id, permission=permission)
    return lock_row(Memory.objects.filter(pk=memory.pk, deleted_at__isnull=True), "memory")


def _content(value: str) -> str:
    content = redact(value.replace("\x00", "")).strip()
    if not content:
        raise Invalid("A memory that is kept needs text; dismiss it instead.")
    if len(content) > CONTENT_CHARS:
        raise Invalid(f"The memory is {len(content)} characters long; at most {CONTENT_CHARS} are kept: shorten it.")
    return content


# --- Precedents: counted by runs; dismissed, merged or proposed for a project's context by people; expired by time ---

SUMMARY_CHARS = 1_000
KIND_CHARS = 64
PERMISSION = "agents.change_precedent"
EXPIRED_AT_ONCE = 200
# One statement, so that concurrent sightings are never lost.
_UPSERT = """
INSERT INTO {table}
    (public_id, owner_id, pattern_kind, summary, summary_hash, observed_count, first_seen_at, last_seen_at, ended_as)
VALUES (%s, %s, %s, %s, %s, 1, %s, %s, '')
ON CONFLICT (owner_id, pattern_kind, summary_hash) WHERE dismissed_at IS NULL
DO UPDATE SET observed_count = {table}.observed_count + 1, last_seen_at = excluded.last_seen_at
RETURNING public_id, observed_count
"""


def precedent_count(
    *, owner_id: int, session_pk: int, pattern_kind: str, summary: str, now: datetime, same_as: str = ""
) -> tuple[UUID, int]:
    """Count a sighting of a pattern; return the id of its row and the count. No project is read or written.

    `same_as` names an open precedent that the run was shown: then that one is counted. Any other id is ignored.
    """
    shown = _shown_precedent(owner_id, session_pk, same_as)
    if shown is not None:
        seen = {"observed_count": F("observed_count") + 1, "last_seen_at": now}
        if Precedent.objects.open().filter(pk=shown.pk).update(**seen):
            shown.refresh_from_db(fields=["observed_count"])
            return shown.public_id, shown.observed_count
    row = {
        "public_id": uuid4(),
        "owner": owner_id,
        "pattern_kind": label(pattern_kind, limit=KIND_CHARS) or "pattern",
        "summary": summary,
        "summary_hash": text_key(summary),
        "first_seen_at": now,
        "last_seen_at": now,
    }
    meta = Precedent._meta
    fields = {field.name: field for field in meta.concrete_fields}
    values = [fields[name].get_db_prep_save(value, connection) for name, value in row.items()]
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(table=meta.db_table), values)
        [(public_id, count)] = cursor.fetchall()
    return UUID(str(public_id)), count


def _shown_precedent(owner_id: int, session_pk: int, same_as: str) -> Precedent | None:
    """Return the owner's precedent that is named, or the one it was merged into, if the run was shown it."""
    if not same_as:
        return None
    notes = AgentSession.objects.filter(pk=session_pk).values_list("metadata", flat=True).first() or {}
    if same_as not in notes.get("inputs", {}).get("precedent_ids", ()):
        return None
    named = Precedent.objects.filter(public_id=same_as, owner_id=owner_id).select_related("merged_into").first()
    return named and (named.merged_into or named)


def precedent_uncount(*, precedent: Precedent, by: User | None, now: datetime) -> None:
    """Take back one sighting, of the row that has its count now. One that was never seen otherwise is dismissed."""
    row = precedent.merged_into or precedent
    rows = Precedent.objects.open().filter(pk=row.pk)
    if rows.filter(observed_count__gt=1).update(observed_count=F("observed_count") - 1):
        return
    if rows.update(dismissed_at=now, ended_as=PrecedentEnd.DISMISSED):
        record_change(row, "autonomous_precedent.dismiss", by=by, now=now)


@transaction.atomic
def precedent_dismiss(*, precedent: Precedent, by: User | None, now: datetime) -> Precedent:
    """Dismiss a precedent; the next sighting starts a new count. Dismissing it again changes nothing."""
    require_access(by, owner_id=precedent.owner_id, permission=PERMISSION)
    ended = {"dismissed_at": now, "ended_as": PrecedentEnd.DISMISSED}
    if Precedent.objects.open().filter(pk=precedent.pk).update(**ended):
        record_change(precedent, "autonomous_precedent.dismiss", by=by, now=now)
    precedent.refresh_from_db()
    return precedent


@transaction.atomic
def precedent_merge(*, precedent: Precedent, into: Precedent, by: User | None, now: datetime) -> Precedent:
    """Add the count of one precedent to another of the same owner. Proposals stay with the row they were made from."""
    for row in (precedent, into):
        require_access(by, owner_id=row.owner_id, permission=PERMISSION)
    locked = Precedent.objects.select_for_update(no_key=True).filter(pk__in=(precedent.pk, into.pk)).order_by("pk")
    rows = {row.pk: row for row in locked}
    if len(rows) != len({precedent.pk, into.pk}) or precedent.owner_id != into.owner_id:
        raise NotFound("There is no such precedent.")
    if precedent.pk == into.pk:
        raise Invalid("A precedent cannot be merged into itself: choose another one.")
    for row in rows.values():
        if row.dismissed_at is not None:
            raise InvalidTransition(f"Precedent {row.public_id} is no longer open; only open ones are merged.")
    merged, kept = rows[precedent.pk], rows[into.pk]
    kept.observed_count += merged.observed_count
    kept.first_seen_at = min(kept.first_seen_at, merged.first_seen_at)
    kept.last_seen_at = max(kept.last_seen_at, merged.last_seen_at)
    kept.save(update_fields=["observed_count", "first_seen_at", "last_seen_at"])
    merged.dismissed_at, merged.ended_as, merged.merged_into = now, PrecedentEnd.MERGED, kept
    merged.save(update_fields=["dismissed_at", "ended_as", "merged_into"])
    Precedent.objects.filter(merged_into=merged).update(merged_into=kept)
    record_change(merged, "autonomous_precedent.merge", by=by, now=now, into=str(kept.public_id))
    return kept


def precedents_open(owner_id: int, pattern_kind: str = "") -> QuerySet[Precedent]:
    """Return a user's open precedents, newest sighting first."""
    rows = Precedent.objects.open().filter(owner_id=owner_id)
    return (rows.filter(pattern_kind=pattern_kind) if pattern_kind else rows).order_by("-last_seen_at", "-id")


def precedent_weight(precedent: Precedent, *, now: datetime) -> float:
    """Return what its count is worth: it falls evenly from the last sighting to the day on which it would expire."""
    lifetime = precedent_lifetime()
    if lifetime is None:
        return float(precedent.observed_count)
    left = 1 - (now - precedent.last_seen_at) / lifetime
    return round(precedent.observed_count * min(max(left, 0.0), 1.0), 2)


def precedents_expire(now: datetime) -> int:
    """End precedents that nobody has seen for long, each with an audit event. One with a live proposal stays."""
    lifetime = precedent_lifetime()
    if lifetime is None:
        return 0
    old = Precedent.objects.open().filter(last_seen_at__lte=now - lifetime)
    promoted = ContextProposal.objects.filter(_of_family(OuterRef("pk")), status__in=_LIVE)
    ended = {"dismissed_at": now, "ended_as": PrecedentEnd.EXPIRED}
    done = 0
    for row in old.filter(~Exists(promoted)).order_by("pk")[:EXPIRED_AT_ONCE]:
        with transaction.atomic():
            # Only if it was not seen again meanwhile
            if Precedent.objects.open().filter(pk=row.pk, last_seen_at=row.last_seen_at).update(**ended):
                record_change(row, "autonomous_precedent.expire", now=now)
                done += 1
    return done


def _of_family(precedent: Any) -> Q:
    """Of a proposal: made from this precedent, or from one that was merged into it."""
    return Q(precedent=precedent) | Q(precedent__merged_into=precedent)


def precedent_trace(precedent: Precedent) -> QuerySet[AgentSession]:
    """Return the runs in which it, or one that was merged into it, was seen, newest first.

    A run has seen it by its journal, or because a finding of it was dismissed.
    """
    family = dict([(precedent.pk, precedent.public_id), *precedent.merged.values_list("pk", "public_id")])
    sightings = ToolCall.objects.filter(
        session__owner_id=precedent.owner_id,
        intent=ToolIntent.PROPOSE_PRECEDENT,
        outcome=Outcome.SUCCESS,
        result__precedent_id__in=list(map(str, family.values())),
    )
    dismissed = Finding.objects.filter(precedent__in=family)
    seen = Q(pk__in=sightings.values("session_id")) | Q(pk__in=dismissed.values("session_id"))
    return AgentSession.objects.filter(seen).order_by("-id")


@transaction.atomic
def precedent_promote(
    *, precedent: Precedent, project: Project, by: User | None, now: datetime, text: str = ""
) -> ContextProposal:
    """Propose a precedent for the context of a project that the person owns. An open proposal is returned as it is.

    Nothing enters the context until the proposal is accepted. Without a text, the server words it.
    """
    require_owner(by, owner_id=project.owner_id)
    require_access(by, owner_id=precedent.owner_id, permission=PERMISSION)
    row = _lock_project(project.pk)
    precedent.refresh_from_db()
    if precedent.dismissed_at is not None:
        raise InvalidTransition(
            f"Precedent {precedent.public_id} was {precedent.ended_as or 'dismissed'}; it is not open."
        )
    same = ContextProposal.objects.filter(_of_family(precedent), project=row)
    if (opened := same.filter(status=ProposalStatus.PROPOSED).first()) is not None:
        return opened
    in_context = same.filter(applied_version__isnull=False, retired_version__isnull=True).first()
    if in_context is not None:
        raise InvalidTransition(
            f"Proposal {in_context.public_id} has already added it to the context; retire it first."
        )
    proposal = ContextProposal.objects.create(
        owner_id=row.owner_id,
        project=row,
        precedent=precedent,
        text=_line(text) if text else proposal_text(precedent),
        proposed_by=by,
        created_at=now,
    )
    record_change(precedent, "autonomous_precedent.promote", by=by, now=now, proposal_id=str(proposal.public_id))
    return proposal


# --- Proposals: decided on by the owner of the project ---
#
# A proposal's text is made here from the precedent, may be edited until it enters the context, and enters it at most
# once; `applied_version` says that it did. Every decision locks the project's row first, so they are serial.

LINE_CHARS = 1_200
_LIVE = (ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED)


def proposal_text(precedent: Precedent) -> str:
    """Return one line in the server's words; only the summary, made harmless, is the model's own."""
    times = "1 time" if precedent.observed_count == 1 else f"{precedent.observed_count} times"
    return f"Seen {times}: {one_line(precedent.summary, SUMMARY_CHARS)}"


def _line(text: str) -> str:
    line = one_line(redact(text), LINE_CHARS)
    if not line:
        raise Invalid("A proposal needs a text: one line for the project's context.")
    return line


@transaction.atomic
def proposal_edit(*, proposal: ContextProposal, text: str, by: User | None, now: datetime) -> ContextProposal:
    """Change the line before it enters the context. The same line changes nothing."""
    _, row = _lock_proposal(proposal, by)
    if row.applied_version is not None:
        raise InvalidTransition(
            f"Proposal {row.public_id} has added its line to the context; edit the context, or retire the proposal."
        )
    line = _line(text)
    if line != row.text:
        row.text = line
        row.save(update_fields=["text"])
        details = {"project_id": str(row.project.public_id)}
        record_change(row, "project_context_proposal.edit", what="proposal", by=by, now=now, **details)
    return row


@transaction.atomic
def proposal_accept(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Add the text to the context, unless this proposal has added it before. Accepting it again changes nothing."""
    project, row = _lock_proposal(proposal, by)
    if row.status == ProposalStatus.ACCEPTED:
        return row
    if row.status == ProposalStatus.RETIRED:
        raise InvalidTransition(f"Proposal {row.public_id} was retired; promote the precedent again instead.")
    if (other := _other_live(row)) is not None:
        raise InvalidTransition(f"Proposal {other.public_id} is for the same precedent; decide on that one.")
    if row.applied_version is None:
        separator = "\n" if project.context_md and not project.context_md.endswith("\n") else ""
        text = f"{project.context_md}{separator}{row.text}"
        row.applied_version = context_write(project, text, by=by, now=now, proposal=row)
    _decide(row, ProposalStatus.ACCEPTED, "accept", by=by, now=now, context_version=project.context_version)
    return row


@transaction.atomic
def proposal_reject(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Reject a proposal. The context stays as it is, even with the text in it: retiring removes that."""
    _, row = _lock_proposal(proposal, by)
    if row.status == ProposalStatus.REJECTED:
        return row
    if row.status == ProposalStatus.RETIRED:
        raise InvalidTransition(f"Proposal {row.public_id} was retired; there is nothing left to reject.")
    _decide(row, ProposalStatus.REJECTED, "reject", by=by, now=now)
    return row


@transaction.atomic
def proposal_retire(*, proposal: ContextProposal, by: User | None, now: datetime) -> ContextProposal:
    """Remove the text that this proposal added from the context, in a new version. It cannot be accepted again."""
    project, row = _lock_proposal(proposal, by)
    if row.status == ProposalStatus.RETIRED:
        return row
    if row.applied_version is None:
        raise InvalidTransition(f"Proposal {row.public_id} never entered the context; reject it instead.")
    lines = project.context_md.split("\n")
    if row.text not in lines:
        raise InvalidTransition(
            f"The line of proposal {row.public_id} is not in the context as it was added; edit the context by hand."
        )
    del lines[len(lines) - 1 - lines[::-1].index(row.text)]  # the last equal line: that is where it was added
    row.retired_version = context_write(project, "\n".join(lines), by=by, now=now, proposal=row)
    _decide(row, ProposalStatus.RETIRED, "retire", by=by, now=now, context_version=project.context_version)
    return row


def proposal_trace(proposal: ContextProposal) -> QuerySet[AgentSession]:
    """Return the runs that read a version of the context with the proposal's text, newest first."""
    if proposal.applied_version is None:
        return AgentSession.objects.none()
    held = Q(context_version__gte=proposal.applied_version)
    if proposal.retired_version is not None:
        held &= Q(context_version__lt=proposal.retired_version)
    return AgentSession.objects.filter(held, project_id=proposal.project_id).order_by("-id")


def _lock_proposal(proposal: ContextProposal, by: User | None) -> tuple[Project, ContextProposal]:
    """Lock the project's row and read the proposal under that lock. Only the owner of the project passes."""
    project = _lock_project(proposal.project_id)
    require_owner(by, owner_id=project.owner_id)
    row = ContextProposal.objects.filter(pk=proposal.pk, project=project).first()
    if row is None:
        raise NotFound("There is no such proposal.")
    row.project = project
    return project, row


def _other_live(row: ContextProposal) -> ContextProposal | None:
    """Return a newer live proposal of the same precedent; only one of the two may be accepted."""
    if row.precedent is None:
        return None
    same = ContextProposal.objects.filter(_of_family(row.precedent), project=row.project, status__in=_LIVE)
    return same.exclude(pk=row.pk).first()


def _decide(
    row: ContextProposal, status: ProposalStatus, verb: str, *, by: User | None, now: datetime, **details: Any
) -> None:
    row.status = status
    row.decided_by = by
    row.decided_at = now
    row.save(update_fields=["status", "decided_by", "decided_at", "applied_version", "retired_version"])
    details["project_id"] = str(row.project.public_id)
    record_change(row, f"project_context_proposal.{verb}", what="proposal", by=by, now=now, **details)
