"""Messages of a chat that were answered at once, by rules: kept in their place in the conversation, like any other.

Such a message is a session that was over when it began. It cost nothing, no worker saw it, no model was asked; so it
needs no opt-in, and there is one also while all work is halted.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.ask.chats import Way, chat_sessions
from agents.enums import Mode, Phase, Status, TerminalReason
from agents.exceptions import NotFound
from agents.models import Agent, AgentSession
from agents.people.access import actor_of
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import session_finish
from agents.sessions.leases import session_birth
from agents.sessions.lifecycle import by_definition
from agents.sessions.transcripts import Entry, transcript_append
from agents.types import ZERO
from audit import recorder
from audit.redaction import redact

# Sessions of such messages.
ANSWERED_AT_ONCE: Final = Q(mode=Mode.CHAT, params__has_key="path")


def chat_at_work(owner: User, chat: UUID) -> AgentSession | None:
    """The message of a chat that is being worked on, if one is. A chat of somebody else is not there."""
    said = AgentSession.objects.filter(owner=owner, mode=Mode.CHAT, params__chat=str(chat))
    if not said.exists():
        raise NotFound(f"There is no chat {chat} of this user; leave it out to begin a new one.")
    return said.exclude(status__in=sorted(TERMINAL)).order_by("pk").first()


@transaction.atomic
def chat_tell(
    *,
    owner: User,
    text: str,
    answer: str,
    path: str,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
) -> AgentSession:
    """Keeps a message and its answer. The path that answered is kept, too: nobody takes it for the agent's words."""
    before = chat_sessions(owner_id=owner.pk, chat=chat) if chat else []
    session = AgentSession.objects.create(
        owner=owner,
        **by_definition(agent or (before[-1].agent if before else None)),
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
    said = (Entry("user", session.params["message"]), Entry("assistant", redact(answer), stop="end_turn"))
    transcript_append(session, said, now=now)
    return session_finish(session, TerminalReason.COMPLETED, now=now)
