"""Whether this process was asked to stop. Code that waits for long checks it, so that the process ends soon."""

import threading
from queue import Empty, SimpleQueue
from typing import Final

stop_requested: Final = threading.Event()


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
