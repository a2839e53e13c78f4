"""Who is asking: the user of an API key, or of a signed-in browser. A key that opens nothing is told nothing more.

A wrong key is refused at once and never falls back to the browser's session.
"""

from typing import Final

from django.contrib.auth.models import User
from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from agents.conf import clock
from agents.models import ApiKey
from agents.people.keys import api_key_verify

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
