"""Redaction of JSON-shaped data, and the marker test."""

import datetime as dt
import random
from collections import namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from audit.redaction import contains_marker, redact, redact_data
from audit.redaction.named import Strength, name_strength
from audit.redaction.redactor import MARKER
from tests.audit.test_redaction_corpus import VENDORS, made
from tests.table import every_row

Pair = namedtuple("Pair", "name value")
CREDENTIAL_NAMES = [
    "password",
    "Password",
    "PASSWORD",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apiKey",
    "API-KEY",
    "api.key",
    "authorization",
    "Authorization",
    "access_key",
    "accessKeyValue",
    "client_secret",
    "clientSecret",
    "private_key",
    "privateKey",
    "cookie",
    "Set-Cookie",
    "x-api-key",
    "db.password",
    "SPRING_DATASOURCE_PASSWORD",
    "refresh-token",
    "sessionToken",
    "pwd",
    "passphrase",
    "secretAccessKey",
    "signing_key",
    "password_hash",
]
OTHER_NAMES = [
    "max_tokens",
    "total_tokens",
    "token_budget",
    "tokens_in",
    "tokens_out",
    "token_count",
    "prompt_tokens",
    "token_type",
    "secret_name",
    "password_policy",
    "key",
    "cache_key",
    "public_key",
    "primary_key",
    "idempotency_key",
    "author",
    "compass",
    "passenger",
    "secretary",
    "tokenizer",
    "keyboard",
    "monkey",
    "next_page_token",
    "private_key_id",
    "password_reset_timeout",
    "$secret",
    "path",
    "status",
]


def sample(kind: str, seed: int = 5) -> str:
    return made(VENDORS[kind], random.Random(seed))


@every_row("name", CREDENTIAL_NAMES)
def test_masks_the_value_of_a_credential_name(name: str) -> None:
    result = redact_data({name: "plain words", "other": "plain words"})
    assert MARKER.fullmatch(result[name])
    assert result["other"] == "plain words"


@every_row("name", OTHER_NAMES)
def test_leaves_other_names_alone(name: str) -> None:
    assert redact_data({name: "plain words"}) == {name: "plain words"}


@every_row(
    "value",
    [
        None,
        True,
        False,
        0,
        17,
        2.5,
        "",
        "   ",
        "****",
        "${DB_PASSWORD}",
        "{{ token }}",
        "$TOKEN",
        {"$secret": "db-main"},
        [],
        {},
    ],
)
def test_leaves_templates_and_markers(value: Any) -> None:
    assert redact_data({"password": value}) == {"password": value}


def test_masks_every_string_inside_a_credential() -> None:
    result = redact_data({"token": {"value": "plain", "n": 1, "more": ["words", ("a", None)]}})
    assert MARKER.fullmatch(result["token"]["value"])
    assert result["token"]["n"] == 1
    assert MARKER.fullmatch(result["token"]["more"][0])
    assert result["token"]["more"][1][1] is None


def test_weak_names_need_a_random_value() -> None:
    value = made("{A24}7", random.Random(1))
    assert MARKER.fullmatch(redact_data({"algolia_key": value})["algolia_key"])
    assert redact_data({"algolia_key": "plain"}) == {"algolia_key": "plain"}


def test_masks_strings_and_keys_by_their_text() -> None:
    token = sample("github-pat")
    result = redact_data([{token: f"see {token}"}, (token,), {1: token}])
    assert token not in repr(result)
    assert isinstance(result[1], tuple)
    assert contains_marker(result)


def test_keeps_numbers_dates_ids_and_named_tuples() -> None:
    value = {
        "cost": Decimal("1.50"),
        "at": dt.datetime(2026, 5, 1, tzinfo=dt.UTC),
        "id": UUID(int=7),
        "pair": Pair("a", 2),
    }
    result = redact_data(value)
    assert result == value
    assert result is not value
    assert isinstance(result["pair"], Pair)


def test_bounds_depth_and_cycles_and_shared_parts() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    assert contains_marker(redact_data(deep))
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    assert contains_marker(redact_data(cycle))
    assert not contains_marker(cycle)
    shared: Any = ["x"]
    for _ in range(60):
        shared = [shared, shared]
    assert redact_data(shared)[0][1][0]


def test_makes_new_containers() -> None:
    inner: list[Any] = ["a"]
    value = {"x": inner}
    result = redact_data(value)
    result["x"].append("b")
    assert inner == ["a"]


@every_row("value", ["x", 5, None, [], {"a": ("b",)}, b"bytes"])
def test_finds_no_marker_where_there_is_none(value: Any) -> None:
    assert not contains_marker(value)


def test_finds_markers_in_values_and_keys() -> None:
    found = redact("password=" + made("{A12}1", random.Random(2)))
    assert contains_marker(found)
    assert contains_marker({"a": [{"b": (found,)}]})
    assert contains_marker({found: 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*CREDENTIAL_NAMES, *OTHER_NAMES, "a", "b"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_redacting_data_twice_changes_nothing(value: Any) -> None:
    once = redact_data(value)
    assert redact_data(once) == once


def test_names_are_read_in_any_spelling() -> None:
    assert name_strength("dbPassword") is Strength.PASSWORD
    assert name_strength("X-Api-Key") is Strength.TOKEN
    assert name_strength("ALGOLIA_KEY") is Strength.WEAK
    assert name_strength("SECRET_KEY_BASE") is Strength.TOKEN
    assert name_strength("") is Strength.NONE
