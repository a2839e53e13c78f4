"""Show skill calls, audit events or a receipt in a terminal."""

import json
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from audit.kinds import actors_of, usernames
from audit.management.base import ActingCommand, not_empty
from audit.models import SYSTEM_CHAIN, AuditEvent, SealedChain, SkillAudit
from audit.receipts import NAMES, UnknownChain, build_receipt, receipt_text

DIGITS = 9
LEAST_OF_ID = 6
NO_SKILL_CALL = "No skill calls yet (CONTROLLED and above are listed here); --events lists the audit events."


class Command(ActingCommand):
    help = (
        "List skill calls, newest first: time, skill, input, output (redacted and cut). --events lists audit events "
        "instead: time, chain, actor, sentence. --receipt shows what one session did, what it cost and how it ended."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=_count, default=20, metavar="N", help="how many rows; 20 by default")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--events", action="store_true", help="list audit events instead of skill calls")
        which.add_argument(
            "--receipt",
            type=not_empty,
            metavar="SESSION",
            help="show the receipt of one session, by its id or enough of its beginning",
        )
        parser.add_argument("--json", action="store_true", help="print JSON: an object a line, or the receipt")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["receipt"]:
            self._show_receipt(options["receipt"], as_json=options["json"])
            return
        found = _events(options["limit"]) if options["events"] else _skill_calls(options["limit"])
        for row in found:
            self.stdout.write(json.dumps(row) if options["json"] else "  ".join(map(_printable, row.values())))
        if not found and not options["json"]:
            self.stdout.write("No audit events yet." if options["events"] else NO_SKILL_CALL)

    def _show_receipt(self, session: str, *, as_json: bool) -> None:
        try:
            receipt = build_receipt(_chain(session))
        except UnknownChain as error:
            raise CommandError(str(error)) from error
        names = {**NAMES, **usernames(actors_of(receipt))}
        self.stdout.write(json.dumps(receipt) if as_json else receipt_text(receipt, names))


def _chain(given: str) -> str:
    """Complete the beginning of a session's id; one that is too short or unknown stays as given."""
    sessions = AuditEvent.objects.exclude(chain=SYSTEM_CHAIN)
    if len(given) < LEAST_OF_ID or sessions.filter(chain=given).exists():
        return given
    archived = SealedChain.objects.exclude(chain=SYSTEM_CHAIN)
    named = [
        rows.filter(chain__startswith=given.lower()).order_by().values_list("chain", flat=True).distinct()[:2]
        for rows in (sessions, archived)
    ]
    found = sorted({chain for chains in named for chain in chains})
    if len(found) > 1:
        raise CommandError(f"Several sessions begin with {given}: give more of the id.")
    return found[0] if found else given


def _skill_calls(limit: int) -> list[dict[str, Any]]:
    return [
        {
            "time": call.created_at.isoformat(timespec="seconds"),
            "skill": call.skill_name,
            "input": call.input_summary,
            "output": call.output_summary,
        }
        for call in SkillAudit.objects.order_by("-created_at", "-id")[:limit]
    ]


def _events(limit: int) -> list[dict[str, Any]]:
    return [
        {
            "time": event.at.isoformat(timespec="seconds"),
            "chain": event.chain,
            "actor": event.actor,
            "sentence": event.sentence,
        }
        for event in AuditEvent.objects.order_by("-id")[:limit]
    ]


def _printable(text: str) -> str:
    """Replace control characters: summaries come from documents and models."""
    return "".join(char if char.isprintable() else "·" for char in text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS and int(text) >= 1):
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to {10**DIGITS - 1}")
    return int(text)
