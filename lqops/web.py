"""What every answer carries: a request id to find it again by, and a policy for what its page may load and run.

The id of the request at hand is in a context variable, for log lines and the record; whoever has the request reads its
X-Request-ID header, which is always there and always a safe label.
"""

import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from math import ceil
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from unfold.forms import AuthenticationForm as StaffForm

from agents.api.fields import FORM_OVERHEAD
from agents.conf import clock
from agents.guard import selftest
from agents.models import Installation
from agents.people.keys import sign_in_begin, sign_in_done
from agents.sessions.control_room import Health, health
from agents.text.formats import MAX_BYTES
from agents.triggers.signing import MAX_BODY_BYTES
from audit.context import current_request_id

SAFE_LABEL = re.compile(r"[\w.:-]{1,64}", re.ASCII)

_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self'{eval}; "
    "object-src 'none'; base-uri 'self'; frame-ancestors 'none'; form-action 'self'"
)
POLICY = _POLICY.format(eval="")
# The admin's script library compiles the expressions in its templates: its pages need eval, and no others get it.
ADMIN_POLICY = _POLICY.format(eval=" 'unsafe-eval'")


class RequestId(MiddlewareMixin):
    """Accepts the id that a proxy gave the request if it is a safe label, and makes one otherwise."""

    def process_request(self, request: HttpRequest) -> None:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request.META["HTTP_X_REQUEST_ID"] = given if SAFE_LABEL.fullmatch(given) else uuid.uuid4().hex
        current_request_id.set(request.META["HTTP_X_REQUEST_ID"])

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-ID"] = request.META["HTTP_X_REQUEST_ID"]
        current_request_id.set("")
        return response


class ContentSecurityPolicy(MiddlewareMixin):
    """Pages load and run what this site serves and nothing else. A view that set a policy of its own keeps it."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        match = request.resolver_match
        policy = ADMIN_POLICY if match is not None and "admin" in match.app_names else POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
        return response


# How many bytes a request may bring, judged before Django sees it and before anybody is asked who they are.
#
# Django takes a whole body in, on disk, before the first line of ours runs. So the limit stands outside of it: a body
# that says it is too long is refused unread, and one that turns out to be is cut off there. What a page takes exactly
# is its own matter; this is the bound for strangers.


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


# --- /healthz: can this installation do safe work right now? For probes and for people; it tells no secret ---
#
# 503 when the database cannot be read or lacks the row that every call needs. What an operator must mend (a halt, a
# suspended model, a lost worker, no ticker) is a red line in a 200: restarting the web process would mend none of it.


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    try:
        return JsonResponse(_state(health(clock())))
    except DatabaseError:
        return _unfit("The database cannot be read.")
    except Installation.DoesNotExist:
        return _unfit("The installation row is missing: run manage.py migrate.")


def _unfit(why: str) -> JsonResponse:
    return JsonResponse({"ok": False, "red": [why]}, status=503)


def _state(found: Health) -> dict[str, Any]:
    return {
        "ok": True,
        "database": "ok",
        "brakes": "armed" if selftest.is_armed() else "not tested in this process",
        "halted": found.halted,
        "suspended_models": list(found.suspended),
        "oldest_lease_until": _moment(found.oldest_lease_until),
        "ticker_done_at": _moment(found.ticker_done_at),
        "queued": found.queued,
        "oldest_queued_at": _moment(found.oldest_queued_at),
        "red": list(found.red),
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


# --- The two forms with which people sign in, each behind the brake on guessing passwords ---


class _Braked(AuthenticationForm):
    """Counts the try, then looks at the password. Where the try comes from is what the server says, not a header."""

    waits = False  # there were too many tries: the page says how long, instead of that the password is wrong

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password:
            return super().clean()
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        if wait := sign_in_begin(username=username, address=address, now=clock()):
            self.waits = True
            minutes = ceil(wait.total_seconds() / 60)
            raise ValidationError(f"Too many failed sign-ins. Try again in {minutes} minutes.", code="too_many")
        cleaned = super().clean()
        sign_in_done(username=username, address=address, now=clock())
        return cleaned


class SignIn(_Braked):
    """For everybody who has an account."""


class StaffSignIn(_Braked, StaffForm):  # type: ignore[misc]  # unfold ships no types
    """For the control room."""
