"""The metered way to a model: what a handler calls as `infer`. Imported by the guard alone.

One model request per authorised call, repeated when the fault allows it. Each failed attempt is booked before the next
is made. A halt ends the call, whether the model is silent, answers, or is to be asked again; a long wait becomes a row
instead of blocking the worker. Replies are redacted before anything else sees them.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from agents.anonymize import Anonymizer
from agents.definitions.catalogue import declaration_of
from agents.enums import Outcome, Purpose
from agents.exceptions import LqopsError
from agents.guard.calls import OutgoingRequest
from agents.guard.tools import call_limit
from agents.ledger.journal import Attempt
from agents.ledger.model_limits import fitting_tokens, thinks
from agents.ledger.model_servers import form_of
from agents.models import AgentSession, Project
from agents.policy.conversation import in_form
from agents.providers.base import AWAY, Chunk, Fault, Provider, ProviderError, Tries, next_wait, wait_listening
from agents.providers.registry import is_in_process, provider_for
from agents.providers.transport import Timeouts
from agents.types import ModelReply, ModelRequest, Usage
from audit.redaction import redact, redact_exception

logger = logging.getLogger(__name__)

REFUSAL = "refusal"
OUT_OF_TIME = "out_of_time"
MAX_TOKENS = "max_tokens"
LONGEST_WAIT_SECONDS = 5.0
MOST_TOKENS = 10**12


def outgoing_request(session: AgentSession, request: ModelRequest) -> OutgoingRequest:
    """Bring the request into the form that the model's server takes, before it is priced.

    Its answer gets no more tokens than the model declares: a fallback may have fewer than the model it stands in for.
    Personal data is hidden, unless the request asks not to or the model runs in this process. Texts to be embedded are
    no conversation: they stay as they are, one by one.
    """
    if request.purpose == Purpose.EMBEDDING:
        return OutgoingRequest(_parties_of_owner(session).hide_for_good(request))
    most, form = fitting_tokens(request.model, request.purpose, request.max_tokens), form_of(request.model)
    if (most, form) != (request.max_tokens, request.form):
        request = replace(request, form=form, max_tokens=most)
    request = in_form(request)
    if not request.anonymize or is_in_process(request.model):
        return OutgoingRequest(request)
    project = session.project
    anonymizer = Anonymizer([*(project.parties.splitlines() if project else ()), *request.parties])
    return OutgoingRequest(anonymizer.hide_request(request), anonymizer)


def _parties_of_owner(session: AgentSession) -> Anonymizer:
    """Hide what any project of the owner lists: a passage is indexed once for all of them, and a query compares."""
    listed = Project.objects.filter(owner_id=session.owner_id).order_by("pk").values_list("parties", flat=True)
    return Anonymizer(dict.fromkeys(line for parties in listed for line in parties.splitlines()))


class AskedTwice(LqopsError):
    """A handler asked its model a second time in one guarded call."""

    code = "asked_twice"


class ModelAway(Exception):
    """The server does not answer, or asks for a longer pause than a worker should wait for."""


class Meter:
    """Asks the model and remembers the last attempt.

    `book` books a failed attempt and returns whether there is room for another; `stopped` tells of a halt. The
    time limit of a call is for all attempts and the waits between them.
    """

    def __init__(
        self,
        outgoing: OutgoingRequest | None,
        *,
        book: Callable[[Attempt], bool],
        stopped: Callable[[], bool],
        tries: Tries,
    ) -> None:
        self._outgoing = outgoing
        self._book = book
        self._stopped = stopped
        self._tries = tries
        self._seconds = _call_seconds(outgoing.request.model) if outgoing else 0.0
        self._limit = call_limit(self._seconds)
        self._ends_at = time.monotonic() + (self._seconds if self._limit is None else self._limit)
        self._provider: Provider | None = None  # the same for all attempts: it is the one that was priced
        self.last: Attempt | None = None
        self._lock = threading.Lock()
        self._closed = outgoing is None
        self._is_over = False
        self.contacted = False
        self.failed = False
        self.failure = ""
        self.halted = False
        self.pause: float | None = None  # seconds that the server asked for
        self.is_unreached = False  # the last attempt found no server
        self.timed_out = False  # before a byte of the answer came
        self._text: list[str] = []  # of the attempt at hand
        self._has_thought = False

    def close(self) -> None:
        """Refuse further requests: the call is over. A thread that was left behind makes no other attempt."""
        with self._lock:
            self._closed = self._is_over = True
            self.contacted = self.contacted or (self.last is not None and self.last.contacted)

    def infer(self, on_chunk: Callable[[Chunk], None] | None = None) -> ModelReply:
        with self._lock:
            if self._closed or self._outgoing is None:
                raise AskedTwice("A guarded call asks its model once; make another guarded call for another question.")
            self._closed = True
            number = 0
        while True:
            number += 1
            try:
                return self._ask(self._outgoing, number, on_chunk)
            except ProviderError as error:
                self.contacted = self.contacted or error.contacted
                self.failed = True
                self.is_unreached = error.fault == Fault.CONNECTION and not error.contacted
                self._tries = self._tries.after(error)
                self.failure = redact(str(error))
                if not self.halted:
                    described = redact_exception(error)
                    logger.warning("model %s failed try %s: %s", self._outgoing.request.model, number, described)
                wait = next_wait(error, self._tries, random.SystemRandom())
                if wait is None and error.fault not in AWAY:
                    raise
                if wait is None or wait > LONGEST_WAIT_SECONDS or time.monotonic() + wait >= self._ends_at:
                    self.pause = wait
                    self.timed_out = error.fault == Fault.TIMEOUT and not error.received_bytes
                    raise ModelAway(str(error)) from error
                with self._lock:  # whoever closes it finds an attempt that is booked, or that is still to be
                    if self._is_over or self.last is None or not self._book(self.last):
                        raise
                    self.last = None
                if error.form is not None:
                    self._outgoing = self._outgoing.in_form(error.form)
                self._wait(wait)

    def _ask(self, outgoing: OutgoingRequest, number: int, on_chunk: Callable[[Chunk], None] | None) -> ModelReply:
        request = outgoing.request
        started = time.monotonic()
        self.last = Attempt(number)
        self._text.clear()
        self._has_thought = False
        try:
            self._provider = self._provider or provider_for(request.model)
            with self._lock:  # whoever closes it finds the attempt, or there is none
                self._require_open()
                self.last = Attempt(number, self._provider.name, contacted=True)
            reply = self._provider.stream(request, self._listening(outgoing.restoring(on_chunk or _ignore)))
        except ProviderError as error:
            self.last = replace(
                self.last, contacted=error.contacted, usage=_sane(error.usage), latency_ms=_since(started)
            )
            came_in = None if self._has_thought or thinks(request.model) else error.received_bytes
            if self.halted:
                self.last = replace(self.last, outcome=Outcome.ERROR, stopped_after=came_in)
            if self.halted or not self._has_part():
                raise
            self.last = replace(self.last, stopped_after=came_in)
            reply = self._part(error.usage)
        self.contacted = True
        self.failed = False
        self.last = replace(
            self.last,
            usage=_sane(reply.usage),
            refused=reply.stop_reason == REFUSAL,
            latency_ms=_since(started),
            request_id=reply.request_id,
            outcome=Outcome.SUCCESS,
            form=reply.form,
            streamed=reply.streamed,
        )
        return outgoing.restored(reply)

    def _listening(self, hand_on: Callable[[Chunk], None]) -> Callable[[Chunk], None]:
        """Wrap a listener: a halt ends the stream."""

        def listen(chunk: Chunk) -> None:
            if chunk.is_before and self._limit is None:
                self._ends_at = time.monotonic() + self._seconds  # to wait for others is not the model's time
            if not chunk.finished:
                self._require_going_on()
            self._has_thought = self._has_thought or chunk.is_thought
            if chunk.text or chunk.finished:
                self._text.append(chunk.text)
                hand_on(chunk)

        return listen

    def _has_part(self) -> bool:
        """Return whether the time of the call ran out while the model was answering: that part is its reply."""
        return time.monotonic() >= self._ends_at and (self._has_thought or any(text.strip() for text in self._text))

    def _part(self, usage: Usage | None) -> ModelReply:
        """Return the reply so far. A model that only thought has not answered: its reply was cut."""
        text = "".join(self._text)
        return ModelReply(text, usage=usage, stop_reason=OUT_OF_TIME if text.strip() else MAX_TOKENS)

    def _wait(self, seconds: float) -> None:
        """Wait, and look for a halt a few times a second."""
        wait_listening(seconds, lambda _: self._require_going_on())

    def _require_open(self) -> None:
        if self._is_over:
            raise ProviderError("The call is over.", fault=Fault.CANCELLED)

    def _require_going_on(self) -> None:
        self._require_open()
        if self._stopped():
            self.halted = True
            raise ProviderError("The session was halted.", fault=Fault.CANCELLED)
        if time.monotonic() >= self._ends_at:
            if self._limit is not None:  # the caller's patience says nothing about the server
                raise ProviderError(f"No answer within {self._limit:.3g} seconds.", fault=Fault.CANCELLED)
            raise ProviderError("The model took too long to answer.", fault=Fault.TIMEOUT)


def _call_seconds(model: str) -> float:
    return float(declaration_of(model).get("total_seconds", Timeouts.total))


def _ignore(chunk: Chunk) -> None:
    """Listen to a reply that is wanted whole."""


def _sane(usage: Usage | None) -> Usage | None:
    """Treat impossible token counts as no report, so that the worst case is booked."""
    if usage is None or not all(0 <= count <= MOST_TOKENS for count in vars(usage).values()):
        return None
    return usage


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1_000)
