"""Declared models: from the TOML file LQOPS_MODELS_FILE and from the variables LQOPS_MODEL_*.

Every error names the file, the model and the key. API keys are never read here: a model names the variable that holds
its key, and the provider reads it when it calls the model.
"""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from agents.conf import clock
from agents.policy import model_catalogue
from agents.policy.model_catalogue import (
    EMBEDDING_PROVIDER,
    PRICES,
    ModelError,
    Models,
    check_types,
    check_values,
    merged,
)
from agents.types import FORM_PARTS
from lqops.default_prices import PACKAGE, default_prices
from lqops.env import Env

# Roles of a model that is declared alone; chats take the main model.
ROLES: Final = ("main", "small", "judges")
# Notional prices: the offline analyst costs nothing, but its runs show the money brakes at work.
OFFLINE: Final = {"provider": "offline", "input_usd": "3", "output_usd": "15", "overhead_tokens": 0}


@contextmanager
def _at_start() -> Iterator[None]:
    """Turn an error of a declaration into one that keeps the process from starting."""
    try:
        yield
    except ModelError as error:
        raise ImproperlyConfigured(str(error)) from None


@_at_start()
def configured_models(env: Env) -> Models:
    """Return the offline analyst, the models of the file and the model of the variables; the last one wins."""
    models = _with_all_roles("offline", dict(OFFLINE))
    if path := env.text("LQOPS_MODELS_FILE"):
        models = merged(models, read_models_file(Path(path)))
    if url := env.text("LQOPS_MODEL_URL"):
        models = merged(models, _from_variables(env, url))
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
        with _at_start():
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


def _add_default_prices(entry: dict[str, Any], name: str) -> None:
    """Fill in the prices that are not declared, and where they come from, if the model is known."""
    if not entry.keys() >= set(PRICES) and entry.get("provider") in FORM_PARTS:
        for key, value in default_prices(entry, name, now=clock()).items():
            entry.setdefault(key, value)


def _check(where: str, entry: Any, name: str) -> None:
    check_types(where, entry)
    _add_default_prices(entry, name)
    if entry.get("provider") == EMBEDDING_PROVIDER:
        entry.setdefault("output_usd", "0")
    check_values(where, entry)
    if missing := [key for key in PRICES if key not in entry]:
        raise ModelError(
            f'{where}: {", ".join(missing)} is missing; prices are text, such as "0.15". '
            f"The package {PACKAGE}, if it is installed, does not know this model at this address."
        )


@_at_start()
def check_task_time(models: dict[str, dict[str, Any]], *, slice_seconds: float, task_seconds: float) -> None:
    """Refuse time limits that do not add up."""
    model_catalogue.check_task_time(models, slice_seconds=slice_seconds, task_seconds=task_seconds)
