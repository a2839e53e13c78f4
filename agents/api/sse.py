"""Server-Sent Events: the parts that all streams of the API share.

A stream is iterated asynchronously: an open one uses no worker thread between two reads. All streams together read at a
limited rate, so many of them are read less often. None is open for more than some minutes: the client reconnects, as
browsers do, with the id of the last event it received.
"""

import asyncio
import json
import logging
import random
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections
from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import Throttled
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from agents.api.base import SingleView
from agents.process_end import stop_requested

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.4
KEEP_ALIVE_SECONDS: Final = 15.0
LIFETIME_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 15.0  # until a stream is cancelled whose client reads nothing any more
RECONNECT_MS: Final = 1_000
RETRY_AFTER_SECONDS: Final = 2.0
READERS: Final = 4  # threads that read for all streams of the process, each with a database connection
READS_PER_SECOND: Final = 300  # of all streams together: the rest of the processor is for requests
MAX_OPEN: Final = 1_000
MAX_OPEN_PER_USER: Final = 8
LARGEST_ID: Final = 2**63 - 1

LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="The id of the last event; overrides `after`."
)


# --- Open streams and their views ---


class OpenStream:
    """One open stream, read again and again. It counts as open until it is closed or garbage-collected."""

    is_finished = False

    def __init__(self, owner_id: int, *, after: int) -> None:
        self.owner_id = owner_id
        self.after = after  # the id up to which everything was sent

    def read(self) -> bytes:
        """New messages; empty if there are none."""
        raise NotImplementedError

    def may_have_news(self) -> bool:
        """Whether a read may find something. Asked in the event loop, so it must not wait for anything."""
        return True

    def pause(self) -> float:
        """Seconds until the next look."""
        return POLL_SECONDS

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 Django iterates it in the request's task
        loop = asyncio.get_running_loop()
        timeout = loop.call_later(LIFETIME_SECONDS + GRACE_SECONDS, task.cancel)
        # Those that were opened together do not come back together.
        deadline = loop.time() + LIFETIME_SECONDS * random.uniform(0.9, 1)  # noqa: S311 no secret depends on it
        sent_at = loop.time()
        try:
            yield f"retry: {RECONNECT_MS}\nid: {self.after}\n\n".encode()
            while loop.time() < deadline and not stop_requested.is_set():
                messages = b""
                if self.may_have_news():
                    await asyncio.sleep(_turn(loop.time()))
                    messages = await sync_to_async(self._read, thread_sensitive=False, executor=_readers)()
                if not messages and loop.time() - sent_at >= KEEP_ALIVE_SECONDS:
                    messages = f": still here\nid: {self.after}\n\n".encode()
                if messages:
                    sent_at = loop.time()
                    yield messages
                if self.is_finished:
                    return
                await asyncio.sleep(self.pause())
        finally:
            timeout.cancel()

    def _read(self) -> bytes:
        try:
            return self.read()
        except DatabaseError as error:
            logger.warning("a stream could not be read: %s", type(error).__name__)
            return b""  # tried again
        finally:
            close_old_connections()  # a stream holds no connection between two reads

    def close(self) -> None:
        """Called by Django when the response has ended, however it ended."""
        with _counting:
            _open.discard(self)


_next_read_at = 0.0


def _turn(now: float) -> float:
    """Return how many seconds a read has to wait for its turn."""
    global _next_read_at  # noqa: PLW0603 the event loop alone uses it
    turn = max(now, _next_read_at)
    _next_read_at = turn + 1 / READS_PER_SECOND
    return turn - now


_readers: Final = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="stream")
_open: WeakSet[OpenStream] = WeakSet()
_counting = threading.Lock()


def stream_response(stream: OpenStream) -> StreamingHttpResponse:
    """Send the stream to the client. Refused if too many streams are open."""
    with _counting:
        own = sum(other.owner_id == stream.owner_id for other in _open)
        if own >= MAX_OPEN_PER_USER or len(_open) >= MAX_OPEN:
            message = f"{own} of your streams are open here, {len(_open)} in total."
            raise Throttled(wait=RETRY_AFTER_SECONDS, detail=message)
        _open.add(stream)
    headers = {"X-Accel-Buffering": "no"}  # proxies must not buffer
    return StreamingHttpResponse(stream, content_type="text/event-stream; charset=utf-8", headers=headers)


class IgnoreAccept(BaseContentNegotiation):
    """Stream clients accept text/event-stream; errors are JSON as everywhere."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class StreamView(SingleView):
    http_method_names = ["get"]
    content_negotiation_class = IgnoreAccept


def last_event_id(request: Request) -> int | None:
    """The id that a reconnecting client received last; None if there is no valid one."""
    header = request.headers.get("Last-Event-ID", "")
    if not (header.isascii() and header.isdigit()):
        return None
    return min(int(header[: len(str(LARGEST_ID))]), LARGEST_ID)


def message(data: Mapping[str, Any], *, name: str = "", number: str = "") -> bytes:
    """One event. JSON has no line breaks, so text in it cannot start an event of its own."""
    fields = [f"id: {number}\n" if number else "", f"event: {name}\n" if name else ""]
    return f"{''.join(fields)}data: {json.dumps(data)}\n\n".encode()
