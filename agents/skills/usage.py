"""What an isolated skill takes of the disk, and with what it starts of memory and processes, as its worker sees it.

The system limits each file, and the memory of each process; nothing limits their sum, and nothing the number of root's
processes. So the worker looks at it many times a second and ends a call that has gone beyond. Files count with the
blocks that they take: those in the folder of the call, and deleted ones that are still open or mapped. What cannot be
looked at ends the call, too.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from agents.skills.limits import MEGABYTE, THREADS, Limits, reached

PAUSE_SECONDS: Final = 0.05
PART_OF_THE_TIME: Final = 10  # looking takes at most one tenth
_PROC: Final = Path("/proc")
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system
_KILOBYTE: Final = 1024
_INODE, _NAME = 4, 5  # in a line of the map of a process
_STATE, _GROUP, _TASKS = 0, 2, 17  # in the line of a process, after its name
_GONE: Final = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Usage:
    """The usage of one call, whose process leads a group and has a folder."""

    def __init__(self, pid: int, folder: str, limits: Limits) -> None:
        self._pid = pid
        self._folder = os.path.realpath(folder)
        self._limits = limits
        self._next = monotonic()
        self.problem = ""  # the limit that was reached, and how to raise it

    @property
    def seconds_until_look(self) -> float:
        return max(self._next - monotonic(), 0.0)

    def look(self) -> None:
        """Look, if it is time to."""
        start = monotonic()
        if start < self._next:
            return
        try:
            name = self._limit_reached()
            self.problem = reached(name, self._limits) if name else ""
        except OSError as error:
            self.problem = f"what it has on disk cannot be counted: {error.strerror}"
        now = monotonic()
        self._next = now + max(PAUSE_SECONDS, PART_OF_THE_TIME * (now - start))

    def _limit_reached(self) -> str:
        files, size = self._in_folder()
        if files > self._limits.files:
            return "files"
        processes = list(_group(self._pid)) if self._limits.processes else [self._pid]
        if sum(map(_tasks, processes)) > 1 + self._limits.processes + THREADS:
            return "processes"
        if size + self._deleted(processes) > self._limits.folder_mb * MEGABYTE:
            return "folder_mb"
        is_over = self._limits.processes and sum(map(_memory, processes)) > self._limits.memory_mb * MEGABYTE
        return "memory_mb" if is_over else ""

    def _in_folder(self) -> tuple[int, int]:
        """Count the files and folders of the call, up to the limit, and their bytes."""
        files = size = 0
        folders = [self._folder]
        while folders and files <= self._limits.files:
            for entry in _entries(folders.pop()):
                files += 1
                with suppress(*_GONE):
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        return files, size

    def _deleted(self, processes: Iterable[int]) -> int:
        """Return the bytes of files that are in no folder any more. One that is mapped alone counts as a full one."""
        opened: dict[tuple[int, int], int] = {}
        mapped: set[int] = set()
        for pid in processes:
            try:
                opened.update(_deleted_and_open(pid))
                mapped.update(_deleted_and_mapped(pid, self._folder))
            except PermissionError:
                if not _has_ended(pid):
                    raise
        unknown = mapped - {inode for _, inode in opened}
        return sum(opened.values()) + len(unknown) * self._limits.file_mb * MEGABYTE


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    with suppress(*_GONE), os.scandir(folder) as entries:
        return list(entries)
    return []


def _deleted_and_open(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the device, the inode and the bytes. Each thread may have files of its own."""
    for task in _entries(f"{_PROC}/{pid}/task"):
        for entry in _entries(f"{task.path}/fd"):
            with suppress(*_GONE):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                    yield (found.st_dev, found.st_ino), found.st_blocks * _BLOCK_BYTES


def _deleted_and_mapped(pid: int, folder: str) -> Iterator[int]:
    """Yield the inodes of files of a folder. Devices are named in another way there."""
    for line in _read(pid, "maps").splitlines():
        parts = line.split(maxsplit=_NAME)
        if len(parts) > _NAME and parts[_NAME].startswith(folder) and parts[_NAME].endswith(" (deleted)"):
            yield int(parts[_INODE])


def _memory(pid: int) -> int:
    """Return the bytes of memory that a process has, its share of those that it has with others."""
    try:
        found = _read(pid, "smaps_rollup").partition("\nPss:")[2].split()
    except PermissionError:
        found = []  # it has ended; one that hides has been found before, by its files
    return int(found[0]) * _KILOBYTE if found else 0


def _tasks(pid: int) -> int:
    """Return how many threads a process has; 0 if it is gone."""
    return int((_state(pid)[_TASKS : _TASKS + 1] or ["0"])[0])


def _group(leader: int) -> Iterator[int]:
    for process in _PROC.glob("[0-9]*"):
        if _state(int(process.name))[_GROUP : _GROUP + 1] == [str(leader)]:
            yield int(process.name)


def _has_ended(pid: int) -> bool:
    return _state(pid)[_STATE : _STATE + 1] in ([], ["Z"], ["X"])


def _state(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the process name, which may hold anything; none if it is gone."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _read(pid: int, name: str) -> str:
    with suppress(*_GONE):
        return (_PROC / str(pid) / name).read_text(errors="replace")
    return ""
