"""The arithmetic of money."""

import json
import unicodedata
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.policy.costs import (
    MOST_USD,
    NotMoney,
    affordable_tokens,
    checked_price,
    cost_of,
    input_bound,
    passes_warning,
    usd,
    worst_case,
)
from agents.types import Ledger, ModelRequest, Price, Usage
from tests.table import every_row

MICRO = Decimal("0.000001")
FREE = Price("free", Decimal(0), Decimal(0), overhead_tokens=0)
PAID = Price("paid", Decimal(3), Decimal(15), overhead_tokens=0)

rates = st.decimals(min_value=0, max_value=1_000, places=6)
amounts = st.decimals(min_value=0, max_value=100, places=6)
counts = st.integers(min_value=0, max_value=200_000)


# --- amounts ---


@every_row("rubbish", ["NaN", "-NaN", "sNaN", "Infinity", "-Infinity", "-1", "-0.0000001", "1E+30", "1E+999999"])
def test_what_is_not_an_amount_is_refused(rubbish):
    with pytest.raises(NotMoney):
        usd(Decimal(rubbish))


def test_an_amount_has_an_upper_end_that_the_books_can_hold():
    assert usd(MOST_USD) == MOST_USD
    assert MOST_USD * 10**6 <= 2**63 - 1
    with pytest.raises(NotMoney):
        usd(MOST_USD + MICRO)


@every_row(
    ("exact", "rounded"),
    [
        ("0", "0.000000"),
        ("0.0000004", "0.000001"),
        ("0.0000010", "0.000001"),
        ("0.00000100000001", "0.000002"),
        ("1E-300", "0.000001"),
        ("0.005", "0.005000"),
        ("12.3456789", "12.345679"),
    ],
)
def test_amounts_are_rounded_up_to_the_micro_dollar(exact, rounded):
    assert str(usd(Decimal(exact))) == rounded


@settings(deadline=None)
@given(st.decimals(min_value=0, max_value=1_000_000))
def test_rounding_is_done_once_and_never_gives_anything_away(value):
    rounded = usd(value)
    assert value <= rounded < value + MICRO
    assert usd(rounded) == rounded


def test_a_thousand_tiny_calls_add_up_exactly():
    assert sum((usd(Decimal("0.0000004")) for _ in range(1_000)), Decimal(0)) == Decimal("0.001000")


# --- prices ---


def test_usage_is_priced_per_million_tokens():
    assert cost_of(PAID, Usage(1_000, 500)) == Decimal("0.0105")
    assert Usage(1_000, 500).total == 1_500


def test_a_price_of_zero_costs_nothing():
    assert cost_of(FREE, Usage(10**9, 10**9)) == 0


def test_a_good_price_is_passed_on():
    assert checked_price(PAID) is PAID
    assert checked_price(FREE) is FREE


@every_row(
    "price",
    [
        Price("m", Decimal("-0.01"), Decimal(1)),
        Price("m", Decimal(1), Decimal("-0.01")),
        Price("m", Decimal("NaN"), Decimal(1)),
        Price("m", Decimal(1), Decimal("Infinity")),
        Price("m", Decimal(1), Decimal("1E+40")),
        Price("m", Decimal(1), Decimal(1), overhead_tokens=-1),
    ],
)
def test_a_bad_price_is_refused(price):
    with pytest.raises(NotMoney):
        checked_price(price)


def test_a_price_assumes_a_system_prompt_unless_it_says_otherwise():
    assert Price("m", Decimal(1), Decimal(1)).overhead_tokens == 1_024


# --- the worst case ---


def question(text, **more):
    return ModelRequest("m", ({"role": "user", "content": text},), **more)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_the_bound_covers_the_text_however_it_is_counted(text):
    bound = input_bound(question(text), FREE)
    for form in (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFKC", text)):
        assert bound >= len(form.encode("utf-8", "surrogatepass"))


@every_row(
    "text", ["\ufb01" * 50, "\ufdfa" * 50, "\u337f" * 50, "½" * 50, "\ud800" * 50, "\U0001f600" * 50, "\n\u0303" * 50]
)
def test_the_bound_covers_characters_that_grow(text):
    folded = unicodedata.normalize("NFKC", text)
    bound = input_bound(question(text), FREE)
    assert bound >= max(len(form.encode("utf-8", "surrogatepass")) for form in (text, folded))


def test_the_bound_counts_messages_tools_schema_and_overhead():
    plain = input_bound(question("hello"), FREE)
    twice = ModelRequest("m", ({"role": "user", "content": "hello"},) * 2)
    tool = {"name": "search", "parameters": {"q": "string"}}
    schema = {"type": "object", "required": ["verdict"]}
    assert input_bound(twice, FREE) >= plain + 16 + len("hello")
    assert input_bound(question("hello", tools=(tool,)), FREE) >= plain + len(json.dumps(tool))
    assert input_bound(question("hello", response_schema=schema), FREE) >= plain + len(json.dumps(schema)) - len("null")
    assert input_bound(question("hello"), Price("m", Decimal(1), Decimal(1))) == plain + 1_024


@settings(deadline=None)
@given(rates, rates, counts, counts, counts, counts)
def test_no_usage_within_the_bound_costs_more_than_the_worst_case(input_usd, output_usd, bound, limit, used, written):
    price = Price("m", input_usd, output_usd)
    used, written = min(used, bound), min(written, limit)
    assert cost_of(price, Usage(used, written)) <= worst_case(price, bound, limit)


@given(amounts, rates, rates, counts, counts)
def test_the_affordable_tokens_fit_and_one_more_does_not(room, input_usd, output_usd, input_tokens, wanted):
    price = Price("m", input_usd, output_usd)
    tokens = affordable_tokens(room, price=price, input_tokens=input_tokens, wanted=wanted)
    if tokens < 0:
        assert worst_case(price, input_tokens, 0) > room
        return
    assert tokens <= wanted
    assert worst_case(price, input_tokens, tokens) <= room
    if tokens < wanted:
        assert worst_case(price, input_tokens, tokens + 1) > room


@settings(deadline=None)
@given(st.fractions(min_value=0, max_value=10, max_denominator=10**6), st.integers(1, 10**9))
def test_the_affordable_tokens_are_exact_for_rates_that_do_not_divide(rate, budget):
    output = usd(Decimal(rate.numerator) / rate.denominator) + MICRO
    room = Decimal(budget) * MICRO
    tokens = affordable_tokens(room, price=Price("m", Decimal(0), output), input_tokens=0, wanted=10**18)
    assert tokens == Fraction(budget) // Fraction(output)


def test_free_output_is_affordable_as_long_as_the_input_is():
    price = Price("m", Decimal(1), Decimal(0))
    assert affordable_tokens(Decimal("0.001"), price=price, input_tokens=1_000, wanted=500) == 500
    assert affordable_tokens(Decimal("0.001"), price=price, input_tokens=1_001, wanted=500) < 0
    assert affordable_tokens(Decimal(0), price=FREE, input_tokens=10**9, wanted=500) == 500


# --- warnings ---


@every_row(
    ("cap", "charged", "reserved", "estimate", "warned", "passes"),
    [
        ("1", "0.7", "0", "0.1", False, True),
        ("1", "0.4", "0.3", "0.1", False, True),
        ("1", "0.7", "0", "0.099999", False, False),
        ("1", "0.7", "0", "0.1", True, False),
        ("0", "0", "0", "0", False, False),
        (None, "5", "0", "5", False, False),
    ],
)
def test_the_warning_is_for_the_call_that_first_reaches_80_percent(cap, charged, reserved, estimate, warned, passes):
    books = Ledger("b", cap and Decimal(cap), charged=Decimal(charged), reserved=Decimal(reserved), warned=warned)
    assert passes_warning(books, Decimal(estimate)) is passes


# --- caches ---


CACHED = Price("cached", Decimal(4), Decimal(20), 0, cache_write_usd=Decimal(5), cache_read_usd=Decimal("0.4"))


@every_row(
    ("price", "usage", "cost"),
    [
        (CACHED, Usage(1_000_000, 0), "4"),
        (CACHED, Usage(1_000_000, 0, cache_write_tokens=500_000), "4.5"),
        (CACHED, Usage(1_000_000, 0, cache_read_tokens=500_000), "2.2"),
        (CACHED, Usage(1_000_000, 100_000, cache_write_tokens=200_000, cache_read_tokens=300_000), "5.12"),
        (CACHED, Usage(1_000_000, 0, cache_write_tokens=800_000, cache_read_tokens=800_000), "4.08"),  # cannot be
        (CACHED, Usage(10, 0, cache_read_tokens=10**9), "0.000004"),
        (PAID, Usage(1_000_000, 0, cache_write_tokens=500_000, cache_read_tokens=500_000), "3"),  # no rates of its own
    ],
)
def test_tokens_of_a_cache_cost_its_own_rates(price, usage, cost):
    assert cost_of(price, usage) == Decimal(cost)


counted = st.builds(Usage, counts, counts, counts, counts)
optional = st.none() | rates
prices = st.builds(Price, st.just("m"), rates, rates, st.just(0), optional, optional)


@given(prices, counted)
def test_no_use_of_a_cache_costs_more_than_the_worst_case(price, usage):
    assert cost_of(price, usage) <= worst_case(price, usage.input_tokens, usage.output_tokens)


@given(prices, counts, counts, amounts)
def test_what_is_affordable_stays_affordable_with_a_cache(price, sent, wanted, room):
    tokens = affordable_tokens(room, price=price, input_tokens=sent, wanted=wanted)
    assert tokens < 0 or worst_case(price, sent, tokens) <= room + MICRO


def test_a_rate_of_a_cache_must_be_an_amount():
    with pytest.raises(NotMoney):
        checked_price(Price("m", Decimal(1), Decimal(1), 0, cache_read_usd=Decimal(-1)))
