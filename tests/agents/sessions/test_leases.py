"""One holder at a time, and what becomes of a session whose worker was lost."""

from datetime import timedelta
from decimal import Decimal

import pytest

from agents.enums import HaltState, NoticeKind, Outcome, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import InvalidTransition, JournalMismatch, LeaseLost, NotAllowed, OutcomeUnknown
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Budget, Notification, ToolCall
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.halts import session_halt
from agents.sessions.leases import lease_claim, leases_renew
from audit.models import AuditEvent
from audit.verify import verify_log
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.agents.conftest import provider as provider  # noqa: PLC0414 a fixture
from tests.factories import NOW, make_price, make_session, make_user

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(minutes=1)


class WorkerDied(BaseException):
    """As SIGKILL: nothing below the worker catches it."""


def claimed(**fields):
    session = make_session(status=Status.QUEUED, **fields)
    held = lease_claim(session.pk, owner="worker-1", now=NOW)
    assert held is not None
    return held


def die_in_the_middle(session, *, intent=ToolIntent.RUN_SKILL, params=None, key="turn:1", **capability):
    """A call that goes out and whose worker never comes back."""
    with tool(probe=Probe(error=WorkerDied()), **capability), pytest.raises(WorkerDied):
        guarded_tool_call(session, intent, params or {"to": "Ada"}, key=key, now=NOW)


def die_while_the_model_thinks(session, key="turn:1"):
    def die():
        raise WorkerDied

    from agents.providers.scripted import Step

    with script(Step(before_reply=die)), pytest.raises(WorkerDied):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key=key, now=NOW)


def test_a_queued_session_is_claimed_by_one_worker():
    session = claimed()
    assert (session.status, session.fencing, session.lease_owner) == (Status.RUNNING, 1, "worker-1")
    assert lease_claim(session.pk, owner="worker-2", now=NOW) is None
    started = AuditEvent.objects.get(chain=session.chain)
    assert started.kind == "autonomous_session.started"
    assert started.details["owner_id"] == session.owner_id
    assert started.details["max_cost_usd"] == "5.000000"


def test_a_heartbeat_keeps_the_lease_and_a_lost_worker_s_does_not():
    session = claimed()
    assert leases_renew([(session.pk, session.fencing)], now=LATER) == 1
    assert not AgentSession.objects.lost(LATER).exists()
    much_later = LATER + timedelta(minutes=1)
    assert AgentSession.objects.lost(much_later).get() == session
    taken = lease_claim(session.pk, owner="worker-2", now=much_later)
    assert (taken.fencing, taken.recoveries) == (2, 1)
    assert leases_renew([(session.pk, session.fencing)], now=much_later) == 0
    with pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    resumed = AuditEvent.objects.filter(chain=session.chain).latest("seq")
    assert resumed.kind == "autonomous_session.resumed"
    assert resumed.details == {"cause": "takeover", "recoveries": 1, "fencing": 2}


@pytest.mark.parametrize("status", [Status.SLEEPING, Status.COMPLETED])
def test_a_session_at_rest_or_over_is_not_claimed(status):
    end = {"terminal_reason": "completed", "completed_at": NOW} if status == Status.COMPLETED else {}
    assert lease_claim(make_session(status=status, **end).pk, owner="w", now=NOW) is None


def test_a_session_with_a_halt_is_ended_by_whoever_would_take_it():
    session = make_session(status=Status.QUEUED, halt_state=HaltState.HALT_REQUESTED)
    assert lease_claim(session.pk, owner="w", now=NOW) is None
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)


def test_an_inference_lost_in_flight_is_charged_in_full_and_asked_again(provider):
    make_price(MODEL)
    session = claimed()
    die_while_the_model_thinks(session)
    session.refresh_from_db()
    assert session.cost_reserved_usd == Decimal("0.005")  # counted against the cap until it is known
    taken = lease_claim(session.pk, owner="worker-2", now=LATER)
    lost = ToolCall.objects.get()
    assert (lost.outcome, lost.charged_usd, lost.actual_usd) == (Outcome.WORKER_LOST, Decimal("0.005"), lost.held_usd)
    assert (taken.cost_total_usd, taken.cost_reserved_usd) == (Decimal("0.005"), 0)
    assert (taken.cost_actual_usd, taken.cost_held_usd) == (lost.held_usd, 0)
    assert Budget.objects.get().charged_usd == Decimal("0.005")
    again = guarded_tool_call(taken, ToolIntent.RUN_SKILL, ask(), key="turn:1", now=LATER)
    taken.refresh_from_db()
    assert again.ok
    assert not again.replayed
    assert taken.cost_total_usd == Decimal("0.010")
    assert list(ToolCall.objects.order_by("pk").values_list("attempt", "outcome")) == [
        (1, "worker_lost"),
        (2, "success"),
    ]


def test_a_finished_call_is_not_repeated_by_the_worker_that_takes_over():
    session = claimed()
    with tool(probe=Probe({"sent": 1})) as probe:
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)
        taken = lease_claim(session.pk, owner="worker-2", now=LATER)
        replayed = guarded_tool_call(taken, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=LATER)
    assert (replayed.data, replayed.replayed) == ({"sent": 1}, True)
    assert len(probe.calls) == 1


@pytest.mark.parametrize("capability", [{"side_effects": False}, {"idempotent": True}])
def test_a_lost_call_that_is_safe_to_repeat_is_repeated_under_the_same_key(capability):
    session = claimed()
    die_in_the_middle(session, **capability)
    taken = lease_claim(session.pk, owner="worker-2", now=LATER)
    with tool(probe=Probe(), **capability) as probe:
        assert guarded_tool_call(taken, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=LATER).ok
    [(context, _)] = probe.calls
    assert context.idempotency_key == f"{session.public_id}:turn:1"


def test_a_lost_call_that_may_have_taken_effect_waits_for_a_person():
    session = claimed()
    die_in_the_middle(session)
    assert lease_claim(session.pk, owner="worker-2", now=LATER) is None
    session.refresh_from_db()
    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.OPERATOR)
    assert Notification.objects.get().kind == NoticeKind.OUTCOME_UNKNOWN
    call = ToolCall.objects.get()
    assert call.outcome == Outcome.UNKNOWN
    assert AuditEvent.objects.filter(chain=session.chain).latest("seq").details["outcome"] == "unknown"


def resolved(decision, **more):
    session = claimed()
    die_in_the_middle(session)
    lease_claim(session.pk, owner="worker-2", now=LATER)
    person = make_user(is_superuser=True)
    call = tool_call_resolve(ToolCall.objects.get().pk, decision, by=person, now=LATER, **more)
    held = lease_claim(session.pk, owner="worker-3", now=LATER)
    return held, call


def test_a_person_who_says_it_happened_gives_the_run_its_result():
    held, call = resolved(Decision.HAPPENED, result={"letter": "L-7"})
    with tool(probe=Probe()) as probe:
        result = guarded_tool_call(held, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=LATER)
    assert (result.data, result.replayed, probe.calls) == ({"letter": "L-7"}, True, [])
    assert AuditEvent.objects.get(kind="tool_call.resolved").details["decision"] == "happened"
    with pytest.raises(InvalidTransition):
        tool_call_resolve(call.pk, Decision.DID_NOT_HAPPEN, by=make_user(is_superuser=True), now=LATER)


def test_a_person_who_says_it_did_not_happen_lets_it_be_made_again():
    held, call = resolved(Decision.DID_NOT_HAPPEN, result={"letter": "L-7"})
    assert call.result is None
    with tool(probe=Probe()) as probe:
        assert guarded_tool_call(held, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=LATER).ok
    assert len(probe.calls) == 1


def test_only_who_may_decide_says_what_became_of_a_call():
    session = claimed()
    die_in_the_middle(session)
    lease_claim(session.pk, owner="worker-2", now=LATER)
    call = ToolCall.objects.get()
    for stranger in (make_user(), make_user(is_superuser=True, is_active=False)):
        with pytest.raises(NotAllowed):
            tool_call_resolve(call.pk, Decision.HAPPENED, by=stranger, now=LATER)
    assert ToolCall.objects.get().outcome == Outcome.UNKNOWN


def test_what_is_said_of_a_call_after_its_session_has_ended_does_not_reopen_its_chain():
    session = claimed()
    die_in_the_middle(session)
    lease_claim(session.pk, owner="worker-2", now=LATER)
    session_halt(session.pk, by=None, reason="", now=LATER)
    call = ToolCall.objects.get()
    tool_call_resolve(call.pk, Decision.HAPPENED, by=make_user(is_superuser=True), now=LATER)
    assert AuditEvent.objects.get(kind="tool_call.resolved").chain == "system"
    assert verify_log().problems == []


def test_the_session_waits_until_every_unknown_outcome_is_decided():
    session = claimed()
    die_in_the_middle(session, key="turn:1")
    die_in_the_middle(session, key="turn:2")
    lease_claim(session.pk, owner="worker-2", now=LATER)
    first, second = ToolCall.objects.order_by("pk")
    tool_call_resolve(first.pk, Decision.HAPPENED, by=make_user(is_superuser=True), now=LATER)
    assert AgentSession.objects.get().status == Status.WAITING
    tool_call_resolve(second.pk, Decision.HAPPENED, by=make_user(is_superuser=True), now=LATER)
    assert AgentSession.objects.get().status == Status.QUEUED


def test_a_call_with_an_unknown_outcome_is_never_made_again_by_itself():
    session = claimed()
    die_in_the_middle(session)
    ToolCall.objects.update(outcome=Outcome.UNKNOWN, settled_at=NOW, unknown_since=NOW)
    with tool(probe=Probe()) as probe, pytest.raises(OutcomeUnknown):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)
    assert probe.calls == []


def test_one_place_of_the_run_is_in_flight_once():
    session = claimed()
    die_in_the_middle(session)
    with tool(probe=Probe()) as probe, pytest.raises(JournalMismatch, match="in flight"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)
    assert probe.calls == []


def test_a_session_that_kills_its_workers_ends_after_three_recoveries():
    session, now = claimed(), NOW
    for recovery in (1, 2, 3):
        now += timedelta(minutes=1)
        assert lease_claim(session.pk, owner=f"worker-{recovery}", now=now).recoveries == recovery
    now += timedelta(minutes=1)
    assert lease_claim(session.pk, owner="worker-4", now=now) is None
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_LOST)
    assert session.result["terminal_reason"] == "worker_lost"


def test_a_worker_that_comes_back_late_cannot_settle():
    make_price(MODEL)
    session = claimed()
    from agents.providers.scripted import Step

    def meanwhile():
        assert lease_claim(session.pk, owner="worker-2", now=LATER) is not None

    with script(Step("late", before_reply=meanwhile)), pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="turn:1", now=NOW)
    call = ToolCall.objects.get()
    row = AgentSession.objects.get()
    assert (call.outcome, call.result) == (Outcome.WORKER_LOST, None)
    assert (row.cost_total_usd, row.cost_reserved_usd, row.cost_held_usd) == (Decimal("0.005"), 0, 0)


def test_a_halt_ends_a_lost_session_even_when_an_outcome_is_unknown():
    session = claimed()
    die_in_the_middle(session)
    AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
    assert lease_claim(session.pk, owner="worker-2", now=LATER) is None
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert ToolCall.objects.get().outcome == Outcome.UNKNOWN


def test_a_lease_far_ahead_was_given_by_a_wrong_clock_and_is_taken_over():
    session = make_session(status=Status.QUEUED)
    ahead = NOW + timedelta(hours=3)
    assert lease_claim(session.pk, owner="ahead", now=ahead) is not None
    assert AgentSession.objects.lost(NOW).count() == 1
    taken = lease_claim(session.pk, owner="here", now=NOW)
    assert taken is not None
    assert taken.lease_owner == "here"
