"""Pruning: archives old runs and old events in bounded segments, and deletes rows that nobody needs.

It can be killed at any moment and called again: what was sealed and not dropped is dropped first, and everything else
decides by what is there.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Q

from agents.exceptions import PruneRefused
from agents.models import AgentSession, Message, ToolCall
from agents.people.access import actor_of, record_act
from agents.retention.runs import archivable, content, held
from agents.retention.sweeps import count_old_rows, delete_old_rows, delete_unnamed_texts
from audit.checkpoints import write_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent, Seal, SealedChain
from audit.recorder import chain_head
from audit.seals import newest_seam, unfinished
from audit.segments import (
    ArchiveError,
    Signed,
    archive,
    archive_folder,
    chain_fault,
    drop,
    require_genuine_seal,
    signed_rows,
    system_end,
)

RUNS_AT_ONCE: Final = 100
LEAST_AGE: Final = timedelta(days=1)
UNPROVEN: Final = "audit events that are missing, changed or not closed"

Progress = Callable[[str], None]


@dataclass
class Pruned:
    """What was pruned, or would be: `held` are runs that are old enough and stay, by reason.

    Calls and messages are counted by a plan alone: what was sealed before a process was killed is not counted again.
    """

    before: datetime
    runs: int = 0
    events: int = 0
    segments: int = 0
    archive_bytes: int = 0
    calls: int | None = None
    messages: int | None = None
    texts: int = 0
    held: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {**known, "before": self.before.isoformat()}


def plan(before: datetime, *, now: datetime) -> Pruned:
    """Return what pruning would do, and do nothing. Raises PruneRefused where it would do nothing."""
    try:
        require_genuine_seal()
    except ArchiveError as error:
        raise PruneRefused(str(error)) from error
    found = Pruned(before, held=held(before), rows=count_old_rows(before, now=now))
    found.calls = found.messages = 0
    for seal in unfinished():  # dropped by the next call, whatever its age
        _count(found, seal)
        found.events += seal.statement["events"]
    sealed = set(SealedChain.objects.filter(seal__in=unfinished()).values_list("chain", flat=True))
    for batch in _batches(before):
        going = [run for run in batch if run.chain not in sealed]
        if going:
            chains = [run.chain for run in going]
            pks = [run.pk for run in going]
            found.runs += len(going)
            found.events += AuditEvent.objects.filter(chain__in=chains).count()
            found.calls += ToolCall.objects.filter(session__in=pks).count()
            found.messages += Message.objects.filter(session__in=pks).count()
            found.segments += 1
    seam = newest_seam().system_seq
    while end := system_end(before, after=seam):
        found.events += end - seam
        found.segments += 1
        seam = end
    return found


def prune(
    *, before: datetime, folder: Path, by: User | None, unnamed: str, now: datetime, progress: Progress = lambda _: None
) -> Pruned:
    """Archive what ended before this time and drop it, then delete rows that nobody needs. Raises PruneRefused."""
    if now - before < LEAST_AGE:
        raise PruneRefused("Nothing younger than a day is pruned.")
    done = Pruned(before)
    try:
        with archive_folder(folder):
            _Pruner(done, folder, actor_of(by, unnamed), now, progress).run()
    except ArchiveError as error:
        raise PruneRefused(str(error)) from error
    except OSError as error:
        raise PruneRefused(f"{error.filename or folder}: {error.strerror}.") from error
    done.texts = delete_unnamed_texts(before)
    done.rows = delete_old_rows(before, now=now)
    progress(f"{done.texts} long texts and {sum(done.rows.values())} other rows deleted")
    reasons = held(before)
    done.held = {**reasons, **done.held}
    counts = {name: getattr(done, name) for name in ("runs", "events", "segments", "texts")}
    details = {"before": before.isoformat(), **counts, "rows": sum(done.rows.values())}
    record_act("retention.pruned", by=by, now=now, unnamed=unnamed, **details)
    return done


class _Pruner:
    """Archives segment after segment."""

    def __init__(self, done: Pruned, folder: Path, actor: str, now: datetime, progress: Progress) -> None:
        self._done = done
        self._folder = folder
        self._actor = actor
        self._now = now
        self._progress = progress

    def run(self) -> None:
        require_genuine_seal()
        left = unfinished()
        if left:  # whoever sealed them may have been killed before the checkpoint that signs the seals
            write_checkpoint(now=self._now)
        for seal in left:
            self._progress(f"segment {seal.number} was sealed earlier and is dropped now")
            self._drop(seal)
        agreed = signed_rows()
        for batch in _batches(self._done.before):
            self._archive(self._proven(batch, agreed), agreed)
        while end := system_end(self._done.before, after=newest_seam().system_seq):
            self._archive([(SYSTEM_CHAIN, end)], agreed)

    def _proven(self, batch: list[AgentSession], agreed: Signed) -> list[tuple[str, int]]:
        """Return the chains of the runs whose events are whole and intact, with their last row; count the others."""
        found = []
        for run in batch:
            head = chain_head(run.chain)
            if head.seq and not chain_fault(run.chain, agreed):
                found.append((run.chain, head.seq))
            else:
                self._done.held[UNPROVEN] = self._done.held.get(UNPROVEN, 0) + 1
        return found

    def _archive(self, ranges: list[tuple[str, int]], agreed: Signed) -> None:
        if ranges:
            what = content(self._done.before)
            self._drop(archive(ranges, folder=self._folder, agreed=agreed, by=self._actor, now=self._now, content=what))

    def _drop(self, seal: Seal) -> None:
        dropped = drop(seal, folder=self._folder, now=self._now, content=content(self._now))
        _count(self._done, seal)
        self._done.events += dropped
        self._progress(
            f"segment {seal.number}: {dropped} events archived in {seal.statement['file']}; runs: {self._done.runs}"
        )


def _count(found: Pruned, seal: Seal) -> None:
    said = seal.statement
    found.segments += 1
    found.archive_bytes += said["size"] + said["content_size"]
    found.runs += said["chains"] if said["content_file"] else 0


def _batches(before: datetime) -> Iterator[list[AgentSession]]:
    """Yield the runs that may be archived, oldest first; each once, whether or not it is archived meanwhile."""
    after = Q()
    rows = archivable(before).order_by("completed_at", "pk").only("public_id", "completed_at")
    while batch := list(rows.filter(after)[:RUNS_AT_ONCE]):
        last = batch[-1]
        after = Q(completed_at__gt=last.completed_at) | Q(completed_at=last.completed_at, pk__gt=last.pk)
        yield batch
