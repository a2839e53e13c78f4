"""The skills that need nothing but themselves: arithmetic, the time, and reports."""

import time
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.builtin_skills.lqops import render_report
from agents.builtin_skills.text import MAX_CHARS, calculate, now
from agents.exceptions import Invalid
from agents.skills.skill import BadArguments
from tests.agents.skills.test_skill import CONTEXT
from tests.factories import NOW
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


def test_result_that_had_to_be_cut_says_so():
    assert calculate.run(expression="1 / 3") == {"result": "0." + "3" * 50, "exact": False}
    assert calculate.run(expression="1 / 8") == {"result": "0.125", "exact": True}
    assert calculate.run(expression="round(2.675, 2)")["exact"] is True
    assert calculate.run(expression="0." + "1" * 60)["exact"] is False


@every_row(
    ("expression", "said"),
    [
        ("1 / 0", "divides by zero"),
        ("1 % 0", "no result"),
        ("0 / 0", "no result"),
        ("(-1) ** 0.5", "no result"),
        ("0 ** -1", "divides by zero"),
        ("1e9999 * 10", "too large"),
        ("10 ** 1000 ** 1000", "at most 1000"),
        ("9 ** 9 ** 9", "at most 1000"),
        ("2 ** 1001", "at most 1000, up or down; not 1001"),
        ("1,000 + 1", "not 1,000"),
        ("1 +", "cannot be read"),
        ("(1", "cannot be read"),
        ("007", "cannot be read"),
        ("(" * 400 + "1" + ")" * 400, "cannot be read"),
        ("-" * 900 + "1", "nested|cannot be read"),
        ("-" * 60 + "1", "nested more than 50"),
        ("2(3)", "Write a sign"),
        ("[1, 2]", "Write a sign"),
        ("abs", "Write a sign"),
        ("min(*[1])", "Write a sign"),
        ("abs(1, 2)", "abs takes 1 to 1 numbers, not 2"),
        ("round(1, 2, 3)", "round takes 1 to 2 numbers"),
        ("sum()", "sum takes 1 to"),
        ("round(1, 0.5)", "whole number of digits"),
        ("round(1, 51)", "at most 50"),
        ("x + 1", "from character 1 on: 'x [+] 1'"),
        ("1 + two", "from character 5 on"),
        ("1 if 2 else 3", "from character 3 on"),
        ("'a' * 10", "from character 1 on"),
        ("__import__('os')", "from character 1 on"),
        ("().__class__", "from character 3 on"),
        ("lambda: 1", "from character 1 on"),
        ("1 < 2", "from character 3 on"),
        ("1j", "from character 1 on"),
        ("0x10", "from character 1 on"),
        ("1;2", "from character 2 on"),
        ("1 # 2", "from character 3 on"),
        ("\u0663 + 1", "from character 1 on"),
        ("1..2", "from character 1 on"),
    ],
)
def test_what_is_no_arithmetic_is_refused_with_its_reason(expression, said):
    with pytest.raises(Invalid, match=said):
        result(expression)


@pytest.mark.parametrize("expression", ["", "1" * (MAX_CHARS + 1)])
def test_expression_has_a_length(expression):
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
def test_arithmetic_ends_soon(expression):
    started = time.process_time()
    calculate.run(expression=expression[:MAX_CHARS])
    assert time.process_time() - started < 1


@given(st.decimals(-(10**9), 10**9, places=4), st.decimals(-(10**9), 10**9, places=4))
def test_sums_and_products_are_those_of_decimals(first, second):
    assert Decimal(result(f"({first}) + ({second})")) == first + second
    assert Decimal(result(f"({first}) * ({second})")) == first * second


@given(st.text(alphabet="0123456789.e+-*/%() ,[]minaxsurod_", max_size=40))
def test_any_text_is_a_number_or_refused(expression):
    try:
        shown = calculate.run(expression=expression)["result"]
    except (Invalid, BadArguments):
        return
    assert Decimal(shown).is_finite()


def test_time_is_that_of_the_call():
    context = replace(CONTEXT, now=NOW)

    assert now.run(context) == {"time": "2026-03-14T09:26:53+00:00", "weekday": "Saturday", "week": 11, "zone": "UTC"}
    assert now.run(context, zone="Asia/Kolkata")["time"] == "2026-03-14T14:56:53+05:30"
    assert now.run(context, zone="Pacific/Auckland")["weekday"] == "Saturday"
    assert now.run(context, zone="America/New_York")["time"] == "2026-03-14T05:26:53-04:00"


@every_row("zone", ["", "Mars/Olympus", "America", "../../etc/hosts", "europe/paris"])
def test_unknown_zone_is_refused(zone):
    with pytest.raises(Invalid, match="is no time zone; use an IANA name"):
        now.run(CONTEXT, zone=zone)


def test_report_is_markdown():
    sections = [{"heading": "Findings", "text": "- one\n- two\n"}, {"heading": "Nothing", "text": " "}]

    assert render_report.run(title="Weekly report", sections=sections) == (
        "# Weekly report\n\n## Findings\n\n- one\n- two\n\n## Nothing\n"
    )


def test_heading_is_one_line_and_no_other_heading():
    report = render_report.run(title="A\n# B", sections=[{"heading": "## #", "text": "x"}])

    assert report == "# A # B\n\n## (untitled)\n\nx\n"


@every_row(
    "sections",
    [[], [{"heading": "a"}], [{"heading": "a", "text": "b", "more": "c"}], [{"heading": 1, "text": "b"}], ["text"]],
)
def test_sections_have_a_heading_and_a_text_and_nothing_else(sections):
    with pytest.raises(BadArguments):
        render_report.run(title="Report", sections=sections)


def test_sections_are_described_to_models():
    section = render_report.parameters["$defs"]["Section"]

    assert set(section["properties"]) == {"heading", "text"}
    assert (section["required"], section["additionalProperties"]) == (["heading", "text"], False)
