"""`inputs`: list what runs of triggers were to read and did not; retry or dismiss it."""

from argparse import ArgumentParser
from typing import Any

from agents.enums import InputState
from agents.management.base import RecordedCommand, row_named
from agents.models import UnreadInput
from agents.sessions.reads import purposes
from agents.triggers.inputs import input_dismiss, input_retry
from audit.receipts import label_of


class Command(RecordedCommand):
    help = (
        "Lists what runs of triggers were to read and did not: read again when due, or given up. "
        "--retry starts another run for one of them, --dismiss leaves it unread."
    )
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--retry", metavar="INPUT", help="The public id of an input, its beginning, or all.")
        which.add_argument("--dismiss", metavar="INPUT", help="The public id of an input, its beginning, or all.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["retry"]:
            self._decide(options["retry"], input_retry, "to be read again", options)
        elif options["dismiss"]:
            self._decide(options["dismiss"], input_dismiss, "dismissed", options)
        else:
            self._list(options)

    def _decide(self, named: str, decide: Any, done: str, options: dict[str, Any]) -> None:
        waiting = UnreadInput.objects.filter(state__in=(InputState.RETRYING, InputState.GIVEN_UP)).order_by("pk")
        rows = list(waiting) if named == "all" else [row_named(UnreadInput, named)]
        actor = self.actor(options)
        decided = [decide(unread_input=row, **actor) for row in rows]
        facts = [{"input": str(row.public_id), "state": row.state} for row in decided]
        self.print(facts, f"{len(decided)} {done}." if decided else "Nothing is unread.", options)

    def _list(self, options: dict[str, Any]) -> None:
        listed = UnreadInput.objects.exclude(state=InputState.DISMISSED)
        rows = list(listed.select_related("trigger", "session__trigger", "session__agent", "owner").order_by("pk"))
        named = purposes([row.session for row in rows])
        facts = [
            {
                "input": str(row.public_id),
                "state": row.state,
                "what": named[row.session_id],
                "trigger": row.trigger.name,
                "owner": row.owner.get_username(),
                "reason": row.reason,
                "tries": row.tries,
                "due_at": row.due_at,
                "session": str(row.session.public_id),
            }
            for row in rows
        ]
        lines = [_line(row) for row in facts]
        self.print(facts, "\n".join([*lines, f"{len(rows)} unread."]) if rows else "Nothing is unread.", options)


def _line(row: dict[str, Any]) -> str:
    due = f", next run {row['due_at']:%Y-%m-%d %H:%M} UTC" if row["due_at"] else ""
    reason = label_of("reason", row["reason"])
    state = str(row["state"]).replace("_", " ")
    tries = "1 run" if row["tries"] == 1 else f"{row['tries']} runs"
    return f"{row['input']}  {state}{due}  {row['what']}: {reason}, {tries}"
