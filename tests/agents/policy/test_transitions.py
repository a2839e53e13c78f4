"""The moves of a session, how each reason ends it, and the state that integrations read."""

from itertools import product

import pytest

from agents.enums import AgentState, Status, TerminalReason, WaitingOn
from agents.policy.transitions import REASON_STATUS, STATUS_MOVES, TERMINAL, agent_state
from tests.table import every_row

# state, status, terminal reason
ENDS = [
    ("completed", "completed", "completed"),
    ("completed", "completed", "agent_shutdown"),
    ("cancelled", "halted", "external_halt"),
    ("timed_out", "halted", "timed_out"),
    ("max_steps", "halted", "max_steps"),
    ("budget_exceeded", "halted", "budget_exceeded"),
    ("budget_exceeded", "halted", "cost_cap_reached"),
    ("cancelled", "halted", "idle_timeout"),
    ("cancelled", "halted", "opted_out"),
    ("error", "failed", "stuck_loop"),
    ("error", "failed", "provider_error"),
    ("error", "failed", "tool_not_granted"),
    ("error", "failed", "worker_error"),
    ("error", "failed", "worker_lost"),
    ("error", "failed", "refused"),
    ("error", "failed", "unpriced_model"),
]


@every_row(("state", "status", "reason"), ENDS)
def test_each_reason_ends_the_session_as_the_table_says(state, status, reason):
    assert REASON_STATUS[reason] == status
    assert agent_state(status=status, waiting_on="", terminal_reason=reason, calls_open=False) == state


def test_every_reason_has_its_status_and_the_status_is_terminal():
    assert set(REASON_STATUS) == set(TerminalReason) == {reason for _, _, reason in ENDS}
    assert set(REASON_STATUS.values()) == TERMINAL


def test_terminal_states_are_the_last_three_and_are_never_left():
    assert {"completed", "halted", "failed"} == TERMINAL
    assert TERMINAL.isdisjoint(STATUS_MOVES)
    assert set(STATUS_MOVES) | TERMINAL == set(Status)


def test_the_moves_are_exactly_these():
    assert {status: set(moves) for status, moves in STATUS_MOVES.items()} == {
        "queued": {"running", "waiting", "halted", "failed"},
        "running": {"queued", "sleeping", "waiting", "completed", "halted", "failed"},
        "sleeping": {"queued", "halted", "failed"},
        "waiting": {"queued", "halted", "failed"},
    }


@every_row("status", sorted(set(Status) - TERMINAL))
def test_a_session_at_work_or_at_rest_can_be_ended_but_only_a_running_one_completes(status):
    assert {Status.HALTED, Status.FAILED} <= STATUS_MOVES[status]
    assert (Status.COMPLETED in STATUS_MOVES[status]) == (status == Status.RUNNING)


@pytest.mark.parametrize("table", [STATUS_MOVES, REASON_STATUS])
def test_the_tables_cannot_be_changed(table):
    with pytest.raises(TypeError):
        table["completed"] = frozenset({Status.RUNNING})


def expected_state(status, waiting_on, reason, calls_open):
    if status in {"queued", "running"}:
        return "waiting_for_tool" if calls_open else "running"
    if status == "waiting":
        named = {"operator": "waiting_for_input", "resume": "paused"}
        return named.get(waiting_on, f"waiting_for_{waiting_on}")
    if status == "halted":
        named = {"timed_out", "max_steps", "budget_exceeded"}
        return reason if reason in named else "budget_exceeded" if reason == "cost_cap_reached" else "cancelled"
    return {"sleeping": "sleeping", "completed": "completed", "failed": "error"}[status]


@every_row("status", Status)
def test_there_is_a_state_for_every_combination(status):
    waits = list(WaitingOn) if status == Status.WAITING else [""]
    for waiting_on, reason, calls_open in product(waits, [None, *TerminalReason], [False, True]):
        state = agent_state(status=status, waiting_on=waiting_on, terminal_reason=reason, calls_open=calls_open)
        assert state == expected_state(status, waiting_on, reason, calls_open)
        assert state in AgentState


def test_every_state_can_be_reached():
    combinations = product(Status, WaitingOn, [None, *TerminalReason], [False, True])
    reached = {
        agent_state(status=status, waiting_on=waiting_on, terminal_reason=reason, calls_open=calls_open)
        for status, waiting_on, reason, calls_open in combinations
    }
    assert reached == set(AgentState)


def test_a_session_that_waits_for_nothing_has_no_state():
    with pytest.raises(KeyError):
        agent_state(status=Status.WAITING, waiting_on="", terminal_reason=None, calls_open=False)
