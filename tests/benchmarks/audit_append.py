"""Audit events per second of 1, 8 and 32 processes at once, on one chain and on chains of their own.

`python -m tests.benchmarks.audit_append [--rounds 3]` on the database of LQOPS_DATABASE_URL; the rows stay there. Every
event is a transaction of its own.
"""

import argparse
import uuid
from collections.abc import Callable

from tests.benchmarks.guard import made

# isort: split
from django.db import connection, transaction

from agents.conf import clock
from audit.recorder import append
from tests.benchmarks.crew import Crew
from tests.benchmarks.paired import record

WRITERS = (1, 8, 32)
SECONDS = 1.0
DETAILS = {"tool": "run_skill", "phase": "turn", "outcome": "success", "cost_usd": "0.012500", "model": "offline"}


def writer(chain: str) -> Callable[[], None]:
    def write() -> None:
        with transaction.atomic():
            append(
                chain, "autonomous_session.tool_call", now=clock(), details={**DETAILS, "call_id": str(uuid.uuid4())}
            )

    return write


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    made()
    shared = str(uuid.uuid4())
    writer(shared)()
    ways = {"one_chain": lambda number: writer(shared), "own_chains": lambda number: writer(str(uuid.uuid4()))}
    for way, prepare in ways.items():
        with Crew(max(WRITERS), prepare) as crew:
            rates = [{count: crew.rate(count, SECONDS) for count in WRITERS} for _ in range(rounds)]
        for count in WRITERS:
            record(
                f"audit.append.{way}.{count}", [row[count] for row in rates], unit="events/s",
                database=connection.vendor, ratios=[row[count] / row[1] for row in rates] if count > 1 else (),
                reference="one writer" if count > 1 else "",
            )  # fmt: skip


if __name__ == "__main__":
    main()
