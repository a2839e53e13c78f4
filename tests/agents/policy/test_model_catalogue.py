"""What is set of models over the file: what is merged, what is dropped, what is refused."""

import pytest

from agents.policy.model_catalogue import ANSWERED, Models, origin_of, overridden

SERVED = {"provider": "openai_compatible", "input_usd": "1", "output_usd": "2"}
BASE = Models(
    {
        "big": {
            **SERVED,
            "url": "https://a.example/v1",
            "key_env": "A_KEY",
            "key_header": "api-key",
            "cache_read_usd": "1",
            "prices_from": "contract",
            "overhead_tokens": 9,
            "max_tokens": 100,
        },
        "other": {**SERVED, "url": "http://10.0.0.1:8080/v1"},
        "offline": {"provider": "offline", "input_usd": "0", "output_usd": "0"},
    },
    {"main": ["big"], "small": ["other", "big"], "judges": ["offline", "big"]},
)
NEW = {"provider": "openai_compatible", "url": "https://b.example/v1"}


def applied(**rows):
    models, problems = overridden(BASE, rows)
    assert problems == {}
    return models


def refused(name="big", **row):
    models, problems = overridden(BASE, {name: row})
    assert models == BASE
    return problems[name]


def test_values_that_are_set_win_and_the_rest_is_the_files():
    found = applied(big={"max_tokens": 50, "context_window": 1_000}).declared["big"]
    assert found == {**BASE.declared["big"], "max_tokens": 50, "context_window": 1_000}
    assert BASE.declared["big"]["max_tokens"] == 100


@pytest.mark.parametrize(
    ("file", "row", "in_force"),
    [
        ({"default": 8, "judge": 2}, {"simulation": 3}, {"default": 8, "judge": 2, "simulation": 3}),
        ({"default": 8, "judge": 2}, {"judge": 5}, {"default": 8, "judge": 5}),
        ({"default": 8, "judge": 2}, 9, {"default": 9, "judge": 2}),
        (8, {"judge": 5}, {"default": 8, "judge": 5}),
    ],
)
def test_maximum_answers_are_merged_by_purpose(file, row, in_force):
    base = Models({**BASE.declared, "big": {**BASE.declared["big"], "max_tokens": file}}, BASE.roles)
    models, problems = overridden(base, {"big": {"max_tokens": row}})
    assert (models.declared["big"]["max_tokens"], problems) == (in_force, {})
    assert base.declared["big"]["max_tokens"] == file


def test_key_and_prices_of_the_file_stay_with_its_server():
    moved = applied(big={"url": "https://b.example/v1"}).declared["big"]
    assert moved == {**NEW, "overhead_tokens": 9, "max_tokens": 100, "gated": True}
    same = applied(big={"url": "https://a.example:443/v2"}).declared["big"]
    assert same == {**BASE.declared["big"], "url": "https://a.example:443/v2"}
    renamed = applied(big={"name": "huge"}).declared["big"]
    assert (renamed["key_env"], "input_usd" in renamed) == ("A_KEY", False)
    assert applied(big={"name": "big"}).declared["big"]["input_usd"] == "1"


def test_address_that_the_file_names_for_another_model_is_not_gated():
    assert "gated" not in applied(new={**NEW, "url": "http://10.0.0.1:8080/v2"}).declared["new"]
    assert applied(new={**NEW, "url": "http://10.0.0.1:8081/v2"}).declared["new"]["gated"]


@pytest.mark.parametrize(
    ("variable", "url", "is_allowed"),
    [
        ("LQOPS_MODEL_KEY_B", "https://b.example/v1", True),
        ("A_KEY", "https://a.example/v9", True),
        ("A_KEY", "https://b.example/v1", False),
        ("A_KEY", "http://a.example/v1", False),
        ("LQOPS_SECRET_KEY", "https://b.example/v1", False),
        ("LQOPS_MODEL_KEY", "https://b.example/v1", False),
        ("LQOPS_MODEL_KEY_FILE", "https://b.example/v1", False),
        ("LQOPS_MODEL_KEY_B_FILE", "https://b.example/v1", False),
        ("LQOPS_MODEL_KEY_b", "https://b.example/v1", False),
        ("", "https://b.example/v1", False),
    ],
)
def test_only_keys_of_models_can_be_sent_and_the_files_only_to_its_server(variable, url, is_allowed):
    models, problems = overridden(BASE, {"new": {**NEW, "url": url, "key_env": variable}})
    assert ("new" in models.declared) is is_allowed
    assert is_allowed or problems["new"].startswith("key_env is ")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"input_usd": "0"}, "input_usd cannot be set here, only in the models file"),
        ({"gated": False}, "gated is not a known key"),
        ({"provider": "anthropic"}, "provider is 'anthropic': leave it as the file says"),
        ({"url": 3}, "url is 3: it must be text"),
        ({"url": "https://[::1/v1"}, "url is not a valid address"),
        ({"url": "https://x:port/v1"}, "url is not a valid address"),
        ({"url": "https:///v1"}, "url names no host"),
        ({"url": "https://x/v1/chat/completions/"}, "url ends with /chat/completions; leave that out, lqops adds it"),
        ({"url": "https://me:pass@x/v1"}, "url holds a user, a password"),
        ({"max_tokens": 0}, "max_tokens.default is 0"),
        ({"context_window": 50}, "max_tokens=100 leaves no room"),
        ({"fallback": ["big"]}, "fallback: 'big' is not another model; declared: offline, other"),
        ({"roles": ["chief"]}, "roles is ['chief']: it must be a list of main, small, judges, console"),
        ({"roles": "main"}, "roles is 'main'"),
        ({"roles": []}, "roles: main would have no model"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_file_applies(row, says):
    assert refused(**row).startswith(says)


def test_model_of_its_own_needs_a_server_and_a_plain_name():
    assert refused("new", url="https://b.example/v1").startswith("provider must be one of")
    assert refused("new", provider="scripted").startswith("provider is 'scripted': it must be one of openai_compatible")
    assert refused("new", provider="anthropic") == "url is missing."
    assert refused("a model", **NEW).startswith("model: use letters, digits")
    assert refused("offline", url="https://b.example/v1").startswith("url: a model of provider offline has no server")


def test_role_that_is_set_replaces_the_files_and_judges_stand_side_by_side():
    assert applied(new={**NEW, "roles": ["main", "judges", "console"]}).roles == {
        "main": ["new"],
        "small": ["other", "big"],
        "judges": ["offline", "big", "new"],
        "console": ["new"],
    }
    assert applied(other={"roles": ["judges"]}).roles == {
        "main": ["big"],
        "small": ["big"],
        "judges": ["offline", "big", "other"],
    }
    assert applied(offline={"roles": []}, big={"roles": ["main"]}).roles["judges"] == []
    assert applied(big={"roles": ["main", "judges"]}).roles["judges"] == ["offline", "big"]


def test_two_models_cannot_have_the_same_single_role():
    models, problems = overridden(BASE, {"other": {"roles": ["main"]}, "new": {**NEW, "roles": ["main"]}})
    assert models.roles["main"] == ["new"]
    assert problems == {"other": "roles: main is set here for both new and other; take it from one first."}


def test_rows_may_name_each_other_and_one_that_cannot_be_used_takes_its_users_along():
    models, problems = overridden(BASE, {"a": {**NEW, "fallback": ["b"]}, "b": {**NEW, "fallback": ["a"]}})
    assert (problems, models.declared["a"]["fallback"]) == ({}, ["b"])
    models, problems = overridden(BASE, {"a": {**NEW, "fallback": ["b"]}, "b": {"url": "x"}})
    assert (models, set(problems)) == (BASE, {"a", "b"})


def test_origin_has_the_port_that_is_usual_for_its_scheme():
    assert origin_of("http://a.example/v1") == origin_of("http://A.example:80/x") == ("http", "a.example", 80)
    assert origin_of("https://a.example/v1") == origin_of("https://a.example:443") == ("https", "a.example", 443)


def test_origin_of_what_is_no_address_matches_nothing():
    assert origin_of("https://[") == ("", "https://[", None)
    assert origin_of("https://a.example/x") == origin_of("https://A.example:443/y")


EMBEDDER = {"provider": "openai_embeddings", "url": "https://b.example/v1"}


def test_a_model_for_embeddings_is_added_and_taken_away_again():
    assert applied(new={**EMBEDDER, "roles": ["embeddings"]}).roles["embeddings"] == ["new"]
    base = Models({**BASE.declared, "e": {**EMBEDDER, "input_usd": "1"}}, {**BASE.roles, "embeddings": ["e"]})
    models, problems = overridden(base, {"e": {"roles": []}})
    assert (models.roles["embeddings"], problems) == ([], {})
    models, problems = overridden(base, {"f": {**EMBEDDER, "roles": ["embeddings"]}})
    assert (models.roles["embeddings"], problems) == (["f"], {})


def test_embeddings_and_chats_are_asked_of_different_models():
    assert "'big' has provider 'openai_compatible'" in refused(roles=["main", "small", "judges", "embeddings"])
    assert "'new' has provider 'openai_embeddings'" in refused("new", **EMBEDDER, roles=["judges"])
    assert "neither has nor is one" in refused("new", **EMBEDDER, fallback=["big"])
    models, problems = overridden(BASE, {"new": EMBEDDER, "big": {"fallback": ["new"]}})
    assert "neither has nor is one" in problems["big"]
    assert "new" in models.declared


def test_what_is_wrong_in_the_file_does_not_refuse_a_change_of_another_model():
    base = Models(BASE.declared, {**BASE.roles, "embeddings": ["other"]})
    models, problems = overridden(base, {"big": {"max_tokens": 500}})
    assert (models.declared["big"]["max_tokens"], problems) == (500, {})


def test_longest_answer_of_vectors_is_not_asked_for_and_breaks_no_model_that_has_one():
    assert "embedding" not in ANSWERED
    assert applied(big={"max_tokens": {"default": 50, "embedding": 5}}).declared["big"]["max_tokens"]["default"] == 50
