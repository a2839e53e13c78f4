"""Shared parts of the commands: common options, the rows that arguments name, and printed runs and files."""

import errno
import json
import math
import re
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any, Final, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models

from agents.ask.naming import MIN_ID_CHARS, rows_by_id
from agents.conf import clock
from agents.database_clock import shared
from agents.definitions.schema import DefinitionError, Problem
from agents.enums import ApprovalStatus, QuestionStatus, QuoteCheck, RunResult, Status, WaitingOn
from agents.exceptions import KeysDiffer, LqopsError, VersionsDiffer
from agents.ledger.loans import runs_wait_of
from agents.ledger.outages import model_wait_of
from agents.models import AgentSession, Approval, Finding
from agents.policy.transitions import TERMINAL
from agents.sessions.faults import host_register
from agents.sessions.second_eyes import tally, waits_text
from agents.text.clean import one_line
from agents.text.strict_yaml import MAX_BYTES
from audit.management.base import ActingCommand, not_empty

Row = TypeVar("Row", bound=models.Model)
POLL_SECONDS = 0.2
QUOTE_CHARS = 200
ROWS_LISTED = 10
YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})
PARTIAL: Final = 3  # exit code; 2 is a wrong argument
AGENT_HELP: Final = "The agent's name, its public id, or the beginning of its public id."


_SHORT_ID: Final = re.compile(rf"[0-9a-f]{{1,{MIN_ID_CHARS - 1}}}")


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

    def print(self, facts: Any, text: str, options: dict[str, Any], *, hint: str = "") -> None:
        """The facts as JSON if asked for, otherwise the text; a hint for people goes to stderr.

        So a text that programs use, such as a key, can be read from stdout.
        """
        self.stdout.write(json.dumps(facts, cls=DjangoJSONEncoder) if options["json"] else text)
        if hint and not options["json"]:
            self.stderr.write(hint, style_func=str)  # it is no error


class RecordedCommand(JsonCommand):
    """A command that changes something. The audit log names --user, or else the command line."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--user", help="Username to record in the audit log. Default: the command line, without a user."
        )

    def actor(self, options: dict[str, Any]) -> dict[str, Any]:
        """The user and the time: the arguments that every service takes."""
        return {"by": None if options["user"] is None else named_user(options["user"]), "now": clock()}


def register_host() -> None:
    """Report this host before it starts to work; refuse if its keys or its version do not fit those of the others."""
    try:
        host_register(shared(clock()))
    except (KeysDiffer, VersionsDiffer) as error:
        raise CommandError(str(error)) from error


def data_text() -> str:
    """Where this installation keeps its data, and where unused data is, for the output of commands that start."""
    lines = [f"Data: {settings.VAR_DIR}"]
    if settings.UNUSED_DATA_DIR is not None:
        lines.append(
            f"Not used: data of an earlier version in {settings.UNUSED_DATA_DIR}, beside the installed packages. "
            "Keep a copy elsewhere, before an upgrade deletes it, or set LQOPS_VAR_DIR to use it."
        )
    return "\n".join(lines)


# --- Rows that an argument names ---


def named_user(username: str, *, active: bool = True) -> User:
    users = User.objects.filter(is_active=True) if active else User.objects.all()
    user = users.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no {'active ' if active else ''}user {username!r}.")
    return user


def row_named(model: type[Row], text: str, *, owner: User | None = None, listed_by: str = "") -> Row:
    """The one row with this public id or name, or whose public id begins with the text.

    A whole public id wins: nobody can take another row's place by using its id as a name.
    """
    kind = "session" if issubclass(model, AgentSession) else model._meta.verbose_name  # on pages it is a run
    rows: models.QuerySet[Any] = models.QuerySet(model).order_by("pk")
    columns = {field.name for field in model._meta.fields}
    if "deleted_at" in columns:
        rows = rows.filter(deleted_at__isnull=True)
    if owner is not None:
        rows = rows.filter(owner=owner)
    by_id = rows_by_id(rows, text.lower())
    whole = [row for row in by_id if row.public_id.hex == text.lower().replace("-", "")]
    found = whole or (list(rows.filter(name=text)) if "name" in columns else []) or by_id
    if not found:
        least = f" (give at least {MIN_ID_CHARS} characters of its id)" if _SHORT_ID.fullmatch(text) else ""
        hint = f" `manage.py {listed_by}` lists the pending ones." if listed_by else ""
        raise CommandError(f"{f'{owner} has' if owner else 'There is'} no {kind} {text!r}{least}.{hint}")
    if len(found) > 1:
        owners = "owner" in columns
        ids = "".join(f"\n  {row.public_id}{f'  of {row.owner}' if owners else ''}" for row in found[:ROWS_LISTED])
        raise CommandError(f"Several {kind}s match {text!r}. Give the public id of one:{ids}")
    row: Row = found[0]
    return row


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
        approval = row_named(Approval, options["approval"], listed_by="approvals")
        decided = self.decide(approval, by=named_user(options["user"]), options=options)
        if decided is not None:
            facts = {"approval": str(decided.public_id), "status": decided.status}
            waits = decided.status == ApprovalStatus.PENDING
            self.print(facts, waits_text(decided) if waits else f"{self.verb}: {decided.action}.", options)

    def decide(self, approval: Approval, *, by: User, options: dict[str, Any]) -> Approval | None:
        """The decided approval; None if nothing was decided."""
        raise NotImplementedError


def approval_facts(approval: Approval) -> dict[str, Any]:
    said = tally(approval)
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
        "yeses": [str(vote) for vote in said.yeses],
        "yeses_needed": said.needed,
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


def await_end(session: AgentSession, seconds: float, *, between: Callable[[], None] = lambda: None) -> None:
    """Wait so long for the end of a session; `between` is called before each look at it."""
    deadline = time.monotonic() + seconds
    while session.status not in TERMINAL and time.monotonic() < deadline:
        between()
        time.sleep(POLL_SECONDS)
        session.refresh_from_db()


def ended_as(session: AgentSession) -> str:
    return f"{session.status} ({session.terminal_reason})" if session.terminal_reason else session.status


def result_text(session: AgentSession) -> str:
    """The result of a run that is over, and why, on one line; empty for runs from before results were noted."""
    if not session.run_result:
        return ""
    return " ".join(filter(None, [f"Result: {session.run_result}.", session.result_reason]))


def require_result(session: AgentSession, what: str) -> None:
    """Raise unless a run that was waited for is over and did all its work; a partial result has its own exit code."""
    is_partial = session.run_result == RunResult.PARTIAL
    if session.status != Status.COMPLETED:
        raise CommandError(f"{what} {incomplete(session)}", returncode=PARTIAL if is_partial else 1)
    if is_partial or session.run_result == RunResult.FAILED:
        message = f"{what} {'did not check everything' if is_partial else 'failed'}: {session.result_reason}"
        raise CommandError(message, returncode=PARTIAL if is_partial else 1)


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
    return _goes_on_by_itself(session)


def _goes_on_by_itself(session: AgentSession) -> str:
    if (wait := model_wait_of(session)) is not None:
        return f"it is waiting for model {wait.model}, and goes on by itself when that answers. {wait.error}"
    if (awaited := runs_wait_of(session)) is not None:
        return f"it is waiting for {awaited.text}, and goes on by itself when one of them is over."
    return ""


def findings_text(session: AgentSession) -> str:
    """The findings, each with its document, its quote and whether that was verified."""
    return "\n\n".join(map(_finding_text, session.findings.select_related("document")))


def _finding_text(finding: Finding) -> str:
    about = f" ({', '.join(filter(None, [finding.document.name, finding.location]))})" if finding.document else ""
    lines = [f"{finding.severity}: {finding.title}{about}", finding.content.strip(), _quote_text(finding)]
    return "\n".join(filter(None, lines))


def _quote_text(finding: Finding) -> str:
    """The quote on one line, and whether it was verified. One that is cut says how long it is."""
    if not finding.quote:
        return ""
    check = "Quote verified" if finding.quote_check == QuoteCheck.VERIFIED else "Quote not found in the document"
    whole = one_line(finding.quote, len(finding.quote) + 1)
    line = one_line(whole, QUOTE_CHARS)
    cut = f", cut here; it has {len(finding.quote):,} characters" if line != whole else ""
    return f"{check}{cut}: “{line}”"


def findings_facts(session: AgentSession) -> list[dict[str, Any]]:
    return [
        {
            "severity": finding.severity,
            "title": finding.title,
            "content": finding.content,
            "document": finding.document.name if finding.document else None,
            "document_id": str(finding.document.public_id) if finding.document else None,
            "quote": finding.quote,
            "quote_check": finding.quote_check or None,
            "location": finding.location or None,
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


def file_text(path: Path) -> str:
    """The content of a YAML file. A file that cannot be read is a problem like any other in it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block
            raise OSError(errno.EINVAL, "this is none")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) <= MAX_BYTES:
            return content.decode("utf-8-sig")
        expected = f"at most {MAX_BYTES} bytes"
    except OSError as error:
        expected = f"a file that can be read: {error.strerror}"
    except UnicodeDecodeError as error:
        expected = f"UTF-8 text: byte {error.start} makes no character"
    raise DefinitionError((Problem(str(path), 0, "", expected),))


def problem_facts(problems: Iterable[Problem], notes: Iterable[Problem]) -> dict[str, list[dict[str, Any]]]:
    return {"problems": [problem.to_json() for problem in problems], "notes": [note.to_json() for note in notes]}


def problem_lines(facts: dict[str, Any]) -> list[str]:
    """Problems and notes of printed facts as lines."""
    lines = [f"PROBLEM {problem['message']}" for problem in facts.get("problems", ())]
    return [*lines, *(f"NOTE {note['message']}" for note in facts["notes"])]


def counted(items: Sized, noun: str) -> str:
    """The number of items: 1 file, 2 files."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"
