"""How long verification of the audit log takes, against reading the same rows.

`python -m tests.benchmarks.verify_audit [ROWS]` on the database of LQOPS_DATABASE_URL, which must have no events. The
ways are measured in turns, so that whatever else the machine does meets all of them.
"""

import argparse
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from tests.benchmarks.guard import made

# isort: split
from django.db import connection

from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import EMPTY, Head
from audit.rows import CHAIN_OPENED, event_hash
from audit.verify import verify_log
from tests.benchmarks.paired import measure, record

ROUNDS = 3
ROWS = 50_000
PROCESSES = 2
ROWS_PER_CHAIN = 200
BATCH = 2_000
DETAILS = {
    "tool": "run_skill",
    "name": "contract.check",
    "phase": "analysis",
    "outcome": "success",
    "cost_usd": "0.012500",
    "actual_usd": "0.009871",
    "model": "offline",
}
COLUMNS = [field.name for field in AuditEvent._meta.concrete_fields]


def fill(rows: int) -> None:
    """Write chains of events, and their openings, as the recorder would."""
    heads = {SYSTEM_CHAIN: EMPTY}

    def linked(number: int, chain: str, kind: str, details: dict[str, object]) -> AuditEvent:
        head = heads.get(chain, EMPTY)
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        text = {"kind": kind, "actor": "system", "subject": f"session:{chain}", "request_id": "", "details": details}
        event = AuditEvent(chain=chain, seq=head.seq + 1, at=at, prev_hash=head.hash, **text)
        event.hash = event_hash(chain=chain, seq=event.seq, at=at, prev_hash=head.hash, **text)
        heads[chain] = Head(event.seq, event.hash)
        return event

    def events() -> Iterator[AuditEvent]:
        for number in range(rows):
            chain = f"7c9e6679-7425-40de-944b-{number // ROWS_PER_CHAIN:012x}"
            call = {"call_id": f"5f0c7b1e-0000-4000-8000-{number:012x}", **DETAILS}
            event = linked(number, chain, "autonomous_session.tool_call", call)
            yield event
            if event.seq == 1:
                opened = {"opened": chain, "first_hash": event.hash}
                yield linked(number, SYSTEM_CHAIN, CHAIN_OPENED, opened)

    made = events()
    while batch := list(islice(made, BATCH)):
        AuditEvent.objects.bulk_create(batch)


def read() -> None:
    rows = AuditEvent.objects.order_by("chain", "seq").values_list(*COLUMNS)
    assert sum(1 for _ in rows.iterator(chunk_size=2_000))


def verify(processes: int = 1) -> None:
    report = verify_log(processes=processes)
    assert report.verified, report.problems


def main(rows: int) -> None:
    made()
    assert not AuditEvent.objects.exists(), "the audit log of this database has events"
    fill(rows)
    rows = AuditEvent.objects.count()
    ways: dict[str, Callable[[], None]] = {
        "read": read,
        "audit.verify": verify,
        f"audit.verify.{PROCESSES}_processes": lambda: verify(PROCESSES),
    }
    found = measure(ways, rounds=ROUNDS, steps=1, warm=0)
    for name in [name for name in ways if name != "read"]:
        record(
            name, [rows / row[name] for row in found], unit="events/s", database=connection.vendor,
            ratios=[row[name] / row["read"] for row in found], reference=f"reading {rows} events",
        )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=ROWS)
    main(parser.parse_args().rows)
