"""Writes the record as JSONL: one row a line, with every hashed column and its hash, time as whole microseconds.

The export of the whole record can be verified without lqops (docs/verify_export.py). It reads and never judges: a row
that cannot be read stops it, and verify_audit says what is wrong with that row.
"""

from collections.abc import Generator
from datetime import datetime

from audit.hashing import canonical
from audit.models import AuditEvent
from audit.rows import stream


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
