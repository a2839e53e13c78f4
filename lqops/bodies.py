"""How many bytes a request may bring, judged before Django sees it and before anybody is asked who they are.

Django takes a whole body in, on disk, before the first line of ours runs. So the limit stands outside of it: a body
that says it is too long is refused unread, and one that turns out to be is cut off there. What a page takes exactly is
its own matter; this is the bound for strangers.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from django.conf import settings

from agents.api.parsers import FORM_OVERHEAD
from agents.text.formats import MAX_BYTES
from agents.triggers.signing import MAX_BODY_BYTES
from lqops.web import SAFE_LABEL

HOOKS: Final = "/hooks/"
UPLOADS: Final = frozenset({"/api/v1/documents", "/admin/agents/document/add/"})
# What is a little too long is still refused by the page that it was meant for, in its own words.
A_LITTLE: Final = 1_024
LARGEST_LENGTH: Final = 18  # digits; no need to read more of them

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def limit_of(path: str) -> int:
    if path.startswith(HOOKS):
        return MAX_BODY_BYTES + A_LITTLE
    if path in UPLOADS:
        return MAX_BYTES + FORM_OVERHEAD
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + FORM_OVERHEAD


class AsgiBodies:
    """An ASGI application whose requests have bounded bodies."""

    def __init__(self, application: AsgiApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, given_id = scope["path"], headers.get(b"x-request-id", "")
        limit = limit_of(path)
        if _declared(headers.get(b"content-length", "")) > limit:
            await _answer(send, path, limit, given_id)
            return
        body = _Body(receive, limit)
        await self._application(scope, body.receive, send)
        if body.is_cut_off:
            await _answer(send, path, limit, given_id)


class _Body:
    """Hands on what comes in, up to the limit. Beyond it the sender counts as gone, so that nobody goes on reading."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self.is_cut_off = False

    async def receive(self) -> Message:
        if self.is_cut_off:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.is_cut_off = True
            return {"type": "http.disconnect"}
        return message


def wsgi_bodies(application: WsgiApp) -> WsgiApp:
    """The same for WSGI, where no body is longer than it says it is."""

    def bounded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        limit = limit_of(path)
        if _declared(environ.get("CONTENT_LENGTH") or "") <= limit:
            return application(environ, start_response)
        headers, body = _refusal(path, limit, environ.get("HTTP_X_REQUEST_ID", ""))
        start_response("413 Content Too Large", headers)
        return [body]

    return bounded


def _declared(length: str) -> int:
    digits = length.strip()
    if not (digits.isascii() and digits.isdigit()):
        return 0  # servers refuse a length that is none
    return int(digits) if len(digits) <= LARGEST_LENGTH else 10**LARGEST_LENGTH


async def _answer(send: Send, path: str, limit: int, given_id: str) -> None:
    headers, body = _refusal(path, limit, given_id)
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": 413, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _refusal(path: str, limit: int, given_id: str) -> tuple[list[tuple[str, str]], bytes]:
    request_id = given_id if SAFE_LABEL.fullmatch(given_id) else uuid.uuid4().hex
    message = f"The request is larger than the {limit} bytes that are taken here at once."
    kind, body = "text/plain; charset=utf-8", f"{message} Send fewer or smaller files.\n".encode()
    if path.startswith(("/api/", HOOKS)):
        told = {"code": "too_large", "message": message, "detail": None, "request_id": request_id}
        kind, body = "application/json", json.dumps(told).encode()
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(body)),
        "Connection": "close",  # what is still on its way is not waited for
        "X-Content-Type-Options": "nosniff",
        "X-Request-ID": request_id,
    }
    return list(headers.items()), body
