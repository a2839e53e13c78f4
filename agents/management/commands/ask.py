"""`ask`: a request in plain language, answered at once, by a session, or with a draft."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.urls import reverse

from agents.ask.chats import chat_answer
from agents.ask.entry import Route, ask, route
from agents.ask.naming import Answer, short_id
from agents.conf import base_url, clock
from agents.enums import Mode
from agents.management.base import (
    AGENT_HELP,
    JsonCommand,
    await_end,
    ended_as,
    findings_text,
    named_user,
    require_result,
    row_named,
    wait_time,
)
from agents.models import Agent, AgentSession
from agents.policy.transitions import TERMINAL


class Command(JsonCommand):
    help = (
        "A request in plain language. Common requests are answered at once, without a model (`ask help` lists them). "
        "Others become a session, which needs workers, or a draft that stays disabled until it is enabled."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", help="The request, in one argument.")
        parser.add_argument("--user", required=True, help="The username of the person who asks.")
        parser.add_argument("--agent", help=f"The agent of this user that works on it. {AGENT_HELP}")
        parser.add_argument("--chat", type=UUID, help="Continues this chat of the user.")
        parser.add_argument("--wait", type=wait_time, metavar="SECONDS", help="Waits for the end of the session.")
        parser.add_argument("--dry-run", action="store_true", help="Prints what it would do, and does nothing.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        by = named_user(options["user"])
        agent = row_named(Agent, options["agent"], owner=by) if options["agent"] else None
        request = {"text": options["text"], "by": by, "now": clock(), "agent": agent, "chat": options["chat"]}
        if options["dry_run"]:
            found = route(**request)
            self.print(asdict(found), _route_text(found), options)
            return
        answer = ask(**request)
        session = answer.session
        if session is not None:
            session.refresh_from_db()
            await_end(session, options["wait"] or 0)
        self.print(_facts(answer), _text(answer), options)
        if session is not None and options["wait"] is not None:
            require_result(session, "The session")


def _route_text(found: Route) -> str:
    by = found.path or found.strategy or "nobody"
    return "\n".join(filter(None, [f"{by}: {found.text}", found.refused]))


def _facts(answer: Answer) -> dict[str, Any]:
    session = answer.session
    ended = (
        {
            "status": session.status,
            "result": session.run_result,
            "result_reason": session.result_reason,
            "answer": _answer_text(session),
        }
        if session
        else {}
    )
    return {
        "kind": answer.kind,
        "path": answer.path,
        "strategy": answer.strategy,
        "text": answer.text,
        "data": dict(answer.data),
        **ended,
    }


def _text(answer: Answer) -> str:
    session = answer.session
    if session is None:
        return answer.text
    if session.status not in TERMINAL:
        return f"{answer.text}\n{_where(session)}"
    return "\n".join(filter(None, [f"Session {session.public_id}: {ended_as(session)}.", _answer_text(session)]))


def _where(session: AgentSession) -> str:
    """Where to read the answer: the page of the chat, or of the session."""
    if session.mode == Mode.CHAT:
        page = reverse("admin:chat", args=[session.params["chat"]])
    else:
        page = reverse("admin:agents_agentsession_change", args=[session.pk])
    receipt = f'manage.py ask "show receipt {short_id(session)}" --user {session.owner.get_username()}'
    where = f"See it at {base_url()}{page}; `{receipt}` prints its receipt."
    return f"{where} With --wait SECONDS the answer is printed here."


def _answer_text(session: AgentSession) -> str:
    """The answer of a chat, or the findings of a run."""
    if session.mode == Mode.CHAT:
        return chat_answer(session)
    return findings_text(session)
