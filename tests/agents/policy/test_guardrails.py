"""The guardrails of the step loop: counting, comparing, and what the loop says to a model."""

import json
from dataclasses import fields, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.enums import TerminalReason
from agents.policy import guardrails
from agents.policy.guardrails import (
    Counters,
    GuardrailsConfig,
    InternalMessage,
    LoopConfig,
    Reason,
    Stop,
    budget_line,
    is_stuck,
    may_recover,
    needs_nudge,
    observe_reading,
    observe_tool_calls,
    preflight,
    premature_end,
    read_stop,
    signature,
    step_limit,
    stuck_error,
    warns_of_budget,
)
from agents.types import Ledger
from tests.table import every_row

DEFAULTS = GuardrailsConfig()

# --- Before a step ---


@every_row(
    ("cancelled", "elapsed", "steps", "reason"),
    [
        (True, 11, 3, TerminalReason.EXTERNAL_HALT),
        (True, 0, 0, TerminalReason.EXTERNAL_HALT),
        (False, 11, 3, TerminalReason.TIMED_OUT),
        (False, 10.001, 0, TerminalReason.TIMED_OUT),
        (False, 10, 3, TerminalReason.MAX_STEPS),
        (False, 10, 4, TerminalReason.MAX_STEPS),
        (False, 10, 2, None),
    ],
)
def test_the_first_reason_in_order_ends_the_loop(cancelled, elapsed, steps, reason):
    config = LoopConfig(max_steps=3, timeout=10)
    assert preflight(cancelled=cancelled, elapsed_seconds=elapsed, step_count=steps, config=config) == reason


def test_a_timeout_of_zero_is_none():
    assert preflight(cancelled=False, elapsed_seconds=1e9, step_count=0, config=LoopConfig()) is None


def test_the_last_step_of_the_limit_may_begin_and_so_may_finish_the_run():
    config = LoopConfig(max_steps=3)
    reasons = [preflight(cancelled=False, elapsed_seconds=0, step_count=n, config=config) for n in range(4)]
    assert reasons == [None, None, None, TerminalReason.MAX_STEPS]


def test_no_step_begins_under_a_limit_of_zero():
    config = LoopConfig(max_steps=0)
    assert preflight(cancelled=False, elapsed_seconds=0, step_count=0, config=config) == TerminalReason.MAX_STEPS


@every_row(("steps", "rounds", "limit"), [(50, 0, 50), (50, 5, 5), (3, 5, 3), (0, 5, 0), (5, 5, 5)])
def test_the_smaller_of_steps_and_tool_rounds_is_the_limit(steps, rounds, limit):
    config = LoopConfig(max_steps=steps, max_tool_rounds=rounds)
    assert step_limit(config) == limit
    assert preflight(cancelled=False, elapsed_seconds=0, step_count=limit, config=config) == TerminalReason.MAX_STEPS


# --- After a reply ---


@every_row(
    ("stop_reason", "has_calls", "truncated_call", "stop"),
    [
        ("end_turn", False, False, Stop.END_TURN),
        ("max_tokens", False, False, Stop.MAX_TOKENS),
        ("out_of_time", False, False, Stop.OUT_OF_TIME),
        ("out_of_time", True, True, Stop.OUT_OF_TIME),
        ("tool_use", True, False, Stop.TOOL_USE),
        ("end_turn", True, False, Stop.TOOL_USE),
        ("max_tokens", True, False, Stop.TOOL_USE),
        ("max_tokens", True, True, Stop.MAX_TOKENS),
        ("tool_use", True, True, Stop.MAX_TOKENS),
        ("tool_use", False, False, Stop.END_TURN),
        ("pause_turn", False, False, Stop.END_TURN),
        ("", False, False, Stop.END_TURN),
        ("pause_turn", True, False, Stop.TOOL_USE),
        ("refusal", False, False, Stop.REFUSAL),
        ("refusal", True, True, Stop.REFUSAL),
    ],
)
def test_what_a_reply_asks_of_the_loop(stop_reason, has_calls, truncated_call, stop):
    assert read_stop(stop_reason, has_calls=has_calls, truncated_call=truncated_call) == stop


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_truncated_replies_are_continued_so_often_and_no_more(limit):
    counters, config, continued = Counters(), GuardrailsConfig(max_tokens_recoveries=limit), 0
    while may_recover(Stop.MAX_TOKENS, counters, config):
        counters = counters.after_message(guardrails.CONTINUE.reason)
        continued += 1
    assert continued == limit


def test_an_empty_end_after_a_failure_is_objected_to_twice():
    counters, objections = Counters(), 0
    while premature_end(" \n", recent_failed=True, counters=counters):
        counters = counters.after_message(guardrails.TRY_OTHERWISE.reason)
        objections += 1
    assert objections == 2


@pytest.mark.parametrize(("text", "failed"), [("done", True), ("", False), ("done", False)])
def test_other_ends_are_not_premature(text, failed):
    assert not premature_end(text, recent_failed=failed, counters=Counters())


def warned(counters=None, config=DEFAULTS, *, cap=None, budget=0, tokens=0, **books):
    amounts = {name: Decimal(amount) for name, amount in books.items()}
    ledger = Ledger("session", cap if cap is None else Decimal(cap), **amounts)
    return warns_of_budget(counters or Counters(), config, ledger=ledger, token_budget=budget, total_tokens=tokens)


def test_warns_at_the_reserve_and_not_before():
    assert not warned(budget=1_000, tokens=487)
    assert warned(budget=1_000, tokens=488)
    for book in ("charged", "reserved", "actual", "held"):
        assert not warned(cap="1", **{book: "0.899999"})
        assert warned(cap="1", **{book: "0.9"})
    assert warned(cap="0")


def test_the_reserves_are_the_configured_ones():
    config = GuardrailsConfig(reserve_tokens=10, reserve_cost_fraction=Decimal("0.5"))
    assert not warned(config=config, budget=1_000, tokens=989)
    assert warned(config=config, budget=1_000, tokens=990)
    assert warned(config=config, cap="1", charged="0.5")


def test_never_warns_without_a_limit():
    assert not warned(charged="1000", actual="1000", tokens=10**12)


def test_warns_once():
    assert not warned(Counters().after_message(Reason.NEAR_BUDGET), cap="1", charged="1")


# --- Repetition ---

A, B = ("read", {"path": "a"}), ("read", {"path": "b"})


def executed(steps, config=DEFAULTS, counters=None):
    """How many of the steps run before the guard refuses one, and what it remembers then."""
    counters = counters or Counters()
    for number, calls in enumerate(steps):
        if calls is not None:
            counters = observe_tool_calls(counters, calls)
            if is_stuck(counters, config):
                return number, counters
    return len(steps), counters


def test_the_fourth_identical_step_in_a_row_does_not_run():
    assert executed([[A]] * 9)[0] == 3


def test_a_different_step_starts_the_count_again():
    assert executed([[A], [A], [A], [B], [A], [A], [A], [A]])[0] == 7


def test_a_step_without_calls_changes_nothing():
    assert executed([[A], [], [A], [A], [A]])[0] == 4
    assert executed([[A], None, [A], [A], [A]])[0] == 4


def test_yield_is_no_call_that_could_break_or_make_a_repetition():
    yielded = ("yield", {"action": "continue"})
    assert executed([[A], [yielded], [A, yielded], [yielded, yielded], [A], [A]])[0] == 5
    assert executed([[yielded]] * 20)[0] == 20


@every_row("limit", [0, 1, 2, 5])
def test_a_set_of_calls_runs_as_often_as_the_limit_says_and_zero_is_not_off(limit):
    assert executed([[A]] * 9, GuardrailsConfig(max_repeated_tool_steps=limit))[0] == limit


def test_the_count_survives_being_stored():
    counters = Counters()
    for _ in range(4):
        counters = observe_tool_calls(Counters.from_json(json.loads(json.dumps(counters.to_json()))), [A])
    assert is_stuck(counters, DEFAULTS)


def test_the_same_read_on_every_wake_is_no_loop():
    counters = Counters()
    for _ in range(10):
        run, counters = executed([[A]], counters=counters.awake())
        assert run == 1


@pytest.mark.parametrize("calls", [[A, B], [B, A], [("yield", {}), A, B]])
def test_the_order_of_calls_does_not_matter(calls):
    assert signature(calls) == signature([A, B])


@every_row(
    ("one", "other"),
    [
        ([A], [B]),
        ([A], [A, A]),
        ([A], [("write", {"path": "a"})]),
        ([("t", {"n": 1})], [("t", {"n": "1"})]),
        ([("t", {"n": True})], [("t", {"n": 1})]),
        ([("t", {"a": 1, "b": 2})], [("t", {"a": "1,b=2"})]),
        ([("t", {"a": {"b": 1}})], [("t", {"a": {"b": 2}})]),
        ([("t", {"a": "x" * 199 + "y"})], [("t", {"a": "x" * 200})]),
        ([("t", {})], [("t", {"a": None})]),
    ],
)
def test_different_calls_have_different_signatures(one, other):
    assert signature(one) != signature(other)


@every_row(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"x": [1, {"p": 1, "q": 2}], "y": 0}}, {"a": {"y": 0, "x": [1, {"q": 2, "p": 1}]}}),
        ({"a": "x" * 200 + "one"}, {"a": "x" * 200 + "other"}),
        ({"a": ["x" * 300, 1]}, {"a": ["x" * 300, 2]}),
    ],
)
def test_equal_calls_have_equal_signatures(one, other):
    assert signature([("t", one)]) == signature([("t", other)])


def test_a_signature_is_short_and_nothing_has_none():
    assert len(signature([("t", {"a": "x" * 100_000})])) == 64
    assert signature([]) == signature([("yield", {"action": "sleep"})]) == ""


@every_row("value", ["\ud800", "é\x00", float("nan"), Decimal("1.5"), {"\udfff": "\ud800"}, None])
def test_odd_values_have_a_signature_too(value):
    assert signature([("tool é", {"a": value})]) == signature([("tool é", {"a": value})]) != ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
call_lists = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "yield"]), st.dictionaries(st.text(max_size=4), json_values, max_size=3)
    ),
    max_size=4,
)


@given(call_lists, st.randoms(use_true_random=False))
def test_a_signature_depends_on_no_order_at_all(calls, random):
    mixed = [(name, dict(random.sample(list(given.items()), len(given)))) for name, given in calls]
    random.shuffle(mixed)
    assert signature(mixed) == signature(calls)


@given(st.lists(st.sampled_from([None, [], [A], [B], [A, B]]), max_size=40), st.integers(0, 4))
def test_no_set_of_calls_runs_more_often_in_a_row_than_allowed(steps, limit):
    run, _ = executed(steps, GuardrailsConfig(max_repeated_tool_steps=limit))
    last, row = None, 0
    for calls in filter(None, steps[:run]):
        row = row + 1 if calls == last else 1
        last = calls
        assert row <= limit


# --- Reading without acting ---


def test_eight_reading_steps_in_a_row_get_one_hint_in_a_session():
    counters, hints = Counters(), []
    for step in range(1, 40):
        counters = observe_reading(counters, read_only=step != 5)
        if needs_nudge(counters):
            hints.append(step)
            counters = counters.after_message(guardrails.STOP_READING.reason)
    assert hints == [13]
    assert not needs_nudge(replace(counters.awake(), read_only_steps=100))


# --- What is remembered ---

SOME = Counters(2, "ab" * 32, 1, 1, 7, nudged=True, near_budget_warned=True)


def test_counters_are_kept_under_their_agreed_names():
    assert SOME.to_json() == {
        "repeated_tool_steps": 2,
        "last_tool_signature": "ab" * 32,
        "max_tokens_recovery_count": 1,
        "premature_recovery_count": 1,
        "read_only_steps": 7,
        "nudged": True,
        "near_budget_warned": True,
        "worked_ms": 0,
        "recent": [],
        "last_error": "",
        "same_errors": 0,
        "silent_turns": 0,
    }
    assert Counters.from_json(json.loads(json.dumps(SOME.to_json()))) == SOME


@every_row("missing", [field.name for field in fields(Counters)])
def test_a_missing_counter_has_its_default(missing):
    kept = {name: value for name, value in SOME.to_json().items() if name != missing}
    assert Counters.from_json(kept) == replace(SOME, **{missing: getattr(Counters(), missing)})


@every_row("kept", [None, [], "x", 3, {}, {"unknown": 1}, {field.name: [] for field in fields(Counters)}])
def test_rubbish_counts_as_nothing(kept):
    assert Counters.from_json(kept) == Counters()


@every_row("value", [-1, True, 1.0, "1", None])
def test_what_is_no_count_counts_as_none(value):
    assert Counters.from_json({"repeated_tool_steps": value, "read_only_steps": 3}) == Counters(read_only_steps=3)


@every_row("value", [1, 0, "yes", None])
def test_what_is_no_yes_counts_as_no(value):
    assert Counters.from_json({"nudged": value}) == Counters()


def test_waking_forgets_what_was_counted_and_not_what_was_said():
    assert SOME.awake() == Counters(nudged=True, near_budget_warned=True)


# --- What the loop says ---

MESSAGES = [value for value in vars(guardrails).values() if isinstance(value, InternalMessage)]


def test_every_message_carries_its_reason():
    messages = [*MESSAGES, budget_line(None, None, None)]
    assert {message.data["reason"] for message in messages} == {
        "max_tokens_recovery",
        "premature_end",
        "read_only_nudge",
        "near_budget",
        "budget",
        "same_error",
        "monologue",
    }
    for message in messages:
        assert json.loads(json.dumps(message.data)) == {"reason": message.reason.value}
        assert message.text.endswith(".")


@every_row(
    ("usd", "tokens", "steps", "line"),
    [
        (Decimal("0.250000"), 1_200, 7, "Left for this run: US dollars 0.25, tokens 1200, steps 7."),
        (Decimal(100), None, None, "Left for this run: US dollars 100."),
        (Decimal("0.000001"), None, 0, "Left for this run: US dollars 0.000001, steps 0."),
        (Decimal("-0.5"), -3, -1, "Left for this run: US dollars 0, tokens 0, steps 0."),
        (None, 5, None, "Left for this run: tokens 5."),
        (None, None, None, "Left for this run: no limits are set."),
    ],
)
def test_the_budget_line_names_what_is_limited(usd, tokens, steps, line):
    assert budget_line(usd, tokens, steps).text == line


def test_saying_what_is_left_is_not_counted():
    assert SOME.after_message(Reason.BUDGET) == SOME


def test_errors_say_what_happened_and_name_the_limit():
    assert "may run 3 times in a row (max_repeated_tool_steps)" in stuck_error(DEFAULTS, Counters())
    assert "refused" in guardrails.REFUSAL_ERROR
    assert "was not run" in guardrails.CUT_CALL_ERROR
