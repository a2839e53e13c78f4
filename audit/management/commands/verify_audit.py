"""Verify the audit log: every link of every chain, and the checkpoints."""

import dataclasses
import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from audit import utc_now
from audit.management.base import ActingCommand, not_empty
from audit.redaction import redact
from audit.restores import RestoreRefused, accept_restore
from audit.segments import signed_rows, verify_archive
from audit.verify import Report, verify_log

VERIFIED, TAMPERED, UNREADABLE = 0, 1, 2
MAX_PROCESSES = 64


class Command(ActingCommand):
    help = (
        "Verify the audit log: recompute the hash of every event of every chain, compare the chains with their opening "
        "and closing in `system`, and look up every event that a checkpoint has signed. "
        "Exit code 0: verified. 1: tampering found; the first bad row of each chain is printed. 2: cannot read. "
        "After a restore from a backup, rows that checkpoints have signed are missing. --accept-restore records who "
        "says so, why, and which rows, signed; from then on they do not count as tampering."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--head",
            type=Path,
            metavar="FILE",
            help="checkpoint file, best a copy kept on another machine; default: the configured one, if it exists",
        )
        which.add_argument(
            "--no-head", action="store_true", help="check the chains only; rows cut from the end go unnoticed"
        )
        which.add_argument(
            "--accept-restore",
            action="store_true",
            help="accept missing rows as lost by a restore; stop lqops first. Needs --by and --reason",
        )
        parser.add_argument("--by", metavar="USERNAME", type=not_empty, help="with --accept-restore: who accepts it")
        parser.add_argument("--reason", type=not_empty, help="with --accept-restore: why rows are missing")
        parser.add_argument(
            "--archive",
            type=lambda text: Path(not_empty(text)),
            metavar="DIR",
            help="also verify the files in which archived events are, against their seals and the checkpoints",
        )
        parser.add_argument(
            "--processes",
            type=_number,
            metavar="N",
            help="processes that read the events; default: one for each processor, one alone for a small log",
        )
        parser.add_argument("--json", action="store_true", help="print the result as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        accepting = options["accept_restore"]
        if accepting != bool(options["by"] and options["reason"]):
            raise CommandError("--accept-restore, --by and --reason are used together.")
        head = self._head(options)
        report = self._verify(head, options["archive"], options["processes"])
        if accepting:
            self._accept(head, report, options)
            report = self._verify(head, options["archive"], options["processes"])
        if options["json"]:
            self.stdout.write(json.dumps(_plain(report)))
        else:
            self._print(report)
        if not report.verified:
            raise SystemExit(TAMPERED)

    def _verify(self, head: Path | None, folder: Path | None, processes: int | None) -> Report:
        try:
            report = verify_log(head=head, progress=self._progress, processes=processes)
            if folder is not None:
                verify_archive(folder, report, agreed={} if head is None else signed_rows(head))
        except OSError as error:
            where = error.filename or head
            raise CommandError(f"{where} cannot be read: {error.strerror}.", returncode=UNREADABLE) from error
        except DatabaseError as error:
            raise CommandError(f"The audit log cannot be read: {error}", returncode=UNREADABLE) from error
        return report

    def _accept(self, head: Path | None, report: Report, options: dict[str, Any]) -> None:
        user = get_user_model().objects.filter(username=options["by"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['by']!r}.")
        if other := [problem for problem in report.problems if not problem.missing]:
            raise CommandError(f"Not accepted: not only missing rows. {other[0]}", returncode=TAMPERED)
        if head is None or not report.missing:
            raise CommandError("No row that a checkpoint has signed is missing: there is nothing to accept.")
        try:
            accept_restore(
                report.missing,
                path=head,
                by=user.get_username(),
                actor=f"user:{user.pk}",
                reason=redact(options["reason"]),
                now=utc_now(),
            )
        except RestoreRefused as refused:
            raise CommandError(f"Not accepted: {refused}.", returncode=TAMPERED) from refused
        except OSError as error:
            raise CommandError(f"{head} cannot be written: {error.strerror}.", returncode=UNREADABLE) from error

    def _head(self, options: dict[str, Any]) -> Path | None:
        if options["no_head"]:
            return None
        configured = Path(settings.LQOPS_CHECKPOINT_FILE)
        return options["head"] or (configured if configured.exists() else None)

    def _progress(self, rows: int) -> None:
        self.stderr.write(f"Rows so far: {rows}")

    def _print(self, report: Report) -> None:
        for warning in report.warnings:
            self.stdout.write(f"Note: {warning}")
        for restore in report.restores:
            self.stdout.write(f"Note: {restore}")
        for problem in report.problems:
            self.stdout.write(f"Bad: {problem}")
        if report.further:
            self.stdout.write(f"Further problems: {report.further}")
        if report.checkpoints is None:
            self.stdout.write("No checkpoints checked: rows cut from the end of an open chain would go unnoticed.")
        if report.archived:
            files = "its files were not looked at" if report.files is None else f"files of it verified: {report.files}"
            self.stdout.write(f"Archived and dropped: {report.archived} events, vouched for by signed seals; {files}.")
        counts = f"(chains: {report.chains}, checkpoints: {report.checkpoints or 0})"
        if report.verified:
            self.stdout.write(f"Verified: {report.rows} of {report.rows} events intact {counts}.")
        else:
            self.stdout.write(
                f"Tampering found. Checked {report.rows} events {counts}; each chain's first bad row is named above."
            )


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PROCESSES:
        raise ArgumentTypeError(f"{text!r} is not a number of processes. Use 1 to {MAX_PROCESSES}.")
    return int(text)


def _plain(report: Report) -> dict[str, Any]:
    return {
        "verified": report.verified,
        "rows": report.rows,
        "archived": report.archived,
        "files": report.files,
        "chains": report.chains,
        "checkpoints": report.checkpoints,
        "problems": [{**dataclasses.asdict(problem), "text": str(problem)} for problem in report.problems],
        "further": report.further,
        "warnings": report.warnings,
        "restores": [str(restore) for restore in report.restores],
    }
