"""A guarded call beside an audit log of millions of events, against one beside an empty log.

`python -m tests.benchmarks.guard_growth [--rows 1000000] [--rounds 20]` on the server of LQOPS_DATABASE_URL, with two
databases beside its own, or on SQLite with two files in build/. They are made and filled at the first run and stay
there. Both are measured in turn, by one process.
"""

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.guard import made

# isort: split
from django.contrib.auth.models import User
from django.db import connection, connections

from audit.models import AuditEvent
from tests.benchmarks.guard_scale import TOOLS, act, begun
from tests.benchmarks.paired import measure, report

PER_CHAIN = 30  # events of a run
EVENTS = """
INSERT INTO audit_auditevent (chain, seq, kind, at, actor, subject, request_id, details, prev_hash, hash)
SELECT {chain}, n % {per_chain} + 1, 'autonomous_session.tool_call', {now}, 'worker', '', '', details, hash, hash
FROM {numbers}, (SELECT details, hash FROM audit_auditevent WHERE kind = 'autonomous_session.tool_call' LIMIT 1) one"""
CHAIN = {
    "postgresql": "md5((n / {per_chain})::text)::uuid::text",
    "sqlite": "printf('%08x-0000-4000-8000-%012x', (n / {per_chain}) * 2654435761 % 4294967296, n / {per_chain})",
}
NUMBERS = {
    "postgresql": "generate_series(0, {rows} - 1) AS n",
    "sqlite": "(WITH RECURSIVE k(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM k WHERE n < {rows} - 1) SELECT n FROM k)",
}


def database(rows: int) -> str:
    """Return the name of a database for this many events, which is there afterwards."""
    if connection.vendor == "sqlite":
        Path("build").mkdir(exist_ok=True)
        return f"build/guard-{rows}.sqlite3"
    import psycopg

    name = f"lqops_guard_{rows}"
    with connection._nodb_cursor() as cursor, suppress(psycopg.errors.DuplicateDatabase):
        cursor.connection.execute(f"CREATE DATABASE {name}")
    return name


def contender(rows: int) -> Callable[[], None]:
    """Return a function that makes a call on the database with this many events."""
    given = {**connection.settings_dict, "NAME": database(rows)}
    own = type(connections["default"])(given, "default")
    connections["default"] = own
    made()
    session = begun(User.objects.get_or_create(username="benchmark")[0])
    act(session, TOOLS["guard.remote"])
    missing = rows - AuditEvent.objects.count()
    if missing > 0:
        chain, numbers = CHAIN[own.vendor].format(per_chain=PER_CHAIN), NUMBERS[own.vendor].format(rows=missing)
        with own.cursor() as cursor:
            cursor.execute(
                EVENTS.format(chain=chain, numbers=numbers, per_chain=PER_CHAIN, now="CURRENT_TIMESTAMP"), None
            )
            cursor.execute(
                "ANALYZE audit_auditevent" if own.vendor == "postgresql" else "PRAGMA wal_checkpoint(TRUNCATE)"
            )

    def call() -> None:
        connections["default"] = own
        act(session, TOOLS["guard.remote"])

    return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25)
    given = parser.parse_args()
    contenders = {"guard.empty": contender(0), "guard.filled": contender(given.rows)}
    rows = measure(contenders, rounds=given.rounds, steps=given.steps)
    report(rows, references={"guard.growth.events": ("guard.filled", "guard.empty")}, database=connection.vendor)


if __name__ == "__main__":
    main()
