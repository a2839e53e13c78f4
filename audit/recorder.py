"""The only writer of the record. It appends a link to a chain, inside whatever transaction its caller has open.

No lock is taken: (chain, seq) is unique, so of two writers that saw the same head one inserts and the other, after the
first has committed, reads the new head and tries again. Lock order across chains: a session's chain, then `system`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction

from audit.hashing import GENESIS, canonical, event_hash
from audit.kinds import LABEL, checked_details
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.redaction import redact

MAX_TRIES: Final = 1_000
SUMMARY_CHARS: Final = 200
AUDITED_LEVELS: Final = frozenset({"CONTROLLED", "RESTRICTED", "PRIVILEGED"})

_COLUMNS = ("chain", "seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash", "hash")


class AuditContention(RuntimeError):
    """A chain moved on at every one of very many tries."""


@dataclass(frozen=True)
class Head:
    """The last link of a chain. The head of an empty chain is (0, GENESIS)."""

    seq: int
    hash: str


EMPTY: Final = Head(0, GENESIS)


def chain_head(chain: str) -> Head:
    row = AuditEvent.objects.filter(chain=chain).order_by("-seq").values_list("seq", "hash").first()
    return Head(*row) if row else EMPTY


def append(
    chain: str,
    kind: str,
    *,
    now: datetime,
    actor: str = "system",
    subject: str = "",
    request_id: str = "",
    details: Mapping[str, Any] | None = None,
    after: Head | None = None,
) -> Head:
    """Adds one link and returns the new head. `after` is a head that the caller has just seen: it saves the look-up.

    The first link of a session's chain also writes the chain's birth into `system`, in the same transaction.
    """
    fields = {
        "chain": chain,
        "kind": kind,
        "at": now,
        "actor": _label("actor", actor),
        "subject": _label("subject", subject),
        "request_id": _label("request_id", request_id),
        "details": checked_details(kind, details or {}),
    }
    head = after or chain_head(chain)
    for _ in range(MAX_TRIES):
        if head.seq == 0 and chain != SYSTEM_CHAIN:
            added = _append_first(fields)
        else:
            added = _insert(fields, head)
        if added is not None:
            return added
        head = chain_head(chain)
    raise AuditContention(f"chain {chain!r} moved on {MAX_TRIES} times while one row was to be added; try again.")


def close_chain(chain: str, *, now: datetime, after: Head | None = None) -> None:
    """Writes the end of a session's chain, with its last hash, into `system`."""
    head = after or chain_head(chain)
    append(
        SYSTEM_CHAIN,
        "audit.chain_closed",
        now=now,
        subject=f"session:{chain}",
        details={"closed": chain, "last_seq": head.seq, "last_hash": head.hash},
    )


def _append_first(fields: dict[str, Any]) -> Head | None:
    with transaction.atomic():
        added = _insert(fields, EMPTY)
        if added is not None:
            append(
                SYSTEM_CHAIN,
                "audit.chain_opened",
                now=fields["at"],
                subject=f"session:{fields['chain']}",
                details={"opened": fields["chain"], "first_hash": added.hash},
            )
    return added


def _insert(fields: dict[str, Any], head: Head) -> Head | None:
    seq = head.seq + 1
    digest = event_hash(seq=seq, prev_hash=head.hash, **fields)
    row = {**fields, "seq": seq, "prev_hash": head.hash, "hash": digest}
    meta = AuditEvent._meta
    values = [meta.get_field(name).get_db_prep_save(row[name], connection) for name in _COLUMNS]
    names = ", ".join(_COLUMNS)
    marks = ", ".join(["%s"] * len(_COLUMNS))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {meta.db_table} ({names}) VALUES ({marks}) ON CONFLICT (chain, seq) DO NOTHING",  # noqa: S608
            values,
        )
        return Head(seq, digest) if cursor.rowcount == 1 else None


def _label(name: str, value: str) -> str:
    if not LABEL.fullmatch(value):
        raise ValueError(f"audit {name} {value!r} must be a label such as 'user:7'.")
    return value


def record_skill_call(
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
    session_id: object = None,
) -> SkillAudit | None:
    """One SkillAudit row for a call of level CONTROLLED or above; SAFE and MONITORED leave none.

    Redact first, cut afterwards, so that a cut can never leave half a key behind.
    """
    if capability_level not in AUDITED_LEVELS:
        return None
    given = arguments if isinstance(arguments, str) else canonical(arguments)
    return SkillAudit.objects.create(
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
