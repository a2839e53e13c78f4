"""Random bodies, queries and paths on every route never cause a server error."""

import json

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st
from rest_framework import serializers

from agents.api.fields import Body, OwnedRowField
from tests.factories import make_user

from .contract import CheckedClient
from .test_audit_trail import ACTS
from .world import make_world, routes, undone

pytestmark = pytest.mark.django_db

SENDING = [route for route in routes() if route.method in {"post", "patch"}]
READING = [route for route in routes() if route.method == "get"]
SHAPE = {"code", "message", "detail", "request_id"}
FEW = effort(
    max_examples=5,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MANY = effort(FEW, max_examples=40)

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["", " ", "\x00", "\u202e", "*", "%", "' OR 1=1 --", "0 6 * * 1", "60 * * * *", "../..", "{{7*7}}", "x" * 5_000,
     "1e999", "NaN", "-1", "0.00001", "9" * 30, "two years", "\U0001f600", "a\nb", "null", "&a [*a, *a]", "!!python/x"]
)  # fmt: skip
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**40])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS | st.just("\ud800")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def _no_rate_limit(settings):
    settings.LQOPS_API_RATES = dict.fromkeys(settings.LQOPS_API_RATES, "1000000/min")


def signed_in(user):
    """A client without a key: the requests are about content, and checking a key takes a fifth of their time."""
    client = CheckedClient(raise_request_exception=False)
    client.force_authenticate(user)
    return client


def kinds(kind=Body):
    return [kind, *(inner for child in kind.__subclasses__() for inner in kinds(child))]


def shaped(field, ids):
    """Values of about the right type for a field, so that they pass the first check."""
    if isinstance(field, Body):
        return st.fixed_dictionaries({}, optional={name: shaped(inner, ids) for name, inner in field.fields.items()})
    if isinstance(field, serializers.ListField):
        return st.lists(shaped(field.child, ids), max_size=3)
    if isinstance(field, serializers.ChoiceField):
        return st.sampled_from([*field.choices])
    forms = {
        OwnedRowField: st.sampled_from(ids),
        serializers.DictField: st.dictionaries(st.text(max_size=8), VALUES, max_size=4),
        serializers.BooleanField: st.booleans(),
        serializers.IntegerField: NUMBERS,
    }
    return next((form for kind, form in forms.items() if isinstance(field, kind)), TEXTS)


def bodies(route, world):
    """Anything; bodies shaped like those of the view; and a valid body with a few parts spoilt."""
    act = ACTS.get(route.name)
    good = act.body(world, world.rows.get(route.basename)) if act and callable(act.body) else (act and act.body) or {}
    good = {} if act and act.form != "json" else good
    ids = [str(row.public_id) for row in world.rows.values()]
    alike = st.one_of([shaped(kind(), ids) for kind in kinds() if kind.__module__ == route.module] or [VALUES])
    parts = st.dictionaries(st.sampled_from([*good] or ["x"]), VALUES | st.sampled_from(ids), min_size=1, max_size=2)
    spoilt = st.tuples(alike, parts).map(
        lambda both: {**good, **both[0], **both[1]} if isinstance(both[0], dict) else {}
    )
    return alike | parts.map(lambda odd: {**good, **odd}) | spoilt | VALUES


def test_random_bodies_cause_no_server_error(some):
    world = make_world(make_user(is_superuser=True))
    client = signed_in(world.owner)

    def attempts(route, address):
        @FEW
        @given(body=bodies(route, world))
        def attempt(body):
            answer = client.generic(route.method.upper(), address, json.dumps(body), content_type="application/json")
            assert answer.status_code < 500, (route, body, answer.content)
            if answer.status_code >= 400:
                assert answer.json().keys() == SHAPE, (route, body)

        return attempt

    for route in some(SENDING, 30):
        with undone():
            attempts(route, route.address(world))()


@pytest.mark.long
def test_random_bytes_cause_no_server_error():
    world = make_world()
    client = signed_in(world.owner)
    kinds = ["application/json", "application/yaml", "multipart/form-data; boundary=b", "text/plain", ""]

    @MANY
    @given(raw=st.binary(max_size=200), kind=st.sampled_from(kinds), route=st.sampled_from(SENDING))
    def attempt(raw, kind, route):
        answer = client.generic(route.method.upper(), route.address(world), raw, content_type=kind)
        assert answer.status_code < 500, (route, kind, raw, answer.content)

    attempt()


@pytest.mark.long
def test_random_queries_cause_no_server_error():
    world = make_world()
    client = signed_in(world.owner)
    known = [
        "page", "page_size", "status", "trigger", "agent", "project", "kind", "unread", "q", "collection", "limit",
        "outcome", "state", "session", "origin", "digest", "enabled", "paused", "trigger_kind",
    ]  # fmt: skip

    @MANY
    @given(query=st.dictionaries(st.sampled_from(known), TEXTS, max_size=3), route=st.sampled_from(READING))
    def attempt(query, route):
        answer = client.get(route.address(world), query)
        assert answer.status_code < 500, (route, query, answer.content)

    attempt()


def test_random_paths_cause_no_server_error():
    client = signed_in(make_world().owner)

    @MANY
    @given(path=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
    def attempt(path):
        assert client.get(f"/api/v1/{path}").status_code < 500, path

    attempt()
