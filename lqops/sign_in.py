"""Signing in: limits on tries, second factors and browser sessions, around the pages of django-allauth.

Whoever must have a second factor (agents/people/second_factor.py) reaches no page but those to set one up until they
have one and have used it in their session.
"""

import base64
import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from math import ceil
from typing import Any, Final

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.forms import LoginForm
from allauth.account.forms import ReauthenticateForm as PasswordForm
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.usersessions.adapter import DefaultUserSessionsAdapter
from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import urlencode
from unfold.settings import get_config

from agents.conf import clock
from agents.people.browser_sessions import browser_sessions_end
from agents.people.identities import resembles_account
from agents.people.second_factor import has_factor, must_have_factor
from agents.people.sign_ins import CODE, PASSWORD, code_begin, code_done, record_failure, sign_in_begin
from lqops.oidc_config import PROVIDER
from lqops.sign_in_record import client_address, record_factor
from lqops.web import DATABASE_ERRORS, IN_ADMIN, PROGRAMS, database_away

logger = logging.getLogger(__name__)

TOTP_SECONDS: Final = 30
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 shown for a client without an address, such as a proxy at a socket
RECENT: Final = timedelta(minutes=5)
TOO_MANY: Final = "too_many"


def _refuse(wait: timedelta, what: str) -> ValidationError:
    minutes = ceil(wait.total_seconds() / 60)
    return ValidationError(f"Too many failed {what}. Try again in {minutes} minutes.", code=TOO_MANY)


# --- Forms: each try is counted before it is checked ---


class SignInForm(LoginForm):  # type: ignore[misc]  # allauth ships no types
    """User name and password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].widget.attrs["autofocus"] = True

    def clean(self) -> Any:
        username = self.cleaned_data.get("login")
        if username is None or not self.cleaned_data.get("password"):
            return super().clean()
        address = client_address(self.request)
        if wait := sign_in_begin(username=username, address=address, now=clock()):
            raise _refuse(wait, "sign-ins")
        try:
            return super().clean()
        except ValidationError:
            record_failure(username=username, what=PASSWORD, address=address, now=clock())
            raise

    def login(self, request: HttpRequest, redirect_url: str | None = None) -> Any:
        response = super().login(request, redirect_url)
        _limit_session(request)  # after allauth has set its own, which every change in the session would renew
        return response


class _CountedCode:
    """A code from an app, or a recovery code. Each is good for one use."""

    user: User
    authenticator: Any

    def clean_code(self) -> str:
        if wait := code_begin(user=self.user, now=clock()):
            raise _refuse(wait, "codes")
        try:
            code = self._checked_code()
        except ValidationError:
            address = client_address(context.request)
            record_failure(username=self.user.username, what=CODE, address=address, now=clock())
            raise
        code_done(user=self.user)
        return code

    @transaction.atomic
    def _checked_code(self) -> str:
        code: str = super().clean_code()  # type: ignore[misc]  # the form's
        if self.authenticator.type == Authenticator.Type.TOTP and not _is_first_use(self.authenticator):
            raise ValidationError("This code was used already. Wait for the next one.", code="used")
        if self.authenticator.type == Authenticator.Type.RECOVERY_CODES:
            self.authenticator.refresh_from_db()
            left = len(self.authenticator.wrap().get_unused_codes())
            record_factor("factor.recovery_code_used", self.user, left=left)
        return code


class CodeForm(_CountedCode, AuthenticateForm):  # type: ignore[misc]  # allauth ships no types
    """The code at the sign-in."""


class ConfirmCodeForm(_CountedCode, ReauthenticateForm):  # type: ignore[misc]  # allauth ships no types
    """The code before a change of the account."""


class ConfirmPasswordForm(PasswordForm):  # type: ignore[misc]  # allauth ships no types
    """The password before a change of the account."""

    def clean_password(self) -> str:
        if wait := code_begin(user=self.user, now=clock()):
            raise _refuse(wait, "passwords")
        try:
            password: str = super().clean_password()
        except ValidationError:
            address = client_address(context.request)
            record_failure(username=self.user.username, what=PASSWORD, address=address, now=clock())
            raise
        code_done(user=self.user)
        return password


def _is_first_use(authenticator: Any) -> bool:
    """Mark the app's code of this half minute as used. All web processes see the mark; allauth's is in one alone."""
    now = clock()
    began = now - timedelta(seconds=now.timestamp() % TOTP_SECONDS)
    unused = Q(last_used_at__isnull=True) | Q(last_used_at__lt=began)
    return bool(Authenticator.objects.filter(unused, pk=authenticator.pk).update(last_used_at=now))


# --- Adapters: what differs from allauth's own behaviour ---


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    """Nobody signs up; sessions end at a fixed time; whoever has a second factor confirms changes with it."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": "That user name and password do not match. Both are case-sensitive.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request) or NO_ADDRESS

    def clean_username(self, username: str, shallow: bool = False) -> str:  # noqa: FBT001, FBT002 allauth's signature
        """For accounts that single sign-on makes: no name that reads like that of another account."""
        if not username.isascii() or (not shallow and resembles_account(username=username)):
            raise ValidationError("This name is not free.", code="username_taken")
        return str(super().clean_username(username, shallow))

    def login(self, request: HttpRequest, user: User) -> None:
        super().login(request, user)
        _limit_session(request)

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        """Home for staff; others have no page of the admin."""
        return reverse("admin:index" if admin.site.has_permission(request) else "usersessions_list")

    def get_signup_redirect_url(self, request: HttpRequest) -> str:
        """For accounts that single sign-on has made."""
        return self.get_login_redirect_url(request)

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        return [method for method in methods if method["id"].startswith("mfa_")] or methods

    def is_reauthentication_required(self, *, app: str, **more: Any) -> bool:
        """A sign-in of the last minutes is as good as a confirmation."""
        request = context.request
        records = get_authentication_records(request, request.user)
        is_recent = bool(records) and clock().timestamp() - records[-1]["at"] < RECENT.total_seconds()
        return bool(super().is_reauthentication_required(app=app, **more)) and not is_recent


def _limit_session(request: HttpRequest) -> None:
    request.session.set_expiry(clock() + timedelta(seconds=settings.SESSION_COOKIE_AGE))


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth ships no types
    """Secrets of factors are encrypted in the database, with a key made from LQOPS_SECRET_KEY."""

    def encrypt(self, text: str) -> str:
        return _cipher(settings.SECRET_KEY).encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return _cipher(settings.SECRET_KEY).decrypt(encrypted_text.encode()).decode()
        except InvalidToken:
            logger.exception("a second factor was encrypted with another LQOPS_SECRET_KEY; no code matches it")
            return base64.b32encode(secrets.token_bytes(20)).decode()  # a secret that nobody knows

    def get_totp_label(self, user: User) -> str:
        return user.username

    def generate_authenticator_name(self, user: User, type: Any) -> str:  # noqa: A002 allauth's name
        return f"Key {Authenticator.objects.filter(user_id=user.pk, type=type).count() + 1}"


@cache
def _cipher(secret_key: str) -> Fernet:
    key = salted_hmac("lqops.second_factor", "key", secret=secret_key, algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))


class SessionsAdapter(DefaultUserSessionsAdapter):  # type: ignore[misc]  # allauth ships no types
    """Signing out of the other browsers is recorded, and ends sessions that the list does not show as well."""

    def end_sessions(self, sessions: Sequence[Any]) -> None:
        request = context.request
        user = request.user
        browser_sessions_end(user=user, by=user, now=clock(), keep=request.session.session_key or "")


# --- Second factor before anything else ---

SETUP_PAGE: Final = "mfa_index"
OPEN_PREFIX: Final = "mfa_"
# What a session without the second factor that it needs can reach; every other page and the API are closed to it.
OPEN: Final = frozenset({
    *("account_login", "account_logout", "account_reauthenticate", "account_inactive", "admin:logout"),
    *("openid_connect_login", "openid_connect_callback"),
    *("healthz", "readyz", "metrics", "hook"),
})  # fmt: skip
NEEDS_FACTOR: Final = "Your role needs a second factor. Set one up, or confirm it, in a browser at {address}."


class SecondFactor(MiddlewareMixin):
    """Leads a session that lacks the second factor it needs to where it is set up or confirmed."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        name = request.resolver_match.view_name if request.resolver_match else ""
        if name in OPEN or name.startswith(OPEN_PREFIX):
            return None
        try:
            page = missing_step(request)
        except DATABASE_ERRORS as error:  # Django shows errors of middleware to no other middleware
            return database_away(request, error)
        return _lead(request, page) if page else None


def _lead(request: HttpRequest, page: str) -> HttpResponse:
    if request.path.startswith(PROGRAMS):
        message = NEEDS_FACTOR.format(address=reverse(page))
        request_id = request.META.get("HTTP_X_REQUEST_ID", "")
        error = {"code": "second_factor_required", "message": message, "detail": None, "request_id": request_id}
        return JsonResponse(error, status=403)
    following = f"?{urlencode({'next': request.get_full_path()})}" if request.method == "GET" else ""
    return HttpResponseRedirect(reverse(page) + following)


def missing_step(request: HttpRequest) -> str:
    """Return the page to which a session has to go first, by name; empty if it lacks nothing."""
    if not settings.LQOPS_SECOND_FACTOR_FOR:  # without it nobody is looked up
        return ""
    user = request.user
    if not isinstance(user, User) or not must_have_factor(user):
        return ""
    if not has_factor(user):
        return SETUP_PAGE
    records = get_authentication_records(request, user)
    return "" if any(record["method"] == "mfa" for record in records) else "mfa_reauthenticate"


# --- The frame of allauth's pages ---

ADMIN_FRAME: Final = "account/frame_admin.html"
PLAIN_FRAME: Final = "account/frame_plain.html"
ACCOUNT_PAGES: Final = ("account_", "mfa_", "usersessions_", "openid_connect_")
ENTRANCE_PAGES: Final = ("account_", "mfa_authenticate", "mfa_reauthenticate", "openid_connect_")


def page_frame(request: HttpRequest) -> dict[str, Any]:
    """Context of pages about one's account: inside the admin for staff who may use it, on their own for others."""
    name = request.resolver_match.view_name if request.resolver_match else ""
    if not name.startswith(ACCOUNT_PAGES):
        return {}
    missing = missing_step(request)
    shared = {"session_hours": settings.SESSION_COOKIE_AGE // 3_600, "needs_factor": missing == SETUP_PAGE}
    if missing or name.startswith(ENTRANCE_PAGES) or not admin.site.has_permission(request):
        return {"frame": PLAIN_FRAME, "colors": get_config()["COLORS"], **_sso(request), **shared}
    setattr(request, IN_ADMIN, True)
    return {"frame": ADMIN_FRAME, "title": "Your account", **admin.site.each_context(request), **shared}


def _sso(request: HttpRequest) -> dict[str, str]:
    """The button of single sign-on, if there is a provider. It leads to the same page as the password would."""
    if not settings.LQOPS_OIDC:
        return {}
    following = f"?{urlencode({'next': request.GET['next']})}" if request.GET.get("next") else ""
    link = reverse("openid_connect_login", kwargs={"provider_id": PROVIDER}) + following
    return {"sso_name": settings.LQOPS_OIDC.name, "sso_link": link}
