"""Restores from a backup: rows that checkpoints have signed are gone, and a person says so, on record.

The acceptance is a signed line of the checkpoint file, with who, why, and which rows of which chains are missing; an
event of the audit log names it. From then on verification reports these rows as lost by the restore instead of as
tampering. Everything else that is wrong stays wrong, and is a reason to accept nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.db.models import Max

from audit.checkpoints import Line, Named, read_lines, write_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append
from audit.seals import dropped_rows

CLOCKS: Final = timedelta(minutes=1)  # by which clocks of hosts may differ
SHOWN: Final = 20


class RestoreRefused(Exception):
    """What is wrong with the audit log is not what a restore leaves behind."""


@dataclass(frozen=True)
class Restore:
    """A restore that somebody has accepted: its line in the file, the lines that it excuses, and the missing rows."""

    line: int
    at: datetime
    by: str
    reason: str
    lines: tuple[int, int]
    lost: int
    missing: dict[str, tuple[int, int]]

    def excuses(self, named: Named) -> bool:
        """Whether a signed row is one of those that the restore has lost."""
        first, last = self.missing.get(named.chain, (0, -1))
        return self.covers(named.line) and first <= named.seq <= last

    def covers(self, line: int) -> bool:
        return self.lines[0] <= line <= self.lines[1]

    def __str__(self) -> str:
        chains = [f"{chain} {first} to {last}" for chain, (first, last) in sorted(self.missing.items())]
        more = f" and of {len(chains) - SHOWN} more chains" if len(chains) > SHOWN else ""
        rows = "; ".join(chains[:SHOWN]) + more
        lost = f"{self.lost} events missing, among them rows {rows}"
        return f"restored on {self.at:%Y-%m-%d %H:%M} UTC by {self.by} ({self.reason}); {lost}"


def restore_in(line: Line) -> Restore | None:
    """Return the acceptance that a genuine line in its place holds, if it holds one."""
    found = line.checkpoint.get("restored") if line.checkpoint and not line.problem else None
    if found is None:
        return None
    return Restore(
        line=line.number,
        at=datetime.fromisoformat(line.checkpoint["at"]),  # type: ignore[index]  # the line is genuine
        by=found["by"],
        reason=found["reason"],
        lines=(found["lines"][0], found["lines"][1]),
        lost=found["lost"],
        missing={chain: (first, last) for chain, first, last in found["missing"]},
    )


def accept_restore(
    missing: Iterable[Named], *, path: Path, by: str, actor: str, reason: str, now: datetime
) -> dict[str, Any]:
    """Write the acceptance of these missing rows, and return its line.

    The caller has verified the audit log and found nothing else wrong. Refuses what a restore cannot have left.
    """
    rows = list(missing)
    numbers = {named.line for named in rows}
    signed = {line.number: line.checkpoint for line in read_lines(path) if line.number in numbers and line.checkpoint}
    times = {number: datetime.fromisoformat(checkpoint["at"]) for number, checkpoint in signed.items()}
    first, last = times[min(numbers)], times[max(numbers)]
    _require_newer_rows(rows, times)
    _require_nothing_between(first, last)
    ranges = _ranges(rows, last)
    # Checkpoints name the last row of each open chain, and count all rows: also those of chains that they never named.
    lost = max(checkpoint["rows"] for checkpoint in signed.values()) - dropped_rows()
    lost -= AuditEvent.objects.filter(at__lte=last).count()
    details = {"rows": lost, "chains": len(ranges), "first_line": min(numbers), "last_line": max(numbers)}
    append(SYSTEM_CHAIN, "audit.restore_accepted", now=now, actor=actor, details=details)
    record = {
        "by": by,
        "reason": reason,
        "lines": [min(numbers), max(numbers)],
        "lost": lost,
        "missing": [[chain, begin, end] for chain, (begin, end) in sorted(ranges.items())],
    }
    return write_checkpoint(now=now, path=path, restored=record)


def _require_nothing_between(first: datetime, last: datetime) -> None:
    """A restored database has no row from between the backup and the restore."""
    between = AuditEvent.objects.filter(at__gt=first + CLOCKS, at__lte=last).order_by("id").first()
    if between is not None:
        raise RestoreRefused(
            f"row {between.seq} of chain {between.chain} was written at {between.at:%Y-%m-%d %H:%M:%S} UTC, after rows "
            "that are missing: a restore loses every row after the backup"
        )


def _require_newer_rows(rows: Iterable[Named], times: dict[int, datetime]) -> None:
    """A row in the place of a missing one was written after the restore."""
    for named in rows:
        found = AuditEvent.objects.filter(chain=named.chain, seq=named.seq).first()
        if found is not None and found.at <= times[named.line]:
            raise RestoreRefused(
                f"row {named.seq} of chain {named.chain} is not missing: it has another content than the checkpoint in "
                f"line {named.line} signed, and is not newer"
            )


def _ranges(rows: Iterable[Named], last: datetime) -> dict[str, tuple[int, int]]:
    """Return the first and the last missing row of each chain."""
    found: dict[str, tuple[int, int]] = {}
    for named in rows:
        if named.chain not in found:
            kept = AuditEvent.objects.filter(chain=named.chain, at__lte=last).aggregate(last=Max("seq"))["last"] or 0
            found[named.chain] = (kept + 1, named.seq)
        begin, end = found[named.chain]
        found[named.chain] = (begin, max(end, named.seq))
    return found
