"""The answer to a request, and the context in which it was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User

from agents.ask.strategies import Strategy
from agents.models import Agent, AgentSession


class Kind(StrEnum):
    """`answer`: complete. `session`: a run works on it. `draft`: something was created that is switched off."""

    ANSWER = "answer"
    SESSION = "session"
    DRAFT = "draft"


@dataclass(frozen=True)
class Answer:
    """`path` is the fast path that answered; without one, `strategy` says how the request is handled.

    `changed`: the request acted on something. Sent again, it would act again.
    """

    kind: Kind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    session: AgentSession | None = None
    strategy: Strategy | None = None
    path: str = ""
    changed: bool = False


@dataclass(frozen=True)
class AskContext:
    """Who sent the request, when, for which agent, with which API key, and what it may cost.

    `running` is the message of the chat that is being answered. In a `dry_run` nothing is done.
    """

    user: User
    now: datetime
    text: str
    agent: Agent | None = None
    key_id: str = ""
    max_cost_usd: Decimal | None = None
    in_chat: bool = False
    running: AgentSession | None = None
    dry_run: bool = False


def message(text: str, **data: Any) -> Answer:
    """An answer to a request that changed nothing."""
    return Answer(Kind.ANSWER, text, data)


def done(text: str, kind: Kind = Kind.ANSWER, **data: Any) -> Answer:
    """An answer to a request that acted; in a dry run, what it would do."""
    return Answer(kind, text, data, changed=True)


def drafted(text: str, **data: Any) -> Answer:
    return Answer(Kind.DRAFT, text, data)


def started(session: AgentSession, text: str) -> Answer:
    chat = session.params.get("chat")
    data = {"session": str(session.public_id), **({"chat": chat} if chat else {})}
    return Answer(Kind.SESSION, text, data, session)


def lines(head: str, rows: Sequence[str]) -> str:
    """A heading and one line for each row."""
    return "\n".join([head, *(f"- {row}" for row in rows)])


def listing(head: str, rows: Sequence[tuple[str, Any]], key: str, *, empty: str, **data: Any) -> Answer:
    """A list of rows, each given as its line and its data."""
    text = lines(head, [line for line, _ in rows]) if rows else empty
    return message(text, **data, **{key: [row for _, row in rows]})
