"""The words of a receipt: plain ones for the labels that the record holds, and how each row is told to a person.

Tables and their reading, nothing else. A label that stands in no table is told as it is, so that nothing is hidden.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from audit.kinds import sentence

_TOOLS: Final = {
    "retrieve_chunks": "reading documents",
    "run_skill": "a question to the model, by a skill",
    "run_playbook": "a question to the model, by a playbook",
    "propose_memory": "proposing a note",
    "propose_precedent": "noting a pattern",
    "emit_finding": "writing down a finding",
    "emit_artifact": "saving a draft",
    "notify": "a notice to the owner",
}
_PHASES: Final = {"ethics_review": "ethics review"}
_REASONS: Final = {
    "completed": "it finished its work",
    "agent_shutdown": "the agent was done",
    "external_halt": "it was stopped from outside",
    "timed_out": "it took too long",
    "max_steps": "it took too many steps",
    "budget_exceeded": "a budget was used up",
    "cost_cap_reached": "its cost cap was reached",
    "idle_timeout": "nothing happened for too long",
    "stuck_loop": "it repeated itself",
    "provider_error": "the model's provider did not answer properly",
    "tool_not_granted": "it tried what it was not allowed to do",
    "worker_error": "an error in the program that ran it",
    "worker_lost": "the program that ran it was lost",
    "opted_out": "its owner does not allow unattended runs",
    "refused": "it was refused",
    "unpriced_model": "its model has no declared price",
}
WORDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "mode": {"phased": "a walk in five phases", "loop": "a loop", "chat": "a conversation"},
        "trigger_kind": {
            "watch": "a watch that saw a document come in",
            "schedule": "a schedule",
            "event": "an event",
            "manual": "hand",
        },
        "tool": _TOOLS,
        "action": _TOOLS,
        "phase": _PHASES,
        "to_phase": _PHASES,
        "outcome": {
            "started": "begun",
            "success": "done",
            "tool_not_granted": "refused, its phase does not allow it",
            "gateway_error": "the model could not be asked",
            "skipped": "left out",
            "storage_error": "it could not be stored",
            "rate_limited": "refused, too many in a short time",
            "denied": "refused",
            "approval_pending": "waits for a person",
            "worker_lost": "lost with the program that ran it",
            "error": "failed",
            "timeout": "it took too long",
            "unknown": "nobody knows whether it happened",
        },
        "detail": {
            **_REASONS,
            "rejected": "a person said no",
            "expired": "nobody answered in time",
            "cancelled": "the question was withdrawn",
            "budget_busy": "other calls held the money",
            "budget_spent": "a shared budget was used up",
            "halted_before_dispatch": "the run was halted just before it went out",
            "retry_later": "the model asked for a pause",
        },
        "reason": _REASONS,
        "decision": {"happened": "happened", "did_not_happen": "did not happen"},
        "cause": {"takeover": "another worker took it over", "queue": "its turn came"},
    }
)
SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "autonomous_session.started": "The run began: {mode}, with a cap of {max_cost_usd} USD.",
        "autonomous_session.resumed": "The run went on: {cause}.",
        "autonomous_session.tool_call": "{tool}: {outcome}.",
        "autonomous_session.completed": "The run came to its end: {reason}.",
        "tool_call.resolved": "A person decided that the call {decision}.",
        "approval.requested": "A person was asked for a yes: {action}.",
        "approval.approved": "Approved: {action}.",
        "approval.edited": "Approved with changed arguments: {action}.",
        "approval.rejected": "Denied: {action}.",
        "approval.expired": "Nobody answered in time: {action}.",
        "approval.cancelled": "The question was withdrawn: {action}.",
        "approval.consumed": "The approval was used: {action}.",
        "approval.standing_created": "Approved for the rest of the run, {uses} uses: {action}.",
        "approval.reminded": "The approvers were reminded: {action}.",
    }
)


def worded(name: str, value: Any) -> Any:
    """The plain words for a detail; one that has none is told as it is."""
    return WORDS.get(name, {}).get(value, value) if isinstance(value, str) else value


def told(kind: str, details: Mapping[str, Any]) -> str:
    """What a row says, in plain words."""
    plain = {name: worded(name, value) for name, value in details.items()}
    text = sentence(kind, plain, SENTENCES.get(kind))
    return text[:1].upper() + text[1:]
