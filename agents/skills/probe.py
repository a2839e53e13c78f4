"""Skills that try, in an isolated process, what such a process must not be able to do."""

import ctypes
import mmap
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agents.enums import Level
from agents.skills.limits import DEFAULT_LIMITS, MEGABYTE, Limits
from agents.skills.skill import skill

TIMEOUT: Final = 30.0
FILLED: Final = "fill more of the disk than its limit"
FILL_MB: Final = 4
LEFT_SECONDS: Final = 5.0  # to be ended in
_PRIVATE_KEY: Final = 0
_REMOVE: Final = 0


@skill(level=Level.SAFE, side_effects=False, isolation="process", timeout_seconds=TIMEOUT, addresses=())
def probe(variables: list[str], files: list[str], port: int, path: str, file: str) -> dict[str, list[str]]:
    """Says what a skill is able to do that it should not be."""
    tries: dict[str, dict[str, Callable[[], Any]]] = {
        "limits": {"take more memory than its limit": _take_memory, "write more than its limit": _write_much},
        "memory": {
            "have memory beside its limit": _take_unnamed_file,
            "leave memory behind": _share_memory,
            "share memory without a file": lambda: mmap.mmap(-1, mmap.PAGESIZE).close(),
        },
        "metadata": {
            "change modes of files": lambda: _change(file, lambda: Path(file).chmod(0o640)),
            "change times of files": lambda: _change(file, lambda: os.utime(file, (1, 1))),
            "change owners of files": lambda: os.chown(file, os.getuid(), os.getgid()),
            "change attributes of files": lambda: os.setxattr(file, "user.lqops", b"x"),
        },
        "files": {f"open {place}": _opening(place) for place in (*files, f"/proc/{os.getppid()}/environ")},
        "network": {
            "connect by TCP": lambda: _send(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
            "send by UDP": lambda: _send(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
            "connect to a program of this machine": lambda: _send(socket.AF_UNIX, socket.SOCK_STREAM, path),
            "have a socket with an address": _pair_with_an_address,
        },
        "processes": {
            "send signals to its worker": lambda: os.kill(os.getppid(), 0),
            "start processes": _start_process,
        },
    }
    found = {name: [what for what, attempt in each.items() if _succeeds(attempt)] for name, each in tries.items()}
    return {**found, "environment": [f"see {name}" for name in sorted(set(os.environ) - set(variables))]}


@skill(
    level=Level.SAFE,
    side_effects=False,
    isolation="process",
    timeout_seconds=TIMEOUT,
    addresses=(),
    limits=Limits(file_mb=FILL_MB, folder_mb=FILL_MB),
)
def fill() -> None:
    """Takes more of the disk than it may, with files that no folder shows."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        for file in (one, other):
            file.write(os.urandom(FILL_MB * MEGABYTE))
            file.flush()
        time.sleep(LEFT_SECONDS)


def _succeeds(attempt: Callable[[], Any]) -> bool:
    with suppress(OSError, MemoryError):
        attempt()
        return True
    return False


def _opening(place: str) -> Callable[[], None]:
    return lambda: os.close(os.open(place, os.O_RDONLY))


def _send(family: int, kind: int, place: Any) -> None:
    with socket.socket(family, kind) as sender:
        sender.connect(place)
        sender.send(b"")


def _pair_with_an_address() -> None:
    for one in socket.socketpair(type=socket.SOCK_RAW):
        one.close()


def _change(file: str, act: Callable[[], None]) -> None:
    """Try to change a file: the call may be told that it was done."""
    before = Path(file).stat()
    act()
    after = Path(file).stat()
    if (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns):
        raise PermissionError


def _take_unnamed_file() -> None:
    os.close(os.memfd_create("probe"))


def _share_memory() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if (found := libc.shmget(_PRIVATE_KEY, ctypes.c_size_t(MEGABYTE), 0o600)) < 0:
        raise OSError(ctypes.get_errno(), "no shared memory")
    libc.shmctl(found, _REMOVE, None)


def _take_memory() -> None:
    bytearray(2 * DEFAULT_LIMITS.memory_mb * MEGABYTE)


def _write_much() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate((DEFAULT_LIMITS.file_mb + 1) * MEGABYTE)


def _start_process() -> None:
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {}), 0)
