"""What every answer carries: a request id to find it again by, and a policy for what its page may load and run.

The id of the request at hand is in a context variable, for log lines and the record; whoever has the request reads its
X-Request-ID header, which is always there and always a safe label.
"""

import re
import uuid

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

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
