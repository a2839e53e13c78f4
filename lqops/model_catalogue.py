"""Which models there are, from a TOML file and from three variables. Every error names the file, the model and the key.

Keys (secrets) are never read here: a model names the variable that holds its key, and the provider reads it when it
asks.
"""

import tomllib
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from agents.policy.costs import NotMoney, usd
from agents.types import SCHEMA_STYLES
from lqops.env import Env

# Notional prices: the offline analyst costs nothing, and yet the money brakes can be seen at work.
OFFLINE: Final = {"provider": "offline", "input_usd": "3", "output_usd": "15", "overhead_tokens": 0}

_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "provider": str,
    "url": str,
    "name": str,
    "key_env": str,
    "input_usd": str,
    "output_usd": str,
    "overhead_tokens": int,
    "concurrency": int,
    "schema_style": str,
    "token_limit": str,
    "connect_seconds": (int, float),
    "first_byte_seconds": (int, float),
    "between_bytes_seconds": (int, float),
    "total_seconds": (int, float),
    "replies": list,
}
_NEEDED: Final = {
    "openai_compatible": {"url", "input_usd", "output_usd"},
    "offline": {"input_usd", "output_usd"},
    "scripted": {"input_usd", "output_usd", "replies"},
}


@dataclass(frozen=True)
class Models:
    """The declared models by name, and which of them plays which part."""

    declared: dict[str, dict[str, Any]]
    roles: dict[str, list[str]] = field(default_factory=dict)


def configured_models(env: Env) -> Models:
    """The file's models, and that of the three variables; the offline analyst is always there, and main by default."""
    models = Models({"offline": dict(OFFLINE)}, {"main": ["offline"], "small": ["offline"], "judges": ["offline"]})
    if path := env.text("LQOPS_MODELS_FILE"):
        models = _merged(models, read_models_file(Path(path)))
    if url := env.text("LQOPS_MODEL_URL"):
        models = _merged(models, _from_variables(env, url))
    elif name := env.text("LQOPS_MODEL_NAME"):
        raise ImproperlyConfigured(f"LQOPS_MODEL_NAME={name!r} is set: LQOPS_MODEL_URL must say where it is served.")
    return models


def read_models_file(path: Path) -> Models:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImproperlyConfigured(f"LQOPS_MODELS_FILE={str(path)!r} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{path}: not a TOML file: {error}.") from error
    if unknown := sorted(content.keys() - {"models", "roles"}):
        raise ImproperlyConfigured(f"{path}: [{unknown[0]}] is not known; there are [models.<name>] and [roles].")
    declared = content.get("models", {})
    for name, entry in declared.items():
        _check(f"{path}: models.{name}", entry)
    roles = {
        role: [names] if isinstance(names, str) else list(names) for role, names in content.get("roles", {}).items()
    }
    return Models(declared, roles)


def _from_variables(env: Env, url: str) -> Models:
    name = env.text("LQOPS_MODEL_NAME")
    if not name:
        raise ImproperlyConfigured("LQOPS_MODEL_URL is set: LQOPS_MODEL_NAME must name the model that is served there.")
    entry: dict[str, Any] = {"provider": "openai_compatible", "url": url, "name": name, "key_env": "LQOPS_MODEL_KEY"}
    prices = {"input_usd": env.text("LQOPS_MODEL_INPUT_USD"), "output_usd": env.text("LQOPS_MODEL_OUTPUT_USD")}
    for key, value in prices.items():
        if not value:
            raise ImproperlyConfigured(
                f"LQOPS_MODEL_{key.upper()} is not set: declare what {name!r} costs per million tokens (0 is allowed)."
            )
    _check("LQOPS_MODEL_*", entry | prices)
    return Models({name: entry | prices}, {"main": [name], "small": [name], "judges": [name]})


def _merged(below: Models, above: Models) -> Models:
    models = Models(below.declared | above.declared, below.roles | above.roles)
    for role, names in models.roles.items():
        for name in names:
            if name not in models.declared:
                raise ImproperlyConfigured(
                    f"roles.{role}: there is no model {name!r}; declared: {sorted(models.declared)}."
                )
    return models


def _check(where: str, entry: object) -> None:
    if not isinstance(entry, dict):
        raise ImproperlyConfigured(f"{where} is not a table.")
    for key, value in entry.items():
        wanted = _KEYS.get(key)
        if wanted is None:
            raise ImproperlyConfigured(f"{where}.{key} is not a known key; known: {', '.join(_KEYS)}.")
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ImproperlyConfigured(f"{where}.{key} is {value!r}: it must be {_named(wanted)}.")
    if entry.get("schema_style", "off") not in SCHEMA_STYLES:
        raise ImproperlyConfigured(f"{where}.schema_style must be one of {', '.join(SCHEMA_STYLES)}.")
    needed = _NEEDED.get(entry.get("provider", ""))
    if needed is None:
        raise ImproperlyConfigured(f"{where}.provider must be one of {', '.join(_NEEDED)}.")
    if missing := sorted(needed - entry.keys()):
        raise ImproperlyConfigured(f'{where}: {", ".join(missing)} must be given; prices are text, such as "0.15".')
    _check_values(where, entry)


def _check_values(where: str, entry: dict[str, Any]) -> None:
    for key in ("input_usd", "output_usd"):
        try:
            usd(Decimal(entry[key]))
        except (InvalidOperation, NotMoney):
            raise ImproperlyConfigured(f"{where}: {key}={entry[key]!r} is not an amount of US dollars.") from None
    if urlsplit(entry.get("url", "http://x")).scheme not in {"http", "https"}:
        raise ImproperlyConfigured(f"{where}: url={entry['url']!r} does not start with http:// or https://.")


def _named(wanted: type | tuple[type, ...]) -> str:
    words = {str: "text", int: "a whole number", list: "a list"}
    return "a number" if isinstance(wanted, tuple) else words[wanted]
