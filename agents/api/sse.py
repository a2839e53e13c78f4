"""Server-Sent Events: what the streams of the API share.

A stream is a plain asynchronous view, so that one that is open takes no worker thread between two looks. Who may enter
is decided by the same authentication, permissions and throttles as everywhere in the API, in a `Door`, which answers
everything but the stream itself. Few are open at once, and none for longer than some minutes: the client comes again,
as browsers do by themselves, with the id of the last event that it has heard.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import Throttled
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView

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


def event(data: dict[str, Any], *, name: str = "", number: str = "") -> bytes:
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
