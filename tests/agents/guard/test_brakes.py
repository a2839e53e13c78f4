"""R5, R6 and R4 at the chokepoint: their order, their effect, their record."""

from decimal import Decimal
from unittest.mock import patch

import pytest

from agents.enums import HaltState, Outcome, Phase, Status, TerminalReason, ToolIntent
from agents.exceptions import AutonomousBrake, CostCapReached, LeaseLost, SessionHalted, ToolNotGranted
from agents.guard import guard, guarded_tool_call
from agents.models import AgentSession, Finding, Halt, Installation, ToolCall
from audit.models import AuditEvent
from tests.agents.conftest import MODEL, ask
from tests.factories import NOW, make_price, make_session

pytestmark = pytest.mark.django_db


def kinds(session):
    return list(AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("kind", flat=True))


def last(session):
    return AuditEvent.objects.filter(chain=session.chain).latest("seq")


def test_refuses_an_intent_that_is_not_one_of_the_eight_and_writes_nothing():
    session = make_session(current_phase=Phase.TURN)
    with pytest.raises(ValueError, match="delete_project"):
        guarded_tool_call(session, "delete_project", {})
    assert not AuditEvent.objects.exists()
    assert not ToolCall.objects.exists()


def test_a_requested_halt_ends_the_run_at_the_next_call():
    session = make_session(current_phase=Phase.TURN)
    AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
    with pytest.raises(SessionHalted) as halted:
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "x"}, now=NOW)
    session.refresh_from_db()
    assert halted.value.reason == TerminalReason.EXTERNAL_HALT
    assert session.halt_state == HaltState.HALTED
    assert kinds(session) == ["autonomous_session.halted"]
    assert last(session).details["reason"] == "external_halt"
    assert session.cost_total_usd == 0
    assert not Finding.objects.exists()


def test_reads_the_halt_from_the_database_and_not_from_the_object_in_hand():
    session = make_session(current_phase=Phase.TURN)
    guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "first"})
    AgentSession.objects.filter(pk=session.pk).update(halt_state=HaltState.HALT_REQUESTED)
    assert session.halt_state == HaltState.RUNNING
    with pytest.raises(SessionHalted):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "second"})
    assert Finding.objects.count() == 1


def test_the_halt_of_all_work_stops_a_running_session():
    session = make_session(current_phase=Phase.TURN)
    halt = Halt.objects.create(scope="organisation")
    Installation.objects.update(halt=halt)
    with pytest.raises(SessionHalted):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    assert last(session).details["halt_id"] == halt.pk


@pytest.mark.parametrize("reason", [TerminalReason.IDLE_TIMEOUT, TerminalReason.WORKER_LOST])
def test_a_session_that_is_over_is_refused_with_its_own_reason_and_no_second_end(reason):
    session = make_session(status=Status.HALTED, terminal_reason=reason, completed_at=NOW, halt_state=HaltState.HALTED)
    with pytest.raises(SessionHalted) as halted:
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=NOW)
    assert halted.value.reason == reason
    assert kinds(session) == []  # its chain is closed; the attempt is noted in the system chain
    noted = AuditEvent.objects.get(chain="system")
    assert (noted.kind, noted.details["outcome"]) == ("autonomous_session.tool_call", Outcome.DENIED)
    assert noted.subject == f"session:{session.public_id}"


def test_a_second_call_after_a_brake_is_denied_without_a_second_terminal_row():
    session = make_session(current_phase=Phase.TURN)
    AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
    for _ in range(2):
        with pytest.raises(SessionHalted):
            guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    assert kinds(session) == ["autonomous_session.halted", "autonomous_session.tool_call"]
    assert last(session).details["outcome"] == Outcome.DENIED


def test_refuses_tool_not_granted_in_phase():
    session = make_session(current_phase=Phase.INTAKE)
    with pytest.raises(ToolNotGranted, match="Phase intake does not grant notify"):
        guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "x"})
    refused = {"tool": "notify", "phase": "intake", "outcome": "tool_not_granted", "brake": "R6"}
    assert last(session).details == refused
    session.refresh_from_db()
    assert session.halt_state == HaltState.RUNNING


def test_the_phase_is_read_from_the_database():
    session = make_session(current_phase=Phase.DELIVERY)
    AgentSession.objects.update(current_phase=Phase.INTAKE)
    with pytest.raises(ToolNotGranted):
        guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "x"})


@pytest.mark.parametrize(
    ("halted", "phase", "expected"),
    [(True, Phase.INTAKE, SessionHalted), (False, Phase.INTAKE, ToolNotGranted), (False, Phase.TURN, CostCapReached)],
)
def test_the_first_brake_wins_and_later_ones_are_not_asked(halted, phase, expected, provider):
    make_price(MODEL)
    session = make_session(current_phase=phase, max_cost_usd=Decimal(0))
    if halted:
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
    estimate = patch.object(guard, "estimate_tool_cost", wraps=guard.estimate_tool_cost)
    with estimate as estimator, pytest.raises(expected):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert estimator.call_count == (1 if expected is CostCapReached else 0)
    assert provider.requests == []


def test_the_cap_latches_and_ends_the_run(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS, max_cost_usd=Decimal("0.001"))
    with pytest.raises(CostCapReached, match=r"to 0\.005\d* USD; its cap"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    session.refresh_from_db()
    assert session.cost_cap_reached
    assert session.halt_state == HaltState.HALTED
    assert session.terminal_reason == TerminalReason.COST_CAP_REACHED
    event = last(session)
    assert event.kind == "autonomous_session.cost_cap_reached"
    assert event.details["projected_usd"] == "0.005000"
    assert event.details["result"] == "failed"
    assert provider.requests == []


def test_run_that_a_brake_ends_is_partial_if_it_has_findings(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS, max_cost_usd=Decimal("0.001"))
    session.findings.create(title="Late fees", content="Two per cent.")
    with pytest.raises(CostCapReached):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert last(session).details["result"] == "partial"


def test_raising_the_cap_does_not_undo_the_latch(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS, max_cost_usd=Decimal("0.001"))
    with pytest.raises(CostCapReached):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    AgentSession.objects.update(max_cost_usd=Decimal(5))
    with pytest.raises(SessionHalted) as halted:
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert halted.value.reason == TerminalReason.COST_CAP_REACHED
    assert provider.requests == []


@pytest.mark.parametrize(("cap", "passes"), [("1.00", True), ("0.9999", False)])
def test_a_call_that_just_fits_the_cap_is_allowed(cap, passes, provider):
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(current_phase=Phase.ANALYSIS, max_cost_usd=Decimal(cap), cost_total_usd=Decimal("0.995"))
    if passes:
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask()).ok
    else:
        with pytest.raises(CostCapReached):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())


def test_free_intents_pass_a_cap_of_zero():
    session = make_session(current_phase=Phase.DELIVERY, max_cost_usd=Decimal(0))
    assert guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "done"}).ok


def test_brakes_share_a_base_that_answers_409():
    for brake in (SessionHalted("x"), ToolNotGranted("a", "b"), CostCapReached(Decimal(1), Decimal(1))):
        assert isinstance(brake, AutonomousBrake)
        assert brake.http_status == 409


def test_a_worker_that_lost_its_lease_is_refused():
    session = make_session(current_phase=Phase.TURN)
    AgentSession.objects.update(fencing=session.fencing + 1)
    with pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    assert not Finding.objects.exists()


@pytest.mark.parametrize("status", [Status.QUEUED, Status.SLEEPING])
def test_a_session_that_is_not_running_does_nothing(status):
    session = make_session(status=status, current_phase=Phase.TURN)
    with pytest.raises(LeaseLost):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    assert not Finding.objects.exists()
    assert not AuditEvent.objects.exists()


def test_a_passing_call_unpauses_an_idle_session():
    session = make_session(current_phase=Phase.TURN, halt_state=HaltState.IDLE)
    guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    session.refresh_from_db()
    assert session.halt_state == HaltState.RUNNING
