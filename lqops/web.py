"""The web process around the pages: middleware, limits on request bodies and probes."""

import asyncio
import json
import logging
import re
import select
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.db import DatabaseError, Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agents.api.errors import DATABASE_AWAY, DATABASE_RETRY_SECONDS
from agents.api.fields import FORM_OVERHEAD
from agents.conf import clock
from agents.guard import selftest
from agents.models import Installation
from agents.sessions.control_room import Health, health
from agents.sessions.schema import missing_migrations, newer_migrations
from agents.text.formats.limits import MAX_BYTES
from agents.triggers.signing import MAX_BODY_BYTES
from audit import current_request_id
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

# --- Middleware ---

SAFE_REQUEST_ID: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; script-src 'self'{eval}; "
    "object-src 'none'; base-uri 'self'; frame-ancestors 'none'; form-action 'self'"
)
POLICY: Final = _POLICY.format(eval="")
# The admin's script library compiles the expressions in its templates, so its pages need eval.
ADMIN_POLICY: Final = _POLICY.format(eval=" 'unsafe-eval'")
IN_ADMIN: Final = "is_in_admin"  # set on requests for pages of other apps that are shown inside the admin
DATABASE_ERRORS: Final = (OperationalError, InterfaceError)
SLOT_SECONDS: Final = 30.0  # how long a request waits for its turn
# Requests that wait behind no others, by their path: halts, and probes, which must not hold up halts
HALTS: Final = re.compile(r"^/api/v1/(halt|sessions/[^/]+/halt)$|^/admin/(halt-everything|agents/.+/halt)/$")
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
RESERVED_SLOTS: Final = 2  # for each of them
KEPT_SECONDS: Final = 60.0  # how long a thread without a request keeps its connection
ANSWER_SECONDS: Final = 5.0  # how long a kept connection is waited for: as long as for a new one
_NO_TRANSACTION: Final = 0  # as libpq has it
_EMPTY_QUERY: Final = 0
HEALTH_SECONDS: Final = 1.0  # how long an answer of /healthz is kept


class RequestId(MiddlewareMixin):
    """Gives every request and its response an X-Request-ID; log lines and audit events read it from the context."""

    def process_request(self, request: HttpRequest) -> None:
        request.META["HTTP_X_REQUEST_ID"] = _request_id(request.META.get("HTTP_X_REQUEST_ID", ""))
        current_request_id.set(request.META["HTTP_X_REQUEST_ID"])

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-ID"] = request.META["HTTP_X_REQUEST_ID"]
        current_request_id.set("")
        return response


def _request_id(given: str) -> str:
    """Return the id that a proxy has set, if it is safe to log, or else a new one."""
    return given if SAFE_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


class ContentSecurityPolicy(MiddlewareMixin):
    """Lets pages load and run only what this site serves. A view may set a policy of its own."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        match = request.resolver_match
        in_admin = getattr(request, IN_ADMIN, match is not None and "admin" in match.app_names)
        policy = ADMIN_POLICY if in_admin else POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
        return response


class Compress(GZipMiddleware):
    """Compresses pages and answers for clients that take it; no streams, whose events must not wait for more."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if response.streaming else super().process_response(request, response)


class DatabaseUnavailable(MiddlewareMixin):
    """Answers 503 with Retry-After while the database does not answer: JSON to programs, a page to people."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return database_away(request, exception) if isinstance(exception, DATABASE_ERRORS) else None


def database_away(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("the database failed a request to %s: %s", request.path, redact_exception(error))
    return _later(request, DATABASE_AWAY)


def _later(request: HttpRequest, message: str) -> HttpResponse:
    """Answer 503 with Retry-After: JSON to programs, a page to people."""
    response: HttpResponse
    if request.path.startswith(PROGRAMS):
        request_id = request.META.get("HTTP_X_REQUEST_ID", "")
        error = {"code": "unavailable", "message": message, "detail": None, "request_id": request_id}
        response = JsonResponse(error, status=503)
    else:
        response = HttpResponse(render_to_string("503.html", {"message": message}), status=503)
    response["Retry-After"] = str(DATABASE_RETRY_SECONDS)
    return response


# --- A limit on requests at work, and so on database connections ---


class LimitedHandler(ASGIHandler):
    """Django's handler, with a limited number of requests at work at once in this process.

    Each request has a thread and a database connection of its own while it works. Others wait, after their bodies have
    come in; halts and probes have slots of their own. A slot and its connection are free again when the response is
    made: slow clients and open streams hold neither. The next request may have the same thread, and with it the open
    connection: to open one takes as long as many a page.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: list[_Thread] = []  # that have nothing to do; those that worked last are the next to work
        self._slots = asyncio.Semaphore(settings.LQOPS_WEB_CONNECTIONS)
        self._halts = asyncio.Semaphore(RESERVED_SLOTS)
        self._probes = asyncio.Semaphore(RESERVED_SLOTS)

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 as Django has it
        """Load all of it as synchronous, as views are: a request changes its thread once, and not at each of them."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        slots = self._slots_for(request.path)
        try:
            async with asyncio.timeout(SLOT_SECONDS):
                await slots.acquire()
        except TimeoutError:
            return _later(request, "Too many requests are being worked on. Try again.")
        work = asyncio.create_task(self._in_thread(request, slots))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # the client has left: what it has asked for is done all the same
            await asyncio.wait([work])
            raise

    async def _in_thread(self, request: HttpRequest, slots: asyncio.Semaphore) -> HttpResponseBase:
        thread = self._threads.pop() if self._threads else _Thread()
        try:
            return await thread.work(self._respond, request)
        finally:
            self._threads.append(thread)
            thread.rest(KEPT_SECONDS, self._threads)
            slots.release()

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        _try_connections()
        try:
            return self.get_response(request)
        finally:
            _keep_connections()

    def _slots_for(self, path: str) -> asyncio.Semaphore:
        if HALTS.search(path):
            return self._halts
        return self._probes if path in PROBES else self._slots


class _Thread:
    """A thread for one request after another, and the connections that it keeps."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="request")
        self._end: asyncio.TimerHandle | None = None

    async def work(self, respond: Callable[[HttpRequest], HttpResponseBase], request: HttpRequest) -> HttpResponseBase:
        if self._end is not None:
            self._end.cancel()
        return await sync_to_async(respond, thread_sensitive=False, executor=self._executor)(request)

    def rest(self, seconds: float, resting: list["_Thread"]) -> None:
        """End after so many seconds without a request."""

        def end() -> None:
            resting.remove(self)
            self._executor.submit(connections.close_all)
            self._executor.shutdown(wait=False)

        self._end = asyncio.get_running_loop().call_later(seconds, end)


def _keep_connections() -> None:
    """Keep the connections of this thread open, unless they are broken or in the middle of something."""
    for database in connections.all(initialized_only=True):
        database.close_at = None
        if database.in_atomic_block or database.closed_in_transaction:
            database.close()
            del connections[database.alias]
        else:
            database.close_if_unusable_or_obsolete()


def _try_connections() -> None:
    """Close connections that do not answer. Django would try them, too, but wait for a silent server for ever."""
    for database in connections.all(initialized_only=True):
        if database.vendor == "postgresql" and database.connection is not None and not _answers(database):
            database.close()


def _answers(database: BaseDatabaseWrapper) -> bool:
    """Return whether the server answers in time, and is in no transaction."""
    server = database.connection.pgconn
    try:
        with database.wrap_database_errors:
            if server.transaction_status != _NO_TRANSACTION:
                return False
            server.send_query(b"")
            answer = select.poll()
            answer.register(server.socket, select.POLLIN)
            if not answer.poll(1_000 * ANSWER_SECONDS):
                return False
            return all(result.status == _EMPTY_QUERY for result in iter(server.get_result, None))
    except Error:
        return False


# --- Limits on request bodies ---
#
# Django stores a whole body on disk before any view or permission check runs. So the limit is outside of Django: a body
# with a Content-Length above the limit is refused unread, and a longer one is cut off. Pages have lower limits of their
# own; this one holds for everybody, signed in or not.

HOOKS: Final = "/hooks/"
PROGRAMS: Final = ("/api/", HOOKS)
UPLOADS: Final = frozenset({"/api/v1/documents", "/admin/agents/document/add/"})
# A body slightly above the limit of a webhook still reaches its view, which explains the refusal.
MARGIN_BYTES: Final = 1_024

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def body_limit(path: str) -> int:
    if path.startswith(HOOKS):
        return MAX_BODY_BYTES + MARGIN_BYTES
    if path in UPLOADS:
        return MAX_BYTES + FORM_OVERHEAD
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + FORM_OVERHEAD


class AsgiBodyLimit:
    """An ASGI application that limits the bodies of its requests."""

    def __init__(self, application: AsgiApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = headers.get(b"x-request-id", "")
        limit = body_limit(scope["path"])
        if _declared_length(headers.get(b"content-length", "")) > limit:
            await _send_refusal(send, scope["path"], limit, request_id)
            return
        body = _LimitedBody(receive, limit)
        await self._application(scope, body.receive, send)
        if body.is_cut_off:
            await _send_refusal(send, scope["path"], limit, request_id)


class _LimitedBody:
    """Passes a body on, up to the limit. Beyond it, it reports that the client has disconnected."""

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


def _declared_length(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0  # servers refuse a Content-Length that is not a number


async def _send_refusal(send: Send, path: str, limit: int, given_id: str) -> None:
    request_id = _request_id(given_id)
    message = f"The request is larger than the limit of {limit} bytes."
    if path.startswith(PROGRAMS):
        error = {"code": "too_large", "message": message, "detail": None, "request_id": request_id}
        content_type = "application/json"
        body = json.dumps(error).encode()
    else:
        content_type = "text/plain; charset=utf-8"
        body = f"{message} Send fewer or smaller files.\n".encode()
    headers = {
        "content-type": content_type,
        "content-length": str(len(body)),
        "connection": "close",  # do not wait for the rest of the body
        "x-content-type-options": "nosniff",
        "x-request-id": request_id,
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 413, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


# --- /healthz and /readyz, for probes and people. They show no secret ---
#
# Healthy: 503 when the database cannot be read or lacks the installation row. What an operator must fix (a halt, a
# suspended model, a lost worker, no ticker) is a line in `red` of a 200: restarting the web process would not fix it.
# Ready: 503 while this process cannot serve requests, with the check that failed.


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer with the health of the installation, kept for a second: anybody may ask, as often as they like."""
    try:
        return JsonResponse(_health_lately())
    except DatabaseError:
        return _unavailable(_database_problem())
    except Installation.DoesNotExist:
        return _unavailable("The installation row is missing: run manage.py migrate.")


def _health_lately() -> dict[str, Any]:
    now = time.monotonic()
    if now - _health.get("made_at", float("-inf")) > HEALTH_SECONDS:
        _health.update(found=_health_data(health(clock())), made_at=now)
    found: dict[str, Any] = _health["found"]
    return found


_health: dict[str, Any] = {}


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    checks = {"database": "ok", "migrations": "ok"}
    try:
        missing, newer = missing_migrations(), newer_migrations()
    except DatabaseError:
        checks = {"database": "does not answer", "migrations": "not checked"}
    else:
        if missing:
            checks["migrations"] = f"run manage.py migrate; missing: {', '.join(missing)}"
        if newer:
            checks["migrations"] = f"a newer version has made them, and does not allow this one: {', '.join(newer)}"
    is_ready = set(checks.values()) == {"ok"}
    return JsonResponse({"ok": is_ready, "checks": checks}, status=200 if is_ready else 503)


def _database_problem() -> str:
    try:
        missing = missing_migrations()
    except DatabaseError:
        missing = []
    return "The database lacks migrations: run manage.py migrate." if missing else "The database cannot be read."


def _unavailable(problem: str) -> JsonResponse:
    return JsonResponse({"ok": False, "red": [problem]}, status=503)


def _health_data(found: Health) -> dict[str, Any]:
    return {
        "ok": True,
        "database": "ok",
        "brakes": "armed" if selftest.is_armed() else "not tested in this process",
        "halted": found.halted,
        "suspended_models": list(found.suspended),
        "models_away": [one.model for one in found.away],
        "oldest_lease_until": _moment(found.oldest_lease_until),
        "ticker_done_at": _moment(found.ticker_done_at),
        "queued": found.queued,
        "oldest_queued_at": _moment(found.oldest_queued_at),
        "red": list(found.red),
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
