"""Settings of loops and guardrails: defaults, layers, and what is refused."""

from decimal import Decimal

import pytest

from agents.policy.guardrails import GuardrailsConfig, LoopConfig, Strategy
from tests.table import every_row


def test_the_defaults_of_the_guardrails():
    assert GuardrailsConfig.merged() == GuardrailsConfig(
        max_tokens_recoveries=2,
        max_repeated_tool_steps=3,
        reserve_tokens=512,
        reserve_cost_fraction=Decimal("0.1"),
    )


def test_the_defaults_of_a_loop():
    assert LoopConfig.merged() == LoopConfig(
        max_steps=50,
        timeout=0,
        max_retries=3,
        streaming=False,
        context_window=0,
        context_strategy=Strategy.SLIDING_WINDOW,
        token_budget=0,
        max_tool_rounds=0,
    )


def test_the_narrowest_layer_wins_and_each_setting_by_itself():
    installation = {"max_tokens_recoveries": 1, "max_repeated_tool_steps": 5, "reserve_tokens": 100}
    agent = {"max_repeated_tool_steps": 4, "reserve_tokens": 200}
    trigger = {"reserve_tokens": 300}

    merged = GuardrailsConfig.merged(installation, agent, trigger)

    assert merged == GuardrailsConfig(1, 4, 300)
    assert GuardrailsConfig.merged(trigger, agent, installation) == GuardrailsConfig(1, 5, 100)


def test_a_layer_without_a_setting_leaves_the_wider_one_alone():
    assert LoopConfig.merged({"max_steps": 7}, {}, {"streaming": True}) == LoopConfig(max_steps=7, streaming=True)


def test_an_explicit_default_in_a_narrow_layer_wins_over_a_wide_one():
    assert LoopConfig.merged({"max_steps": 7}, {"max_steps": 50}).max_steps == 50


@every_row(
    ("given", "taken"), [(0, "0"), (1, "1"), (0.15, "0.15"), ("0.2", "0.2"), (Decimal("0.3"), "0.3"), ("1e-3", "0.001")]
)
def test_a_fraction_is_taken_as_it_is_written(given, taken):
    assert GuardrailsConfig.merged({"reserve_cost_fraction": given}).reserve_cost_fraction == Decimal(taken)


NAN = float("nan")


@every_row("value", [NAN, "NaN", "sNaN", float("inf"), "-Infinity", -0.1, 1.01, "2", "ten", "", True, None, [0.1], 1j])
def test_refuses_what_is_no_fraction(value):
    with pytest.raises(ValueError, match=r"^reserve_cost_fraction = .+: it must be a number from 0 to 1\.$"):
        GuardrailsConfig.merged({"reserve_cost_fraction": value})


@every_row("value", [-1, 10**12 + 1, 1.0, "3", True, False, None, [], NAN])
@every_row("key", ["max_tokens_recoveries", "max_repeated_tool_steps", "reserve_tokens"])
def test_refuses_what_is_no_count_in_guardrails(key, value):
    with pytest.raises(ValueError, match=rf"^{key} = .+: it must be a whole number from 0 to 1000000000000\.$"):
        GuardrailsConfig.merged({key: value})


@every_row("value", [-1, 10**12 + 1, 10**30, 1.5, "3", True, None])
@every_row("key", ["max_steps", "timeout", "max_retries", "context_window", "token_budget", "max_tool_rounds"])
def test_refuses_what_is_no_count_in_a_loop(key, value):
    with pytest.raises(ValueError, match=rf"^{key} = .+: it must be a whole number from 0 to 1000000000000\.$"):
        LoopConfig.merged({key: value})


def test_takes_the_largest_count():
    assert LoopConfig.merged({"token_budget": 10**12}).token_budget == 10**12


@every_row("strategy", ["none", "sliding_window", "compact", "summarize"])
def test_takes_every_strategy_by_name(strategy):
    assert LoopConfig.merged({"context_strategy": strategy}).context_strategy == strategy


@every_row("value", ["sliding", "", "NONE", None, 3, ["none"]])
def test_refuses_an_unknown_strategy_and_names_the_known_ones(value):
    with pytest.raises(ValueError, match="one of none, sliding_window, compact, summarize"):
        LoopConfig.merged({"context_strategy": value})


@every_row("value", [1, 0, "true", None])
def test_refuses_what_is_no_flag(value):
    with pytest.raises(ValueError, match=r"^streaming = .+: it must be true or false\.$"):
        LoopConfig.merged({"streaming": value})


def test_refuses_an_unknown_setting_with_its_value_and_the_known_ones():
    with pytest.raises(ValueError, match=r"^max_step = 5: there is no such setting; there are max_steps, "):
        LoopConfig.merged({"max_step": 5})
    with pytest.raises(ValueError, match="there are max_tokens_recoveries, max_repeated_tool_steps, reserve_tokens"):
        GuardrailsConfig.merged({"max_steps": 5})


def test_a_bad_value_is_refused_also_where_a_narrower_layer_overrides_it():
    with pytest.raises(ValueError, match="max_steps = -5"):
        LoopConfig.merged({"max_steps": -5}, {"max_steps": 5})


def test_an_error_does_not_repeat_a_long_value():
    with pytest.raises(ValueError, match="max_steps") as refused:
        LoopConfig.merged({"max_steps": "x" * 10_000})
    assert len(str(refused.value)) < 150
