"""What lqops asks of a model provider."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from agents.policy.backoff import backoff
from agents.types import ModelReply, ModelRequest, Usage

# How a provider fails, as facts that a retry policy can decide on. Messages say what to do and hold no secret.


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


RECOVERABLE: Final = frozenset({Fault.RATE_LIMITED, Fault.SERVER, Fault.TIMEOUT, Fault.CONNECTION, Fault.MALFORMED})
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
_REJECTED: Final = range(400, 500)


class ProviderError(Exception):
    """The call failed.

    `contacted` tells whether the server may have done (and billed) anything; `usage` is what it reported all the same;
    `began` whether a part of the reply had been handed on before it broke.
    """

    def __init__(
        self,
        message: str,
        *,
        fault: Fault = Fault.SERVER,
        contacted: bool = True,
        usage: Usage | None = None,
        retry_after: float | None = None,
        began: bool = False,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.contacted = contacted
        self.usage = usage
        self.retry_after = retry_after
        self.began = began

    @property
    def recoverable(self) -> bool:
        return self.fault in RECOVERABLE


def fault_of_status(status: int) -> Fault:
    if status >= _SERVER_ERRORS:
        return Fault.SERVER
    return _STATUS_FAULTS.get(status, Fault.INVALID_REQUEST)


def usage_of_status(status: int) -> Usage | None:
    """A request that the server turned away (4xx) was not worked on; what a 5xx has cost is not known."""
    return Usage(0, 0) if status in _REJECTED else None


@dataclass(frozen=True)
class Chunk:
    """A piece of a reply. The last one is `finished` and carries nothing else."""

    text: str = ""
    finished: bool = False


class Provider(Protocol):
    """Asks a model once. Both ways raise ProviderError, and a stream always ends with one finished chunk."""

    name: str

    def complete(self, request: ModelRequest) -> ModelReply: ...

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply: ...


# --- When to ask again, and after how long. Pure: the caller waits, and a halt can interrupt it ---
#
# Recoverable faults: 2^(n-1) seconds, spread by half; rate limits: 30·n seconds, spread by a fifth, or what the
# server asks for, with a count of their own. Everything else is final.


LONGEST_WAIT_SECONDS = 3_600.0


@dataclass(frozen=True)
class Tries:
    """How often it was tried, in all and because of rate limits."""

    most: int = 3
    failed: int = 0
    rate_limited: int = 0

    def after(self, error: ProviderError) -> "Tries":
        if error.fault == Fault.RATE_LIMITED:
            return replace(self, rate_limited=self.rate_limited + 1)
        return replace(self, failed=self.failed + 1)


def next_wait(error: ProviderError, tries: Tries, rng: random.Random) -> float | None:
    """Seconds until the next try; None when there is none. `tries` counts this failure already."""
    if not error.recoverable:
        return None
    limited = error.fault == Fault.RATE_LIMITED
    count = tries.rate_limited if limited else tries.failed
    if count >= tries.most:
        return None
    if error.retry_after is not None:
        return min(error.retry_after * rng.uniform(1.0, 1.1), LONGEST_WAIT_SECONDS)
    if limited:
        return 30.0 * count * rng.uniform(0.8, 1.2)
    return backoff(count, first=1.0, longest=LONGEST_WAIT_SECONDS) * rng.uniform(0.5, 1.5)
