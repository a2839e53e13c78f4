"""Findings of runs: whether their quotes stand in the documents they cite, and what people do about them.

Runs store findings through the guard; everything else is an act of a person: the owner of the run, or somebody with
the permission to change findings. Each act that changes something leaves an audit event in the system chain, because
the chain of a run that is over stays closed.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Substr

from agents.conf import base_url, findings_wait
from agents.enums import FindingState, NoticeKind, QuoteCheck
from agents.exceptions import Invalid, InvalidTransition
from agents.knowledge.documents import lock_row, record_change
from agents.knowledge.projects import SUMMARY_CHARS, precedent_count, precedent_uncount
from agents.models import Document, Finding, FindingComment, Playbook, Precedent
from agents.people.access import record_act, record_list, require_access
from agents.people.notifications import finding_path, notification_create
from agents.policy.transitions import FINDING_MOVES
from agents.text.clean import one_line
from agents.text.marks import location_of
from agents.text.quotes import QuotableText, is_verifiable_quote
from audit.export import csv_line
from audit.redaction import redact

MOST: Final = 2_147_483_647  # what a PositiveIntegerField holds
UNTITLED: Final = "(untitled)"

# --- Storing ---


@dataclass
class _Together:
    """Findings that are stored at once, and what was read for them."""

    rows: list[Finding] = field(default_factory=list)
    documents: dict[tuple[int, UUID], tuple[int, str, list[Any]] | None] = field(default_factory=dict)
    playbooks: dict[tuple[int, UUID], int | None] = field(default_factory=dict)


_together: ContextVar[_Together | None] = ContextVar("together", default=None)


@contextmanager
def findings_together() -> Iterator[None]:
    """Store the findings of this block by one statement at its end; read each document and playbook once for all."""
    together = _Together()
    token = _together.set(together)
    try:
        yield
    finally:
        _together.reset(token)
    Finding.objects.bulk_create(together.rows)


def finding_add(
    *,
    owner_id: int,
    session_pk: int,
    title: str,
    now: datetime,
    severity: str = "info",
    content: str = "",
    document: str = "",
    quote: str = "",
    quote_start: int | None = None,
    about_run: bool = False,
    playbook: str = "",
    position: str = "",
    **judged: int,
) -> Finding:
    """Store a finding. Its quote is verified if the owner's document holds exactly it at `quote_start`.

    A position is stored only with a playbook of the owner's.
    """
    playbook_id = _playbook_id(owner_id, playbook)
    finding = Finding(
        session_id=session_pk,
        severity=severity,
        title=title or UNTITLED,
        content=content,
        created_at=now,
        about_run=about_run,
        playbook_id=playbook_id,
        position=position if playbook_id else "",
        **_cited(owner_id, document, quote, quote_start),
        **judged,
    )
    if (together := _together.get()) is not None:
        together.rows.append(finding)
    else:
        finding.save(force_insert=True)
    return finding


def _playbook_id(owner_id: int, named: str) -> int | None:
    public_id = _uuid(named)
    if public_id is None:
        return None
    known = (_together.get() or _Together()).playbooks
    if (owner_id, public_id) not in known:
        rows = Playbook.objects.filter(public_id=public_id, owner_id=owner_id)
        known[owner_id, public_id] = rows.values_list("pk", flat=True).first()
    return known[owner_id, public_id]


def quote_place(*, owner_id: int, document: str, quote: str) -> tuple[str, int | None]:
    """Return the quote as the owner's document has it, and its offset; else as it was given, and None."""
    public_id = _uuid(document)
    if public_id is None or not quote:
        return quote, None
    rows = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True)
    text = rows.values_list("text", flat=True).first() or ""
    place = QuotableText(text).find(quote)
    return (text[slice(*place)], place[0]) if place else (quote, None)


def _cited(owner_id: int, document: str, quote: str, start: int | None) -> dict[str, Any]:
    """Return the document and the quote, with its offset if it stands there. An unknown document is left out."""
    document_id, found, marks = _look_up(owner_id, document, start, len(quote))
    cited: dict[str, Any] = {"document_id": document_id, "quote": quote}
    if quote and start is not None and found == quote and is_verifiable_quote(quote):
        end = start + len(quote)
        place = {"quote_start": start, "quote_end": end, "location": location_of(marks, start, end)}
        return {**cited, **place, "quote_check": QuoteCheck.VERIFIED}
    return {**cited, "quote_check": QuoteCheck.UNVERIFIED if quote else ""}


def _look_up(owner_id: int, named: str, start: int | None, length: int) -> tuple[int | None, str, list[Any]]:
    """Return the owner's document, its text at that place, and its marks.

    Only that slice leaves the database, unless several findings are stored together.
    """
    public_id = _uuid(named)
    if public_id is None:
        return None, "", []
    rows = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True)
    if (together := _together.get()) is not None:
        key = owner_id, public_id
        if key not in together.documents:
            together.documents[key] = rows.values_list("pk", "text", "marks").first()
        pk, text, marks = together.documents[key] or (None, "", [])
        return pk, text[start or 0 : (start or 0) + max(length, 1)], marks
    part = Substr("text", (start or 0) + 1, max(length, 1), output_field=TextField())
    found = rows.annotate(part=part).values_list("pk", "part", "marks").first()
    return found or (None, "", [])


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


# --- Triage ---

PERMISSION: Final = "agents.change_finding"
REASON_CHARS: Final = 500
COMMENT_CHARS: Final = 4_000
DISMISSED_KIND: Final = "dismissed_finding"
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


def assignable_users(owner_id: int | None = None) -> QuerySet[User]:
    """Return those whom a finding can be assigned to: the owner of its run, and all who may change findings."""
    may_change = User.objects.with_perm(PERMISSION, backend=_BACKEND).values("pk")
    return User.objects.filter(Q(pk__in=may_change) | Q(pk=owner_id), is_active=True).order_by("username")


@transaction.atomic
def finding_acknowledge(*, finding: Finding, by: User | None, now: datetime) -> Finding:
    """Say that somebody has seen it and will deal with it."""
    return _move(finding, FindingState.ACKNOWLEDGED, by=by, now=now)


@transaction.atomic
def finding_resolve(*, finding: Finding, by: User | None, now: datetime) -> Finding:
    """Say that it was right and has been dealt with."""
    return _move(finding, FindingState.RESOLVED, by=by, now=now)


@transaction.atomic
def finding_dismiss(*, finding: Finding, reason: str, by: User | None, now: datetime, teach: bool = True) -> Finding:
    """Say that it is no problem, and why. Unless `teach` is off, the reason is counted as a precedent."""
    why = one_line(redact(reason), REASON_CHARS)
    if not why:
        raise Invalid("Give a reason for the dismissal: later runs learn from it.")
    return _move(finding, FindingState.DISMISSED, by=by, now=now, reason=why, teach=teach)


@transaction.atomic
def finding_reopen(*, finding: Finding, by: User | None, now: datetime) -> Finding:
    """Put it back into the queue. What its dismissal taught is taken back."""
    return _move(finding, FindingState.OPEN, by=by, now=now)


_VERBS: Final = {state: str(state) for state in FindingState} | {FindingState.OPEN: "reopened"}


def _move(
    finding: Finding, to: FindingState, *, by: User | None, now: datetime, reason: str = "", teach: bool = False
) -> Finding:
    """Change the state under a lock. The state that it has already changes nothing."""
    row = _lock(finding, by)
    if row.state == to:
        return row
    if to not in FINDING_MOVES[row.state]:
        raise InvalidTransition(f"Finding {row.public_id} is {row.state}: reopen it before it can be {to}.")
    details = {}
    if row.precedent is not None:
        details["precedent_id"] = str(row.precedent.public_id)
        precedent_uncount(precedent=row.precedent, by=by, now=now)
    row.state, row.reason, row.triaged_by, row.triaged_at = to, reason, by, now
    row.precedent = _teach(row, now) if teach else None
    if row.precedent is not None:
        details["precedent_id"] = str(row.precedent.public_id)
    row.save(update_fields=["state", "reason", "triaged_by", "triaged_at", "precedent"])
    _record(row, _VERBS[to], by=by, now=now, **details)
    return row


def _teach(row: Finding, now: datetime) -> Precedent:
    """Count the dismissal as a precedent of the owner of the run, worded alike for the same position and reason."""
    about = row.position or row.title
    summary = one_line(redact(f"Dismissed as no problem: {about}. Reason: {row.reason}"), SUMMARY_CHARS)
    public_id, _ = precedent_count(
        owner_id=row.session.owner_id,
        session_pk=row.session_id,
        pattern_kind=DISMISSED_KIND,
        summary=summary,
        now=now,
    )
    return Precedent.objects.get(public_id=public_id)


@transaction.atomic
def finding_assign(*, finding: Finding, assignee: User | None, by: User | None, now: datetime) -> Finding:
    """Assign it to a person, who is notified, or to nobody. The same person again changes nothing."""
    row = _lock(finding, by)
    if row.assignee_id == (assignee and assignee.pk):
        return row
    if assignee is not None and not assignable_users(row.session.owner_id).filter(pk=assignee.pk).exists():
        raise Invalid(f"{assignee} cannot be assigned a finding: that needs the permission {PERMISSION}.")
    row.assignee = assignee
    row.save(update_fields=["assignee"])
    _record(row, "assigned", by=by, now=now, assignee_id=assignee and assignee.pk)
    if assignee is not None and assignee != by:
        _notify(row, assignee.pk, f"Finding assigned to you: {_label(row)}", now=now)
    return row


@transaction.atomic
def finding_comment(*, finding: Finding, text: str, by: User | None, now: datetime) -> FindingComment:
    """Comment on it. The owner of the run and the assignee are notified, unless they wrote it."""
    row = _lock(finding, by)
    written = redact(text.replace("\x00", "")).strip()
    if not written:
        raise Invalid("A comment needs text.")
    if len(written) > COMMENT_CHARS:
        raise Invalid(f"The comment is {len(written)} characters long; at most {COMMENT_CHARS} are kept: shorten it.")
    comment = FindingComment.objects.create(finding=row, author=by, text=written, created_at=now)
    _record(row, "commented", by=by, now=now, comment_id=str(comment.public_id))
    for person in {row.session.owner_id, row.assignee_id} - {None, by and by.pk}:
        _notify(row, person, f"New comment on a finding: {_label(row)}", now=now)
    return comment


# --- Expiry ---

EXPIRING: Final = ("info", "warn")  # of any other severity, a finding waits for people for good
EXPIRED_AT_ONCE: Final = 100


# Settled by time alone: open, of low severity, and not assigned.
BY_TIME: Final = Q(state=FindingState.OPEN, severity__in=EXPIRING, assignee__isnull=True)


def findings_expire(now: datetime) -> int:
    """Expire findings of low severity that no person has changed for long, each with an audit event. Return how many.

    The finding stays as it is, and can be reopened; it waits as long again then. What keeps its run is over.
    """
    wait = findings_wait()
    if wait is None:
        return 0
    since = now - wait
    untouched = Q(triaged_at__isnull=True) | Q(triaged_at__lte=since)
    expired = {"state": FindingState.EXPIRED, "triaged_by": None, "triaged_at": now}
    done = 0
    # The first by id are the oldest: a filter by time would read all that are younger, each time.
    for row in (
        Finding.objects.work().filter(BY_TIME, untouched).select_related("session").order_by("pk")[:EXPIRED_AT_ONCE]
    ):
        if row.created_at > since:
            break
        with transaction.atomic():
            # Only if no person has changed it meanwhile
            if Finding.objects.filter(BY_TIME, pk=row.pk, triaged_at=row.triaged_at).update(**expired):
                _record(row, "expired", by=None, now=now)
                done += 1
    return done


def _lock(finding: Finding, by: User | None) -> Finding:
    require_access(by, owner_id=finding.session.owner_id, permission=PERMISSION)
    return lock_row(Finding.objects.filter(pk=finding.pk), "finding")


def _record(row: Finding, verb: str, *, by: User | None, now: datetime, **details: Any) -> None:
    record_change(row, f"finding.{verb}", by=by, now=now, session_id=row.session.chain, **details)


def _label(row: Finding) -> str:
    """Name a finding without its content: a notification may leave the house."""
    return ", ".join(filter(None, [row.severity, row.position, row.document.name if row.document else ""]))


def _notify(row: Finding, owner_id: int | None, title: str, *, now: datetime) -> None:
    if owner_id is not None:
        given: dict[str, Any] = {"session_id": row.session_id, "finding_id": row.pk, "now": now}
        notification_create(owner_id=owner_id, kind=NoticeKind.FINDING, title=title, body="", **given)


# --- False alarms of a playbook ---

ALARM_DAYS: Final = 90


@dataclass(frozen=True)
class PositionRecord:
    """What a position has found, and how much of that people dismissed, with their last reasons."""

    position: str
    found: int
    dismissed: int
    reasons: tuple[str, ...]

    @property
    def percent(self) -> int:
        return self.dismissed * 100 // self.found


def false_alarms(playbook: Playbook, *, now: datetime, most_reasons: int = 3) -> list[PositionRecord]:
    """Return the positions with dismissed findings in the last ALARM_DAYS days, most dismissals first."""
    rows = Finding.objects.filter(playbook=playbook, created_at__gte=now - timedelta(days=ALARM_DAYS))
    dismissed = Count("pk", filter=Q(state=FindingState.DISMISSED))
    counts = rows.exclude(position="").order_by().values("position").annotate(found=Count("pk"), dismissed=dismissed)
    reasons: dict[str, dict[str, None]] = {}
    given = rows.filter(state=FindingState.DISMISSED).order_by("-triaged_at", "-pk")
    for position, reason in given.values_list("position", "reason")[:LISTED_REASONS]:
        reasons.setdefault(position, {})[reason] = None
    found = [
        PositionRecord(one["position"], one["found"], one["dismissed"], tuple(reasons[one["position"]])[:most_reasons])
        for one in counts
        if one["position"] in reasons
    ]
    return sorted(found, key=lambda one: (-one.dismissed, one.position))


LISTED_REASONS: Final = 1_000

# --- Export ---

EXPORTED_ROWS: Final = 10_000
CSV_COLUMNS: Final = (
    "id", "created_at", "severity", "state", "title", "content", "document", "location", "quote", "quote_check",
    "playbook", "position", "assignee", "reason", "triaged_by", "triaged_at", "owner", "agent", "run", "link",
)  # fmt: skip


def findings_export(rows: QuerySet[Finding], *, by: User, now: datetime) -> str:
    """Return the newest findings of a selection as CSV, at most EXPORTED_ROWS. The export is recorded."""
    joins = ("session__owner", "session__agent", "document", "playbook", "assignee", "triaged_by")
    listed = list(rows.select_related(*joins).defer("document__text", "document__marks")[:EXPORTED_ROWS])
    record_act("finding.exported", by=by, now=now, rows=len(listed))
    record_list(listed, by=by, now=now)
    return "".join(map(csv_line, [CSV_COLUMNS, *map(_cells, listed)]))


def _cells(row: Finding) -> Iterable[object]:
    moved = row.triaged_at.isoformat() if row.triaged_at else ""
    return (
        row.public_id, row.created_at.isoformat(), row.severity, row.state, row.title, row.content,
        row.document.name if row.document else "", row.location, row.quote, row.quote_check,
        row.playbook.name if row.playbook else "", row.position, row.assignee or "", row.reason,
        row.triaged_by or "", moved, row.session.owner, row.session.agent or "", row.session.chain,
        f"{base_url()}{finding_path(row)}",
    )  # fmt: skip
