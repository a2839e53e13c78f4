"""The metered way to a model: what a handler's `infer` is. One question per call, its usage kept for the books.

Imported by the guard alone. A reply is redacted here, before anything else sees it.
"""

import time
from dataclasses import replace
from decimal import Decimal

from agents.costs import cost_of
from agents.exceptions import LqopsError
from agents.providers.base import ProviderError
from agents.providers.registry import provider_for
from agents.types import ZERO, ModelReply, ModelRequest, Price, Usage
from audit.redaction import redact, redact_exception

REFUSAL = "refusal"


class AskedTwice(LqopsError):
    """A handler tried to ask a second question under one authorisation."""

    code = "asked_twice"


class Meter:
    """Asks the model once and remembers what it reported."""

    def __init__(self, request: ModelRequest | None) -> None:
        self.request = request
        self.asked = False
        self.contacted = False
        self.usage: Usage | None = None
        self.provider = ""
        self.latency_ms = 0
        self.refused = False
        self.failure = ""

    def infer(self) -> ModelReply:
        if self.asked or self.request is None:
            raise AskedTwice("A guarded call asks its model once; make another guarded call for another question.")
        self.asked = True
        started = time.monotonic()
        try:
            provider = provider_for(self.request.model)
            self.provider, self.contacted = provider.name, True
            reply = provider.complete(self.request)
        except ProviderError as error:
            self.contacted, self.usage = error.contacted, error.usage
            self.failure = redact_exception(error)
            raise
        finally:
            self.latency_ms = round((time.monotonic() - started) * 1_000)
        self.usage, self.refused = reply.usage, reply.stop_reason == REFUSAL
        return replace(reply, text=redact(reply.text))

    def booked(self, price: Price | None, *, worst: Decimal) -> tuple[Decimal, int]:
        """What goes into the real ledger: the price of the reported tokens, or the worst case if none was reported."""
        if not self.contacted or price is None:
            return ZERO, 0
        if self.usage is None:
            return worst, 0
        return cost_of(price, self.usage), self.usage.total
