"""Single sign-on by OpenID Connect, as the environment describes it (docs/deployment.md)."""

import ipaddress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from lqops.env import Env

PROVIDER: Final = "sso"  # part of the address to which the provider sends people back
APPS: Final = ("allauth.socialaccount", "allauth.socialaccount.providers.openid_connect")
PACKAGES: Final = ("jwt", "requests", "oauthlib")
ROLES: Final = ("viewer", "operator", "approver", "admin")


@dataclass(frozen=True)
class Oidc:
    """A provider, and what its claims mean here."""

    issuer: str
    client_id: str
    client_secret: str
    name: str
    creates_users: bool
    role_claim: str
    roles: dict[str, str]

    def providers(self) -> dict[str, Any]:
        """The setting SOCIALACCOUNT_PROVIDERS of django-allauth."""
        app = {
            "provider_id": PROVIDER,
            "name": self.name,
            "client_id": self.client_id,
            "secret": self.client_secret,
            "settings": {"server_url": self.issuer, "oauth_pkce_enabled": True, "uid_field": "uid"},
        }
        return {"openid_connect": {"APPS": [app]}}


def configured_oidc(env: Env) -> Oidc | None:
    """Read the variables; None if no issuer is set."""
    if not env.text("LQOPS_OIDC_ISSUER"):
        return None
    issuer = env.web_address("LQOPS_OIDC_ISSUER", "")
    found = Oidc(
        issuer=issuer,
        client_id=env.text("LQOPS_OIDC_CLIENT_ID"),
        client_secret=env.optional_secret("LQOPS_OIDC_CLIENT_SECRET"),
        name=env.text("LQOPS_OIDC_NAME", "single sign-on"),
        creates_users=env.flag("LQOPS_OIDC_CREATE_USERS", default=False),
        role_claim=env.text("LQOPS_OIDC_ROLE_CLAIM", "groups"),
        roles=env.mapping("LQOPS_OIDC_ROLES"),
    )
    for fault, is_wrong in (
        (f"LQOPS_OIDC_ISSUER={issuer!r} must begin with https://.", not _is_safe(issuer)),
        ("LQOPS_OIDC_ISSUER needs LQOPS_OIDC_CLIENT_ID: the id of lqops at the provider.", not found.client_id),
        (
            "LQOPS_OIDC_ISSUER needs LQOPS_OIDC_CLIENT_SECRET, or LQOPS_OIDC_CLIENT_SECRET_FILE.",
            not found.client_secret,
        ),
        (f"LQOPS_OIDC_ROLES: each value is one of {', '.join(ROLES)}.", not _are_roles(found.roles)),
        ("LQOPS_OIDC_ISSUER needs the extra `oidc`: run pip install -e '.[oidc]' in the folder of lqops.", _is_bare()),
    ):
        if is_wrong:
            raise ImproperlyConfigured(fault)
    return found


def _is_safe(issuer: str) -> bool:
    """Plain HTTP is for a provider on this machine."""
    parts = urlsplit(issuer)
    if parts.scheme == "https":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def _are_roles(roles: dict[str, Any]) -> bool:
    return all(role in ROLES for role in roles.values())


def _is_bare() -> bool:
    return any(find_spec(package) is None for package in PACKAGES)
