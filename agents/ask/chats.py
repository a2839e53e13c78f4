"""Chats with agents: each message is a session of its own in the conversation; its transcript has the answer."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of, loop_for
from agents.enums import Mode
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.ledger.boundary import demand_birth, demand_on
from agents.models import Agent, AgentSession
from agents.people.access import actor_of, demand_access
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_create, session_lock
from agents.sessions.transcripts import answers_of
from agents.triggers.trigger_fields import checked_cap, demand_owned
from audit import recorder
from audit.models import SYSTEM_CHAIN
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
    said = redact(text).strip()
    if not said or len(said) > MAX_CHARS:
        raise Invalid(f"A message has 1 to {MAX_CHARS} characters; this one has {len(said)}.")
    before = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    if chat and not before:
        raise NotFound(f"There is no chat {chat} of this user; leave it out to begin a new one.")
    spoken_to = demand_on(agent or (before[-1].agent if before else None))
    session = session_create(
        owner=owner,
        agent=spoken_to,
        mode=Mode.CHAT,
        max_cost_usd=checked_cap("max_cost_usd", max_cost_usd) if max_cost_usd is not None else _cap_of(spoken_to),
        token_budget=loop_for(spoken_to, {}).token_budget,
        params={"message": said, "way": str(way)},
        asked_by=actor_of(by),
        now=now,
    )
    session.params["chat"] = str(chat or session.public_id)
    if spoken_to is not None:
        session.params["key"] = f"agent:{spoken_to.public_id}:main"
    session.save(update_fields=["params"])
    if before:
        _demand_turn(session, before[0])
    _record(session, actor_of(by), now=now)
    return session


def _cap_of(agent: Agent | None) -> Decimal | None:
    return definition_of(agent).max_cost_usd if agent else None


def _demand_turn(session: AgentSession, first: AgentSession) -> None:
    """Of two messages at once the second waits here for the first, sees it, and is refused."""
    session_lock(first.pk)
    said = chat_sessions(owner_id=session.owner_id, chat=UUID(session.params["chat"]))
    _demand_answered([other for other in said if other.pk != session.pk])


def _demand_answered(said: list[AgentSession]) -> None:
    if any(session.status not in TERMINAL for session in said):
        raise InvalidTransition("The last message of this chat is still being answered; wait for it, or halt it.")


def demand_say(*, owner: User, agent: Agent | None, chat: UUID | None) -> None:
    """Refuses what `chat_say` would refuse as things stand, in the same order. Nothing is written."""
    before = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    demand_on(agent or (before[-1].agent if before else None))
    demand_birth(owner.pk)
    _demand_answered(before)


def _record(session: AgentSession, actor: str, *, now: datetime) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        "autonomous_trigger.run_now",
        now=now,
        actor=actor,
        subject=f"session:{session.public_id}",
        details={"session_id": str(session.public_id), "cap_usd": str(session.max_cost_usd)},
    )


def chat_sessions(*, owner_id: int, chat: UUID) -> list[AgentSession]:
    """The messages of a chat, in order."""
    rows = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.CHAT, params__chat=str(chat))
    return list(rows.select_related("agent").order_by("pk"))


def chat_answer(session: AgentSession) -> str:
    """What the agent said to the message of this session; empty while it has not, or could not."""
    return answers_of([session]).get(session.pk, "")
