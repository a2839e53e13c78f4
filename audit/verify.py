"""Walks every link of every chain in one pass and says what is wrong in plain words; checkpoints show what is gone.

A chain alone shows edits, insertions and removals in its middle; the rows in `system` show a dropped chain; only a
checkpoint shows a tail that was cut. It changes nothing, and keeps one small entry per chain in memory.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from django.db.models import Q

from audit.checkpoints import Named, named_heads, read_lines
from audit.kinds import KINDS
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import EMPTY, Head
from audit.rows import CHAIN_CLOSED, CHAIN_OPENED, EPOCH, GENESIS, StoredRow, UnreadableRow, stream

PROGRESS_ROWS: Final = 10_000
LOOKUP_HEADS: Final = 200  # SQLite refuses expressions deeper than 1,000


@dataclass(frozen=True)
class Problem:
    """The first bad row of a chain, or the first bad line of the checkpoint file (then `chain` is None)."""

    chain: str | None
    what: str
    seq: int | None = None
    id: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.chain is None:
            return f"checkpoint file, line {self.line}: {self.what}"
        row = "" if self.seq is None else f", row {self.seq}"
        known = "" if self.id is None else f" (id {self.id})"
        return f"chain {self.chain}{row}{known}: {self.what}"


@dataclass
class Report:
    """What a verification saw. `further` counts what is bad besides the first of each chain."""

    rows: int = 0
    chains: int = 0
    checkpoints: int | None = None
    further: int = 0
    warnings: list[str] = field(default_factory=list)
    _first: dict[str | None, Problem] = field(init=False, default_factory=dict)

    @property
    def problems(self) -> list[Problem]:
        return list(self._first.values())

    @property
    def verified(self) -> bool:
        return not self._first

    def blame(self, problem: Problem) -> None:
        if problem.chain in self._first:
            self.further += 1
        else:
            self._first[problem.chain] = problem


@dataclass(slots=True)
class _Seen:
    """What is kept of one chain: its first hash and its last row."""

    first_hash: str
    seq: int
    hash: str
    id: int


def verify_record(*, head: Path | None = None, progress: Callable[[int], None] | None = None) -> Report:
    """Every row of the record, and every line of the checkpoint file when `head` names one."""
    report = Report()
    walk = _Walk(report)
    for row in stream(AuditEvent.objects.all()):
        walk.step(row)
        if progress and report.rows % PROGRESS_ROWS == 0:
            progress(report.rows)
    walk.finish()
    if head is not None:
        _verify_checkpoints(head, report)
    return report


def verify_chain(chain: str) -> Report:
    """The links of one chain and its birth in `system`; cheap enough for a page, less than verify_record."""
    report = Report()
    walk = _Walk(report)
    ends: list[StoredRow] = []
    for row in stream(AuditEvent.objects.filter(chain=chain)):
        walk.step(row)
        ends = [ends[0] if ends else row, row]
    if chain == SYSTEM_CHAIN or not report.verified:
        return report
    # Birth and end carry the time of the row they speak of: found by the index on time, however long `system` is.
    times = [EPOCH + timedelta(microseconds=row.columns()["at"]) for row in ends]
    for row in stream(AuditEvent.objects.filter(chain=SYSTEM_CHAIN, at__in=times, subject=f"session:{chain}")):
        walk.note(row)
        if (wrong := _content_fault(row)) is not None:
            report.blame(Problem(SYSTEM_CHAIN, wrong, row.seq, row.id))
    walk.finish()
    return report


class _Walk:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._chains: dict[str, _Seen] = {}
        self._births: dict[str, tuple[int, object]] = {}
        self._ends: dict[str, tuple[int, Head]] = {}
        self._chain: str | None = None
        self._before = EMPTY

    def step(self, row: StoredRow) -> None:
        """Judges one row against the row before it and goes on from what stands there."""
        if row.chain != self._chain:
            self._chain, self._before = row.chain, EMPTY
            self._chains[row.chain] = _Seen(row.hash, 0, GENESIS, row.id)
            self._report.chains += 1
        self._report.rows += 1
        wrong = _link_fault(row, self._before) or _content_fault(row)
        if wrong is not None:
            self._report.blame(Problem(row.chain, wrong, row.seq, row.id))
        # SQLite lets text stand in a number's place; the walk goes on as if the number were right.
        self._before = Head(row.seq if isinstance(row.seq, int) else self._before.seq + 1, row.hash)
        seen = self._chains[row.chain]
        seen.seq, seen.hash, seen.id = row.seq, row.hash, row.id
        if row.chain == SYSTEM_CHAIN:
            self.note(row)

    def note(self, row: StoredRow) -> None:
        """Remembers the birth or the end of a chain; a second one of the same chain is bad by itself."""
        if row.kind not in {CHAIN_OPENED, CHAIN_CLOSED}:
            return
        try:
            details = row.columns()["details"]
        except UnreadableRow:
            return
        again = None
        if row.kind == CHAIN_OPENED:
            chain = str(details.get("opened"))
            again = self._births.setdefault(chain, (row.seq, details.get("first_hash")))[0]
        else:
            chain = str(details.get("closed"))
            last = Head(details.get("last_seq"), details.get("last_hash"))
            again = self._ends.setdefault(chain, (row.seq, last))[0]
        if again != row.seq:
            done = "opened" if row.kind == CHAIN_OPENED else "closed"
            what = f"chain {chain} is {done} a second time; row {again} did so first"
            self._report.blame(Problem(SYSTEM_CHAIN, what, row.seq, row.id))

    def finish(self) -> None:
        """Compares the chains with what `system` says of them."""
        for chain, seen in self._chains.items():
            if chain != SYSTEM_CHAIN and chain not in self._births:
                self._report.blame(Problem(chain, "no row in `system` tells of its beginning", 1, seen.id))
        for chain, (system_seq, first_hash) in self._births.items():
            born = self._chains.get(chain)
            if born is None:
                what = f"row {system_seq} of `system` tells of its beginning, but it has no rows: it was dropped"
                self._report.blame(Problem(chain, what))
            elif born.first_hash != first_hash:
                what = f"its first row is not the one that row {system_seq} of `system` tells of"
                self._report.blame(Problem(chain, what, 1))
        for chain, (system_seq, last) in self._ends.items():
            ended = self._chains.get(chain)
            if ended is None:
                if chain not in self._births:
                    self._report.blame(Problem(chain, f"row {system_seq} of `system` ends it, but it has no rows"))
            elif Head(ended.seq, ended.hash) != last:
                what = f"this is its last row, but row {system_seq} of `system` ended it at row {last.seq}"
                self._report.blame(Problem(chain, what, ended.seq, ended.id))


def _link_fault(row: StoredRow, before: Head) -> str | None:
    if row.seq != before.seq + 1:
        return _number_fault(row.seq, before.seq)
    if row.prev_hash == before.hash:
        return None
    if before.seq == 0:
        return "it does not start from the empty chain"
    return f"it does not link to row {before.seq}: one of the two was changed"


def _number_fault(seq: object, before: int) -> str:
    if seq == before:
        return "a row with this number stands twice"
    if before == 0:
        return "it is the first row of its chain, and row 1 is missing"
    return f"it follows row {before}: what stood between is missing"


def _content_fault(row: StoredRow) -> str | None:
    try:
        if row.digest() != row.hash:
            return "its content does not match its hash: it was changed"
    except UnreadableRow as error:
        return f"it cannot be read: {error}"
    if row.kind not in KINDS:
        return f"kind {row.kind!r} is not in the vocabulary"
    return None


def _verify_checkpoints(path: Path, report: Report) -> None:
    report.checkpoints = 0
    waiting: list[Named] = []
    checked: dict[str, Named] = {}
    most_rows = most_line = 0
    for line in read_lines(path):
        if line.warning:
            report.warnings.append(f"checkpoint file, line {line.number}: {line.warning}")
        if line.problem:
            report.blame(Problem(None, line.problem, line=line.number))
        if line.checkpoint is None:
            continue
        report.checkpoints += 1
        if line.checkpoint["rows"] > most_rows:
            most_rows, most_line = line.checkpoint["rows"], line.number
        for named in named_heads(line):
            # A chain at rest is named again and again with the same head: one look is enough.
            known = checked.get(named.chain)
            if known is None or known[:3] != named[:3]:
                checked[named.chain] = named
                waiting.append(named)
        if len(waiting) >= LOOKUP_HEADS:
            _blame_missing(waiting, report)
            waiting = []
    _blame_missing(waiting, report)
    # Rows may have been added since the walk; only a count that is short now is short.
    if most_rows > report.rows and most_rows > (left := AuditEvent.objects.count()):
        report.blame(Problem(None, f"it counted {most_rows} rows, and {left} are left", line=most_line))


def _blame_missing(named: list[Named], report: Report) -> None:
    present: set[tuple[str, int, str]] = set()
    for batch in _batches(named):
        where = Q()
        for head in batch:
            where |= Q(chain=head.chain, seq=head.seq)
        present.update(AuditEvent.objects.filter(where).values_list("chain", "seq", "hash"))
    for head in named:
        if (head.chain, head.seq, head.hash) not in present:
            what = f"the checkpoint in line {head.line} saw it, and it is gone or has another hash"
            report.blame(Problem(head.chain, what, head.seq, line=head.line))


def _batches(named: list[Named]) -> Iterator[Iterable[Named]]:
    for start in range(0, len(named), LOOKUP_HEADS):
        yield named[start : start + LOOKUP_HEADS]
