"""Single sign-on by OpenID Connect: whose account a signed token opens, and which roles its claims give.

A person is known by issuer and subject. The first time, a verified e-mail address finds the account, and opens it if it
can do nothing; any other account has to be proven once, by its own password or passkey or by an admin
(agents/people/identities.py). If there is none, one without any role is made, if a setting allows it. Roles come from a
claim only if a setting maps its values. Nobody becomes a superuser this way, and a second factor is asked for as after
a password.
"""

import hashlib
from datetime import datetime
from typing import Any, Final, NoReturn

import jwt
from allauth.account.internal.flows.manage_email import assess_unique_email
from allauth.account.signals import user_logged_in
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialAccount, SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from agents.accounts import user_record_saved
from agents.conf import clock
from agents.people.identities import (
    BY_ADDRESS,
    BY_SIGN_IN,
    PROOF_FOR,
    account_lock,
    accounts_with_email,
    canonical_email,
    link_record,
    link_wanted,
    needs_proof,
    resembles_account,
)
from agents.people.sign_ins import SSO, record_failure, sign_in_begin
from agents.tls import trust_in_requests
from lqops.oidc_config import Oidc
from lqops.sign_in_record import client_address

SIGNATURES: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"})
FAILED: Final = "The sign-in at the provider failed. Try again, or sign in with your password."
UNVERIFIED: Final = "The provider has not verified your e-mail address. Have it verified there, then try again."
AMBIGUOUS: Final = "Several accounts have your e-mail address. Ask an admin to give each its own."
INACTIVE: Final = "Your account is not active. Ask an admin."
UNCLEAR: Final = "Your e-mail address has letters that cannot be told from others. Ask an admin for an account."
PROVE: Final = (
    "An account has your e-mail address. Sign in to it here within 10 minutes, with its password or passkey; from then "
    "on {name} opens it. If it has none, ask an admin: Allow single sign-on, on your page under People."
)
LINKED: Final = "{name} opens this account from now on."
UNPROVEN: Final = "lqops_unproven_identity"  # in the browser's session
NO_ACCOUNT: Final = "You have no account here. Ask an admin to add one with your e-mail address."


# --- The token: always with a verified signature, and nothing but the token counts ---


class SignedTokenAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth ships no types
    """Reads who somebody is from the signed ID token alone."""

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> Any:
        claims = self.verified_claims(app, str(kwargs["response"].get("id_token") or ""))
        person = f"{claims['iss']}\0{claims['sub']}"
        claims["uid"] = hashlib.sha256(person.encode()).hexdigest()
        return self.get_provider().sociallogin_from_response(request, {"id_token": claims})

    def verified_claims(self, app: Any, id_token: str) -> dict[str, Any]:
        issuer = str(self.openid_config["issuer"])
        if issuer.rstrip("/") != _provider().issuer:
            raise OAuth2Error("The provider calls itself by another name than LQOPS_OIDC_ISSUER.")
        try:
            if jwt.get_unverified_header(id_token).get("alg") not in SIGNATURES:
                raise OAuth2Error("The token is not signed with a key of the provider.")
            claims: dict[str, Any] = jwtkit.verify_and_decode(
                credential=id_token,
                keys_url=self.openid_config["jwks_uri"],
                issuer=issuer,
                audience=app.client_id,
                lookup_kid=jwtkit.lookup_kid_jwk,
            )
        except (jwt.PyJWTError, LookupError) as error:
            raise OAuth2Error("The token cannot be read.") from error
        if not claims.get("sub"):
            raise OAuth2Error("The token names nobody.")
        return claims


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _view(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _view(OAuth2CallbackView, request, provider_id)


def _view(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    try:
        answer: HttpResponse = view.adapter_view(SignedTokenAdapter(request, provider_id))(request)
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    return answer


def _provider() -> Oidc:
    if settings.LQOPS_OIDC is None:
        raise Http404
    return settings.LQOPS_OIDC


# --- The account ---


class OidcAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    def get_requests_session(self) -> Any:
        trust_in_requests()
        return super().get_requests_session()

    def on_authentication_error(self, request: HttpRequest, provider: Any, **_: Any) -> NoReturn:
        refuse(request, FAILED)

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Find the account of somebody who comes for the first time, and refuse whoever may not come in."""
        if sociallogin.state.get("process") != "login":
            refuse(request, FAILED)
        claims = sociallogin.account.extra_data["id_token"]
        if not sociallogin.is_existing and (user := _found_by_email(request, claims)):
            _link(request, sociallogin, user)
        if sociallogin.is_existing:
            if not sociallogin.user.is_active:
                refuse(request, INACTIVE)
            roles_follow(sociallogin.user, claims)

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        email = str(sociallogin.account.extra_data["id_token"].get("email") or "")
        if not _provider().creates_users:
            refuse(request, NO_ACCOUNT)
        if email and (resembles_account(email=email) or assess_unique_email(email) is not True):
            refuse(request, UNCLEAR)
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        user_record_saved(user=user, added=True, fields=(), by=None, now=clock())
        roles_follow(user, sociallogin.account.extra_data["id_token"])
        return user


def refuse(request: HttpRequest, message: str) -> NoReturn:
    """Lead back to the sign-in page. Recorded, but not more often than tries from one address are allowed."""
    address = client_address(request)
    if sign_in_begin(username="", address=address, now=clock()) is None:
        record_failure(username="", what=SSO, address=address, now=clock())
    messages.error(request, message)
    raise ImmediateHttpResponse(HttpResponseRedirect(reverse("account_login")))


def _found_by_email(request: HttpRequest, claims: dict[str, Any]) -> User | None:
    email = str(claims.get("email") or "")
    if not email:
        return None
    if claims.get("email_verified") is not True:
        refuse(request, UNVERIFIED)
    if not canonical_email(email):
        refuse(request, UNCLEAR)
    users = accounts_with_email(email)
    if len(users) > 1:
        refuse(request, AMBIGUOUS)
    return users[0] if users else None


def _link(request: HttpRequest, sociallogin: Any, user: User) -> None:
    """Link an identity to the account of its address; one that has to be proven is kept until its next sign-in."""
    now = clock()
    if not user.is_active:
        refuse(request, INACTIVE)
    with transaction.atomic():
        closed = needs_proof(account_lock(user), now)  # of two identities that come at once, a consent opens to one
        if not closed:
            sociallogin.connect(request, user)
            link_record(user=user, identity=sociallogin.account.uid, way=BY_ADDRESS, now=now)
    if closed:
        _ask_for_proof(request, sociallogin, user, now)


def _ask_for_proof(request: HttpRequest, sociallogin: Any, user: User, now: datetime) -> NoReturn:
    link_wanted(user=user, address=client_address(request), now=now)
    logout(request)  # of whoever used this browser before
    account = sociallogin.account
    request.session[UNPROVEN] = {
        "user_id": user.pk,
        "provider": account.provider,
        "uid": account.uid,
        "extra_data": account.extra_data,
        "until": (now + PROOF_FOR).isoformat(),
    }
    messages.info(request, PROVE.format(name=_provider().name))
    following = f"?{urlencode({'next': sociallogin.state['next']})}" if sociallogin.state.get("next") else ""
    raise ImmediateHttpResponse(HttpResponseRedirect(reverse("account_login") + following))


def link_proven(request: HttpRequest, user: User, **sign_in: Any) -> None:
    """Link the identity of this browser to the account that it was kept from, once its owner has signed in to it."""
    kept = request.session.pop(UNPROVEN, None)
    if kept is None or "sociallogin" in sign_in or not settings.LQOPS_OIDC:
        return
    now = clock()
    claims = kept["extra_data"]["id_token"]
    if kept["user_id"] != user.pk or datetime.fromisoformat(kept["until"]) < now:
        return
    if accounts_with_email(str(claims["email"])) != [user]:
        return
    with transaction.atomic():
        identity = {"provider": kept["provider"], "uid": kept["uid"]}
        _, is_new = SocialAccount.objects.get_or_create(
            **identity, defaults={"user": user, "extra_data": kept["extra_data"]}
        )
        if not is_new:  # in another browser meanwhile
            return
        link_record(user=user, identity=kept["uid"], way=BY_SIGN_IN, now=now)
    messages.success(request, LINKED.format(name=settings.LQOPS_OIDC.name))


user_logged_in.connect(link_proven, dispatch_uid="lqops.oidc")


@transaction.atomic
def roles_follow(user: User, claims: dict[str, Any]) -> None:
    """Give and take the roles that the setting maps; roles that it does not name stay. Whoever has a role is staff."""
    mapped = _provider().roles
    if not mapped:
        return
    given = claims.get(_provider().role_claim) or []
    values = {given} if isinstance(given, str) else set(map(str, given))
    wanted = {role for value, role in mapped.items() if value in values}
    held = set(user.groups.filter(name__in=mapped.values()).values_list("name", flat=True))
    if wanted == held:
        return
    user.groups.remove(*Group.objects.filter(name__in=held - wanted))
    user.groups.add(*Group.objects.filter(name__in=wanted - held))
    user.is_staff = user.is_superuser or user.groups.exists()
    user.save(update_fields=["is_staff"])
    user_record_saved(user=user, added=False, fields=("groups", "is_staff"), by=None, now=clock())
