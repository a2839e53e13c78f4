"""Asked to stop: one bit that the process which starts the workers shares with them.

A slice takes a worker for most of a minute, and workers are let finish what they do; this makes slices finish early. It
is shared memory without a lock: a worker that is killed cannot leave it locked behind.
"""

from multiprocessing import get_context

# Made when the module is first imported, which must be before the workers are forked.
_asked = get_context("fork").RawValue("b", 0)


def ask_to_stop() -> None:
    _asked.value = 1


def asked_to_stop() -> bool:
    return bool(_asked.value)
