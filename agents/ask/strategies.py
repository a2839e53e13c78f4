"""What is done about a request that no fast path answers: a session that works on it, or a draft for its owner.

DIRECT_RESPONSE: a chat session. GOAL: a run that works towards it in steps, by the playbook or skill and over the
document or collection that the text names, if any; said in a chat, it is worked on there. SCRIPT: a chat session that
carries it out with callable skills. SCHEDULED_TASK and SUB_AGENT: a trigger or an agent that is switched off; nothing
here switches one on.
"""

import re
from collections.abc import Callable
from typing import Final
from uuid import UUID

from django.db import transaction

from agents.ask.chats import Way, chat_say, demand_say
from agents.ask.classify import Strategy
from agents.ask.language import Request, plain_words
from agents.ask.naming import Answer, Asker, Kind, at_work, drafted, would
from agents.ask.router_naming import names_in
from agents.ask.runs import GO_BY, READ, draft, run_towards, which_is_meant
from agents.ask.whens import when_of
from agents.definitions.loader import write_definition
from agents.enums import ApprovalMode
from agents.models import Agent, AgentSession
from agents.people.access import demand_start
from agents.roster.agents import NAME_CHARS, agent_create
from agents.roster.files import agent_define
from agents.text.clean import one_line
from audit.redaction import redact

_QUOTED: Final = r"[\"'\u201c\u2018`]([^\"'\u201d\u2019`\n]{1,120})[\"'\u201d\u2019`]"
_CALLED: Final = re.compile(rf"\b(?:called|named)\s(?:{_QUOTED}|([A-Z][\w-]*(?: [A-Z][\w-]*){{0,4}}|[\w-]+))")
_PURPOSE: Final = re.compile(
    r"\b(?:agent|assistant|bot|worker)s?\b\W{0,3}(?:that|which|who|to|for)\s([^.!?\n]{3,200})", re.IGNORECASE
)
_PURPOSE_WORDS: Final = 6
_MOST_TRIES: Final = 100
_UNSAID: Final = ["autonomy", "sensors", "triggers"]

Chat = UUID | None


def _direct(who: Asker, chat: Chat) -> Answer:
    if who.dry:
        return _would_say(who, chat, "Begins a chat session that answers.")
    session = _said(who, chat, Way.ANSWER)
    return at_work(session, f"Session {session.public_id} works on an answer.")


def _goal(who: Asker, chat: Chat) -> Answer:
    if chat is not None and who.dry:
        return _would_say(who, chat, "Begins a chat session that works towards this goal, step by step.")
    if chat is not None:
        session = _said(who, chat, Way.GOAL)
        return at_work(session, f"Session {session.public_id} works towards this goal, step by step.")
    names = names_in(_names_only(who.text), who.by, [*GO_BY, *READ])
    if len(names.of(*GO_BY)) > 1:
        return which_is_meant(names)
    return run_towards(who, names)


def _script(who: Asker, chat: Chat) -> Answer:
    if who.dry:
        return _would_say(who, chat, "Begins a chat session that carries this out with callable skills.")
    session = _said(who, chat, Way.SCRIPT)
    return at_work(session, f"Session {session.public_id} carries this out with callable skills.")


def _schedule(who: Asker, chat: Chat) -> Answer:
    request = _names_only(who.text)
    names = names_in(request, who.by, [*GO_BY, "collection"])
    return draft(when_of(who.text), names, who, request.without(names.places).said)


@transaction.atomic
def _sub_agent(who: Asker, chat: Chat) -> Answer:
    """An agent that is told what was asked for. What sets it off nobody can read out of a sentence: it is said so."""
    demand_start(who.by)
    name = _agent_name(who)
    if who.dry:
        return would(f"Drafts an agent, switched off: {name}.", Kind.DRAFT, missing=_UNSAID)
    agent = agent_create(owner=who.by, name=name, by=who.by, now=who.now, mode=ApprovalMode.SEMI, enabled=False)
    agent = agent_define(
        agent=agent, text=write_definition({"instructions": redact(who.text).strip()}), by=who.by, now=who.now
    )
    text = (
        f"Drafted, and switched off: agent {agent.name}, which asks before RESTRICTED calls. What you said is its "
        "instructions. Nothing sets it off yet but a chat: give it autonomy, a sensor or a trigger in its definition. "
        "It works only after you have switched it on: on its page in the admin, "
        f'PATCH /api/v1/agents/{agent.public_id} with {{"enabled": true}}, or by saying: resume agent {agent.name}'
    )
    return drafted(text, agent=str(agent.public_id), name=agent.name, mode=agent.mode, missing=_UNSAID)


CARRIED_OUT: Final[dict[Strategy, Callable[[Asker, Chat], Answer]]] = {
    Strategy.DIRECT_RESPONSE: _direct,
    Strategy.GOAL: _goal,
    Strategy.SCRIPT: _script,
    Strategy.SCHEDULED_TASK: _schedule,
    Strategy.SUB_AGENT: _sub_agent,
}


def _said(who: Asker, chat: Chat, way: Way) -> AgentSession:
    demand_start(who.by)
    return chat_say(owner=who.by, by=who.by, text=who.text, now=who.now, agent=who.agent, chat=chat, way=way)


def _would_say(who: Asker, chat: Chat, text: str) -> Answer:
    demand_start(who.by)
    demand_say(owner=who.by, agent=who.agent, chat=chat)
    return would(text, Kind.SESSION)


def _names_only(text: str) -> Request:
    """The first words of a text of any length, to look for names in."""
    return Request(text, plain_words(text))


def _agent_name(who: Asker) -> str:
    """The name that was given, or one from what it is for; a derived one that is taken gets a number."""
    text = redact(who.text)
    if called := _CALLED.search(text):
        return one_line(called[1] or called[2], NAME_CHARS)
    purpose = _PURPOSE.search(text)
    derived = " ".join(purpose[1].split()[:_PURPOSE_WORDS]).strip(" ,;:") if purpose else ""
    name = one_line(f"{derived[:1].upper()}{derived[1:]}" or f"Agent of {who.now:%Y-%m-%d %H:%M}", NAME_CHARS - 4)
    taken = set(Agent.objects.filter(owner=who.by, name__startswith=name).values_list("name", flat=True))
    tries = [name, *(f"{name} {number}" for number in range(2, _MOST_TRIES))]
    return next((one for one in tries if one not in taken), name)
