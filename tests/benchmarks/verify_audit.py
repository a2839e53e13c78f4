"""How long verification of the audit log takes, against reading the same rows.

`python -m tests.benchmarks.verify_audit [ROWS]` on the database of LQOPS_DATABASE_URL, which must have no events. The
ways are measured in turns, so that whatever else the machine does meets all of them.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.benchmarks.guard import made

# isort: split
from django.db import connection, transaction

from audit.models import AuditEvent
from audit.recorder import append
from audit.verify import verify_log
from tests.benchmarks.paired import measure, record

ROUNDS = 3
ROWS = 20_000
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


def read() -> None:
    rows = AuditEvent.objects.order_by("chain", "seq").values_list(*COLUMNS)
    assert sum(1 for _ in rows.iterator(chunk_size=2_000))


def verify() -> None:
    report = verify_log()
    assert report.verified, report.problems


def main(rows: int) -> None:
    made()
    assert not AuditEvent.objects.exists(), "the audit log of this database has events"
    fill(rows)
    rows = AuditEvent.objects.count()
    ways: dict[str, Callable[[], None]] = {"read": read, "audit.verify": verify}
    found = measure(ways, rounds=ROUNDS, steps=1, warm=0)
    record(
        "audit.verify", [rows / row["audit.verify"] for row in found], unit="events/s", database=connection.vendor,
        ratios=[row["audit.verify"] / row["read"] for row in found], reference=f"reading {rows} events",
    )  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
