"""Codes of an authenticator app, and people with one, for tests of signing in."""

import base64
import hmac
import struct
import time

from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.test import Client

from agents.conf import clock
from tests.factories import make_user

PASSWORD = "right-horse-battery"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
SIGN_IN, CODE, SETUP = "/login/", "/account/second-factor/authenticate/", "/account/second-factor/"
TOTP_SETUP, CONFIRM = "/account/second-factor/totp/activate/", "/account/confirm/"


def code_now(secret=SECRET):
    return format_hotp_value(hotp_value(secret, int(clock().timestamp()) // 30))


def totp(secret):
    """The code of the moment by RFC 6238, without the help of the product."""
    counter = struct.pack(">Q", int(time.time()) // 30)
    digest = hmac.digest(base64.b32decode(secret), counter, "sha1")
    offset = digest[-1] & 15
    return f"{(int.from_bytes(digest[offset : offset + 4]) & 0x7FFFFFFF) % 1_000_000:06}"


def wrong_code(secret=SECRET):
    return f"{(int(code_now(secret)) + 1) % 1_000_000:06}"


def make_person(username="ada", *, role="", factor=False, **fields):
    """A member of staff with a password, and with an app and recovery codes if wanted."""
    user = make_user(username=username, is_staff=True, **fields)
    user.set_password(PASSWORD)
    user.save()
    user.groups.set(Group.objects.filter(name=role))
    if factor:
        TOTP.activate(user, SECRET)
        RecoveryCodes.activate(user)
    return user


def enter_password(username="ada", *, client=None, password=PASSWORD, **data):
    client = client or Client()
    return client.post(SIGN_IN, {"login": username, "password": password, **data})


def enter_code(client, code):
    """Enter a code at another web process than the one before: allauth's memory of used codes is empty there."""
    cache.clear()
    return client.post(CODE, {"code": code})


def is_signed_in(client):
    return "_auth_user_id" in client.session
