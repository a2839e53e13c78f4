"""`approvals`: list the calls that are waiting for approval, oldest first."""

from typing import Any

from agents.enums import ApprovalStatus, QuestionStatus
from agents.management.base import JsonCommand, approval_facts
from agents.models import Approval, Question


class Command(JsonCommand):
    help = "Lists the calls that are waiting for approval, oldest first. `approve` and `deny` decide on one of them."
    json_help = "Print a JSON list instead of text."

    def run(self, options: dict[str, Any]) -> None:
        pending = Approval.objects.filter(status=ApprovalStatus.PENDING).select_related("session", "session__owner")
        rows = [approval_facts(approval) for approval in pending.order_by("created_at", "pk")]
        self.print(rows, _text(rows), options)


def _text(rows: list[dict[str, Any]]) -> str:
    lines = [f"{row['approval']}  {row['action']} ({_danger(row)})  {row['owner']}{_yeses(row)}" for row in rows]
    questions = Question.objects.filter(status=QuestionStatus.PENDING).count()
    nothing = "No call is waiting for approval." if questions else "Nothing is waiting for a person."
    lines.append(f"{len(rows)} waiting. `manage.py approve <id> --user <you>` shows one in full." if rows else nothing)
    if questions:
        lines.append(f"Questions waiting for an answer: {questions}. `manage.py answer` lists them.")
    return "\n".join(lines)


def _danger(row: dict[str, Any]) -> str:
    return f"{row['level']}, {row['risk']} risk" if row["risk"] else str(row["level"])


def _yeses(row: dict[str, Any]) -> str:
    names = "; ".join(row["yeses"])
    return f"  {len(row['yeses'])} of {row['yeses_needed']} said yes ({names})" if names else ""
