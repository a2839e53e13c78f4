"""Declared models: from a file and from variables; errors name the file, the model and the key."""

import tomllib
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agents.ledger.prices import declared_price
from agents.policy.model_catalogue import CALL_SECONDS
from agents.providers.anthropic import Anthropic
from agents.providers.offline.provider import OfflineProvider
from agents.providers.openai_compat import OpenAICompatible
from agents.providers.openai_embeddings import OpenAIEmbeddings
from agents.providers.registry import _BUILDERS
from agents.providers.scripted import ScriptedProvider
from lqops.env import Env
from lqops.model_catalogue import check_task_time, configured_models, read_models_file

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples" / "models").glob("*.toml"))
KINDS = {
    "openai_compatible": OpenAICompatible,
    "openai_embeddings": OpenAIEmbeddings,
    "anthropic": Anthropic,
    "offline": OfflineProvider,
    "scripted": ScriptedProvider,
}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_file_loads_with_prices_and_providers(path, settings):
    models = configured_models(Env({"LQOPS_MODELS_FILE": str(path)}))
    settings.LQOPS_MODELS = models.declared
    for name, entry in models.declared.items():
        provider = _BUILDERS[entry["provider"]](name, entry)
        assert isinstance(provider, KINDS[entry["provider"]])
        assert declared_price(name, None).model == name
    assert set(models.roles) - {"embeddings"} == {"main", "small", "judges"}
    check_task_time(models.declared, slice_seconds=60, task_seconds=600)
    longest = max(entry.get("total_seconds", CALL_SECONDS) for entry in models.declared.values())
    with pytest.raises(ImproperlyConfigured, match=rf"= {60 + longest + 180:g} seconds, more than LQOPS_TASK_SECONDS="):
        check_task_time(models.declared, slice_seconds=60, task_seconds=60 + longest + 179)


def test_there_is_a_sample_for_every_kind_of_server():
    assert {path.stem for path in SAMPLES} >= {
        "anthropic", "azure", "bedrock", "gemini", "hosted", "litellm", "llama-cpp", "ollama", "openrouter",
        "rehearsal", "vertex", "vllm",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "task", "total"), [({}, 300, "= 530 seconds"), ({"total_seconds": 900}, 600, "= 1140 seconds")]
)
def test_time_limits_that_do_not_add_up_are_refused_with_the_sum(declared, task, total):
    said = rf"of model 'slow' \+ 180 for skills {total}, more than LQOPS_TASK_SECONDS={task}"
    with pytest.raises(ImproperlyConfigured, match=said):
        check_task_time({"slow": declared}, slice_seconds=60, task_seconds=task)


def test_a_fallback_must_be_another_declared_model_and_takes_time_to_change_to(tmp_path):
    models = {"main": {"fallback": ["other"]}, "other": {"total_seconds": 400}}
    check_task_time(models, slice_seconds=60, task_seconds=670)
    with pytest.raises(ImproperlyConfigured, match=r"'main' or 'other', with 30 for the change, .*= 670 seconds"):
        check_task_time(models, slice_seconds=60, task_seconds=669)
    path = tmp_path / "models.toml"
    for named in ("main", "nobody"):
        path.write_text(
            f'[models.main]\nprovider = "offline"\ninput_usd = "0"\noutput_usd = "0"\nfallback = ["{named}"]\n'
        )
        with pytest.raises(ImproperlyConfigured, match=rf"models.main.fallback: '{named}' is not another model"):
            configured_models(Env({"LQOPS_MODELS_FILE": str(path)}))


def test_offline_analyst_has_every_role_by_default():
    models = configured_models(Env({}))
    assert list(models.declared) == ["offline"]
    assert models.roles == {"main": ["offline"], "small": ["offline"], "judges": ["offline"]}


def test_variables_declare_a_model():
    models = configured_models(
        Env(
            {
                "LQOPS_MODEL_URL": "http://127.0.0.1:8080/v1",
                "LQOPS_MODEL_NAME": "local",
                "LQOPS_MODEL_INPUT_USD": "0",
                "LQOPS_MODEL_OUTPUT_USD": "0",
            }
        )
    )
    assert models.declared["local"]["key_env"] == "LQOPS_MODEL_KEY"
    assert models.roles["main"] == ["local"]


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("LQOPS_MODEL_NAME", "LQOPS_MODEL_NAME"),
        ("LQOPS_MODEL_INPUT_USD", "per million tokens"),
        ("LQOPS_MODEL_URL", "set LQOPS_MODEL_URL to where it is served"),
    ],
)
def test_missing_variable_is_named(missing, says):
    values = {
        "LQOPS_MODEL_URL": "http://127.0.0.1:8080/v1",
        "LQOPS_MODEL_NAME": "local",
        "LQOPS_MODEL_INPUT_USD": "0",
        "LQOPS_MODEL_OUTPUT_USD": "0",
    }
    del values[missing]
    with pytest.raises(ImproperlyConfigured, match=says):
        configured_models(Env(values))


GOOD = 'provider = "openai_compatible"\nurl = "http://x/v1"\ninput_usd = "1"\noutput_usd = "1"\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[models.a\n", "not a TOML file"),
        ("[models]\na = 3\n", "models.a is not a table"),
        ('[models.a]\nprovider = "magic"\n', "provider must be one of"),
        ("[models.a]\nurl = 3\n", "models.a.url is 3: it must be text"),
        ("[models.a]\ninput_usd = 0.15\n", "models.a.input_usd is 0.15: it must be text"),
        ("[models.a]\nconcurrency = true\n", "must be a whole number"),
        ('[models.a]\nschema_style = "xml"\n', "schema_style must be one of json_schema, json_object, off"),
        ('[models.a]\nsystem = "none"\n', "system must be one of message, first_user"),
        ('[models.a]\ntoken_limit = "limit"\n', "token_limit must be one of max_tokens, max_completion_tokens"),
        ('[models.a]\nextra = "x"\n', "extra is 'x': it must be a table of request fields"),
        ("[models.a.extra]\nmax_tokens = 3\n", "extra.max_tokens: lqops sets this field of a request itself"),
        ("[models.a.extra]\nsince = 2026-01-01\n", "extra cannot be sent as JSON"),
        (f'[models.a]\n{GOOD}key_header = "api key"\n', "key_header='api key' is no name of a header"),
        ("[models.a]\n" + GOOD.replace("http://x", "http://me:secret@x"), "url holds a user, a password"),
        ('[models.a]\ntotal_seconds = "long"\n', "must be a number"),
        ('[models.a]\nmax_tokens = "many"\n', "max_tokens is 'many': it must be a whole number, or a table"),
        ("[models.a]\nmax_tokens = 0\n", "max_tokens.default is 0: it must be a whole number from 1 to 1000000"),
        ("[models.a.max_tokens]\nchat = true\n", "max_tokens.chat is True: it must be a whole number"),
        ("[models.a.max_tokens]\nreading = 9\n", "max_tokens.reading is not a purpose; known: default, chat, judge"),
        ("[models.a]\ncontext_window = 0\n", "context_window is 0: it must be a whole number from 1"),
        ("[models.a]\nmax_tokens = 9\ncontext_window = 9\n", "max_tokens=9 leaves no room .* in context_window=9"),
        ('[models.a]\nreasoning = "deep"\n', "reasoning is 'deep': it must be true, false or \"unopened\""),
        ("[models.a]\nreasoning = 2000\n", 'reasoning is 2000: it must be true, false or "unopened"'),
        (
            '[models.a]\nprovider = "anthropic"\nreasoning = 9\n',
            "reasoning is 9: it must be true, false or tokens, from",
        ),
        ('[models.a]\nprovider = "anthropic"\nsystem = "message"\n', "system: not a key of provider anthropic"),
        ('[models.a]\nprovider = "anthropic"\n[models.a.extra]\nthinking = 1\n', "extra.thinking: lqops sets this"),
        (f'[models.a]\n{GOOD}cache_read_usd = "little"\n', "cache_read_usd='little' is not an amount"),
        ("[models.a]\ncolour = 3\n", "models.a.colour is not a known key"),
        ('[models.a]\nprovider = "openai_compatible"\n', "url is missing"),
        (f"[models.a]\n{GOOD}[roles]\nmain = 'b'\n", "there is no model 'b'"),
        (f"[models.a]\n{GOOD}[roles]\nchief = 'a'\n", "roles.chief is not a known role; known: main, small, judges"),
        (f"[models.a]\n{GOOD}[rolls]\nmain = 'a'\n", r"unknown table \[rolls\]"),
        ("[models.a]\n" + GOOD.replace('input_usd = "1"', 'input_usd = "free"'), "not an amount"),
        ("[models.a]\n" + GOOD.replace('input_usd = "1"', 'input_usd = "-1"'), "not an amount"),
        ("[models.a]\n" + GOOD.replace("http://", "ftp://"), "does not start with http"),
    ],
)
def test_mistake_in_the_file_is_named_with_its_place(content, says, tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(content)
    with pytest.raises(ImproperlyConfigured, match=says):
        configured_models(Env({"LQOPS_MODELS_FILE": str(path)}))


@pytest.mark.parametrize(
    "declared",
    ["max_tokens = 1\ncontext_window = 2\n", 'provider = "anthropic"\nreasoning = 1024\n', "max_tokens = 1000000\n"],
)
def test_smallest_and_largest_values_are_taken(declared, tmp_path):
    path = tmp_path / "models.toml"
    rest = GOOD.partition("\n")[2] if "provider" in declared else GOOD
    path.write_text(f"[models.a]\n{rest}{declared}")
    assert read_models_file(path).declared["a"]


def test_missing_file_is_named():
    with pytest.raises(ImproperlyConfigured, match=r"nowhere\.toml' cannot be read"):
        read_models_file(Path("nowhere.toml"))


def test_what_is_declared_of_a_reasoning_model_reaches_its_provider(tmp_path):
    path = tmp_path / "models.toml"
    for provider, reasoning in (("openai_compatible", '"unopened"'), ("anthropic", "4096"), ("anthropic", "true")):
        content = GOOD.replace("openai_compatible", provider)
        path.write_text(f"[models.a]\n{content}reasoning = {reasoning}\n")
        entry = read_models_file(path).declared["a"]
        assert _BUILDERS[provider]("a", entry).endpoint.reasoning == tomllib.loads(f"x = {reasoning}")["x"]


EMBEDDER = '[models.e]\nprovider = "openai_embeddings"\nurl = "http://127.0.0.1/v1"\ninput_usd = "0.02"\n'
OTHER = '[models.{name}]\nprovider = "{provider}"\nurl = "http://127.0.0.1/v1"\ninput_usd = "1"\noutput_usd = "1"\n'


def declared(tmp_path, text):
    path = tmp_path / "models.toml"
    path.write_text(text)
    return configured_models(Env({"LQOPS_MODELS_FILE": str(path)}))


def test_a_model_for_embeddings_needs_no_price_of_output(tmp_path):
    models = declared(tmp_path, f'{EMBEDDER}[roles]\nembeddings = "e"\n')
    assert models.roles["embeddings"] == ["e"]
    assert models.declared["e"]["output_usd"] == "0"


CHAT = OTHER.format(name="c", provider="openai_compatible")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{EMBEDDER}[roles]\nmain = "e"\n', "roles.main: 'e' has provider 'openai_embeddings'"),
        (f'{CHAT}[roles]\nembeddings = "c"\n', "roles.embeddings: 'c' has provider 'openai_compatible'"),
        (
            f'{EMBEDDER}{OTHER.format(name="f", provider="openai_embeddings")}[roles]\nembeddings = ["e", "f"]\n',
            "roles.embeddings: name one model",
        ),
        (f'{EMBEDDER}fallback = ["c"]\n{CHAT}', "models.e.fallback: a model for embeddings"),
        (f'{EMBEDDER}{CHAT}fallback = ["e"]\n', "models.c.fallback: a model for embeddings"),
        (f'{EMBEDDER}tools = "text"\n', "models.e.tools: not a key of provider openai_embeddings"),
        (f'{EMBEDDER}extra = {{ input = "x" }}\n', "models.e.extra.input: lqops sets this field"),
        ('[models.e]\nprovider = "openai_embeddings"\ninput_usd = "1"\n', "url is missing"),
    ],
)
def test_a_model_for_embeddings_does_nothing_else(tmp_path, text, reason):
    with pytest.raises(ImproperlyConfigured, match=reason):
        declared(tmp_path, text)
