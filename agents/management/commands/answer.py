"""`answer`: list the open questions of agents, and answer one; its run continues."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.enums import QuestionStatus
from agents.management.base import JsonCommand, named_user, row_named
from agents.models import Question
from agents.sessions.questions import question_answer


class Command(JsonCommand):
    help = "Lists the open questions of agents, oldest first. With a question and a text, answers it."
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("question", nargs="?", help="The public id of the question, or its beginning.")
        parser.add_argument("text", nargs="?", default="", help="The answer.")
        parser.add_argument("--user", default="", help="Who answers: the run's owner, or an approver.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["question"]:
            self._answer(options)
        else:
            self._list(options)

    def _list(self, options: dict[str, Any]) -> None:
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
        lines = [f"{row['question']}  {row['owner']}  {row['text']}" for row in rows]
        lines.append(f"{len(rows)} waiting." if rows else "There are no open questions.")
        self.print(rows, "\n".join(lines), options)

    def _answer(self, options: dict[str, Any]) -> None:
        if not options["text"]:
            raise CommandError(f'Give the answer: manage.py answer {options["question"]} "…" --user NAME')
        if not options["user"]:
            raise CommandError("Give the user who answers: --user NAME.")
        question = row_named(Question, options["question"], listed_by="answer")
        answered = question_answer(question, answer=options["text"], by=named_user(options["user"]), now=clock())
        facts = {"question": str(answered.public_id), "status": answered.status}
        self.print(facts, "Answered. The run continues.", options)
