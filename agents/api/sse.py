"""Server-Sent Events: the parts that all streams of the API share.

A stream is a plain async view, so that an open one uses no worker thread between two reads. A `StreamView` applies the
authentication, permissions and throttles of the API and answers every error. Few streams are open at once and none
longer than some minutes: the client reconnects, as browsers do, with the id of the last event it received.
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

from agents.api.base import SingleView
from agents.models import AgentEvent
from agents.people.activity import event_sentence, events_between, horizon
from agents.process_end import stop_requested
from audit.redaction import redact_data

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

KEEP_ALIVE_SECONDS: Final = 15.0
LIFETIME_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 15.0  # until a stream is cancelled whose client reads nothing any more
RECONNECT_MS: Final = 1_000
RETRY_AFTER_SECONDS: Final = 2.0
MAX_OPEN: Final = 60
MAX_OPEN_PER_USER: Final = 8
LARGEST_ID: Final = 2**63 - 1

LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="The id of the last event; overrides `after`."
)


# --- Open streams and their views ---


class OpenStream:
    """One open stream. It counts as open until it is closed or garbage-collected."""

    def __init__(self, owner_id: int) -> None:
        self.owner_id = owner_id

    def events(self) -> AsyncGenerator[bytes, None]:
        """The bytes to send."""
        raise NotImplementedError

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 Django iterates it in the request's task
        timeout = asyncio.get_running_loop().call_later(LIFETIME_SECONDS + GRACE_SECONDS, task.cancel)
        try:
            async with aclosing(self.events()) as events:
                async for sent in events:
                    yield sent
        finally:
            timeout.cancel()

    def close(self) -> None:
        """Called by Django when the response has ended, however it ended."""
        with _counting:
            _open.discard(self)


_open: WeakSet[OpenStream] = WeakSet()
_counting = threading.Lock()


class StreamResponse(Response):
    """The client may listen. Refused if too many streams are open."""

    def __init__(self, stream: OpenStream) -> None:
        super().__init__()
        self.stream = stream
        with _counting:
            own = sum(other.owner_id == stream.owner_id for other in _open)
            if own >= MAX_OPEN_PER_USER or len(_open) >= MAX_OPEN:
                message = f"{own} of your streams are open here, {len(_open)} in total."
                raise Throttled(wait=RETRY_AFTER_SECONDS, detail=message)
            _open.add(stream)


class IgnoreAccept(BaseContentNegotiation):
    """Stream clients accept text/event-stream; errors are JSON as everywhere."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class StreamView(SingleView):
    """Authorise a stream: `get` returns a `StreamResponse`, or any other response."""

    http_method_names = ["get"]
    content_negotiation_class = IgnoreAccept


def stream_view(authorise: type[StreamView]) -> Callable[..., Any]:
    """The async view of a stream."""
    enter = authorise.as_view()

    @csrf_exempt
    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:
        response = await sync_to_async(enter)(request, **kwargs)
        if not isinstance(response, StreamResponse):
            return response
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second: proxies must not buffer
        return StreamingHttpResponse(response.stream, content_type="text/event-stream; charset=utf-8", headers=headers)

    # drf-spectacular finds the class that describes this view here.
    view.cls = view.view_class = authorise  # type: ignore[attr-defined]
    view.initkwargs = {}  # type: ignore[attr-defined]
    return view


def last_event_id(request: Request) -> int | None:
    """The id that a reconnecting client received last; None if there is no valid one."""
    header = request.headers.get("Last-Event-ID", "")
    if not (header.isascii() and header.isdigit()):
        return None
    return min(int(header[: len(str(LARGEST_ID))]), LARGEST_ID)


# --- The bytes of a stream ---


def opening(*, number: str = "") -> bytes:
    """The start of a stream: when to reconnect and, if nothing is received until then, after which id."""
    return f"retry: {RECONNECT_MS}\n{_id(number)}\n".encode()


def keep_alive(*, number: str = "") -> bytes:
    return f": still here\n{_id(number)}\n".encode()


def message(data: dict[str, Any], *, name: str = "", number: str = "") -> bytes:
    """One event. JSON has no line breaks, so text in it cannot start an event of its own."""
    event = f"event: {name}\n" if name else ""
    return f"{_id(number)}{event}data: {json.dumps(data)}\n\n".encode()


def _id(number: str) -> str:
    return f"id: {number}\n" if number else ""


def event_facts(event: AgentEvent) -> dict[str, Any]:
    """An activity event as JSON. Redacted when it was written, and again here."""
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


def event_message(event: AgentEvent) -> bytes:
    return message(event_facts(event), number=str(event.pk))


# --- One reader per web process: it reads new events once and gives them to every listener ---
#
# It reads only while somebody listens. A client that reads too slowly is disconnected and reconnects with the id of its
# last event; stored events are not lost. No error here reaches the code that writes events.


POLL_SECONDS: Final = 0.4
RETRY_SECONDS: Final = 2.0  # after a database error
READ_LIMIT: Final = 200
MAX_PENDING: Final = 1_000  # events that one client has not read yet


class Listener:
    """One client: for all activity of its owner, or of one agent."""

    def __init__(self, owner_id: int, agent_id: int | None = None) -> None:
        self.owner_id = owner_id
        self.agent_id = agent_id
        self.is_cut = False
        self._pending: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()

    @property
    def is_finished(self) -> bool:
        """It was cut off and has received everything that was sent before."""
        return self.is_cut and not self._pending

    def wants(self, event: AgentEvent) -> bool:
        return event.owner_id == self.owner_id and self.agent_id in (None, event.agent_id)

    def send(self, number: int, message: bytes) -> None:
        if len(self._pending) < MAX_PENDING:
            self._pending.append((number, message))
            self._news.set()
        else:
            self.cut()

    def cut(self) -> None:
        """Send it nothing more."""
        self.is_cut = True
        self._news.set()

    async def receive(self, seconds: float) -> list[tuple[int, bytes]]:
        """Everything pending, as soon as there is something; nothing after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        received = list(self._pending)
        self._pending.clear()
        self._news.clear()
        return received


class Reader:
    """Everything up to `position` was sent to the listeners."""

    def __init__(self) -> None:
        self.position = 0
        self._listeners: set[Listener] = set()
        self._step = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def join(self, listener: Listener) -> int:
        """Add a listener. It receives everything after the returned id; earlier events are stored."""
        async with self._step:
            if not self._listeners:
                self.position = await in_thread(horizon.look)
            self._listeners.add(listener)
            if self._task is None or self._task.done():
                # An empty context: the reader outlives the request that starts it.
                self._task = asyncio.get_running_loop().create_task(self._read(), context=Context())
            return self.position

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def _read(self) -> None:
        try:
            while self._listeners and not stop_requested.is_set():
                try:
                    pause = 0.0 if await self._send_new() else POLL_SECONDS
                except DatabaseError as error:
                    logger.warning("events could not be read: %s", type(error).__name__)
                    pause = RETRY_SECONDS
                await asyncio.sleep(pause)
        except Exception:
            logger.exception("the reader of events failed; its clients reconnect")
        finally:
            for listener in self._listeners:
                listener.cut()
            self._listeners.clear()

    async def _send_new(self) -> bool:
        """Send new events. True if there may be more at once."""
        async with self._step:
            owner_ids = {listener.owner_id for listener in self._listeners}
            events, self.position = await in_thread(_new_events, self.position, owner_ids)
            for event, sent in events:
                for listener in self._listeners:
                    if not listener.is_cut and listener.wants(event):
                        listener.send(event.pk, sent)
            self._listeners = {listener for listener in self._listeners if not listener.is_cut}
            return len(events) == READ_LIMIT


def _new_events(after: int, owner_ids: Collection[int]) -> tuple[list[tuple[AgentEvent, bytes]], int]:
    """New events with their messages, and the id up to which they are complete."""
    until = horizon.look()
    if until <= after or not owner_ids:
        return [], until
    rows = list(events_between(after, until, owner_ids=owner_ids)[:READ_LIMIT])
    return [(row, event_message(row)) for row in rows], rows[-1].pk if len(rows) == READ_LIMIT else until


async def in_thread(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function in a thread that keeps no database connection."""

    def call() -> Result:
        try:
            return function(*args)
        finally:
            close_old_connections()

    return await sync_to_async(call, thread_sensitive=False)()


reader: Final = Reader()
