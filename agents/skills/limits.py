"""What the process of an isolated skill may use of the machine, and which limit an error comes from."""

import errno
import os
import re
import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

MEGABYTE: Final = 1024 * 1024
MAX_RESULT_BYTES: Final = 4_000_000
MAX_ERROR_CHARS: Final = 10_000
VARIABLE: Final = re.compile(r"SKILL_[A-Z0-9_]+")  # of the environment: what a skill may ask for by name
THREADS: Final = 32  # beside the processes that a skill may start: the system counts both alike
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Limits:
    """Limits of one call, and their defaults. `processes`: how many others its process may start.

    `files` and `folder_mb` are those of its folder, all together.
    """

    cpu_seconds: int = 60
    memory_mb: int = 2_048
    file_mb: int = 64
    folder_mb: int = 256
    files: int = 10_000
    open_files: int = 256
    processes: int = 0

    @property
    def problem(self) -> str:
        """Return which limit is no limit; "" if all are."""
        wrong = [limit.name for limit in fields(self) if not _is_limit(limit.name, getattr(self, limit.name))]
        return f"the limits {', '.join(wrong)} must be whole numbers above 0, and processes 0 or more" if wrong else ""


DEFAULT_LIMITS: Final = Limits()


def _is_limit(name: str, value: object) -> bool:
    return isinstance(value, int) and value >= (0 if name == "processes" else 1)


# --- Set in the process itself, before any code of the skill ---


_SYSTEM_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "cpu_seconds": (resource.RLIMIT_CPU, 1),
    "memory_mb": (resource.RLIMIT_AS, MEGABYTE),
    "file_mb": (resource.RLIMIT_FSIZE, MEGABYTE),
    "open_files": (resource.RLIMIT_NOFILE, 1),
}


def set_limits(limits: Limits) -> str:
    """Hold this process, and those that it starts, to the limits. Return what the system refused; "" if nothing."""
    wanted = {name: (kind, getattr(limits, name) * unit) for name, (kind, unit) in _SYSTEM_LIMITS.items()}
    wanted["core"] = (resource.RLIMIT_CORE, 0)
    wanted["processes"] = (resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + limits.processes + THREADS)
    failed = [name for name, (kind, most) in wanted.items() if not _set(kind, most)]
    return f"the system does not take the limits {', '.join(failed)}" if failed else ""


def _set(kind: int, most: int) -> bool:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    spare = 1 if kind == resource.RLIMIT_CPU and most != hard else 0  # a signal first, that says why; then the end
    try:
        resource.setrlimit(kind, (most, most + spare))
    except (ValueError, OSError):
        return False
    return True


def _tasks_of(user: int) -> int:
    """Count the processes and threads of a user, as the system does. 0 where there is no /proc."""
    count = 0
    for process in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if process.stat().st_uid == user:
                count += sum(1 for _ in (process / "task").iterdir())
    return count


# --- Said when one of them is reached ---


_BY_ERRNO: Final[Mapping[int, str]] = {
    errno.EFBIG: "file_mb",
    errno.EMFILE: "open_files",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory_mb",
}
_NO_NETWORK: Final = "an isolated skill has no network"
_NO_DATABASE: Final = "an isolated skill has no settings and no database; declare it with isolation='thread'"
_CONFINED: Final[Mapping[int, str]] = {
    errno.ENETDOWN: _NO_NETWORK,
    -3: _NO_NETWORK,  # of a name that cannot be looked up (socket.EAI_AGAIN)
    errno.EACCES: "an isolated skill reads its libraries and its own folder; declare others with folders=(…)",
}


def hint(error: BaseException, limits: Limits) -> str:
    """Return which limit or confinement an error comes from and what to do; "" if from none."""
    cause: BaseException | None = error
    while cause is not None:
        number = getattr(cause, "errno", None) or 0
        if isinstance(cause, MemoryError):
            return reached("memory_mb", limits)
        if number in _BY_ERRNO:
            return reached(_BY_ERRNO[number], limits)
        if number in _CONFINED:
            return _CONFINED[number]
        if _wants_database(cause):
            return _NO_DATABASE
        cause = cause.__cause__ or cause.__context__
    return ""


def _wants_database(error: BaseException) -> bool:
    """Tell whether an error comes from the missing database layer (agents.text.no_database) or missing settings."""
    if type(error).__name__ == "ImproperlyConfigured":
        return True
    lacking = error.name if isinstance(error, ImportError) else getattr(getattr(error, "obj", None), "__name__", "")
    return str(lacking).startswith("django.db")


def hint_of_code(code: int, limits: Limits) -> str:
    """Return which limit ended a process, by its exit code; "" if none did."""
    return reached("cpu_seconds", limits) if code == -signal.SIGXCPU else ""


def reached(name: str, limits: Limits) -> str:
    value = getattr(limits, name)
    return f"it reached its limit {name}={value}; declare it with limits=Limits({name}=…) to raise it"
