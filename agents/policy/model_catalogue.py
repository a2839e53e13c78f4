"""Declarations of models: the one form of the deployment's file and of what people set in the admin, and its checks.

Every error names the model, the key and what to write. A declaration holds no API key: it names the variable that does.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import urlsplit

from agents.enums import Purpose
from agents.policy.costs import NotMoney, usd
from agents.policy.schedule import FALLBACK_SECONDS
from agents.types import FORM_PARTS, WIRE_FORMS

MAIN: Final = "main"
SMALL: Final = "small"
CONSOLE: Final = "console"  # chats; without a model of its own, the main one
JUDGES: Final = "judges"  # all models of this role are asked, of the others the first
EMBEDDINGS: Final = "embeddings"  # search by meaning; at most one model, which does nothing else
ROLES: Final = (MAIN, SMALL, JUDGES, CONSOLE, EMBEDDINGS)
EMBEDDING_PROVIDER: Final = "openai_embeddings"
ANSWERED: Final = tuple(purpose for purpose in Purpose.values if purpose != Purpose.EMBEDDING)  # a vector is no answer
# Fields of a request that decide what is asked and what it may cost; `extra` may not set them.
OWN_FIELDS: Final = {
    "openai_compatible": frozenset({
        "best_of", "max_completion_tokens", "max_tokens", "messages", "model", "n", "response_format", "seed", "stop",
        "stream", "stream_options", "tool_choice", "tools",
    }),
    "anthropic": frozenset({
        "max_tokens", "messages", "model", "stop_sequences", "stream", "system", "thinking", "tool_choice", "tools",
    }),
    EMBEDDING_PROVIDER: frozenset({"encoding_format", "input", "model"}),
}  # fmt: skip
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
PRICES: Final = ("input_usd", "output_usd")
_REQUIRED: Final = {
    "openai_compatible": {"url"},
    "anthropic": {"url"},
    EMBEDDING_PROVIDER: {"url"},
    "offline": set(),
    "scripted": {"replies"},
}

# What people may set in the admin; the rest comes from the file. Prices have rows of their own.
ENDPOINTS: Final = ("/chat/completions", "/messages", "/embeddings")
SERVER_KEYS: Final = ("provider", "url", "name", "key_env", "key_header")
ROLES_KEY: Final = "roles"
SETTABLE: Final = (*SERVER_KEYS, "context_window", "max_tokens", "reasoning", "fallback", "extra", ROLES_KEY)
GATED: Final = "gated"  # in a declaration in force: its address was set in the admin, so the URL gate applies
KEY_PREFIX: Final = "LQOPS_MODEL_KEY_"
_KEY_HANDLE: Final = re.compile(rf"{KEY_PREFIX}(?!FILE$)[A-Z0-9_]{{1,64}}(?<!_FILE)")
_NAME: Final = re.compile(r"[\w.:/@+-]{1,128}", re.ASCII)


class ModelError(ValueError):
    """A declaration that cannot be used. `model` is the one to change."""

    def __init__(self, message: str, model: str = "") -> None:
        super().__init__(message)
        self.model = model


@dataclass(frozen=True)
class Models:
    """Declared models by name, and the models of each role."""

    declared: dict[str, dict[str, Any]]
    roles: dict[str, list[str]]


def merged(below: Models, above: Models) -> Models:
    """Return both, the second over the first, if all that they name is declared."""
    models = Models(below.declared | above.declared, below.roles | above.roles)
    check_references(models)
    return models


def check_references(models: Models) -> None:
    """Refuse roles and fallbacks that name no declared model."""
    known = ", ".join(sorted(models.declared))
    for role, names in models.roles.items():
        if role not in ROLES:
            raise ModelError(f"roles.{role} is not a known role; known: {', '.join(ROLES)}.")
        for name in names:
            if name not in models.declared:
                raise ModelError(f"roles.{role}: there is no model {name!r}; declared: {known}.")
    for model, entry in models.declared.items():
        for name in entry.get("fallback", []):
            if name not in models.declared or name == model:
                others = ", ".join(sorted(models.declared.keys() - {model}))
                message = f"models.{model}.fallback: {name!r} is not another model; declared: {others}."
                raise ModelError(message, model)
    for message, named in _misplaced_embeddings(models):
        raise ModelError(message, named[0])


def _misplaced_embeddings(models: Models) -> Iterator[tuple[str, list[str]]]:
    """Yield what would ask a model for what it cannot do, and which models to change. Vectors of two do not compare."""
    embeds = {name for name, entry in models.declared.items() if entry["provider"] == EMBEDDING_PROVIDER}
    for role, names in models.roles.items():
        for name in names:
            if (role == EMBEDDINGS) != (name in embeds):
                provider = models.declared[name]["provider"]
                message = f"roles.{role}: {name!r} has provider {provider!r}; the role {EMBEDDINGS} is for models of "
                yield f"{message}provider {EMBEDDING_PROVIDER!r}, and they are for no other.", [name]
    if len(names := models.roles.get(EMBEDDINGS, [])) > 1:
        yield f"roles.{EMBEDDINGS}: name one model; vectors of two do not compare.", names
    for model, entry in models.declared.items():
        others = entry.get("fallback", [])
        if embeds.intersection(others) or (model in embeds and others):
            yield f"models.{model}.fallback: a model for embeddings neither has nor is one.", [model, *others]


def check_types(where: str, entry: object) -> None:
    """Refuse a declaration with an unknown key, or a value of the wrong type."""
    if not isinstance(entry, dict):
        raise ModelError(f"{where} is not a table.")
    for key, value in entry.items():
        if key not in _KEYS:
            raise ModelError(f"{where}.{key} is not a known key; known: {', '.join(_KEYS)}.")
        types, words = _KEYS[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ModelError(f"{where}.{key} is {value!r}: it must be {words}.")


def check_values(where: str, entry: Mapping[str, Any]) -> None:
    """Refuse values that do not fit each other or the provider. Prices that are missing are another matter."""
    _check_form(where, entry)
    _check_sizes(where, entry)
    _check_reasoning(where, entry)
    required = _REQUIRED.get(entry.get("provider", ""))
    if required is None:
        raise ModelError(f"{where}.provider must be one of {', '.join(_REQUIRED)}.")
    if missing := sorted(required - entry.keys()):
        raise ModelError(f"{where}: {', '.join(missing)} is missing.")
    _check_address(where, entry)
    for key in (key for key in entry if key.endswith("_usd")):
        try:
            usd(Decimal(entry[key]))
        except (InvalidOperation, NotMoney):
            raise ModelError(f"{where}: {key}={entry[key]!r} is not an amount of US dollars.") from None


def _check_form(where: str, entry: Mapping[str, Any]) -> None:
    provider = entry.get("provider", "openai_compatible")
    for part, values in WIRE_FORMS.items():
        if entry.get(part, values[0]) not in values:
            raise ModelError(f"{where}.{part} must be one of {', '.join(values)}.")
        if part in entry and part not in FORM_PARTS.get(provider, WIRE_FORMS):
            raise ModelError(f"{where}.{part}: not a key of provider {provider}; take it out.")
    extra = entry.get("extra", {})
    if own := sorted(extra.keys() & OWN_FIELDS.get(provider, frozenset())):
        raise ModelError(f"{where}.extra.{own[0]}: lqops sets this field of a request itself; take it out.")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{where}.extra cannot be sent as JSON: {error}.") from None


def _check_sizes(where: str, entry: Mapping[str, Any]) -> None:
    declared = entry.get("max_tokens", {})
    answers = declared if isinstance(declared, dict) else {"default": declared}
    if unknown := sorted(answers.keys() - {"default", *Purpose.values}):
        known = ", ".join(["default", *ANSWERED])
        raise ModelError(f"{where}.max_tokens.{unknown[0]} is not a purpose; known: {known}.")
    window = entry.get("context_window", MOST_WINDOW)
    sizes = {"context_window": (window, MOST_WINDOW)}
    sizes |= {f"max_tokens.{purpose}": (most, MOST_ANSWER) for purpose, most in answers.items()}
    for key, (size, most) in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= most:
            raise ModelError(f"{where}.{key} is {size!r}: it must be a whole number from 1 to {most}.")
    if (longest := max(answers.values(), default=0)) >= window:
        raise ModelError(f"{where}: max_tokens={longest} leaves no room for a question in context_window={window}.")


def _check_reasoning(where: str, entry: Mapping[str, Any]) -> None:
    reasoning = entry.get("reasoning", False)
    if isinstance(reasoning, bool):
        return
    if entry.get("provider") == "anthropic":
        if not isinstance(reasoning, int) or reasoning < LEAST_THINKING:
            raise ModelError(
                f"{where}.reasoning is {reasoning!r}: it must be true, false or tokens, from {LEAST_THINKING} on."
            )
    elif reasoning != UNOPENED:
        raise ModelError(f'{where}.reasoning is {reasoning!r}: it must be true, false or "{UNOPENED}".')


def _check_address(where: str, entry: Mapping[str, Any]) -> None:
    try:
        url = urlsplit(entry.get("url", "http://x"))
        host, _ = url.hostname, url.port
    except ValueError:
        raise ModelError(f"{where}: url is not a valid address; write it as https://host:port/v1.") from None
    if url.scheme not in {"http", "https"}:
        raise ModelError(f"{where}: url={entry['url']!r} does not start with http:// or https://.")
    if not host:
        raise ModelError(f"{where}: url names no host; write it as https://host:port/v1.")
    if url.username is not None or url.password is not None or url.fragment:
        raise ModelError(f"{where}: url holds a user, a password or a #; name the key's variable in key_env.")
    if ending := next((one for one in ENDPOINTS if url.path.rstrip("/").endswith(one)), ""):
        raise ModelError(f"{where}: url ends with {ending}; leave that out, lqops adds it.")
    if not _HEADER.fullmatch(entry.get("key_header", "Authorization")):
        raise ModelError(f"{where}.key_header={entry['key_header']!r} is no name of a header, such as api-key.")


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address that was checked; what is not one matches nothing else."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", url, None
    return parts.scheme, parts.hostname or "", port


def check_task_time(models: Mapping[str, Mapping[str, Any]], *, slice_seconds: float, task_seconds: float) -> None:
    """Refuse time limits that do not add up: a call that begins at the end of a slice must end before its task does."""
    for name, declared in models.items():
        asked = [name, *declared.get("fallback", [])]
        call = max(models[one].get("total_seconds", CALL_SECONDS) for one in asked)
        call += FALLBACK_SECONDS if len(asked) > 1 else 0
        needed = slice_seconds + call + SKILL_SECONDS
        if needed > task_seconds:
            raise ModelError(
                f"LQOPS_SLICE_SECONDS={slice_seconds:g} + total_seconds={call:g} of {_named(asked)} "
                f"+ {SKILL_SECONDS:g} for skills = {needed:g} seconds, more than LQOPS_TASK_SECONDS={task_seconds:g}: "
                "a worker would be stopped in the middle of a call. Raise LQOPS_TASK_SECONDS, or lower another one."
            )


def _named(models: list[str]) -> str:
    names = [repr(name) for name in models]
    return (
        f"model {names[0]}" if len(names) == 1 else f"{' or '.join(names)}, with {FALLBACK_SECONDS:g} for the change,"
    )


# --- What people have set in the admin, over the file ---


def overridden(base: Models, rows: Mapping[str, Mapping[str, Any]]) -> tuple[Models, dict[str, str]]:
    """Return the models in force, and why rows cannot be used. Where one cannot, the file applies."""
    usable, problems = dict(sorted(rows.items())), dict[str, str]()
    while True:
        try:
            return _applied(base, usable), problems
        except ModelError as error:
            problems[error.model] = str(error)
            del usable[error.model]


def _applied(base: Models, rows: Mapping[str, Mapping[str, Any]]) -> Models:
    declared = base.declared | {name: _declaration(base, name, row) for name, row in rows.items()}
    for name in rows:
        for other in declared[name].get("fallback", []):
            if other not in declared or other == name:
                others = ", ".join(sorted(declared.keys() - {name}))
                raise ModelError(f"fallback: {other!r} is not another model; declared: {others}.", name)
    models = Models(declared, _roles(base, rows))
    for message, named in _misplaced_embeddings(models):
        if changed := [name for name in named if name in rows]:
            raise ModelError(message, changed[0])
    return models


def _declaration(base: Models, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file's declaration with the row's values, if all of it can be used.

    The file's key goes to no other server than the file's. A model at another server, or under another name there, has
    none of the file's prices: until one is set, its calls are refused.
    """
    file = base.declared.get(name, {})
    given = {key: value for key, value in row.items() if key != ROLES_KEY}
    try:
        check_types("", given)
        _check_settable(name, file, row)
        is_moved = "url" in row and origin_of(row["url"]) != origin_of(file.get("url", ""))
        is_renamed = "name" in row and row["name"] != file.get("name", name)
        dropped = {"key_env", "key_header"} if is_moved else set[str]()
        dropped |= (
            {key for key in file if key.endswith("_usd") or key == "prices_from"} if is_moved or is_renamed else set()
        )
        entry = {key: value for key, value in file.items() if key not in dropped} | given
        if "max_tokens" in file and "max_tokens" in given:
            entry["max_tokens"] = _answer_sizes(file["max_tokens"], given["max_tokens"])
        if "extra" in given:
            entry["extra"] = _request_fields(file.get("extra", {}), given["extra"])
        check_values("", entry)
        _check_key(base, entry, row)
    except ModelError as error:
        raise ModelError(str(error).lstrip(".: "), name) from None
    return entry | ({GATED: True} if "url" in row and not _file_keys(base, row["url"])[0] else {})


def _answer_sizes(file: Any, given: Any) -> Any:
    """Return what is given over the file's table, purpose by purpose. A number is the table's default."""
    if not isinstance(file, dict) and not isinstance(given, dict):
        return given
    return answer_table(file) | answer_table(given)


def _request_fields(file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given over the file's request fields, name by name. A null takes the file's field out."""
    return {name: value for name, value in {**file, **given}.items() if name not in given or value is not None}


def answer_table(max_tokens: Any) -> dict[str, Any]:
    """Return the maximum answers by purpose, whether a number or a table declares them."""
    return max_tokens if isinstance(max_tokens, dict) else {"default": max_tokens}


def _check_settable(name: str, file: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        raise ModelError("model: use letters, digits and . _ : / @ + - only, at most 128 characters.")
    if unknown := sorted(row.keys() - set(SETTABLE)):
        raise ModelError(f"{unknown[0]} cannot be set here, only in the models file; here: {', '.join(SETTABLE)}.")
    if "provider" in row and (file or row["provider"] not in FORM_PARTS):
        known = "leave it as the file says" if file else f"it must be one of {', '.join(FORM_PARTS)}"
        raise ModelError(f"provider is {row['provider']!r}: {known}.")
    if file and file["provider"] not in FORM_PARTS and (own := sorted(row.keys() & set(SERVER_KEYS))):
        raise ModelError(f"{own[0]}: a model of provider {file['provider']} has no server; leave it empty.")
    roles = row.get(ROLES_KEY, [])
    if not isinstance(roles, list) or not all(role in ROLES for role in roles):
        raise ModelError(f"roles is {roles!r}: it must be a list of {', '.join(ROLES)}.")


def _check_key(base: Models, entry: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Allow only variables that are there for keys of models, so that no other secret can be sent to a server."""
    if "key_env" not in row or _KEY_HANDLE.fullmatch(row["key_env"]):
        return
    _, variables = _file_keys(base, entry["url"])
    if row["key_env"] not in variables:
        also = "".join(f", or {name}" for name in sorted(variables))
        raise ModelError(f"key_env is {row['key_env']!r}: name a variable {KEY_PREFIX}… that holds the key{also}.")


def _file_keys(base: Models, url: str) -> tuple[bool, set[str]]:
    """Return whether the file names a server of this address, and the variables of the keys that it sends there."""
    there = [one for one in base.declared.values() if "url" in one and origin_of(one["url"]) == origin_of(url)]
    return bool(there), {one["key_env"] for one in there if "key_env" in one}


def _roles(base: Models, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the models of each role. A role that is set here replaces the file's; judges stand side by side."""
    roles = dict(base.roles)
    for role in ROLES:
        names = base.roles.get(role, [])
        chosen = [name for name, row in rows.items() if role in row.get(ROLES_KEY, ())]
        taken = [name for name in names if ROLES_KEY in rows.get(name, {}) and name not in chosen]
        kept = [name for name in names if name not in taken]
        if role == JUDGES:
            kept, chosen = [], [*kept, *(name for name in chosen if name not in kept)]
        elif len(chosen) > 1:
            message = f"roles: {role} is set here for both {chosen[0]} and {chosen[-1]}; take it from one first."
            raise ModelError(message, chosen[-1])
        if taken and not chosen and not kept and role not in {JUDGES, CONSOLE, EMBEDDINGS}:
            raise ModelError(f"roles: {role} would have no model; give it to another model first.", taken[-1])
        if chosen or names:
            roles[role] = chosen or kept
    return roles
