"""A receipt as text, for the page and for a terminal: outcome, trigger, and the whole.

Reads the receipt alone. Callers may pass usernames; without them the ids of the audit log are shown.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from audit.kinds import USER
from audit.receipts import ENDINGS, HALT_REQUESTED, label_of, usd

COMMAND: Final = "command"  # an unnamed person at a terminal
NAMES: Final[Mapping[str, str]] = MappingProxyType({COMMAND: "the command line"})
_NOT_APPROVED: Final = {"approval.rejected": "denied by {by}", "approval.expired": "no decision in time"}


def receipt_text(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """Return the receipt for a terminal."""
    totals, calls, owner = receipt["totals"], receipt["totals"]["calls"], f"user:{receipt['owner_id']}"
    cap = receipt["max_cost_usd"]
    cost = f"{_amount(totals['charged_usd'])} approved, {_amount(totals['actual_usd'])} reported by providers"
    lines = [
        f"Session {receipt['session_id']}, for {names.get(owner, owner)}: {label_of('mode', receipt['mode'])}",
        f"Trigger: {started_by(receipt, names)}",
        f"Started {_moment(receipt['started_at'])}, ended {_moment(receipt['ended_at'])}",
        outcome_sentence(receipt, names),
        f"Cost: {cost}; {f'cap {_amount(cap)}' if cap else 'no cap'}; {calls} call{'' if calls == 1 else 's'}",
        *receipt["notes"],
        "",
        *(
            f"{_moment(event['at'])}  {names.get(event['actor'], event['actor']):<12}  "
            f"{with_names(event['sentence'], names)}"
            for event in receipt["events"]
        ),
        "",
        f"{receipt['rows']} events, last hash {receipt['head_hash']}",
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
    if reason == "completed" and (missing := _not_approved(receipt, names)):
        return f"Completed, without: {'; '.join(missing)}."
    if reason == "external_halt":
        return _halted(receipt)
    if reason == "budget_exceeded":
        return _over_budget(receipt)
    if reason == "cost_cap_reached" and (cap := receipt.get("max_cost_usd")):
        return f"Stopped at its cost cap of {_amount(cap)}. Run again with a higher cap."
    return ENDINGS.get(reason, f"{receipt['status'].capitalize()}: {reason}.")


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
    projected, cap = Decimal(last["projected_usd"]), Decimal(last["cap_usd"])
    if last["budget"] != "session":
        return (
            f"Halted: the next model call could have brought the budget {last['budget']} to {usd(projected)}, "
            f"above its cap of {usd(cap)}."
        )
    spent = Decimal(receipt["totals"]["actual_usd"])
    left = max(cap - spent, Decimal(0))
    return (
        f"Halted: the next model call could have cost up to {usd(projected - spent)}; {usd(left)} of the cap was left."
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
