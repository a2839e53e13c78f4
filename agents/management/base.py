"""Shared parts of the commands: common options, the rows that arguments name, and printed runs and files."""

import json
import math
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import models

from agents.ask.naming import MIN_ID_CHARS, rows_by_id
from agents.definitions.schema import Problem
from agents.enums import ApprovalStatus, QuestionStatus, QuoteCheck, Status, WaitingOn
from agents.exceptions import LqopsError
from agents.models import Agent, AgentSession, Approval, Finding
from agents.policy.transitions import TERMINAL
from agents.text.clean import one_line
from agents.text.strict_yaml import MAX_BYTES
from audit.management.base import ActingCommand, cut, not_empty

Row = TypeVar("Row", bound=models.Model)
POLL_SECONDS = 0.2
QUOTE_CHARS = 200
AGENTS_LISTED = 10
YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})
AGENT_HELP = "The agent's name, its public id, or the beginning of its public id."


class JsonCommand(ActingCommand):
    """A command with `--json`. Refusals of services become errors of the command."""

    json_help = "Print one JSON object instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help=self.json_help)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.run(options)
        except LqopsError as error:
            raise CommandError(str(error)) from error

    def run(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    def print(self, facts: Any, text: str, options: dict[str, Any]) -> None:
        """The facts as JSON if asked for, otherwise the text."""
        self.stdout.write(json.dumps(facts) if options["json"] else text)


# --- Users ---


def add_acting_user(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--user", help="Username to record in the audit log. Default: the command line, without a user."
    )


def acting_user(username: str | None) -> User | None:
    return None if username is None else named_user(username)


def named_user(username: str, *, active: bool = True) -> User:
    users = User.objects.filter(is_active=True) if active else User.objects.all()
    user = users.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no {'active ' if active else ''}user {username!r}.")
    return user


# --- Rows that an argument names ---


def row_named(rows: models.QuerySet[Row], text: str, kind: str, listed_by: str = "") -> Row:
    """The one row whose public id begins with the text."""
    found = rows_by_id(rows, text.lower())
    if len(found) > 1:
        raise CommandError(f"More than one {kind} begins with {text}. Give more of the id.")
    if not found:
        least = f" (give at least {MIN_ID_CHARS} characters of its id)" if len(text) < MIN_ID_CHARS else ""
        listed = f" `manage.py {listed_by}` lists the pending ones." if listed_by else ""
        raise CommandError(f"There is no {kind} {text!r}{least}.{listed}")
    return found[0]


def agent_named(text: str, *, owner: User | None = None) -> Agent:
    """The one agent with this public id or name, or whose public id begins with the text.

    A whole public id wins: nobody can take another agent's place by using its id as a name.
    """
    rows = Agent.objects.select_related("owner").order_by("pk")
    if owner is not None:
        rows = rows.filter(owner=owner)
    found = list(rows.filter(public_id=text)) if _is_uuid(text) else []
    found = found or list(rows.filter(name=text)) or rows_by_id(rows, text.lower())
    if not found:
        raise CommandError(f"{owner} has no agent {text!r}." if owner else f"There is no agent {text!r}.")
    if len(found) > 1:
        listed = "".join(f"\n  {agent.public_id}  {agent.name}  of {agent.owner}" for agent in found[:AGENTS_LISTED])
        raise CommandError(f"Several agents match {text!r}. Give the public id of one.{listed}")
    return found[0]


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


# --- Decisions on approvals ---


class DecisionCommand(JsonCommand):
    """Decides on one approval: parse, look it up, decide, print."""

    verb = ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("approval", help="The public id of the approval, or its beginning.")
        parser.add_argument("--user", required=True, help="Who decides; needs the permission agents.resolve_approval.")
        parser.add_argument("--digest", type=not_empty, help="The digest of the call that was reviewed.")
        parser.add_argument("--note", default="", help="Stored with the decision. After a denial the run gets it.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        rows = Approval.objects.select_related("session", "session__owner")
        approval = row_named(rows, options["approval"], "approval", "approvals")
        decided = self.decide(approval, by=named_user(options["user"]), options=options)
        if decided is not None:
            facts = {"approval": str(decided.public_id), "status": decided.status}
            self.print(facts, f"{self.verb}: {decided.action}.", options)

    def decide(self, approval: Approval, *, by: User, options: dict[str, Any]) -> Approval | None:
        """The decided approval; None if nothing was decided."""
        raise NotImplementedError


def approval_facts(approval: Approval) -> dict[str, Any]:
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


# --- Waiting for a run, and its findings ---


def wait_time(text: str) -> float:
    """Parse a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def await_end(session: AgentSession, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while session.status not in TERMINAL and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        session.refresh_from_db()


def ended_as(session: AgentSession) -> str:
    return f"{session.status} ({session.terminal_reason})" if session.terminal_reason else session.status


def incomplete(session: AgentSession) -> str:
    """Why a run did not complete and, if it is waiting for a person, what that person can do."""
    return f"did not complete: {_waiting_for(session) or f'{ended_as(session)}.'}"


def _waiting_for(session: AgentSession) -> str:
    if session.status != Status.WAITING:
        return ""
    approval = session.approvals.filter(status=ApprovalStatus.PENDING).order_by("created_at", "pk").first()
    if approval is not None:
        return (
            f"it is waiting for an approval. Review the call with: manage.py approve {approval.public_id} --user NAME"
        )
    question = session.questions.filter(status=QuestionStatus.PENDING).order_by("asked_at", "pk").first()
    if question is not None:
        return f'it is waiting for an answer: {question.text}\nmanage.py answer {question.public_id} "…" --user NAME'
    if session.waiting_on == WaitingOn.OPERATOR:
        return "a call has an unknown outcome. Resolve it on the run's page."
    return ""


def findings_text(session: AgentSession) -> str:
    """The findings, each with its document and its verified quote."""
    return "\n\n".join(map(_finding_text, session.findings.select_related("document")))


def _finding_text(finding: Finding) -> str:
    about = f" ({finding.document.name})" if finding.document else ""
    quote = f"“{one_line(finding.quote, QUOTE_CHARS)}”" if finding.quote_check == QuoteCheck.VERIFIED else ""
    return "\n".join(filter(None, [f"{finding.severity}: {finding.title}{about}", finding.content.strip(), quote]))


def findings_facts(session: AgentSession) -> list[dict[str, Any]]:
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


# --- YAML files ---


def agent_paths(paths: Iterable[Path]) -> list[Path]:
    """Files as named; for a folder, all its YAML files by name."""
    found: list[Path] = []
    for path in paths:
        if not _is_folder(path):
            found.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix in YAML_SUFFIXES and file.is_file())
        if not inside:
            raise CommandError(f"There is no YAML file in {path}.")
        found += inside
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # an impossible file name; reading it gives the error
        return False


def agent_text(path: Path) -> str | Problem:
    """The content of the file, or why it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            return Problem(str(path), 0, "", "a file: this is none")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Problem(str(path), 0, "", f"at most {MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        return Problem(cut(str(path)), 0, "", f"a file that can be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Problem(str(path), 0, "", f"UTF-8 text: byte {error.start} makes no character")


def counted(items: Sized, noun: str) -> str:
    """The number of items: 1 file, 2 files."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
