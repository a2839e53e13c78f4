"""What comes back to whoever asked, and who that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User

from agents.ask.classify import Strategy
from agents.models import Agent, AgentSession


class Kind(StrEnum):
    """`answer`: all is said. `session`: a session works on it. `draft`: something was made that is not in use yet."""

    ANSWER = "answer"
    SESSION = "session"
    DRAFT = "draft"


@dataclass(frozen=True)
class Answer:
    """`path` names the fast path that answered; without one, `strategy` is what was decided on.

    `changed`: a lever was pulled; asked again, it would be pulled again.
    """

    kind: Kind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None
    strategy: Strategy | None = None
    path: str = ""
    changed: bool = False


@dataclass(frozen=True)
class Asker:
    """The person who asks, when, in which words, for which agent, by which API key, if by one, and what it may cost.

    In a chat, `at_work` is the message that is being worked on. `dry`: nothing is to be done, only said what would be.
    """

    by: User
    now: datetime
    text: str
    agent: Agent | None = None
    key_id: str = ""
    max_cost_usd: Decimal | None = None
    in_chat: bool = False
    at_work: AgentSession | None = None
    dry: bool = False


def told(text: str, **data: Any) -> Answer:
    return Answer(Kind.ANSWER, text, data)


def done(text: str, **data: Any) -> Answer:
    return Answer(Kind.ANSWER, text, data, changed=True)


def would(text: str, kind: Kind = Kind.ANSWER, **data: Any) -> Answer:
    """What would be done, said instead of doing it."""
    return Answer(kind, text, data, changed=True)


def at_work(session: AgentSession, text: str) -> Answer:
    chat = session.params.get("chat")
    data = {"session": str(session.public_id), **({"chat": chat} if chat else {})}
    return Answer(Kind.SESSION, text, data, session)


def drafted(text: str, **data: Any) -> Answer:
    return Answer(Kind.DRAFT, text, data)


def lines(head: str, rows: Sequence[str], *, empty: str = "") -> str:
    """A heading and a line for each; or the word for nothing."""
    return "\n".join([head, *(f"- {row}" for row in rows)]) if rows or not empty else empty


def heading(count: int, noun: str, more: str = "", *, most: int) -> str:
    kept = f"; at most {most} are shown" if count > most else ""
    return f"{count} {noun}{'' if count == 1 else 's'}{more}{kept}:"
