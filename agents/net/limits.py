"""How much a fetch may take: bytes, ratio, headers, redirects, and time over everything."""

import time
from dataclasses import dataclass

from agents.net.errors import FetchFailed

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    deadline: float = 30.0  # seconds for lookup, connection, TLS, headers, body and all redirects together
    max_bytes: int = 5 * MEBIBYTE  # of the body: as sent, and as unpacked, each
    max_ratio: int = 100  # unpacked to sent; judged from the first mebibyte on
    max_redirects: int = 5
    max_headers: int = 200
    max_header_bytes: int = 64 * 1024


class Deadline:
    """A point in time; every wait of a fetch is cut to what is left until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise FetchFailed("deadline")
        return seconds
