"""`ask`: a question or a request in plain language. It changes nothing: it prints the command that would."""

import shlex
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.urls import reverse

from agents.ask.chats import Way, chat_answer
from agents.ask.console import links_of, proposals_for, proposals_of
from agents.ask.entry import ask
from agents.ask.naming import Answer, short_id
from agents.ask.proposals import Proposal, confirm
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
        "A question or a request in plain language. Common requests are answered at once, without a model (`ask help` "
        "lists them); questions go to the console, as a session, which needs workers. Nothing is changed by asking: "
        "for what you want changed it prints the command to run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", nargs="?", help="The request, in one argument.")
        parser.add_argument("--user", required=True, help="The username of the person who asks.")
        parser.add_argument("--agent", help=f"Sends it to this agent of the user instead. {AGENT_HELP}")
        parser.add_argument("--chat", type=UUID, help="Continues this chat of the user.")
        parser.add_argument("--wait", type=wait_time, metavar="SECONDS", help="Waits for the end of the session.")
        parser.add_argument("--no-model", action="store_true", help="Asks no model, so it costs nothing.")
        parser.add_argument("--confirm", metavar="TOKEN", help="Does what a proposal says, by the token it printed.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        by = named_user(options["user"])
        if (options["text"] is None) == (options["confirm"] is None):
            raise CommandError("Give a request, or --confirm with a token: one of the two.", returncode=2)
        if options["confirm"] is not None:
            done = confirm(options["confirm"], by=by, now=clock())
            self.print({"text": done.text, "data": dict(done.data)}, done.text, options)
            return
        agent = row_named(Agent, options["agent"], owner=by) if options["agent"] else None
        request = {"text": options["text"], "by": by, "now": clock(), "agent": agent, "chat": options["chat"]}
        answer = ask(**request, model=not options["no_model"])
        session = answer.session
        if session is not None:
            session.refresh_from_db()
            await_end(session, options["wait"] or 0)
        proposals = _proposals(answer, by)
        self.print(_facts(answer, proposals), _text(answer, proposals, by.get_username()), options)
        if session is not None and options["wait"] is not None:
            require_result(session, "The session")


def _proposals(answer: Answer, by: User) -> list[Proposal]:
    if answer.session is None:
        return proposals_for([("", one) for one in answer.wanted], by)
    return proposals_of(answer.session, by) if answer.session.status in TERMINAL else []


def _command(proposal: Proposal, by: str) -> str:
    """What to type for it: its own command, or the confirmation of its token."""
    return proposal.command or f"manage.py ask --confirm {proposal.token} --user {shlex.quote(by)}"


def _proposal_text(proposal: Proposal, by: str) -> str:
    if proposal.refused:
        return f"{proposal.label}: {proposal.refused}"
    lines = [f"{proposal.label}: {proposal.text}", *(f"  {line}" for line in proposal.details)]
    return "\n".join([*lines, f"  To do it, run: {_command(proposal, by)}"])


def _facts(answer: Answer, proposals: list[Proposal]) -> dict[str, Any]:
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
        "proposals": [
            {"action": one.action, "text": one.text, "refused": one.refused, "token": one.token} for one in proposals
        ],
        **ended,
    }


def _text(answer: Answer, proposals: list[Proposal], by: str) -> str:
    session = answer.session
    if session is not None and session.status not in TERMINAL:
        return f"{answer.text}\n{_where(session)}"
    parts = [answer.text]
    if session is not None:
        parts = [f"Run {session.public_id}: {ended_as(session)}.", _answer_text(session), _rows_text(session)]
    return "\n".join(filter(None, [*parts, *(_proposal_text(one, by) for one in proposals)]))


def _where(session: AgentSession) -> str:
    """Where to read the answer: the page of the chat, or of the session."""
    if session.mode == Mode.CHAT:
        page = reverse("admin:chat", args=[session.params["chat"]])
    else:
        page = reverse("admin:agents_agentsession_change", args=[session.pk])
    receipt = f'manage.py ask "receipt {short_id(session)}" --user {session.owner.get_username()}'
    where = f"See it at {base_url()}{page}; `{receipt}` prints its receipt."
    return f"{where} With --wait SECONDS the answer is printed here."


def _answer_text(session: AgentSession) -> str:
    """The answer of a chat, or the findings of a run."""
    if session.mode == Mode.CHAT:
        return chat_answer(session)
    return findings_text(session)


def _rows_text(session: AgentSession) -> str:
    """The rows that an answer of the console is about."""
    if session.mode != Mode.CHAT or session.params.get("way") != Way.CONSOLE:
        return ""
    found = links_of(session, chat_answer(session), session.owner)
    return "\n".join(f"- {link.kind} {link.name} ({link.ref})" for link in found)
