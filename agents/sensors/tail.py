"""Tail sensors: the new lines of a file, each once, through rotation, truncation and crashes.

The cursor says which file was read, and how far: by inode, and by digests of its beginning and of the bytes before the
place. It is committed with the effects of the lines, so after a crash they are neither lost nor repeated. A file that
was renamed or copied away is found among the files beside it whose names begin with its own, and read to its end first.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from agents.conf import sensor_roots
from agents.sensors.paths import FILE_FLAGS, PathRefused, missing_text, opened, refused_errors, resolve_path
from agents.sensors.sensing import Failed, Sensing

POLL_SECONDS: Final = 1.0
READ_BYTES: Final = 1024 * 1024  # in one reading
MOST_LINES: Final = 5_000
LINE_BYTES: Final = 16 * 1024  # the rest of a longer line is dropped
DIGEST_BYTES: Final = 256
SAMPLE_LINES: Final = 5
MOST_SIBLINGS: Final = 200
COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst", ".zip")
LOST: Final = "the file was replaced, and the one before it is gone: lines may have been missed"


@dataclass(frozen=True)
class Place:
    """A file and how far it was read. `skips`: inside of a line that is too long."""

    file: str = ""  # its device and inode
    offset: int = 0
    head: str = ""
    before: str = ""
    skips: bool = False

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Place":
        return cls(kept["file"], kept["offset"], kept["head"], kept["before"], kept["skips"])


@dataclass(frozen=True)
class NewLines:
    """What a look found: lines, the place after them, whether there may be more, and a problem."""

    lines: tuple[str, ...] = ()
    place: Place = field(default_factory=Place)
    has_more: bool = False
    is_missing: bool = False
    problem: str = ""


class Tail(Sensing):
    pause: ClassVar[float] = POLL_SECONDS

    async def run(self) -> None:
        wait: float | None = self.seconds_until_due() if self.failures else 0.0
        while wait is not None:
            await asyncio.sleep(wait)
            with self.working():
                wait = await self._look()

    async def sample(self) -> list[Any]:
        """Return the last lines of the file."""
        try:
            return list(last_lines(str(self.spec.source.tail), sensor_roots()))
        except PathRefused as error:
            raise Failed(f"{self.spec.source.tail}: {error}") from None

    async def _look(self) -> float | None:
        """Read what is new and hand it in; return the seconds to wait, None when the sensor is lost."""
        kept = self.cursor.get("place")
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self.services.files, new_lines, str(self.spec.source.tail), sensor_roots(), kept
            )
        except PathRefused as error:
            return await self.fail(f"{self.spec.source.tail}: {error}")
        moved = found.is_missing != self.cursor.get("missing", False)
        if found.lines or found.problem or moved or kept is None or self.failures:
            self.cursor = {"place": asdict(found.place), "missing": found.is_missing}
            problem = found.problem or (
                missing_text(str(self.spec.source.tail), sensor_roots()) if found.is_missing else ""
            )
            if not await self.hand_in_reading(found.lines, occurrence=self.occurrence(), problem=problem):
                return None
        elif asdict(found.place) != kept:
            self.cursor["place"] = asdict(found.place)
        return 0.0 if found.has_more else self.interval


def new_lines(path: str, roots: Sequence[Path], kept: Mapping[str, Any] | None) -> NewLines:
    """Read the lines after a place; without a place, find the end of the file."""
    root, steps = resolve_path(path, roots)
    if not steps:
        raise PathRefused("it is a folder: write the path of a file")
    with refused_errors():
        try:
            with opened(root, steps[:-1]) as (folder, _):
                return _read(folder, steps[-1], Place.from_json(kept) if kept else None)
        except FileNotFoundError:
            return NewLines(place=Place.from_json(kept) if kept else Place(), is_missing=True)


def last_lines(path: str, roots: Sequence[Path]) -> tuple[str, ...]:
    """Return the last lines of a file, for a trial."""
    end = new_lines(path, roots, None)
    if end.is_missing:
        raise PathRefused(missing_text(path, roots))
    offset = max(0, end.place.offset - LINE_BYTES)
    root, steps = resolve_path(path, roots)
    with refused_errors(), opened(root, steps) as (handle, _):
        lines, _, _ = _lines_from(handle, Place(offset=offset, skips=offset > 0), most=MOST_LINES, is_complete=True)
    return tuple(lines[-SAMPLE_LINES:])


def _read(folder: int, name: str, place: Place | None) -> NewLines:
    handles: list[int] = []
    try:
        current = _open(folder, name, handles)
        if current is not None and not stat.S_ISREG(os.fstat(current).st_mode):
            raise PathRefused("it is not a file")
        if place is None:
            return NewLines(place=_end_of(current) if current is not None else Place(), is_missing=current is None)
        if current is not None and _is_at(current, place):
            plan, problem = [(current, place)], ""
        else:
            plan, problem = _plan(folder, name, current, place, handles)
        return _read_in_order(plan, place, problem, is_missing=current is None)
    finally:
        for handle in handles:
            os.close(handle)


def _open(folder: int, name: str, handles: list[int]) -> int | None:
    try:
        handles.append(os.open(name, FILE_FLAGS, dir_fd=folder))
    except FileNotFoundError:
        return None
    return handles[-1]


def _plan(
    folder: int, name: str, current: int | None, place: Place, handles: list[int]
) -> tuple[list[tuple[int, Place]], str]:
    """Return what to read when the file is not the one of the place: that one first, newer ones, then the file."""
    # A file that is renamed in this moment is beside itself: it is read under its own name.
    own = _identity(current) if current is not None else ""
    beside = [handle for handle in _siblings(folder, name, handles) if _identity(handle) != own]
    same = [handle for handle in beside if place.file == _identity(handle) and _is_at(handle, place)]
    copies = [handle for handle in beside if place.offset and _has_digests(handle, place)]
    old = (same or copies[-1:])[:1]
    plan = [(handle, place) for handle in old]
    if old:
        after = os.fstat(old[0]).st_mtime_ns
        plan += [(handle, Place()) for handle in beside if os.fstat(handle).st_mtime_ns > after]
    if current is not None and (os.fstat(current).st_size or not old):  # while it is empty, the old one may still grow
        plan.append((current, Place()))
    is_truncated = current is not None and _identity(current) == place.file
    is_lost = bool(place.offset and not old and current is not None and not is_truncated)
    return plan, LOST if is_lost else ""


def _siblings(folder: int, name: str, handles: list[int]) -> list[int]:
    """Open the files beside it that it may have been renamed or copied to, the oldest first."""
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if entry.name.startswith(name)
            and entry.name != name
            and not entry.name.endswith(COMPRESSED)
            and entry.is_file(follow_symlinks=False)
        ]
    found = [handle for one in names[:MOST_SIBLINGS] if (handle := _open(folder, one, handles)) is not None]
    return sorted(found, key=lambda handle: os.fstat(handle).st_mtime_ns)


def _read_in_order(plan: Sequence[tuple[int, Place]], place: Place, problem: str, *, is_missing: bool) -> NewLines:
    lines: list[str] = []
    for number, (handle, start) in enumerate(plan):
        is_last = number == len(plan) - 1
        found, place, is_done = _lines_from(handle, start, most=MOST_LINES - len(lines), is_complete=not is_last)
        lines += found
        if not is_done or len(lines) >= MOST_LINES:
            return NewLines(tuple(lines), place, has_more=True, is_missing=is_missing, problem=problem)
    return NewLines(tuple(lines), place, is_missing=is_missing, problem=problem)


def _lines_from(handle: int, start: Place, *, most: int, is_complete: bool) -> tuple[list[str], Place, bool]:
    """Return lines, the place after them, and whether the file was read to its end.

    Nobody writes to a complete file any more: what stands after its last line break is a line.
    """
    data = os.pread(handle, READ_BYTES, start.offset)
    is_end = len(data) < READ_BYTES
    used, skips = 0, start.skips
    if skips and (used := data.find(b"\n") + 1):
        skips = False
    if skips:
        return [], _place(handle, start.offset + len(data), skips=not (is_end and is_complete)), is_end
    lines: list[bytes] = []
    while len(lines) < most and (end := data.find(b"\n", used)) >= 0:
        lines.append(data[used:end])
        used = end + 1
    rest = data[used:]
    if len(lines) < most and (len(rest) > LINE_BYTES or (rest and is_end and is_complete)) and b"\n" not in rest:
        lines.append(rest)
        used, skips = len(data), not (is_end and is_complete)
    place = _place(handle, start.offset + used, skips=skips)
    texts = [line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r") for line in lines]
    return [text for text in texts if text], place, is_end and (len(lines) < most or used == len(data))


# --- Places ---


def _end_of(handle: int) -> Place:
    """Return the end of a file. A line that is being written there began before, and is no new one."""
    size = os.fstat(handle).st_size
    return _place(handle, size, skips=size > 0 and os.pread(handle, 1, size - 1) != b"\n")


def _place(handle: int, offset: int, *, skips: bool) -> Place:
    return Place(_identity(handle), offset, *_digests(handle, offset), skips)


def _is_at(handle: int, place: Place) -> bool:
    """Tell whether a file is the one of a place, and has not been truncated since."""
    return place.file in {"", _identity(handle)} and _has_digests(handle, place)


def _has_digests(handle: int, place: Place) -> bool:
    if os.fstat(handle).st_size < place.offset:
        return False
    return not place.offset or _digests(handle, place.offset) == (place.head, place.before)


def _digests(handle: int, offset: int) -> tuple[str, str]:
    size = min(offset, DIGEST_BYTES)
    pieces = os.pread(handle, size, 0), os.pread(handle, size, offset - size)
    head, before = (hashlib.sha256(piece).hexdigest()[:16] for piece in pieces)
    return head, before


def _identity(handle: int) -> str:
    found = os.fstat(handle)
    return f"{found.st_dev}:{found.st_ino}"
