"""Looks names up, within a time. The answers are not judged here, and nothing is kept: every dial asks again."""

import queue
import socket
import threading
import time
from collections.abc import Callable

from agents.net.errors import UrlRefused

Resolve = Callable[[str], list[str]]

LOOKUP_SECONDS = 5.0
# A lookup cannot be stopped from outside, only left behind; this bounds how many may be hanging at a time.
_LOOKUPS = threading.BoundedSemaphore(64)


def system_resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def answers(host: str, resolve: Resolve, seconds: float) -> list[str]:
    """All addresses of a name. A thread asks, because the system's resolver knows no deadline."""
    end = time.monotonic() + seconds
    lookups = _LOOKUPS
    if not lookups.acquire(timeout=seconds):
        raise UrlRefused("lookup_timeout")
    box: queue.SimpleQueue[list[str] | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            box.put(list(resolve(host)))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            box.put(error)
        finally:
            lookups.release()

    threading.Thread(target=ask, name="lookup", daemon=True).start()
    try:
        found = box.get(timeout=max(0.0, end - time.monotonic()))
    except queue.Empty:
        raise UrlRefused("lookup_timeout") from None
    if isinstance(found, OSError | UnicodeError):
        raise UrlRefused("unresolved") from None
    if isinstance(found, BaseException):
        raise found
    if not found:
        raise UrlRefused("unresolved")
    return found
