"""A callable skill: a typed function and its declaration. Its JSON schema comes from its signature.

    @skill(level=Level.SAFE, side_effects=False)
    def add(first: float, second: float) -> float:
        \"\"\"The sum of two numbers.\"\"\"
        return first + second

A first parameter annotated `SkillContext` is filled in by lqops and is not shown to models. Secrets are passed by
handle, `{"$secret": "name"}`, and resolved only when the skill runs.
"""

import inspect
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack, get_args, get_type_hints, overload
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from agents.conf import secret_names
from agents.enums import Level, ToolIntent
from agents.skills.limits import DEFAULT_LIMITS, VARIABLE, Limits
from agents.types import Capability, Fetched, ModelReply, ModelRequest

ALL: Final = "all"  # in an agent's definition: every installed skill
Isolation = Literal["thread", "process"]
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
HOST: Final = re.compile(r"(?:\*\.)?(?:[a-z0-9-]{1,63}\.)+[a-z0-9-]{1,63}")
DEFAULT_TIMEOUT: Final = 60.0
MAX_TIMEOUT: Final = 180.0
MAX_PROBLEMS: Final = 5
HANDLE: Final = "$secret"
# Words in names of arguments, and types, that say where something goes.
_DESTINATIONS: Final = re.compile(
    r"(?:^|_)(?:ur[il]s?|hosts?|hostname|webhook|addresse?s?|to|recipients?|iban|e?mail|endpoint)(?:_|$)", re.IGNORECASE
)
_ADDRESS_TYPES: Final = re.compile(r"\w*Url|EmailStr|NameEmail|IPv(?:4|6|Any)Address")


class BadSkill(ValueError):
    """The declaration of a skill is invalid; the skill is not registered."""


class BadArguments(ValueError):
    """The arguments do not fit the skill; the message names them and what was expected."""


class BadHandle(ValueError):
    """A handle where none is allowed, or one that names no secret."""


def _no_fetch(url: str, **_: Any) -> Fetched:
    """Stand in where there is no call: a local skill only touches rows of this database."""
    raise RuntimeError("a local skill cannot fetch; declare it with isolation='process' or 'thread'")


@dataclass(frozen=True)
class SkillContext:
    """Facts about the call for the skill, its only way to ask a model, and its way to the web.

    `fetch(url, method=, headers=, content=)` passes the URL gate and reaches the hosts of the address arguments and
    those that the skill declares. It is the only way of a skill with `isolation="process"`.
    `stopped` returns True once the run was halted; a skill that works for long may look and end early.
    """

    session_pk: int
    session_id: UUID
    owner_id: int
    call_id: UUID
    idempotency_key: str
    now: datetime
    infer: Callable[..., ModelReply]
    stopped: Callable[[], bool] = lambda: False
    fetch: Callable[..., Fetched] = _no_fetch


@dataclass(frozen=True)
class Skill:
    """A function that agents may call, with the properties that the guard, approvers and workers use.

    `local`: its whole effect is rows of this database, so it runs inside the transaction of its call. Every other skill
    runs in a thread or process of its own and is abandoned after its timeout. `addresses` names the arguments that hold
    an address, `secret_arguments` those in which a secret handle is allowed. `request` makes it a priced model request.
    `needs` returns what is missing in this installation. `intent` is what R6 judges: a skill that does what an intent
    of its own is for, such as storing a finding, names that one. `console`: offered to the console alone, never to an
    agent. `limits`, `folders` and `variables` are what the
    process of an isolated skill may use, write to and see of the environment; `module` is where it is found there.
    `hosts` are those that it may fetch from besides its address arguments.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments_model: type[BaseModel]
    wants_context: bool
    level: Level = Level.RESTRICTED
    version: str = "1"
    side_effects: bool = True
    idempotent: bool = False
    requires_approval: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT
    isolation: Isolation = "thread"
    limits: Limits = DEFAULT_LIMITS
    folders: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    module: str = ""
    local: bool = False
    addresses: tuple[str, ...] = ()
    secret_arguments: tuple[str, ...] = ()
    cooldown_seconds: float = 0
    request: Callable[[Mapping[str, Any]], ModelRequest] | None = None
    needs: Callable[[], str] | None = None
    intent: ToolIntent = ToolIntent.RUN_SKILL
    console: bool = False

    @property
    def lacking(self) -> str:
        """Return the missing parts of this installation, as part of a sentence; "" if there are none."""
        try:
            return self.needs() if self.needs else ""
        except Exception as error:  # noqa: BLE001 a faulty skill must not break the others
            return f"its requirements cannot be checked ({type(error).__name__})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments, as models see it."""
        return with_handles(self._schema, self.secret_arguments)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        schema = _untitled(self.arguments_model.model_json_schema())
        return {name: part for name, part in schema.items() if name != "description"}

    @property
    def offer(self) -> dict[str, Any]:
        """The skill as a tool in the wire form of model servers."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in canonical form: validated, with defaults, secrets as handles."""
        try:
            plain, handles = _with_placeholders(given, self.secret_arguments)
            checked = self.arguments_model.model_validate(plain).model_dump(mode="json")
            arguments: dict[str, Any] = _rebuilt(
                checked, lambda part: handles.get(part) if isinstance(part, str) else None
            )
        except BadHandle as error:
            raise BadArguments(f"{self.name} cannot be called like this: {error}.") from None
        except ValidationError as error:
            problems = "; ".join(_problem(found) for found in error.errors()[:MAX_PROBLEMS])
            raise BadArguments(f"{self.name} cannot be called like this: {problems}.") from None
        return arguments

    def capability(self, level: Level) -> Capability:
        return Capability(
            name=self.name,
            version=self.version,
            level=level,
            side_effects=self.side_effects,
            idempotent=self.idempotent,
            requires_approval=self.requires_approval,
            addresses=self.addresses,
        )

    def run(self, context: SkillContext | None = None, **arguments: Any) -> Any:
        """Call the function itself. Agents reach it only through the guard; tests call it directly."""
        model = self.arguments_model.model_validate(self.arguments(arguments))
        values = {name: getattr(model, name) for name in type(model).model_fields}
        return self.function(context, **values) if self.wants_context else self.function(**values)


class Declaration(TypedDict, total=False):
    """Arguments of @skill; see Skill."""

    level: Level
    version: str
    side_effects: bool
    idempotent: bool
    requires_approval: bool
    timeout_seconds: float
    isolation: Isolation
    limits: Limits
    folders: tuple[str, ...]
    variables: tuple[str, ...]
    hosts: tuple[str, ...]
    local: bool
    addresses: tuple[str, ...]
    secret_arguments: tuple[str, ...]
    cooldown_seconds: float
    request: Callable[[Mapping[str, Any]], ModelRequest] | None
    needs: Callable[[], str] | None
    intent: ToolIntent
    console: bool


@overload
def skill(function: Callable[..., Any], /) -> Skill: ...


@overload
def skill(*, name: str = "", **declared: Unpack[Declaration]) -> Callable[[Callable[..., Any]], Skill]: ...


def skill(
    function: Callable[..., Any] | None = None, /, *, name: str = "", **declared: Unpack[Declaration]
) -> Skill | Callable[[Callable[..., Any]], Skill]:
    """Declare a function as a skill. The defaults are the cautious choice: such a skill asks a person each time."""

    def declare(function: Callable[..., Any]) -> Skill:
        skill_name = name or function.__name__
        model, wants_context = _signature(skill_name, function)
        declared_skill = Skill(
            name=skill_name,
            description=inspect.getdoc(function) or "",
            function=function,
            arguments_model=model,
            wants_context=wants_context,
            module=function.__module__,
            **declared,
        )
        if problem := _declaration_problem(declared_skill):
            raise BadSkill(problem)
        if "addresses" not in declared and (names := _destinations(model)):
            raise BadSkill(
                f"{skill_name}: {', '.join(names)} looks like a destination. Say which arguments hold an address, with "
                f"addresses={tuple(names)!r}; with addresses=() none does."
            )
        return declared_skill

    return declare if function is None else declare(function)


def _destinations(model: type[BaseModel]) -> list[str]:
    """Return the arguments that look like the address of somebody or something, by their names or types."""
    return [
        name
        for name, field in model.model_fields.items()
        if _DESTINATIONS.search(name) or any(map(_ADDRESS_TYPES.fullmatch, _names_in(field.annotation)))
    ]


def _names_in(annotation: Any) -> Iterator[str]:
    """Yield the names of all classes in an annotation."""
    yield getattr(annotation, "__name__", "")
    for part in get_args(annotation):
        yield from _names_in(part)


def _declaration_problem(declared: Skill) -> str:
    """Return what is wrong with a declaration; "" if nothing is."""
    if not NAME.fullmatch(declared.name) or declared.name == ALL:
        return f"{declared.name!r} is not a skill name: at most 64 lower-case letters, digits and _, and not {ALL}."
    if not 0 < declared.timeout_seconds <= MAX_TIMEOUT:
        return f"{declared.name}: a timeout is above 0 and at most {MAX_TIMEOUT:g} seconds."
    if problem := _place_problem(declared):
        return f"{declared.name}: {problem}."
    if declared.secret_arguments and declared.request is not None:
        return f"{declared.name}: a skill that asks a model cannot take secrets."
    if not declared.description:
        return f"{declared.name} needs a docstring: models read it."
    unknown = sorted({*declared.addresses, *declared.secret_arguments} - set(declared.arguments_model.model_fields))
    return f"{declared.name} has no argument {', '.join(unknown)} for an address or a secret." if unknown else ""


def _place_problem(declared: Skill) -> str:
    """Return what is wrong with where it runs and what it has there; "" if nothing is."""
    if declared.local and (declared.isolation == "process" or declared.request is not None):
        return "a local skill runs in the worker itself and cannot ask a model"
    if odd := [name for name in declared.variables if not VARIABLE.fullmatch(name)]:
        return f"the variables of a skill begin with SKILL_, unlike {', '.join(odd)}; secrets are passed by handle"
    if odd := [folder for folder in declared.folders if not Path(folder).is_absolute()]:
        return f"folders are whole paths, unlike {', '.join(odd)}"
    if odd := [host for host in declared.hosts if not HOST.fullmatch(host)]:
        return f"hosts are names such as api.example.org or *.example.org, unlike {', '.join(odd)}"
    if declared.hosts and declared.local:
        return "a local skill cannot fetch"
    return declared.limits.problem


def _signature(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], bool]:
    """Return a model that validates the function's parameters, and whether it takes its context."""
    if inspect.iscoroutinefunction(function):
        raise BadSkill(f"{name}: an async function cannot be a skill; write it with def.")
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is SkillContext
    fields: dict[str, Any] = {}
    for parameter in parameters[1:] if wants_context else parameters:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise BadSkill(f"{name}: *args and **kwargs cannot be described to a model; name the parameters.")
        if parameter.name not in hints:
            raise BadSkill(f"{name}: the parameter {parameter.name} needs a type.")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    try:
        model = create_model(f"Arguments of {name}", __config__=config, **fields)
        model.model_json_schema()
    except Exception as error:
        raise BadSkill(f"{name}: its parameters cannot be described as JSON: {error}") from error
    return model, wants_context


def _problem(found: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in found["loc"]) or "the arguments"
    return f"{place}: {str(found['msg'])[:200]}"


def _untitled(schema: Any) -> Any:
    """Remove the titles that pydantic generates: they cost tokens and tell a model nothing."""
    if isinstance(schema, dict):
        return {name: _untitled(part) for name, part in schema.items() if name != "title" or not isinstance(part, str)}
    return [_untitled(part) for part in schema] if isinstance(schema, list) else schema


# --- Secrets by handle ---
#
# Allowed only in the arguments that a skill declares for it. Journal, digest, approver and audit log see the handle;
# agents.skills.handles puts the value in its place when the skill runs, and it is masked wherever it appears later.


def has_handle(value: Any) -> bool:
    if isinstance(value, Mapping):
        return HANDLE in value or any(map(has_handle, value.values()))
    return isinstance(value, list | tuple) and any(map(has_handle, value))


def names_in(value: Any) -> Iterator[str]:
    """Yield the names in all handles of a value, whether there are such secrets or not."""
    if isinstance(value, Mapping):
        if isinstance(value.get(HANDLE), str):
            yield value[HANDLE]
        for item in value.values():
            yield from names_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from names_in(item)


def _with_placeholders(given: Mapping[str, Any], allowed: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace handles by strings, so that the arguments can be validated. Also return the handle of each string."""
    handles: dict[str, Any] = {}

    def placeholder(name: str) -> str:
        text = f"secret-{secrets.token_hex(8)}"
        handles[text] = {HANDLE: name}
        return text

    return replace_handles(given, allowed, placeholder), handles


def handles_in(given: Mapping[str, Any], allowed: Iterable[str]) -> list[str]:
    """Return the names of the secrets that arguments hold; BadHandle for an unknown one, or one that is misplaced."""
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    replace_handles(given, allowed, note)
    return sorted(set(found))


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value with parts replaced: by what `change` returns, unless that is None."""
    if (changed := change(value)) is not None:
        return changed
    if isinstance(value, Mapping):
        return {name: _rebuilt(item, change) for name, item in value.items()}
    return [_rebuilt(item, change) for item in value] if isinstance(value, list | tuple) else value


def with_handles(schema: dict[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """Return a JSON schema of arguments that allows handles; the same schema if there are no secrets."""
    names = secret_names()
    if not names or not allowed:
        return schema
    handle = {
        "type": "object",
        "description": "A secret by its name. Its value is inserted when the call runs; you never see it.",
        "properties": {HANDLE: {"type": "string", "enum": names}},
        "required": [HANDLE],
        "additionalProperties": False,
    }
    parts = schema["properties"]
    return {**schema, "properties": {**parts, **{name: _or_handle(parts[name], handle) for name in allowed}}}


def _or_handle(part: Any, handle: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_or_handle(item, handle) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "string":
        return {"anyOf": [part, handle]}
    nested = {"items", "anyOf", "additionalProperties"}
    return {name: _or_handle(item, handle) if name in nested else item for name, item in part.items()}


def replace_handles(
    given: Mapping[str, Any], allowed: Iterable[str], replacement: Callable[[str], str]
) -> dict[str, Any]:
    names = frozenset(allowed)
    for name, value in given.items():
        if name not in names and has_handle(value):
            where = f"a handle is allowed in {', '.join(sorted(names))}" if names else "no argument of this skill does"
            raise BadHandle(f"{name} takes no secret; {where}")

    def change(part: Any) -> str | None:
        return replacement(_secret_name(part)) if isinstance(part, Mapping) and HANDLE in part else None

    return {name: _rebuilt(value, change) if name in names else value for name, value in given.items()}


def _secret_name(handle: Mapping[str, Any]) -> str:
    name = handle[HANDLE]
    if len(handle) != 1 or not isinstance(name, str) or name not in secret_names():
        known = ", ".join(secret_names()) or "none"
        raise BadHandle(f"there is no secret {str(name)[:64]!r}; a handle is {{'$secret': name}}, known names: {known}")
    return name
