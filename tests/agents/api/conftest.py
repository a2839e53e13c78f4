"""Fixtures of the API tests: users with keys, and empty rate counters."""

import pytest
from django.core.cache import cache

from agents.conf import clock
from agents.people.keys import Scope, api_key_create
from tests.factories import make_starter

from .contract import CheckedBrowser, CheckedClient


@pytest.fixture(autouse=True)
def _nobody_has_asked_yet():
    cache.clear()


def key_of(user, *scopes, expires_at=None):
    """A key as a client sends it; with all scopes by default."""
    _, secret = api_key_create(
        user=user, name="test", scopes=scopes or list(Scope), expires_at=expires_at, by=None, now=clock()
    )
    return secret


def client_of(user, *scopes):
    return client_with(key_of(user, *scopes))


def client_with(secret):
    client = CheckedClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


@pytest.fixture
def client():
    """A browser that checks answers of the API."""
    return CheckedBrowser()


@pytest.fixture
def person():
    return make_starter()


@pytest.fixture
def api(person):
    """A client with a key of `person` that has all scopes."""
    return client_of(person)
