"""Export the audit log as a signed file."""

import os
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from audit import utc_now
from audit.export import TYPES, Selection, UnknownChain, export_log
from audit.keys import public_key
from audit.kinds import KINDS
from audit.management.base import ActingCommand, not_empty, release_stdout
from audit.receipts import COMMAND
from audit.rows import UnreadableRow

PROGRESS_LINES = 10_000
UNREADABLE = 2


class Command(ActingCommand):
    help = (
        "Export the audit log as JSON lines or CSV: the checkpoints, one event per line with all hashed columns and "
        "its hash, and a signed manifest. Verify it without lqops: python docs/verify_export.py --key KEY FILE. "
        "--chain exports one run, whose last event the manifest signs; --since and --kind leave out what links events, "
        "so that only the signature vouches for them. "
        "Exit code 0: exported. 1: no such chain. 2: cannot read or write, or a wrong option."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--chain", type=not_empty, help="only this chain: a session id, or system")
        parser.add_argument(
            "--since", type=_moment, help="only events from this time on, e.g. 2026-01-31 (UTC without a zone)"
        )
        parser.add_argument(
            "--kind", default="", choices=sorted(KINDS), metavar="KIND", help="only events of this kind"
        )
        parser.add_argument("--output", type=Path, metavar="FILE", help="write to this file instead of stdout")
        parser.add_argument("--format", default="jsonl", choices=sorted(TYPES), help="default: jsonl")

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        selection = Selection(options["chain"] or "", options["since"], options["kind"])
        try:
            lines = export_log(selection, form=options["format"], by=COMMAND, now=utc_now())
            with closing(lines), self._target(options["output"]) as target:
                for count, line in enumerate(lines, 1):
                    target.write(line)
                    if count % PROGRESS_LINES == 0:
                        self.stderr.write(f"Lines so far: {count}")
                target.flush()
        except BrokenPipeError:  # the reader has seen enough, as `head` has
            release_stdout()
            return
        except UnknownChain as error:
            raise CommandError(str(error)) from error
        except UnreadableRow as error:
            raise CommandError(f"Stopped: {error}; run verify_audit for details.", returncode=UNREADABLE) from error
        except (OSError, DatabaseError) as error:
            raise CommandError(f"Stopped after {count} lines: {error}", returncode=UNREADABLE) from error
        self.stderr.write(f"Lines exported: {count}. Public key: {public_key()}")

    @contextmanager
    def _target(self, output: Path | None) -> Iterator[TextIO]:
        """Open stdout, or a file that gets its name only when it is complete."""
        if output is None:
            yield self.stdout  # type: ignore[misc]
            return
        if output.exists() and not output.is_file():  # a device or a pipe would be replaced, not written to
            raise CommandError(f"{output} is not a file.", returncode=UNREADABLE)
        draft = output.with_name(f"{output.name}.partial")
        try:
            with open(draft, "w", encoding="ascii", opener=_private) as target:
                yield target
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time, such as 2026-01-31 or 2026-01-31T14:30") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
