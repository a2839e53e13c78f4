"""Verify the audit log: every link of every chain, and the checkpoints."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from audit.management.base import ActingCommand
from audit.verify import Report, verify_log

VERIFIED, TAMPERED, UNREADABLE = 0, 1, 2


class Command(ActingCommand):
    help = (
        "Verify the audit log: recompute the hash of every event of every chain, compare the chains with their opening "
        "and closing in `system`, and look up every event that a checkpoint has signed. "
        "Exit code 0: verified. 1: tampering found; the first bad row of each chain is printed. 2: cannot read."
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
        parser.add_argument("--json", action="store_true", help="print the result as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        head = self._head(options)
        try:
            report = verify_log(head=head, progress=self._progress)
        except OSError as error:
            raise CommandError(f"{head} cannot be read: {error.strerror}.", returncode=UNREADABLE) from error
        except DatabaseError as error:
            raise CommandError(f"The audit log cannot be read: {error}", returncode=UNREADABLE) from error
        if options["json"]:
            self.stdout.write(json.dumps(_plain(report)))
        else:
            self._print(report)
        if not report.verified:
            raise SystemExit(TAMPERED)

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
        for problem in report.problems:
            self.stdout.write(f"Bad: {problem}")
        if report.further:
            self.stdout.write(f"Further problems: {report.further}")
        if report.checkpoints is None:
            self.stdout.write("No checkpoints checked: rows cut from the end of an open chain would go unnoticed.")
        counts = f"(chains: {report.chains}, checkpoints: {report.checkpoints or 0})"
        if report.verified:
            self.stdout.write(f"Verified: {report.rows} of {report.rows} events intact {counts}.")
        else:
            self.stdout.write(
                f"Tampering found. Checked {report.rows} events {counts}; each chain's first bad row is named above."
            )


def _plain(report: Report) -> dict[str, Any]:
    return {
        "verified": report.verified,
        "rows": report.rows,
        "chains": report.chains,
        "checkpoints": report.checkpoints,
        "problems": [{**dataclasses.asdict(problem), "text": str(problem)} for problem in report.problems],
        "further": report.further,
        "warnings": report.warnings,
    }
