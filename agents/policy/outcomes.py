"""The outcome of a call in words, the same on every page: who or what refused it, and why.

What refused a call is stored as a detail (of an approval or a budget), a check (`Brake`) or an outcome. `outcome_code`
returns the one that says most, and each code has its words here.
"""

from typing import Final

from agents.enums import Brake, Outcome

REFUSED: Final = frozenset({Outcome.DENIED, Outcome.TOOL_NOT_GRANTED, Outcome.RATE_LIMITED})
# Labels for the reasons for which calls are refused.
REASONS: Final = {
    "rejected": "by a person",
    "expired": "no decision in time",
    "cancelled": "the run had ended",
    "refused_before": "the same call was denied before",
    "ticket_refused": "it is not the approved call",
    "budget_spent": "a shared budget is used up",
    "budget_busy": "other calls have reserved the rest of a budget",
    "dimension:cost": "the rest of the run's cap is too small",
    "dimension:tokens": "the run's tokens are used up",
}
_COST_CAP: Final = "refused by the cost cap"
_WORDS: Final = {
    Outcome.APPROVAL_PENDING: "approval requested",
    Outcome.TOOL_NOT_GRANTED: "not allowed in this phase",
    Outcome.RATE_LIMITED: "over its limit",
    Brake.COST: _COST_CAP,
    Brake.HALT: "refused by a halt",
    Brake.RATE: "refused",
    Brake.ARGUMENTS: "wrong arguments",
    Brake.SKILL: "not available",
    Brake.RULE: "denied by a rule",
    "rejected": "denied",
    "refused_before": "refused before",
    "ticket_refused": "not the approved call",
    "skill_disabled": "switched off",
    "no_approver": "nobody may approve it",
    "too_many_pending": "too many approvals wait",
    "budget_spent": "refused by a budget",
    "budget_busy": "budget in use",
    "cap_lent": _COST_CAP,
    "too_dear": _COST_CAP,
    "dimension:cost": _COST_CAP,
    "dimension:tokens": "refused by the token limit",
}


def outcome_code(outcome: str, *, detail: str = "", brake: str = "") -> str:
    """Return the outcome of a call and, of one that was refused, what refused it."""
    if outcome != Outcome.DENIED:
        return outcome
    return brake if brake == Brake.HALT else detail or brake or outcome


def outcome_text(code: str) -> str:
    """Return the words for an outcome: `denied` is said of people and rules alone."""
    return _WORDS.get(code, code.replace("_", " "))
