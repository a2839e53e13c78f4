"""Looks at files: what there is below a path, by content, and what has changed since the last look.

A path leads somewhere below one of the folders that the operator has named, or nowhere: every step is opened below the
one before, and a symbolic link is not followed, wherever it leads. Reads files only; writes nothing and keeps nothing.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, Final

from django.utils.crypto import salted_hmac

from audit.redaction import redact

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
