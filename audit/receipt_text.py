"""A receipt in sentences, for the page and for a terminal: how it ended, what set it off, and the whole as text.

Reads the receipt alone. Names of users are a courtesy of whoever shows it; without them the record's own ids are told.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from audit.kinds import USER
from audit.receipts import ENDINGS, HALT_REQUESTED, usd, worded

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
    if reason == "budget_exceeded":
        return _no_room(receipt)
    return ENDINGS.get(reason, f"It {receipt['status']}: {reason}.")


def started_by(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """What set it off and, for a run by hand, who asked for it."""
    asked_by = receipt["asked_by"]
    asked = f", asked for by {names.get(asked_by, asked_by)}" if asked_by else ""
    return f"{worded('trigger_kind', receipt['trigger_kind']) or 'unknown'}{asked}"


def receipt_text(receipt: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """The receipt for a terminal."""
    totals, calls, owner = receipt["totals"], receipt["totals"]["calls"], f"user:{receipt['owner_id']}"
    cap = receipt["max_cost_usd"]
    charged = f"Charged {_amount(totals['charged_usd'])}{f' of at most {_amount(cap)}' if cap else ', without a cap'}"
    lines = [
        f"Session {receipt['session_id']}, for {names.get(owner, owner)}: {worded('mode', receipt['mode'])}",
        f"Started by {started_by(receipt, names)}",
        f"Started {_moment(receipt['started_at'])}, ended {_moment(receipt['ended_at'])}",
        outcome_sentence(receipt, names),
        f"{charged}; {calls} call{'' if calls == 1 else 's'}",
        f"{_amount(totals['actual_usd'])} booked for providers",
        *receipt["notes"],
        "",
        *(
            f"{_moment(event['at'])}  {names.get(event['actor'], event['actor']):<12}  "
            f"{with_names(event['sentence'], names)}"
            for event in receipt["events"]
        ),
        "",
        f"{receipt['rows']} rows, head {receipt['head_hash']}",
    ]
    return "\n".join(lines)


def with_names(sentence: str, names: Mapping[str, str]) -> str:
    """A sentence with the names of the users whose ids stand in it."""
    return USER.sub(lambda found: names.get(found[0], found[0]), sentence)


def _moment(text: str | None) -> str:
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC" if text else "-"


def _amount(text: object) -> str:
    """An amount of the record as people write it; one that cannot be read as it stands."""
    try:
        return usd(Decimal(str(text)))
    except (InvalidOperation, ValueError):
        return str(text)


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


def _no_room(receipt: Mapping[str, Any]) -> str:
    """What the next question could have cost, and what was left for it, where the record holds both."""
    refused = [call for call in receipt.get("tool_calls", ()) if call["refused"] and call.get("budget")]
    if not refused:
        return ENDINGS["budget_exceeded"]
    last = refused[-1]
    if last["detail"] == "dimension:tokens":
        return "It was stopped because its tokens were used up."
    if last.get("projected_usd") is None or last.get("cap_usd") is None:
        return ENDINGS["budget_exceeded"]
    projected, cap = Decimal(last["projected_usd"]), Decimal(last["cap_usd"])
    if last["budget"] != "session":
        return (
            f"It was stopped because its next question could have brought the budget {last['budget']} to "
            f"{usd(projected)}, above its cap of {usd(cap)}."
        )
    spent = Decimal(receipt["totals"]["actual_usd"])
    return (
        f"It was stopped because its next question could have cost up to {usd(projected - spent)}; "
        f"{usd(max(cap - spent, Decimal(0)))} was left of its cap."
    )
