"""The moves that sessions and findings may make. Pure data; only agents/sessions and agents/knowledge make them.

Terminal states of a session are never left: they have no entry on the left-hand side.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agents.enums import AgentState, FindingState, Status, TerminalReason, WaitingOn

TERMINAL: Final = frozenset({Status.COMPLETED, Status.HALTED, Status.FAILED})

_ENDS = {Status.HALTED, Status.FAILED}

STATUS_MOVES: Final[Mapping[str, frozenset[Status]]] = MappingProxyType(
    {
        Status.QUEUED: frozenset({Status.RUNNING, Status.WAITING, *_ENDS}),
        Status.RUNNING: frozenset({Status.QUEUED, Status.SLEEPING, Status.WAITING, Status.COMPLETED, *_ENDS}),
        Status.SLEEPING: frozenset({Status.QUEUED, *_ENDS}),
        Status.WAITING: frozenset({Status.QUEUED, *_ENDS}),
    }
)

_SETTLED = frozenset({FindingState.DISMISSED, FindingState.RESOLVED})
# Time alone makes an open finding expire (agents.knowledge.findings.findings_expire).
FINDING_MOVES: Final[Mapping[str, frozenset[FindingState]]] = MappingProxyType(
    {
        FindingState.OPEN: frozenset({FindingState.ACKNOWLEDGED, *_SETTLED}),
        FindingState.ACKNOWLEDGED: frozenset({FindingState.OPEN, *_SETTLED}),
        **dict.fromkeys((*_SETTLED, FindingState.EXPIRED), frozenset({FindingState.OPEN})),
    }
)

_R = TerminalReason

# The status each reason ends with, and the state that integrations see.
REASON_STATUS: Final[Mapping[str, Status]] = MappingProxyType(
    {
        _R.COMPLETED: Status.COMPLETED,
        _R.AGENT_SHUTDOWN: Status.COMPLETED,
        _R.EXTERNAL_HALT: Status.HALTED,
        _R.TIMED_OUT: Status.HALTED,
        _R.MAX_STEPS: Status.HALTED,
        _R.BUDGET_EXCEEDED: Status.HALTED,
        _R.COST_CAP_REACHED: Status.HALTED,
        _R.IDLE_TIMEOUT: Status.HALTED,
        _R.OPTED_OUT: Status.HALTED,
        _R.STUCK_LOOP: Status.FAILED,
        _R.PROVIDER_ERROR: Status.FAILED,
        _R.TOOL_NOT_GRANTED: Status.FAILED,
        _R.WORKER_ERROR: Status.FAILED,
        _R.WORKER_LOST: Status.FAILED,
        _R.REFUSED: Status.FAILED,
        _R.UNPRICED_MODEL: Status.FAILED,
    }
)

_HALTED_STATES: Final[Mapping[str, AgentState]] = {
    _R.TIMED_OUT: AgentState.TIMED_OUT,
    _R.MAX_STEPS: AgentState.MAX_STEPS,
    _R.BUDGET_EXCEEDED: AgentState.BUDGET_EXCEEDED,
    _R.COST_CAP_REACHED: AgentState.BUDGET_EXCEEDED,
}
_WAITING_STATES: Final[Mapping[str, AgentState]] = {
    WaitingOn.APPROVAL: AgentState.WAITING_FOR_APPROVAL,
    WaitingOn.INPUT: AgentState.WAITING_FOR_INPUT,
    WaitingOn.OPERATOR: AgentState.WAITING_FOR_INPUT,
    WaitingOn.MODEL: AgentState.WAITING_FOR_MODEL,
    WaitingOn.RESUME: AgentState.PAUSED,
    WaitingOn.RUNS: AgentState.WAITING_FOR_RUNS,
}
_STATUS_STATES: Final[Mapping[str, AgentState]] = {
    Status.SLEEPING: AgentState.SLEEPING,
    Status.COMPLETED: AgentState.COMPLETED,
    Status.FAILED: AgentState.ERROR,
}


def agent_state(*, status: str, waiting_on: str, terminal_reason: str | None, calls_open: bool) -> AgentState:
    """Return the session as an AgentState. A queued session counts as running."""
    if status == Status.HALTED:
        return _HALTED_STATES.get(terminal_reason or "", AgentState.CANCELLED)
    if status == Status.WAITING:
        return _WAITING_STATES[waiting_on]
    if status in _STATUS_STATES:
        return _STATUS_STATES[status]
    return AgentState.WAITING_FOR_TOOL if calls_open else AgentState.RUNNING
