"""The hash of an audit row: SHA-256 over canonical JSON of its named columns.

It is computed from values, never from what a database makes of them, so SQLite and PostgreSQL give the same hash and a
third party can compute it again from an export (docs/verify_export.py).
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

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
