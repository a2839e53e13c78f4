"""A callable skill: a typed function with what it declares about itself. Its JSON schema comes from its signature.

    @skill(level=Level.SAFE, side_effects=False)
    def add(first: float, second: float) -> float:
        \"\"\"The sum of two numbers.\"\"\"
        return first + second

A first parameter annotated `SkillContext` is filled in by lqops and never shown to a model.
"""

import inspect
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, Unpack, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from agents.conf import named_secrets
from agents.enums import Level
from agents.types import Capability, ModelReply, ModelRequest

# Secrets by handle: `{"$secret": "name"}` stands for a value that nobody but the skill itself gets to see.
#
# A handle is taken only in arguments that a skill declares for it. Journal, digest, approver and record hold the
# handle; the value is put in its place when the skill is run (agents.guard.intents), and is masked wherever it shows
# after that.


HANDLE: Final = "$secret"


class BadHandle(ValueError):
    """A handle that stands where none is taken, or that names no secret."""


def holds_handle(value: Any) -> bool:
    if isinstance(value, Mapping):
        return HANDLE in value or any(map(holds_handle, value.values()))
    return isinstance(value, list | tuple) and any(map(holds_handle, value))


def stood_in(given: Mapping[str, Any], taken: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments with a text in place of each handle, so that they can be checked; and which stands for which."""
    stand_ins: dict[str, Any] = {}

    def stand_in(name: str) -> str:
        text = f"secret-{secrets.token_hex(8)}"
        stand_ins[text] = {HANDLE: name}
        return text

    return _replaced(given, taken, stand_in), stand_ins


def put_back(value: Any, stand_ins: Mapping[str, Any]) -> Any:
    """Handles in the places of their texts again."""
    if isinstance(value, dict):
        return {name: put_back(item, stand_ins) for name, item in value.items()}
    if isinstance(value, list):
        return [put_back(item, stand_ins) for item in value]
    return stand_ins.get(value, value) if isinstance(value, str) else value


def resolved(given: Mapping[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The arguments with the secrets themselves; for the skill's own eyes."""
    return _replaced(given, taken, lambda name: named_secrets()[name])


def with_handles(schema: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of arguments in which a text may be a handle; the same where there are no secrets to name."""
    names = sorted(named_secrets())
    if not names or not taken:
        return schema
    handle = {
        "type": "object",
        "description": "A secret by its name. Its value is put in when the call is made; you never see it.",
        "properties": {HANDLE: {"type": "string", "enum": names}},
        "required": [HANDLE],
        "additionalProperties": False,
    }
    parts = schema["properties"]
    return {**schema, "properties": {**parts, **{name: _or_handle(parts[name], handle) for name in taken}}}


def _or_handle(part: Any, handle: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_or_handle(item, handle) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "string":
        return {"anyOf": [part, handle]}
    inside = {"items", "anyOf", "additionalProperties"}
    return {name: _or_handle(item, handle) if name in inside else item for name, item in part.items()}


def _replaced(given: Mapping[str, Any], taken: Iterable[str], put: Callable[[str], str]) -> dict[str, Any]:
    accepted = frozenset(taken)
    for name, value in given.items():
        if name not in accepted and holds_handle(value):
            raise BadHandle(f"{name} takes no secret; {_takers(accepted)}")
    return {name: _inside(value, put) if name in accepted else value for name, value in given.items()}


def _inside(value: Any, put: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return put(_name(value)) if HANDLE in value else {name: _inside(item, put) for name, item in value.items()}
    return [_inside(item, put) for item in value] if isinstance(value, list | tuple) else value


def _name(handle: Mapping[str, Any]) -> str:
    name = handle[HANDLE]
    if len(handle) != 1 or not isinstance(name, str) or name not in named_secrets():
        known = ", ".join(sorted(named_secrets())) or "none"
        raise BadHandle(
            f"there is no secret {str(name)[:64]!r}; a handle is {{'$secret': name}}, and known are: {known}"
        )
    return name


def _takers(accepted: frozenset[str]) -> str:
    return f"a handle may stand in {', '.join(sorted(accepted))}" if accepted else "no argument of this skill does"


NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
DEFAULT_TIMEOUT: Final = 60.0
LONGEST_TIMEOUT: Final = 180.0
MOST_PROBLEMS: Final = 5


class BadSkill(ValueError):
    """The declaration of a skill makes no sense; it is not registered."""


class BadArguments(ValueError):
    """The arguments do not fit the skill; the message says which, and what was expected."""


@dataclass(frozen=True)
class SkillContext:
    """What a skill may know of the call that it carries out, and its one way to ask a model."""

    session_pk: int
    session_id: UUID
    owner_id: int
    call_id: UUID
    idempotency_key: str
    now: datetime
    infer: Callable[..., ModelReply]


@dataclass(frozen=True)
class Skill:
    """A function that agents may call, and what the guard, the approver and the worker go by.

    `local`: its whole effect is rows of ours, or nothing; it runs inside the transaction of its record and ends by
    itself. Every other skill runs beside the worker, in a thread or a process, and is given up after its timeout.
    `addresses` names the arguments that say where to go, `secret_arguments` those in which a secret may be named by its
    handle. `request` makes it a priced question to a model. `needs` says what is missing for it to work here.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments_model: type[BaseModel]
    wants_context: bool
    level: Level = Level.CONTROLLED
    version: str = "1"
    side_effects: bool = True
    idempotent: bool = False
    requires_approval: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT
    isolation: Literal["thread", "process"] = "thread"
    local: bool = False
    addresses: tuple[str, ...] = ()
    secret_arguments: tuple[str, ...] = ()
    cooldown_seconds: float = 0
    request: Callable[[Mapping[str, Any]], ModelRequest] | None = None
    needs: Callable[[], str] | None = None

    @property
    def lacking(self) -> str:
        """What has to be set before it can work, as part of a sentence; empty when nothing has."""
        try:
            return self.needs() if self.needs else ""
        except Exception as error:  # noqa: BLE001 whatever is wrong with somebody's function, the others work
            return f"what it needs cannot be told ({type(error).__name__})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments, as models are told."""
        return with_handles(self._schema, self.secret_arguments)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        schema = _untitled(self.arguments_model.model_json_schema())
        return {name: part for name, part in schema.items() if name != "description"}

    @property
    def offer(self) -> dict[str, Any]:
        """The skill as a tool in the wire form of model servers."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": told}

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in their one canonical form: checked against the signature, defaults filled in, secrets by
        their handles."""
        try:
            plain, stand_ins = stood_in(given, self.secret_arguments)
            checked: dict[str, Any] = put_back(
                self.arguments_model.model_validate(plain).model_dump(mode="json"), stand_ins
            )
        except BadHandle as error:
            raise BadArguments(f"{self.name} cannot be called like this: {error}.") from None
        except ValidationError as error:
            problems = "; ".join(_problem(found) for found in error.errors()[:MOST_PROBLEMS])
            raise BadArguments(f"{self.name} cannot be called like this: {problems}.") from None
        return checked

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
        """Calls the function itself. Agents never come here but through the guard; tests of a skill do."""
        values = self.arguments_model.model_validate(self.arguments(arguments))
        taken = {name: getattr(values, name) for name in type(values).model_fields}
        return self.function(context, **taken) if self.wants_context else self.function(**taken)


class Declaration(TypedDict, total=False):
    """What an author may say of a skill; Skill tells what it means."""

    level: Level
    version: str
    side_effects: bool
    idempotent: bool
    requires_approval: bool
    timeout_seconds: float
    isolation: Literal["thread", "process"]
    local: bool
    addresses: tuple[str, ...]
    secret_arguments: tuple[str, ...]
    cooldown_seconds: float
    request: Callable[[Mapping[str, Any]], ModelRequest] | None
    needs: Callable[[], str] | None


def skill(*, name: str = "", **declared: Unpack[Declaration]) -> Callable[[Callable[..., Any]], Skill]:
    """Declares a function as a skill. What is not said counts as the more dangerous."""

    def declare(function: Callable[..., Any]) -> Skill:
        known = name or function.__name__
        model, wants_context = _signature(known, function)
        made = Skill(
            name=known,
            description=inspect.getdoc(function) or "",
            function=function,
            arguments_model=model,
            wants_context=wants_context,
            **declared,
        )
        if odd := _oddity(made):
            raise BadSkill(odd)
        return made

    return declare


def _oddity(made: Skill) -> str:
    """What is wrong with a declaration; empty when nothing is."""
    if not NAME.fullmatch(made.name):
        return f"{made.name!r} cannot name a skill: small letters, digits and _ only, at most 64."
    if not 0 < made.timeout_seconds <= LONGEST_TIMEOUT:
        return f"{made.name}: a timeout is above 0 and at most {LONGEST_TIMEOUT:g} seconds."
    if made.local and (made.isolation == "process" or made.request is not None):
        return f"{made.name}: a local skill runs in the worker itself and asks no model."
    if made.secret_arguments and made.request is not None:
        return f"{made.name}: a skill that asks a model takes no secrets."
    if not made.description:
        return f"{made.name} needs a docstring: it is what models are told of it."
    unknown = sorted({*made.addresses, *made.secret_arguments} - set(made.arguments_model.model_fields))
    return f"{made.name} has no argument {', '.join(unknown)} to take an address or a secret from." if unknown else ""


def _signature(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], bool]:
    """The function's parameters as a model that checks them, and whether it wants its context."""
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
    """Without the titles that pydantic makes up: they are tokens that tell a model nothing."""
    if isinstance(schema, dict):
        return {name: _untitled(part) for name, part in schema.items() if name != "title" or not isinstance(part, str)}
    return [_untitled(part) for part in schema] if isinstance(schema, list) else schema
