"""How much the tables take in the database, and the archive on disk."""

from pathlib import Path
from typing import Final

from django.db import DatabaseError, connection, transaction

_POSTGRESQL: Final = """SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"""
# An index counts for its table.
_SQLITE: Final = """SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name
    WHERE s.aggregate GROUP BY m.tbl_name"""

STEP: Final = 1_000


def database_bytes() -> int:
    """The size of the whole database."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def table_bytes() -> dict[str, int]:
    """Bytes by table with its indexes, the largest first; empty if SQLite was built without `dbstat`.

    On SQLite this reads the whole file.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SQLITE if connection.vendor == "sqlite" else _POSTGRESQL)
            rows = cursor.fetchall()
    except DatabaseError:
        return {}
    return dict(sorted(((name, int(size)) for name, size in rows), key=lambda row: -row[1]))


def archive_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.jsonl.gz")) if folder.is_dir() else 0


def shown(size: int) -> str:
    """A size in words: 12.3 MB."""
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < STEP:
            return f"{amount:.3g} {unit}"
        amount /= STEP
    return f"{amount:.3g} GB"
