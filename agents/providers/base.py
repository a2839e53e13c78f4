"""The protocol of a model provider: requests and replies, streams, faults, and when to try again.

Retrying is decided here and done by the caller: the caller waits, and a halt can interrupt it. Error messages say what
to do and hold no secret.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from agents.policy.schedule import backoff
from agents.types import WIRE_FORMS, ModelReply, ModelRequest, Usage, WireForm

LOOK_SECONDS: Final = 0.25  # how often whoever waits for a model is asked whether to go on


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed reply. The last one is `finished` and carries nothing else.

    `is_thought`: the model thinks; what it thinks is in no chunk. `is_before`: the request is still to be sent, when
    others have had their turn.
    """

    text: str = ""
    finished: bool = False
    is_thought: bool = False
    is_before: bool = False


class Provider(Protocol):
    """Asks a model once. Raises ProviderError; a stream always ends with one finished chunk.

    While nothing comes, `on_chunk` gets an empty chunk a few times a second. It may raise to end the call, which closes
    the connection.
    """

    name: str

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply: ...


@contextmanager
def ended_once(on_chunk: Callable[[Chunk], None]) -> Iterator[Callable[[str], None]]:
    """Give a function that passes text on, and mark the end exactly once, before any error is raised."""
    try:
        yield lambda text: on_chunk(Chunk(text))
    finally:
        on_chunk(Chunk(finished=True))


def wait_listening(seconds: float, on_chunk: Callable[[Chunk], None]) -> None:
    """Wait, with an empty chunk for the listener a few times a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        on_chunk(Chunk())
        time.sleep(min(left, LOOK_SECONDS))


# --- Faults ---


class Fault(StrEnum):
    AUTH = "auth"
    INVALID_REQUEST = "invalid_request"
    NOT_SERVED = "not_served"
    RATE_LIMITED = "rate_limited"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    MALFORMED = "malformed"
    CANCELLED = "cancelled"
    FORM = "form"


AWAY: Final = frozenset({Fault.RATE_LIMITED, Fault.SERVER, Fault.TIMEOUT, Fault.CONNECTION})
RECOVERABLE: Final = AWAY | {Fault.MALFORMED, Fault.FORM}
_STATUS_FAULTS: Final = {
    401: Fault.AUTH,
    403: Fault.AUTH,
    404: Fault.NOT_SERVED,
    408: Fault.TIMEOUT,
    409: Fault.SERVER,
    425: Fault.SERVER,
    429: Fault.RATE_LIMITED,
}
_SERVER_ERRORS: Final = 500


class ProviderError(Exception):
    """A failed call.

    `contacted`: the server may have done (and billed) something. `usage`: what it reported all the same.
    `received_bytes`: how much of the reply came in before. `form`: in which form the server may take the request; it
    is then asked again at once.
    """

    def __init__(
        self,
        message: str,
        *,
        fault: Fault = Fault.SERVER,
        contacted: bool = True,
        usage: Usage | None = None,
        retry_after: float | None = None,
        received_bytes: int = 0,
        form: WireForm | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.contacted = contacted
        self.usage = usage
        self.retry_after = retry_after
        self.received_bytes = received_bytes
        self.form = form

    @property
    def recoverable(self) -> bool:
        return self.fault in RECOVERABLE


def fault_of_status(status: int) -> Fault:
    if status >= _SERVER_ERRORS:
        return Fault.SERVER
    return _STATUS_FAULTS.get(status, Fault.INVALID_REQUEST)


# --- Retries ---


LONGEST_WAIT_SECONDS = 3_600.0
MOST_FORMS: Final = sum(len(values) - 1 for values in WIRE_FORMS.values())  # in which a request can be tried again


@dataclass(frozen=True)
class Tries:
    """Failed attempts of one call; rate limits, and objections to the form of a request, have counts of their own."""

    most: int = 3
    failed: int = 0
    rate_limited: int = 0
    objections: int = 0

    def after(self, error: ProviderError) -> "Tries":
        if error.fault == Fault.FORM:
            return replace(self, objections=self.objections + 1)
        if error.fault == Fault.RATE_LIMITED:
            return replace(self, rate_limited=self.rate_limited + 1)
        return replace(self, failed=self.failed + 1)


def next_wait(error: ProviderError, tries: Tries, rng: random.Random) -> float | None:
    """Return the seconds until the next attempt, or None for none. `tries` includes this failure.

    The server's own `Retry-After` comes first. Otherwise a rate limit waits 30 seconds times its count, spread by a
    fifth; any other recoverable fault waits 1, 2, 4 … seconds, spread by half.
    """
    if not error.recoverable:
        return None
    if error.fault == Fault.FORM:
        return 0.0 if tries.objections <= MOST_FORMS else None
    is_limited = error.fault == Fault.RATE_LIMITED
    count = tries.rate_limited if is_limited else tries.failed
    if count >= tries.most:
        return None
    if error.retry_after is not None:
        return min(error.retry_after * rng.uniform(1.0, 1.1), LONGEST_WAIT_SECONDS)
    if is_limited:
        return 30.0 * count * rng.uniform(0.8, 1.2)
    return backoff(count, first=1.0, longest=LONGEST_WAIT_SECONDS) * rng.uniform(0.5, 1.5)
