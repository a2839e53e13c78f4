"""A receipt in sentences, for the page and for a terminal: how it ended, what set it off, and the whole as text.

Reads the receipt alone. Names of users are a courtesy of whoever shows it; without them the record's own ids are told.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from audit.receipt_words import worded
from audit.receipts import ENDINGS, HALT_REQUESTED

COMMAND: Final = "command"  # somebody at a terminal, who did not say who
NAMES: Final[Mapping[str, str]] = MappingProxyType({COMMAND: "the command line"})
_NOT_APPROVED: Final = {"approval.rejected": "denied by {by}", "approval.expired": "nobody answered in time"}


def outcome_sentence(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """How it ended: with what was not approved, and with what stopped it."""
    reason = receipt["terminal_reason"]
    if receipt["status"] == "running":
        return "It has not ended yet."
    if reason == "completed" and (missing := _not_approved(receipt, names)):
        return f"It finished its work, but for what was not approved: {'; '.join(missing)}."
    if reason == "external_halt":
        return _stopped(receipt)
    return ENDINGS.get(reason, f"It {receipt['status']}: {reason}.")


def started_by(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """What set it off and, for a run by hand, who asked for it."""
    asked_by = receipt["asked_by"]
    asked = f", asked for by {names.get(asked_by, asked_by)}" if asked_by else ""
    return f"{worded('trigger_kind', receipt['trigger_kind']) or 'unknown'}{asked}"


def receipt_text(receipt: Mapping[str, Any]) -> str:
    """The receipt for a terminal."""
    totals = receipt["totals"]
    lines = [
        f"Session {receipt['session_id']}, for user:{receipt['owner_id']}: {worded('mode', receipt['mode'])}",
        f"Started by {started_by(receipt)}",
        f"Started {receipt['started_at']}, ended {receipt['ended_at'] or '-'}",
        outcome_sentence(receipt),
        f"Charged {totals['charged_usd']} USD of at most {receipt['max_cost_usd']} USD; {totals['calls']} calls",
        f"{totals['actual_usd']} USD booked for the provider",
        *receipt["notes"],
        "",
        *(f"{event['at']}  {event['actor']:<12}  {event['sentence']}" for event in receipt["events"]),
        "",
        f"{receipt['rows']} rows, head {receipt['head_hash']}",
    ]
    return "\n".join(lines)


def _not_approved(receipt: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        f"{event['what']} ({_NOT_APPROVED[event['kind']].format(by=names.get(event['actor'], event['actor']))})"
        for event in receipt.get("approvals", ())
        if event["kind"] in _NOT_APPROVED
    ]


def _stopped(receipt: Mapping[str, Any]) -> str:
    asked = [event for event in receipt.get("halts", ()) if event["kind"] == HALT_REQUESTED]
    if any(event["details"].get("scope") == "organisation" for event in asked):
        return "It was stopped because all work was halted."
    if any(event["actor"] == COMMAND for event in asked):
        return "It was stopped from the command line."
    return ENDINGS["external_halt"]
