"""That this process was asked to end. Whoever waits for long looks here, so that nobody waits for them."""

import threading
from queue import Empty, SimpleQueue
from typing import Final

process_ends: Final = threading.Event()


class Asked:
    """An event that the handler of a signal may set while the same thread waits for it.

    Not so `threading.Event`: a signal that comes while its lock is held would wait for that lock for ever.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._told.put(None)

    def is_set(self) -> bool:
        return not self._told.empty()

    def wait(self, seconds: float) -> bool:
        try:
            self._told.get(timeout=seconds)
        except Empty:
            return False
        self.set()  # it stays so
        return True
