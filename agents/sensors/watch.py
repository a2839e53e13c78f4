"""Watch: a file or a folder. What has changed is found by looking, at the start of every slice and after every hint.

The cursor holds what was there, by content, so nothing that changed while nobody looked is missed, and nothing is told
twice. A reading is the list of the latest changes, the newest first.
"""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path, PurePath
from time import monotonic
from typing import Any, ClassVar, Final

from django.utils.crypto import salted_hmac

from agents.conf import clock, sensor_roots
from agents.sensors.sensing import Failed, Sensing
from audit.redaction import redact
from audit.rows import canonical

# --- Looks at files: what there is below a path, by content, and what has changed since the last look ---
#
# A path leads somewhere below one of the folders that the operator has named, or nowhere: every step is opened below
# the one before, and a symbolic link is not followed, wherever it leads. Reads files only; writes nothing and keeps
# nothing.


MOST_FILES: Final = 2_000  # that are known one by one; a folder with more is followed as a whole
MOST_ENTRIES: Final = 20_000  # that are looked at in all
MOST_DEPTH: Final = 16
MOST_FOLDERS: Final = 256
MOST_TOLD: Final = 100
TEXT_BYTES: Final = 16 * 1024
HASHED_BYTES: Final = 16 * 1024 * 1024  # of one file; a larger one has changed when its time or size has
HASHED_IN_ALL: Final = 256 * 1024 * 1024
PIECE: Final = 1024 * 1024
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotLookedAt(Exception):
    """The path may not be looked at, or cannot be; the text says why."""


@dataclass(frozen=True)
class Snapshot:
    """What there was: by name, `[size, stamp and digest, mtime]`. With `whole`, too much to be known one by one."""

    files: Mapping[str, list[Any]] = field(default_factory=dict)
    whole: str = ""
    count: int = 0
    folders: tuple[str, ...] = ()
    missing: bool = False
    text: str | None = None


def scan(path: str, roots: Sequence[Path], before: Mapping[str, list[Any]]) -> Snapshot:
    """What is there now. Files whose time, size and inode are those of `before` are not read again."""
    root, steps = place_of(path, roots)
    try:
        with _opened(root, steps) as (handle, name):
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode):
                return _one_file(handle, name, found, before)
            if not stat.S_ISDIR(found.st_mode):
                raise NotLookedAt("it is neither a file nor a folder")
            return _folder(handle, str(root.joinpath(*steps)), before)
    except FileNotFoundError:
        return Snapshot(missing=True)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise NotLookedAt("a symbolic link, or something that is no folder, stands in the way") from None
        raise NotLookedAt(f"it cannot be read: {error.strerror}") from None


def place_of(path: str, roots: Sequence[Path]) -> tuple[Path, tuple[str, ...]]:
    """The root that the path is below, and the steps from there. A relative path is taken below the first root."""
    if not roots:
        raise NotLookedAt("no folder may be looked at: LQOPS_SENSOR_ROOTS names none")
    given = PurePath(path)
    if ".." in given.parts or "\0" in path:
        raise NotLookedAt("the path leads upwards")
    if not given.is_absolute():
        return roots[0], given.parts
    for root in roots:
        if given.is_relative_to(root):
            return root, given.relative_to(root).parts
    raise NotLookedAt("the path is outside of the folders that LQOPS_SENSOR_ROOTS names")


@contextmanager
def _opened(root: Path, steps: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The last step, opened from the root downwards. The root itself is the operator's word, links and all."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, step in enumerate(steps, 1):
            below = os.open(step, _FILE if number == len(steps) else _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle, steps[-1] if steps else root.name
    finally:
        os.close(handle)


def _one_file(handle: int, name: str, found: os.stat_result, before: Mapping[str, list[Any]]) -> Snapshot:
    known_as = _known_as(_name(name))
    known = _known(handle, found, before.get(known_as), left=HASHED_BYTES)
    text = None
    if found.st_size <= TEXT_BYTES:
        try:
            text = os.pread(handle, TEXT_BYTES, 0).decode("utf-8")
        except UnicodeDecodeError:
            text = None
    return Snapshot(files={known_as: known}, count=1, text=text)


def _folder(handle: int, path: str, before: Mapping[str, list[Any]]) -> Snapshot:
    files: dict[str, list[Any]] = {}
    folders: list[str] = []
    whole = count = 0
    left = HASHED_IN_ALL
    for name, below, entry in _walk(handle, "", folders, path):
        try:
            found = os.stat(entry, dir_fd=below, follow_symlinks=False)
            if count < MOST_FILES:
                known_as = _known_as(name)
                files[known_as], read = _entry(below, entry, found, before.get(known_as), left=left)
                left -= read
        except OSError:
            continue  # gone, or not for us
        count += 1
        seen = hashlib.sha256(f"{name}\0{_stamp(found)}".encode()).digest()
        whole ^= int.from_bytes(seen)  # in whatever order they come
        if count > MOST_ENTRIES:
            break
    if count > MOST_FILES:
        return Snapshot(whole=f"{count}:{whole:064x}"[:40], count=count, folders=tuple(folders))
    return Snapshot(files=files, count=count, folders=tuple(folders))


def _walk(handle: int, relative: str, folders: list[str], path: str) -> Iterator[tuple[str, int, str]]:
    """Files, each with the handle of its folder; a folder is never listed whole. Links and odd files are not seen."""
    folders.append(f"{path}/{relative}".rstrip("/"))
    below: list[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield _name(relative + entry.name), handle, entry.name
            elif entry.is_dir(follow_symlinks=False) and len(folders) + len(below) < MOST_FOLDERS:
                below.append(entry.name)
    if relative.count("/") >= MOST_DEPTH:
        return
    for name in sorted(below):
        try:
            opened = os.open(name, _FOLDER, dir_fd=handle)
        except OSError:
            continue  # gone, or no folder any more
        try:
            yield from _walk(opened, f"{relative}{name}/", folders, path)
        finally:
            os.close(opened)


def _entry(
    below: int, entry: str, found: os.stat_result, before: list[Any] | None, *, left: int
) -> tuple[list[Any], int]:
    """What is known of a file, and how many bytes were read for it."""
    if before is not None and _is_as_it_was(before, found):
        return before, 0
    handle = os.open(entry, _FILE, dir_fd=below)
    try:
        return _known(handle, os.fstat(handle), before, left=left), min(found.st_size, left)
    finally:
        os.close(handle)


def _known(handle: int, found: os.stat_result, before: list[Any] | None, *, left: int) -> list[Any]:
    if before is not None and _is_as_it_was(before, found):
        return before
    digest = _stamp(found) if found.st_size > min(HASHED_BYTES, left) else _digest(handle)
    return [found.st_size, f"{_stamp(found)}{digest}", found.st_mtime_ns]


def _is_as_it_was(before: list[Any], found: os.stat_result) -> bool:
    return bool(before[0] == found.st_size and str(before[1]).startswith(_stamp(found)))


def _stamp(found: os.stat_result) -> str:
    """Changes whenever the content may have: the time of a change of the inode cannot be set by anybody."""
    seen = f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


def _digest(handle: int) -> str:
    digest, place = hashlib.sha256(), 0
    while piece := os.pread(handle, PIECE, place):
        digest.update(piece)
        place += len(piece)
        if place > HASHED_BYTES:  # it grows while it is read
            break
    return digest.hexdigest()[:16]


def _name(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=2 * MOST_FILES)
def _known_as(name: str) -> str:
    """The name that is kept and shown: of one that holds a secret, a keyed digest."""
    return (
        name if redact(name) == name else f"masked-{salted_hmac(__name__, name, algorithm='sha256').hexdigest()[:12]}"
    )


def changes(before: Mapping[str, Any], now: Snapshot) -> list[dict[str, Any]]:
    """What differs from the last look (`files` and `whole` of a cursor): what there is, newest first; what is gone."""
    if now.whole or before.get("whole"):
        same = now.whole == before.get("whole", "")
        return [] if same else [{"name": ".", "kind": "changed", "size": now.count}]
    old: Mapping[str, list[Any]] = before.get("files") or {}
    gone = [{"name": name, "kind": "deleted", "size": old[name][0]} for name in sorted(old.keys() - now.files.keys())]
    newest = sorted(now.files.items(), key=lambda item: (-item[1][2], item[0]))
    fresh = [
        {"name": name, "kind": "modified" if name in old else "added", "size": known[0]}
        for name, known in newest
        if name not in old or _content(old[name]) != _content(known)
    ]
    return [*fresh, *gone]


def told(changed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the first as are told, and how many more there are."""
    if len(changed) <= MOST_TOLD:
        return list(changed)
    most = MOST_TOLD - 1
    return [*changed[:most], {"name": "…", "kind": "more", "size": len(changed) - most}]


def present(now: Snapshot) -> list[dict[str, Any]]:
    """What is there at the first look, the newest first."""
    newest = sorted(now.files.items(), key=lambda item: (-item[1][2], item[0]))
    return [{"name": name, "kind": "present", "size": known[0]} for name, known in newest]


def _content(known: Sequence[Any]) -> tuple[int, str]:
    return known[0], str(known[1])[16:]


QUIET_SECONDS: Final = 0.5  # after a change, before a look; `interval` makes it longer
LONGEST_UNQUIET: Final = 5.0  # a folder that is never quiet is looked at all the same
MISSING_SECONDS: Final = 10.0
NAME_CHARS: Final = 200


class Watch(Sensing):
    pause: ClassVar[float] = 5.0

    async def run(self) -> None:
        hint = asyncio.Event()
        wait: float | None = self.seconds_until_due() if self.failures else 0.0
        try:
            while wait is not None:
                await self._until_hint(hint, wait)
                hint.clear()
                wait = await self._look(hint)
        finally:
            self.desk.hints.leave(hint)

    async def _look(self, hint: asyncio.Event) -> float | None:
        """Seconds until the next look, unless there is a hint; below 0: only at a hint. None when it is all over."""
        try:
            found = await self._scanned()
        except Failed as error:
            return await self.fail(str(error))
        self.desk.hints.listen(hint, found.folders or (() if found.missing else [self._folder()]))
        news = changes(self.cursor, found)
        first = "files" not in self.cursor
        moved = found.missing != self.cursor.get("missing", False) or self.cursor.get("loop") != self.loop_pk
        if (news or first or moved) and not await self._tell(found, news, first=first):
            return None
        return MISSING_SECONDS * self.desk.second if found.missing else -1.0

    async def _tell(self, found: Snapshot, news: list[dict[str, Any]], *, first: bool) -> bool:
        at = clock().isoformat(timespec="seconds")
        shown = told(present(found) if first else news)
        fresh = [{**one, "name": one["name"][-NAME_CHARS:], "at": at, **_text(found, one)} for one in shown]
        recent = [*fresh, *self.cursor.get("recent", [])][:MOST_TOLD]
        happening = self.happening(canonical([[one["name"], one["kind"], self._stamp(found, one)] for one in news]))
        self.cursor = {
            "files": {name: list(known) for name, known in found.files.items()},
            "recent": [{key: value for key, value in one.items() if key != "text"} for one in recent],
            "loop": self.loop_pk,
            "missing": found.missing,
            **({"whole": found.whole} if found.whole else {}),
        }
        problem = "there is nothing at the path now" if found.missing else ""
        judged = [] if first else [{key: value for key, value in one.items() if key != "at"} for one in fresh[::-1]]
        return await self.tell([recent], judged=judged, happening=happening, problem=problem)

    def _stamp(self, found: Snapshot, one: Mapping[str, Any]) -> str:
        """What tells a change from one like it at another time: the file as it is, or as it was before it went."""
        known = found.files.get(one["name"]) or (self.cursor.get("files") or {}).get(one["name"])
        return str(known[1]) if known else found.whole

    def all_there_is(self) -> tuple[Any, ...]:
        return (self.cursor.get("recent", []),)

    async def _scanned(self) -> Snapshot:
        path, before = str(self.spec.source.path), self.cursor.get("files") or {}
        look = partial(scan, path, sensor_roots(), before)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.desk.files, look)
        except NotLookedAt as error:
            raise Failed(f"{path}: {error}") from None

    def _folder(self) -> str:
        """The folder that a single file is in, as the system names it."""
        path = Path(str(self.spec.source.path))
        return str((path if path.is_absolute() else sensor_roots()[0] / path).parent)

    async def _until_hint(self, hint: asyncio.Event, wait: float) -> None:
        """Waits for a hint, or for as long as said; after a hint, until the folder is quiet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait >= 0 else None):
                await hint.wait()
        if not hint.is_set():
            return
        quiet = float(self.spec.interval or QUIET_SECONDS) * self.desk.second
        latest = monotonic() + max(LONGEST_UNQUIET * self.desk.second, quiet)
        while hint.is_set() and monotonic() < latest:
            hint.clear()
            await asyncio.sleep(quiet)


def _text(found: Snapshot, one: Mapping[str, Any]) -> dict[str, str]:
    """The content of a single small file of text, as part of its change."""
    return {"text": found.text} if found.text is not None and one["kind"] != "deleted" else {}
