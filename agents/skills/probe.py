"""A skill that tries, in its isolated process, what such a process must not be able to do."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from agents.enums import Level
from agents.skills.limits import DEFAULT_LIMITS, MEGABYTE
from agents.skills.skill import skill

TIMEOUT: Final = 30.0


@skill(level=Level.SAFE, side_effects=False, isolation="process", timeout_seconds=TIMEOUT, addresses=())
def probe(variables: list[str], files: list[str], port: int, path: str) -> dict[str, list[str]]:
    """Says what a skill is able to do that it should not be."""
    tries: dict[str, dict[str, Callable[[], Any]]] = {
        "limits": {"take more memory than its limit": _take_memory, "write more than its limit": _write_much},
        "files": {f"open {place}": _opening(place) for place in (*files, f"/proc/{os.getppid()}/environ")},
        "network": {
            "connect by TCP": lambda: _send(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
            "send by UDP": lambda: _send(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
            "connect to a program of this machine": lambda: _send(socket.AF_UNIX, socket.SOCK_STREAM, path),
        },
        "processes": {
            "send signals to its worker": lambda: os.kill(os.getppid(), 0),
            "start processes": _start_process,
        },
    }
    found = {name: [what for what, attempt in each.items() if _succeeds(attempt)] for name, each in tries.items()}
    return {**found, "environment": [f"see {name}" for name in sorted(set(os.environ) - set(variables))]}


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


def _take_memory() -> None:
    bytearray(2 * DEFAULT_LIMITS.memory_mb * MEGABYTE)


def _write_much() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate((DEFAULT_LIMITS.file_mb + 1) * MEGABYTE)


def _start_process() -> None:
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {}), 0)
