"""The audit log as a file that anybody with the public key can verify (docs/verify_export.py), as JSON lines or CSV.

First the checkpoints, then the seals of what was archived, then the events, chain by chain, and at last the manifest:
what was exported, how much, the head of the chain if it is one chain, and the SHA-256 of all lines before it, signed. A
fresh checkpoint is written first, so that an export whose end was cut, or whose rows were cut from the database before,
is found. Streamed in bounded memory.
"""

import csv
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet

from audit.checkpoints import read_lines, write_checkpoint
from audit.keys import signed
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append
from audit.rows import EPOCH, UnreadableRow, canonical, stream
from audit.seals import archived, dropped_rows, dropped_seals

FORMAT: Final = "lqops-audit-export/1"
EXPORTED: Final = "audit.exported"
CHECKPOINT: Final = "checkpoint"
SEAL: Final = "seal"
MANIFEST: Final = "manifest"
COLUMNS: Final = ("chain", "seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash", "hash")
COUNTED: Final = {"event": "events", CHECKPOINT: "checkpoints"}
TYPES: Final = {"jsonl": "application/jsonl", "csv": "text/csv; charset=us-ascii"}
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "'")  # a spreadsheet would run a cell that begins so


class UnknownChain(LookupError):
    """There is no chain of this name."""


@dataclass(frozen=True)
class Selection:
    """Which events to export: all, those of one chain, those since a time, those of one kind."""

    chain: str = ""
    since: datetime | None = None
    kind: str = ""

    def events(self) -> QuerySet[AuditEvent]:
        rows = AuditEvent.objects.of_kind(self.kind) if self.kind else AuditEvent.objects.all()
        given = {"chain": self.chain, "at__gte": self.since}
        return rows.filter(**{name: value for name, value in given.items() if value})

    @property
    def named(self) -> dict[str, str]:
        since = self.since.astimezone(UTC).isoformat() if self.since else ""
        return {"chain": self.chain, "since": since, "kind": self.kind}

    @property
    def has_gaps(self) -> bool:
        """Whether the links between events are left out, so that only the signature vouches for the events."""
        return bool(self.since or self.kind)


def export_log(selection: Selection, *, form: str, by: str, now: datetime) -> Generator[str, None, None]:
    """Record the export, write a checkpoint and return the lines of the file.

    Raises UnknownChain, or OSError when no checkpoint can be written. At a row that cannot be read the lines end with
    UnreadableRow and without a manifest, so that the file cannot pass for a whole one.
    """
    if selection.chain and not AuditEvent.objects.filter(chain=selection.chain).exists():
        found = archived(selection.chain)
        where = f"Chain {selection.chain} was archived: its events are in {found.file}." if found else ""
        raise UnknownChain(where or f"There is no chain {selection.chain!r}.")
    details = {"format": form, **selection.named}
    given = {name: value for name, value in details.items() if value}
    append(SYSTEM_CHAIN, EXPORTED, now=now, actor=by, details=given)
    checkpoint = write_checkpoint(now=now)
    return _lines(selection, checkpoint, ENCODERS[form], now=now)


def file_name(form: str, now: datetime) -> str:
    return f"audit-{now:%Y-%m-%dT%H%M%S}.{form}"


Encoder = Callable[[str, dict[str, Any]], str]


def _lines(
    selection: Selection, checkpoint: dict[str, Any], encode: Encoder, *, now: datetime
) -> Generator[str, None, None]:
    heads: dict[str, list[Any]] = {}
    digest = hashlib.sha256()
    counts = dict.fromkeys(COUNTED.values(), 0)
    signed_from = None
    dropped = dropped_rows()
    for what, value in _parts(selection, checkpoint["n"], encode):
        line = encode(what, value)
        digest.update(line.encode("ascii"))
        if what in COUNTED:
            counts[COUNTED[what]] += 1
        if selection.chain and what == "event":
            heads[selection.chain] = [value["seq"], value["hash"]]
        if signed_from is None and what == CHECKPOINT and "key" in value:
            signed_from = value["n"]
        yield line
    if dropped_rows() != dropped:
        raise UnreadableRow("events were archived while they were exported, which is no fault: export them again")
    manifest = {
        "format": FORMAT,
        "at": now.astimezone(UTC).isoformat(),
        "log": checkpoint["log"],
        "filters": selection.named,
        **counts,
        "signed_from": signed_from,
        "heads": heads,
        "sha256": digest.hexdigest(),
    }
    yield encode(MANIFEST, signed(manifest))


def _parts(selection: Selection, newest: int, encode: Encoder) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the header of a table, the checkpoints and the events."""
    if encode is _csv:
        yield "header", {name: name for name in COLUMNS}
    if not selection.has_gaps:
        for line in read_lines(Path(settings.LQOPS_CHECKPOINT_FILE)):
            if line.checkpoint and (line.checkpoint["n"] == newest or _is_about(line.checkpoint, selection.chain)):
                yield CHECKPOINT, line.checkpoint
        if selection.chain in {"", SYSTEM_CHAIN}:
            for statement, ranges in dropped_seals():
                yield SEAL, {"statement": statement, "ranges": [list(one) for one in ranges]}
    for row in stream(selection.events()):
        yield "event", {**row.columns(), "hash": row.hash}


def _is_about(checkpoint: dict[str, Any], chain: str) -> bool:
    """Whether an export of this chain needs the checkpoint: it names a row of it, or a new key."""
    return chain in {"", SYSTEM_CHAIN} or chain in checkpoint["open"] or "next_key" in checkpoint


# --- Lines ---


def _json(what: str, value: dict[str, Any]) -> str:
    return canonical(value if what == "event" else {what: value}) + "\n"


def _csv(what: str, value: dict[str, Any]) -> str:
    """One row of the table. A checkpoint and the manifest stand in the column of details."""
    if what == "event":
        at = EPOCH + timedelta(microseconds=value["at"])
        value = {**value, "at": at.isoformat(timespec="microseconds"), "details": canonical(value["details"])}
    elif what != "header":
        value = {"chain": what, "details": canonical(value)}
    return csv_line(value.get(name, "") for name in COLUMNS)


def csv_line(values: Iterable[object]) -> str:
    """Return one line of CSV, whose cells no spreadsheet runs."""
    cells = map(str, values)
    line: str = _writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells])
    return line


class _Echo:
    """A file for csv.writer that hands back what is written."""

    def write(self, text: str) -> str:
        return text


_writer: Final[Any] = csv.writer(_Echo(), lineterminator="\n")
ENCODERS: Final[dict[str, Encoder]] = {"jsonl": _json, "csv": _csv}
