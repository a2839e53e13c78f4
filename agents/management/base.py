"""What acting commands share: who acts, the user that is named or nobody (the machine itself); on what; waiting."""

import math
import time
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import models

from agents.ask.naming import SHORTEST, rows_by_id
from agents.enums import ApprovalStatus, QuestionStatus, QuoteCheck, Status, WaitingOn
from agents.models import AgentSession, Finding
from agents.policy.transitions import TERMINAL
from agents.text.clean import one_line

Row = TypeVar("Row", bound=models.Model)
LOOK_EVERY_SECONDS = 0.2
QUOTE_CHARS = 200


def add_acting_user(parser: ArgumentParser) -> None:
    parser.add_argument("--user", help="The username that the record names as the one who did this.")


def acting_user(username: str | None) -> User | None:
    return None if username is None else named_user(username)


def named_user(username: str) -> User:
    user = get_user_model().objects.filter(username=username, is_active=True).first()
    if user is None:
        raise CommandError(f"There is no active user {username!r}.")
    return user


def row_named(rows: models.QuerySet[Row], said: str, what: str, listed_by: str = "") -> Row:
    """The one row whose public id begins so; where there is none, a command that lists them is named."""
    found = rows_by_id(rows, said.lower())
    if len(found) > 1:
        raise CommandError(f"More than one {what} begins with {said}: say more of its id.")
    if not found:
        least = f" (say {SHORTEST} characters of its id, or more)" if len(said) < SHORTEST else ""
        listed = f"; `manage.py {listed_by}` lists what waits" if listed_by else ""
        raise CommandError(f"There is no {what} {said!r}{least}{listed}.")
    return found[0]


def wait_time(text: str) -> float:
    """A time to wait, as an argument."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def await_end(session: AgentSession, seconds: float) -> None:
    over_at = time.monotonic() + seconds
    while session.status not in TERMINAL and time.monotonic() < over_at:
        time.sleep(LOOK_EVERY_SECONDS)
        session.refresh_from_db()


def ended_as(session: AgentSession) -> str:
    return f"{session.status} ({session.terminal_reason})" if session.terminal_reason else session.status


def incomplete(session: AgentSession) -> str:
    """Why a run that was waited for has not completed and, if it waits for a person, what that person can do."""
    return f"did not complete: {_awaited(session) or f'{ended_as(session)}.'}"


def _awaited(session: AgentSession) -> str:
    if session.status != Status.WAITING:
        return ""
    approval = session.approvals.filter(status=ApprovalStatus.PENDING).order_by("created_at", "pk").first()
    if approval is not None:
        return f"it waits for an approval. Look at the call with: manage.py approve {approval.public_id} --user NAME"
    question = session.questions.filter(status=QuestionStatus.PENDING).order_by("asked_at", "pk").first()
    if question is not None:
        return f'it waits for an answer: {question.text}\nmanage.py answer {question.public_id} "…" --user NAME'
    if session.waiting_on == WaitingOn.OPERATOR:
        return "it waits until a person says, on its page, what became of a call."
    return ""


def findings_told(session: AgentSession) -> str:
    """Each with the document that it is about and, if it stands there, what it quotes."""
    return "\n\n".join(map(_finding_told, session.findings.select_related("document")))


def _finding_told(finding: Finding) -> str:
    about = f" ({finding.document.name})" if finding.document else ""
    quote = f"“{one_line(finding.quote, QUOTE_CHARS)}”" if finding.quote_check == QuoteCheck.VERIFIED else ""
    return "\n".join(filter(None, [f"{finding.severity}: {finding.title}{about}", finding.content.strip(), quote]))


def findings_shown(session: AgentSession) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {
            "severity": finding.severity,
            "title": finding.title,
            "content": finding.content,
            "document": finding.document.name if finding.document else None,
            "document_id": str(finding.document.public_id) if finding.document else None,
            "quote": one_line(finding.quote, QUOTE_CHARS),
            "quote_check": finding.quote_check or None,
        }
        for finding in session.findings.select_related("document")
    ]
