"""`approvals`: lists the calls that wait for a person, oldest first."""

import json
from argparse import ArgumentParser
from typing import Any

from agents.enums import ApprovalStatus, QuestionStatus
from agents.management.base import shown_approval
from agents.models import Approval, Question
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Lists the calls that wait for a person, oldest first; `approve` and `deny` decide on one of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="A JSON list instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        pending = Approval.objects.filter(status=ApprovalStatus.PENDING).select_related("session", "session__owner")
        rows = [shown_approval(approval) for approval in pending.order_by("created_at", "pk")]
        if options["json"]:
            self.stdout.write(json.dumps(rows))
            return
        for row in rows:
            self.stdout.write(f"{row['approval']}  {row['action']} ({row['level']})  {row['owner']}  {row['digest']}")
        asked = Question.objects.filter(status=QuestionStatus.PENDING).count()
        nothing = "No call waits for a person." if asked else "Nothing waits for a person."
        self.stdout.write(f"{len(rows)} waiting." if rows else nothing)
        if asked:
            self.stdout.write(f"Questions that wait for an answer: {asked}. `manage.py answer` lists them.")
