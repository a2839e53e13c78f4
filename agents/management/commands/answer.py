"""`answer`: lists the questions that agents have put to people, and answers one; its run goes on."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.enums import QuestionStatus
from agents.exceptions import LqopsError
from agents.management.base import named_user, row_named
from agents.models import Question
from agents.sessions.questions import question_answer
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Lists what agents ask and nobody has answered, oldest first; with a question and a text, answers it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("question", nargs="?", help="The public id of the question, or enough of its beginning.")
        parser.add_argument("text", nargs="?", default="", help="The answer.")
        parser.add_argument("--user", default="", help="Who answers: the run's owner, or an approver.")
        parser.add_argument("--json", action="store_true", help="JSON instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["question"]:
            self._answer(options)
        else:
            self._list(as_json=options["json"])

    def _list(self, *, as_json: bool) -> None:
        pending = Question.objects.filter(status=QuestionStatus.PENDING).select_related("session", "session__owner")
        rows = [
            {
                "question": str(row.public_id),
                "text": row.text,
                "session": str(row.session.public_id),
                "owner": row.session.owner.get_username(),
                "expires_at": row.expires_at.isoformat(),
            }
            for row in pending.order_by("asked_at", "pk")
        ]
        if as_json:
            self.stdout.write(json.dumps(rows))
            return
        for row in rows:
            self.stdout.write(f"{row['question']}  {row['owner']}  {row['text']}")
        self.stdout.write(f"{len(rows)} waiting." if rows else "No agent asks anything.")

    def _answer(self, options: dict[str, Any]) -> None:
        if not options["text"]:
            raise CommandError(f'Say the answer: manage.py answer {options["question"]} "…" --user NAME')
        if not options["user"]:
            raise CommandError("Say who answers: --user NAME.")
        question = row_named(Question.objects.select_related("session"), options["question"], "question", "answer")
        try:
            said = question_answer(question, answer=options["text"], by=named_user(options["user"]), now=clock())
        except LqopsError as error:
            raise CommandError(str(error)) from error
        told = {"question": str(said.public_id), "status": said.status}
        self.stdout.write(json.dumps(told) if options["json"] else "Answered; the run goes on.")
