"""Skill audits: what a skill call was given and what came of it, held by the digest in the event of the call.

The rows hold content, the audit log holds none: so the event has the digest of the row, and the row has the place of
the event. Rows from before there were such events are held by one event of `system`, with the digest of them all.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.redaction import redact
from audit.rows import CHUNK, AsStored, UnreadableRow, canonical, decoded, digest, stored_microseconds, stream
from audit.seals import UnreadableSeal, newest_seam

SKILL_AUDIT: Final = "skill_audit"  # the detail of an event that holds the digest
SEALED: Final = "audit.skill_audits_sealed"
SUMMARY_CHARS: Final = 200
AUDITED_LEVELS: Final = frozenset({"CONTROLLED", "RESTRICTED", "PRIVILEGED"})
_COLUMNS: Final = (
    "skill_name",
    "input_summary",
    "output_summary",
    "capability_level",
    "risk_level",
    "duration_ms",
    "chat_id",
    "user_id",
    "session_id",
    "created_at",
)


def skill_call(
    *,
    skill_name: str,
    arguments: object,
    output: str | None,
    capability_level: str,
    risk_level: str | None,
    duration_ms: int,
    now: datetime,
    chat_id: str = "",
    user_id: int | None = None,
    session_id: UUID | None = None,
) -> SkillAudit | None:
    """Return the row of a call of level CONTROLLED or above, for its event to store; none for SAFE and MONITORED.

    Redacts first, cuts afterwards: a cut can never leave half a key behind.
    """
    if capability_level not in AUDITED_LEVELS:
        return None
    given = arguments if isinstance(arguments, str) else canonical(arguments)
    return SkillAudit(
        skill_name=skill_name,
        input_summary=redact(given)[:SUMMARY_CHARS],
        output_summary=redact(output or "")[:SUMMARY_CHARS],
        capability_level=capability_level,
        risk_level=risk_level,
        duration_ms=duration_ms,
        chat_id=chat_id,
        user_id=user_id,
        session_id=session_id,
        created_at=now,
    )


def skill_digest(row: Mapping[str, Any]) -> str:
    """Return the digest of a skill audit: all its columns but its id and its place."""
    session, at = row["session_id"], stored_microseconds(row["created_at"])
    named = {name: row[name] for name in _COLUMNS}
    return digest({**named, "session_id": session and str(UUID(str(session))), "created_at": at})


class Seal(NamedTuple):
    """How many skill audits have no event of their own, and the digest of their digests."""

    rows: int
    digest: str


def sealed_skill_audits() -> Seal:
    count, found = 0, hashlib.sha256()
    for count, row in enumerate(_rows(SkillAudit.objects.filter(seq__isnull=True)), 1):  # noqa: B007 counts them
        found.update(_digest(row).encode("ascii"))
    return Seal(count, found.hexdigest())


class SkillAuditFault(NamedTuple):
    chain: str
    what: str
    seq: int | None = None


def skill_audit_faults(events: int) -> Iterator[SkillAuditFault]:
    """Yield what is wrong with the skill audits; `events` is how many events hold the digest of one."""
    place, intact = None, 0
    held = AuditEvent.objects.filter(chain=OuterRef("chain"), seq=OuterRef("seq")).values(stored=AsStored("details"))
    rows = SkillAudit.objects.filter(seq__isnull=False).annotate(event=Subquery(held[:1]))
    for row in _rows(rows, "event"):
        before, place = place, (row["chain"], row["seq"])
        if place == before:
            yield SkillAuditFault(row["chain"], f"it has a second skill audit (id {row['id']})", row["seq"])
        elif _digest(row) != _held(row["event"]):
            yield SkillAuditFault(row["chain"], f"its skill audit (id {row['id']}) was changed or added", row["seq"])
        else:
            intact += 1
    if intact != events:
        yield from _missing()
    seal = sealed_skill_audits()
    rows_of_seals = stream(AuditEvent.objects.of_kind(SEALED).filter(chain=SYSTEM_CHAIN))
    try:
        archived = [Seal(**said) for said in newest_seam(dropped=True).unlinked]
    except UnreadableSeal:  # told with the seals
        archived = []
    if archived + [_seal(row.details) for row in rows_of_seals] != ([seal] if seal.rows else []):
        yield SkillAuditFault(SYSTEM_CHAIN, "skill audits without an event of their own were changed, added or removed")


def _missing() -> Iterator[SkillAuditFault]:
    """Yield the events whose skill audit is gone."""
    rows = SkillAudit.objects.filter(chain=OuterRef("chain"), seq=OuterRef("seq"))
    for event in stream(AuditEvent.objects.filter(~Exists(rows))):
        if _held(event.details):
            yield SkillAuditFault(event.chain, "its skill audit was removed", event.seq)


def _rows(rows: QuerySet[SkillAudit], *more: str) -> Iterator[dict[str, Any]]:
    """Yield rows as the database holds them: one that was tampered with may hold what Django cannot read."""
    raw = {f"stored_{name}": AsStored(name) for name in ("session_id", "created_at")}
    names = [name for name in ("id", "chain", "seq", *_COLUMNS, *more) if f"stored_{name}" not in raw]
    for row in rows.order_by("chain", "seq", "id").values(*names, **raw).iterator(chunk_size=CHUNK):
        yield {name.removeprefix("stored_"): value for name, value in row.items()}


def _digest(row: Mapping[str, Any]) -> str:
    try:
        return skill_digest(row)
    except (TypeError, ValueError):
        return "unreadable"


def _held(details: object) -> object:
    """Return the digest that the details of an event hold."""
    try:
        return decoded(details).get(SKILL_AUDIT)
    except UnreadableRow:
        return None


def _seal(details: object) -> object:
    try:
        return Seal(**decoded(details))
    except (TypeError, UnreadableRow):
        return None
