"""Approval rules: what fits, what cannot be judged, and that the strictest counts."""

from decimal import Decimal

import pytest

from agents.enums import RuleEffect
from agents.policy.rules import OPERATORS, Condition, Facts, Rule, fits, hosts_of, judged, rule_problem

ALLOW, ASK, DENY = RuleEffect


def facts(cost="0", addresses=(), agent="a", skill="pay", **arguments):
    return Facts(agent, skill, arguments, Decimal(cost), addresses)


def rule(effect=ASK, **fields):
    return Rule(effect, **fields)


@pytest.mark.parametrize(
    ("fields", "fitting"),
    [
        ({}, True),
        ({"agent": "a"}, True),
        ({"agent": "b"}, False),
        ({"skill": "pay"}, True),
        ({"skill": "look"}, False),
        ({"min_cost_usd": Decimal(1)}, True),
        ({"min_cost_usd": Decimal("1.01")}, False),
        ({"agent": "a", "skill": "look"}, False),
    ],
)
def test_all_that_a_rule_names_must_fit(fields, fitting):
    assert fits(rule(**fields), facts(cost="1")) is fitting


@pytest.mark.parametrize(
    ("operator", "value", "given", "asks", "allows"),
    [
        ("is", "eve", "eve", True, True),
        ("is", "Eve", "eve ", True, False),
        ("is", "eve", "ada", False, False),
        ("is", "5", 5, True, True),
        ("is", "100", 100.0, True, True),
        ("is", "true", True, True, False),
        ("is_not", "eve", "ada", True, True),
        ("is_not", "eve", "EVE", True, False),
        ("is_not", "100", 100.0, False, False),
        ("contains", "secret", "A Secret plan", True, False),
        ("contains", "secret", "a se\u200bcret \uff50lan", True, False),
        ("contains", "secret", "none", False, False),
        ("starts_with", "Re:", "Re: x", True, True),
        ("starts_with", "https://strasse.example/", "https://stra\u00dfe.example/x", True, False),
        ("starts_with", "x", "Re: x", False, False),
        ("ends_with", ".exe", "a.EXE", True, False),
        ("ends_with", ".txt", "a.txt", True, True),
        ("ends_with", ".exe", "a.txt", False, False),
        ("above", "100", 100.5, True, True),
        ("above", "100", "100", False, False),
        ("below", "100", " 99 ", True, True),
        ("below", "100", 100, False, False),
    ],
)
def test_what_asks_goes_by_what_a_text_reads_like_and_what_allows_by_the_text_itself(
    operator, value, given, asks, allows
):
    conditions = (Condition("x", operator, value),)
    assert fits(rule(ASK, conditions=conditions), facts(x=given)) is asks
    assert fits(rule(DENY, conditions=conditions), facts(x=given)) is asks
    assert fits(rule(ALLOW, conditions=conditions), facts(x=given)) is allows


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://evil.example)",
        "`https://evil.example`",
        "(bob@evil.example)",
        "https://evil.example, and",
        "https://evil.example\u3002/x",
        "*https://evil.example*",
        "https://evil.example|x",
        "https://evil.example!",
        "bob@[evil.example]",
        "https://evil.example\\@shop.example/",
        "https://shop.example@evil.example/",
        "https://evil%2eexample/",
        "bob%40evil.example",
        "HTTPS://EVIL.EXAMPLE:443",
        "ev\u200bil.example",
        "see //[x and https://a\u2100b and evil.example",
    ],
)
def test_a_destination_is_found_however_it_is_written(text):
    there = {"destinations": ("evil.example",)}
    assert fits(rule(DENY, **there), facts(text=text))
    assert fits(rule(DENY, **there), facts(to={text: "Bob"}))
    assert not fits(rule(ALLOW, skill="pay", destinations=("shop.example",)), facts(text=f"{text} shop.example"))


def test_a_long_word_takes_no_time():
    assert hosts_of(facts(text="a" * 200_000)) == set()
    assert hosts_of(facts(text="a." * 100_000)) != set()


def test_every_operator_is_tried():
    assert set(OPERATORS) == {"is", "is_not", "contains", "starts_with", "ends_with", "above", "below"}


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("x", {}),
        ("x", {"x": "many"}),
        ("x", {"x": "NaN"}),
        ("x", {"x": [5]}),
        ("x.y", {"x": 5}),
        ("x.7", {"x": [1]}),
        ("x.y", {"x": [1]}),
    ],
)
def test_what_cannot_be_judged_counts_against_the_call(argument, given):
    for operator in ("above", "below"):
        conditions = (Condition(argument, operator, "3"),)
        assert fits(rule(DENY, conditions=conditions), facts(**given))
        assert fits(rule(ASK, conditions=conditions), facts(**given))
        assert not fits(rule(ALLOW, conditions=conditions), facts(**given))


def test_an_object_is_not_compared_as_text():
    assert not fits(rule(ALLOW, conditions=(Condition("x", "is_not", "a"),)), facts(x={"a": 1}))


def test_inner_arguments_are_named_with_dots():
    inner = (Condition("order.items.1.total", "above", "3"),)
    assert fits(rule(ALLOW, conditions=inner), facts(order={"items": [{"total": 1}, {"total": 4}]}))
    assert not fits(rule(ALLOW, conditions=inner), facts(order={"items": [{"total": 4}, {"total": 1}]}))


def test_the_strictest_counts_and_asking_rules_add_their_roles():
    allow, ask = rule(ALLOW, skill="pay"), rule(ASK)
    asks_x, asks_y, deny = rule(role="x"), rule(role="y"), rule(DENY)
    assert judged([], facts()) is None
    assert judged([rule(skill="look")], facts()) is None
    assert judged([allow], facts()).effect == ALLOW
    assert judged([allow, ask], facts()).effect == ASK
    found = judged([allow, asks_y, ask, asks_x], facts())
    assert (found.effect, found.roles, found.rules) == (ASK, ("x", "y"), (asks_y, ask, asks_x))
    assert judged([allow, asks_x, deny], facts()).rules == (deny,)


@pytest.mark.parametrize(
    ("arguments", "addresses", "hosts"),
    [
        ({"url": "https://user@Shop.Example:8443/x?y=1"}, (), {"shop.example"}),
        ({"text": "write to <Eve@evil.example>, now"}, (), {"evil.example"}),
        ({"a": ["b", {"c": "//x.example/y"}]}, (), {"x.example"}),
        ({"host": "intranet"}, ("host",), {"intranet"}),
        ({"host": "intranet"}, (), set()),
        ({"host": "evil.example."}, (), {"evil.example"}),
        ({"host": "b\u00fccher.example"}, (), {"xn--bcher-kva.example"}),
        ({"host": "evil\u3002example"}, (), {"evil.example"}),
        ({"host": "10.0.0.1"}, (), {"10.0.0.1"}),
        ({"n": 5, "none": None}, ("n", "none", "gone"), {"5"}),
        ({"to": "a b"}, ("to",), {"a b"}),
    ],
)
def test_hosts_are_found_in_one_form(arguments, addresses, hosts):
    assert hosts_of(facts(addresses=addresses, **arguments)) == hosts


@pytest.mark.parametrize(
    ("text", "allowed", "denied"),
    [
        ("https://shop.example/", True, True),
        ("https://api.shop.example/", True, True),
        ("https://myshop.example/", False, False),
        ("https://shop.example.evil.example/", False, False),
        ("https://shop.example@evil.example/", False, True),
        ("https://shop.example/ and https://evil.example/", False, True),
        ("no address", False, False),
    ],
)
def test_a_rule_that_allows_holds_for_its_destinations_only(text, allowed, denied):
    there = {"skill": "pay", "destinations": ("shop.example",)}
    assert fits(rule(ALLOW, **there), facts(text=text)) is allowed
    assert fits(rule(DENY, **there), facts(text=text)) is denied


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"effect": DENY, "role": "admin"}, "Only a rule that asks names a role"),
        ({"effect": ALLOW}, "has to name a skill"),
        ({"conditions": (Condition("x", "is", "1"),) * 11}, "at most 10 conditions"),
        ({"conditions": (Condition("x", "matches", "1"),)}, "matches is no operator; there are is, is_not"),
        ({"conditions": (Condition("a b", "is", "1"),)}, "'a b' is no argument"),
        ({"conditions": (Condition("", "is", "1"),)}, "'' is no argument"),
        ({"conditions": (Condition("x", "is", "y" * 501),)}, "at most 500 characters"),
        ({"conditions": (Condition("x", "above", "much"),)}, "'much' is no number"),
        ({"conditions": (Condition("x", "below", "inf"),)}, "'inf' is no number"),
        ({"destinations": ("a.example",) * 51}, "at most 50 destinations"),
        ({"destinations": ("https://a.example",)}, "'https://a.example' is no host"),
        ({"destinations": ("*.example",)}, "is no host"),
        ({"destinations": ("",)}, "is no host"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_what_to_write(fields, says):
    assert says in rule_problem(Rule(**{"effect": ASK, **fields}))


def test_a_rule_that_can_be_used():
    whole = {
        "skill": "pay",
        "conditions": (Condition("a.b", "above", "1.5"),),
        "destinations": ("a.example", "10.0.0.1"),
    }
    assert rule_problem(rule(ALLOW, **whole)) == ""
    assert rule_problem(rule(ASK, role="admin")) == ""
    assert str(Condition("a.b", "above", "1.5")) == "a.b is above 1.5"
