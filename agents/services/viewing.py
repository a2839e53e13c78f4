"""Who looked at whose run. The owner's own look leaves nothing; anybody else's is on record."""

from datetime import datetime

from django.contrib.auth.models import User

from agents.models import AgentSession
from agents.services.actors import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN


def session_view(*, session: AgentSession, by: User, now: datetime) -> AgentSession:
    """Notes a look at a session by somebody other than its owner. In `system`: a chain that is over stays closed."""
    if by.pk != session.owner_id:
        recorder.append(
            SYSTEM_CHAIN,
            "session.viewed",
            now=now,
            actor=actor_of(by),
            subject=f"session:{session.public_id}",
            details={"session_id": str(session.public_id)},
        )
    return session
