"""Archive old runs and audit events, and delete rows that nobody needs."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.conf import archive_folder, runs_kept
from agents.database_clock import shared
from agents.exceptions import KeysDiffer
from agents.management.base import RecordedCommand
from agents.people.access import COMMAND
from agents.retention.prune import LEAST_AGE, Pruned, plan, prune
from agents.retention.sizes import archive_bytes, database_bytes, shown, table_bytes
from agents.sessions.faults import keys_require_same
from audit.management.base import not_empty

TABLES_SHOWN = 8


def age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})(d|w)", text)
    if found is None:
        raise ArgumentTypeError("give days or weeks, such as 90d or 12w")
    days = int(found[1]) * (7 if found[2] == "w" else 1)
    if timedelta(days=days) < LEAST_AGE:
        raise ArgumentTypeError("nothing younger than a day is pruned")
    return timedelta(days=days)


def folder(text: str) -> Path:
    return Path(not_empty(text))


class Command(RecordedCommand):
    help = (
        "Archive runs that ended before a time, with their audit events, and drop them from the database: each segment "
        "is written to files, read back, sealed with the key of the audit log, and only then dropped. Runs of which "
        "anything waits for somebody stay. Also deletes ended browser sessions, read notices and the like. It can be "
        "stopped at any moment and called again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--older-than",
            type=age,
            metavar="AGE",
            help="Such as 90d or 12w: since when a run has to be over. Default: LQOPS_KEEP_RUNS_DAYS.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Say what would be done, and do nothing.")
        parser.add_argument(
            "--archive", type=folder, metavar="DIR", help="Folder of the archive. Default: LQOPS_ARCHIVE_DIR."
        )

    def run(self, options: dict[str, Any]) -> None:
        older = options["older_than"] or runs_kept()
        if older is None:
            raise CommandError("Say how old: --older-than 90d, or set LQOPS_KEEP_RUNS_DAYS. Nothing was pruned.")
        acting = self.actor(options)
        if acting["by"] is not None and not acting["by"].is_superuser:
            raise CommandError(f"{acting['by']} is no superuser: pruning is for those who keep the installation.")
        folder = options["archive"] or archive_folder()
        before = acting["now"] - older
        if options["dry_run"]:
            found = plan(before, now=acting["now"])
        else:
            _require_keys(shared(acting["now"]))
            found = prune(before=before, folder=folder, unnamed=COMMAND, progress=self._progress, **acting)
        facts = {
            "dry_run": options["dry_run"],
            "archive": str(folder),
            **found.facts(),
            "database_bytes": database_bytes(),
            "archive_total_bytes": archive_bytes(folder),
            "tables": dict(list(table_bytes().items())[:TABLES_SHOWN]),
        }
        self.print(facts, _text(found, facts), options)

    def _progress(self, text: str) -> None:
        self.stderr.write(text)


def _require_keys(now: datetime) -> None:
    """Refuse beside a running host with other keys: nothing is sealed with a foreign one."""
    try:
        keys_require_same(now)
    except KeysDiffer as error:
        raise CommandError(str(error)) from error


def _text(found: Pruned, facts: dict[str, Any]) -> str:
    done = "Would archive" if facts["dry_run"] else "Archived"
    when = f"{found.before:%Y-%m-%d %H:%M} UTC"
    lines = [f"{done} {found.runs} runs that ended before {when}, with {found.events} events."]
    if facts["dry_run"]:
        lines.append(f"With them {found.calls} calls and {found.messages} messages would go.")
    else:
        lines.append(f"Archive: {found.segments} segments, {shown(found.archive_bytes)}, in {facts['archive']}.")
        lines.append(f"Long texts that no row named any more: {found.texts}.")
    lines += [f"Old enough, but kept because of: {reason}: {number}." for reason, number in found.held.items()]
    lines += [f"{name[:1].upper()}{name[1:]}: {number}." for name, number in found.rows.items() if number]
    lines.append(f"The database takes {shown(facts['database_bytes'])}. Freed space is used again before it grows.")
    lines += [f"  {name}: {shown(size)}" for name, size in facts["tables"].items()]
    return "\n".join(lines)
