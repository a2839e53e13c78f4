"""Who is asking: the user of an API key, or of a signed-in browser. A key that opens nothing is told nothing more.

A wrong key is refused at once and never falls back to the browser's session.
"""

from typing import Any, Final, cast

from django.conf import settings
from django.contrib.auth.models import User
from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from agents.api.errors import NotOptedIn, ScopeMissing
from agents.ask.fast_paths import scope_in_chat
from agents.conf import clock
from agents.models import ApiKey, Profile
from agents.people.access import demand_start
from agents.people.keys import Scope, api_key_verify

SCHEME: Final = b"bearer"


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer lqk_…`."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        scheme, _, given = authentication.get_authorization_header(request).partition(b" ")
        if scheme.lower() != SCHEME:
            return None
        # latin-1 reads any byte; what is not ASCII is then refused like every other wrong key.
        key = api_key_verify(given.strip().decode("latin-1"), now=clock())
        if key is None:
            raise AuthenticationFailed("The key is unknown, expired or revoked, or its user is not active.")
        return key.user, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="lqops"'


# What a request needs before its view is entered: a user, the scope of its key, the user's opt-in and, to begin a
# session or set up what begins some, the permission to.
#
# Whose rows it may touch is not decided here: querysets hold nobody else's, so a stranger's id is not found.


class SignedIn(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            raise NotAuthenticated("Show an API key in the header Authorization, or sign in.")
        return True


class InScope(BasePermission):
    """A key does what its scopes say. A person in a browser is held by permissions alone."""

    def has_permission(self, request: Request, view: Any) -> bool:
        needed = scope_needed(request.method or "", view)
        demand_scope(needed, request)
        return True


class OptedIn(BasePermission):
    """Who has opted out changes nothing, but reads everything, and can always halt."""

    def has_permission(self, request: Request, view: Any) -> bool:
        free = scope_needed(request.method or "", view) == Scope.READ or _act(view) in view.always_allowed
        if not free:
            demand_opt_in(request)
        return True


class MayStart(BasePermission):
    """Sessions are begun, and triggers set up, by those whose role says so, as in the admin; to own what they would
    read is not enough."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if _act(view) in view.starts:
            demand_start(cast("User", request.user))
        return True


def scope_needed(method: str, view: Any) -> Scope:
    if method in SAFE_METHODS or _act(view) in view.changes_nothing:
        return Scope.READ
    if words := view.scope_of_words():
        return Scope(words)
    return Scope.DECIDE if _act(view) in view.decisions else Scope.WRITE


def demand_scope(needed: Scope, request: Request) -> None:
    if isinstance(request.auth, ApiKey) and needed not in request.auth.scopes:
        raise ScopeMissing(needed)


def demand_opt_in(request: Request) -> None:
    if not Profile.objects.filter(user=request.user.pk, opted_in=True).exists():
        raise NotOptedIn


def demand_scope_in_chat(text: str, request: Request) -> None:
    """What a message asks for may need another scope than its address: to look, or to decide."""
    demand_scope(Scope(scope_in_chat(text)), request)


def _act(view: Any) -> str:
    """The name of the action, or of the method on a view without actions."""
    act: str = getattr(view, "action", None) or view.request.method.lower()
    return act


# How often one user may ask. Counted in the memory of each web process: with N processes a user gets up to N times
# it.
#
# This keeps a client that runs wild from crowding out others. It guards no money and no approval: those are decided
# in the database.


class PerUser(SimpleRateThrottle):
    """One rate for reading, one for everything else, and one for views that name their own in `throttle_kind`."""

    def __init__(self) -> None:
        """The rate depends on the request, so it is read when there is one."""

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = getattr(view, "throttle_kind", "") if request.method == "POST" else ""
        self.scope = kind or ("read" if request.method in {"GET", "HEAD"} else "write")
        self.rate = settings.LQOPS_API_RATES[self.scope]
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str:
        return self.cache_format % {"scope": self.scope, "ident": request.user.pk}
