"""The three brakes as pure decisions: R5 temporal and R4 economic; R6 is in test_grants.py."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.enums import HaltState, Status, TerminalReason
from agents.policy.brakes import (
    Affordable,
    AlreadyStopped,
    Boundary,
    Busy,
    CapPassed,
    HaltNow,
    Quote,
    SharedSpentUp,
    SpentUp,
    economic,
    temporal,
)
from agents.policy.costs import cost_of
from agents.policy.transitions import TERMINAL
from agents.types import Ledger, ModelRequest, Price, Usage
from tests.table import every_row

# --- R5 ---


def boundary(status="running", halt_state="running", reason=None, all_work_halt=None):
    return Boundary(status, halt_state, reason, all_work_halt, "turn")


@every_row("all_work_halt", [None, 7])
@every_row("halt_state", HaltState)
@every_row("status", Status)
def test_temporal_table(status, halt_state, all_work_halt):
    verdict = temporal(boundary(status, halt_state, all_work_halt=all_work_halt))
    if status in TERMINAL or halt_state == "halted":
        assert verdict == AlreadyStopped("external_halt")
    elif all_work_halt or halt_state == "halt_requested":
        assert verdict == HaltNow(all_work_halt)
    else:
        assert verdict is None


@every_row("reason", TerminalReason)
def test_a_stopped_session_is_refused_with_the_reason_it_was_stopped_for(reason):
    assert temporal(boundary(halt_state="halted", reason=reason)) == AlreadyStopped(reason)
    assert temporal(boundary(status="failed", reason=reason, all_work_halt=1)) == AlreadyStopped(reason)


def test_a_paused_session_may_act():
    assert temporal(boundary(halt_state="idle")) is None


# --- R4 ---

USD = Decimal
RATE = USD(1_000)  # a thousandth of a dollar per token, in and out


def quote(estimate="0.005", *, rate=RATE, input_tokens=0, max_tokens=10, min_tokens=4):
    request = ModelRequest("m", (), max_tokens=max_tokens, min_tokens=min_tokens)
    return Quote(USD(estimate), request, Price("m", rate, rate), input_tokens)


def books(cap=None, name="session", **amounts):
    return Ledger(name, cap if cap is None else USD(cap), **{key: USD(amount) for key, amount in amounts.items()})


UNCAPPED = books()


@every_row(("cap", "passes"), [("1.00", True), ("0.999999", False), ("0.9999", False), ("2", True)])
def test_equality_is_allowed_and_anything_more_trips(cap, passes):
    verdict = economic(quote(rate=USD(0)), session=books(cap, charged="0.995"), shared=())
    if passes:
        assert isinstance(verdict, Affordable)
    else:
        assert verdict == CapPassed(USD("1.000"), USD(cap))


def test_what_is_reserved_counts_as_spent():
    session = books("1", charged="0.5", reserved="0.496")
    assert economic(quote(rate=USD(0)), session=session, shared=()) == CapPassed(USD("1.001"), USD(1))
    shared = replace(session, name="installation")
    assert economic(quote(rate=USD(0)), session=UNCAPPED, shared=(shared,)) == SharedSpentUp(shared, USD("0.005"))


def test_a_cap_of_zero_lets_nothing_through_that_costs():
    assert economic(quote(rate=USD(0)), session=books("0"), shared=()) == CapPassed(USD("0.005"), USD(0))
    assert economic(quote("0"), session=books("0"), shared=()) == SpentUp("cost", USD("0.004"), USD(0))
    free = economic(quote("0", rate=USD(0)), session=books("0"), shared=())
    assert free == Affordable(USD(0), USD(0), 10)


def test_without_a_cap_nothing_trips_and_the_worst_case_is_held_all_the_same():
    rich = books(None, charged="1000000", held="1000000")
    assert economic(quote(input_tokens=5), session=rich, shared=(rich,)) == Affordable(USD("0.005"), USD("0.015"), 10)


def test_the_estimate_that_was_judged_is_the_very_one_that_is_approved():
    asked = quote()
    assert economic(asked, session=books("1"), shared=()).estimate is asked.estimate


@pytest.mark.parametrize(("total", "spent"), [(999, False), (1_000, True), (1_001, True)])
def test_the_token_budget_is_used_up_at_equality(total, spent):
    verdict = economic(quote(), session=books("1"), shared=(), token_budget=1_000, total_tokens=total)
    assert (verdict == SpentUp("tokens", USD(total), USD(1_000))) is spent


def test_a_token_budget_of_zero_is_no_limit():
    verdict = economic(quote(), session=books("1"), shared=(), token_budget=0, total_tokens=10**12)
    assert isinstance(verdict, Affordable)


def test_tokens_are_tested_first():
    verdict = economic(quote(), session=books("0"), shared=(), token_budget=1, total_tokens=1)
    assert verdict == SpentUp("tokens", USD(1), USD(1))


def test_a_shared_budget_that_is_approved_up_is_named_and_does_not_latch():
    spent = books("1", "agent:7", charged="0.996")
    shared = (books("9", "installation"), spent, books("0", "trigger:3"))
    assert economic(quote(), session=books("1"), shared=shared) == SharedSpentUp(spent, USD("0.005"))


def test_a_shared_budget_that_is_really_spent_is_named_with_what_was_needed():
    spent = books("1", "agent:7", actual="0.997")
    shared = (books("9", "installation"), spent)
    assert economic(quote(), session=books("1"), shared=shared) == SharedSpentUp(spent, USD("0.004"))


def test_the_session_is_spent_up_when_its_least_tokens_do_not_fit_what_was_really_billed():
    assert economic(quote(), session=books("1", actual="0.997"), shared=()) == SpentUp(
        "cost", USD("0.004"), USD("0.003")
    )
    assert economic(quote(), session=books("1", actual="1.5"), shared=()) == SpentUp("cost", USD("0.004"), USD(0))
    assert isinstance(economic(quote(), session=books("1", actual="0.996"), shared=()), Affordable)


@pytest.mark.parametrize("busy", ["session", "installation", "agent:7"])
def test_money_that_is_held_by_calls_in_flight_makes_a_budget_busy_not_spent(busy):
    names = ("session", "installation", "agent:7")
    session, *shared = (books("1", name, actual="0.5", held="0.497" if name == busy else "0") for name in names)
    verdict = economic(quote(), session=session, shared=tuple(shared))
    assert isinstance(verdict, Busy)
    assert verdict.ledger.name == busy


def test_what_the_request_would_take_at_most_is_held():
    assert economic(quote(), session=books("1"), shared=()) == Affordable(USD("0.005"), USD("0.010"), 10)


@pytest.mark.parametrize(("room", "tokens"), [("0.010", 10), ("0.0099", 9), ("0.004", 4)])
def test_tokens_are_clamped_to_what_the_rest_can_pay(room, tokens):
    held = books("1", held=1 - USD(room))
    verdict = economic(quote(), session=held, shared=())
    assert verdict == Affordable(USD("0.005"), tokens * USD("0.001"), tokens)


def test_tokens_are_never_clamped_below_the_least():
    assert economic(quote(), session=books("1", held="0.996001"), shared=()) == Busy(books("1", held="0.996001"))


def test_a_request_for_less_than_the_least_is_judged_by_what_it_wants():
    verdict = economic(quote(max_tokens=2, min_tokens=256), session=books("1", held="0.998"), shared=())
    assert verdict == Affordable(USD("0.005"), USD("0.002"), 2)


def test_the_tightest_budget_decides_the_tokens():
    shared = (books("1", "installation", held="0.993"), books("1", "agent:7", held="0.995"), books(None, "trigger:1"))
    assert economic(quote(), session=books("1", held="0.991"), shared=shared).max_tokens == 5


def test_the_order_of_verdicts():
    """Each line removes the reason that the line before tripped on."""
    spent = {"charged": "1", "actual": "1", "held": "1"}
    over, shared_over = books("1", **spent), books("1", "installation", **spent)
    fine, limit = books("5"), {"token_budget": 10, "total_tokens": 10}
    really = books("5", "session", actual="5", held="5")
    shared_really = books("5", "installation", actual="5", held="5")
    busy, shared_busy = books("5", held="5"), books("5", "installation", held="5")
    assert economic(quote(), session=over, shared=(shared_over,), **limit).dimension == "tokens"
    assert isinstance(economic(quote(), session=over, shared=(shared_over,)), CapPassed)
    assert economic(quote(), session=really, shared=(shared_over,)) == SharedSpentUp(shared_over, USD("0.005"))
    assert economic(quote(), session=really, shared=(shared_really,)) == SpentUp("cost", USD("0.004"), USD(0))
    assert economic(quote(), session=busy, shared=(shared_really,)) == SharedSpentUp(shared_really, USD("0.004"))
    assert economic(quote(), session=busy, shared=(shared_busy,)) == Busy(busy)
    assert economic(quote(), session=fine, shared=(shared_busy,)) == Busy(shared_busy)
    assert isinstance(economic(quote(), session=fine, shared=()), Affordable)


# --- R4, whatever the numbers ---

amounts = st.decimals(min_value=0, max_value="0.05", places=6)
rates = st.decimals(min_value=0, max_value=50, places=6)
prices = st.builds(Price, st.just("m"), rates, rates)
requests = st.builds(
    ModelRequest, st.just("m"), st.just(()), max_tokens=st.integers(1, 4_000), min_tokens=st.integers(1, 512)
)
quotes = st.builds(Quote, amounts, requests, prices, st.integers(0, 4_000))
ledgers = st.builds(
    Ledger,
    st.just("some"),
    st.none() | st.decimals(min_value=0, max_value="0.12", places=6),
    charged=amounts,
    reserved=amounts,
    actual=amounts,
    held=amounts,
)


@given(quotes, ledgers, st.lists(ledgers, max_size=3))
def test_what_is_affordable_fits_every_budget_in_both_ledgers(asked, session, shared):
    verdict = economic(asked, session=session, shared=tuple(shared))
    if not isinstance(verdict, Affordable):
        return
    least = min(asked.request.min_tokens, asked.request.max_tokens)
    assert least <= verdict.max_tokens <= asked.request.max_tokens
    assert verdict.held == asked.worst(verdict.max_tokens)
    capped = [ledger for ledger in (session, *shared) if ledger.cap is not None]
    for ledger in capped:
        assert ledger.approved + verdict.estimate <= ledger.cap
        assert ledger.exposed + verdict.held <= ledger.cap
    if verdict.max_tokens < asked.request.max_tokens:
        one_more = asked.worst(verdict.max_tokens + 1)
        assert any(ledger.exposed + one_more > ledger.cap for ledger in capped)


@given(quotes, ledgers, st.lists(ledgers, max_size=3))
def test_a_refusal_names_a_budget_that_really_has_no_room(asked, session, shared):
    least = asked.worst(min(asked.request.min_tokens, asked.request.max_tokens))
    match economic(asked, session=session, shared=tuple(shared)):
        case CapPassed(projected, cap):
            assert projected == session.approved + asked.estimate > cap == session.cap
        case SpentUp(dimension, needed, left):
            assert dimension == "cost"
            assert needed == least > left
        case SharedSpentUp(ledger, needed):
            assert ledger in shared
            assert max(ledger.approved + asked.estimate, ledger.actual + needed) > ledger.cap
        case Busy(ledger):
            assert ledger.actual + least <= ledger.cap < ledger.exposed + least


class TwoBudgets(RuleBasedStateMachine):
    """Calls come and go in any order, with a provider that keeps its bound; two ledgers of two budgets stay in caps."""

    def __init__(self):
        super().__init__()
        self.budgets = [books("0.05"), books("0.08", "installation")]
        self.flying = []

    def _book(self, **changes):
        self.budgets = [
            replace(ledger, **{name: getattr(ledger, name) + change for name, change in changes.items()})
            for ledger in self.budgets
        ]

    def _close(self, asked, verdict, *, charged, actual):
        self.flying.remove((asked, verdict))
        self._book(reserved=-verdict.estimate, held=-verdict.held, charged=charged, actual=actual)

    @rule(asked=quotes)
    def reserve(self, asked):
        verdict = economic(asked, session=self.budgets[0], shared=tuple(self.budgets[1:]))
        if isinstance(verdict, Affordable):
            self.flying.append((asked, verdict))
            self._book(reserved=verdict.estimate, held=verdict.held)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def settle(self, data):
        asked, verdict = data.draw(st.sampled_from(self.flying))
        used = Usage(data.draw(st.integers(0, asked.input_tokens)), data.draw(st.integers(0, verdict.max_tokens)))
        self._close(asked, verdict, charged=verdict.estimate, actual=cost_of(asked.price, used))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), contacted=st.booleans())
    def fail(self, data, contacted):
        asked, verdict = data.draw(st.sampled_from(self.flying))
        charged, actual = (verdict.estimate, verdict.held) if contacted else (USD(0), USD(0))
        self._close(asked, verdict, charged=charged, actual=actual)

    @invariant()
    def no_cap_is_passed_in_either_ledger(self):
        for ledger in self.budgets:
            assert 0 <= ledger.charged <= ledger.approved <= ledger.cap
            assert 0 <= ledger.actual <= ledger.exposed <= ledger.cap

    @invariant()
    def what_is_open_is_what_is_in_flight(self):
        for ledger in self.budgets:
            assert ledger.reserved == sum(verdict.estimate for _, verdict in self.flying)
            assert ledger.held == sum(verdict.held for _, verdict in self.flying)


TestTwoBudgets = TwoBudgets.TestCase
TestTwoBudgets.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
