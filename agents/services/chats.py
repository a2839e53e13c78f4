"""Chats with agents: each message is a session of its own in the conversation; its transcript has the answer."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import loop_defaults
from agents.enums import Mode, Status
from agents.exceptions import Invalid, InvalidTransition
from agents.loop_config import LoopConfig
from agents.models import Agent, AgentSession, Message
from agents.services.ownership import demand_access
from agents.services.sessions import session_create
from agents.services.trigger_fields import checked_cap, demand_owned
from agents.transitions import TERMINAL
from audit.redaction import redact

MAX_CHARS = 20_000


class Way(StrEnum):
    """How a message is worked on."""

    ANSWER = "answer"
    GOAL = "goal"
    SCRIPT = "script"


@transaction.atomic
def chat_say(
    *,
    owner: User,
    by: User | None,
    text: str,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
    max_cost_usd: Decimal | None = None,
    way: Way = Way.ANSWER,
) -> AgentSession:
    """A session that answers one message. Without a chat it begins a new one; in a chat, one message at a time."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    demand_owned("agent", agent, owner.pk)
    if agent is not None and not agent.enabled:
        raise Invalid(f"The agent {agent.name} is switched off: switch it on, or choose another.")
    said = redact(text).strip()
    if not said or len(said) > MAX_CHARS:
        raise Invalid(f"A message has 1 to {MAX_CHARS} characters; this one has {len(said)}.")
    before = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    if chat and not before:
        raise Invalid(f"There is no chat {chat} of this user; leave it out to begin a new one.")
    if any(session.status not in TERMINAL for session in before):
        raise InvalidTransition("The last message of this chat is still being answered; wait for it, or halt it.")
    session = session_create(
        owner=owner,
        agent=agent or (before[-1].agent if before else None),
        mode=Mode.CHAT,
        max_cost_usd=checked_cap("max_cost_usd", max_cost_usd),
        token_budget=LoopConfig.merged(loop_defaults()).token_budget,
        params={"message": said, "way": str(way)},
        now=now,
    )
    session.params["chat"] = str(chat or session.public_id)
    session.save(update_fields=["params"])
    return session


def chat_sessions(*, owner_id: int, chat: UUID) -> list[AgentSession]:
    """The messages of a chat, in order."""
    rows = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.CHAT, params__chat=str(chat))
    return list(rows.select_related("agent").order_by("pk"))


def chat_answer(session: AgentSession) -> str:
    """What the agent said to the message of this session; empty while it has not, or could not."""
    if session.status != Status.COMPLETED:
        return ""
    last = Message.objects.filter(session=session, role="assistant").order_by("-seq").first()
    return last.content if last else ""
