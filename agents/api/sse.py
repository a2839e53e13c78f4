"""Server-Sent Events: what the streams of the API share.

A stream is a plain asynchronous view, so that one that is open takes no worker thread between two looks. Who may enter
is decided by the same authentication, permissions and throttles as everywhere in the API, in a `Door`, which answers
everything but the stream itself. Few are open at once, and none for longer than some minutes: the client comes again,
as browsers do by themselves, with the id of the last event that it has heard.
"""

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any, Final, TypeVar
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import Throttled
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.models import AgentEvent
from agents.people.activity import event_sentence, events_between, horizon
from agents.process_end import process_ends
from audit.redaction import redact_data

logger = logging.getLogger(__name__)


KEEP_ALIVE_SECONDS: Final = 15.0
LIFETIME_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 15.0  # until a stream is broken off whose client takes nothing any more
COME_AGAIN_MS: Final = 1_000
COME_LATER_SECONDS: Final = 2.0
MOST_OPEN: Final = 60
MOST_OF_ONE: Final = 8
LARGEST_ID: Final = 2**63 - 1

HEARD = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="The id of the last event; goes before `after`."
)


class OpenStream:
    """One open stream. It counts as open until it is closed, or nobody holds it any more."""

    def __init__(self, owner_id: int) -> None:
        self.owner_id = owner_id

    def events(self) -> AsyncGenerator[bytes, None]:
        """What is sent."""
        raise NotImplementedError

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 it is iterated in the task of its request
        broken_off = asyncio.get_running_loop().call_later(LIFETIME_SECONDS + GRACE_SECONDS, task.cancel)
        try:
            async with aclosing(self.events()) as events:
                async for sent in events:
                    yield sent
        finally:
            broken_off.cancel()

    def close(self) -> None:
        """Called by Django when the answer is over, however it ended."""
        with _counting:
            _open.discard(self)


_open: WeakSet[OpenStream] = WeakSet()
_counting = threading.Lock()


class Admitted(Response):
    """Whoever asked may listen, if there is a place."""

    def __init__(self, stream: OpenStream) -> None:
        super().__init__()
        self.stream = stream
        with _counting:
            mine = sum(other.owner_id == stream.owner_id for other in _open)
            if mine >= MOST_OF_ONE or len(_open) >= MOST_OPEN:
                told = f"{mine} streams of yours are open here, of {len(_open)} in all."
                raise Throttled(wait=COME_LATER_SECONDS, detail=told)
            _open.add(stream)


def opening(*, number: str = "") -> bytes:
    """The first words of a stream: when to come again, and from where if nothing is heard until then."""
    numbered = f"id: {number}\n" if number else ""
    return f"retry: {COME_AGAIN_MS}\n{numbered}\n".encode()


def still_here(*, number: str = "") -> bytes:
    numbered = f"id: {number}\n" if number else ""
    return f": still here\n{numbered}\n".encode()


def message(data: dict[str, Any], *, name: str = "", number: str = "") -> bytes:
    """One event. JSON without line breaks: what somebody wrote cannot begin an event of its own."""
    numbered = f"id: {number}\n" if number else ""
    named = f"event: {name}\n" if name else ""
    return f"{numbered}{named}data: {json.dumps(data)}\n\n".encode()


def heard_id(request: Request) -> int | None:
    """What a client that comes again says that it has heard."""
    heard = request.headers.get("Last-Event-ID", "")
    if not (heard.isascii() and heard.isdigit()):
        return None
    return min(int(heard[: len(str(LARGEST_ID))]), LARGEST_ID)


class WhateverIsAccepted(BaseContentNegotiation):
    """Clients of streams ask for text/event-stream; refusals are JSON as everywhere."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class Door(ApiView):
    """Lets in or refuses: its `get` returns `Admitted`, or an answer as any other."""

    http_method_names = ["get"]
    content_negotiation_class = WhateverIsAccepted


def stream_behind(door: type[Door]) -> Callable[..., Any]:
    """The view of a stream."""
    enter = door.as_view()

    @csrf_exempt
    async def view(request: HttpRequest, **named: Any) -> HttpResponse | StreamingHttpResponse:
        entered = await sync_to_async(enter)(request, **named)
        if not isinstance(entered, Admitted):
            return entered
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second: for a proxy that would collect
        return StreamingHttpResponse(entered.stream, content_type="text/event-stream; charset=utf-8", headers=headers)

    # The schema, and whoever looks for the routes of the API, finds the view that describes this one.
    view.cls = view.view_class = door  # type: ignore[attr-defined]
    view.initkwargs = {}  # type: ignore[attr-defined]
    return view


# --- One reader for each web process: it reads new events once, and gives them to everybody who listens ---
#
# It reads while somebody listens and rests otherwise. A client that takes them too slowly is cut off, and comes again
# with the id of the last one that it has: what is still stored is not lost. Nothing that goes wrong here reaches
# those who write events.


LOOK_EVERY_SECONDS: Final = 0.4
REST_SECONDS: Final = 2.0  # after a database that did not answer
READ_AT_ONCE: Final = 200
MOST_WAITING: Final = 1_000  # events for one client that it has not taken yet
Found = TypeVar("Found")


def event_shown(event: AgentEvent) -> dict[str, Any]:
    """An event as the API tells it. Redacted when it was written, and again as it goes out."""
    data = dict(redact_data(event.data))
    return {
        "id": event.pk,
        "kind": event.kind,
        "agent": str(event.agent.public_id) if event.agent else None,
        "session": str(event.session.public_id) if event.session else None,
        "text": event_sentence(event.kind, data),
        "data": data,
        "created_at": event.created_at.isoformat(),
    }


def event_bytes(event: AgentEvent) -> bytes:
    return message(event_shown(event), number=str(event.pk))


class Listener:
    """One client that listens: to all that its owner's agents tell, or to one agent."""

    def __init__(self, owner_id: int, agent_id: int | None = None) -> None:
        self.owner_id, self.agent_id = owner_id, agent_id
        self.is_cut = False
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()

    @property
    def has_heard_all(self) -> bool:
        """It was cut off, and has taken what it was given before."""
        return self.is_cut and not self._waiting

    def wants(self, event: AgentEvent) -> bool:
        return event.owner_id == self.owner_id and self.agent_id in (None, event.agent_id)

    def hear(self, number: int, told: bytes) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((number, told))
            self._news.set()
        else:
            self.cut()

    def cut(self) -> None:
        """It is given nothing more."""
        self.is_cut = True
        self._news.set()

    async def heard(self, seconds: float) -> list[tuple[int, bytes]]:
        """What waits, as soon as something does; nothing, if nothing comes in so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        self._news.clear()
        return taken


class Reader:
    """Everything up to `position` was given to those who listen."""

    def __init__(self) -> None:
        self.position = 0
        self._listeners: set[Listener] = set()
        self._step = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def join(self, listener: Listener) -> int:
        """The id behind which the listener hears everything; what came before is stored."""
        async with self._step:
            if not self._listeners:
                self.position = await in_thread(horizon.look)
            self._listeners.add(listener)
            if self._task is None or self._task.done():
                # Nothing of the request at hand goes with it: the reader outlives it.
                self._task = asyncio.get_running_loop().create_task(self._read(), context=Context())
            return self.position

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def _read(self) -> None:
        try:
            while self._listeners and not process_ends.is_set():
                try:
                    rest = 0.0 if await self._give() else LOOK_EVERY_SECONDS
                except DatabaseError as error:
                    logger.warning("events could not be read: %s", type(error).__name__)
                    rest = REST_SECONDS
                await asyncio.sleep(rest)
        except Exception:
            logger.exception("the reader of events failed; those who listen come again")
        finally:
            for listener in self._listeners:
                listener.cut()
            self._listeners.clear()

    async def _give(self) -> bool:
        """Whether there may be more at once."""
        async with self._step:
            owner_ids = {listener.owner_id for listener in self._listeners}
            found, self.position = await in_thread(_new_events, self.position, owner_ids)
            for event, told in found:
                for listener in self._listeners:
                    if not listener.is_cut and listener.wants(event):
                        listener.hear(event.pk, told)
            self._listeners = {listener for listener in self._listeners if not listener.is_cut}
            return len(found) == READ_AT_ONCE


def _new_events(after: int, owner_ids: Collection[int]) -> tuple[list[tuple[AgentEvent, bytes]], int]:
    """What can be handed out, ready to be sent, and how far that is."""
    until = horizon.look()
    if until <= after or not owner_ids:
        return [], until
    rows = list(events_between(after, until, owner_ids=owner_ids)[:READ_AT_ONCE])
    return [(row, event_bytes(row)) for row in rows], rows[-1].pk if len(rows) == READ_AT_ONCE else until


async def in_thread(read: Callable[..., Found], *given: Any) -> Found:
    """Reads in a thread of its own, which holds no connection afterwards."""

    def reading() -> Found:
        try:
            return read(*given)
        finally:
            close_old_connections()

    return await sync_to_async(reading, thread_sensitive=False)()


reader: Final = Reader()
