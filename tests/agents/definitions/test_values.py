"""Values of an agent.yaml: YAML 1.1 pitfalls, exact money, defaults."""

from decimal import Decimal

import pytest

from agents.definitions.loader import read_definition
from agents.definitions.schema import DefinitionError
from agents.enums import ApprovalMode, TriggerKind
from tests.table import every_row


def said(text):
    return read_definition(text)


@every_row("word", ["true", "True", "yes", "on", "ON", "Yes"])
def test_every_word_for_true_is_accepted_as_a_flag(word):
    assert said(f"enabled: {word}").enabled is True
    assert said(f"loop: {{streaming: {word}}}").loop == {"streaming": True}


@every_row("word", ["false", "no", "off", "OFF", "No"])
def test_every_word_for_false_is_accepted_as_a_flag(word):
    assert said(f"enabled: {word}").enabled is False


def test_quoted_word_is_not_a_flag():
    with pytest.raises(DefinitionError, match="enabled: expected true or false"):
        said('enabled: "yes"')


def test_flag_word_stays_text_where_text_is_expected():
    assert said("name: on\ndescription: no").name == "on"
    assert said("name: on\ndescription: no").description == "no"


@every_row("word", ["NO", "on", "010", "0x1f", ".inf", "9" * 60])
def test_ambiguous_word_is_refused_in_free_values(word):
    text = "hot_state:\n fields:\n  a:\n   type: array\n   refresh_tool: t\n   refresh_params:\n    list: [a, "
    with pytest.raises(DefinitionError) as caught:
        said(f"{text}{word}]")

    [found] = caught.value.problems
    assert (found.line, found.key) == (7, "hot_state.fields.a.refresh_params.list[1]")
    assert found.expected.startswith("text in quotes, true, false or a decimal number")


def test_free_values_become_json_values():
    params = (
        "{text: 'NO', flag: true, none: null, whole: 1_000, part: 1.5, time: 22:30, day: 2026-01-31, map: {a: [1]}}"
    )
    field = said(f"hot_state: {{fields: {{a: {{type: array, refresh_tool: t, refresh_params: {params}}}}}}}")

    assert field.hot_state.fields["a"].refresh_params == {
        "text": "NO",
        "flag": True,
        "none": None,
        "whole": 1_000,
        "part": 1.5,
        "time": "22:30",
        "day": "2026-01-31",
        "map": {"a": [1]},
    }


@every_row(
    ("written", "read"),
    [("08:00", "08:00"), ('"08:00"', "08:00"), ("8:00", "08:00"), ("22:00", "22:00"), ("'22:15'", "22:15")],
)
def test_times_need_no_quotes(written, read):
    assert said(f"autonomy: {{active_hours: {{start: {written}}}}}").autonomy.active_hours.start == read


@every_row("written", ["8", "24:00", "22:60", "noon", "08:00:00", "true", "[8]"])
def test_invalid_time_of_day_is_refused(written):
    with pytest.raises(DefinitionError, match=r"active_hours\.start: expected a time from 00:00 to 23:59"):
        said(f"autonomy: {{active_hours: {{start: {written}}}}}")


@every_row("written", ["600.0", "6e2", '"600"', "0600", "1:00", "true", "[]"])
def test_seconds_are_a_plain_whole_number(written):
    with pytest.raises(DefinitionError, match="idle_timeout: expected a whole number of seconds"):
        said(f"autonomy: {{idle_timeout: {written}}}")


def test_money_is_exact():
    definition = said("max_cost_usd: 0.1\nmax_cost_per_day_usd: 1_000.0001")
    assert definition.max_cost_usd == Decimal("0.1")
    assert definition.max_cost_per_day_usd == Decimal("1000.0001")


def test_every_section_is_read():
    definition = said(
        """\
name: Night watch
description: Looks after the shop at night.
instructions: |
  You look after the shop.
  Wake the owner when it burns.
model: small
mode: manual
zone: Europe/Paris
skills: [web_read, now]
loop: {max_steps: 20, context_strategy: compact}
guardrails: {reserve_cost_fraction: 0.2}
autonomy: {enabled: on, precheck_model: tiny, renew: daily, wake_on_chat: no}
heartbeat: {interval: 900, prompt: Still there?}
triggers:
  - {name: Ring, kind: event, source: door, min_severity: warning, max_cost_usd: 0.5, analysis_mode: agentic}
"""
    )
    assert definition.instructions == "You look after the shop.\nWake the owner when it burns."
    assert (definition.mode, definition.zone, definition.skills) == (
        ApprovalMode.MANUAL,
        "Europe/Paris",
        ("web_read", "now"),
    )
    assert (definition.autonomy.precheck_model, definition.autonomy.renew) == ("tiny", "daily")
    assert definition.autonomy.wake_on_chat is False
    assert (definition.heartbeat.enabled, definition.heartbeat.interval) == (True, 900)
    [trigger] = definition.triggers
    assert (trigger.kind, trigger.max_cost_usd, trigger.analysis_mode) == (TriggerKind.EVENT, Decimal("0.5"), "agentic")
    assert definition.line_of("triggers[0].source") == 15
    assert definition.line_of("no.such") == 0


def test_definition_is_immutable():
    with pytest.raises(ValueError, match="frozen"):
        said("name: a").name = "b"


def test_default_name_is_the_given_name_or_the_file_name():
    assert read_definition("", file="agents/night-watch.yaml").name == "night-watch"
    assert read_definition("", file="a.yaml", name="Day watch").name == "Day watch"
    assert "name" not in read_definition("", file="a.yaml").model_fields_set
