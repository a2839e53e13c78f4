"""The metered way to a model: what a handler's `infer` is. Imported by the guard alone.

One question per authorisation, asked again when the fault allows it. Each attempt is booked before the next is made, a
halt interrupts the wait, and a long wait is not sat out: it becomes a row. A reply is redacted before anything sees it.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from agents.anonymize import Anonymizer
from agents.enums import Outcome
from agents.exceptions import LqopsError
from agents.models import AgentSession
from agents.policy.costs import cost_of
from agents.providers.base import Chunk, Fault, ProviderError, Tries, next_wait
from agents.providers.registry import is_in_process, provider_for
from agents.types import ZERO, ModelReply, ModelRequest, Price, Usage
from audit.redaction import StreamRedactor, redact, redact_exception

REFUSAL = "refusal"
LONGEST_SITTING_SECONDS = 5.0
LOOK_SECONDS = 0.25
MOST_TOKENS = 10**12


@dataclass(frozen=True)
class Question:
    """A request as it leaves the process, and the way back: personal data is hidden before it is priced or sent."""

    request: ModelRequest
    veil: Anonymizer | None = None

    @classmethod
    def of(cls, session: AgentSession, request: ModelRequest) -> "Question":
        if not request.anonymize or is_in_process(request.model):
            return cls(request)
        project = session.project
        veil = Anonymizer(project.parties.splitlines() if project else ())
        return cls(veil.hide_request(request), veil)

    def limited(self, max_tokens: int) -> "Question":
        return replace(self, request=replace(self.request, max_tokens=max_tokens))

    def understood(self, reply: ModelReply) -> ModelReply:
        """The reply with names put back, and then without secrets; nothing else ever sees it before."""
        text, arguments = reply.text, [call.arguments for call in reply.calls]
        if self.veil is not None:
            text, arguments = self.veil.restore(text), [self.veil.restore_json(part) for part in arguments]
        calls = tuple(replace(call, arguments=redact(part)) for call, part in zip(reply.calls, arguments, strict=True))
        return replace(reply, text=redact(text), calls=calls, is_full=self._is_full(reply))

    def _is_full(self, reply: ModelReply) -> bool:
        return reply.usage is not None and reply.usage.output_tokens >= self.request.max_tokens

    def overheard(self, on_chunk: Callable[[Chunk], None]) -> Callable[[Chunk], None]:
        """Chunks on their way to a listener: names put back, secrets masked, also across their borders."""
        restoring, masking = self.veil.stream() if self.veil else None, StreamRedactor()

        def hand_on(chunk: Chunk) -> None:
            text = restoring.feed(chunk.text) if restoring else chunk.text
            text = masking.feed(text)
            if chunk.finished:
                text += masking.feed(restoring.close() if restoring else "") + masking.close()
            if text:
                on_chunk(Chunk(text))
            if chunk.finished:
                on_chunk(chunk)

        return hand_on


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
    request_id: str = ""
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
        question: Question | None,
        *,
        book: Callable[[Attempt], bool],
        halted: Callable[[], bool],
        tries: Tries,
    ) -> None:
        self._question = question
        self._book = book
        self._halted = halted
        self._tries = tries
        self.last: Attempt | None = None
        self._lock = threading.Lock()
        self._closed = question is None
        self.contacted = False
        self.failed = False
        self.failure = ""
        self.wait_seconds = 0.0

    def close(self) -> None:
        """After its call nobody asks under its name any more."""
        with self._lock:
            self._closed = True

    def infer(self, on_chunk: Callable[[Chunk], None] | None = None) -> ModelReply:
        with self._lock:
            if self._closed or self._question is None:
                raise AskedTwice("A guarded call asks its model once; make another guarded call for another question.")
            self._closed, number = True, 0
        while True:
            number += 1
            try:
                return self._ask(self._question, number, on_chunk)
            except ProviderError as error:
                self.contacted, self.failed = self.contacted or error.contacted, True
                self._tries = self._tries.after(error)
                self.failure = redact_exception(error)
                wait = next_wait(error, self._tries, random.SystemRandom())
                if wait is None:
                    raise
                if wait > LONGEST_SITTING_SECONDS:
                    raise LongWait(wait) from error
                if self.last is None or not self._book(self.last):
                    raise
                self.last = None  # it is in the books; only the next attempt is still to be booked
                self._sit_out(wait, error)

    def _ask(self, question: Question, number: int, on_chunk: Callable[[Chunk], None] | None) -> ModelReply:
        request, started = question.request, time.monotonic()
        self.last = Attempt(number)
        try:
            provider = provider_for(request.model)
            self.last = Attempt(number, provider.name, contacted=True)
            if on_chunk is None:
                reply = provider.complete(request)
            else:
                reply = provider.stream(request, question.overheard(on_chunk))
        except ProviderError as error:
            self.last = replace(
                self.last, contacted=error.contacted, usage=_sane(error.usage), latency_ms=_since(started)
            )
            raise
        self.contacted, self.failed, refused = True, False, reply.stop_reason == REFUSAL
        self.last = replace(
            self.last,
            usage=_sane(reply.usage),
            refused=refused,
            latency_ms=_since(started),
            request_id=reply.request_id,
            outcome=Outcome.SUCCESS,
        )
        return question.understood(reply)

    def _sit_out(self, seconds: float, error: ProviderError) -> None:
        """Waits in short looks, so that a halt ends it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._halted():
                raise ProviderError("The session was halted.", fault=Fault.CANCELLED, contacted=False) from error
            time.sleep(min(left, LOOK_SECONDS))


def _sane(usage: Usage | None) -> Usage | None:
    """Counts that cannot be are no report: the worst case is booked then."""
    if usage is None or not all(0 <= count <= MOST_TOKENS for count in (usage.input_tokens, usage.output_tokens)):
        return None
    return usage


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1_000)
