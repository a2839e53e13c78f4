"""What acting commands share: who acts, the user that is named or nobody (the machine itself); on what; waiting."""

import math
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import models

from agents.ask.naming import SHORTEST, rows_by_id
from agents.definitions.schema import Problem
from agents.enums import ApprovalStatus, QuestionStatus, QuoteCheck, Status, WaitingOn
from agents.models import Agent, AgentSession, Approval, Finding
from agents.policy.transitions import TERMINAL
from agents.text.clean import one_line
from agents.text.strict_yaml import MAX_BYTES
from audit.management.base import cut, not_empty

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


# --- agent.yaml files on disk: the ones that paths name, in order, and what stands in them ---


ENDINGS: Final = frozenset({".yaml", ".yml"})


def agent_paths(paths: Iterable[Path]) -> list[Path]:
    """Files as they are named; of a folder all its YAML files, by name."""
    found: list[Path] = []
    for path in paths:
        if not _is_folder(path):
            found.append(path)
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix in ENDINGS and one.is_file())
        if not inside:
            raise CommandError(f"There is no YAML file in {path}.")
        found += inside
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no file can have; reading it says why
        return False


def agent_text(path: Path) -> str | Problem:
    """What the file says, or why it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            return Problem(str(path), 0, "", "a file: this is none")
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Problem(str(path), 0, "", f"at most {MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        return Problem(cut(str(path)), 0, "", f"a file that can be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Problem(str(path), 0, "", f"UTF-8 text: byte {error.start} makes no character")


def counted(found: Sized, one: str) -> str:
    """How many there are: 1 file, 2 files."""
    return f"{len(found)} {one}{'' if len(found) == 1 else 's'}"


# --- What the commands that decide and answer share: who does, and on what exactly ---


def add_decision(parser: ArgumentParser) -> None:
    parser.add_argument("approval", help="The public id of the approval, or enough of its beginning.")
    parser.add_argument("--user", required=True, help="Who decides; needs the permission agents.resolve_approval.")
    parser.add_argument("--digest", type=not_empty, help="The digest of the call that was looked at.")
    parser.add_argument("--note", default="", help="Kept with the decision; the run is told a denial's note.")
    parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")


def named_approval(said: str) -> Approval:
    return row_named(Approval.objects.select_related("session", "session__owner"), said, "approval", "approvals")


def shown_approval(approval: Approval) -> dict[str, Any]:
    return {
        "approval": str(approval.public_id),
        "status": approval.status,
        "action": approval.action,
        "version": approval.version,
        "level": approval.level,
        "risk": approval.risk_level,
        "phase": approval.phase,
        "arguments": approval.arguments,
        "simulation": approval.simulation,
        "session": str(approval.session.public_id),
        "owner": approval.session.owner.get_username(),
        "digest": approval.digest,
        "expires_at": approval.expires_at.isoformat(),
    }


# --- Which agent a command means: one lookup for all of them ---


SHOWN = 10
AGENT_HELP = "The agent's name, its public id, or enough of the beginning of that."


def agent_named(said: str, *, owner: User | None = None) -> Agent:
    """The one agent of that public id, or of that name, or whose public id begins so; the owner's, if one is given.

    A whole public id goes first: nobody takes another agent's place by naming his own like it.
    """
    rows = Agent.objects.select_related("owner").order_by("pk")
    if owner is not None:
        rows = rows.filter(owner=owner)
    found = list(rows.filter(public_id=said)) if _is_whole_id(said) else []
    found = found or list(rows.filter(name=said)) or rows_by_id(rows, said.lower())
    if not found:
        raise CommandError(f"{owner} has no agent {said!r}." if owner else f"There is no agent {said!r}.")
    if len(found) > 1:
        listed = "".join(f"\n  {agent.public_id}  {agent.name}  of {agent.owner}" for agent in found[:SHOWN])
        raise CommandError(f"Several agents are meant by {said!r}: say the public id of one.{listed}")
    return found[0]


def _is_whole_id(said: str) -> bool:
    try:
        UUID(said)
    except ValueError:
        return False
    return True
