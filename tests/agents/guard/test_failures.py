"""Where calls, ends and failures meet: nothing is left open, written late, or counted twice."""

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import InterfaceError, OperationalError

from agents.enums import (
    ApprovalMode,
    ApprovalStatus,
    HaltState,
    Level,
    Outcome,
    Status,
    TerminalReason,
    ToolIntent,
    WaitingOn,
)
from agents.exceptions import BudgetExceeded, Invalid, LeaseLost, SessionHalted
from agents.guard import guarded_tool_call, selftest, settlement
from agents.guard.calls import fitting
from agents.guard.intents import override, request_of
from agents.guard.metering import AskedTwice
from agents.guard.tools import Tool
from agents.ledger.budgets import budget_set_cap
from agents.models import Agent, AgentSession, Approval, Budget, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.approvals import approval_approve, approval_approve_edited, standing_create
from agents.sessions.ending import session_finish, session_rest
from agents.sessions.halts import session_halt
from agents.types import Capability, Finished, Usage
from audit.models import AuditEvent
from audit.receipts import build_receipt
from audit.redaction import redact_data
from audit.verify import verify_log
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.factories import NOW, make_agent, make_price, make_session

pytestmark = pytest.mark.django_db


def terminal_rows(session):
    rows = AuditEvent.objects.filter(chain=session.chain, details__has_key="reason")
    return [row.details["reason"] for row in rows]


def test_a_session_that_ends_with_a_call_in_flight_charges_and_closes_it():
    make_price(MODEL)
    session = make_session(lease_until=NOW)

    def end():
        session_finish(session, TerminalReason.COMPLETED, now=NOW)

    with script(Step("late", before_reply=end)), pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), now=NOW)
    session.refresh_from_db()
    call = ToolCall.objects.get()
    assert (call.outcome, call.charged_usd) == (Outcome.WORKER_LOST, Decimal("0.005"))
    assert (session.cost_total_usd, session.cost_reserved_usd, session.cost_held_usd) == (Decimal("0.005"), 0, 0)
    assert session.result == build_receipt(session.chain)
    assert verify_log().problems == []


@pytest.mark.parametrize("usage", [Usage(-5, 3), Usage(3, 10**30)])
def test_usage_that_cannot_be_is_booked_as_the_worst_case(usage):
    make_price(MODEL)
    session = make_session()
    with script(Step("ok", usage=usage)):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask()).ok
    session.refresh_from_db()
    assert session.cost_actual_usd == ToolCall.objects.get().held_usd


@pytest.mark.parametrize("answer", [{"when": datetime.now(UTC)}, {"number": 10**5_000}])
def test_a_result_that_cannot_be_stored_is_the_tool_s_error(answer):
    session = make_session()
    with tool(probe=Probe(answer)):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, {})
    assert result.outcome == Outcome.ERROR
    assert ToolCall.objects.get().outcome == Outcome.ERROR


def breaking(times, error=OperationalError):
    real, left = settlement.settle_call, [times]

    def settle(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise error("server closed the connection unexpectedly")
        return real(*args, **kwargs)

    return patch.object(settlement, "settle_call", side_effect=settle), patch.object(settlement, "connection")


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_a_connection_that_breaks_before_settling_is_replaced_once(error):
    make_price(MODEL)
    session = make_session()
    settling, closing = breaking(1, error)
    with script(Step("ok", usage=Usage(0, 10))), settling, closing as connection:
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask()).ok
    session.refresh_from_db()
    assert connection.close.called
    assert session.cost_actual_usd == ToolCall.objects.get().actual_usd == Decimal("0.000010")


def test_a_call_that_cannot_be_settled_at_all_is_left_to_recovery():
    make_price(MODEL)
    session = make_session(status=Status.QUEUED)

    def engine(held):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, ask())
        return Finished()

    selftest.arm()
    settling, closing = breaking(9)
    with script(Step("ok")), settling, closing, patch("agents.runner.lease_renewal_seconds", return_value=60):
        assert run_session(session.pk, engine, owner="worker")
    session.refresh_from_db()
    assert session.status == Status.RUNNING  # its lease runs out, and whoever takes it over closes the call
    assert session.cost_reserved_usd == Decimal("0.005")


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_a_local_call_that_the_database_fails_leaves_the_run_to_be_taken_over(error):
    session = make_session(status=Status.QUEUED)

    def engine(held):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, {}, key="only")
        return Finished()

    selftest.arm()
    broken = Probe(error=error("database or disk is full"))
    with tool(probe=broken, remote=False) as full, patch("agents.runner.connection"):
        assert run_session(session.pk, engine, owner="worker")
    session.refresh_from_db()
    assert (session.status, ToolCall.objects.count(), len(full.calls)) == (Status.RUNNING, 0, 1)

    AgentSession.objects.filter(pk=session.pk).update(lease_until=NOW)
    with tool(probe=Probe(), remote=False):
        assert run_session(session.pk, engine, owner="next")
    session.refresh_from_db()
    assert (session.status, ToolCall.objects.get().outcome) == (Status.COMPLETED, Outcome.SUCCESS)


def test_a_denial_that_comes_after_the_end_leaves_the_chain_closed(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="k", now=NOW)
        Approval.objects.update(status=ApprovalStatus.REJECTED)
        stale = AgentSession.objects.get()
        real = guarded_tool_call.__globals__["consent"]

        def end_first(call):
            session_halt(session.pk, by=None, reason="", now=NOW)
            AgentSession.objects.update(halt_state=HaltState.RUNNING)
            session_finish(stale, TerminalReason.COMPLETED, now=NOW)
            return real(call)

        with patch("agents.guard.guard.consent", side_effect=end_first):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="k", now=NOW)
    assert verify_log().problems == []


def test_a_decision_that_comes_before_the_session_lies_down_is_not_slept_through(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="k", now=NOW)
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    session_rest(session, Status.WAITING, waiting_on=WaitingOn.APPROVAL, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.waiting_on) == (Status.QUEUED, "")


def test_a_straggler_of_a_slice_that_is_over_can_write_nothing():
    session = make_session()
    session_rest(session, Status.QUEUED, now=NOW)
    with pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})


@pytest.mark.parametrize("error", ["repeated the same step 4 times", "Fehlerüberlauf: x"])
def test_an_error_in_plain_words_does_not_keep_a_session_from_ending(error):
    session = make_session()
    session_finish(session, TerminalReason.STUCK_LOOP, now=NOW, error=error)
    session.refresh_from_db()
    assert (session.status, session.error) == (Status.FAILED, error)
    assert AuditEvent.objects.get(kind="autonomous_session.failed").details["error_type"] == "error"


def test_a_session_has_one_end_also_when_a_provider_overbills_after_the_halt():
    make_price(MODEL)
    session = make_session()

    def halt_and_obey():
        session_halt(session.pk, by=None, reason="", now=NOW)
        with pytest.raises(SessionHalted):
            guarded_tool_call(AgentSession.objects.get(), ToolIntent.EMIT_FINDING, {}, now=NOW)

    step = Step("x", usage=Usage(0, 5_000_000), before_reply=halt_and_obey)
    with script(step), pytest.raises(BudgetExceeded):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), now=NOW)
    session_finish(session, TerminalReason.EXTERNAL_HALT, now=NOW)
    session.refresh_from_db()
    assert terminal_rows(session) == ["external_halt"]
    assert session.terminal_reason == session.result["terminal_reason"] == "external_halt"


def test_an_attempt_whose_booking_failed_is_not_counted_twice():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session()
    failed = Step(error=ProviderError("503", fault=Fault.SERVER, usage=Usage(0, 100)))
    real, left = settlement.inference_log, [1]

    def fail_once(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise RuntimeError("disk full")
        return real(*args, **kwargs)

    with (
        script(failed),
        patch.object(settlement, "inference_log", side_effect=fail_once),
        patch("agents.guard.metering.next_wait", return_value=0.0),
    ):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    session.refresh_from_db()
    assert (
        session.cost_actual_usd
        == ToolCall.objects.get().actual_usd
        == Budget.objects.get().actual_usd
        == Decimal("0.001")
    )


def paid_tool(handler):
    capability = Capability("custom", level=Level.SAFE, side_effects=False)
    return override({ToolIntent.RUN_SKILL: Tool(handler, capability, remote=True, request=request_of)})


def test_a_handler_cannot_turn_a_failed_inference_into_success():
    make_price(MODEL)

    def swallow(context, params):
        try:
            context.infer()
        except ProviderError:
            return {"text": "all is well"}

    with script(Step(error=ProviderError("401", fault=Fault.AUTH))), paid_tool(swallow):
        assert guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask()).outcome == Outcome.GATEWAY_ERROR


def test_nobody_asks_under_the_name_of_a_call_that_is_over(provider):
    make_price(MODEL)
    kept = []
    with paid_tool(lambda context, params: kept.append(context.infer) or {}):
        guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask())
    with pytest.raises(AskedTwice):
        kept[0]()
    assert provider.requests == []


def test_a_handler_that_changes_its_parameters_changes_nothing_else():
    session = make_session()

    def change(context, params):
        params["to"] = "Mallory"
        return {}

    with tool(probe=change):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"})
    assert ToolCall.objects.get().arguments == {"to": "Ada"}


def test_a_mode_that_was_tightened_holds_for_the_very_next_call(approver):
    agent = make_agent(mode=ApprovalMode.AUTO)
    session = make_session(agent=agent, owner=agent.owner)
    with tool(probe=Probe(), level=Level.CONTROLLED):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 1}).ok
        Agent.objects.update(mode=ApprovalMode.MANUAL)
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 2}).outcome == Outcome.APPROVAL_PENDING
        Agent.objects.all().delete()
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 3}).outcome == Outcome.APPROVAL_PENDING


def test_a_ticket_does_not_fit_another_call_at_the_same_place(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED) as probe:
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="k", now=NOW)
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        other = guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Eve"}, key="k", now=NOW)
    assert (other.detail, probe.calls) == ("ticket_refused", [])


def test_an_approver_cannot_put_a_secret_into_the_arguments(approver):
    def unjudged(intent, given):
        return redact_data(dict(given))

    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED) as probe:
        asked = {"to": "Ada", "key": "none"}
        guarded_tool_call(session, ToolIntent.RUN_SKILL, asked, key="k", now=NOW)
        ticket = Approval.objects.get()
        edit = {"by": approver, "digest": ticket.digest, "arguments": {"to": "Ada", "key": "ghp_" + "a1B2" * 9}}
        with pytest.raises(Invalid, match="pass secrets by handle"):
            approval_approve_edited(ticket.pk, fits=fitting, now=NOW, **edit)
        ticket.refresh_from_db()
        assert ticket.status == ApprovalStatus.PENDING
        approval_approve_edited(ticket.pk, fits=unjudged, now=NOW, **edit)
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, asked, key="k", now=NOW)
    assert (result.detail, probe.calls) == ("secret_in_arguments", []), "the guard judges it as well"


@pytest.mark.parametrize(
    ("change", "arguments"),
    [({"version": "2"}, {"n": 1}), ({}, {"n": True}), ({}, {"n": 1.0})],
)
def test_a_standing_approval_fits_one_version_and_one_kind_of_value(change, arguments, approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 1}, key="k", now=NOW)
    ticket = Approval.objects.get()
    standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    with tool(probe=Probe(), level=Level.RESTRICTED, **change):
        again = guarded_tool_call(session, ToolIntent.RUN_SKILL, arguments, key="k2", now=NOW)
    assert again.outcome == Outcome.APPROVAL_PENDING


def test_a_standing_approval_ends(approver):
    session = make_session()
    late = NOW + timedelta(days=2)
    with tool(probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 1}, key="k", now=NOW)
        ticket = Approval.objects.get()
        standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        again = guarded_tool_call(session, ToolIntent.RUN_SKILL, {"n": 1}, key="k2", now=late)
    assert again.outcome == Outcome.APPROVAL_PENDING


def test_a_worker_starts_although_the_day_s_budget_is_spent():
    budget_set_cap(scope="installation", subject_id=0, cap_usd=Decimal(0), by=None, now=NOW)
    assert [check for check in selftest.run_checks() if not check.ok] == []


def test_two_threads_cannot_both_ask_under_one_authorisation(provider):
    make_price(MODEL)
    outcomes = []

    def greedy(context, params):
        def infer():
            try:
                outcomes.append(context.infer())
            except AskedTwice as error:
                outcomes.append(error)

        threads = [threading.Thread(target=infer) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {}

    with paid_tool(greedy):
        guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask())
    assert len(provider.requests) == 1
    assert sum(isinstance(outcome, AskedTwice) for outcome in outcomes) == 7
