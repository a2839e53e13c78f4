"""Whatever goes wrong inside a brake, nothing is dispatched."""

from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import DatabaseError, OperationalError

from agents.conf import clock
from agents.enums import Phase, ToolIntent
from agents.exceptions import LeaseLost, ToolNotGranted, UnpricedModel
from agents.guard import guard, guarded_tool_call
from agents.guard.selftest import run_checks
from agents.models import AgentSession, Installation, ModelPrice, ToolCall
from agents.policy import brakes
from agents.sessions.halts import halt_all_work
from agents.types import Price
from tests.agents.conftest import MODEL, Probe, ask, tool
from tests.factories import make_price, make_session

pytestmark = pytest.mark.django_db


def refused(session, error, *, provider):
    """The priced, the local and the effectful call all end in the error, and reach nothing."""
    with (
        tool(ToolIntent.RUN_PLAYBOOK, probe=Probe()) as remote,
        tool(ToolIntent.EMIT_FINDING, probe=Probe(), remote=False) as local,
    ):
        for intent in (ToolIntent.RUN_SKILL, ToolIntent.RUN_PLAYBOOK, ToolIntent.EMIT_FINDING):
            with pytest.raises(error):
                guarded_tool_call(session, intent, ask())
    assert (remote.calls, local.calls, provider.requests) == ([], [], [])
    assert not ToolCall.objects.exists()


def test_a_database_that_is_down_at_the_first_read(provider):
    make_price(MODEL)
    session = make_session()
    with patch.object(guard, "read_unlocked", side_effect=OperationalError("server closed the connection")):
        refused(session, OperationalError, provider=provider)


def test_a_database_that_is_down_at_the_locked_read(provider):
    make_price(MODEL)
    session = make_session()
    with patch.object(guard, "read_for_update", side_effect=OperationalError("server closed the connection")):
        refused(session, OperationalError, provider=provider)


def test_a_session_row_that_is_missing(provider):
    make_price(MODEL)
    session = make_session()
    AgentSession.objects.all().delete()
    session.pk = 4_711
    refused(session, LeaseLost, provider=provider)


def test_a_session_row_that_vanishes_between_the_two_reads(provider):
    make_price(MODEL)
    session = make_session()
    session.current_phase = "improvisation"
    seen = guard.read_unlocked(session, "key")
    Installation.objects.all().delete()
    with patch.object(guard, "read_unlocked", return_value=seen):
        refused(session, LeaseLost, provider=provider)


def test_an_installation_row_that_is_missing(provider):
    make_price(MODEL)
    session = make_session()
    Installation.objects.all().delete()
    refused(session, LeaseLost, provider=provider)


@pytest.mark.parametrize("brake", ["temporal", "contextual"])
def test_a_brake_that_raises(brake, provider):
    make_price(MODEL)
    session = make_session()
    with patch.object(brakes, brake, side_effect=RuntimeError("bug")):
        refused(session, RuntimeError, provider=provider)


def test_a_phase_that_nobody_knows(provider):
    make_price(MODEL)
    session = make_session()
    session.current_phase = "improvisation"
    seen = guard.read_unlocked(session, "key")
    strange = brakes.Boundary("running", "running", None, None, "improvisation")
    with (
        patch.object(guard, "read_unlocked", return_value=type(seen)(strange, None)),
        patch.object(guard, "_judge", wraps=lambda call, boundary: brakes.contextual(call.intent, "improvisation")),
    ):
        refused(session, ToolNotGranted, provider=provider)


def priced_call_is_refused(error, provider):
    session = make_session(current_phase=Phase.ANALYSIS)
    with pytest.raises(error):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert provider.requests == []
    assert not ToolCall.objects.exists()
    session.refresh_from_db()
    assert (session.cost_reserved_usd, session.cost_held_usd, session.cost_total_usd) == (0, 0, 0)


@pytest.mark.parametrize("estimate", [Decimal("NaN"), Decimal(-1), Decimal("Infinity")])
def test_an_estimate_that_is_not_money(estimate, provider):
    make_price(MODEL)
    with patch.object(guard, "estimate_tool_cost", return_value=estimate):
        priced_call_is_refused(ValueError, provider)


@pytest.mark.parametrize("error", [RuntimeError("bug"), DatabaseError("locked")])
def test_an_estimator_that_raises(error, provider):
    make_price(MODEL)
    with patch.object(guard, "estimate_tool_cost", side_effect=error):
        priced_call_is_refused(type(error), provider)


@pytest.mark.parametrize("rate", ["NaN", "-3", "Infinity"])
def test_a_price_that_is_not_money(rate, provider):
    with patch.object(guard, "declared_price", return_value=Price(MODEL, Decimal(rate), Decimal(1))):
        priced_call_is_refused((ValueError, ArithmeticError), provider)


@pytest.mark.parametrize(
    "declared", [{"input_usd": "NaN", "output_usd": "1"}, {"input_usd": "-1", "output_usd": "1"}, {}]
)
def test_a_price_in_the_settings_that_is_not_money(declared, provider, settings):
    settings.LQOPS_MODELS = {MODEL: declared}
    priced_call_is_refused(UnpricedModel, provider)


def test_a_price_that_was_never_declared(provider):
    priced_call_is_refused(UnpricedModel, provider)


def test_an_economic_brake_that_raises(provider):
    make_price(MODEL)
    with patch.object(brakes, "economic", side_effect=RuntimeError("bug")):
        priced_call_is_refused(RuntimeError, provider)


def test_books_that_cannot_be_locked(provider):
    make_price(MODEL)
    with patch.object(guard, "budgets_lock", side_effect=OperationalError("deadlock detected")):
        priced_call_is_refused(OperationalError, provider)


@pytest.mark.parametrize(
    ("brake", "check"),
    [("temporal", "R5 refuses a halted session"), ("contextual", "R6 refuses what the phase does not grant")],
)
def test_the_self_test_sees_a_brake_that_does_nothing(brake, check):
    with patch.object(brakes, brake, return_value=None):
        failed = {found.name for found in run_checks() if not found.ok}
    assert check in failed


def test_the_self_test_sees_an_economic_brake_that_does_nothing():
    def always(quote, **_):
        return brakes.Affordable(quote.estimate, Decimal(0), quote.request.max_tokens)

    with patch.object(brakes, "economic", side_effect=always):
        failed = {found.name for found in run_checks() if not found.ok}
    assert failed == {"R4 refuses what the cap does not cover"}


def test_the_self_test_passes_and_leaves_no_row_behind():
    assert [found for found in run_checks() if not found.ok] == []
    assert not AgentSession.objects.exists()
    assert not ModelPrice.objects.exists()


def test_the_self_test_passes_while_all_work_is_halted_and_the_halt_stays():
    halt_all_work(by=None, reason="incident", now=clock())
    assert [found for found in run_checks() if not found.ok] == []
    assert Installation.objects.get().halt is not None


def test_the_self_test_sees_a_guard_that_refuses_everything():
    with patch.object(brakes, "contextual", side_effect=brakes.NotGranted):
        failed = {found.name for found in run_checks() if not found.ok}
    assert "an allowed call goes through" in failed
