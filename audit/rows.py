"""Rows of the audit log as the database holds them: canonical JSON and hashes.

Rows are streamed without model instances, in bounded memory. A tampered row may hold what Django's own conversion
would fail on, so time and details are read raw and converted here. Reads only: judging is audit/verify.py's task.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from json import encoder
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, QuerySet, TextField
from django.db.models.sql.compiler import SQLCompiler

from audit.models import AuditEvent

CHAIN_OPENED: Final = "audit.chain_opened"
CHAIN_CLOSED: Final = "audit.chain_closed"
CHUNK: Final = 2_000

# --- Hashes: SHA-256 over canonical JSON of a row's columns ---
#
# Computed from values, never from what a database makes of them: SQLite and PostgreSQL give the same hash, and anybody
# can compute it again from an export (docs/verify_export.py).

GENESIS = "0" * 64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
# What `encode` makes anew for each value, in twice the time of encoding a small one: sorted, no name skipped, no NaN.
_HOW = True, False, False
_made: Any = getattr(encoder, "c_make_encoder", None)  # other Pythons have none
_CHUNKS = _made and _made(None, _ENCODER.default, encode_basestring_ascii, None, ":", ",", *_HOW)


def canonical(value: object) -> str:
    """Encode as JSON with sorted keys, no spaces, ASCII; refuse floats that JSON does not know."""
    return "".join(_CHUNKS(value, 0)) if _CHUNKS else _ENCODER.encode(value)


def digest(value: object) -> str:
    """Return SHA-256 over the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def microseconds(moment: datetime) -> int:
    """Return whole microseconds since 1970, exact where a float would round."""
    return (moment - EPOCH) // _MICROSECOND


def event_hash(*, at: datetime, **columns: Any) -> str:
    """Return the hash of a row: all its columns but `id` and `hash`, time as microseconds."""
    return digest({**columns, "at": microseconds(at)})


def hash_parts(*, at: datetime, details: str, **columns: str) -> tuple[str, str, str]:
    """Return the hashed text of a row without its two links: what comes before, between and after them.

    `details` are given as canonical JSON.

    `prev_hash` stands between the first and the second, `seq` between the second and the third: a database that reads
    the last link itself puts the text together and hashes it.
    """
    quoted = encode_basestring_ascii
    actor, chain, kind = quoted(columns["actor"]), quoted(columns["chain"]), quoted(columns["kind"])
    request_id, subject = quoted(columns["request_id"]), quoted(columns["subject"])
    first = f'{{"actor":{actor},"at":{microseconds(at)},"chain":{chain},"details":{details},"kind":{kind}'
    return f'{first},"prev_hash":"', f'","request_id":{request_id},"seq":', f',"subject":{subject}}}'


# --- Rows ---

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
        """Return the hashed columns, converted to what the hash is computed from."""
        columns = self._asdict()
        del columns["id"], columns["hash"]
        return {**columns, "at": _microseconds(self), "details": _details(self)}

    def converted(self) -> "StoredRow":
        """Return the row with its time and its details as values."""
        return self._replace(at=EPOCH + timedelta(microseconds=_microseconds(self)), details=_details(self))

    def digest(self) -> str:
        """Compute the hash that the row should have."""
        columns = self.columns()
        try:
            return digest(columns)
        except (TypeError, ValueError) as error:
            raise _unreadable(self, "a value that JSON does not know") from error


class AsStored(Func):
    """A column without Django's conversion; the cast also turns off the one of SQLite's driver."""

    template = "%(expressions)s"
    output_field = TextField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, template="CAST(%(expressions)s AS TEXT)", **extra)


def stream(rows: QuerySet[AuditEvent]) -> Iterator[StoredRow]:
    """Yield the rows, chain by chain and each chain in its order."""
    names = [AsStored(name) if name in {"at", "details"} else name for name in StoredRow._fields]
    raw = rows.order_by("chain", "seq").values_list(*names)
    return map(StoredRow._make, raw.iterator(chunk_size=CHUNK))


def stored_microseconds(moment: Any) -> int:
    """Return the time of a column as whole microseconds; SQLite has text. Raises TypeError or ValueError."""
    if isinstance(moment, str):
        return (datetime.fromisoformat(moment) - _NAIVE_EPOCH) // _MICROSECOND
    return microseconds(moment)


def decoded(details: Any) -> dict[str, Any]:
    """Return stored details as an object; raises UnreadableRow."""
    try:
        found = _DECODER.decode(details)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableRow("no readable details") from error
    if not isinstance(found, dict):
        raise UnreadableRow("details that are not an object")
    return found


def _microseconds(row: StoredRow) -> int:
    try:
        return stored_microseconds(row.at)
    except (TypeError, ValueError) as error:
        raise _unreadable(row, "no readable time") from error


def _details(row: StoredRow) -> dict[str, Any]:
    try:
        return decoded(row.details)
    except UnreadableRow as error:
        raise _unreadable(row, str(error)) from error


def _unreadable(row: StoredRow, what: str) -> UnreadableRow:
    return UnreadableRow(f"row {row.seq} of chain {row.chain} holds {what}")


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object that has a name twice: one value could be hashed or checked, and another used."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=unique_names)
