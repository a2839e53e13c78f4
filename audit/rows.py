"""Streams the record's columns as the database holds them, without model instances and in bounded memory.

A tampered row may hold what Django's own conversion would choke on, so time and details are read raw and converted
here, one row at a time. It reads; it never judges and never writes.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, QuerySet, TextField
from django.db.models.sql.compiler import SQLCompiler

from audit.models import AuditEvent

# --- The hash of an audit row: SHA-256 over canonical JSON of its named columns ---
#
# It is computed from values, never from what a database makes of them, so SQLite and PostgreSQL give the same hash
# and a third party can compute it again from an export (docs/verify_export.py).


GENESIS = "0" * 64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical(value: object) -> str:
    """Sorted keys, no spaces, ASCII; floats that JSON does not know are refused."""
    return _ENCODER.encode(value)


def digest(value: object) -> str:
    """SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970, exact where a float would round."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def event_hash(
    *,
    chain: str,
    seq: int,
    kind: str,
    at: datetime,
    actor: str,
    subject: str,
    request_id: str,
    details: Mapping[str, Any],
    prev_hash: str,
) -> str:
    row = {
        "actor": actor,
        "at": microseconds(at),
        "chain": chain,
        "details": details,
        "kind": kind,
        "prev_hash": prev_hash,
        "request_id": request_id,
        "seq": seq,
        "subject": subject,
    }
    return digest(row)


CHAIN_OPENED: Final = "audit.chain_opened"
CHAIN_CLOSED: Final = "audit.chain_closed"
CHUNK: Final = 2_000
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 SQLite stores UTC without saying so
_MICROSECOND: Final = timedelta(microseconds=1)


class UnreadableRow(ValueError):
    """A row holds a time or details that lqops cannot have written."""


class StoredRow(NamedTuple):
    """One row as stored. `at` and `details` have the type that the database gave them."""

    id: int
    chain: str
    seq: int
    kind: str
    at: Any
    actor: str
    subject: str
    request_id: str
    details: Any
    prev_hash: str
    hash: str

    def columns(self) -> dict[str, Any]:
        """The hashed columns, converted to what the hash is computed from."""
        return {
            "actor": self.actor,
            "at": _microseconds(self),
            "chain": self.chain,
            "details": _details(self),
            "kind": self.kind,
            "prev_hash": self.prev_hash,
            "request_id": self.request_id,
            "seq": self.seq,
            "subject": self.subject,
        }

    def digest(self) -> str:
        """The hash that the row ought to have."""
        columns = self.columns()
        try:
            return digest(columns)
        except (TypeError, ValueError) as error:
            raise _unreadable(self, "a value that JSON does not know") from error


class _AsStored(Func):
    """A column without Django's conversion; the cast also turns off the one of SQLite's driver."""

    template = "%(expressions)s"
    output_field = TextField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, template="CAST(%(expressions)s AS TEXT)", **extra)


def stream(rows: QuerySet[AuditEvent]) -> Iterator[StoredRow]:
    """The rows, chain by chain and each chain in its order."""
    raw = rows.order_by("chain", "seq").values_list(
        "id",
        "chain",
        "seq",
        "kind",
        _AsStored("at"),
        "actor",
        "subject",
        "request_id",
        _AsStored("details"),
        "prev_hash",
        "hash",
    )
    return map(StoredRow._make, raw.iterator(chunk_size=CHUNK))


def _microseconds(row: StoredRow) -> int:
    moment = row.at
    try:
        if isinstance(moment, str):
            return (datetime.fromisoformat(moment) - _NAIVE_EPOCH) // _MICROSECOND
        return microseconds(moment)
    except (TypeError, ValueError) as error:
        raise _unreadable(row, "no readable time") from error


def _details(row: StoredRow) -> dict[str, Any]:
    try:
        details = _DECODER.decode(row.details)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unreadable(row, "no readable details") from error
    if not isinstance(details, dict):
        raise _unreadable(row, "details that are no object")
    return details


def _unreadable(row: StoredRow, what: str) -> UnreadableRow:
    return UnreadableRow(f"row {row.seq} of chain {row.chain} holds {what}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that stands twice could show one value to the hash and another to a reader."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique)


# Writes the record as JSONL: one row a line, with every hashed column and its hash, time as whole microseconds.
#
# The export of the whole record can be verified without lqops (docs/verify_export.py). It reads and never judges: a
# row that cannot be read stops it, and verify_audit says what is wrong with that row.


def exported_lines(*, chain: str = "", since: datetime | None = None, kind: str = "") -> Generator[str, None, None]:
    """The lines without their ends, chain by chain and each chain in its order; a filter leaves rows out."""
    rows = AuditEvent.objects.all()
    if chain:
        rows = rows.filter(chain=chain)
    if since is not None:
        rows = rows.filter(at__gte=since)
    if kind:
        rows = rows.filter(kind=kind)
    for row in stream(rows):
        yield canonical({**row.columns(), "hash": row.hash})
