"""Rare turns of the safety code: races that are lost, answers that come first, probes that find something wrong."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.enums import ApprovalStatus, HaltState, Level, Outcome, ToolIntent
from agents.exceptions import CostCapReached, InvalidTransition, LeaseLost, SessionHalted
from agents.guard import guard, guarded_tool_call, selftest
from agents.ledger import journal
from agents.models import AgentSession, Approval, StandingApproval, ToolCall
from agents.policy.brakes import Boundary
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.sessions import approvals
from agents.sessions import approvals as standing
from agents.sessions.approvals import approval_approve, approvals_expire, standing_create
from agents.types import ToolResult, Usage
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.factories import NOW, make_price, make_session
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db


def restricted(session, key="k", **arguments):
    with tool(probe=Probe(), level=Level.RESTRICTED):
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, arguments or {"n": 1}, key=key, now=NOW)


def test_a_halt_that_was_released_before_it_could_be_obeyed_stops_nothing():
    session = make_session()
    seen = guard.read_unlocked(session, "k")
    halted = Boundary("running", HaltState.RUNNING, None, 7, "turn")
    with patch.object(guard, "read_unlocked", return_value=type(seen)(halted, None)):
        assert guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}).ok


@pytest.mark.django_db(transaction=True)
def test_two_who_ask_for_the_same_call_share_one_ticket(approver):
    session = make_session()
    first, second = in_threads(2, lambda _: restricted(session))
    assert first.data == second.data
    assert Approval.objects.count() == 1


def test_a_ticket_that_was_decided_while_it_was_to_expire_does_not_expire(approver):
    session = make_session()
    restricted(session)
    stale = Approval.objects.get()
    Approval.objects.update(status=ApprovalStatus.REJECTED)
    assert not approvals._expire(stale, now=NOW)
    assert approvals_expire(NOW + timedelta(days=2)) == 0


def test_a_decision_that_came_second_is_refused(approver):
    session = make_session()
    restricted(session)
    ticket = Approval.objects.get()
    real = approvals._lock_pending

    def decided_meanwhile(*args, **kwargs):
        found = real(*args, **kwargs)
        Approval.objects.update(status=ApprovalStatus.CANCELLED)
        return found

    with patch.object(approvals, "_lock_pending", side_effect=decided_meanwhile), pytest.raises(InvalidTransition):
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)


def test_a_ticket_that_cannot_be_ended_keeps_no_other_waiting(approver):
    for key in ("k1", "k2"):
        restricted(make_session(), key=key)
    with patch.object(approvals, "_expire", side_effect=[RuntimeError("locked"), True]):
        assert approvals_expire(NOW + timedelta(days=2)) == 1


def test_a_standing_approval_that_was_used_up_meanwhile_decides_nothing(approver):
    session = make_session()
    restricted(session)
    ticket = Approval.objects.get()
    standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW, uses=1)

    def used_up(*_):
        StandingApproval.objects.update(uses_left=0)
        return True

    with patch.object(standing, "free_values_are_harmless", side_effect=used_up):
        assert restricted(session, key="k2").outcome == Outcome.APPROVAL_PENDING


def test_a_ticket_that_was_used_meanwhile_is_not_cancelled(approver):
    session = make_session()
    restricted(session)
    stale = list(Approval.objects.all())
    Approval.objects.update(status=ApprovalStatus.APPROVED, consumed_at=NOW)
    with patch.object(approvals.Approval.objects, "filter", side_effect=[stale, Approval.objects.filter(pk=0)]):
        approvals.tickets_cancel(session, now=NOW, cause="completed", actor="system")
    assert Approval.objects.get().status == ApprovalStatus.APPROVED


@pytest.mark.parametrize("intent", [ToolIntent.RUN_SKILL])
def test_a_session_lost_between_the_verdict_and_the_write_is_not_written(intent):
    session = make_session()
    nobody = AgentSession.objects.none()
    with patch.object(journal, "holder", return_value=nobody), tool(probe=Probe()) as probe, pytest.raises(LeaseLost):
        guarded_tool_call(session, intent, {})
    assert probe.calls == []
    assert not ToolCall.objects.exists()


def test_a_session_lost_between_two_attempts_gets_no_second_one():
    make_price(MODEL)
    session = make_session()
    failed = Step(error=ProviderError("503", fault=Fault.SERVER, usage=Usage(0, 0)))
    real, left = journal.holder, [1]

    def lost(held):
        left[0] -= 1
        return real(held) if left[0] >= 0 else AgentSession.objects.none()

    with (
        script(failed) as model,
        patch.object(journal, "holder", side_effect=lost),
        patch("agents.guard.metering.next_wait", return_value=0.0),
    ):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert len(model.requests) == 1
    assert result.outcome == Outcome.ERROR


def passing(session, intent, params, **_):
    return ToolResult(0, None, Outcome.SUCCESS)


def reaching(session, intent, params, **_):
    from agents.guard.intents import tool_for

    tool_for(ToolIntent(intent)).handler(None, params)
    raise SessionHalted("external_halt")


def refusing(error):
    def call(*_, **__):
        raise error

    return call


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("call", "check", "found"),
    [
        (passing, "R5 refuses a halted session", "it was allowed"),
        (passing, "a worker that lost its lease is refused", "it was allowed"),
        (passing, "a call that needs a person waits for one", "it ended success"),
        (passing, "an allowed call goes through", "free call: success"),
        (reaching, "R5 refuses a halted session", "the handler was reached"),
        (refusing(CostCapReached(1, 1)), "R5 refuses a halted session", "refused by CostCapReached, not SessionHalted"),
        (refusing(SessionHalted("x")), "R5 refuses a halted session", "no autonomous_session.halted row was written"),
    ],
)
def test_the_self_test_says_what_a_broken_guard_does(call, check, found):
    with patch.object(selftest, "guarded_tool_call", side_effect=call):
        results = {result.name: result for result in selftest.run_checks()}
    assert not results[check].ok
    assert results[check].found.startswith(found)


def test_the_self_test_sees_a_handler_reached_without_consent_or_lease():
    def reach(session, intent, params, **_):
        from agents.guard.intents import tool_for

        tool_for(ToolIntent(intent)).handler(None, params)
        if intent == ToolIntent.EMIT_FINDING:
            raise LeaseLost("too late")
        return ToolResult(0, None, Outcome.SUCCESS)

    with patch.object(selftest, "guarded_tool_call", side_effect=reach):
        results = {result.name: result.found for result in selftest.run_checks()}
    assert results["a call that needs a person waits for one"] == "the handler was reached"
    assert results["a worker that lost its lease is refused"] == "the handler was reached"


@pytest.mark.parametrize(
    ("results", "reaches", "found"),
    [
        ([ToolResult(0, None, Outcome.DENIED)], False, "allowed calls did not go through"),
        ([ToolResult(0, None, Outcome.SUCCESS)] * 2, True, "they were allowed: SessionHalted was expected"),
        (SessionHalted("x"), False, "SessionHalted"),
    ],
)
def test_the_self_test_drives_calls_that_are_made_together(results, reaches, found):
    def batch(calls):
        for call in calls if reaches else ():
            call.tool.handler(None, {})
        if isinstance(results, Exception):
            raise results
        return results

    with patch.object(selftest, "guarded_batch", batch):
        checks = {result.name: result for result in selftest.run_checks()}
    assert checks["calls that are made together are refused alike"].found.startswith(found)


def test_the_self_test_sees_a_handler_reached_by_calls_made_together():
    def batch(calls):
        for call in calls:
            call.tool.handler(None, {})
        row = AgentSession.objects.get(pk=calls[0].session.pk)
        if row.halt_state != HaltState.RUNNING:
            raise SessionHalted("too late")
        return [ToolResult(0, None, Outcome.SUCCESS) for _ in calls]

    with patch.object(selftest, "guarded_batch", batch):
        checks = {result.name: result.found for result in selftest.run_checks()}
    assert checks["calls that are made together are refused alike"] == "the handler was reached"
