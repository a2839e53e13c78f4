"""Chats with agents. Each message is a session of its own; its transcript holds the answer.

A message that a fast path answered is a session that was over when it began: it costs nothing, no worker sees it, it
needs no opt-in, and it exists also while all work is halted. Streamed text is kept until the run is over; the
transcript stays.
"""

import time
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.conf import clock
from agents.definitions.in_force import definition_of, loop_for
from agents.enums import Mode, Phase, Status, TerminalReason
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.ledger.boundary import demand_birth, demand_on
from agents.models import Agent, AgentSession, StreamPart
from agents.people.access import actor_of, demand_access
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import session_finish
from agents.sessions.leases import session_birth
from agents.sessions.lifecycle import by_definition, session_create, session_lock
from agents.sessions.transcripts import Entry, answers_of, transcript_append
from agents.triggers.triggers import checked_cap, demand_owned
from agents.types import ZERO
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

MAX_CHARS = 20_000
# Sessions of messages that a fast path answered.
ANSWERED_AT_ONCE: Final = Q(mode=Mode.CHAT, params__has_key="path")


class Way(StrEnum):
    """How a message is worked on."""

    ANSWER = "answer"
    GOAL = "goal"
    SCRIPT = "script"


# --- Sending a message ---


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
    """Start a session that answers a message. A chat takes one message at a time; without one, a new chat begins."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    demand_owned("agent", agent, owner.pk)
    message = redact(text).strip()
    if not message or len(message) > MAX_CHARS:
        raise Invalid(f"A message has 1 to {MAX_CHARS} characters; this one has {len(message)}.")
    earlier = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    if chat and not earlier:
        raise NotFound(f"There is no chat {chat} of this user; leave it out to begin a new one.")
    agent = demand_on(_agent_of(agent, earlier))
    session = session_create(
        owner=owner,
        agent=agent,
        mode=Mode.CHAT,
        max_cost_usd=checked_cap("max_cost_usd", max_cost_usd) if max_cost_usd is not None else _cap_of(agent),
        token_budget=loop_for(agent, {}).token_budget,
        params={"message": message, "way": str(way)},
        asked_by=actor_of(by),
        now=now,
    )
    session.params["chat"] = str(chat or session.public_id)
    if agent is not None:
        session.params["key"] = f"agent:{agent.public_id}:main"
    session.save(update_fields=["params"])
    if earlier:
        _check_alone(session, earlier[0])
    recorder.append(
        SYSTEM_CHAIN,
        "autonomous_trigger.run_now",
        now=now,
        actor=actor_of(by),
        subject=f"session:{session.public_id}",
        details={"session_id": str(session.public_id), "cap_usd": str(session.max_cost_usd)},
    )
    return session


def require_can_send(*, owner: User, agent: Agent | None, chat: UUID | None) -> None:
    """Refuse what `chat_say` would refuse now, in the same order. Nothing is written."""
    earlier = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    demand_on(_agent_of(agent, earlier))
    demand_birth(owner.pk)
    _check_answered(earlier)


def _agent_of(agent: Agent | None, earlier: list[AgentSession]) -> Agent | None:
    """The agent that is asked for, else the one of the chat."""
    return agent or (earlier[-1].agent if earlier else None)


def _cap_of(agent: Agent | None) -> Decimal | None:
    return definition_of(agent).max_cost_usd if agent else None


def _check_alone(session: AgentSession, first: AgentSession) -> None:
    """Of two messages at once the second waits here for the first, sees it, and is refused."""
    session_lock(first.pk)
    messages = chat_sessions(owner_id=session.owner_id, chat=UUID(session.params["chat"]))
    _check_answered([other for other in messages if other.pk != session.pk])


def _check_answered(messages: list[AgentSession]) -> None:
    if any(session.status not in TERMINAL for session in messages):
        raise InvalidTransition("The last message of this chat is still being answered; wait for it, or halt it.")


@transaction.atomic
def chat_store_answer(
    *,
    owner: User,
    text: str,
    answer: str,
    path: str,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
) -> AgentSession:
    """Store a message that a fast path answered, with the path: the answer is not the agent's."""
    earlier = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    session = AgentSession.objects.create(
        owner=owner,
        **by_definition(_agent_of(agent, earlier)),
        mode=Mode.CHAT,
        status=Status.RUNNING,
        current_phase=Phase.TURN,
        max_cost_usd=ZERO,
        params={"message": redact(text).strip(), "way": str(Way.ANSWER), "path": path},
        metadata={"asked_by": actor_of(owner)},
        created_at=now,
        started_at=now,
        last_activity_at=now,
    )
    session.params["chat"] = str(chat or session.public_id)
    session.save(update_fields=["params"])
    recorder.append(session.chain, "autonomous_session.started", now=now, details=session_birth(session))
    entries = (Entry("user", session.params["message"]), Entry("assistant", redact(answer), stop="end_turn"))
    transcript_append(session, entries, now=now)
    return session_finish(session, TerminalReason.COMPLETED, now=now)


# --- Reading a chat ---


def chat_sessions(*, owner_id: int, chat: UUID) -> list[AgentSession]:
    """The messages of a chat, in order."""
    rows = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.CHAT, params__chat=str(chat))
    return list(rows.select_related("agent").order_by("pk"))


def chat_active_message(owner: User, chat: UUID) -> AgentSession | None:
    """The message of a chat that is being answered, if there is one."""
    messages = AgentSession.objects.filter(owner=owner, mode=Mode.CHAT, params__chat=str(chat))
    if not messages.exists():
        raise NotFound(f"There is no chat {chat} of this user; leave it out to begin a new one.")
    return messages.exclude(status__in=sorted(TERMINAL)).order_by("pk").first()


def chat_answer(session: AgentSession) -> str:
    """The answer to the message of this session; empty while there is none."""
    return answers_of([session]).get(session.pk, "")


# --- Streaming an answer ---


_WRITE_SECONDS: Final = 0.2
_MAX_PART_CHARS: Final = 2_000
_MAX_PARTS: Final = 500


class Stream:
    """Collects redacted pieces of text and stores them a few times a second."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._pieces: list[str] = []
        self._written_at = 0.0
        self._gap = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def hear(self, chunk: Any) -> None:
        """Take a piece of a reply. A later reply, or another attempt at this one, begins a new paragraph."""
        if chunk.text:
            self._pieces.append(f"{self._gap}{chunk.text}")
            self._gap = ""
        is_long = sum(map(len, self._pieces)) >= _MAX_PART_CHARS
        if chunk.finished or is_long or time.monotonic() - self._written_at >= _WRITE_SECONDS:
            self._write()
        if chunk.finished:
            self._gap = "\n\n"

    def _write(self) -> None:
        text = "".join(self._pieces)
        self._pieces = []
        self._written_at = time.monotonic()
        if text:
            StreamPart.objects.create(session=self._session, text=text, created_at=clock())


def stream_events(session: AgentSession, *, after: int = 0) -> list[dict[str, Any]]:
    """The pieces after this one. The last event of a run that is over, and only that, is `finished`.

    The status is read first, and left on the session: if the run is over by then, all its pieces are stored.
    """
    session.refresh_from_db(fields=["status", "waiting_on", "terminal_reason"])
    parts = StreamPart.objects.filter(session=session, pk__gt=after).order_by("pk")[:_MAX_PARTS]
    events: list[dict[str, Any]] = [{"id": part.pk, "text": part.text, "finished": False} for part in parts]
    if session.status in TERMINAL and len(events) < _MAX_PARTS:
        last = events[-1]["id"] if events else after
        events.append({"id": last, "text": "", "finished": True})
    return events
