"""Waits for writes to a file, by any process of this machine, without looking at it again and again. Linux only."""

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Final
from weakref import finalize

_IN_MODIFY: Final = 2
_EVENTS_BYTES: Final = 65_536


class FileWrites:
    """Tells of writes to one file. Raises OSError where the system does not tell of them."""

    def __init__(self, path: str) -> None:
        if sys.platform != "linux":
            raise OSError("Only Linux has inotify.")
        library = ctypes.CDLL(None, use_errno=True)
        self._handle = _checked(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        finalize(self, os.close, self._handle)
        _checked(library.inotify_add_watch(self._handle, os.fsencode(path), _IN_MODIFY))

    def wait(self, seconds: float, beside: Iterable[int] = ()) -> bool:
        """Return True at the first write, False if there is none in this time, or before one of the others is ready."""
        found = wait([self._handle, *beside], seconds)
        with suppress(BlockingIOError):
            while os.read(self._handle, _EVENTS_BYTES):
                pass
        return self._handle in found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
