"""The calculator: exact results, refusals, and bounded time."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.builtin_skills.text import MAX_CHARS, calculate
from agents.exceptions import Invalid
from agents.skills.skill import BadArguments
from tests.effort import takes_at_most
from tests.table import every_row


def result(expression):
    return calculate.run(expression=expression)["result"]


@every_row(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1_000 * 1.19", "1190"),
        ("(2 + 3) * 4 - -1", "21"),
        ("+5 - (+2)", "3"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("2 ** -2", "0.25"),
        ("2 ** 0.5", "1.4142135623730950488016887242096980785696718753769"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("7 // -2", "-4"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("6 % 3", "0"),
        ("5.5 // 2", "2"),
        ("round(2.675, 2)", "2.68"),
        ("round(-0.5)", "-1"),
        ("round(1234.5, -2)", "1200"),
        ("round(0, 2)", "0"),
        ("round((1200 - 15.5) * 19 / 100, 2)", "225.06"),
        ("abs(-3.50)", "3.5"),
        ("abs(-1.00000000000000000000000000000000001)", "1.00000000000000000000000000000000001"),
        ("min(3, 1, 2) + max([4, 5])", "6"),
        ("sum([0.1, 0.2, 0.3]) + sum(1)", "1.6"),
        ("-0.0", "0"),
        (".5 + 5.", "5.5"),
        ("1e3 + 1", "1001"),
        ("1e60", "1e+60"),
        ("10 ** -60", "1e-60"),
        ("1 +\n  2", "3"),
        ("+".join(["1"] * 500), "500"),
    ],
)
def test_arithmetic_is_exact(expression, value):
    assert result(expression) == value


def test_cut_result_is_marked_inexact():
    assert calculate.run(expression="1 / 3") == {"result": "0." + "3" * 50, "exact": False}
    assert calculate.run(expression="1 / 8") == {"result": "0.125", "exact": True}
    assert calculate.run(expression="round(2.675, 2)")["exact"] is True
    assert calculate.run(expression="0." + "1" * 60)["exact"] is False


@every_row(
    ("expression", "said"),
    [
        ("1 / 0", "divides by zero"),
        ("7 // 0", "divides by zero"),
        ("7 % 0", "divides by zero"),
        ("0 / 0", "no result"),
        ("(-1) ** 0.5", "no result"),
        ("0 ** -1", "divides by zero"),
        ("1e9999 * 10", "too large"),
        ("10 ** 1000 ** 1000", "too large"),
        ("9 ** 9 ** 9", "too large"),
        ("1,000 + 1", "not 1,000"),
        ("1 +", "cannot be read"),
        ("(1", "cannot be read"),
        ("007", "cannot be read"),
        ("(" * 400 + "1" + ")" * 400, "cannot be read"),
        ("-" * 999 + "1", "cannot be read"),
        ("2(3)", "Write numbers"),
        ("[1, 2]", "Write numbers"),
        ("abs", "Write numbers"),
        ("min(*[1])", "Write numbers"),
        ("abs(1, 2)", "abs takes 1 to 1 numbers, not 2"),
        ("round(1, 2, 3)", "round takes 1 to 2 numbers"),
        ("sum()", "sum takes 1 to"),
        ("round(1, 0.5)", "whole number of digits"),
        ("round(1, 51)", "at most 50"),
        ("x + 1", "Write numbers"),
        ("1 + two", "Write numbers"),
        ("1 if 2 else 3", "Write numbers"),
        ("'a' * 10", "cannot be read"),
        ("__import__('os')", "cannot be read"),
        ("().__class__", "Write numbers"),
        ("lambda: 1", "cannot be read"),
        ("1 < 2", "cannot be read"),
        ("1j", "Write numbers"),
        ("0x10", "no result"),
        ("1;2", "cannot be read"),
        ("1 # 2", "cannot be read"),
        ("\u0663 + 1", "cannot be read"),
        ("1..2", "cannot be read"),
    ],
)
def test_invalid_expression_is_refused_with_its_reason(expression, said):
    with pytest.raises(Invalid, match=said):
        result(expression)


@pytest.mark.parametrize("expression", ["", "1" * (MAX_CHARS + 1)])
def test_length_of_an_expression_is_bounded(expression):
    with pytest.raises(BadArguments):
        result(expression)


@every_row(
    "expression",
    [
        "+".join(["2**.123456789"] * 70),
        "**".join(["1.1"] * 45),
        "*".join(["9"] * 500),
        "3/" * 400 + "7",
        "sum([" + ",".join(["1"] * 400) + "])",
    ],
)
def test_evaluation_time_is_bounded(expression):
    assert takes_at_most(1, lambda: calculate.run(expression=expression[:MAX_CHARS]))


@given(st.decimals(-(10**9), 10**9, places=4), st.decimals(-(10**9), 10**9, places=4))
def test_sums_and_products_equal_those_of_decimals(first, second):
    assert Decimal(result(f"({first}) + ({second})")) == first + second
    assert Decimal(result(f"({first}) * ({second})")) == first * second


@given(st.text(alphabet="0123456789.e+-*/%() ,[]minaxsurod_", max_size=40))
def test_any_text_gives_a_number_or_a_refusal(expression):
    try:
        shown = calculate.run(expression=expression)["result"]
    except (Invalid, BadArguments):
        return
    assert Decimal(shown).is_finite()
