"""Signed heads of the chains in a file outside the database: they show rows cut from the end of a chain.

One JSON line per checkpoint; `prev` is the SHA-256 of the line before, `signature` is made with the key pair of the
installation (audit/keys.py). A line is genuine if it is signed with the present key, or if a genuine line names its
digest in `prev`: so lines of former keys stay genuine, and those of older versions, which have an HMAC-SHA256 with
LQOPS_AUDIT_KEY for a signature and no `key`.

An event of `system` names each new line: its number, its digest and its file. So audit/verify.py notices lines that are
missing at the end of the file, or all of them.

Lines are only appended. A line that a crash left half-written stays as it is: the next checkpoint starts on a new
line, chains to the last genuine line and carries the digest of the damaged text in `damaged`, so that verify_audit can
tell a crash from an edit.
"""

import fcntl
import hashlib
import hmac
import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from errno import EPERM
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Max

from audit.keys import is_signed, public_key, signed
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append, chain_head
from audit.rows import CHAIN_CLOSED, CHAIN_OPENED, GENESIS, UnreadableRow, canonical, stream
from audit.seals import dropped_rows, newest_seam

EVERY: Final = timedelta(minutes=5)
EVERY_ROWS: Final = 1_000
KEY_REPLACED: Final = "audit.key_replaced"
CHECKPOINT_WRITTEN: Final = "audit.checkpoint_written"
FOREIGN: Final = "its newest line is signed with another key; if LQOPS_AUDIT_KEY was changed, restart lqops"


class ForeignCheckpoint(OSError):
    """The newest line is signed with a key that is not the present one: a line after it would hide that."""


class Named(NamedTuple):
    """A row that a checkpoint signed, and the line of that checkpoint."""

    chain: str
    seq: int
    hash: str
    line: int


@dataclass(frozen=True)
class Line:
    """One line of the file; `checkpoint` is None when the line is not genuine."""

    number: int
    checkpoint: dict[str, Any] | None = None
    problem: str = ""
    warning: str = ""
    digest: str = ""


@dataclass(frozen=True)
class _Tail:
    """The last genuine line with its digest, and the damaged lines after it."""

    checkpoint: dict[str, Any] | None
    digest: str
    damaged: list[bytes]
    ends_open: bool

    @property
    def is_foreign(self) -> bool:
        """Whether a line after the last genuine one is signed with another key."""
        parsed = map(_parsed, self.damaged)
        return any(isinstance(line, dict) and is_signed(line) for line in parsed)


def write_checkpoint(
    *, now: datetime, path: Path | None = None, restored: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Append one signed line and return it. Signs committed rows only: no transaction may be open.

    `restored` is the acceptance of a restore (audit/restores.py), which the line carries.
    """
    return _write(now, path, ("", {} if restored is None else {"restored": restored}))


def replace_key(secret: str, *, by: str, now: datetime) -> dict[str, Any]:
    """Append the last line of the present key, which names the key made from `secret`, and the first line of that.

    From then on only the new key signs: whoever still runs with the old one is refused.
    """
    new = public_key(secret)
    append(SYSTEM_CHAIN, KEY_REPLACED, now=now, actor=by, details={"old_key": public_key(), "new_key": new})
    return _write(now, None, ("", {"next_key": new}), (secret, {}))


def _write(now: datetime, path: Path | None, *lines: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Append lines at once, each signed with the key of its secret, and return the last."""
    target = _file(path)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        tail = _read_tail(descriptor)
        if tail.is_foreign:
            raise ForeignCheckpoint(EPERM, FOREIGN)
        text, checkpoint = b"", _heads(now, tail)
        for secret, more in lines:
            written = signed({**checkpoint, **more}, secret)
            line = canonical(written).encode("ascii")
            text += line + b"\n"
            checkpoint |= {"n": checkpoint["n"] + 1, "prev": _sha256(line)}
            checkpoint.pop("damaged", None)
        _append(descriptor, b"\n" + text if tail.ends_open else text)
        # After the line: a crash between the two leaves a line that no event names, which is no fault.
        details = {"number": written["n"], "digest": checkpoint["prev"], "file": file_id(target)}
        append(SYSTEM_CHAIN, CHECKPOINT_WRITTEN, now=now, details=details)
    finally:
        os.close(descriptor)
    return written


def last_checkpoint(path: Path | None = None) -> dict[str, Any] | None:
    """Return the last genuine line, or None."""
    try:
        descriptor = os.open(_file(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _read_tail(descriptor).checkpoint
    finally:
        os.close(descriptor)


def checkpoint_fault(path: Path | None = None) -> str:
    """Return why this process cannot append to the file; empty if it can. Nothing is written."""
    target = _file(path)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.exists():
            descriptor = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                return FOREIGN if _read_tail(descriptor).is_foreign else ""
            finally:
                os.close(descriptor)
        elif not os.access(target.parent, os.W_OK | os.X_OK):
            return f"{target.parent} is not writable"
    except OSError as error:
        return f"{target}: {error.strerror}"
    return ""


def checkpoint_due(now: datetime, path: Path | None = None) -> bool:
    """Whether five minutes or 1,000 rows have passed since the last one; one in the future counts as none."""
    last = last_checkpoint(path)
    if last is None or not timedelta(0) <= now - datetime.fromisoformat(last["at"]) < EVERY:
        return True
    return AuditEvent.objects.filter(id__gt=last["last_id"])[:EVERY_ROWS].count() >= EVERY_ROWS


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line, checked by its signature and by its place after the line before it."""
    genuine = _genuine_places(path)
    before: dict[str, Any] | None = None
    before_digest = GENESIS
    damaged: list[bytes] = []
    forged = False
    number = place = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removesuffix(b"\n")
            checkpoint: Any = _parsed(line) if place in genuine else None
            place += len(raw)
            if checkpoint is None:
                damaged.append(line)
                if isinstance(_parsed(line), dict):
                    forged = True
                    yield Line(number, problem="its signature is wrong: it was changed, or signed with another key")
                continue
            # What a forged line replaced is unknown, so the place of the line after it cannot be checked.
            problem = "" if forged else _place_fault(checkpoint, before, before_digest, damaged)
            warning = ""
            if damaged and not problem and not forged:
                warning = "a crash left the line before it half-written; this checkpoint confirms it"
            before, before_digest, damaged, forged = checkpoint, _sha256(line), [], False
            yield Line(number, checkpoint, problem, warning, before_digest)
    if damaged and not forged:
        problem = "it is damaged, by a crash or a cut; after a crash the next checkpoint (checkpoint_audit) confirms it"
        yield Line(number, problem=problem)


def file_id(path: Path) -> str:
    """Return what tells this file from others: the digest of its first line, or an empty text if it has none."""
    with path.open("rb") as file:
        first = file.readline().removesuffix(b"\n")
    return _sha256(first) if first else ""


def named_heads(line: Line) -> Iterator[Named]:
    """Yield the rows that a genuine line signs."""
    checkpoint = line.checkpoint or {}
    system = checkpoint["system"]
    if system["seq"]:
        yield Named(SYSTEM_CHAIN, system["seq"], system["hash"], line.number)
    for chain, (seq, digest) in checkpoint["open"].items():
        yield Named(chain, seq, digest, line.number)


def _file(path: Path | None) -> Path:
    return Path(path or settings.LQOPS_CHECKPOINT_FILE)


def _heads(now: datetime, tail: _Tail) -> dict[str, Any]:
    with transaction.atomic(durable=True):
        system = chain_head(SYSTEM_CHAIN)
        heads = {chain: chain_head(chain) for chain in sorted(_open_chains(tail.checkpoint, system.seq))}
    last = tail.checkpoint or {"n": 0}
    found: dict[str, Any] = {
        "at": now.astimezone(UTC).isoformat(),
        "n": last["n"] + 1,
        "system": {"seq": system.seq, "hash": system.hash},
        "open": {chain: [head.seq, head.hash] for chain, head in heads.items() if head.seq},
        "log": first_hash(),
        # In this order: rows that are dropped meanwhile are counted once at most.
        "rows": dropped_rows() + AuditEvent.objects.count(),
        "last_id": AuditEvent.objects.aggregate(last=Max("id"))["last"] or 0,
        "prev": tail.digest,
    }
    if tail.damaged:
        found["damaged"] = _damage(tail.damaged)
    return found


def _open_chains(last: dict[str, Any] | None, upto: int) -> set[str]:
    """Return the chains open at a row of `system`, starting from the last checkpoint while its head exists."""
    found = {chain for chain, (_, closed, _) in newest_seam().openings.items() if closed is None}
    after = 0
    rows = AuditEvent.objects.filter(chain=SYSTEM_CHAIN)
    if last and rows.filter(**last["system"]).exists():
        found, after = set(last["open"]), last["system"]["seq"]
    for row in stream(rows.filter(seq__gt=after, seq__lte=upto, kind__in=(CHAIN_OPENED, CHAIN_CLOSED))):
        try:
            details = row.columns()["details"]
        except UnreadableRow:
            continue  # verify_audit reports it; a checkpoint of the others is still worth writing
        if row.kind == CHAIN_OPENED:
            found.add(str(details.get("opened")))
        else:
            found.discard(str(details.get("closed")))
    return found


def _append(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    os.fsync(descriptor)
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes of a checkpoint were written; is the disk full?")


def first_hash() -> str:
    """Return what names this audit log among others: the hash of the first row of `system`; empty before it."""
    if log := newest_seam().log:
        return log
    first = AuditEvent.objects.filter(chain=SYSTEM_CHAIN, seq=1)
    return first.values_list("hash", flat=True).first() or ""


def _read_tail(descriptor: int) -> _Tail:
    """Read backwards, so that the cost does not grow with the file."""
    damaged: list[bytes] = []
    ends_open = False
    with _mapped(descriptor) as data:
        ends_open = bool(data) and data[-1] != ord("\n")
        for _, line, checkpoint in _backwards(data):
            if checkpoint is not None:
                return _Tail(checkpoint, _sha256(line), damaged, ends_open)
            damaged.insert(0, line)
    return _Tail(None, GENESIS, damaged, ends_open)


def _genuine_places(path: Path) -> set[int]:
    """Return where in the file genuine lines start."""
    with path.open("rb") as file, _mapped(file.fileno()) as data:
        return {start for start, _, checkpoint in _backwards(data) if checkpoint is not None}


@contextmanager
def _mapped(descriptor: int) -> Iterator[mmap.mmap | bytes]:
    size = os.fstat(descriptor).st_size
    if not size:  # cannot be mapped
        yield b""
        return
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
        yield data


def _backwards(data: mmap.mmap | bytes) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """Yield the lines from the last to the first: where it starts, its text, and the checkpoint if it is genuine."""
    wanted = ""
    end = len(data) - (data[-1:] == b"\n") if data else -1
    while end >= 0:
        start = data.rfind(b"\n", 0, end) + 1
        line = data[start:end]
        checkpoint = _genuine(line, wanted)
        if checkpoint is not None:
            wanted = checkpoint["prev"]
        yield start, line, checkpoint
        end = start - 1


def _place_fault(checkpoint: dict[str, Any], before: dict[str, Any] | None, digest: str, damaged: list[bytes]) -> str:
    expected = (before or {"n": 0})["n"] + 1
    if checkpoint["n"] != expected or checkpoint["prev"] != digest:
        return f"found checkpoint {checkpoint['n']}, expected {expected}: lines were removed or moved"
    if checkpoint.get("damaged", "") != _damage(damaged):
        return "the damaged text before it has changed since"
    return ""


def _genuine(line: bytes, wanted: str) -> dict[str, Any] | None:
    """Return the checkpoint in a line that is signed with the present key, or has the digest that is wanted."""
    parsed = _parsed(line)
    if not isinstance(parsed, dict):
        return None
    if _sha256(line) == wanted:
        return parsed
    if "key" in parsed:
        return parsed if parsed["key"] == public_key() and is_signed(parsed) else None
    return parsed if _has_mac(parsed) else None


def _has_mac(checkpoint: dict[str, Any]) -> bool:
    """Whether a line of an older version has the right signature."""
    whole = {name: value for name, value in checkpoint.items() if name != "signature"}
    try:
        text = canonical(whole).encode("ascii")
        mac = hmac.new(settings.LQOPS_AUDIT_KEY.encode(), text, hashlib.sha256).hexdigest()
        return hmac.compare_digest(checkpoint.get("signature", ""), mac)
    except (TypeError, ValueError):  # a signature that is not ASCII text, or a number that JSON does not know
        return False


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _damage(lines: list[bytes]) -> str:
    return _sha256(b"\n".join(lines)) if lines else ""


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
