"""How a provider fails, as facts that a retry policy can decide on. Messages say what to do and hold no secret."""

from enum import StrEnum
from typing import Final

from agents.types import Usage


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
