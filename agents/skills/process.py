"""The process of an isolated skill, as its worker sees it: started, talked to, and ended with all that it started.

A new interpreter with an environment, a folder and a group of processes of its own. A pipe and a
connection for `context.fetch` lead to the worker, and what comes back is read as JSON, up to a limit.
"""

import fcntl
import logging
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Final

from agents.conf import clock
from agents.skills.limits import MAX_RESULT_BYTES, Limits
from agents.skills.places import search_path
from agents.skills.usage import Usage

logger = logging.getLogger(__name__)

MAX_BYTES: Final = MAX_RESULT_BYTES + 100_000  # with the line before the result
CHUNK_BYTES: Final = 65_536
LINES: Final = 2
OWNER_ONLY: Final = 0o077
FOLDER_PREFIX: Final = "lqops-skill-"
LEFT_SECONDS: Final = 60.0  # after which an unlocked folder was left behind: a new one is locked at once
_START: Final = (
    "from agents.text.no_database import stand_in; stand_in(); from agents.skills.isolated import main; main()"
)
_KEPT: Final = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    code: int
    lines: list[bytes]
    wrote_too_much: bool
    limit_reached: str  # of what only its worker could count, and how to raise it


def run_process(
    job: bytes,
    *,
    folder: str,
    variables: Iterable[str],
    limits: Limits,
    connection: int,
    wait: Callable[["Exchange"], None],
) -> Ended:
    """Start a process for one call. `wait` returns when the exchange has ended, or raises; then it is killed.

    It has this connection, to the desk that fetches for it.
    """
    with subprocess.Popen(  # noqa: S603 our own interpreter and module
        [sys.executable, "-P", "-B", "-c", _START, str(os.getpid()), str(connection)],
        pass_fds=[connection],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=folder,
        env=environment(folder, variables),
        umask=OWNER_ONLY,
        start_new_session=True,
    ) as process:
        exchange = Exchange(process, job, Usage(process.pid, folder, limits))
        try:
            wait(exchange)
        finally:
            exchange.close()
            _kill_all(process)
    return Ended(process.returncode, exchange.lines, exchange.has_too_much, exchange.usage.problem)


def environment(folder: str, variables: Iterable[str]) -> dict[str, str]:
    """Return the whole environment of the process: no key and no setting of lqops is in it."""
    return {
        **{name: os.environ[name] for name in (*_KEPT, *variables) if name in os.environ},
        "PYTHONPATH": os.pathsep.join(search_path()),
        "HOME": folder,
        "TMPDIR": folder,
    }


class Exchange:
    """What is to be sent to a process, and what it has written.

    Ends with its result, its end, too many bytes, or a limit of what it uses.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", job: bytes, usage: Usage) -> None:
        self.usage = usage
        self._unsent = job
        self._received = bytearray()
        self._selector = selectors.DefaultSelector()
        for pipe, event, act in (
            (process.stdin, selectors.EVENT_WRITE, self._send),
            (process.stdout, selectors.EVENT_READ, self._receive),
        ):
            assert pipe is not None  # noqa: S101 both were asked for
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event, act)
        self.is_open = True

    @property
    def lines(self) -> list[bytes]:
        """The whole lines so far; what follows the result is ignored."""
        return bytes(self._received).split(b"\n")[:-1][:LINES]

    @property
    def has_too_much(self) -> bool:
        return len(self._received) > MAX_BYTES

    def step(self, seconds: float) -> None:
        """Wait until something can be sent or received, and do it. Look at what the process uses meanwhile."""
        end = monotonic() + seconds
        ready = None
        while not ready and self.is_open and (left := end - monotonic()) > 0:
            ready = self._selector.select(min(left, self.usage.seconds_until_look))
            for key, _ in ready:
                key.data(key.fileobj)
            self.usage.look()
            self.is_open = self.is_open and not self.usage.problem

    def close(self) -> None:
        self._selector.close()

    def _send(self, pipe: IO[bytes]) -> None:
        try:
            self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent[:CHUNK_BYTES]) :]
        except BrokenPipeError:  # it has ended, which reading shows
            self._unsent = b""
        if not self._unsent:
            self._selector.unregister(pipe)
            pipe.close()

    def _receive(self, pipe: IO[bytes]) -> None:
        chunk = os.read(pipe.fileno(), CHUNK_BYTES)
        self._received += chunk
        self.is_open = bool(chunk) and self._received.count(b"\n") < LINES and not self.has_too_much


def _kill_all(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and all that it started, before its end is read, so that its number is still its own."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(process.pid, signal.SIGKILL)


@contextmanager
def own_folder() -> Iterator[str]:
    """Make a folder for one call, and remove it with all that was written there.

    This process holds a lock on it. A worker that is killed holds none any more: the next call removes what it left.
    """
    for place in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        _remove_if_left(place)
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(held)


def _remove_if_left(place: Path) -> None:
    with suppress(OSError):  # it is gone, another user's, or held
        found = place.lstat()
        if found.st_uid != os.geteuid() or clock().timestamp() - found.st_mtime < LEFT_SECONDS:
            return
        opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(str(place))
        finally:
            os.close(opened)


def _remove(folder: str) -> None:
    """Remove a folder, also one without rights or too deep for Python, without following links."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)  # noqa: S603
    if Path(folder).exists():
        logger.error("the folder %s of an isolated skill cannot be removed; remove it", folder)
