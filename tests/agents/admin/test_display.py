"""Formatting of values: money, times, bars, texts, form fields."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django import forms

from agents.admin.display import (
    NOTHING,
    Bar,
    ago,
    cost_context,
    counted,
    cut,
    difference,
    moment,
    plain_error,
    plain_sentence,
    pretty,
    register,
    short_usd,
    span,
    took,
    usd,
    when,
    words,
)
from agents.admin.forms import ArgumentsField, StyledForm, usd_field
from agents.admin.playbooks import LinesField
from agents.models import AgentSession
from agents.text.shown import visible
from tests.factories import NOW


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal(0), "$0.00"),
        (Decimal("5.000000"), "$5.00"),
        (Decimal("0.005"), "$0.005"),
        (Decimal("0.12345"), "$0.1234"),
        (Decimal("0.000001"), "<$0.0001"),
        (Decimal("1.2345"), "$1.23"),
        (Decimal("1234.5"), "$1234.50"),
        (None, "—"),
    ],
)
def test_money_has_two_places_from_one_dollar_and_up_to_four_below(amount, text):
    assert usd(amount) == register.filters["usd"](amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("0.009999"), '<span title="$0.009999">$0.0100</span>'),
        (Decimal("0.0012"), '<span title="$0.0012">$0.0012</span>'),
        (Decimal("0.000012"), '<span title="$0.000012">&lt;$0.0001</span>'),
        (Decimal("1.999"), '<span title="$1.999">$1.9990</span>'),
        (Decimal(0), '<span title="$0.00">$0.00</span>'),
        (None, "—"),
    ],
)
def test_money_in_lists_has_four_places_and_the_exact_amount_as_tooltip(amount, text):
    assert short_usd(amount) == text


@pytest.mark.parametrize(
    "char",
    [
        "\u202a",
        "\u202b",
        "\u202c",
        "\u202d",
        "\u202e",
        "\u2066",
        "\u2067",
        "\u2068",
        "\u2069",
        "\u200e",
        "\u200f",
        "\u061c",
        "\u200b",
        "\u200c",
        "\u200d",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\u180e",
        "\u2028",
        "\u2029",
        "\u00a0",
        "\u2003",
        "\u3000",
        "\u3164",
        "\uffa0",
        "\u115f",
        "\u1160",
        "\u2800",
        "\ufe0f",
        "\U000e0100",
        "\U000e0041",
        "\u034f",
        "\x00",
        "\x07",
        "\x1b",
        "\r",
        "\x7f",
        "\x85",
        "\ue000",
        "\ud800",
        "\uffff",
        "\u180b",
    ],
)
def test_invisible_characters_are_spelled_out(char):
    assert visible(f"a{char}b") == f"a⟨U+{ord(char):04X}⟩b"


@pytest.mark.parametrize("text", ["plain text", "Käthe, 東京, Ελλάδα, नमस्ते", "tabs\tand\nlines", "🙂", "e\u0301"])
def test_visible_characters_stay(text):
    assert visible(text) == text


def test_json_is_readable_and_hides_nothing():
    assert pretty({"b": "ü\u202e", "a": [1]}) == '{\n  "a": [\n    1\n  ],\n  "b": "ü⟨U+202E⟩"\n}'


def test_logged_amount_is_formatted_unless_unreadable():
    assert [register.filters["usd"](amount) for amount in ("0.500000", "", "lots")] == ["$0.50", "", "lots"]
    assert register.filters["exact_usd"]("1.234567") == "$1.234567"


def test_logged_sentence_gets_the_pages_amounts_and_words():
    assert (
        plain_sentence("Halted: external_halt, 0.500000 USD of 20 USD.")
        == "Halted: stopped by a person, $0.50 of $20.00."
    )
    assert plain_sentence("Call run_playbook: tool_not_granted.") == "Call run_playbook: tool not granted."
    assert plain_error("CostCapReached: above 1.000000 USD.") == "above $1.00."
    assert [plain_error(text) for text in ("Note: x", "no colon", "")] == ["x", "no colon", ""]


def test_words_counts_and_cut_texts():
    assert [words(value) for value in ("budget_exceeded", "organisation")] == ["budget exceeded", "whole installation"]
    assert [counted(1, "call"), counted(2, "call"), counted(0, "is", "are")] == ["1 call", "2 calls", "0 are"]
    assert [cut("abc", 3), cut("abc d", 5), cut("abc de", 5)] == ["abc", "abc d", "abc…"]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(seconds=1), "1 second"),
        (timedelta(seconds=59), "59 seconds"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(hours=23, minutes=59), "23 hours"),
        (timedelta(days=-2), "2 days"),
    ],
)
def test_duration_is_shown_in_its_largest_unit(length, text):
    assert span(length) == text


def test_time_is_shown_relative_to_now():
    assert ago(NOW - timedelta(hours=2), NOW) == "2 hours ago"
    assert ago(NOW + timedelta(minutes=3), NOW) == "in 3 minutes"
    assert ago(None, NOW) == "never"
    assert moment(NOW) == "14 Mar 2026 09:26:53"
    assert moment(None) == "—"
    assert took(999) == "999 ms"
    assert took(1_500) == "1.5 s"
    assert words("budget_exceeded") == "budget exceeded"


@pytest.mark.parametrize(
    ("spent", "cap", "bar"),
    [
        ("0", "5", Bar(0, "fine")),
        ("3.99", "5", Bar(79, "fine")),
        ("4", "5", Bar(80, "warn")),
        ("5", "5", Bar(100, "full")),
        ("9", "5", Bar(100, "full")),
        ("0", "0", Bar(100, "full")),
    ],
)
def test_a_bar_is_full_at_the_cap_and_warns_before(spent, cap, bar):
    assert Bar.of(Decimal(spent), Decimal(cap)) == bar
    assert Bar.of(Decimal(spent), None) is None


def test_session_with_a_zero_cap_has_no_bar():
    assert cost_context(AgentSession(max_cost_usd=Decimal(0)))["bar"] is None
    assert cost_context(AgentSession(max_cost_usd=Decimal(1)))["bar"] == Bar(0, "fine")


def test_cost_is_the_larger_of_approved_and_reported_and_the_bar_counts_what_is_in_flight():
    costs = {"cost_total_usd": Decimal("0.5"), "cost_actual_usd": Decimal("0.2"), "cost_reserved_usd": Decimal("0.3")}

    found = cost_context(AgentSession(max_cost_usd=Decimal(1), **costs))

    assert (found["spent"], found["in_flight"], found["bar"]) == (Decimal("0.5"), Decimal("0.3"), Bar(80, "warn"))
    more = cost_context(AgentSession(max_cost_usd=Decimal(1), **{**costs, "cost_actual_usd": Decimal("0.9")}))
    assert (more["spent"], more["bar"]) == (Decimal("0.9"), Bar(90, "warn"))


def test_difference_names_old_and_new():
    lines = [(kind, line.strip()) for kind, line in difference({"a": 1, "b": 2}, {"a": 1, "b": 3})]

    assert ("same", '"a": 1,') in lines
    assert ("old", '"b": 2') in lines
    assert ("new", '"b": 3') in lines


# --- Fields ---


class Sample(StyledForm):
    text = forms.CharField()
    long = forms.CharField(widget=forms.Textarea)
    choice = forms.ChoiceField(choices=[("a", "A")])
    several = forms.MultipleChoiceField(choices=[("a", "A")], widget=forms.CheckboxSelectMultiple)
    switch = forms.BooleanField()
    hidden = forms.CharField(widget=forms.HiddenInput)


def test_every_kind_of_field_is_styled():
    form = Sample()

    assert all("class" in field.widget.attrs for field in form.fields.values())
    assert "expand_more" in str(form["choice"])


@pytest.mark.parametrize("given", ["-0.01", "1.00001", "NaN", "Infinity", "1e99", "abc", "99999999999999"])
def test_invalid_amount_is_refused(given):
    with pytest.raises(forms.ValidationError):
        usd_field().clean(given)


def test_an_amount_keeps_four_places():
    assert usd_field().clean("0.1234") == Decimal("0.1234")
    assert usd_field(required=False).clean("") is None


def test_arguments_are_one_object():
    assert ArgumentsField().clean('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert ArgumentsField(required=False).clean("") is None


def test_lines_field_splits_lines():
    field = LinesField()

    assert field.clean(" a \n\n b\r\n") == ("a", "b")
    assert field.prepare_value(("a", "b")) == "a\nb"
    assert not field.has_changed(("a", "b"), "a\r\nb\r\n")
    assert field.has_changed(("a",), "b")


def test_time_in_a_list_has_its_year_only_if_it_is_another_one(monkeypatch):
    monkeypatch.setattr("agents.admin.display.clock", lambda: NOW)
    earlier = NOW.replace(year=NOW.year - 1)

    assert when(NOW) == f'<span class="lq-when" title="{moment(NOW)} UTC">{NOW:%d %b %H:%M}</span>'
    assert f">{earlier:%d %b %Y %H:%M}<" in when(earlier)
    assert when(None) == NOTHING
    assert when(None, empty="never") == "never"
