"""Declarations: the schema is the signature, arguments are strict, and invalid skills are refused."""

from dataclasses import replace
from datetime import UTC, datetime
from inspect import Parameter, Signature
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, Field, HttpUrl, IPvAnyAddress

from agents.enums import Level
from agents.skills.limits import Limits
from agents.skills.skill import MAX_PROBLEMS, MAX_TIMEOUT, BadArguments, BadSkill, SkillContext, skill
from agents.types import ModelRequest
from tests.table import every_row

CONTEXT = SkillContext(
    session_pk=1,
    session_id=UUID(int=1),
    owner_id=1,
    call_id=UUID(int=2),
    idempotency_key="1:step:1",
    now=datetime(2026, 3, 14, tzinfo=UTC),
    infer=lambda: None,
)


@skill(level=Level.SAFE, side_effects=False, version="2")
def order(
    context: SkillContext,
    title: Annotated[str, Field(description="What to order.", max_length=20)],
    count: int = 1,
    size: Literal["small", "large"] = "small",
    price: float | None = None,
    tags: list[str] = [],  # noqa: B006 a declaration
) -> dict[str, Any]:
    """Orders something.

    At once.
    """
    return {"title": title, "count": count, "size": size, "price": price, "tags": tags, "key": context.idempotency_key}


def test_schema_is_the_signature_without_context_and_titles():
    assert order.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["title"],
        "properties": {
            "title": {"type": "string", "description": "What to order.", "maxLength": 20},
            "count": {"type": "integer", "default": 1},
            "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
    }


def test_argument_named_title_keeps_its_schema():
    assert "title" in order.parameters["properties"]


def test_offer_is_in_the_wire_form_of_model_servers():
    assert order.offer == {
        "type": "function",
        "function": {"name": "order", "description": "Orders something.\n\nAt once.", "parameters": order.parameters},
    }


def test_canonical_arguments_include_defaults():
    assert order.arguments({"title": "tea", "price": 2}) == {
        "title": "tea",
        "count": 1,
        "size": "small",
        "price": 2.0,
        "tags": [],
    }


@every_row(
    ("given", "said"),
    [
        ({}, "title: Field required"),
        ({"title": 5}, "title: Input should be a valid string"),
        ({"title": "tea", "count": "3"}, "count: Input should be a valid integer"),
        ({"title": "tea", "count": True}, "count: Input should be a valid integer"),
        ({"title": "tea", "count": 1.0}, "count: Input should be a valid integer"),
        ({"title": "tea", "size": "huge"}, "size: Input should be 'small' or 'large'"),
        ({"title": "tea", "price": float("nan")}, "price.*finite"),
        ({"title": "tea", "tags": ["a", 1]}, r"tags\.1: Input should be a valid string"),
        ({"title": "x" * 21}, "title: String should have at most 20"),
        ({"title": "tea", "milk": True}, "milk: Extra inputs are not permitted"),
        ({"title": "tea", "context": {}}, "context: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_refused_by_name(given, said):
    with pytest.raises(BadArguments, match=f"^order cannot be called like this: .*{said}"):
        order.arguments(given)


def test_only_the_first_problems_are_listed():
    with pytest.raises(BadArguments) as refused:
        order.arguments({"title": "tea"} | {f"extra_{number}": 1 for number in range(50)})
    assert str(refused.value).count("Extra inputs") == MAX_PROBLEMS


def test_function_runs_with_context_and_validated_arguments():
    assert order.run(CONTEXT, title="tea") == {
        "title": "tea",
        "count": 1,
        "size": "small",
        "price": None,
        "tags": [],
        "key": "1:step:1",
    }
    with pytest.raises(BadArguments):
        order.run(CONTEXT, title=5)


def test_function_without_a_context_runs_without_one():
    @skill()
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    assert double.run(number=4) == 8
    assert not double.wants_context


def test_defaults_of_a_declaration_are_cautious():
    @skill()
    def act() -> None:
        """Does something."""

    assert (act.level, act.side_effects, act.idempotent, act.local) == (Level.RESTRICTED, True, False, False)
    assert not act.capability(act.level).repeatable


def test_bare_declaration_is_a_declaration():
    @skill
    def act(what: str) -> str:
        """Does something."""
        return what

    assert (act.name, act.level, act.run(what="this")) == ("act", Level.RESTRICTED, "this")


@every_row(
    ("name", "kind"),
    [
        *((name, str) for name in ("url", "uri", "host", "webhook", "address", "to", "recipient", "iban")),
        *((name, list[str]) for name in ("recipients", "reply_to", "target_URL", "email_address", "mail")),
        *(("place", kind) for kind in (HttpUrl, AnyUrl | None, list[IPvAnyAddress], dict[str, IPv4Address])),
    ],
)
def test_argument_that_looks_like_a_destination_has_to_be_spoken_of(name, kind):
    def act(**_):
        """Does something."""

    act.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)])
    act.__annotations__ = {name: kind}
    with pytest.raises(BadSkill, match=f"act: {name} looks like a destination. .* addresses=\\('{name}',\\)"):
        skill(act)
    assert skill(addresses=(name,))(act).addresses == (name,)
    assert skill(addresses=())(act).addresses == ()


@every_row("name", ["total", "topic", "urgent", "hostility", "curl", "mailed", "text", "tomorrow"])
def test_other_names_are_no_destinations(name):
    def act(**_):
        """Does something."""

    act.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY, annotation=str)])
    act.__annotations__ = {name: str}
    assert skill(act).addresses == ()


def test_async_function_is_refused():
    async def act() -> None:
        """Does something later."""

    with pytest.raises(BadSkill, match="an async function cannot be a skill; write it with def"):
        skill(act)


def test_capability_has_the_level_of_the_call():
    made = replace(order, requires_approval=True).capability(Level.PRIVILEGED)

    assert (made.name, made.version, made.level) == ("order", "2", Level.PRIVILEGED)
    assert (made.side_effects, made.idempotent, made.requires_approval) == (False, False, True)


def test_nested_schemas_have_no_titles():
    @skill()
    def put(items: dict[str, list[int]]) -> None:
        """Puts things."""

    assert put.parameters["properties"]["items"] == {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "integer"}},
    }


def untyped(number) -> None:
    """Has a parameter without a type."""


def silent(number: int) -> None:
    pass


def starred(*numbers: int) -> None:
    """Takes any number of numbers."""


def doubly_starred(**numbers: int) -> None:
    """Takes numbers of any name."""


class Thing:
    """Something that is no JSON."""


def indescribable(thing: Thing) -> None:
    """Takes what JSON does not know."""


def fine(number: int) -> None:
    """Is fine."""


def asks(given: Any) -> ModelRequest:
    return ModelRequest("model", ())


@every_row(
    ("function", "declared", "said"),
    [
        (untyped, {}, "the parameter number needs a type"),
        (silent, {}, "needs a docstring"),
        (starred, {}, "cannot be described to a model"),
        (doubly_starred, {}, "cannot be described to a model"),
        (indescribable, {}, "cannot be described as JSON"),
        (lambda: None, {}, "'<lambda>' is not a skill name"),
        (fine, {"name": "Fine"}, "'Fine' is not a skill name"),
        (fine, {"name": "a" * 65}, "at most 64"),
        (fine, {"timeout_seconds": 0}, "a timeout is above 0"),
        (fine, {"timeout_seconds": MAX_TIMEOUT + 1}, "at most 180 seconds"),
        (fine, {"local": True, "isolation": "process"}, "runs in the worker itself"),
        (fine, {"local": True, "request": asks}, "cannot ask a model"),
        (fine, {"addresses": ("url", "number")}, "has no argument url"),
        (fine, {"variables": ("SKILL_A", "LQOPS_SECRET_KEY")}, "begin with SKILL_, unlike LQOPS_SECRET_KEY; secrets"),
        (fine, {"folders": ("/srv", "here")}, "folders are whole paths, unlike here"),
        (fine, {"limits": Limits(memory_mb=0)}, "the limits memory_mb must be whole numbers above 0"),
    ],
)
def test_invalid_declaration_is_refused(function, declared, said):
    with pytest.raises(BadSkill, match=said):
        skill(**declared)(function)


def test_skill_name_may_differ_from_the_function():
    assert skill(name="better")(fine).name == "better"


@every_row(
    ("needs", "lacking"),
    [
        (None, ""),
        (lambda: "", ""),
        (lambda: "a key (LQOPS_KEY)", "a key (LQOPS_KEY)"),
        (lambda: 1 / 0, "its requirements cannot be checked (ZeroDivisionError)"),
    ],
)
def test_lacking_reports_missing_requirements_and_never_fails(needs, lacking):
    @skill(needs=needs)
    def act() -> str:
        """Acts."""
        return ""

    assert act.lacking == lacking
