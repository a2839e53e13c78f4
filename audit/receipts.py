"""A receipt: what one session did, what it cost and how it ended, built from the rows of its chain alone.

Works at any time: a running session has a receipt without an end. Also owns the labels and sentences for the values of
audit events. Checks no hashes (audit/verify.py does) and sees no content, since the audit log holds none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from audit.kinds import KINDS, SESSION_PREFIX, TERMINAL_KINDS, TOOL_CALL, USER, halt_reasons, kept_receipt, sentence
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.rows import GENESIS, AsStored, StoredRow, digest
from audit.seals import archived

STARTED: Final = f"{SESSION_PREFIX}started"
PHASE: Final = f"{SESSION_PREFIX}phase_transition"
RESOLVED: Final = "tool_call.resolved"
CAP_REACHED: Final = f"{SESSION_PREFIX}cost_cap_reached"
HALT_REQUESTED: Final = f"{SESSION_PREFIX}halt_requested"
OPEN: Final = "started"
HALTS: Final = frozenset({HALT_REQUESTED, f"{SESSION_PREFIX}halted", CAP_REACHED})
WAITING: Final = "approval_pending"
HANDED_ON: Final = "run.handed_on"
HANDED_BACK: Final = "run.handed_back"
CHANGED_REASON: Final = "(was changed after it was given)"
SCALARS: Final = tuple(sorted(KINDS[STARTED].details))
TOTALS: Final = ("charged_usd", "actual_usd", "tokens", "calls")
SHORT_ID: Final = 8
SHOWN_LENT: Final = 3
LARGEST_USD: Final = Decimal(10) ** 12
_NAMED: Final = ("tool", "name", "model", "phase", "brake")
_COPIED: Final = (*_NAMED, "detail", "budget", "projected_usd", "cap_usd", "approval_id")


class UnknownChain(LookupError):
    """No session has a chain of this name."""


def build_receipt(chain: str) -> dict[str, Any]:
    """Build the receipt of a session by its public id; raises UnknownChain, or UnreadableRow."""
    events = [row.converted() for row in _rows_of(chain)]
    if not events and (kept := _archived_receipt(chain)) is not None:
        return kept
    if not events or chain == SYSTEM_CHAIN:
        raise UnknownChain(f"{chain!r} is not the id of a recorded session.")
    return {"session_id": chain, **fold(events, _halt_reasons(events))}


def _rows_of(chain: str) -> list[StoredRow]:
    """Return the rows of one chain by one statement: `stream` is for whole logs, and takes four."""
    columns = [AsStored(name) if name in {"at", "details"} else name for name in StoredRow._fields]
    rows = AuditEvent.objects.filter(chain=chain).order_by("seq").values_list(*columns)
    return [StoredRow._make(row) for row in rows]


def _archived_receipt(chain: str) -> dict[str, Any] | None:
    """Return the short receipt that an archived run has left, with where its events are.

    `matches`: it ends with the row with which the sealed chain ends.
    """
    found = archived(chain)
    kept = None if found is None else kept_receipt(chain)
    if found is None or kept is None:
        return None
    where = {**asdict(found), "at": found.at.isoformat(), "matches": kept.get("head_hash") == found.last_hash}
    return {**kept, "session_id": chain, "archived": where}


def _halt_reasons(events: Iterable[StoredRow]) -> dict[int, str]:
    """Return the reason of each halt by the number of its first row. The row has its digest: a changed one is told."""
    found: dict[int, StoredRow] = {}
    for event in events:
        if event.kind in HALTS and event.details.get("reason_digest"):
            found.setdefault(event.details["halt_id"], event)
    texts = halt_reasons(list(found)) if found else {}
    return {
        event.seq: texts[pk] if digest(texts.get(pk)) == event.details["reason_digest"] else CHANGED_REASON
        for pk, event in found.items()
    }


def fold(events: Iterable[StoredRow], reasons: Mapping[int, str] = MappingProxyType({})) -> dict[str, Any]:
    """Turn converted rows, in their order, into a receipt; pure. `reasons` are those of halts, by row."""
    rows = list(events)
    start = next((event for event in reversed(rows) if event.kind == STARTED), None)
    end = next((event for event in rows if event.kind in TERMINAL_KINDS), None)
    phases = [event for event in rows if event.kind == PHASE]
    halts = [event for event in rows if event.kind in HALTS]
    approvals = [event for event in rows if event.kind.startswith("approval.")]
    listed = {STARTED, PHASE, TOOL_CALL, *HALTS, *TERMINAL_KINDS, *(event.kind for event in approvals)}
    others = [event for event in rows if event.kind not in listed]
    finals = [event for event in rows if event.kind == TOOL_CALL and event.details.get("outcome") != OPEN]
    calls = _calls(rows, [halt.seq for halt in halts])
    sentences = ApprovalSentences()
    for event in approvals:
        sentences.take(event.kind, event.actor, event.details)

    def summary(event: StoredRow) -> dict[str, Any]:
        text = sentences.sentence(event.kind, event.details)
        text = f"{text} Reason: {reasons[event.seq]}" if reasons.get(event.seq) else text
        return {**_place(event), "kind": event.kind, "actor": event.actor, "sentence": text}

    def detailed(event: StoredRow) -> dict[str, Any]:
        return {**summary(event), "details": dict(event.details)}

    def what(event: StoredRow) -> str:
        return str(label_of("action", sentences.action(event.details) or "call"))

    return {
        **{name: start.details.get(name) if start else None for name in SCALARS},
        "started_at": start.at.isoformat() if start else None,
        **_ending(end),
        "result": end.details.get("result") if end else None,
        "totals": {
            "charged_usd": _total(finals, "cost_usd"),
            "actual_usd": _total(finals, "actual_usd"),
            "calls": len(calls),
        },
        "loans": _loans(rows),
        "recorded_totals": {name: end.details.get(name) for name in TOTALS} if end else None,
        "phase_transitions": [
            {**_place(event), **{name: event.details.get(name) for name in ("from_phase", "to_phase")}}
            for event in phases
        ],
        "tool_calls": calls,
        "approvals": [{**detailed(event), "what": what(event)} for event in approvals],
        "refused_calls": [call for call in calls if call["refused"]] + _refused_at_end(end),
        "halts": [{**detailed(event), "reason": reasons.get(event.seq)} for event in halts],
        "other_events": [detailed(event) for event in others],
        "events": [summary(event) for event in rows],
        "notes": [f"Row {event.seq} has an unreadable amount." for event in finals if not _has_readable_amounts(event)],
        "rows": len(rows),
        "head_hash": rows[-1].hash if rows else GENESIS,
    }


def _place(event: StoredRow) -> dict[str, Any]:
    return {"seq": event.seq, "at": event.at.isoformat()}


def _loans(rows: list[StoredRow]) -> dict[str, Any]:
    """Return the amounts of the cap that are lent to started runs, by id, and the amount that such runs have spent."""
    lent: dict[str, Decimal] = {}
    spent = Decimal(0)
    for event in rows:
        child = str(event.details.get("child_id"))
        if event.kind == HANDED_ON:
            lent[child] = _usd(event.details.get("cap_usd")) or Decimal(0)
        elif event.kind == HANDED_BACK:  # also of a run that a started run has started, which was over by then
            spent += lent.pop(child, Decimal(0)) - (_usd(event.details.get("rest_usd")) or Decimal(0))
    return {
        "lent": {child: f"{amount:.6f}" for child, amount in lent.items()},
        "spent_usd": f"{max(spent, Decimal(0)):.6f}",
    }


def _calls(rows: list[StoredRow], halts: list[int]) -> list[dict[str, Any]]:
    """Return the calls in the order of their first row. A row without a call id is a call of its own."""
    by_call: dict[Any, list[StoredRow]] = {}
    for event in rows:
        if event.kind in {TOOL_CALL, RESOLVED}:
            by_call.setdefault(event.details.get("call_id") or event.seq, []).append(event)
    return [_call(events, halts) for events in by_call.values() if events[0].kind == TOOL_CALL]


def _call(events: list[StoredRow], halts: list[int]) -> dict[str, Any]:
    """Describe one call by its rows: `started` and the final one, or a refusal alone; then decisions of people."""
    rows = [event for event in events if event.kind == TOOL_CALL]
    finals = [event for event in rows if event.details.get("outcome") != OPEN]
    started = next((event for event in reversed(rows) if event.details.get("outcome") == OPEN), None)
    ended = rows[-1] if rows[-1] in finals else None
    entry: dict[str, Any] = dict.fromkeys(("call_id", *_COPIED))
    for event in rows:
        entry |= {name: event.details[name] for name in entry if event.details.get(name) is not None}
    outcome = rows[-1].details.get("outcome")
    entry |= {
        "started_at": started.at.isoformat() if started else None,
        "ended_at": ended.at.isoformat() if ended else None,
        "outcome": outcome,
        "what": call_label(entry),
        "cost_usd": _total(finals, "cost_usd") if ended else None,
        "actual_usd": _total(finals, "actual_usd") if ended else None,
        "refused": started is None and outcome != WAITING,
        "in_flight_at_halt": started is not None
        and any(started.seq < halt and (ended is None or ended.seq > halt) for halt in halts),
    }
    for event in events:
        if event.kind == RESOLVED:
            entry |= {"resolution": event.details.get("decision"), "resolved_by": event.actor}
    return entry


def _refused_at_end(end: StoredRow | None) -> list[dict[str, Any]]:
    """Return the call at which a brake ended the run, which has no row of its own."""
    if end is None or not end.details.get("brake"):
        return []
    refused = {"outcome": "denied", "detail": end.details.get("reason"), "ended_at": end.at.isoformat()}
    named = {name: end.details.get(name) for name in _NAMED}
    return [{**named, "what": call_label(end.details), **refused}]


def _ending(end: StoredRow | None) -> dict[str, Any]:
    if end is None:
        return {"status": "running", "terminal_reason": None, "ended_at": None}
    status, default = end.kind.removeprefix(SESSION_PREFIX), None
    if end.kind == CAP_REACHED:
        status, default = "halted", status
    return {
        "status": status,
        "terminal_reason": end.details.get("reason") or default,
        "ended_at": end.at.isoformat(),
    }


def _usd(value: object) -> Decimal | None:
    """Read an amount to the micro-dollar: 0 for no amount, None for one that cannot be read."""
    if value is None:
        return Decimal(0)
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    readable = amount.is_finite() and abs(amount) < LARGEST_USD and amount == round(amount, 6)
    return amount if readable else None


def _total(events: list[StoredRow], name: str) -> str:
    return f"{sum((_usd(event.details.get(name)) or Decimal(0) for event in events), Decimal(0)):.6f}"


def _has_readable_amounts(event: StoredRow) -> bool:
    return None not in {_usd(event.details.get("cost_usd")), _usd(event.details.get("actual_usd"))}


# --- Labels of values, and sentences for events ---
#
# A value without a label is shown as it is, so that nothing is hidden.

_TOOLS: Final = {
    "retrieve_chunks": "document search",
    "run_skill": "model call",
    "run_playbook": "model call",
    "propose_memory": "memory proposal",
    "propose_precedent": "precedent proposal",
    "emit_finding": "finding",
    "emit_artifact": "draft",
    "notify": "notification",
}
_PHASES: Final = {"ethics_review": "ethics review"}
_REASONS: Final = {
    "agent_shutdown": "shut down by the agent",
    "external_halt": "requested by a person",
    "timed_out": "time limit reached",
    "max_steps": "step limit reached",
    "budget_exceeded": "no budget left for the next model call",
    "cost_cap_reached": "cost cap reached",
    "idle_timeout": "idle for too long",
    "stuck_loop": "repeated itself without progress",
    "provider_error": "no usable answer from the model provider",
    "tool_not_granted": "called a tool that was not granted",
    "worker_error": "internal error",
    "worker_lost": "worker lost",
    "opted_out": "the owner does not allow unattended runs",
    "unpriced_model": "model without a declared price",
}
_FAILURES: Final = ("stuck_loop", "provider_error", "tool_not_granted", "worker_error", "worker_lost")
ENDINGS: Final = {
    **{reason: f"{'Failed' if reason in _FAILURES else 'Halted'}: {label}." for reason, label in _REASONS.items()},
    "completed": "Completed.",
    "agent_shutdown": "Completed: shut down by the agent.",
    "external_halt": "Halted by a person.",
    "cost_cap_reached": "Stopped at its cost cap. Run again with a higher cap.",
    "refused": "Refused.",
}
# Of runs that completed; a run that something stopped says what.
RESULT_ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "findings": "Completed, with findings.",
        "empty": "Completed: there was nothing to check.",
        "partial": "Partly done: not everything was checked.",
        "failed": "Failed: nothing was checked.",
    }
)
LABELS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "mode": {"phased": "five-phase run"},
        "trigger_kind": {"watch": "document watch", "manual": "manual run"},
        "tool": _TOOLS,
        "action": _TOOLS,
        "phase": _PHASES,
        "to_phase": _PHASES,
        "outcome": {
            "success": "succeeded",
            "tool_not_granted": "refused, not granted in this phase",
            "gateway_error": "failed, no usable answer from the model",
            "storage_error": "failed, could not be stored",
            "rate_limited": "refused, rate limit reached",
            "denied": "refused",
            "approval_pending": "waiting for approval",
            "worker_lost": "lost with its worker",
            "error": "failed",
            "timeout": "timed out",
            "unknown": "outcome unknown",
        },
        "detail": {
            **_REASONS,
            "rejected": "denied by a person",
            "expired": "no decision in time",
            "cancelled": "approval request cancelled",
            "budget_busy": "budget reserved by other calls",
            "budget_spent": "shared budget exhausted",
            "dimension:cost": "cost budget of the run exhausted",
            "cap_lent": "the rest of the cap is lent to started runs; the run waits for it",
            "dimension:tokens": "token budget of the run exhausted",
            "halted_before_dispatch": "run halted before the call was sent",
            "retry_later": "the model asked to retry later",
            "too_dear": "too dear for what is left; its fallbacks are asked",
            "key_refused": "the model server refused the key",
        },
        "reason": {
            **_REASONS,
            "unanswered": "the model could not be asked, or gave no answer",
            "unread": "what it was to read could not be fetched",
            "cut_off": "the answer could not be read",
            "no_target": "nothing to check against",
            "partial": "a part of it was not checked",
        },
        "brake": {
            "R4": "R4 (cost)",
            "R5": "R5 (halt)",
            "R6": "R6 (grant)",
            "rate_limit": "the rate limit",
            "arguments": "the check of arguments",
            "skill": "the settings of skills",
        },
        "decision": {"did_not_happen": "did not happen"},
        "cause": {"takeover": "taken over from another", "queue": "next in the queue"},
    }
)


def usd(amount: Decimal | None, *, empty: str = "—") -> str:
    """Format an amount with two to six places."""
    if amount is None:
        return empty
    text = f"{amount:.6f}".rstrip("0")
    whole, _, places = text.partition(".")
    return f"${whole}.{places.ljust(2, '0')}"


def lent_text(cap: Decimal, lent: Mapping[str, Decimal], spent: Decimal) -> str:
    """Say what of a cap is lent to started runs, named by their ids, and what such runs have spent of it."""
    named = ", ".join(run[:SHORT_ID] for run in list(lent)[:SHOWN_LENT])
    more = f" and {len(lent) - SHOWN_LENT} more" if len(lent) > SHOWN_LENT else ""
    runs = f"run{'s' if len(lent) > 1 else ''} {named}{more}"
    parts = [
        *([f"{usd(sum(lent.values(), Decimal(0)))} is lent to {runs}"] if lent else []),
        *([f"{usd(spent)} was spent by runs that it started"] if spent else []),
    ]
    return f"Cap {usd(cap)}{', of which ' if parts else ''}{' and '.join(parts)}."


def loans_sentence(receipt: Mapping[str, Any]) -> str:
    """Return the same for a receipt; empty if its run has lent nothing that did not come back whole."""
    loans, cap = receipt.get("loans") or {}, _usd(receipt.get("max_cost_usd"))
    lent = {run: _usd(amount) or Decimal(0) for run, amount in (loans.get("lent") or {}).items()}
    spent = _usd(loans.get("spent_usd")) or Decimal(0)
    return lent_text(cap, lent, spent) if cap and (lent or spent) else ""


def spent_text(receipt: Mapping[str, Any]) -> str:
    """Say what a run cost against its cap, and where the figure comes from."""
    approved, reported = (Decimal(str(receipt["totals"][name])) for name in ("charged_usd", "actual_usd"))
    cap = receipt["max_cost_usd"]
    against = "no cap" if cap is None else f"of {_amount(cap)}"
    source = f"the larger of {usd(approved)} approved and {usd(reported)} reported by providers"
    loans = loans_sentence(receipt)
    return f"{usd(max(approved, reported))} {against} ({source}){f'. {loans[:-1]}' if loans else ''}"


def label_of(name: str, value: Any) -> Any:
    """Return the label for the value of a detail, or the value itself."""
    return LABELS.get(name, {}).get(value, value) if isinstance(value, str) else value


def call_label(details: Mapping[str, Any]) -> str:
    """Name what was called: the skill or the model, where the row has one."""
    if details.get("model"):
        instead = f" instead of {details['instead_of']}" if details.get("instead_of") else ""
        return f"model call to {details['model']}{instead}"
    if details.get("name"):
        return f"skill {details['name']}"
    if details.get("tool") == "run_skill" and not details.get("budget"):
        return "skill or model call"
    return str(label_of("tool", details.get("tool")) or "call")


def event_sentence(kind: str, details: Mapping[str, Any]) -> str:
    """Return the sentence for an event, with labels in place of values."""
    labels = {name: label_of(name, value) for name, value in details.items()}
    if "tool" in details:
        labels["tool"] = call_label(details)
    if "action" in details:
        labels["approval_id"] = f"of {labels['action']}"
    text = sentence(kind, labels)
    if kind == TOOL_CALL and details.get("brake"):
        text = f"{text[:-1]}, by {labels['brake']}."
    return f"{text} Result: {details['result']}." if details.get("result") else text


class ApprovalSentences:
    """Sentences for approval events, with what earlier events said about the same approval.

    Only the first event names the call, and a call that a standing approval allows names no person.
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

    def sentence(self, kind: str, details: Mapping[str, Any]) -> str:
        """Return the event's sentence, with the call it is about."""
        action = self.action(details)
        text = event_sentence(kind, {"action": action, **details} if action else details)
        if kind != "approval.approved" or not details.get("standing_id"):
            return text
        giver = self._givers.get(details["standing_id"])
        return f"{text[:-1]}, by {f'{giver} (standing approval)' if giver else 'a standing approval'}."


# --- A receipt as text, for the page and for a terminal: outcome, trigger, and the whole ---
#
# Reads the receipt alone. Callers may pass usernames; without them the ids of the audit log are shown.


COMMAND: Final = "command"  # an unnamed person at a terminal
NAMES: Final[Mapping[str, str]] = MappingProxyType({COMMAND: "the command line"})
_NOT_APPROVED: Final = {"approval.rejected": "denied by {by}", "approval.expired": "no decision in time"}


def receipt_text(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """Return the receipt for a terminal."""
    calls, owner = receipt["totals"]["calls"], f"user:{receipt['owner_id']}"
    lines = [
        f"Run {receipt['session_id']}, for {names.get(owner, owner)}: {label_of('mode', receipt['mode'])}",
        f"Trigger: {started_by(receipt, names)}",
        f"Started {_moment(receipt['started_at'])}, ended {_moment(receipt['ended_at'])}",
        outcome_sentence(receipt, names),
        *([f"Result: {receipt['result']}"] if receipt.get("result") else []),
        f"Spent: {spent_text(receipt)}; {calls} call{'' if calls == 1 else 's'}",
        *receipt["notes"],
        "",
        *(
            f"{_moment(event['at'])}  {names.get(event['actor'], event['actor']):<12}  "
            f"{with_names(event['sentence'], names)}"
            for event in receipt["events"]
        ),
        "",
        f"{receipt['rows']} events, last hash {receipt['head_hash']}",
        *([f"Archived on {where['at']} in {where['file']}"] if (where := receipt.get("archived")) else []),
    ]
    return "\n".join(lines)


def started_by(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """Return the trigger and, for a manual run, who started it."""
    asked_by = receipt["asked_by"]
    person = f", by {names.get(asked_by, asked_by)}" if asked_by else ""
    return f"{label_of('trigger_kind', receipt['trigger_kind']) or 'unknown'}{person}"


def outcome_sentence(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """Return how the run ended: what was not approved, or what stopped it."""
    reason = receipt["terminal_reason"]
    if receipt["status"] == "running":
        return "Still running."
    if reason == "completed":
        return _completed(receipt, names)
    if reason == "external_halt":
        return _halted(receipt)
    if reason == "budget_exceeded":
        return _over_budget(receipt)
    if reason == "cost_cap_reached" and (cap := receipt.get("max_cost_usd")):
        return _at_cap(receipt, cap)
    return ENDINGS.get(reason, f"{receipt['status'].capitalize()}: {reason}.")


def _at_cap(receipt: Mapping[str, Any], cap: object) -> str:
    """Say whether the cap was spent, or is with runs that it started."""
    loans = loans_sentence(receipt)
    if not loans:
        return f"Stopped at its cost cap of {_amount(cap)}. Run again with a higher cap."
    advice = "Halt or finish what holds it" if (receipt.get("loans") or {}).get("lent") else "Run again"
    return f"Stopped: its next call did not fit into what it kept. {loans} {advice}, or give it a higher cap."


def _completed(receipt: Mapping[str, Any], names: Mapping[str, str]) -> str:
    text = RESULT_ENDINGS.get(receipt.get("result") or "", ENDINGS["completed"])
    missing = _not_approved(receipt, names)
    return f"{text[:-1]}, without: {'; '.join(missing)}." if missing else text


def _not_approved(receipt: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        f"{event['what']} ({_NOT_APPROVED[event['kind']].format(by=names.get(event['actor'], event['actor']))})"
        for event in receipt.get("approvals", ())
        if event["kind"] in _NOT_APPROVED
    ]


def _halted(receipt: Mapping[str, Any]) -> str:
    requests = [event for event in receipt.get("halts", ()) if event["kind"] == HALT_REQUESTED]
    if any(event["details"].get("scope") == "organisation" for event in requests):
        return "Halted with all other work."
    if any(event["actor"] == COMMAND for event in requests):
        return "Halted from the command line."
    return ENDINGS["external_halt"]


def _over_budget(receipt: Mapping[str, Any]) -> str:
    """Say what the next model call could have cost and what was left, where the receipt holds both."""
    refused = [call for call in receipt.get("tool_calls", ()) if call["refused"] and call.get("budget")]
    if not refused:
        return ENDINGS["budget_exceeded"]
    last = refused[-1]
    if last["detail"] == "dimension:tokens":
        return "Halted: token budget exhausted."
    if last.get("projected_usd") is None or last.get("cap_usd") is None:
        return ENDINGS["budget_exceeded"]
    name, _, period = last["budget"].partition("/")
    budget = f"the budget {name}" + (f" of this {period}" if period else "")
    return (
        f"Halted: the next model call could have brought {budget} to "
        f"{_amount(last['projected_usd'])}, above its cap of {_amount(last['cap_usd'])}."
    )


def with_names(sentence: str, names: Mapping[str, str]) -> str:
    """Replace the user ids in a sentence by usernames."""
    return USER.sub(lambda found: names.get(found[0], found[0]), sentence)


def _moment(text: str | None) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC" if text else "-"


def _amount(text: object) -> str:
    """Format an amount of the audit log; one that cannot be read is shown as it is."""
    try:
        return usd(Decimal(str(text)))
    except (InvalidOperation, ValueError):
        return str(text)
