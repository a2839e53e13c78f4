"""The only writer of the audit log: appends events to hash chains, inside the caller's transaction if one is open.

A free chain needs no lock: (chain, seq) is unique, so of two writers that saw the same head one inserts and the other,
after the first has committed, reads the new head and tries again. A writer that loses twice, or has no transaction of
its own, takes a lock. A transaction that has already added to the chain never loses twice, so a writer that others wait
for never waits for the lock. Lock order across chains: a session's chain, then `system`.

An act that may wait for nobody, such as a halt of all work, leaves a pending event instead, in its own transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from django.db import OperationalError, connection, transaction

from audit import current_request_id
from audit.kinds import LABEL, checked_details
from audit.models import SYSTEM_CHAIN, AuditEvent, PendingEvent, SealedChain, SkillAudit
from audit.rows import GENESIS, canonical, event_hash, hash_parts
from audit.skill_audits import SKILL_AUDIT, skill_digest

SYSTEM: Final = "system"  # the actor of what nobody did
FREE_TRIES: Final = 2
MAX_TRIES: Final = 1_000

_FIELDS = {field.name: field for field in AuditEvent._meta.concrete_fields if not field.primary_key}
_COLUMNS = tuple(_FIELDS)
_PENDING = tuple(field.name for field in PendingEvent._meta.concrete_fields if not field.primary_key)
_LOCK: Final = {
    "postgresql": "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
    "sqlite": "SELECT %s",  # no lock needed: the transaction holds the write lock
}


_MARKS: Final = ", ".join(["%s"] * len(_COLUMNS))
_TABLE: Final = AuditEvent._meta.db_table
_INTO: Final = f"INSERT INTO {_TABLE} ({', '.join(_COLUMNS)})"
_TAKEN: Final = f"SELECT 1 FROM {_TABLE} WHERE chain = %s AND seq = %s"  # noqa: S608 names of our columns
# Of each row one, or none if its number is taken.
_INSERT: Final = f"{_INTO} VALUES {{rows}} ON CONFLICT (chain, seq) DO NOTHING"
# On SQLite the trigger against INSERT OR REPLACE refuses every row whose number is taken.
_INSERT_ON_SQLITE: Final = f"{_INTO} SELECT {_MARKS} WHERE NOT EXISTS ({_TAKEN})"


# The same as parts of a larger statement of PostgreSQL, which reads the last link and hashes the row itself. Of two
# writers that saw the same last link, the slower one gets an IntegrityError from NEXT_LINK, and no row from
# NEXT_LINK_IF_FREE, which costs one more record of the write-ahead log.
LAST_LINK: Final = f"SELECT seq, hash FROM {_TABLE} WHERE chain = %(chain)s ORDER BY seq DESC LIMIT 1"  # noqa: S608
_LINKED: Final = "%(hash_1)s || head.hash || %(hash_2)s || (head.seq + 1)::text || %(hash_3)s"
_HASHED: Final = f"encode(sha256(convert_to({_LINKED}, 'UTF8')), 'hex')"
_HASHED_ON_SQLITE: Final = f"lqops_sha256({_LINKED})"
_LINK: Final = f"""{_INTO}
        SELECT %(chain)s, head.seq + 1, %(kind)s, %(event_at)s, %(actor)s, %(subject)s, %(request_id)s,
               %(event_details)s::jsonb, head.hash, {_HASHED}
        FROM {{source}}"""  # noqa: S608 names of our columns
NEXT_LINK: Final = f"{_LINK} RETURNING seq, hash"
NEXT_LINK_IF_FREE: Final = f"{_LINK} ON CONFLICT (chain, seq) DO NOTHING RETURNING seq, hash"

# SQLite has no such functions: `teach_sqlite` gives it one. There the transaction is the lock.
NEXT_LINK_ON_SQLITE: Final = NEXT_LINK.replace(_HASHED, _HASHED_ON_SQLITE)

_APPEND: Final = (
    f"WITH head AS ({LAST_LINK}), written AS ({NEXT_LINK_IF_FREE.format(source='head')}) SELECT seq, hash FROM written"  # noqa: S608
)


class AuditContention(RuntimeError):
    """Other writers extended the chain at every one of very many tries."""


class ArchivedChain(RuntimeError):
    """The rows of this chain were archived: nothing is added to it any more."""


@dataclass(frozen=True)
class Head:
    """The last link of a chain. The head of an empty chain is (0, GENESIS)."""

    seq: int
    hash: str


EMPTY: Final = Head(0, GENESIS)


def chain_head(chain: str) -> Head:
    """Return the last link of a chain."""
    table = AuditEvent._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT seq, hash FROM {table} WHERE chain = %s ORDER BY seq DESC LIMIT 1", [chain])  # noqa: S608
        row = cursor.fetchone()
    return Head(*row) if row else EMPTY


def append(
    chain: str,
    kind: str,
    *,
    now: datetime,
    actor: str = SYSTEM,
    subject: str = "",
    request_id: str = "",
    details: Mapping[str, Any] | None = None,
    after: Head | None = None,
    skill_call: SkillAudit | None = None,
) -> Head:
    """Append one event and return the new head. `after` is a head that the caller has just seen: saves a query.

    The first event of a session's chain also writes `audit.chain_opened` into `system`, in the same transaction.
    A `skill_call` is stored with the event, which holds its digest.
    """
    if skill_call is not None:
        details = {**(details or {}), SKILL_AUDIT: skill_digest(vars(skill_call))}
    fields = _fields(chain, kind, now=now, actor=actor, subject=subject, request_id=request_id, details=details)
    if skill_call is None:
        return _append(fields, after)
    with transaction.atomic():
        head = _append(fields, after)
        skill_call.chain, skill_call.seq = chain, head.seq
        skill_call.save(force_insert=True)
    return head


def append_all(
    chain: str, kind: str, *, now: datetime, details: Sequence[Mapping[str, Any]], after: Head | None = None
) -> Head | None:
    """Append several events of the system by one statement, in the caller's transaction, and return the new head.

    None, if another writer was faster or the chain is empty: not all of them are written, and the caller undoes it.
    """
    rows = [_fields(chain, kind, now=now, actor=SYSTEM, subject="", request_id="", details=one) for one in details]
    head = after or chain_head(chain)
    return _insert(rows, head) if head.seq else None


def link_params(chain: str, kind: str, *, now: datetime, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of NEXT_LINK and NEXT_LINK_IF_FREE for an event of the system."""
    return _link_params(_fields(chain, kind, now=now, actor=SYSTEM, subject="", request_id="", details=details))


def _link_params(fields: dict[str, Any]) -> dict[str, Any]:
    params = fields | {"details": canonical(fields["details"])}
    params["hash_1"], params["hash_2"], params["hash_3"] = hash_parts(**params)
    params["event_at"], params["event_details"] = params.pop("at"), params.pop("details")
    return params


def teach_sqlite(connection: Any, **_: Any) -> None:
    """Give a new connection to SQLite the function by which NEXT_LINK_ON_SQLITE hashes a row."""
    if connection.vendor == "sqlite":
        connection.connection.create_function("lqops_sha256", 1, _sha256, deterministic=True)


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def append_soon(
    chain: str, kind: str, *, now: datetime, actor: str = SYSTEM, subject: str = "", details: Mapping[str, Any]
) -> None:
    """Write an event in the caller's transaction without waiting for other writers of the chain.

    On PostgreSQL as a pending event, which `append_pending` appends with the time given here. On SQLite at once:
    whoever writes holds the only lock there is.
    """
    fields = _fields(chain, kind, now=now, actor=actor, subject=subject, request_id="", details=details)
    if connection.vendor == "sqlite":
        _append(fields)
    else:
        PendingEvent.objects.create(**fields)


def append_pending(*, patience: timedelta | None = None) -> int:
    """Append the pending events to their chains, each once, and return how many.

    With `patience`, stop at the first that has to wait longer for other writers; the ticker appends it then.
    """
    done = 0
    for pk in list(PendingEvent.objects.order_by("pk").values_list("pk", flat=True)):
        try:
            with transaction.atomic():
                _wait_at_most(patience)
                done += _append_one(pk)
                _wait_at_most(None)
        except OperationalError:
            if patience is None:
                raise
            break
    return done


def _append_one(pk: int) -> int:
    fields = PendingEvent.objects.filter(pk=pk).values(*_PENDING).first()
    if fields is None or not PendingEvent.objects.filter(pk=pk).delete()[0]:
        return 0  # another process was faster
    _append(fields)
    return 1


def _wait_at_most(patience: timedelta | None) -> None:
    """Limit how long the statements of this transaction wait for locks; None: as the database is set."""
    if connection.vendor == "postgresql":
        limit = "DEFAULT" if patience is None else f"'{patience.total_seconds() * 1_000:.0f}ms'"
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {limit}")


def _fields(
    chain: str,
    kind: str,
    *,
    now: datetime,
    actor: str,
    subject: str,
    request_id: str,
    details: Mapping[str, Any] | None,
) -> dict[str, Any]:
    request_id = request_id or current_request_id.get()
    return {
        "chain": chain,
        "kind": kind,
        "at": now,
        "actor": actor if actor == SYSTEM else _label("actor", actor),
        "subject": subject and _label("subject", subject),
        "request_id": request_id and _label("request_id", request_id),
        "details": checked_details(kind, details or {}),
    }


def _append(fields: dict[str, Any], after: Head | None = None) -> Head:
    chain = fields["chain"]
    added = None
    if after or connection.in_atomic_block:
        added = (_add(fields, after) if after else _add_next(fields)) or _add(fields, chain_head(chain))
    tries = FREE_TRIES
    while added is None:
        if tries >= MAX_TRIES:
            raise AuditContention(f"chain {chain!r}: other writers were faster {tries} times; try again.")
        added = _add_locked(fields)
        tries += 1
    return added


def close_chain(chain: str, *, now: datetime, after: Head | None = None) -> None:
    """Write the end of a session's chain, with its last hash, into `system`."""
    head = after or chain_head(chain)
    append(
        SYSTEM_CHAIN,
        "audit.chain_closed",
        now=now,
        subject=f"session:{chain}",
        details={"closed": chain, "last_seq": head.seq, "last_hash": head.hash},
    )


def _add(fields: dict[str, Any], head: Head) -> Head | None:
    if head.seq == 0 and fields["chain"] != SYSTEM_CHAIN:
        return _append_first(fields)
    return _insert([fields], head)


def _add_next(fields: dict[str, Any]) -> Head | None:
    """Append to the last link; on PostgreSQL by one statement, which does nothing if the chain is empty."""
    if connection.vendor != "postgresql":
        return _add(fields, chain_head(fields["chain"]))
    with connection.cursor() as cursor:
        cursor.execute(_APPEND, _link_params(fields))
        row = cursor.fetchone()
    return Head(*row) if row else None


def _add_locked(fields: dict[str, Any]) -> Head | None:
    """Read the head and append to it under the lock of the chain."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK[connection.vendor], [fields["chain"]])
        return _add(fields, chain_head(fields["chain"]))


def _append_first(fields: dict[str, Any]) -> Head | None:
    with transaction.atomic():
        if SealedChain.objects.filter(chain=fields["chain"]).exists():
            raise ArchivedChain(f"chain {fields['chain']} was archived: no event can be added to it.")
        added = _insert([fields], EMPTY)
        if added is not None:
            append(
                SYSTEM_CHAIN,
                "audit.chain_opened",
                now=fields["at"],
                subject=f"session:{fields['chain']}",
                details={"opened": fields["chain"], "first_hash": added.hash},
            )
    return added


def _insert(events: Sequence[dict[str, Any]], head: Head) -> Head | None:
    """Insert events of one chain behind its head and return the new one; None if a number is taken."""
    rows = []
    for fields in events:
        found = event_hash(seq=head.seq + 1, prev_hash=head.hash, **fields)
        row = {**fields, "seq": head.seq + 1, "prev_hash": head.hash, "hash": found}
        rows.append([_FIELDS[name].get_db_prep_save(row[name], connection) for name in _COLUMNS])
        head = Head(head.seq + 1, found)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            values = [[*row, *row[:2]] for row in rows]
            if len(values) == 1:
                cursor.execute(_INSERT_ON_SQLITE, values[0])
            else:
                cursor.executemany(_INSERT_ON_SQLITE, values)
        else:
            marks = ", ".join([f"({_MARKS})"] * len(rows))
            cursor.execute(_INSERT.format(rows=marks), [value for row in rows for value in row])
        return head if cursor.rowcount == len(rows) else None


def _label(name: str, value: str) -> str:
    longest = _FIELDS[name].max_length or 0
    if len(value) > longest or not LABEL.fullmatch(value):
        raise ValueError(f"audit {name} {value!r} must be a label of at most {longest} characters, such as 'user:7'.")
    return value
