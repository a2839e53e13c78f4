"""`ask`: a request in words, answered at once, by a session, or with a draft."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.urls import reverse

from agents.ask.answers import Answer
from agents.ask.chats import chat_answer
from agents.ask.entry import Route, ask, route
from agents.ask.naming import short
from agents.conf import base_url, clock
from agents.enums import Mode, Status
from agents.exceptions import LqopsError
from agents.management.base import await_end, ended_as, findings_told, incomplete, named_user, wait_time
from agents.models import Agent, AgentSession
from agents.policy.transitions import TERMINAL
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Asks for something in words. Common requests are answered at once, without a model (`ask help` lists them); "
        "others become a session, which needs workers, or a draft that stays switched off until it is switched on."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", help="What is wanted, in one argument.")
        parser.add_argument("--user", required=True, help="The username of the one who asks.")
        parser.add_argument("--agent", help="The name or the public id of one of the user's agents, to work on it.")
        parser.add_argument("--chat", help="The id of a chat of the user's: goes on with it.")
        parser.add_argument("--wait", type=wait_time, metavar="SECONDS", help="Waits so long for its end.")
        parser.add_argument("--dry-run", action="store_true", help="Says what it would do, and does nothing.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of text.")

    def handle(self, *args: Any, **options: Any) -> None:
        by = named_user(options["user"])
        chat = _uuid(options["chat"]) if options["chat"] else None
        agent = _agent(by.pk, options["agent"]) if options["agent"] else None
        given = {"text": options["text"], "by": by, "now": clock(), "agent": agent, "chat": chat}
        try:
            if options["dry_run"]:
                self._tell(route(**given), as_json=options["json"])
                return
            answer = ask(**given)
        except LqopsError as error:
            raise CommandError(str(error)) from None
        session = answer.session
        if session is not None:
            session.refresh_from_db()
            await_end(session, options["wait"] or 0)
        self.stdout.write(json.dumps(_described(answer)) if options["json"] else _told(answer))
        if session is not None and options["wait"] is not None and session.status != Status.COMPLETED:
            raise CommandError(f"The session {incomplete(session)}")

    def _tell(self, found: Route, *, as_json: bool) -> None:
        by = found.path or found.strategy or "nobody"
        text = "\n".join(filter(None, [f"{by}: {found.text}", found.refused]))
        self.stdout.write(json.dumps(asdict(found)) if as_json else text)


def _described(answer: Answer) -> dict[str, Any]:
    session = answer.session
    ended = {"status": session.status, "answer": _said(session)} if session else {}
    return {
        "kind": answer.kind,
        "path": answer.path,
        "strategy": answer.strategy,
        "text": answer.text,
        "data": dict(answer.data),
        **ended,
    }


def _told(answer: Answer) -> str:
    session = answer.session
    if session is None:
        return answer.text
    if session.status not in TERMINAL:
        return f"{answer.text}\n{_where(session)}"
    return "\n".join(filter(None, [f"Session {session.public_id}: {ended_as(session)}.", _said(session)]))


def _where(session: AgentSession) -> str:
    """Where its answer is to be seen: a chat on its page, any other run on that of the session."""
    if session.mode == Mode.CHAT:
        page = reverse("admin:chat", args=[session.params["chat"]])
    else:
        page = reverse("admin:agents_agentsession_change", args=[session.pk])
    asked = f'manage.py ask "show receipt {short(session)}" --user {session.owner.get_username()}'
    return f"See it at {base_url()}{page}; `{asked}` tells what it did. With --wait SECONDS the answer is printed here."


def _said(session: AgentSession) -> str:
    """What a chat answered, or what a run found."""
    if session.mode == Mode.CHAT:
        return chat_answer(session)
    return findings_told(session)


def _agent(owner_pk: int, named: str) -> Agent:
    mine, public_id = Agent.objects.filter(owner_id=owner_pk), _uuid_or_none(named)
    agent = mine.filter(name=named).first() or (mine.filter(public_id=public_id).first() if public_id else None)
    if agent is None:
        raise CommandError(f"There is no agent {named!r} of this user.")
    return agent


def _uuid(text: str) -> UUID:
    found = _uuid_or_none(text)
    if found is None:
        raise CommandError(f"{text!r} is not the id of a chat; it looks like 4554cdd9-….")
    return found


def _uuid_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
