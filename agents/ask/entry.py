"""The one door for requests in words, from the API, the command, the control room and chats.

First the fast paths, which need no model; then the strategy that fits, unless the request is an order to pull a lever
that cannot be made out. Everything is decided here by rules: no model is asked before a session runs. Rules that break
decide nothing: the request is answered directly.
"""

import logging
import re
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import DatabaseError

from agents.ask.chat_answers import chat_at_work, chat_tell
from agents.ask.chats import MAX_CHARS, Way, chat_say
from agents.ask.classify import Strategy, classify
from agents.ask.fast_paths import FAST_PATHS, Scope, fast_answer, fast_answer_in_chat, scope_of
from agents.ask.naming import Answer, Asker, Kind
from agents.ask.near_misses import lever_missed
from agents.ask.strategies import CARRIED_OUT
from agents.exceptions import Invalid, LqopsError, NotAllowed
from agents.models import Agent, AgentSession
from agents.people.access import demand_start
from agents.triggers.trigger_fields import demand_owned

logger = logging.getLogger(__name__)

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
