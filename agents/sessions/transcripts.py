"""Transcripts and chats: entries, stream parts, and notes on a run.

Entries are added by the worker that holds the session and never changed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, takewhile
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet

from agents.enums import ApprovalStatus, Mode, Outcome, QuestionStatus, RunResult, Status
from agents.ledger.prices import judges_within_budget
from agents.models import AgentSession, Approval, Message, Question, StreamPart
from agents.policy.guardrails import joined
from agents.policy.outcomes import outcome_text
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import held, session_note
from audit import recorder

GUARDRAILS = "guardrails"
ERROR_PREFIX: Final = "error: "  # of the result of a call that failed, as its model reads it
FAILED: Final = "failed"  # the outcome of a call before outcomes were stored with results


@dataclass(frozen=True)
class Entry:
    role: str
    content: str = ""
    calls: Sequence[Mapping[str, Any]] = field(default=())
    call_id: str = ""
    stop: str = ""
    reason: str = ""
    failed: bool = False
    outcome: str = ""


@transaction.atomic
def transcript_append(
    session: AgentSession,
    entries: Sequence[Entry],
    *,
    now: datetime,
    turn: int = 0,
    counters: Mapping[str, Any] | None = None,
) -> list[Message]:
    """Add entries together with the guardrails' counters."""
    row = held(session)
    last = Message.objects.filter(session=row).aggregate(last=Max("seq"))["last"] or 0
    added = Message.objects.bulk_create(
        Message(
            session=row,
            seq=last + place,
            turn=turn,
            role=entry.role,
            content=entry.content,
            calls=[dict(call) for call in entry.calls],
            call_id=entry.call_id,
            stop=entry.stop,
            reason=entry.reason,
            failed=entry.failed,
            outcome=entry.outcome,
            created_at=now,
        )
        for place, entry in enumerate(entries, 1)
    )
    if counters is not None:
        row.metadata[GUARDRAILS] = dict(counters)
        row.save(update_fields=["metadata"])
        session.metadata = row.metadata
    return added


def transcript_of(session: AgentSession, *, turn: int = 0) -> list[Message]:
    """Return the entries of one turn; runs without turns have all of theirs in turn 0."""
    return list(Message.objects.filter(session=session, turn=turn).order_by("seq"))


# --- Chats and transcripts as people read them ---
#
# A chat is the sessions that name it, in order; its id is the public id of the first.


SHOWN_MESSAGES: Final = 200
MOST_COUNTED_CHATS: Final = 300  # beyond those on the pages before: a list takes as long with any number of chats
SHOWN_ENTRIES: Final = 300
SHOWN_PARTS: Final = 500
_CALL: Final = re.compile(r"<skill>.*?(?:</skill>|\Z)|</?parallel>|</?[a-z]{0,8}\Z", re.DOTALL)
# Entries that lqops itself wrote; hidden unless asked for.
INTERNAL: Final = Q(role="system") | ~Q(reason="")


@dataclass(frozen=True)
class Conversation:
    """A chat in a list: how it began and its state."""

    id: UUID
    first: AgentSession
    last: AgentSession
    messages: int


@dataclass(frozen=True)
class RequestedCall:
    """A call that the agent requested: its outcome by its code, which is empty before it has one, and the error."""

    name: str
    outcome: str = ""
    error: str = ""

    @property
    def outcome_text(self) -> str:
        return outcome_text(self.outcome)


@dataclass(frozen=True)
class Exchange:
    """One message and its answer, which is empty until the agent has given it."""

    session: AgentSession
    message: str
    answer: str
    requests: tuple[RequestedCall, ...]
    question: Question | None
    approvals: tuple[Approval, ...] = ()

    @property
    def calls(self) -> list[str]:
        return [call.name for call in self.requests]

    @property
    def called(self) -> list[str]:
        """Return the names of calls that succeeded."""
        return [call.name for call in self.requests if call.outcome == Outcome.SUCCESS]

    @property
    def undone(self) -> list[RequestedCall]:
        """Return the calls that were refused or failed."""
        return [call for call in self.requests if call.outcome not in {"", Outcome.SUCCESS}]

    @property
    def without_result(self) -> list[str]:
        """Return the names of calls that wait for others, or were never made; not of those that need approval."""
        asked = {approval.action for approval in self.approvals}
        return [call.name for call in self.requests if not call.outcome and call.name not in asked]

    @property
    def is_open(self) -> bool:
        return self.session.status not in TERMINAL


def chats_of(owner_id: int) -> QuerySet[AgentSession]:
    """Return the last message of each of a person's chats, the most recent first.

    A page of them reads its own rows, where grouping all messages by their chat would read every one of them.
    `conversations` makes them readable.
    """
    messages = AgentSession.objects.chatted(owner_id)
    later = messages.filter(chat=OuterRef("chat"), pk__gt=OuterRef("pk"))
    return messages.filter(~Exists(later)).select_related("agent").order_by("-pk")


def chats_counted(owner_id: int, most: int) -> int:
    """Count a person's chats up to a number, in the order of the index, which has the messages of each together."""
    return AgentSession.objects.chatted(owner_id).order_by().values("chat").distinct()[:most].count()


def conversations(last_messages: Iterable[AgentSession]) -> list[Conversation]:
    found = {message.params["chat"]: message for message in last_messages}
    if not found:
        return []
    [owner_id] = {message.owner_id for message in found.values()}
    rows = AgentSession.objects.chatted(owner_id).filter(chat__in=found)
    counted = rows.values("chat").annotate(first=Min("pk"), number=Count("pk")).order_by("chat")
    known = {row["chat"]: row for row in counted}
    firsts = AgentSession.objects.select_related("agent").in_bulk({row["first"] for row in known.values()})
    return [
        Conversation(UUID(chat), firsts[known[chat]["first"]], last, known[chat]["number"])
        for chat, last in found.items()
    ]


def exchanges(owner_id: int, chat: UUID) -> tuple[list[Exchange], int]:
    """Return the latest messages of a chat in order, and how many came before. None if there is no such chat."""
    rows = AgentSession.objects.of_chat(owner_id, chat)
    newest = list(rows.select_related("agent").order_by("-pk")[:SHOWN_MESSAGES])
    left_out = rows.count() - len(newest) if len(newest) == SHOWN_MESSAGES else 0
    answers, requests, waiting = answers_of(newest), _requests(newest), _approvals_open(newest)
    questions = {question.session_id: question for question in questions_open(newest)}
    return [
        Exchange(
            session=one,
            message=one.params["message"],
            answer=answers.get(one.pk, ""),
            requests=requests.get(one.pk, ()),
            question=questions.get(one.pk),
            approvals=waiting.get(one.pk, ()),
        )
        for one in reversed(newest)
    ], left_out


def _approvals_open(sessions: Iterable[AgentSession]) -> dict[int, tuple[Approval, ...]]:
    """Return by session the calls that wait for approval."""
    waiting = [one.pk for one in sessions if one.status == Status.WAITING]
    rows = Approval.objects.filter(session__in=waiting, status=ApprovalStatus.PENDING).order_by("session_id", "pk")
    return {pk: tuple(found) for pk, found in groupby(rows, key=lambda row: row.session_id)}


def questions_open(sessions: Iterable[AgentSession]) -> QuerySet[Question]:
    """Return the open questions of these sessions, oldest first."""
    rows = Question.objects.filter(session__in=[one.pk for one in sessions], status=QuestionStatus.PENDING)
    return rows.select_related("session").order_by("asked_at", "pk")


def answers_of(sessions: Iterable[AgentSession]) -> dict[int, str]:
    """Return by session the agent's last answer, with the parts of it that were cut off before."""
    done = [one.pk for one in sessions if one.status == Status.COMPLETED]
    ends = Q(role="assistant") & ~Q(stop="") | ~Q(reason="")
    rows = Message.objects.filter(ends, session__in=done).order_by("session_id", "seq")
    return {pk: _last_words(list(entries)) for pk, entries in groupby(rows, key=lambda row: row.session_id)}


def _last_words(entries: Sequence[Message]) -> str:
    """Join the pieces of the last reply; a request of lqops to go on may stand between them."""
    behind = sum(1 for _ in takewhile(lambda entry: entry.role != "assistant", reversed(entries)))
    return joined(entries[: len(entries) - behind])


def _requests(sessions: Iterable[AgentSession]) -> dict[int, tuple[RequestedCall, ...]]:
    """Return by session the requested calls."""
    entries = Message.objects.filter(session__in=[one.pk for one in sessions]).order_by("session_id", "seq")
    done = entries.filter(role="tool", failed=False).values_list("session_id", "call_id")
    results = dict.fromkeys(done, (str(Outcome.SUCCESS), ""))
    undone = entries.filter(role="tool", failed=True).values_list("session_id", "call_id", "outcome", "content")
    for pk, call_id, outcome, content in undone:
        results[pk, call_id] = (outcome or FAILED, content.removeprefix(ERROR_PREFIX))
    rows = entries.filter(role="assistant").exclude(calls=[]).values_list("session_id", "calls")
    return {
        pk: tuple(
            RequestedCall(str(call["name"]), *results.get((pk, call["id"]), ())) for _, calls in found for call in calls
        )
        for pk, found in groupby(rows, key=lambda row: row[0])
    }


def without_calls(text: str) -> str:
    """Strip the tags of calls, also of one that is still being written."""
    return _CALL.sub("", text)


def written_so_far(session: AgentSession) -> tuple[str, int]:
    """Return the reply being written, and the number of its last part: the stream goes on after it."""
    last = Message.objects.filter(session=session).aggregate(last=Max("created_at"))["last"]
    parts = StreamPart.objects.filter(session=session).order_by("-pk").values_list("pk", "text", "created_at")
    newest = list(parts[:SHOWN_PARTS])
    text = "".join(text for _, text, at in reversed(newest) if last is None or at > last)
    return text, newest[0][0] if newest else 0


def transcript_shown(session: AgentSession) -> dict[str, Any]:
    """Return the latest part of a transcript for its page: `spoken`, each with its calls and their results.

    `earlier` is quoted from before the run. `internal` entries were written by lqops.
    """
    newest = list(Message.objects.filter(session=session).order_by("-seq")[: SHOWN_ENTRIES + 1])
    entries = newest[:SHOWN_ENTRIES][::-1]
    earlier = _earlier(entries) if session.mode == Mode.CHAT else []
    results = {entry.call_id: entry for entry in entries if entry.role == "tool"}
    requested = {call["id"] for entry in entries for call in entry.calls}
    spoken = [
        {
            "entry": entry,
            "calls": [_call_shown(call, results.get(call["id"])) for call in entry.calls],
            "internal": entry.role == "system" or bool(entry.reason),
        }
        for entry in entries
        if entry not in earlier and (entry.role != "tool" or entry.call_id not in requested)
    ]
    return {"spoken": spoken, "earlier": earlier, "more_before": len(newest) > SHOWN_ENTRIES}


def _call_shown(call: Mapping[str, Any], result: Message | None) -> dict[str, Any]:
    refused = outcome_text(result.outcome or FAILED) if result is not None and result.failed else ""
    return {**call, "result": result, "failed": refused}


def _earlier(entries: Sequence[Message]) -> list[Message]:
    """Return what a chat's run was given of the chat: everything before its own message, which comes last."""
    opening = list(takewhile(lambda entry: not entry.stop, entries))
    quoted = [entry for entry in opening if entry.role in {"user", "assistant"} and not entry.reason]
    return quoted[:-1]


# --- Notes on a run's row: inputs, judges, its name, waits, whether it found anything ---
#
# Every write is fenced like any write of a worker. A note that stands is not made again.


@dataclass(frozen=True)
class Inputs:
    """Ids and versions of what went into a prompt; never its text. Empty means not read."""

    context_version: int | None = None
    project_id: str = ""
    memory_ids: tuple[str, ...] = ()
    precedent_ids: tuple[str, ...] = ()
    playbook_id: str = ""
    playbook_version: int | None = None
    playbook_digest: str = ""
    skill_id: str = ""
    skill_version: int | None = None
    skill_digest: str = ""
    goal_digest: str = ""

    def details(self) -> dict[str, Any]:
        given = {name: value for name, value in vars(self).items() if value not in (None, "", ())}
        given |= {"precedent_ids": list(self.precedent_ids)} if self.precedent_ids else {}
        return {**given, "memory_ids": list(self.memory_ids), "memories": len(self.memory_ids)}


@transaction.atomic(savepoint=False)
def note_inputs(session: AgentSession, inputs: Inputs, *, now: datetime, **notes: Any) -> None:
    """Record what the run reads before it asks; again only if it reads something else, as the next turn of a loop.

    Other notes are written with it.
    """
    details = inputs.details()
    if session.metadata.get("inputs") == details:
        session_note_new(session, notes)
        return
    session_note(session, {**notes, "inputs": details}, context_version=inputs.context_version)
    recorder.append(session.chain, "session.inputs", now=now, details=details)


def session_note_new(session: AgentSession, notes: Mapping[str, Any]) -> None:
    """Write notes to the held row, unless they stand there already."""
    if session.metadata != {**session.metadata, **notes}:
        session_note(session, notes)


@transaction.atomic(savepoint=False)
def _note(session: AgentSession, notes_for: Callable[[AgentSession], Mapping[str, Any]]) -> dict[str, Any]:
    """Write notes that depend on those of the held row, unless they stand there already; return all its notes."""
    row = held(session)
    notes = {**row.metadata, **notes_for(row)}
    if row.metadata != notes:
        row.metadata = notes
        row.save(update_fields=["metadata"])
    session.metadata = notes
    return notes


def session_note_judges(
    session: AgentSession, *, citations: int, judges: Sequence[str], now: datetime
) -> tuple[str, ...]:
    """Choose the judges of this run once: estimates move, and a resumed run must ask the same ones."""

    def choose(row: AgentSession) -> dict[str, Any]:
        if "judges" in row.metadata:
            return {}
        return {"judges": list(judges_within_budget(citations=citations, judges=judges, now=now, chain=row.chain))}

    return tuple(_note(session, choose)["judges"])


def session_note_wait(session: AgentSession) -> int:
    """Count the run's waits for money that other calls hold."""
    return int(_note(session, lambda row: {"waits": int(row.metadata.get("waits", 0)) + 1})["waits"])


READING: Final = "reading"


def result_notes(result: RunResult, reason: str, *, empty: bool, fault: str = "") -> dict[str, Any]:
    """Return the notes on what came of the run: in words; if it found nothing; which fault kept it from its work."""
    return {"result": str(result), "reason": reason, "empty": empty, **({"fault": fault} if fault else {})}


# --- Stream parts: removed when their run is over ---


def parts_delete_old(older_than: datetime) -> int:
    """Delete the stream parts of runs that are over."""
    over = StreamPart.objects.filter(session__status__in=sorted(TERMINAL), created_at__lte=older_than)
    return over.delete()[0]
