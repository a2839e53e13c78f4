"""Delivery: tells the owner, in counts and with the way to the receipt. Of content a notice holds the names alone.

A run that found nothing but its own notes is quiet: a baseline, nothing new, or documents without a fault make no
notice. A run that was to be looked at when it flags a concern waits here for a person; without a yes nothing is told.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from agents.engine.calls import call
from agents.enums import Outcome, Risk, ToolIntent, WaitingOn
from agents.ledger.trigger_health import UNANSWERED_RUN, UNREAD_RUN
from agents.people.notifications import receipt_path
from agents.sessions.reads import by_severity, counted, purposes, run_left
from agents.sessions.transcripts import session_note_empty, session_note_purpose
from agents.text.clean import one_line
from agents.types import End, Waiting
from agents.walk.analysis import reply_of
from agents.walk.calls import NotStored, Slice
from agents.walk.drafting import FAILED, UNREAD
from audit.redaction import contains_marker, redact

KEY: Final = "delivery:notify"
PURPOSE_CHARS: Final = 120
_FAULTS: Final = {FAILED: UNANSWERED_RUN, UNREAD: UNREAD_RUN}
_PROPOSED: Final = {  # one, many
    ToolIntent.PROPOSE_MEMORY: ("memory proposed", "memories proposed"),
    ToolIntent.PROPOSE_PRECEDENT: ("pattern noted", "patterns noted"),
    ToolIntent.EMIT_ARTIFACT: ("draft saved", "drafts saved"),
}


@dataclass(frozen=True)
class Tally:
    """What there is to tell, in numbers."""

    listed: Counter[str]  # every finding that the page of the session lists: the run's own notes and review too
    findings: Counter[str]
    proposed: Counter[str]
    warnings: int
    concerns: int
    fault: str  # why nothing was checked, if something was to be

    @property
    def is_empty(self) -> bool:
        return not (self.findings or self.proposed or self.concerns)

    @property
    def is_quiet(self) -> bool:
        return self.is_empty and not self.warnings


def delivery(work: Slice) -> End | None:
    tally = _tally(work)
    session_note_empty(work.session, empty=tally.is_empty, fault=tally.fault)
    if tally.is_quiet:
        return None
    risk = Risk.HIGH if tally.concerns and work.wants("review_flagged") else None
    told = call(work.session, ToolIntent.NOTIFY, KEY, _notice(work, tally), risk=risk)
    if told.outcome == Outcome.APPROVAL_PENDING:
        return Waiting(WaitingOn.APPROVAL)
    if told.outcome not in {Outcome.SUCCESS, Outcome.DENIED}:
        raise NotStored(f"The notice could not be written ({told.outcome}): {told.error}")
    return None


def _tally(work: Slice) -> Tally:
    left = run_left(work.session)
    listed = [one for one in left if one.intent == ToolIntent.EMIT_FINDING]
    said = reply_of(work).analysis
    return Tally(
        listed=by_severity(one.severity for one in listed),
        findings=by_severity(one.severity for one in listed if one.key.startswith("finding:")),
        proposed=Counter(one.intent for one in left if one.intent in _PROPOSED),
        warnings=sum(one.key.startswith("note:") and one.severity == "warn" for one in left),
        concerns=len(said.concerns) if said else 0,
        fault=next((_FAULTS[one.key] for one in left if one.key in _FAULTS), ""),
    )


def _notice(work: Slice, tally: Tally) -> dict[str, Any]:
    total = tally.listed.total()
    came_to = "analysis failed" if tally.fault else f"{total} finding{'' if total == 1 else 's'}"
    lines = [f"Findings: {counted(tally.listed)}."]
    lines += [f"{count} {_PROPOSED[ToolIntent(intent)][count != 1]}." for intent, count in tally.proposed.items()]
    lines += [f"Privilege or scope concerns: {tally.concerns}."] if tally.concerns else []
    lines += [f"Of the findings, warnings about the run itself: {tally.warnings}."] if tally.warnings else []
    lines += [f"Receipt: {receipt_path(work.session)}"]
    return {"title": _title(work, f"Run completed: {came_to}"), "body": "\n".join(lines)}


def _title(work: Slice, said: str) -> str:
    """With what the run was for, by name, so that one notice can be told from another."""
    purpose = one_line(purposes([work.session])[work.session.pk], PURPOSE_CHARS)
    title = f"{said}, {session_note_purpose(work.session, purpose)}"
    return said if contains_marker(redact(title)) else title  # a call that holds a masked secret would be refused
