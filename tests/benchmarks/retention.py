"""How many bytes does a run take in the database, before and after it is pruned, and in the archive?

    python -m tests.benchmarks.retention [RUNS] [KILOBYTES OF EACH DOCUMENT]

Runs on a throw-away SQLite file, or on the test database of LQOPS_TEST_DATABASE_URL. Every run reads a document of its
own with the offline analyst, and its findings are resolved, as people would. Documents and findings stay and count. The
sizes are measured after VACUUM (FULL): of all rows, of those after the runs of a month but its last seven days were
archived, and after all were. Times 300,000 by the number of runs, these are the sizes of a month of 10,000 runs a day.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.files.storage import default_storage  # noqa: E402
from django.db import connection  # noqa: E402

from agents.conf import clock  # noqa: E402
from agents.enums import FindingState  # noqa: E402
from agents.knowledge.documents import document_add  # noqa: E402
from agents.knowledge.playbooks import playbook_import  # noqa: E402
from agents.management.samples import CHECKED, samples_folder  # noqa: E402
from agents.models import AgentSession, Document, Finding, Profile  # noqa: E402
from agents.policy.run_spec import RunSpec  # noqa: E402
from agents.retention.prune import prune  # noqa: E402
from agents.retention.sizes import archive_bytes, database_bytes, table_bytes  # noqa: E402
from agents.runner import run_session  # noqa: E402
from agents.triggers.firing import run_now  # noqa: E402
from agents.walk.walk import walk  # noqa: E402
from audit.checkpoints import write_checkpoint  # noqa: E402
from audit.verify import verify_log  # noqa: E402

DAYS = 30
A_MONTH = DAYS * 10_000
KEPT_DAYS = 7  # the last of the month, which are kept whole
GB = 1_000_000_000
SHOWN = 12


def text(number: int, kilobytes: int) -> bytes:
    """A contract with a clause of its own; with a size, followed by sentences that occur nowhere else."""
    contract = (samples_folder() / "documents" / CHECKED).read_text(encoding="utf-8")
    clauses = [f"Clause {number}: this contract has the number {number}."]
    size = len(contract)
    while size < kilobytes * 1_000:
        words = hashlib.sha256(f"{number} {len(clauses)}".encode()).hexdigest()
        clauses.append(f"Item {len(clauses)} of schedule {number} is delivered under reference {words[:16]} by noon.")
        size += len(clauses[-1]) + 2
    return "\n\n".join([contract, *clauses, ""]).encode()


def make_runs(runs: int, kilobytes: int) -> None:
    owner = User.objects.create(username="keeper", is_superuser=True)
    Profile.objects.create(user=owner, opted_in=True)
    playbook = playbook_import(
        text=(samples_folder() / "playbooks" / "contract-review.yaml").read_text(encoding="utf-8"),
        owner=owner,
        by=owner,
        now=clock(),
    )
    for number in range(runs):
        common = {"owner": owner, "by": owner, "now": clock()}
        document = document_add(name=f"contract-{number}.md", data=text(number, kilobytes), **common)[0]
        session = run_now(RunSpec.of(playbook=playbook, document=document), **common)
        run_session(session.pk, walk, owner="benchmark")
    Finding.objects.update(state=FindingState.RESOLVED, triaged_at=clock())


def size() -> int:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM" if connection.vendor == "sqlite" else "VACUUM FULL")
    return database_bytes()


def largest(what: str, runs: int) -> None:
    if rows := list(table_bytes().items())[:SHOWN]:  # those of PostgreSQL
        sys.stdout.write(
            f"{what}, bytes a run: " + ", ".join(f"{name} {size / runs:.0f}" for name, size in rows) + "\n"
        )


def main(runs: int, kilobytes: int) -> int:
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    folder = Path(tempfile.mkdtemp(prefix="lqops-archive-"))
    try:
        empty = size()
        begun = time.perf_counter()
        make_runs(runs, kilobytes)
        made = time.perf_counter() - begun
        write_checkpoint(now=clock())
        full = size()
        largest("full", runs)
        ended = AgentSession.objects.filter(completed_at__isnull=False).order_by("completed_at")
        times = list(ended.values_list("completed_at", flat=True))
        now = clock() + timedelta(days=10)
        given = {"folder": folder, "by": None, "unnamed": "command", "now": now}
        begun = time.perf_counter()
        first = prune(before=times[len(times) * (DAYS - KEPT_DAYS) // DAYS], **given)
        pruning = time.perf_counter() - begun
        recent = size()
        largest("pruned but for the last days", runs)
        rest = prune(before=now - timedelta(days=5), **given)
        left = size()
        largest("pruned", runs)
        report = verify_log()
        archive = archive_bytes(folder)
        stored = sum(Document.objects.values_list("size", flat=True))
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
    sizes = {"whole": full - empty, f"the last {KEPT_DAYS} days whole": recent - empty, "pruned": left - empty}
    sizes["archive"] = archive
    lines = [
        f"{connection.vendor}: runs {runs}, ended {len(times)}, archived {first.runs} and {rest.runs}",
        f"held: {rest.held}; made in {made:.0f} s, pruned first in {pruning:.1f} s",
        f"verified: {report.verified}, archived: {report.archived}",
        f"documents: {stored / runs:.0f} bytes a run; their files are in {default_storage.location}",
        "bytes a run: " + ", ".join(f"{what} {size / runs:.0f}" for what, size in sizes.items()),
        f"times {A_MONTH / runs:g}: "
        + ", ".join(f"{what} {size * A_MONTH / runs / GB:.1f} GB" for what, size in sizes.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if report.verified and first.runs + rest.runs == runs else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=int, default=100)
    parser.add_argument("kilobytes", nargs="?", type=int, default=0, help="of each document")
    given = parser.parse_args()
    sys.exit(main(given.runs, given.kilobytes))
