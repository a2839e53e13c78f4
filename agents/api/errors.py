"""One answer for everything that goes wrong: {"code", "message", "detail", "request_id"}. Never a traceback.

What the services raise carries its own status; what the framework raises is translated here. Texts are redacted, since
a message may quote what was sent.
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

from agents.exceptions import LqopsError
from audit.redaction import redact, redact_data

logger = logging.getLogger(__name__)

WHOLE: Final = "non_field_errors"
_NAMED: Final[dict[type[Exception], tuple[int, str, str]]] = {
    Http404: (404, "not_found", "Not found."),
    exceptions.NotFound: (404, "not_found", "Not found."),
    PermissionDenied: (403, "not_allowed", "This is not allowed."),
    RequestDataTooBig: (413, "too_large", "The request is larger than this installation takes."),
    SuspiciousOperation: (400, "bad_request", "The request cannot be read."),
    MultiPartParserError: (400, "bad_request", "The form cannot be read."),
    UnreadablePostError: (400, "bad_request", "The request ended before it was complete."),
    OperationalError: (503, "unavailable", "The database did not answer in time; try again."),
    InterfaceError: (503, "unavailable", "The database did not answer in time; try again."),
}


class TooLarge(exceptions.APIException):
    """More was sent than is taken."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request is larger than the {limit} bytes that are taken here.")


class LengthMissing(exceptions.APIException):
    """A body of unknown length would be taken for none at all, and what it says for not said."""

    status_code = status.HTTP_411_LENGTH_REQUIRED
    default_code = "length_required"
    default_detail = "Send the body with its Content-Length, not in chunks."


class NotOptedIn(exceptions.APIException):
    status_code = status.HTTP_403_FORBIDDEN
    default_code = "not_opted_in"
    default_detail = "Opt in first (PATCH /api/v1/me with opted_in): agents run, and are set up, only for who wants it."


class ScopeMissing(exceptions.APIException):
    status_code = status.HTTP_403_FORBIDDEN
    default_code = "scope_missing"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This key does not have the scope {scope}.")


def answer_error(error: Exception, context: Mapping[str, Any]) -> Response:
    """What Django REST framework calls for every exception of a view."""
    request = context.get("request")
    number, code, message, detail = _described(error)
    if number >= status.HTTP_500_INTERNAL_SERVER_ERROR:
        logger.error("an API request failed: %s", type(error).__name__, exc_info=error)
    body = {
        "code": code,
        "message": redact(message),
        "detail": redact_data(detail),
        "request_id": request.META.get("HTTP_X_REQUEST_ID", "") if request is not None else "",
    }
    return Response(body, status=number, headers=_headers(error))


def _described(error: Exception) -> tuple[int, str, str, dict[str, Any] | None]:
    if isinstance(error, LqopsError):
        number = getattr(error, "http_status", None)
        return (number, error.code, str(error), None) if number else _fault()
    if isinstance(error, exceptions.ValidationError):
        detail = _by_field(error.detail)
        return 422, "invalid", _first_of(detail), detail
    for kind, (number, code, message) in _NAMED.items():
        if isinstance(error, kind):
            return number, code, message, None
    if isinstance(error, exceptions.APIException):
        return error.status_code, str(error.default_code), str(error.detail), None
    return _fault()


def _first_of(detail: dict[str, Any]) -> str:
    """Which fields are wrong; of a definition, its first problem and how many more there are."""
    problems = detail.get("problems")
    if not isinstance(problems, list) or not problems or not isinstance(problems[0], Mapping):
        return f"Something is not right: {', '.join(sorted(detail))}."
    more = len(problems) - 1
    return f"{problems[0].get('message', '')}{f' (and {more} more)' if more else ''}"


def _fault() -> tuple[int, str, str, None]:
    return 500, "server_error", "Something failed here; the request id finds it in the log.", None


def _by_field(detail: Any) -> dict[str, Any]:
    if isinstance(detail, dict):
        return {str(name): inner for name, inner in detail.items()}
    return {WHOLE: detail}


def _headers(error: Exception) -> dict[str, str]:
    found = {}
    if auth := getattr(error, "auth_header", None):
        found["WWW-Authenticate"] = str(auth)
    if wait := getattr(error, "wait", None):
        found["Retry-After"] = str(int(wait) + 1)
    return found
