"""A receipt: what one session did, cost and came to, folded from the rows of its chain and from nothing else.

It works at any time: a running session has a receipt without an end. It judges no link (audit/verify.py does) and sees
no content, since the record holds none.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from audit.kinds import KINDS, SESSION_PREFIX, TERMINAL_KINDS, sentence
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.rows import EPOCH, GENESIS, stream

# The words of a receipt: plain ones for the labels that the record holds, and how each row is told to a person.
#
# Tables and their reading, nothing else. A label that stands in no table is told as it is, so that nothing is hidden.


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


STARTED: Final = f"{SESSION_PREFIX}started"
PHASE: Final = f"{SESSION_PREFIX}phase_transition"
CALL: Final = f"{SESSION_PREFIX}tool_call"
CAP_REACHED: Final = f"{SESSION_PREFIX}cost_cap_reached"
HALT_REQUESTED: Final = f"{SESSION_PREFIX}halt_requested"
OPEN: Final = "started"
HALTS: Final = frozenset({HALT_REQUESTED, f"{SESSION_PREFIX}halted", CAP_REACHED})
WAITING: Final = "approval_pending"
SCALARS: Final = tuple(sorted(KINDS[STARTED].details))
TOTALS: Final = ("charged_usd", "actual_usd", "tokens", "calls")
LARGEST_USD: Final = Decimal(10) ** 12

ENDINGS: Final = {
    "completed": "It finished its work.",
    "agent_shutdown": "The agent decided that it was done and shut itself down.",
    "external_halt": "It was stopped by a person.",
    "timed_out": "It was stopped because it took longer than it may.",
    "max_steps": "It was stopped because it took more steps than it may.",
    "budget_exceeded": "It was stopped because a budget had no room for its next question.",
    "cost_cap_reached": "It was stopped because its next call would have gone over its cost cap.",
    "idle_timeout": "It was stopped because nothing happened for too long.",
    "stuck_loop": "It failed because it repeated itself without getting further.",
    "provider_error": "It failed because the model's provider did not answer properly.",
    "tool_not_granted": "It failed because it tried something that it was not allowed to do.",
    "worker_error": "It failed because of an error in the program that ran it.",
    "worker_lost": "It failed because the program that ran it was lost.",
    "opted_out": "It was stopped because its owner does not allow unattended runs.",
    "refused": "It was refused.",
    "unpriced_model": "It was stopped because its model has no declared price.",
}


class UnknownChain(LookupError):
    """No session has a chain of this name."""


class Event(NamedTuple):
    """The part of a row that a receipt reads."""

    seq: int
    kind: str
    at: datetime
    actor: str
    details: Mapping[str, Any]
    hash: str


def build_receipt(chain: str) -> dict[str, Any]:
    """The receipt of a session by its public id; raises UnknownChain, or UnreadableRow for a row beyond reading."""
    events = []
    for row in stream(AuditEvent.objects.filter(chain=chain)):
        columns = row.columns()
        at = EPOCH + timedelta(microseconds=columns["at"])
        events.append(Event(row.seq, row.kind, at, row.actor, columns["details"], row.hash))
    if not events or chain == SYSTEM_CHAIN:
        raise UnknownChain(f"{chain!r} is not the id of a recorded session.")
    return {"session_id": chain, **fold(events)}


def fold(events: Iterable[Event]) -> dict[str, Any]:
    """Events in their order become a receipt; pure."""
    folding = _Fold()
    for event in events:
        folding.add(event)
    return folding.receipt()


class _Fold:
    def __init__(self) -> None:
        self._scalars: dict[str, Any] = dict.fromkeys(SCALARS)
        self._started_at: str | None = None
        self._terminal: Event | None = None
        self._phases: list[dict[str, Any]] = []
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._halts: list[Event] = []
        self._approvals: list[Event] = []
        self._others: list[Event] = []
        self._events: list[Event] = []
        self._notes: list[str] = []
        self._about = Approvals()

    def add(self, event: Event) -> None:
        self._events.append(event)
        if event.kind in TERMINAL_KINDS and self._terminal is None:
            self._terminal = event
        if event.kind == STARTED:
            self._scalars |= {name: event.details.get(name) for name in SCALARS}
            self._started_at = event.at.isoformat()
        elif event.kind == PHASE:
            moved = {name: event.details.get(name) for name in ("from_phase", "to_phase")}
            self._phases.append({"seq": event.seq, "at": event.at.isoformat(), **moved})
        elif event.kind == CALL:
            self._add_call(event)
        elif event.kind in HALTS:
            self._halts.append(event)
        elif event.kind.startswith("approval."):
            self._approvals.append(event)
            self._about.take(event.kind, event.actor, event.details)
        elif event.kind not in TERMINAL_KINDS:
            self._add_other(event)

    def _add_call(self, event: Event) -> None:
        call_id = event.details.get("call_id")
        call = self._by_id.get(call_id) if call_id is not None else None
        if call is None:
            call = _Call(call_id)
            self._calls.append(call)
            if call_id is not None:
                self._by_id[call_id] = call
        self._notes += call.take(event)

    def _add_other(self, event: Event) -> None:
        call = self._by_id.get(event.details.get("call_id", ""))
        if event.kind == "tool_call.resolved" and call is not None:
            call.entry |= {"resolution": event.details.get("decision"), "resolved_by": event.actor}
        self._others.append(event)

    def receipt(self) -> dict[str, Any]:
        end = self._terminal
        halted_at = [event.seq for event in self._halts]
        return {
            **self._scalars,
            "status": _status(end),
            "terminal_reason": _reason(end),
            "started_at": self._started_at,
            "ended_at": end.at.isoformat() if end else None,
            "totals": {
                "charged_usd": _usd_text(sum((call.charged for call in self._calls), Decimal(0))),
                "actual_usd": _usd_text(sum((call.actual for call in self._calls), Decimal(0))),
                "calls": len(self._calls),
            },
            "recorded_totals": {name: end.details.get(name) for name in TOTALS} if end else None,
            "phase_transitions": self._phases,
            "tool_calls": [call.described(halted_at) for call in self._calls],
            "approvals": [{**self._described(event), "what": self._what(event)} for event in self._approvals],
            "halts": [self._described(event) for event in self._halts],
            "other_events": [self._described(event) for event in self._others],
            "events": [self._told(event) for event in self._events],
            "notes": self._notes,
            "rows": len(self._events),
            "head_hash": self._events[-1].hash if self._events else GENESIS,
        }

    def _described(self, event: Event) -> dict[str, Any]:
        return {**self._told(event), "details": dict(event.details)}

    def _told(self, event: Event) -> dict[str, Any]:
        return {
            "seq": event.seq,
            "at": event.at.isoformat(),
            "kind": event.kind,
            "actor": event.actor,
            "sentence": self._about.told(event.kind, event.details),
        }

    def _what(self, event: Event) -> str:
        return str(worded("action", self._about.action(event.details) or "a call"))


class _Call:
    """One call, gathered from its rows: `started` and the final one, or a refusal alone."""

    _COPIED = ("tool", "name", "phase", "model", "detail", "budget", "projected_usd", "cap_usd", "approval_id")

    def __init__(self, call_id: str | None) -> None:
        self.entry: dict[str, Any] = {"call_id": call_id, **dict.fromkeys(self._COPIED)}
        self.entry |= {"started_at": None, "ended_at": None, "outcome": None}
        self.charged = self.actual = Decimal(0)
        self._started_seq: int | None = None
        self._ended_seq: int | None = None

    def take(self, event: Event) -> list[str]:
        """Takes one row in and returns what a reader must be told about it."""
        known = {name: event.details[name] for name in self._COPIED if event.details.get(name) is not None}
        self.entry |= {**known, "outcome": event.details.get("outcome")}
        moment = event.at.isoformat()
        if self.entry["outcome"] == OPEN:
            self._started_seq, self._ended_seq = event.seq, None
            self.entry |= {"started_at": moment, "ended_at": None}
            return []
        self._ended_seq = event.seq
        self.entry["ended_at"] = moment
        charged, actual = _usd(event.details.get("cost_usd")), _usd(event.details.get("actual_usd"))
        self.charged += charged or 0
        self.actual += actual or 0
        return [] if None not in {charged, actual} else [f"Row {event.seq} holds an amount that cannot be read."]

    def described(self, halts: list[int]) -> dict[str, Any]:
        started, ended = self._started_seq, self._ended_seq
        running = started is not None and any(started < halt and (ended is None or ended > halt) for halt in halts)
        return {
            **self.entry,
            "what": called(self.entry),
            "cost_usd": None if ended is None else _usd_text(self.charged),
            "actual_usd": None if ended is None else _usd_text(self.actual),
            "refused": started is None and self.entry["outcome"] != WAITING,
            "in_flight_at_halt": running,
        }


def _status(end: Event | None) -> str:
    if end is None:
        return "running"
    return "halted" if end.kind == CAP_REACHED else end.kind.removeprefix(SESSION_PREFIX)


def _reason(end: Event | None) -> str | None:
    if end is None:
        return None
    reason: str | None = end.details.get("reason")
    return reason or (CAP_REACHED.removeprefix(SESSION_PREFIX) if end.kind == CAP_REACHED else None)


def _usd(value: object) -> Decimal | None:
    """An amount to the micro-dollar; nothing recorded is nothing charged, and None is what cannot be read."""
    if value is None:
        return Decimal(0)
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    readable = amount.is_finite() and abs(amount) < LARGEST_USD and amount == round(amount, 6)
    return amount if readable else None


def _usd_text(amount: Decimal) -> str:
    return f"{amount:.6f}"
