"""The one door for requests in words, from the API, the command and the control room.

First the fast paths, which need no model; then the strategy that fits. Everything is decided here by rules: no model is
asked before a session runs.
"""

import re
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User

from agents.exceptions import Invalid, NotAllowed
from agents.models import Agent
from agents.router.answers import Answer, Asker
from agents.router.classify import classify
from agents.router.fast_paths import fast_answer
from agents.router.strategies import CARRIED_OUT
from agents.services.chats import MAX_CHARS
from agents.services.trigger_fields import demand_owned

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def ask(*, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None) -> Answer:
    """Answers a request, starts a session that does, or drafts what it asks for. Raises what the services raise."""
    if not by.is_active:
        raise NotAllowed(f"{by} is not active.")
    if not text.strip() or len(text) > MAX_CHARS:
        raise Invalid(f"A request has 1 to {MAX_CHARS} characters; this one has {len(text.strip())}.")
    if _UNSTORABLE.search(text):
        raise Invalid("A request with a NUL, or with half of a character, cannot be stored: leave it out.")
    demand_owned("agent", agent, by.pk)
    who = Asker(by, now, text, agent)
    answer = fast_answer(text, who)
    if answer is not None:
        return answer
    strategy = classify(text)
    return replace(CARRIED_OUT[strategy](who, chat), strategy=strategy)
