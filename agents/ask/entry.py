"""The one door for requests in words, from the API, the command, the control room and chats.

First the fast paths, which need no model; then the strategy that fits, unless the request is an order to pull a lever
that cannot be made out. Everything is decided here by rules: no model is asked before a session runs. Rules that break
decide nothing: the request is answered directly.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction

from agents.ask.actions import GO_BY, READ, draft, run_towards, which_is_meant
from agents.ask.chats import MAX_CHARS, Way, chat_at_work, chat_say, chat_tell, demand_say
from agents.ask.fast_paths import FAST_PATHS, Scope, fast_answer, fast_answer_in_chat, lever_missed, scope_of
from agents.ask.language import Request, Strategy, classify, plain_words, when_of
from agents.ask.naming import Answer, Asker, Kind, at_work, drafted, names_in, would
from agents.definitions.loader import write_definition
from agents.enums import ApprovalMode
from agents.exceptions import Invalid, LqopsError, NotAllowed
from agents.models import Agent, AgentSession
from agents.people.access import demand_start
from agents.roster.agents import NAME_CHARS, agent_create
from agents.roster.files import agent_define
from agents.text.clean import one_line
from agents.triggers.triggers import demand_owned
from audit.redaction import redact

logger = logging.getLogger(__name__)


# What is done about a request that no fast path answers: a session that works on it, or a draft for its owner.
#
# DIRECT_RESPONSE: a chat session. GOAL: a run that works towards it in steps, by the playbook or skill and over the
# document or collection that the text names, if any; said in a chat, it is worked on there. SCRIPT: a chat session
# that carries it out with callable skills. SCHEDULED_TASK and SUB_AGENT: a trigger or an agent that is switched off;
# nothing here switches one on.


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


WAYS: Final = {Strategy.GOAL: Way.GOAL, Strategy.SCRIPT: Way.SCRIPT}
_LOOKS: Final = frozenset(path.name for path in FAST_PATHS if path.scope == "read")
_TO_A_MODEL: Final = frozenset({Strategy.DIRECT_RESPONSE, Strategy.GOAL})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def ask(
    *, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None, key_id: str = ""
) -> Answer:
    """Answers a request, starts a session that does, or drafts what it asks for. Raises what the services raise."""
    who = _asker(Asker(by, now, text, agent, key_id, in_chat=chat is not None), chat)
    decided = _decided(who)
    if isinstance(decided, Strategy):
        return replace(CARRIED_OUT[decided](who, chat), strategy=decided)
    if chat is not None:
        _keep(decided, who, chat)
    return decided


def ask_within(scope: Scope, *, text: str, by: User, now: datetime, key_id: str = "") -> Answer | None:
    """What a fast path of this scope answers; None if the request is for something else, of which nothing is done."""
    return fast_answer(text, _asker(Asker(by, now, text, key_id=key_id), None), within=scope)


def say(
    *,
    text: str,
    by: User,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
    max_cost_usd: Decimal | None = None,
    key_id: str = "",
) -> AgentSession:
    """A message to an agent: always a session in a chat, which is over at once when a fast path has answered.

    Nothing is drafted for a message that no fast path fits: how it is worked on is all that the strategy decides.
    """
    demand_start(by)
    who = _asker(Asker(by, now, text, agent, key_id, max_cost_usd=max_cost_usd, in_chat=True), chat)
    decided = _decided(who)
    if isinstance(decided, Answer):
        return _keep(decided, who, chat)
    way = WAYS.get(decided, Way.ANSWER)
    return chat_say(owner=by, by=by, text=text, now=now, agent=agent, chat=chat, max_cost_usd=max_cost_usd, way=way)


@dataclass(frozen=True)
class Route:
    """What a request would do. `lever`: it would change or start something; `refused` says why it would be refused."""

    kind: Kind
    text: str
    path: str = ""
    strategy: Strategy | None = None
    lever: bool = False
    scope: str = "read"
    missing: tuple[str, ...] = ()
    refused: str = ""


def route(*, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None) -> Route:
    """What `ask` would make of this text. Nothing is done, stored or recorded, and no model is asked."""
    who = replace(_asker(Asker(by, now, text, agent, in_chat=chat is not None), chat), dry=True)
    strategy: Strategy | None = None
    scope: Scope = scope_of(text, by)
    try:
        decided = _decided(who)
        if isinstance(decided, Strategy):
            strategy, decided = decided, CARRIED_OUT[decided](who, chat)
    except LqopsError as refusal:
        return Route(Kind.ANSWER, "Is refused.", strategy=strategy, scope=scope, refused=str(refusal))
    if scope == "read" and decided.path not in _LOOKS:
        scope = "write"
    looks = scope == "read" and not decided.changed
    return Route(
        kind=decided.kind,
        text="Looks, and answers at once." if looks else decided.text,
        path=decided.path,
        strategy=strategy,
        lever=decided.changed,
        scope=scope,
        missing=tuple(decided.data.get("missing", ())),
    )


def _asker(who: Asker, chat: UUID | None) -> Asker:
    """Who asks, once it is clear that they may and that the text, the agent and the chat can be what they are."""
    if not who.by.is_active:
        raise NotAllowed(f"{who.by} is not active.")
    if not who.text.strip() or len(who.text) > MAX_CHARS:
        raise Invalid(f"A request has 1 to {MAX_CHARS} characters; this one has {len(who.text.strip())}.")
    if _UNSTORABLE.search(who.text):
        raise Invalid("A request with a NUL, or with half of a character, cannot be stored: leave it out.")
    demand_owned("agent", who.agent, who.by.pk)
    return replace(who, at_work=chat_at_work(who.by, chat)) if chat else who


def _decided(who: Asker) -> Answer | Strategy:
    """What a fast path or a missed order answers, else the strategy. A fault of the rules is not the asker's."""
    answer = fast_answer_in_chat(who.text, who) if who.in_chat else fast_answer(who.text, who)
    if answer is not None:
        return answer
    try:
        strategy = classify(who.text)
        missed = lever_missed(who.text, who) if strategy in _TO_A_MODEL and not who.in_chat else None
    except (LqopsError, DatabaseError):
        raise
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE
    return strategy if missed is None else missed


def _keep(answer: Answer, who: Asker, chat: UUID | None) -> AgentSession:
    return chat_tell(
        owner=who.by, text=who.text, answer=answer.text, path=answer.path, now=who.now, agent=who.agent, chat=chat
    )
