"""Verify the audit log: every link of every chain in one pass, then the checkpoints.

A chain alone shows edits, insertions and removals in its middle; the rows in `system` show a dropped chain; only a
checkpoint shows rows cut from the end. Skill audits are compared with the digests that their events hold. A restore
that somebody has accepted (audit/restores.py) excuses the rows that it lost. Rows that were archived are vouched for by
signed seals (audit/seals.py): `system` goes on where its last dropped range ends, and a dropped chain has to end as its
seal and its closing say. Changes nothing, and keeps one small entry per chain in memory. Several processes may read the
rows (audit/parallel.py), each of them whole chains; the result is the same.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from django.db import connection
from django.db.models import Count, Q

from audit.checkpoints import CHECKPOINT_WRITTEN, Named, file_id, named_heads, read_lines
from audit.kinds import KINDS, TOOL_CALL
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.parallel import Bounds, NotAtOnce, read_parts, split
from audit.recorder import EMPTY, Head
from audit.restores import Restore, restore_in
from audit.rows import CHAIN_CLOSED, CHAIN_OPENED, StoredRow, UnreadableRow, stream
from audit.seals import Range, Seam, UnreadableSeal, dropped_rows, newest_seam, seal_faults, sealed_ranges
from audit.skill_audits import SKILL_AUDIT, skill_audit_faults

PROGRESS_ROWS: Final = 10_000
COUNTED_ROWS: Final = 1_000  # after which a part tells how far it is
_MARK: Final = f'"{SKILL_AUDIT}"'
SEAL: Final = "seal:"  # a problem with a seal has it for its chain
LOOKUP_HEADS: Final = 200  # SQLite refuses expressions deeper than 1,000


@dataclass(frozen=True)
class Problem:
    """The first bad row of a chain, a bad seal, or the first bad line of the checkpoint file (then `chain` is None).

    `missing`: rows that were signed are gone, which a restore from a backup leaves behind, too.
    """

    chain: str | None
    what: str
    seq: int | None = None
    id: int | None = None
    line: int | None = None
    missing: bool = False

    def __str__(self) -> str:
        if self.chain is not None and self.chain.startswith(SEAL):
            return f"seal {self.chain.removeprefix(SEAL)}: {self.what}"
        if self.chain is None:
            line = "" if self.line is None else f", line {self.line}"
            return f"checkpoint file{line}: {self.what}"
        row = "" if self.seq is None else f", row {self.seq}"
        known = "" if self.id is None else f" (id {self.id})"
        return f"chain {self.chain}{row}{known}: {self.what}"


@dataclass
class Report:
    """Result of a verification. `further` counts problems after the first of each chain.

    `missing` are the signed rows that are gone, except for those that an accepted restore has lost. `archived` counts
    the events that were dropped after they were sealed, `files` those of the archive that were verified.
    """

    rows: int = 0
    chains: int = 0
    checkpoints: int | None = None
    further: int = 0
    warnings: list[str] = field(default_factory=list)
    missing: list[Named] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)
    archived: int = 0
    files: int | None = None
    _first: dict[str | None, Problem] = field(init=False, default_factory=dict)

    @property
    def problems(self) -> list[Problem]:
        return list(self._first.values())

    @property
    def verified(self) -> bool:
        return not self._first

    def add(self, problem: Problem) -> None:
        if problem.chain in self._first:
            self.further += 1
        else:
            self._first[problem.chain] = problem


class _Written(NamedTuple):
    """A checkpoint that an event names: its file, its number and the digest of its line, as the row has them."""

    file: object
    number: object
    digest: object


@dataclass(slots=True)
class _Seen:
    """One chain: its first hash, and its last row."""

    first_hash: str
    last: Head
    id: int


def verify_log(
    *, head: Path | None = None, progress: Callable[[int], None] | None = None, processes: int | None = 1
) -> Report:
    """Verify every row, and every line of the checkpoint file when `head` names one.

    `processes` is how many read the rows. None: one for each processor, if there are many rows.
    """
    archived = dropped_rows()
    check, *others = _checked_parts(processes, _Count(progress or _no_progress).add)
    for other in others:
        check.merge(other)
    report = check.report
    report.archived = archived
    check.finish()
    for fault in skill_audit_faults(check.skill_audits):
        report.add(Problem(fault.chain, fault.what, fault.seq))
    keys: set[str] = set()
    if head is not None:
        _verify_checkpoints(head, report, keys, check.written)
    for sealed in seal_faults(keys):
        report.add(Problem(f"{SEAL}{sealed.number}", sealed.what))
    return report


def _no_progress(rows: int) -> None:
    """In place of progress that nobody wants."""


class _Count:
    """Tells of every full PROGRESS_ROWS."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._rows = 0

    def add(self, rows: int) -> None:
        told = self._rows // PROGRESS_ROWS
        self._rows += rows
        for number in range(told + 1, self._rows // PROGRESS_ROWS + 1):
            self._progress(number * PROGRESS_ROWS)


def _checked_parts(processes: int | None, add: Callable[[int], None]) -> "list[_Check]":
    """Check every row; one part for each process."""
    if processes != 1 and not connection.in_atomic_block:  # others do not see what a transaction has written
        chains = list(AuditEvent.objects.order_by("chain").values_list("chain").annotate(rows=Count("*")))
        parts = split(chains, processes)
        # A name that is no text lies within no bounds; only one process finds it.
        if len(parts) > 1 and all(isinstance(chain, str) for chain, _ in chains):
            with suppress(NotAtOnce):
                return read_parts(parts, f"{__name__}.{check_part.__name__}", add)
    return [check_part(Bounds(), add)]


def check_part(bounds: Bounds, add: Callable[[int], None]) -> "_Check":
    """Check the rows of some chains, and call `add` with their number from time to time."""
    rows = AuditEvent.objects.all()
    rows = rows if bounds.first is None else rows.filter(chain__gte=bounds.first)
    rows = rows if bounds.end is None else rows.filter(chain__lt=bounds.end)
    check = _Check(Report())
    for number, row in enumerate(stream(rows), 1):
        check.step(row)
        if number % COUNTED_ROWS == 0:
            add(COUNTED_ROWS)
    add(check.report.rows % COUNTED_ROWS)
    return check


def verify_chain(chain: str) -> Report:
    """Verify the links of one chain and its opening in `system`: cheap enough for a page."""
    report = Report()
    check = _Check(report)
    ends: list[StoredRow] = []
    for row in stream(AuditEvent.objects.filter(chain=chain)):
        check.step(row)
        ends = [ends[0] if ends else row, row]
    if chain == SYSTEM_CHAIN or not report.verified:
        return report
    # Opening and closing have the time of the chain's first and last row: found by the index on time.
    times = [row.converted().at for row in ends]
    named = AuditEvent.objects.filter(at__in=times, subject=f"session:{chain}").exclude(kind=TOOL_CALL)
    for row in (row for row in stream(named) if row.chain == SYSTEM_CHAIN):  # as a condition it would win on SQLite
        check.note(row)
        if (wrong := _content_fault(row)) is not None:
            report.add(Problem(SYSTEM_CHAIN, wrong, row.seq, row.id))
    check.finish(only=chain)
    return report


class _Check:
    """Checks rows in their order."""

    def __init__(self, report: Report) -> None:
        self.skill_audits = 0  # events that hold the digest of one
        self.report = report
        self.chains: dict[str, _Seen] = {}
        self.openings: dict[str, tuple[int, object]] = {}
        self.closings: dict[str, tuple[int, Head]] = {}
        self.written: list[_Written] = []
        try:
            self._seam = newest_seam(dropped=True)
        except UnreadableSeal:  # told with the seals
            self._seam = Seam()

    def step(self, row: StoredRow) -> None:
        """Check one row against the row before it, and continue from it."""
        if row.chain not in self.chains:
            start = Head(self._seam.system_seq, self._seam.system_hash) if row.chain == SYSTEM_CHAIN else EMPTY
            self.chains[row.chain] = _Seen(row.hash, start, row.id)
            self.report.chains += 1
        self.report.rows += 1
        self.skill_audits += _MARK in str(row.details)
        seen = self.chains[row.chain]
        wrong = row_fault(row, seen.last)
        if wrong is not None:
            self.report.add(Problem(row.chain, wrong, row.seq, row.id))
        # SQLite may hold text in place of a number; continue as if the number were right.
        seen.last = Head(row.seq if isinstance(row.seq, int) else seen.last.seq + 1, row.hash)
        seen.id = row.id
        if row.chain == SYSTEM_CHAIN:
            self.note(row)

    def merge(self, other: "_Check") -> None:
        """Go on as if the rows of another check, of later chains, had been checked here."""
        self.report.rows += other.report.rows
        self.report.chains += other.report.chains
        self.report.further += other.report.further
        for problem in other.report.problems:
            self.report.add(problem)
        self.skill_audits += other.skill_audits
        self.chains |= other.chains
        self.openings |= other.openings
        self.closings |= other.closings
        self.written += other.written

    def note(self, row: StoredRow) -> None:
        """Remember a checkpoint that was written, and the opening or closing of a chain; a second one is a problem."""
        if row.kind not in {CHAIN_OPENED, CHAIN_CLOSED, CHECKPOINT_WRITTEN}:
            return
        try:
            details = row.columns()["details"]
        except UnreadableRow:
            return
        if row.kind == CHECKPOINT_WRITTEN:
            self.written.append(_Written(details.get("file"), details.get("number"), details.get("digest")))
            return
        if row.kind == CHAIN_OPENED:
            chain = str(details.get("opened"))
            first = self.openings.setdefault(chain, (row.seq, details.get("first_hash")))[0]
        else:
            chain = str(details.get("closed"))
            last = Head(details.get("last_seq"), details.get("last_hash"))
            first = self.closings.setdefault(chain, (row.seq, last))[0]
        if first != row.seq:
            done = "opened" if row.kind == CHAIN_OPENED else "closed"
            what = f"chain {chain} is {done} a second time; row {first} did so first"
            self.report.add(Problem(SYSTEM_CHAIN, what, row.seq, row.id))

    def finish(self, only: str = "") -> None:
        """Compare the chains, or `only` one, with their openings and closings in `system`, or in its dropped part."""
        self._take_over(self._seam, only)
        absent = {*self.openings, *self.closings} - set(self.chains)
        sealed = sealed_ranges(absent | set(self.chains) - {SYSTEM_CHAIN}) if self._seam.number else {}
        for chain, seen in self.chains.items():
            if chain != SYSTEM_CHAIN and chain in sealed:
                self.report.add(Problem(chain, "it was archived and dropped, and has rows again", 1, seen.id))
            elif chain != SYSTEM_CHAIN and chain not in self.openings:
                self.report.add(Problem(chain, "no row in `system` opens it", 1, seen.id))
        for chain, (system_seq, first_hash) in self.openings.items():
            found = self.chains.get(chain)
            if found is None:
                what = f"{_named(system_seq)} opens it, but it has no rows: it was dropped"
                if not _is_sealed(sealed.get(chain), first_hash=first_hash):
                    self.report.add(Problem(chain, what))
            elif found.first_hash != first_hash:
                what = f"its first row is not the one that {_named(system_seq)} names"
                self.report.add(Problem(chain, what, 1))
        for chain, (system_seq, last) in self.closings.items():
            self._compare_end(chain, system_seq, last, sealed.get(chain))

    def _compare_end(self, chain: str, system_seq: int, last: Head, sealed: list[Range] | None) -> None:
        found = self.chains.get(chain)
        if found is not None and found.last != last:
            what = f"this is its last row, but {_named(system_seq)} closed it at row {last.seq}"
            self.report.add(Problem(chain, what, found.last.seq, found.id))
        elif found is None and sealed:
            if not _is_sealed(sealed, last=last):
                self.report.add(Problem(chain, f"{_named(system_seq)} closed it at another row than its seal says"))
        elif found is None and chain not in self.openings:
            self.report.add(Problem(chain, f"{_named(system_seq)} closes it, but it has no rows"))

    def _take_over(self, seam: Seam, only: str) -> None:
        """Add the openings and closings that dropped rows of `system` held; they stand for row 0."""
        for chain, (first_hash, last_seq, last_hash) in seam.openings.items():
            if only and chain != only:
                continue
            if first_hash:
                self.openings.setdefault(chain, (0, first_hash))
            if last_seq is not None and last_hash is not None:
                self.closings.setdefault(chain, (0, Head(last_seq, last_hash)))


def _named(system_seq: int) -> str:
    return f"row {system_seq} of `system`" if system_seq else "a row of `system` that was archived"


def _is_sealed(ranges: list[Range] | None, *, first_hash: object = None, last: Head | None = None) -> bool:
    """Whether a dropped chain was sealed from its first row on, and up to its last."""
    if not ranges or ranges[0].first_seq != 1:
        return False
    if first_hash is not None and ranges[0].first_hash != first_hash:
        return False
    return last is None or (ranges[-1].last_seq, ranges[-1].last_hash) == (last.seq, last.hash)


def row_fault(row: StoredRow, before: Head) -> str | None:
    """Return what is wrong with a row that should follow `before`."""
    return _link_fault(row, before) or _content_fault(row)


def _link_fault(row: StoredRow, before: Head) -> str | None:
    if row.seq == before.seq:
        return "this row number occurs twice"
    if row.seq != before.seq + 1:
        return f"it follows row {before.seq}: the rows between are missing" if before.seq else "row 1 is missing"
    if row.prev_hash == before.hash:
        return None
    if before.seq == 0:
        return "it does not start from an empty chain"
    return f"it does not link to row {before.seq}: one of the two was changed"


def _content_fault(row: StoredRow) -> str | None:
    try:
        if row.digest() != row.hash:
            return "its content does not match its hash: it was changed"
    except UnreadableRow as error:
        return f"it cannot be read: {error}"
    if row.kind not in KINDS:
        return f"unknown kind {row.kind!r}"
    return None


def _verify_checkpoints(path: Path, report: Report, keys: set[str], written: list[_Written]) -> None:
    gone: list[Named] = []
    counts: list[tuple[int, int]] = []
    digests: set[str] = set()
    heads = _signed_heads(path, report, counts, keys, digests)
    while batch := list(islice(heads, LOOKUP_HEADS)):
        where = Q()
        for head in batch:
            where |= Q(chain=head.chain, seq=head.seq)
        present = set(AuditEvent.objects.filter(where).values_list("chain", "seq", "hash"))
        absent = [head for head in batch if head[:3] not in present]
        sealed = sealed_ranges({head.chain for head in absent}) if absent and report.archived else {}
        gone += [head for head in absent if not _was_archived(head, sealed.get(head.chain, []))]
    for head in gone:  # judged after the last line: an acceptance stands after what it excuses
        if not any(restore.excuses(head) for restore in report.restores):
            report.missing.append(head)
            what = f"the checkpoint in line {head.line} signed it, and it is missing or has another hash"
            report.add(Problem(head.chain, what, head.seq, line=head.line, missing=True))
    _compare_counts(counts, report)
    _compare_written(written, path, digests, report)


def _was_archived(head: Named, ranges: list[Range]) -> bool:
    """Whether a row that a checkpoint signed was archived. Its hash is known here if it is the first or the last."""
    for one in ranges:
        if one.first_seq <= head.seq <= one.last_seq:
            known = {one.first_seq: one.first_hash, one.last_seq: one.last_hash}
            return known.get(head.seq, head.hash) == head.hash
    return False


def _signed_heads(
    path: Path, report: Report, counts: list[tuple[int, int]], keys: set[str], digests: set[str]
) -> Iterator[Named]:
    """Check every line of the file, note its count of rows, key and digest; yield rows that the genuine ones sign."""
    report.checkpoints = 0
    last: dict[str, Named] = {}
    for line in read_lines(path):
        if line.warning:
            report.warnings.append(f"checkpoint file, line {line.number}: {line.warning}")
        if line.problem:
            report.add(Problem(None, line.problem, line=line.number))
        if line.checkpoint is None:
            continue
        if (restore := restore_in(line)) is not None:
            report.restores.append(restore)
        report.checkpoints += 1
        digests.add(line.digest)
        counts.append((line.checkpoint["rows"], line.number))
        keys.update(line.checkpoint[name] for name in ("key", "next_key") if name in line.checkpoint)
        for named in named_heads(line):
            # An idle chain is named again and again with the same head: one lookup is enough.
            if named.chain not in last or last[named.chain][:3] != named[:3]:
                last[named.chain] = named
                yield named


def _compare_counts(counts: list[tuple[int, int]], report: Report) -> None:
    """Report lost rows, except for counts from before an accepted restore."""
    standing = [
        (rows, line)
        for rows, line in counts
        if not any(restore.lines[0] <= line < restore.line for restore in report.restores)
    ]
    most_rows, most_line = max(standing, key=lambda count: (count[0], -count[1]), default=(0, 0))
    # Rows may have been added meanwhile: count again before reporting a loss.
    if most_rows > report.rows + report.archived and most_rows > (left := dropped_rows() + AuditEvent.objects.count()):
        what = f"it counted {most_rows} rows, now there are {left}"
        report.add(Problem(None, what, line=most_line, missing=True))


def _compare_written(written: list[_Written], path: Path, digests: set[str], report: Report) -> None:
    """Report checkpoints that events of `system` name and this file lacks; a note if another file has them."""
    this = file_id(path)
    absent = [one for one in written if one.digest not in digests]
    lost = [one for one in absent if one.file == this or not this]
    if lost and any(problem.chain is None and not problem.missing for problem in report.problems):
        return  # a line of the file is bad, which explains it
    if lost:
        first = f"checkpoint {lost[0].number}, which an event of `system` names, is missing or was replaced"
        lines = "the file is empty" if not this else "lines were cut from its end or changed"
        report.add(Problem(None, f"{first} (missing: {len(lost)}): {lines}"))
    elif absent:
        numbers = f"{len(absent)} checkpoints, the newest of them number {absent[-1].number}"
        report.warnings.append(
            f"checkpoint file: {numbers}, were written to another file than this one; verify it with --head"
        )
