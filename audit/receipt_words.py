"""The words of a receipt: plain ones for the labels that the record holds, and how each row is told to a person.

Tables and their reading, nothing else. A label that stands in no table is told as it is, so that nothing is hidden.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from audit.kinds import sentence

_TOOLS: Final = {
    "retrieve_chunks": "reading documents",
    "run_skill": "a question to the model",
    "run_playbook": "a question to the model",
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
    "external_halt": "stopped by a person",
    "timed_out": "it took too long",
    "max_steps": "it took too many steps",
    "budget_exceeded": "a budget had no room for the next call",
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
            "gateway_error": "the model could not be asked, or gave no answer",
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
            "cancelled": "the request was withdrawn",
            "budget_busy": "other calls held the money",
            "budget_spent": "a shared budget had no room for it",
            "dimension:cost": "the run's money had no room for it",
            "dimension:tokens": "the run's tokens were used up",
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
        "autonomous_session.tool_call": "{tool}: {outcome}.",
        "autonomous_session.completed": "The run came to its end: {reason}.",
        "tool_call.resolved": "A person decided that the call {decision}.",
        "approval.requested": "Approval was requested: {action}.",
        "approval.approved": "Approved: {action}.",
        "approval.edited": "Approved with changed arguments: {action}.",
        "approval.rejected": "Denied: {action}.",
        "approval.expired": "Nobody answered in time: {action}.",
        "approval.cancelled": "The request for approval was withdrawn: {action}.",
        "approval.consumed": "The approval was used: {action}.",
        "approval.standing_created": "Approved for the rest of the run, {uses} uses: {action}.",
        "approval.reminded": "The approvers were reminded: {action}.",
    }
)


def usd(amount: Decimal | None, *, empty: str = "—") -> str:
    """Two places at least, up to six where they say something."""
    if amount is None:
        return empty
    text = f"{amount:.6f}".rstrip("0")
    whole, _, places = text.partition(".")
    return f"${whole}.{places.ljust(2, '0')}"


def both_usd(charged: Decimal, booked: Decimal) -> str:
    """What a call or a run cost, by both ledgers where they differ."""
    return usd(charged) if charged == booked else f"{usd(charged)} charged, {usd(booked)} booked for providers"


def worded(name: str, value: Any) -> Any:
    """The plain words for a detail; one that has none is told as it is."""
    return WORDS.get(name, {}).get(value, value) if isinstance(value, str) else value


def called(details: Mapping[str, Any]) -> str:
    """What was called: the skill or the model by its name, where the row has one."""
    if details.get("model"):
        return f"a question to the model {details['model']}"
    if details.get("name"):
        return f"the skill {details['name']}"
    if details.get("tool") == "run_skill" and not details.get("budget"):
        return "a skill, or a question to the model"
    return str(worded("tool", details.get("tool")) or "a call")


def told(kind: str, details: Mapping[str, Any]) -> str:
    """What a row says, in plain words."""
    if kind in _TOLD:
        text = _TOLD[kind](details)
    else:
        plain = {name: worded(name, value) for name, value in details.items()}
        given = {"tool": called(details)} if "tool" in details else {}
        text = sentence(kind, {**plain, **given}, SENTENCES.get(kind))
    return text[:1].upper() + text[1:]


def _inputs(details: Mapping[str, Any]) -> str:
    version, notes = details.get("context_version"), details.get("memories") or 0
    context = "no context of a project" if version is None else f"version {version} of its project's context"
    goal = "works towards a goal and " if details.get("goal_digest") else ""
    return f"The run {goal}reads {context} and {notes or 'no'} kept note{'' if notes == 1 else 's'}."


def _resumed(details: Mapping[str, Any]) -> str:
    lost = details.get("recoveries") or 0
    times = "once" if lost == 1 else f"{lost} times"
    return f"A worker took up the run again; workers were lost {times}." if lost else "A worker took up the run."


# Kinds whose sentence in the record has blanks for most runs.
_TOLD: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = MappingProxyType(
    {"session.inputs": _inputs, "autonomous_session.resumed": _resumed}
)


class Approvals:
    """What rows about approvals speak of, gathered from the rows before them: only the first says which call it is,
    and a call that a standing approval lets through names no person.
    """

    def __init__(self, actions: Mapping[Any, str] = MappingProxyType({})) -> None:
        self._actions: dict[Any, Any] = dict(actions)
        self._givers: dict[Any, str] = {}

    def take(self, kind: str, actor: str, details: Mapping[str, Any]) -> None:
        if details.get("action"):
            self._actions.setdefault(details.get("approval_id"), details["action"])
        if kind == "approval.standing_created":
            self._givers[details.get("standing_id")] = actor

    def action(self, details: Mapping[str, Any]) -> str | None:
        return self._actions.get(details.get("approval_id"))

    def told(self, kind: str, details: Mapping[str, Any]) -> str:
        """The row's sentence, with what it is about."""
        action = self.action(details)
        text = told(kind, {"action": action, **details} if action else details)
        if kind != "approval.approved" or not details.get("standing_id"):
            return text
        giver = self._givers.get(details["standing_id"])
        return f"{text[:-1]}, by {f'{giver} (standing approval)' if giver else 'a standing approval'}."
