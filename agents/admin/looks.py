"""Which colour goes with which word, for chips and labels. Colour never says anything that the word does not."""

from typing import Final

from agents.enums import ApprovalStatus, Level, Outcome, ProposalStatus, QuestionStatus, Status

STATUS_LOOKS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warn",
    Status.COMPLETED: "good",
    Status.HALTED: "warn",
    Status.FAILED: "bad",
}
# unfold's own words for the same, in lists
STATUS_LABELS: Final[dict[str, str]] = {
    Status.RUNNING: "info",
    Status.WAITING: "warning",
    Status.COMPLETED: "success",
    Status.HALTED: "warning",
    Status.FAILED: "danger",
}
LEVEL_LOOKS: Final[dict[str, str]] = {Level.CONTROLLED: "info", Level.RESTRICTED: "warn", Level.PRIVILEGED: "bad"}
RISK_LOOKS: Final[dict[str, str]] = {"low": "good", "medium": "warn", "high": "bad"}
LEVEL_LABELS: Final[dict[str, str]] = {
    Level.CONTROLLED: "info",
    Level.RESTRICTED: "warning",
    Level.PRIVILEGED: "danger",
}
RISK_LABELS: Final[dict[str, str]] = {"low": "success", "medium": "warning", "high": "danger"}
APPROVAL_LABELS: Final[dict[str, str]] = {
    ApprovalStatus.PENDING: "warning",
    ApprovalStatus.APPROVED: "success",
    ApprovalStatus.REJECTED: "danger",
}
QUESTION_LABELS: Final[dict[str, str]] = {QuestionStatus.PENDING: "warning", QuestionStatus.ANSWERED: "success"}
PROPOSAL_LABELS: Final[dict[str, str]] = {
    ProposalStatus.PROPOSED: "warning",
    ProposalStatus.ACCEPTED: "success",
    ProposalStatus.REJECTED: "danger",
}
MEMORY_LABELS: Final[dict[str, str]] = {"proposed": "warning", "kept": "success"}
OUTCOME_LABELS: Final[dict[str, str]] = {
    Outcome.STARTED: "info",
    Outcome.SUCCESS: "success",
    Outcome.UNKNOWN: "danger",
    Outcome.APPROVAL_PENDING: "warning",
    Outcome.WORKER_LOST: "warning",
    Outcome.DENIED: "danger",
    Outcome.ERROR: "danger",
    Outcome.GATEWAY_ERROR: "danger",
    Outcome.STORAGE_ERROR: "danger",
    Outcome.TIMEOUT: "danger",
}
SEVERITY_LABELS: Final[dict[str, str]] = {"info": "info", "warn": "warning", "critical": "danger"}
