"""The one door for requests in words, from the API, the command and the control room.

First the fast paths, which need no model; then the strategy that fits, unless the request is an order to pull a lever
that cannot be made out. Everything is decided here by rules: no model is asked before a session runs.
"""

import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User

from agents.exceptions import Invalid, NotAllowed
from agents.models import Agent, AgentSession
from agents.router.answers import Answer, Asker
from agents.router.classify import Strategy, classify
from agents.router.fast_paths import fast_answer
from agents.router.near_misses import lever_missed
from agents.router.strategies import CARRIED_OUT
from agents.services.chats import MAX_CHARS, Way, chat_say
from agents.services.ownership import demand_start
from agents.services.trigger_fields import demand_owned

WAYS: Final = {Strategy.GOAL: Way.GOAL, Strategy.SCRIPT: Way.SCRIPT}
_TO_A_MODEL: Final = frozenset({Strategy.DIRECT_RESPONSE, Strategy.GOAL})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def ask(
    *, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None, key_id: str = ""
) -> Answer:
    """Answers a request, starts a session that does, or drafts what it asks for. Raises what the services raise."""
    if not by.is_active:
        raise NotAllowed(f"{by} is not active.")
    if not text.strip() or len(text) > MAX_CHARS:
        raise Invalid(f"A request has 1 to {MAX_CHARS} characters; this one has {len(text.strip())}.")
    if _UNSTORABLE.search(text):
        raise Invalid("A request with a NUL, or with half of a character, cannot be stored: leave it out.")
    demand_owned("agent", agent, by.pk)
    who = Asker(by, now, text, agent, key_id)
    answer = fast_answer(text, who)
    if answer is not None:
        return answer
    strategy = classify(text)
    if strategy in _TO_A_MODEL and chat is None and (missed := lever_missed(text, who)) is not None:
        return missed
    return replace(CARRIED_OUT[strategy](who, chat), strategy=strategy)


def say(
    *,
    text: str,
    by: User,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
    max_cost_usd: Decimal | None = None,
) -> AgentSession:
    """A message to an agent: always a session in a chat. How it is worked on is decided by the same rules."""
    demand_start(by)
    way = WAYS.get(classify(text), Way.ANSWER)
    return chat_say(owner=by, by=by, text=text, now=now, agent=agent, chat=chat, max_cost_usd=max_cost_usd, way=way)
