"""Declared models: from the TOML file LQOPS_MODELS_FILE and from the variables LQOPS_MODEL_*.

Every error names the file, the model and the key. API keys are never read here: a model names the variable that holds
its key, and the provider reads it when it calls the model.
"""

import json
import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from agents.conf import clock
from agents.enums import Purpose
from agents.policy.costs import NotMoney, usd
from agents.policy.schedule import FALLBACK_SECONDS
from agents.types import FORM_PARTS, WIRE_FORMS
from lqops.default_prices import PACKAGE, default_prices
from lqops.env import Env

ROLES: Final = ("main", "small", "judges")  # that every installation fills
EMBEDDINGS: Final = "embeddings"  # the role of at most one model, which does nothing else
# Fields of a request that decide what is asked and what it may cost; `extra` may not set them.
OWN_FIELDS: Final = {
    "openai_compatible": frozenset({
        "best_of", "max_completion_tokens", "max_tokens", "messages", "model", "n", "response_format", "seed", "stop",
        "stream", "stream_options", "tool_choice", "tools",
    }),
    "anthropic": frozenset({
        "max_tokens", "messages", "model", "stop_sequences", "stream", "system", "thinking", "tool_choice", "tools",
    }),
    "openai_embeddings": frozenset({"encoding_format", "input", "model"}),
}  # fmt: skip
# Notional prices: the offline analyst costs nothing, but its runs show the money brakes at work.
OFFLINE: Final = {"provider": "offline", "input_usd": "3", "output_usd": "15", "overhead_tokens": 0}

LEAST_THINKING: Final = 1_024  # tokens; Anthropic's protocol takes no smaller budget
UNOPENED: Final = "unopened"  # a reply begins inside the thinking
_TEXT: Final = ((str,), "text")
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
CALL_SECONDS: Final = 290.0  # of one call with all its tries, unless total_seconds says otherwise
SKILL_SECONDS: Final = 180.0  # the longest timeout of a skill
MOST_ANSWER: Final = 1_000_000
MOST_WINDOW: Final = 100_000_000
_WHOLE: Final = ((int,), "a whole number")
_NUMBER: Final = ((int, float), "a number")
_KEYS: Final = {
    "provider": _TEXT,
    "url": _TEXT,
    "name": _TEXT,
    "key_env": _TEXT,
    "key_header": _TEXT,
    "input_usd": _TEXT,
    "output_usd": _TEXT,
    "cache_write_usd": _TEXT,
    "cache_read_usd": _TEXT,
    "prices_from": _TEXT,
    "overhead_tokens": _WHOLE,
    "context_window": _WHOLE,
    "max_tokens": ((int, dict), "a whole number, or a table with one for each purpose"),
    "reasoning": ((bool, int, str), "true, false, or as its provider takes it"),
    "concurrency": _WHOLE,
    **dict.fromkeys(WIRE_FORMS, _TEXT),
    "extra": ((dict,), "a table of request fields"),
    "connect_seconds": _NUMBER,
    "first_token_seconds": _NUMBER,
    "between_tokens_seconds": _NUMBER,
    "total_seconds": _NUMBER,
    "fallback": ((list,), "a list"),
    "replies": ((list,), "a list"),
}
_PRICES: Final = ("input_usd", "output_usd")
_REQUIRED: Final = {
    "openai_compatible": {"url", "input_usd", "output_usd"},
    "anthropic": {"url", "input_usd", "output_usd"},
    "openai_embeddings": {"url", "input_usd"},
    "offline": {"input_usd", "output_usd"},
    "scripted": {"input_usd", "output_usd", "replies"},
}


@dataclass(frozen=True)
class Models:
    """Declared models by name, and the models of each role."""

    declared: dict[str, dict[str, Any]]
    roles: dict[str, list[str]]


def configured_models(env: Env) -> Models:
    """Return the offline analyst, the models of the file and the model of the variables; the last one wins."""
    models = _with_all_roles("offline", dict(OFFLINE))
    if path := env.text("LQOPS_MODELS_FILE"):
        models = _merge(models, read_models_file(Path(path)))
    if url := env.text("LQOPS_MODEL_URL"):
        models = _merge(models, _from_variables(env, url))
    elif name := env.text("LQOPS_MODEL_NAME"):
        raise ImproperlyConfigured(f"LQOPS_MODEL_NAME={name!r} is set: set LQOPS_MODEL_URL to where it is served.")
    return models


def read_models_file(path: Path) -> Models:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImproperlyConfigured(f"LQOPS_MODELS_FILE={str(path)!r} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{path}: not a TOML file: {error}.") from error
    if unknown := sorted(content.keys() - {"models", "roles"}):
        raise ImproperlyConfigured(f"{path}: unknown table [{unknown[0]}]; use [models.<name>] and [roles].")
    declared = content.get("models", {})
    for name, entry in declared.items():
        _check(f"{path}: models.{name}", entry, name)
    roles = content.get("roles", {})
    return Models(declared, {role: [names] if isinstance(names, str) else list(names) for role, names in roles.items()})


def _from_variables(env: Env, url: str) -> Models:
    name = env.text("LQOPS_MODEL_NAME")
    if not name:
        raise ImproperlyConfigured("LQOPS_MODEL_URL is set: set LQOPS_MODEL_NAME to the model that is served there.")
    entry = {"provider": "openai_compatible", "url": url, "name": name, "key_env": "LQOPS_MODEL_KEY"}
    variables = {"input_usd": "LQOPS_MODEL_INPUT_USD", "output_usd": "LQOPS_MODEL_OUTPUT_USD"}
    entry |= {key: price for key, variable in variables.items() if (price := env.text(variable))}
    _add_default_prices(entry, name)
    for key, variable in variables.items():
        if key not in entry:
            raise ImproperlyConfigured(f"{variable} is not set: set the price of {name!r} per million tokens, or 0.")
    _check("LQOPS_MODEL_*", entry, name)
    return _with_all_roles(name, entry)


def _with_all_roles(name: str, entry: dict[str, Any]) -> Models:
    return Models({name: entry}, {role: [name] for role in ROLES})


def _merge(below: Models, above: Models) -> Models:
    models = Models(below.declared | above.declared, below.roles | above.roles)
    for role, names in models.roles.items():
        for name in names:
            if name not in models.declared:
                declared = ", ".join(sorted(models.declared))
                raise ImproperlyConfigured(f"roles.{role}: there is no model {name!r}; declared: {declared}.")
    for model, entry in models.declared.items():
        for name in entry.get("fallback", []):
            if name not in models.declared or name == model:
                others = ", ".join(sorted(models.declared.keys() - {model}))
                raise ImproperlyConfigured(
                    f"models.{model}.fallback: {name!r} is not another model; declared: {others}."
                )
    _check_embeddings(models)
    return models


def _check_embeddings(models: Models) -> None:
    """Refuse models that would be asked for what they cannot do. Vectors of two models do not compare."""
    embeds = {name for name, entry in models.declared.items() if entry["provider"] == "openai_embeddings"}
    for role, names in models.roles.items():
        for name in names:
            if (role == EMBEDDINGS) != (name in embeds):
                raise ImproperlyConfigured(
                    f"roles.{role}: {name!r} has provider {models.declared[name]['provider']!r}; the role "
                    f"{EMBEDDINGS} is for models of provider 'openai_embeddings', and they are for no other."
                )
    if len(models.roles.get(EMBEDDINGS, ())) > 1:
        raise ImproperlyConfigured(f"roles.{EMBEDDINGS}: name one model; vectors of two do not compare.")
    for model, entry in models.declared.items():
        if embeds.intersection(entry.get("fallback", ())) or (model in embeds and entry.get("fallback")):
            raise ImproperlyConfigured(f"models.{model}.fallback: a model for embeddings neither has nor is one.")


def _add_default_prices(entry: dict[str, Any], name: str) -> None:
    """Fill in the prices that are not declared, and where they come from, if the model is known."""
    if not entry.keys() >= set(_PRICES) and entry.get("provider") in FORM_PARTS:
        for key, value in default_prices(entry, name, now=clock()).items():
            entry.setdefault(key, value)


def _check(where: str, entry: object, name: str) -> None:
    if not isinstance(entry, dict):
        raise ImproperlyConfigured(f"{where} is not a table.")
    for key, value in entry.items():
        if key not in _KEYS:
            raise ImproperlyConfigured(f"{where}.{key} is not a known key; known: {', '.join(_KEYS)}.")
        types, words = _KEYS[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ImproperlyConfigured(f"{where}.{key} is {value!r}: it must be {words}.")
    _add_default_prices(entry, name)
    if entry.get("provider") == "openai_embeddings":
        entry.setdefault("output_usd", "0")
    _check_values(where, entry)


def _check_values(where: str, entry: dict[str, Any]) -> None:
    _check_form(where, entry)
    _check_sizes(where, entry)
    _check_reasoning(where, entry)
    required = _REQUIRED.get(entry.get("provider", ""))
    if required is None:
        raise ImproperlyConfigured(f"{where}.provider must be one of {', '.join(_REQUIRED)}.")
    if missing := sorted(required - entry.keys()):
        raise ImproperlyConfigured(
            f'{where}: {", ".join(missing)} is missing; prices are text, such as "0.15". '
            f"The package {PACKAGE}, if it is installed, does not know this model at this address."
        )
    _check_address(where, entry)
    for key in (key for key in entry if key.endswith("_usd")):
        try:
            usd(Decimal(entry[key]))
        except (InvalidOperation, NotMoney):
            raise ImproperlyConfigured(f"{where}: {key}={entry[key]!r} is not an amount of US dollars.") from None


def _check_form(where: str, entry: dict[str, Any]) -> None:
    provider = entry.get("provider", "openai_compatible")
    for part, values in WIRE_FORMS.items():
        if entry.get(part, values[0]) not in values:
            raise ImproperlyConfigured(f"{where}.{part} must be one of {', '.join(values)}.")
        if part in entry and part not in FORM_PARTS.get(provider, WIRE_FORMS):
            raise ImproperlyConfigured(f"{where}.{part}: not a key of provider {provider}; take it out.")
    extra = entry.get("extra", {})
    if own := sorted(extra.keys() & OWN_FIELDS.get(provider, frozenset())):
        raise ImproperlyConfigured(f"{where}.extra.{own[0]}: lqops sets this field of a request itself; take it out.")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{where}.extra cannot be sent as JSON: {error}.") from None


def _check_sizes(where: str, entry: dict[str, Any]) -> None:
    declared = entry.get("max_tokens", {})
    answers = declared if isinstance(declared, dict) else {"default": declared}
    if unknown := sorted(answers.keys() - {"default", *Purpose.values}):
        known = ", ".join(["default", *Purpose.values])
        raise ImproperlyConfigured(f"{where}.max_tokens.{unknown[0]} is not a purpose; known: {known}.")
    window = entry.get("context_window", MOST_WINDOW)
    sizes = {"context_window": (window, MOST_WINDOW)}
    sizes |= {f"max_tokens.{purpose}": (most, MOST_ANSWER) for purpose, most in answers.items()}
    for key, (size, most) in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= most:
            raise ImproperlyConfigured(f"{where}.{key} is {size!r}: it must be a whole number from 1 to {most}.")
    if (longest := max(answers.values(), default=0)) >= window:
        raise ImproperlyConfigured(
            f"{where}: max_tokens={longest} leaves no room for a question in context_window={window}."
        )


def _check_reasoning(where: str, entry: dict[str, Any]) -> None:
    reasoning = entry.get("reasoning", False)
    if isinstance(reasoning, bool):
        return
    if entry.get("provider") == "anthropic":
        if not isinstance(reasoning, int) or reasoning < LEAST_THINKING:
            raise ImproperlyConfigured(
                f"{where}.reasoning is {reasoning!r}: it must be true, false or tokens, from {LEAST_THINKING} on."
            )
    elif reasoning != UNOPENED:
        raise ImproperlyConfigured(f'{where}.reasoning is {reasoning!r}: it must be true, false or "{UNOPENED}".')


def _check_address(where: str, entry: dict[str, Any]) -> None:
    url = urlsplit(entry.get("url", "http://x"))
    if url.scheme not in {"http", "https"}:
        raise ImproperlyConfigured(f"{where}: url={entry['url']!r} does not start with http:// or https://.")
    if url.username is not None or url.password is not None or url.fragment:
        raise ImproperlyConfigured(f"{where}: url holds a user, a password or a #; name the key's variable in key_env.")
    if not _HEADER.fullmatch(entry.get("key_header", "Authorization")):
        raise ImproperlyConfigured(
            f"{where}.key_header={entry['key_header']!r} is no name of a header, such as api-key."
        )


def check_task_time(models: dict[str, dict[str, Any]], *, slice_seconds: float, task_seconds: float) -> None:
    """Refuse time limits that do not add up: a call that begins at the end of a slice must end before its task does."""
    for name, declared in models.items():
        asked = [name, *declared.get("fallback", [])]
        call = max(models[one].get("total_seconds", CALL_SECONDS) for one in asked)
        call += FALLBACK_SECONDS if len(asked) > 1 else 0
        needed = slice_seconds + call + SKILL_SECONDS
        if needed > task_seconds:
            raise ImproperlyConfigured(
                f"LQOPS_SLICE_SECONDS={slice_seconds:g} + total_seconds={call:g} of {_named(asked)} "
                f"+ {SKILL_SECONDS:g} for skills = {needed:g} seconds, more than LQOPS_TASK_SECONDS={task_seconds:g}: "
                "a worker would be stopped in the middle of a call. Raise LQOPS_TASK_SECONDS, or lower another one."
            )


def _named(models: list[str]) -> str:
    names = [repr(name) for name in models]
    return (
        f"model {names[0]}" if len(names) == 1 else f"{' or '.join(names)}, with {FALLBACK_SECONDS:g} for the change,"
    )
