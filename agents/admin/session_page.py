"""The page of one session: how it stands, what happened, what it found, what it cost, and what went into it."""

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest

from agents.admin.looks import STATUS_LOOKS
from agents.admin.shown import Bar
from agents.enums import ApprovalStatus, Outcome
from agents.models import AgentSession, Approval, Document, Playbook, PromptSkill, ToolCall
from agents.selectors.purposes import purposes
from agents.selectors.timeline import timeline
from agents.transitions import TERMINAL
from audit.receipts import ENDINGS

SHOWN_FINDINGS: Final = 100
SHOWN_CALLS: Final = 200
REFRESH_SECONDS: Final = 4
LOOK_LASTS: Final = timedelta(minutes=30)
SIGNER: Final = TimestampSigner(salt="lqops.session-look")


def look_token(session: AgentSession, by: User) -> str:
    """Shows that this person's look at this session is on record; a page that refreshes itself is the same look."""
    return SIGNER.sign(f"{session.pk}:{by.pk}")


def is_same_look(request: HttpRequest, session: AgentSession, by: User) -> bool:
    try:
        return SIGNER.unsign(request.GET.get("look", ""), max_age=LOOK_LASTS) == f"{session.pk}:{by.pk}"
    except BadSignature:
        return False


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
        "bar": Bar.of(session.cost_total_usd + session.cost_reserved_usd, session.max_cost_usd),
        "line": timeline(session),
        "findings": list(findings[:SHOWN_FINDINGS]),
        "calls": list(calls[:SHOWN_CALLS]),
        "pending": list(approvals.order_by("created_at")),
        "unknown": list(calls.filter(outcome=Outcome.UNKNOWN, resolved_at__isnull=True)),
        "inputs": _inputs(session),
        "restarts": list(session.restarts.order_by("pk")[:10]),
        "artifacts": list(session.artifacts.defer("text").filter(deleted_at__isnull=True)[:20]),
        "ending": ENDINGS.get(session.terminal_reason or "", ""),
        "has_receipt": session.started_at is not None or over,
        "every": None if over else REFRESH_SECONDS,
        "token": look_token(session, by),
    }


def _inputs(session: AgentSession) -> dict[str, Any]:
    """What the run read, by the ids that it noted; a row that is gone is shown by its id."""
    noted = session.metadata.get("inputs") or {}
    given = session.params
    playbook_id = noted.get("playbook_id") or given.get("playbook")
    rows = {
        "playbook": _first(Playbook, public_id=playbook_id),
        "skill": _first(PromptSkill, name=given.get("skill")),
        "document": _first(Document.objects.defer("text"), public_id=given.get("document")),
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
