"""The metered way to a model: what a handler's `infer` is. Imported by the guard alone.

One question per authorisation, asked again when the fault allows it. Each attempt is booked before the next is made, a
halt interrupts the wait, and a long wait is not sat out: it becomes a row. A reply is redacted before anything sees it.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from agents.costs import cost_of
from agents.enums import Outcome
from agents.exceptions import LqopsError
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.registry import provider_for
from agents.providers.retry import Tries, next_wait
from agents.types import ZERO, ModelReply, ModelRequest, Price, Usage
from audit.redaction import redact, redact_exception

REFUSAL = "refusal"
LONGEST_SITTING_SECONDS = 5.0
LOOK_SECONDS = 0.25


class AskedTwice(LqopsError):
    """A handler tried to ask a second question under one authorisation."""

    code = "asked_twice"


class LongWait(Exception):
    """The server wants a pause that no worker should sit out."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The model may be asked again in {seconds:.0f} seconds.")
        self.seconds = seconds


@dataclass(frozen=True)
class Attempt:
    """One request to a provider, as the books and the log need it."""

    number: int
    provider: str = ""
    usage: Usage | None = None
    contacted: bool = False
    refused: bool = False
    latency_ms: int = 0
    outcome: Outcome = Outcome.GATEWAY_ERROR

    def booked(self, price: Price, *, worst: Decimal) -> Decimal:
        """The price of the reported tokens, or the worst case when the server was reached and reported none."""
        if not self.contacted:
            return ZERO
        return worst if self.usage is None else cost_of(price, self.usage)

    @property
    def tokens(self) -> int:
        return self.usage.total if self.usage else 0


class Meter:
    """Asks the model and remembers what each attempt came to.

    `book` writes a failed attempt into the books and says whether there is room for another; `halted` is a fresh look.
    """

    def __init__(
        self,
        request: ModelRequest | None,
        *,
        book: Callable[[Attempt], bool],
        halted: Callable[[], bool],
        tries: Tries,
    ) -> None:
        self._request = request
        self._book = book
        self._halted = halted
        self._tries = tries
        self.last: Attempt | None = None
        self.contacted = False
        self.failure = ""
        self.wait_seconds = 0.0

    def infer(self, on_chunk: Callable[[Chunk], None] | None = None) -> ModelReply:
        if self.last is not None or self._request is None:
            raise AskedTwice("A guarded call asks its model once; make another guarded call for another question.")
        number = 0
        while True:
            number += 1
            try:
                return self._ask(self._request, number, on_chunk)
            except ProviderError as error:
                self.contacted = self.contacted or error.contacted
                self._tries = self._tries.after(error)
                self.failure = redact_exception(error)
                wait = next_wait(error, self._tries, random.SystemRandom())
                if wait is None:
                    raise
                if wait > LONGEST_SITTING_SECONDS:
                    raise LongWait(wait) from error
                if self.last is None or not self._book(self.last):
                    raise
                self._sit_out(wait, error)

    def _ask(self, request: ModelRequest, number: int, on_chunk: Callable[[Chunk], None] | None) -> ModelReply:
        started = time.monotonic()
        self.last = Attempt(number)
        try:
            provider = provider_for(request.model)
            self.last = Attempt(number, provider.name, contacted=True)
            reply = provider.stream(request, on_chunk) if on_chunk else provider.complete(request)
        except ProviderError as error:
            self.last = replace(self.last, contacted=error.contacted, usage=error.usage, latency_ms=_since(started))
            raise
        self.contacted, refused = True, reply.stop_reason == REFUSAL
        self.last = replace(
            self.last, usage=reply.usage, refused=refused, latency_ms=_since(started), outcome=Outcome.SUCCESS
        )
        return replace(reply, text=redact(reply.text))

    def _sit_out(self, seconds: float, error: ProviderError) -> None:
        """Waits in short looks, so that a halt ends it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._halted():
                raise ProviderError("The session was halted.", fault=Fault.CANCELLED, contacted=False) from error
            time.sleep(min(left, LOOK_SECONDS))


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1_000)
