"""Archiving: a segment of the audit log is written to a file, sealed, and only then dropped from the database.

The steps, each of which may be the last one before a crash:

1. The rows go into a compressed file that docs/verify_export.py verifies, what belongs to them and holds content into a
   second one; both are synced, read back, and named by their digest.
2. One transaction records the seal: a signed statement with the ranges and the files, its event in `system`, its rows.
3. A checkpoint signs that event outside the database.
4. One transaction compares every row with the files and drops them, and what belongs to them.

A crash before 2 leaves a file that no seal names; after 2, the next call drops what is sealed. Only whole chains that
are closed and verified are sealed, and of `system` a range from its beginning on.
"""

import fcntl
import gzip
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Min

from audit.checkpoints import KEY_REPLACED, checkpoint_fault, first_hash, named_heads, read_lines, write_checkpoint
from audit.keys import signed
from audit.models import SEAL_SETTING, SYSTEM_CHAIN, AuditEvent, DroppedSegment, Seal, SealedChain, SkillAudit
from audit.recorder import EMPTY, Head, append
from audit.restores import restore_in
from audit.rows import CHAIN_CLOSED, CHAIN_OPENED, CHUNK, StoredRow, canonical, digest, stream
from audit.seals import (
    FORMAT,
    SEALED,
    Range,
    Seam,
    newest_seal_fault,
    newest_seam,
    ranges_digest,
    sealed_ranges,
    unfinished,
)
from audit.skill_audits import SEALED as SKILL_AUDITS_SEALED
from audit.verify import SEAL, Problem, Report, row_fault, verify_chain

ARCHIVE: Final = "lqops-audit-archive/1"
MANIFEST: Final = "manifest"
SYSTEM_ROWS: Final = 10_000  # of `system` in one segment
LEVEL: Final = 6


class ArchiveError(Exception):
    """A segment cannot be archived or dropped; nothing was lost. The text says why."""


class Written(NamedTuple):
    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Content:
    """What belongs to chains and is archived and dropped with them: lines for the second file, and how to drop it."""

    lines: Callable[[list[str]], Generator[str, None, None]]
    drop: Callable[[list[Range], datetime], None]


def _no_lines(_: list[str]) -> Generator[str, None, None]:
    yield from ()


NOTHING: Final = Content(lines=_no_lines, drop=lambda _ranges, _now: None)
Signed = Mapping[tuple[str, int], str]


@contextmanager
def archive_folder(folder: Path) -> Iterator[Path]:
    """Make the folder, and keep a second process from writing to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ArchiveError(f"{folder} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob(".*.part"):
            left.unlink()
        yield folder
    except BlockingIOError as error:
        raise ArchiveError(f"Another process archives to {folder}.") from error
    finally:
        os.close(lock)


def signed_rows(path: Path | None = None) -> dict[tuple[str, int], str]:
    """Return the hashes of the rows that genuine checkpoints name: what is archived has to agree with them."""
    path = path or Path(settings.LQOPS_CHECKPOINT_FILE)
    if not path.exists():
        return {}
    lines = [line for line in read_lines(path) if line.checkpoint]
    restores = [restore for line in lines if (restore := restore_in(line)) is not None]
    rows = (named for line in lines for named in named_heads(line))
    kept = (named for named in rows if not any(restore.excuses(named) for restore in restores))
    return {(named.chain, named.seq): named.hash for named in kept}


def require_genuine_seal() -> None:
    """Refuse to go on from a newest seal that is not this installation's: the next one would vouch for it.

    Refuse also where no checkpoint can be written: a seal with a foreign key would be recorded before that is noticed.
    """
    if wrong := checkpoint_fault():
        raise ArchiveError(f"no checkpoint can be written: {wrong}. Nothing was archived.")
    path = Path(settings.LQOPS_CHECKPOINT_FILE)
    lines = (line.checkpoint for line in read_lines(path)) if path.exists() else ()
    keys = {line[name] for line in lines if line for name in ("key", "next_key") if name in line}
    if (fault := newest_seal_fault(keys)) is not None:
        raise ArchiveError(f"seal {fault.number}: {fault.what}. Nothing was archived; run verify_audit.")


# --- What may be archived ---


def chain_fault(chain: str, agreed: Signed) -> str:
    """Return why the chain of a run cannot be archived; empty if it can: it is whole, intact and closed."""
    report = verify_chain(chain)
    if report.problems:
        return str(report.problems[0])
    rows = AuditEvent.objects.filter(chain=chain).order_by("seq").values_list("seq", "hash", "id")
    ends = list(rows)
    if not ends or _closing(chain, since=ends[0][2]) != Head(*ends[-1][:2]):
        return "its chain is not closed"
    wrong = [seq for seq, found, _ in ends if agreed.get((chain, seq), found) != found]
    return f"row {wrong[0]} of its chain is not the one that a checkpoint signed" if wrong else ""


def _closing(chain: str, *, since: int) -> Head | None:
    """Return where a chain was closed, by a row of `system` after the row with this id, or by what seals carry."""
    _, seq, found = newest_seam().openings.get(chain, ("", None, None))
    if seq is not None and found is not None:
        return Head(seq, found)
    rows = AuditEvent.objects.of_kind(CHAIN_CLOSED).filter(chain=SYSTEM_CHAIN, subject=f"session:{chain}", id__gt=since)
    details = rows.order_by("id").values_list("details", flat=True).first()
    return None if details is None else Head(details.get("last_seq"), details.get("last_hash"))


def system_end(before: datetime, *, after: int) -> int:
    """Return the last row of `system` that the next segment may hold: all up to it are older. 0: there is none.

    It ends before a row with a skill audit, that of a call that was refused after its run: no file of `system` holds
    the arguments, so such a row and what follows it stay.
    """
    rows = AuditEvent.objects.filter(chain=SYSTEM_CHAIN, seq__gt=after)
    newer = rows.filter(at__gte=before).aggregate(first=Min("seq"))["first"]
    older = rows if newer is None else rows.filter(seq__lt=newer)
    # The newest row stays, so that the chain goes on from a row that is there.
    last = older.order_by("-seq").values_list("seq", flat=True).first() or 0
    last = last - 1 if newer is None else last
    audited = SkillAudit.objects.filter(chain=SYSTEM_CHAIN, seq__gt=after).aggregate(first=Min("seq"))["first"]
    last = last if audited is None else min(last, audited - 1)
    return min(last, after + SYSTEM_ROWS) if last > after else 0


# --- Writing ---


class _Lines:
    """The lines of a segment in their order; knows afterwards what they held, and what the next seam has to carry."""

    def __init__(self, ranges: Iterable[tuple[str, int]], seam: Seam, agreed: Signed) -> None:
        """`ranges` are chains, each with the last row that belongs to the segment; `seam` is the one before."""
        self._wanted = list(ranges)
        self._agreed = agreed
        self.ranges: list[Range] = []
        self.seam = seam

    def __iter__(self) -> Iterator[str]:
        for chain, last in self._wanted:
            is_system = chain == SYSTEM_CHAIN
            before = Head(self.seam.system_seq, self.seam.system_hash) if is_system else EMPTY
            first: StoredRow | None = None
            for row in stream(AuditEvent.objects.filter(chain=chain, seq__gt=before.seq, seq__lte=last)):
                wrong = row_fault(row, before)
                if wrong or self._agreed.get((chain, row.seq), row.hash) != row.hash:
                    what = wrong or "it is not the row that a checkpoint signed"
                    raise ArchiveError(f"chain {chain}, row {row.seq}: {what}. Nothing was archived with it.")
                first, before = first or row, Head(row.seq, row.hash)
                if is_system:
                    self._note(row)
                yield event_line(row)
            if first is None or before.seq != last:
                raise ArchiveError(f"chain {chain}: its rows up to {last} are not there.")
            self.ranges.append(Range(chain, first.seq, last, first.hash, before.hash))
            if is_system:
                self.seam = replace(self.seam, system_seq=last, system_hash=before.hash)

    def _note(self, row: StoredRow) -> None:
        """Remember what verification needs of a row of `system` that will be gone."""
        if row.kind not in {CHAIN_OPENED, CHAIN_CLOSED, KEY_REPLACED, SKILL_AUDITS_SEALED}:
            return
        said = row.columns()["details"]
        carried = dict(self.seam.openings)
        if row.kind == CHAIN_OPENED:
            carried.setdefault(said["opened"], (said["first_hash"], None, None))
        elif row.kind == CHAIN_CLOSED:
            first = carried.get(said["closed"], ("", None, None))[0]
            carried[said["closed"]] = (first, said["last_seq"], said["last_hash"])
        elif row.kind == KEY_REPLACED:
            key = {"replaced_at": row.converted().at.isoformat(), **said}
            self.seam = replace(self.seam, keys=(*self.seam.keys, key))
        else:
            self.seam = replace(self.seam, unlinked=(*self.seam.unlinked, said))
        self.seam = replace(self.seam, carried=carried)


def event_line(row: StoredRow) -> str:
    return canonical({**row.columns(), "hash": row.hash}) + "\n"


def archive(
    ranges: Iterable[tuple[str, int]],
    *,
    folder: Path,
    agreed: Signed,
    by: str,
    now: datetime,
    content: Content = NOTHING,
) -> Seal:
    """Write one segment and record its seal. Its rows are still there: `drop` is the next step.

    `ranges` are chains with their last row. Raises ArchiveError, or OSError when a file cannot be written.
    """
    if unfinished():
        raise ArchiveError("a sealed segment was not dropped yet.")
    before = newest_seam()
    wanted = sorted(ranges)
    number = before.number + 1
    lines = _Lines(wanted, before, agreed)
    log = before.log or first_hash()
    events = write_file(folder, f"audit-{number:06}", _with_manifest(lines, number=number, log=log, now=now))
    chains = [chain for chain, _ in wanted if chain != SYSTEM_CHAIN]
    kept = write_file(folder, f"runs-{number:06}", content.lines(chains)) if chains else Written("", "", 0)
    ordered = sorted(lines.ranges)
    statement = signed(
        {
            "format": FORMAT,
            "n": number,
            "at": now.astimezone(UTC).isoformat(),
            "by": by,
            "log": log,
            "prev": before.digest,
            "events": sum(one.rows for one in ordered),
            "chains": len(ordered),
            "ranges": ranges_digest(ordered),
            "file": events.name,
            "sha256": events.sha256,
            "size": events.size,
            "content_file": kept.name,
            "content_sha256": kept.sha256,
            "content_size": kept.size,
            "system": [lines.seam.system_seq, lines.seam.system_hash],
            "carried": _still_here(lines.seam.openings, set(chains)),
            "keys": list(lines.seam.keys),
            "unlinked": list(lines.seam.unlinked),
        }
    )
    try:
        seal = record_seal(statement, ordered, by=by, now=now)
    except IntegrityError as error:
        raise ArchiveError("another process prunes into another folder. Nothing was dropped; call it again.") from error
    write_checkpoint(now=now)
    return seal


def _still_here(carried: Mapping[str, Any], archived: set[str]) -> dict[str, list[Any]]:
    """Leave out chains that are archived: their ranges say what is to be known of them."""
    gone = archived | set(sealed_ranges(carried, dropped=False))
    return {chain: list(said) for chain, said in carried.items() if chain not in gone}


def _with_manifest(lines: _Lines, *, number: int, log: str, now: datetime) -> Iterator[str]:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode("ascii"))
        yield line
    ordered = sorted(lines.ranges)
    manifest = {
        "format": ARCHIVE,
        "n": number,
        "at": now.astimezone(UTC).isoformat(),
        "log": log,
        "events": sum(one.rows for one in ordered),
        "chains": len(ordered),
        "ranges": ranges_digest(ordered),
        "sha256": found.hexdigest(),
    }
    yield canonical({MANIFEST: signed(manifest)}) + "\n"


def write_file(folder: Path, stem: str, lines: Iterable[str]) -> Written:
    """Write lines to a compressed file, sync it, read it back, and give it a name with its digest."""
    part = folder / f".{stem}.part"
    try:
        return _written(folder, stem, part, lines)
    except BaseException:
        part.unlink(missing_ok=True)  # a full disk gets its space back
        raise


def _written(folder: Path, stem: str, part: Path, lines: Iterable[str]) -> Written:
    plain = hashlib.sha256()
    with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as raw:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as file:
            for line in lines:
                text = line.encode("ascii")
                plain.update(text)
                file.write(text)
        raw.flush()
        os.fsync(raw.fileno())
    again = hashlib.sha256()
    with gzip.open(part, "rb") as file:
        while piece := file.read(1 << 20):
            again.update(piece)
    if again.digest() != plain.digest():
        raise ArchiveError(f"{part} does not hold what was written to it. Is the disk sound?")
    sha256 = file_digest(part)
    target = folder / f"{stem}-{sha256[:12]}.jsonl.gz"
    part.replace(target)
    _sync(folder)
    return Written(target.name, sha256, target.stat().st_size)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@transaction.atomic
def record_seal(statement: dict[str, Any], ranges: Iterable[Range], *, by: str, now: datetime) -> Seal:
    """Write the seal, its ranges and its event, in one transaction."""
    number, found = statement["n"], digest(statement)
    details = {name: statement[name] for name in ("events", "chains", "sha256")}
    details |= {"seal": number, "seal_digest": found}
    head = append(SYSTEM_CHAIN, SEALED, now=now, actor=by, subject=f"seal:{number}", details=details)
    seal = Seal.objects.create(number=number, statement=statement, digest=found, event_seq=head.seq)
    SealedChain.objects.bulk_create([SealedChain(seal=seal, **one._asdict()) for one in ranges])
    return seal


# --- Dropping ---


def drop(seal: Seal, *, folder: Path, now: datetime, content: Content = NOTHING) -> int:
    """Compare the rows of a sealed segment with its files and drop them; return how many events.

    Raises ArchiveError, and drops nothing, if a file is missing or anything differs.
    """
    said = seal.statement
    for name, sha256 in ((said["file"], said["sha256"]), (said["content_file"], said["content_sha256"])):
        if name and not (folder / name).exists():
            raise ArchiveError(f"{folder / name} is missing: bring it back. Its rows are still in the database.")
        if name and file_digest(folder / name) != sha256:
            raise ArchiveError(f"{folder / name} was changed since it was sealed. Its rows are still in the database.")
    ranges = [Range(*values) for values in seal.chains.values_list(*Range._fields)]
    chains = sorted(one.chain for one in ranges if one.chain != SYSTEM_CHAIN)
    with transaction.atomic():
        _say_seal(seal.number)
        _require_same(folder / said["file"], _rows_of(sorted(ranges)), ends_with_manifest=True)
        if said["content_file"]:
            _require_same(folder / said["content_file"], content.lines(chains))
        content.drop(ranges, now)
        dropped = _delete(ranges)
        if dropped != said["events"]:
            raise ArchiveError(f"seal {seal.number} is for {said['events']} events, and {dropped} are there.")
        DroppedSegment.objects.create(seal=seal, events=dropped, at=now)
    return dropped


def _rows_of(ranges: Iterable[Range]) -> Generator[str, None, None]:
    for one in ranges:
        for row in stream(AuditEvent.objects.filter(chain=one.chain, seq__gte=one.first_seq, seq__lte=one.last_seq)):
            yield event_line(row)


def _require_same(path: Path, lines: Generator[str, None, None], *, ends_with_manifest: bool = False) -> None:
    """Refuse if the file does not hold exactly these lines. What reads them is closed within the transaction."""
    with gzip.open(path, "rt", encoding="ascii") as file, closing(lines):
        for stored, line in zip_longest(file, lines):
            if stored == line or (ends_with_manifest and line is None and stored.startswith('{"manifest":')):
                continue
            raise ArchiveError(f"{path} and the database differ: rows were changed since they were archived.")


def _say_seal(number: int) -> None:
    """Tell PostgreSQL's triggers which seal this transaction drops."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config(%s, %s, true)", [SEAL_SETTING, str(number)])


def _delete(ranges: list[Range]) -> int:
    whole = [one.chain for one in ranges if one.chain != SYSTEM_CHAIN]
    dropped = 0
    with connection.cursor() as cursor:
        for table in ("audit_skillaudit", "audit_auditevent"):
            dropped = 0
            for one in ranges:
                if one.chain == SYSTEM_CHAIN:
                    where = f"DELETE FROM {table} WHERE chain = %s AND seq BETWEEN %s AND %s"  # noqa: S608 our tables
                    cursor.execute(where, [one.chain, one.first_seq, one.last_seq])
                    dropped += cursor.rowcount
            if whole:
                marks = ", ".join(["%s"] * len(whole))
                cursor.execute(f"DELETE FROM {table} WHERE chain IN ({marks})", whole)  # noqa: S608 our tables
                dropped += cursor.rowcount
    return dropped


# --- Verification of the files ---


def verify_archive(folder: Path, report: Report, *, agreed: Signed) -> None:
    """Add what is wrong with the files of the seals, and compare the rows in them with seals and checkpoints."""
    report.files = 0
    told = {problem.chain for problem in report.problems}
    for seal in Seal.objects.order_by("number").iterator(chunk_size=CHUNK):
        said = seal.statement
        if f"{SEAL}{seal.number}" in told:
            continue  # what it says of its files is not to be trusted, or was changed
        for name, sha256 in ((said["file"], said["sha256"]), (said["content_file"], said["content_sha256"])):
            if not name:
                continue
            wrong = _file_fault(folder / name, sha256)
            if not wrong and name == said["file"]:
                wrong = _rows_fault(folder / name, said, agreed)
            report.files += not wrong
            if wrong:
                report.add(Problem(f"{SEAL}{seal.number}", f"{name} {wrong}"))


def _file_fault(path: Path, sha256: str) -> str:
    if not path.exists():
        return "is missing"
    return "" if file_digest(path) == sha256 else "was changed"


def _rows_fault(path: Path, said: Mapping[str, Any], agreed: Signed) -> str:
    """Return what is wrong with the rows of a file whose digest is right."""
    found: dict[str, Range] = {}
    with gzip.open(path, "rt", encoding="ascii") as file:
        for text in file:
            row = json.loads(text)
            if MANIFEST in row:
                continue
            hashed, chain, seq = row.pop("hash"), row["chain"], row["seq"]
            before = found.get(chain)
            follows = before is None or (seq - 1, row["prev_hash"]) == (before.last_seq, before.last_hash)
            if digest(row) != hashed or not follows or agreed.get((chain, seq), hashed) != hashed:
                return f"holds another row {seq} of chain {chain} than was signed"
            first = (seq, hashed) if before is None else (before.first_seq, before.first_hash)
            found[chain] = Range(chain, first[0], seq, first[1], hashed)
    return "" if ranges_digest(sorted(found.values())) == said["ranges"] else "holds other rows than its seal says"
