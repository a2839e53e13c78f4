"""The name and memory of a process, whether it was asked to stop, and that it does not outlive its parent. Events.

Code that waits for long checks `stop_requested`, so that the process ends soon.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import wait
from queue import Empty, SimpleQueue
from typing import Final
from weakref import finalize

stop_requested: Final = threading.Event()

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_LOOK_SECONDS: Final = 0.5
_SORTED_FOR: Final = 100_000  # bytes


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, however it ends. `parent` is the id that the parent knows.

    On Linux the kernel does it, when the thread that started this process has ended. Elsewhere a thread looks.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _end_if_orphaned(parent)  # it may have ended before


def sort_free_memory() -> None:
    """Before a fork: have the C library sort what a closed connection has freed.

    Otherwise every child does so by itself, in copies of five megabytes. It sorts when somebody asks for more than it
    hands out from its lists of small pieces, and less than it asks the system for.
    """
    bytearray(_SORTED_FOR)


def set_process_name(name: str) -> None:
    """Name this process, and those that it forks, as `ps -e` and `pgrep` show it. Linux keeps 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode())


def _watch(parent: int) -> None:
    while True:
        time.sleep(_LOOK_SECONDS)
        _end_if_orphaned(parent)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class SignalEvent:
    """An event that a signal handler may set while the same thread waits for it.

    With `threading.Event`, a signal that arrives while its lock is held would wait for that lock forever.
    """

    def __init__(self) -> None:
        self._items: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._items.put(None)

    def is_set(self) -> bool:
        return not self._items.empty()

    def wait(self, seconds: float) -> bool:
        try:
            self._items.get(timeout=seconds)
        except Empty:
            return False
        self.set()  # it stays set
        return True


class ForkEvent:
    """An event of forked processes. `multiprocessing.connection.wait` waits for its handle beside other things."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            finalize(self, os.close, end).atexit = False  # other exit handlers may still wait for it

    def fileno(self) -> int:
        return self._reading

    def set(self) -> None:
        if not self.is_set():
            os.write(self._writing, b".")

    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        return bool(wait([self._reading], timeout))

    def clear(self) -> None:
        while self.is_set():
            os.read(self._reading, 1)
