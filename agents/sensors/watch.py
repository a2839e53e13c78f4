"""Watch sensors: a file or a folder, scanned when a slice begins and whenever the system reports a change.

The cursor holds what was there, by content, so no change is missed or reported twice. A reading is the list of the
latest changes, the newest first. Only paths below LQOPS_SENSOR_ROOTS are read: every step of a path is opened below the
one before, and symbolic links are not followed. Nothing is written.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from django.utils.crypto import salted_hmac

from agents.conf import clock, sensor_roots
from agents.sensors.intake import SETTLE_SECONDS, Intake, take_in
from agents.sensors.paths import (
    FILE_FLAGS,
    FOLDER_FLAGS,
    PathRefused,
    missing_text,
    opened,
    refused_errors,
    resolve_path,
)
from agents.sensors.sensing import Failed, Sensing
from audit.redaction import redact
from audit.rows import canonical

QUIET_SECONDS: Final = 0.5  # without changes before a scan; `interval` makes it longer
LONGEST_UNQUIET: Final = 5.0  # a folder that keeps changing is scanned after this time
MISSING_SECONDS: Final = 10.0
NAME_CHARS: Final = 200
MOST_FILES: Final = 2_000  # tracked one by one; a folder with more is tracked as a whole
MOST_ENTRIES: Final = 20_000  # scanned in all
MOST_DEPTH: Final = 16
MOST_FOLDERS: Final = 256
MOST_REPORTED: Final = 100
TEXT_BYTES: Final = 16 * 1024
HASHED_BYTES: Final = 16 * 1024 * 1024  # of one file; a larger one is compared by time and size
HASHED_IN_ALL: Final = 256 * 1024 * 1024
PIECE: Final = 1024 * 1024


@dataclass(frozen=True)
class Snapshot:
    """Files by name: `[size, stamp and digest, mtime]`. With `whole`, there are too many to list."""

    files: Mapping[str, list[Any]] = field(default_factory=dict)
    whole: str = ""
    count: int = 0
    folders: tuple[str, ...] = ()
    missing: bool = False
    text: str | None = None


class Watch(Sensing):
    pause: ClassVar[float] = 5.0
    _problem = ""  # with the files that were to be added last

    async def run(self) -> None:
        change = asyncio.Event()
        wait: float | None = self.seconds_until_due() if self.failures else 0.0
        try:
            while wait is not None:
                await self._wait_for_change(change, wait)
                change.clear()
                wait = await self._look(change)
        finally:
            self.services.watcher.leave(change)

    async def sample(self) -> list[Any]:
        found = await self._scan()
        if found.missing:
            raise Failed(missing_text(str(self.spec.source.path), sensor_roots()))
        return [{**one, **_text(found, one)} for one in _limited(present(found))]

    async def _wait_for_change(self, change: asyncio.Event, wait: float) -> None:
        """Wait for a change, or the given seconds (below 0: no limit); then until the folder is quiet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait >= 0 else None):
                await change.wait()
        if not change.is_set():
            return
        quiet = float(self.spec.interval or QUIET_SECONDS)
        latest = monotonic() + max(LONGEST_UNQUIET, quiet)
        while change.is_set() and monotonic() < latest:
            change.clear()
            await asyncio.sleep(quiet)

    async def _look(self, change: asyncio.Event) -> float | None:
        """Scan and hand in; return the seconds to wait for a change, None when the sensor is lost."""
        try:
            found = await self._scan()
        except Failed as error:
            return await self.fail(str(error))
        self.services.watcher.listen(change, found.folders or (() if found.missing else [self._folder()]))
        first = "files" not in self.cursor
        taken = None
        if self.spec.source.into is not None:
            try:
                found, taken = await self._take_in(found)
            except Failed as error:
                return await self.fail(str(error))
        news = changes(self.cursor, found)
        moved = found.missing != self.cursor.get("missing", False) or self.cursor.get("loop") != self.loop_pk
        added = taken.added if taken else {}
        problem = taken.problem if taken else ""
        is_new = bool(news or first or moved or problem != self._problem)
        self._problem = problem
        if is_new and not await self._hand_in(found, news, first=first, added=added, problem=problem):
            return None
        if taken is not None and taken.left:
            return SETTLE_SECONDS
        return MISSING_SECONDS if found.missing else -1.0

    async def _take_in(self, found: Snapshot) -> tuple[Snapshot, Intake]:
        """Add new files to the collection; return the scan without those that are left for the next look."""
        if found.whole:
            raise Failed(f"there are more than {MOST_FILES} files in the folder: none of them is added to a collection")
        news = changes({"files": self.cursor.get("files") or {}}, found)
        names = [one["name"] for one in news if one["kind"] in {"added", "modified"}]
        source = self.spec.source
        work = partial(take_in, str(source.path), str(source.into), names[::-1], agent_id=self.held.row.agent_id)
        taken = await asyncio.get_running_loop().run_in_executor(self.services.files, work)
        kept = {name: entry for name, entry in found.files.items() if name not in taken.left}
        before = self.cursor.get("files") or {}
        kept |= {name: before[name] for name in taken.left if name in before}
        return replace(found, files=kept, text=None), taken

    async def _scan(self) -> Snapshot:
        path = str(self.spec.source.path)
        before = self.cursor.get("files") or {}
        try:
            running_loop = asyncio.get_running_loop()
            return await running_loop.run_in_executor(self.services.files, scan, path, sensor_roots(), before)
        except PathRefused as error:
            raise Failed(f"{path}: {error}") from None

    def _folder(self) -> str:
        """Return the folder of a single file, as the system names it."""
        path = Path(str(self.spec.source.path))
        return str((path if path.is_absolute() else sensor_roots()[0] / path).parent)

    async def _hand_in(
        self, found: Snapshot, news: list[dict[str, Any]], *, first: bool, added: Mapping[str, str], problem: str
    ) -> bool:
        at = clock().isoformat(timespec="seconds")
        reported = _limited(present(found) if first else news)
        fresh = [
            {**one, "name": one["name"][-NAME_CHARS:], "at": at, **_text(found, one), **_document(added, one)}
            for one in reported
        ]
        recent = [*fresh, *self.cursor.get("recent", [])][:MOST_REPORTED]
        occurrence = self.occurrence(canonical([[one["name"], one["kind"], self._version(found, one)] for one in news]))
        self.cursor = {
            "files": {name: list(entry) for name, entry in found.files.items()},
            "recent": [_without(one, "text") for one in recent],
            "loop": self.loop_pk,
            "missing": found.missing,
            **({"whole": found.whole} if found.whole else {}),
        }
        problem = problem or (missing_text(str(self.spec.source.path), sensor_roots()) if found.missing else "")
        to_score = [] if first and not added else [_without(one, "at") for one in fresh[::-1]]
        return await self.hand_in_reading([recent], to_score=to_score, occurrence=occurrence, problem=problem)

    def _version(self, found: Snapshot, one: Mapping[str, Any]) -> str:
        """Return what tells a change from a like one at another time: the file's stamp and digest."""
        entry = found.files.get(one["name"]) or (self.cursor.get("files") or {}).get(one["name"])
        return str(entry[1]) if entry else found.whole

    def late_items(self) -> tuple[Any, ...]:
        return (self.cursor.get("recent", []),)


def _text(found: Snapshot, one: Mapping[str, Any]) -> dict[str, str]:
    """Return the content of a single small text file, as part of its change."""
    return {"text": found.text} if found.text is not None and one["kind"] != "deleted" else {}


def _document(added: Mapping[str, str], one: Mapping[str, Any]) -> dict[str, str]:
    """Return the document that a file became, if it did."""
    return {"document": added[one["name"]]} if one["name"] in added and one["kind"] != "deleted" else {}


def _without(change: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in change.items() if key != name}


# --- Scanning ---


def scan(path: str, roots: Sequence[Path], before: Mapping[str, list[Any]]) -> Snapshot:
    """Scan a path. Files whose time, size and inode are those of `before` are not read again."""
    root, steps = resolve_path(path, roots)
    with refused_errors():
        try:
            with opened(root, steps) as (handle, name):
                found = os.fstat(handle)
                if stat.S_ISREG(found.st_mode):
                    return _one_file(handle, name, found, before)
                if not stat.S_ISDIR(found.st_mode):
                    raise PathRefused("it is neither a file nor a folder")
                return _folder(handle, str(root.joinpath(*steps)), before)
        except FileNotFoundError:
            return Snapshot(missing=True)


def _one_file(handle: int, name: str, found: os.stat_result, before: Mapping[str, list[Any]]) -> Snapshot:
    shown = _shown_name(_decodable(name))
    entry = _described(handle, found, before.get(shown), left=HASHED_BYTES)
    text = None
    if found.st_size <= TEXT_BYTES:
        with suppress(UnicodeDecodeError):
            text = os.pread(handle, TEXT_BYTES, 0).decode("utf-8")
    return Snapshot(files={shown: entry}, count=1, text=text)


def _folder(handle: int, path: str, before: Mapping[str, list[Any]]) -> Snapshot:
    files: dict[str, list[Any]] = {}
    folders: list[str] = []
    whole = count = 0
    left = HASHED_IN_ALL
    for name, below, entry in _walk(handle, "", folders, path):
        try:
            found = os.stat(entry, dir_fd=below, follow_symlinks=False)
            if count < MOST_FILES:
                shown = _shown_name(name)
                files[shown], read = _scan_file(below, entry, found, before.get(shown), left=left)
                left -= read
        except OSError:
            continue  # gone, or not readable
        count += 1
        digest = hashlib.sha256(f"{name}\0{_stamp(found)}".encode()).digest()
        whole ^= int.from_bytes(digest)  # independent of the order of files
        if count > MOST_ENTRIES:
            break
    if count > MOST_FILES:
        return Snapshot(whole=f"{count}:{whole:064x}"[:40], count=count, folders=tuple(folders))
    return Snapshot(files=files, count=count, folders=tuple(folders))


def _walk(handle: int, relative: str, folders: list[str], path: str) -> Iterator[tuple[str, int, str]]:
    """Yield regular files, each with the handle of its folder, without listing a folder whole."""
    folders.append(f"{path}/{relative}".rstrip("/"))
    below: list[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield _decodable(relative + entry.name), handle, entry.name
            elif entry.is_dir(follow_symlinks=False) and len(folders) + len(below) < MOST_FOLDERS:
                below.append(entry.name)
    if relative.count("/") >= MOST_DEPTH:
        return
    for name in sorted(below):
        try:
            opened = os.open(name, FOLDER_FLAGS, dir_fd=handle)
        except OSError:
            continue  # gone, or not a folder any more
        try:
            yield from _walk(opened, f"{relative}{name}/", folders, path)
        finally:
            os.close(opened)


def _scan_file(
    below: int, name: str, found: os.stat_result, before: list[Any] | None, *, left: int
) -> tuple[list[Any], int]:
    """Return the entry of a file in the snapshot, and how many bytes were read for it."""
    if before is not None and _is_unchanged(before, found):
        return before, 0
    handle = os.open(name, FILE_FLAGS, dir_fd=below)
    try:
        return _described(handle, os.fstat(handle), before, left=left), min(found.st_size, left)
    finally:
        os.close(handle)


def _described(handle: int, found: os.stat_result, before: list[Any] | None, *, left: int) -> list[Any]:
    if before is not None and _is_unchanged(before, found):
        return before
    digest = _stamp(found) if found.st_size > min(HASHED_BYTES, left) else _digest(handle)
    return [found.st_size, f"{_stamp(found)}{digest}", found.st_mtime_ns]


def _is_unchanged(before: list[Any], found: os.stat_result) -> bool:
    return bool(before[0] == found.st_size and str(before[1]).startswith(_stamp(found)))


def _stamp(found: os.stat_result) -> str:
    """Return a stamp that changes whenever the content may have: nobody can set the ctime."""
    facts = f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _digest(handle: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(handle, PIECE, offset):
        digest.update(piece)
        offset += len(piece)
        if offset > HASHED_BYTES:  # it grows while it is read
            break
    return digest.hexdigest()[:16]


def _decodable(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=2 * MOST_FILES)
def _shown_name(name: str) -> str:
    """Return the name to store and show: a keyed digest if it contains a secret."""
    if redact(name) == name:
        return name
    return f"masked-{salted_hmac(__name__, name, algorithm='sha256').hexdigest()[:12]}"


# --- Comparing scans ---


def changes(before: Mapping[str, Any], now: Snapshot) -> list[dict[str, Any]]:
    """Compare with the last scan (`files` and `whole` of a cursor): present files newest first, then deleted."""
    if now.whole or before.get("whole"):
        same = now.whole == before.get("whole", "")
        return [] if same else [{"name": ".", "kind": "changed", "size": now.count}]
    old: Mapping[str, list[Any]] = before.get("files") or {}
    gone = [{"name": name, "kind": "deleted", "size": old[name][0]} for name in sorted(old.keys() - now.files.keys())]
    changed = [
        {"name": name, "kind": "modified" if name in old else "added", "size": entry[0]}
        for name, entry in _newest_first(now)
        if name not in old or _content(old[name]) != _content(entry)
    ]
    return [*changed, *gone]


def present(now: Snapshot) -> list[dict[str, Any]]:
    """List the files of the first scan, the newest first."""
    return [{"name": name, "kind": "present", "size": entry[0]} for name, entry in _newest_first(now)]


def _newest_first(now: Snapshot) -> list[tuple[str, list[Any]]]:
    return sorted(now.files.items(), key=lambda item: (-item[1][2], item[0]))


def _content(entry: Sequence[Any]) -> tuple[int, str]:
    """Return size and digest, without the stamp."""
    return entry[0], str(entry[1])[16:]


def _limited(changed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first ones, and add how many more there are."""
    if len(changed) <= MOST_REPORTED:
        return list(changed)
    most = MOST_REPORTED - 1
    return [*changed[:most], {"name": "…", "kind": "more", "size": len(changed) - most}]
