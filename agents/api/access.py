"""Access to the API: API keys, permissions and rate limits.

Whose rows a request may touch is not decided here: querysets hold only the user's own rows, so another user's id is
not found.
"""

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agents.api.errors import NotOptedIn, ScopeMissing
from agents.conf import clock
from agents.models import ApiKey, Profile
from agents.people.access import acting_by, require_start_permission
from agents.people.keys import Scope, api_key_verify

SCHEME: Final = b"bearer"


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer lqk_…`. A wrong key is refused and never falls back to the browser's session."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        scheme, _, given = authentication.get_authorization_header(request).partition(b" ")
        if scheme.lower() != SCHEME:
            return None
        # latin-1 decodes any byte; a key that is not ASCII is then refused like every other wrong key.
        key = api_key_verify(given.strip().decode("latin-1"), now=clock())
        if key is None:
            raise AuthenticationFailed("The key is unknown, expired or revoked, or its user is not active.")
        return acting_by(key), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="lqops"'


# --- Permissions ---


class Access(BasePermission):
    """Sign-in, the scope of the key, the user's opt-in and the permission to start sessions, in this order.

    A signed-in browser has all scopes. Reading, halting and deciding need no opt-in. Starting sessions and setting up
    triggers needs the permission to, also for one's own rows.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            raise NotAuthenticated("Send an API key in the Authorization header, or sign in.")
        scope = scope_needed(request.method or "", view)
        require_scope(scope, request)
        if scope == Scope.WRITE and _act(view) not in view.always_allowed:
            require_opt_in(request)
        if _act(view) in view.starts:
            require_start_permission(request.user)
        return True


def scope_needed(method: str, view: Any) -> Scope:
    if method in SAFE_METHODS or _act(view) in view.changes_nothing:
        return Scope.READ
    if scope := view.scope_of_text():
        return Scope(scope)
    return Scope.DECIDE if _act(view) in view.decisions else Scope.WRITE


def has_scope(needed: Scope, request: Request) -> bool:
    return not isinstance(request.auth, ApiKey) or needed in request.auth.scopes


def require_scope(needed: Scope, request: Request) -> None:
    if not has_scope(needed, request):
        raise ScopeMissing(needed)


def has_opted_in(request: Request) -> bool:
    return Profile.objects.filter(user=request.user.pk, opted_in=True).exists()


def require_opt_in(request: Request) -> None:
    if not has_opted_in(request):
        raise NotOptedIn


def _act(view: Any) -> str:
    """The action of a viewset, or the HTTP method of a plain view."""
    act: str = getattr(view, "action", None) or view.request.method.lower()
    return act


# --- Rate limits ---


class UserRateThrottle(SimpleRateThrottle):
    """Requests per user: one rate for reads, one for writes, one for POSTs to views with a `throttle_kind`.

    Counted in the memory of each web process, so N processes allow up to N times the rate. This keeps one client from
    crowding out the others; it protects no money and no approval.
    """

    def __init__(self) -> None:
        """Set no rate yet: it depends on the request."""

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = getattr(view, "throttle_kind", "") if request.method == "POST" else ""
        self.scope = kind or ("read" if request.method in {"GET", "HEAD"} else "write")
        self.rate = settings.LQOPS_API_RATES[self.scope]
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": request.user.pk}
