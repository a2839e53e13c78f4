"""The page of one session: how it stands, what happened, what it found, what it cost, and what went into it."""

from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from agents.admin.display import session_bar, words
from agents.admin.looking import look_token
from agents.admin.looks import STATUS_LOOKS
from agents.admin.questions import AnswerForm
from agents.enums import ApprovalStatus, HaltState, Mode, Outcome, Phase, Status, TerminalReason, ToolIntent
from agents.models import AgentSession, Approval, Playbook, PromptSkill, ToolCall
from agents.policy.transitions import TERMINAL
from agents.sessions.questions import may_answer
from agents.sessions.reads import purposes, read_by, timeline
from agents.sessions.transcripts import questions_open, transcript_shown
from audit.receipt_text import outcome_sentence
from audit.receipts import ENDINGS

SHOWN_FINDINGS: Final = 100
SHOWN_CALLS: Final = 200
SHOWN_REFUSED: Final = 3
REFRESH_SECONDS: Final = 4


def session_context(session: AgentSession, by: User) -> dict[str, Any]:
    """Everything that the page shows, by a fixed number of statements."""
    findings = session.findings.select_related("document").defer("document__text").order_by("created_at", "id")
    calls = ToolCall.objects.filter(session=session).order_by("pk")
    approvals = Approval.objects.filter(session=session, status=ApprovalStatus.PENDING)
    over = session.status in TERMINAL
    return {
        "session": session,
        "look": STATUS_LOOKS.get(session.status, ""),
        "over": over,
        "purpose": purposes([session])[session.pk],
        "bar": session_bar(session),
        "chips": chips(session),
        "line": timeline(session),
        "findings": list(findings[:SHOWN_FINDINGS]),
        "calls": list(calls[:SHOWN_CALLS]),
        "pending": list(approvals.order_by("created_at")),
        "questions": list(questions_open([session])),
        "may_answer": may_answer(session, by),
        "answer_form": AnswerForm(),
        "transcript": transcript_shown(session),
        "chat": session.params.get("chat") if session.mode == Mode.CHAT and session.owner_id == by.pk else None,
        "unknown": list(calls.filter(outcome=Outcome.UNKNOWN, resolved_at__isnull=True)),
        "inputs": _inputs(session),
        "restarts": list(session.restarts.order_by("pk")[:10]),
        "artifacts": list(session.artifacts.defer("text").filter(deleted_at__isnull=True)[:20]),
        "ending": ending(session) if over else "",
        "nothing": nothing_words(session),
        "has_receipt": session.started_at is not None or over,
        "every": None if over else REFRESH_SECONDS,
        "token": look_token(by, session),
    }


def chips(session: AgentSession) -> list[tuple[str, str]]:
    """How it stands, each thing once: the status, then why it ended, what it waits for, or that it is to stop."""
    standing = (STATUS_LOOKS.get(session.status, ""), str(session.status))
    if session.status in TERMINAL:
        reason = words(session.terminal_reason)
        return [standing] if reason == session.status else [standing, ("", reason)]
    if session.waiting_on:
        standing = ("warn", f"waits for {session.waiting_on}")
    halts = session.halt_state != HaltState.RUNNING
    return [standing, ("bad", words(session.halt_state))] if halts else [standing]


def ending(session: AgentSession) -> str:
    """Why it ended, and what it wanted to do and was not allowed to."""
    refused = session.approvals.filter(status__in=(ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED))
    said = ENDINGS.get(session.terminal_reason or "", "")
    if session.result and session.terminal_reason != TerminalReason.COMPLETED:
        said = outcome_sentence(session.result)
    for approval in refused.select_related("resolved_by").order_by("pk")[:SHOWN_REFUSED]:
        what = "Its notice" if approval.intent == ToolIntent.NOTIFY else f"Its call {approval.action}"
        if approval.status == ApprovalStatus.EXPIRED:
            said += f" {what} was not sent: nobody decided on it in time."
        else:
            said += f" {what} was denied by {approval.resolved_by or 'a person'}."
    return said.strip()


def nothing_words(session: AgentSession) -> str:
    """What is said where there are no findings."""
    if session.status not in TERMINAL:
        return "None so far."
    if session.status == Status.COMPLETED:
        return "This run found nothing."
    if session.current_phase in {Phase.INTAKE, Phase.ANALYSIS}:
        return "This run was stopped before it looked at anything."
    return "This run was stopped; it had found nothing until then."


def _inputs(session: AgentSession) -> dict[str, Any]:
    """What the run read, by the ids that it noted; a row that is gone is shown by its id."""
    noted = session.metadata.get("inputs") or {}
    given = session.params
    playbook_id = noted.get("playbook_id") or given.get("playbook")
    rows = {
        "playbook": _first(Playbook, public_id=playbook_id),
        "skill": _first(PromptSkill, name=given.get("skill")),
        "read": read_by(session),
    }
    return {**noted, **rows, "context_version": session.context_version, "playbook_ref": playbook_id, "given": given}


def _first(source: Any, **which: Any) -> Any:
    if not all(which.values()):
        return None
    rows = source if hasattr(source, "filter") else source._meta.default_manager
    try:
        return rows.filter(**which).first()
    except ValidationError:  # what was given is no id
        return None
