"""The one error shape of the API: {"code", "message", "detail", "request_id"}. Never a traceback.

Errors of services carry their own HTTP status; errors of the framework are translated here. Texts are redacted, because
a message may quote the request.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions, status
from rest_framework.response import Response

from agents.definitions.schema import DefinitionError
from agents.exceptions import LqopsError
from audit.redaction import redact, redact_data

logger = logging.getLogger(__name__)

DATABASE_AWAY: Final = "The database did not answer in time. Try again."
DATABASE_RETRY_SECONDS: Final = 5
_TRANSLATED: Final[dict[type[Exception], tuple[int, str, str]]] = {
    Http404: (404, "not_found", "Not found."),
    exceptions.NotFound: (404, "not_found", "Not found."),
    PermissionDenied: (403, "not_allowed", "Not allowed."),
    RequestDataTooBig: (413, "too_large", "The request is larger than this installation accepts."),
    SuspiciousOperation: (400, "bad_request", "The request cannot be parsed."),
    MultiPartParserError: (400, "bad_request", "The form cannot be parsed."),
    UnreadablePostError: (400, "bad_request", "The request ended before it was complete."),
    OperationalError: (503, "unavailable", DATABASE_AWAY),
    InterfaceError: (503, "unavailable", DATABASE_AWAY),
}


class TooLarge(exceptions.APIException):
    """The body is larger than the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request is larger than the limit of {limit} bytes.")


class LengthMissing(exceptions.APIException):
    """A chunked body would be read as an empty one."""

    status_code = status.HTTP_411_LENGTH_REQUIRED
    default_code = "length_required"
    default_detail = "Send the body with a Content-Length header, not in chunks."


class NotOptedIn(exceptions.APIException):
    status_code = status.HTTP_403_FORBIDDEN
    default_code = "not_opted_in"
    default_detail = "Opt in first: PATCH /api/v1/me with opted_in true. Agents run only for users who opted in."


class ScopeMissing(exceptions.APIException):
    status_code = status.HTTP_403_FORBIDDEN
    default_code = "scope_missing"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This key does not have the scope {scope}.")


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """Turn an exception of a view into an error response."""
    request = context.get("request")
    number, code, message, detail = _describe(error)
    if number >= status.HTTP_500_INTERNAL_SERVER_ERROR:
        logger.error("API request failed: %s", type(error).__name__, exc_info=error)
    body = {
        "code": code,
        "message": redact(message),
        "detail": redact_data(detail),
        "request_id": request.META.get("HTTP_X_REQUEST_ID", "") if request is not None else "",
    }
    return Response(body, status=number, headers=_headers(error))


def _describe(error: Exception) -> tuple[int, str, str, dict[str, Any] | None]:
    """Status, code, message and detail of an error."""
    if isinstance(error, DefinitionError):
        problems = [problem.to_json() for problem in error.problems]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return 422, "invalid", f"{problems[0]['message']}{more}", {"problems": problems}
    if isinstance(error, LqopsError) and (number := getattr(error, "http_status", None)):
        return number, error.code, str(error), None
    if isinstance(error, exceptions.ValidationError):
        detail = error.detail if isinstance(error.detail, dict) else {"non_field_errors": error.detail}
        return 422, "invalid", f"Invalid: {', '.join(sorted(detail))}.", detail
    for kind, (number, code, message) in _TRANSLATED.items():
        if isinstance(error, kind):
            return number, code, message, None
    if isinstance(error, exceptions.APIException):
        return error.status_code, str(error.default_code), str(error.detail), None
    return 500, "server_error", "The server failed. The request id identifies the error in the log.", None


def _headers(error: Exception) -> dict[str, str]:
    headers = {}
    if auth := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = str(auth)
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait) + 1)
    if isinstance(error, (OperationalError, InterfaceError)):
        headers["Retry-After"] = str(DATABASE_RETRY_SECONDS)
    return headers
