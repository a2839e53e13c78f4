"""How long does verification take, against reading the same rows? Exit 1 above three times.

    python -m tests.benchmarks.verify_audit [ROWS]

Runs on a throw-away SQLite file, or on the test database of LQOPS_TEST_DATABASE_URL. The two are measured in turns, so
that whatever else the machine does meets both; the best of each counts.
"""

import os
import sys
import time
from datetime import UTC, datetime, timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connection, transaction  # noqa: E402

from audit.models import AuditEvent  # noqa: E402
from audit.recorder import append  # noqa: E402
from audit.verify import verify_log  # noqa: E402

LIMIT = 3.0
ROUNDS = 3
ROWS_PER_CHAIN = 200
COLUMNS = [field.name for field in AuditEvent._meta.concrete_fields]


def fill(rows: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with transaction.atomic():
        for number in range(rows):
            chain = f"7c9e6679-7425-40de-944b-{number // ROWS_PER_CHAIN:012x}"
            details = {
                "tool": "run_skill",
                "name": "contract.check",
                "phase": "analysis",
                "outcome": "success",
                "call_id": f"5f0c7b1e-0000-4000-8000-{number:012x}",
                "cost_usd": "0.012500",
                "actual_usd": "0.009871",
                "model": "offline",
            }
            append(chain, "autonomous_session.tool_call", now=now + timedelta(seconds=number), details=details)


def read() -> int:
    rows = AuditEvent.objects.order_by("chain", "seq").values_list(*COLUMNS)
    return sum(1 for _ in rows.iterator(chunk_size=2_000))


def verify() -> int:
    report = verify_log()
    assert report.verified, report.problems
    return report.rows


def seconds(work) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main(rows: int) -> int:
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        fill(rows)
        measured = [(seconds(read), seconds(verify)) for _ in range(ROUNDS)]
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
    reading, verifying = (min(times) for times in zip(*measured, strict=True))
    ratio = verifying / reading
    sys.stdout.write(
        f"{connection.vendor}: {rows} rows; reading {reading:.2f} s, verifying {verifying:.2f} s "
        f"({rows / verifying:.0f} rows/s): {ratio:.2f} times, limit {LIMIT:.0f}\n"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000))
