"""`findings`: list what runs found, and settle it: acknowledge, dismiss, resolve, reopen, assign, comment."""

from argparse import ArgumentParser
from typing import Any, Final

from agents.enums import FindingState
from agents.knowledge.findings import (
    finding_acknowledge,
    finding_assign,
    finding_comment,
    finding_dismiss,
    finding_reopen,
    finding_resolve,
)
from agents.management.base import RecordedCommand, named_user, row_named
from agents.models import AgentSession, Finding
from agents.text.clean import one_line
from audit.management.base import not_empty

LISTED: Final = 200
TITLE_CHARS: Final = 100
# Each act by its option: the function, and the options that it takes by the names of its arguments.
ACTS: Final[dict[str, tuple[Any, dict[str, str]]]] = {
    "acknowledge": (finding_acknowledge, {}),
    "resolve": (finding_resolve, {}),
    "reopen": (finding_reopen, {}),
    "dismiss": (finding_dismiss, {"reason": "reason", "teach": "teach"}),
    "assign": (finding_assign, {"to": "assignee"}),
    "comment": (finding_comment, {"text": "text"}),
}


class Command(RecordedCommand):
    help = "Lists findings of runs, newest first, and settles one of them."
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        for name in ACTS:
            which.add_argument(f"--{name}", metavar="FINDING", help="The public id of a finding, or its beginning.")
        parser.add_argument("--reason", default="", help="With --dismiss: why it is no problem.")
        parser.add_argument(
            "--no-teach", dest="teach", action="store_false", help="With --dismiss: count no precedent for later runs."
        )
        parser.add_argument("--to", metavar="USERNAME", help="With --assign: the assignee. Default: nobody.")
        parser.add_argument("--text", default="", help="With --comment: the comment.")
        parser.add_argument(
            "--state", choices=[*FindingState.values, "all"], default="open", help="Listed state. Default: open."
        )
        parser.add_argument("--severity", type=not_empty, help="Only this severity: critical, warn or info.")
        parser.add_argument("--run", type=not_empty, help="Only of this run: its public id, or its beginning.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        for name, (act, taken) in ACTS.items():
            if options[name]:
                options = {**options, "to": named_user(options["to"]) if options["to"] else None}
                given = {argument: options[option] for option, argument in taken.items()}
                finding = row_named(Finding, options[name], listed_by="findings")
                act(finding=finding, **given, **self.actor(options))
                finding.refresh_from_db()
                self.print(_facts(finding), _line(_facts(finding)), options)
                return
        self._list(options)

    def _list(self, options: dict[str, Any]) -> None:
        rows = Finding.objects.work().select_related("session__owner", "document", "assignee").order_by("-pk")
        if options["state"] != "all":
            rows = rows.filter(state=options["state"])
        if options["severity"]:
            rows = rows.filter(severity=options["severity"])
        if options["run"]:
            rows = rows.filter(session=row_named(AgentSession, options["run"]))
        facts = [_facts(row) for row in rows.defer("document__text", "document__marks")[: LISTED + 1]]
        lines = [_line(row) for row in facts[:LISTED]]
        lines.append(f"The newest {LISTED} are listed." if len(facts) > LISTED else f"{len(facts)} listed.")
        self.print(facts[:LISTED], "\n".join(lines), options)


def _facts(row: Finding) -> dict[str, Any]:
    return {
        "finding": str(row.public_id),
        "state": row.state,
        "severity": row.severity,
        "title": row.title,
        "document": row.document.name if row.document else None,
        "position": row.position or None,
        "assignee": row.assignee.get_username() if row.assignee else None,
        "reason": row.reason or None,
        "owner": row.session.owner.get_username(),
        "session": str(row.session.public_id),
        "created_at": row.created_at,
    }


def _line(row: dict[str, Any]) -> str:
    about = ", ".join(filter(None, [row["document"], row["assignee"] and f"assigned to {row['assignee']}"]))
    title = one_line(row["title"], TITLE_CHARS)
    return f"{row['finding']}  {row['state']}  {row['severity']}: {title}{f' ({about})' if about else ''}"
