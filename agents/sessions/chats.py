"""Conversations and transcripts as people read them.

A chat is the sessions that name it, in order; it has the public id of the first of them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Max, Min, Q, QuerySet
from django.db.models.fields.json import KT

from agents.enums import ApprovalStatus, Mode, QuestionStatus, Status
from agents.models import AgentSession, Approval, Message, Question, StreamPart
from agents.policy.guardrails import joined
from agents.policy.transitions import TERMINAL

SHOWN_MESSAGES: Final = 200
SHOWN_ENTRIES: Final = 300
SHOWN_PARTS: Final = 500
_CALL: Final = re.compile(r"<skill>.*?(?:</skill>|\Z)|</?parallel>|</?[a-z]{0,8}\Z", re.DOTALL)
# What lqops itself wrote into a transcript: people do not see it unless they ask for it.
INTERNAL: Final = Q(role="system") | ~Q(reason="")


@dataclass(frozen=True)
class Conversation:
    """A chat in a list: how it began, where it stands."""

    id: UUID
    first: AgentSession
    last: AgentSession
    messages: int


@dataclass(frozen=True)
class Exchange:
    """One message and what came of it. `answer` is empty until the agent has said it.

    `calls` are the names of what the agent asked for, `called` of what was really done.
    """

    session: AgentSession
    message: str
    answer: str
    calls: tuple[str, ...]
    question: Question | None
    called: tuple[str, ...] = ()
    approvals: tuple[Approval, ...] = ()

    @property
    def asked_for(self) -> tuple[str, ...]:
        """Calls that wait, were refused or failed, by name."""
        return tuple((Counter(self.calls) - Counter(self.called)).elements())

    @property
    def is_open(self) -> bool:
        return self.session.status not in TERMINAL


@dataclass(frozen=True)
class Call:
    """What an agent asked to have done, and what came of it, if it is over."""

    name: str
    arguments: str
    result: Message | None


@dataclass(frozen=True)
class Transcript:
    """The latest part of a transcript, each call with its result. `earlier` was said before the run, and is quoted."""

    spoken: tuple["Spoken", ...]
    earlier: tuple[Message, ...]
    more_before: bool


@dataclass(frozen=True)
class Spoken:
    """An entry of a transcript with the calls that it asked for. lqops itself wrote what is `internal`."""

    entry: Message
    calls: tuple[Call, ...]
    internal: bool


def chats_of(owner_id: int) -> QuerySet[Any, Any]:
    """The chats of a person, the one that was last spoken in first; `conversations` makes them readable."""
    rows = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.CHAT).annotate(chat=KT("params__chat"))
    counted = rows.values("chat").annotate(first=Min("pk"), last=Max("pk"), number=Count("pk"))
    return counted.order_by("-last")


def conversations(rows: Iterable[dict[str, Any]]) -> list[Conversation]:
    found = list(rows)
    known = AgentSession.objects.select_related("agent").in_bulk(
        {row[end] for row in found for end in ("first", "last")}
    )
    return [Conversation(UUID(row["chat"]), known[row["first"]], known[row["last"]], row["number"]) for row in found]


def exchanges(owner_id: int, chat: UUID) -> tuple[list[Exchange], int]:
    """The latest messages of a chat in order, and how many came before them. None when the person has no such chat."""
    rows = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.CHAT, params__chat=str(chat))
    newest = list(rows.select_related("agent").order_by("-pk")[:SHOWN_MESSAGES])
    left_out = rows.count() - len(newest) if len(newest) == SHOWN_MESSAGES else 0
    answers, calls = answers_of(newest), _call_names(newest)
    asked = {question.session_id: question for question in questions_open(newest)}
    called, waiting = _call_names(newest, done=True), _approvals_open(newest)
    return [
        Exchange(
            one,
            one.params["message"],
            answers.get(one.pk, ""),
            calls.get(one.pk, ()),
            asked.get(one.pk),
            called.get(one.pk, ()),
            waiting.get(one.pk, ()),
        )
        for one in reversed(newest)
    ], left_out


def _approvals_open(sessions: Iterable[AgentSession]) -> dict[int, tuple[Approval, ...]]:
    """By session, the calls that wait for somebody's yes."""
    waiting = [one.pk for one in sessions if one.status == Status.WAITING]
    rows = Approval.objects.filter(session__in=waiting, status=ApprovalStatus.PENDING).order_by("session_id", "pk")
    return {pk: tuple(found) for pk, found in groupby(rows, key=lambda row: row.session_id)}


def questions_open(sessions: Iterable[AgentSession]) -> QuerySet[Question]:
    """What these sessions ask and nobody has answered, oldest first."""
    rows = Question.objects.filter(session__in=[one.pk for one in sessions], status=QuestionStatus.PENDING)
    return rows.select_related("session").order_by("asked_at", "pk")


def answers_of(sessions: Iterable[AgentSession]) -> dict[int, str]:
    """What the agent answered, by session: its last words, with the parts before them that were cut off."""
    done = [one.pk for one in sessions if one.status == Status.COMPLETED]
    ends = Q(role="assistant") & ~Q(stop="") | ~Q(reason="")
    rows = Message.objects.filter(ends, session__in=done).order_by("session_id", "seq")
    return {pk: _last_words(list(said)) for pk, said in groupby(rows, key=lambda row: row.session_id)}


def _last_words(said: Sequence[Message]) -> str:
    """Of replies, and what lqops said between them: pieces of one reply stand on both sides of a request to go on."""
    behind = sum(1 for _ in takewhile(lambda entry: entry.role != "assistant", reversed(said)))
    return joined(said[: len(said) - behind])


def _call_names(sessions: Iterable[AgentSession], *, done: bool = False) -> dict[int, tuple[str, ...]]:
    """By session, the names of the calls that were asked for; or only of those whose result is there, and no error."""
    said = Message.objects.filter(session__in=[one.pk for one in sessions])
    rows = said.filter(role="assistant").exclude(calls=[])
    results = set(said.filter(role="tool", failed=False).values_list("session_id", "call_id")) if done else set()
    names: dict[int, list[str]] = {}
    for pk, calls in rows.order_by("session_id", "seq").values_list("session_id", "calls"):
        counted = [str(call["name"]) for call in calls if not done or (pk, call["id"]) in results]
        names.setdefault(pk, []).extend(counted)
    return {pk: tuple(called) for pk, called in names.items()}


def without_calls(text: str) -> str:
    """What an agent writes without the tags of its calls, also of one that it has only begun to write."""
    return _CALL.sub("", text)


def written_so_far(session: AgentSession) -> tuple[str, int]:
    """What is being written at this moment, and the number of its last piece: the stream goes on after it."""
    said = Message.objects.filter(session=session).aggregate(last=Max("created_at"))["last"]
    parts = StreamPart.objects.filter(session=session).order_by("-pk").values_list("pk", "text", "created_at")
    newest = list(parts[:SHOWN_PARTS])
    text = "".join(text for _, text, at in reversed(newest) if said is None or at > said)
    return text, newest[0][0] if newest else 0


def transcript_shown(session: AgentSession) -> Transcript:
    newest = list(Message.objects.filter(session=session).order_by("-seq")[: SHOWN_ENTRIES + 1])
    entries = newest[:SHOWN_ENTRIES][::-1]
    earlier = _earlier(entries) if session.mode == Mode.CHAT else []
    results = {entry.call_id: entry for entry in entries if entry.role == "tool"}
    asked = {call["id"] for entry in entries for call in entry.calls}
    shown = [
        Spoken(entry, _calls(entry, results), entry.role == "system" or bool(entry.reason))
        for entry in entries
        if entry not in earlier and (entry.role != "tool" or entry.call_id not in asked)
    ]
    return Transcript(tuple(shown), tuple(earlier), more_before=len(newest) > SHOWN_ENTRIES)


def _earlier(entries: Sequence[Message]) -> list[Message]:
    """What a chat's run was told of the chat so far: all that stands before its own message, which comes last."""
    opening = list(takewhile(lambda entry: not entry.stop, entries))
    quoted = [entry for entry in opening if entry.role in {"user", "assistant"} and not entry.reason]
    return quoted[:-1]


def _calls(entry: Message, results: dict[str, Message]) -> tuple[Call, ...]:
    return tuple(Call(str(call["name"]), str(call["arguments"]), results.get(call["id"])) for call in entry.calls)
