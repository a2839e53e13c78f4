"""A process that prunes is killed before or after any commit or file: nothing is lost, and the next one goes on."""

import gzip
import json
import os
import signal
from pathlib import Path
from unittest.mock import patch

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test import override_settings

from agents.models import AgentSession, Message, ToolCall
from audit import segments
from audit.checkpoints import write_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent, DroppedSegment, Seal
from audit.segments import signed_rows, verify_archive
from audit.verify import verify_log
from tests import flushing
from tests.agents.retention.scene import TODAY, ended_run, pruned
from tests.factories import make_user
from tests.flows.crash_points import Points
from tests.flows.processes import PATIENCE, _forking, database_url

pytestmark = pytest.mark.django_db(transaction=True)

RUNS = 3
# The points that every pruning passes, by a part of what is written at them.
NAMED = {
    "file written and named": "name of a file",
    "sealed": "INSERT audit_seal",
    "checkpoint": "checkpoint",
    "rows deleted": "deletion, not committed",
    "dropped": "INSERT audit_droppedsegment",
    "recorded": "retention.pruned",
}


class PrunePoints(Points):
    """Deletions of audit rows have no kind to be named by; they have points of their own."""

    def execute(self, original, cursor, sql, params, *ignored):
        if sql.startswith("DELETE FROM audit_"):
            return original(cursor, sql, params, *ignored)
        return super().execute(original, cursor, sql, params, *ignored)


def watched_prune(folder: Path, points: Points, line) -> None:
    def watched(watch, original):
        return lambda *arguments: watch(original, *arguments)

    def reaching(name, original):
        def call(*arguments, **options):
            points.reach(f"before {name}")
            result = original(*arguments, **options)
            points.reach(f"after {name}")
            return result

        return call

    with (
        override_settings(LQOPS_CHECKPOINT_FILE=folder / "checkpoints.jsonl"),
        patch("agents.retention.prune.RUNS_AT_ONCE", 2),
        patch.object(CursorWrapper, "_execute", watched(points.execute, CursorWrapper._execute)),
        patch.object(BaseDatabaseWrapper, "_commit", watched(points.commit, BaseDatabaseWrapper._commit)),
        patch.object(BaseDatabaseWrapper, "_rollback", watched(points.rollback, BaseDatabaseWrapper._rollback)),
        patch.object(segments, "write_file", reaching("file", segments.write_file)),
        patch.object(segments, "write_checkpoint", reaching("checkpoint", segments.write_checkpoint)),
        patch.object(segments, "_delete", reaching("deletion, not committed", segments._delete)),
        patch.object(Path, "replace", reaching("name of a file", Path.replace)),
    ):
        pruned(folder / "archive")
    line.send(points.passed)


def run(folder, kill_at):
    """Prune in a process of its own; return the points it passed, or None if it was killed."""
    ours, theirs = _forking.Pipe()
    process = _forking.Process(target=watched_prune, args=(folder, PrunePoints(kill_at), theirs))
    with patch.dict(os.environ, LQOPS_TEST_DATABASE_URL=database_url()):
        process.start()
    theirs.close()
    try:
        passed = ours.recv() if ours.poll(PATIENCE) else []
    except EOFError:
        passed = None
    process.join(PATIENCE)
    assert process.exitcode == (0 if passed is not None else -signal.SIGKILL), f"it left with {process.exitcode}"
    return passed


def begin(folder):
    """An empty database with three old runs; return the hashes of all their rows."""
    flushing.flush_now()
    folder.mkdir()
    owner = make_user()
    for _ in range(RUNS):
        ended_run(owner)
    with override_settings(LQOPS_CHECKPOINT_FILE=folder / "checkpoints.jsonl"):
        write_checkpoint(now=TODAY)
    rows = AuditEvent.objects.exclude(chain=SYSTEM_CHAIN).values_list("chain", "seq", "hash")
    return set(rows), ToolCall.objects.count(), Message.objects.count()


def archived_lines(folder, kind):
    """The lines of the files that seals name."""
    for seal in Seal.objects.order_by("number"):
        name = seal.statement["file" if kind == "audit" else "content_file"]
        if name:
            with gzip.open(folder / "archive" / name, "rt") as file:
                yield from map(json.loads, file)


def faults(folder, rows, calls, messages):
    """What is wrong after a pruning was finished by another process."""
    with override_settings(LQOPS_CHECKPOINT_FILE=folder / "checkpoints.jsonl"):
        report = verify_log(head=folder / "checkpoints.jsonl")
        verify_archive(folder / "archive", report, agreed=signed_rows(folder / "checkpoints.jsonl"))
    found = [str(problem) for problem in report.problems]
    events = [line for line in archived_lines(folder, "audit") if "manifest" not in line]
    kept = [(line["chain"], line["seq"], line["hash"]) for line in events if line["chain"] != SYSTEM_CHAIN]
    if sorted(kept) != sorted(rows):
        found.append(f"{len(rows)} events were there, {len(kept)} are in the archive")
    content = list(archived_lines(folder, "runs"))
    for name, number in {"run": RUNS, "toolcall": calls, "message": messages}.items():
        if len([line for line in content if name in line]) != number:
            found.append(f"not {number} rows of {name} are in the archive")
    if AgentSession.objects.filter(archived_at__isnull=True).exists() or ToolCall.objects.exists():
        found.append("not everything was pruned")
    if DroppedSegment.objects.count() != Seal.objects.count():
        found.append("a sealed segment was not dropped")
    return found


def killed_at(number, label, folder):
    """Kill a process at one point, let another one go on, and return what is wrong then."""
    start = begin(folder)
    assert run(folder, number) is None, f"{label} was not reached"
    with override_settings(LQOPS_CHECKPOINT_FILE=folder / "checkpoints.jsonl"):
        between = verify_log(head=folder / "checkpoints.jsonl").problems
        pruned(folder / "archive")
    return [f"killed {label}: {one}" for one in (*between, *faults(folder, *start))]


def passed_by(folder):
    """The points of a pruning in which nobody is killed; every point that has a name is among them."""
    start = begin(folder)
    passed = run(folder, None)
    assert faults(folder, *start) == []
    for when in ("before", "after"):
        passing = [label for label in passed if label.startswith(when)]
        assert [name for name, what in NAMED.items() if not any(what in label for label in passing)] == []
    return passed


def test_killed_at_every_step_nothing_is_lost(tmp_path, some):
    """Of each kind of step the last, in `make test` a few of them; `make stress` takes all."""
    passed = passed_by(tmp_path / "whole")
    wanted = {
        max(number for number, label in enumerate(passed, 1) if label.startswith(when) and what in label)
        for what in NAMED.values()
        for when in ("before", "after")
    }
    wanted = some(sorted(wanted), 4, start=1)
    wrong = [one for number in wanted for one in killed_at(number, passed[number - 1], tmp_path / str(number))]
    assert wrong == []


@pytest.mark.stress
def test_killed_at_any_point_nothing_is_lost(tmp_path):
    passed = passed_by(tmp_path / "whole")
    found = [one for number, label in enumerate(passed, 1) for one in killed_at(number, label, tmp_path / str(number))]
    assert found == []
