"""Turns of a loop: opened, begun, skipped, closed. Each step is one transaction of the worker that holds the session,
so a turn, the pace that the loop remembers and what is told of them stand together or not at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from agents.definitions.in_force import definition_of, pace_of
from agents.enums import EventKind, Mode, Outcome, Status, TurnState
from agents.loop.alerts import alert_push, alerts_clear
from agents.loop.reads import loop_current
from agents.models import AgentSession, Alert, Message, ToolCall, Turn
from agents.people.activity import event_emit
from agents.policy.guardrails import Counters
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import CHAT_MESSAGE, HEARD, WAKES, held, session_lock, wakes_for
from agents.sessions.transcripts import GUARDRAILS
from agents.types import ZERO

PACE: Final = "loop"  # in a session's metadata: what the loop remembers between turns
REASON_CHARS: Final = 2_000
KEPT: Final = timedelta(days=90)
FORGOTTEN_AT_ONCE: Final = 5_000
MOST_HEARD: Final = 100


@dataclass(frozen=True)
class Memory:
    """What a loop remembers from now on: its pace, and which alerts end the sleep that follows."""

    pace: Mapping[str, Any]
    wakes: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """One call of a turn, as its account needs it."""

    pk: int
    key: str
    name: str
    outcome: str
    tokens: int
    charged_usd: Decimal
    started_at: datetime
    settled_at: datetime | None

    @property
    def ok(self) -> bool:
        return self.outcome == Outcome.SUCCESS


def turn_latest(session: AgentSession) -> Turn | None:
    return Turn.objects.filter(session=session).order_by("-number").first()


def turn_last_done(session: AgentSession) -> Turn | None:
    """The last one that ran to its end."""
    return Turn.objects.filter(session=session, state=TurnState.DONE).order_by("-number").first()


def turn_has_begun(session: AgentSession, turn: Turn) -> bool:
    """Something of it stands in the transcript. Turns are written one after the other."""
    last = Message.objects.filter(session=session).order_by("-seq").values_list("turn", flat=True).first()
    return last == turn.number


def calls_since(session: AgentSession, after: int) -> list[Done]:
    """The calls of a session behind one of them, in order; the rest of a long session is not read."""
    columns = ("pk", "key", "name", "outcome", "tokens", "charged_usd", "started_at", "settled_at")
    rows = ToolCall.objects.filter(session_id=session.pk, pk__gt=after).order_by("pk")
    return [Done(*values) for values in rows.values_list(*columns)]


@transaction.atomic
def turn_open(session: AgentSession, *, memory: Memory, after_sleep: bool, now: datetime) -> Turn:
    """The next turn. After a sleep what the guardrails count per stretch begins anew."""
    row = held(session)
    last = turn_latest(row)
    if after_sleep:
        row.metadata[GUARDRAILS] = Counters.from_json(row.metadata.get(GUARDRAILS)).awake().to_json()
    _remember(session, row, memory)
    return Turn.objects.create(session=row, number=last.number + 1 if last else 1, started_at=now)


@transaction.atomic
def turn_begin(session: AgentSession, turn: Turn, *, seen: Mapping[str, Any], now: datetime) -> None:
    """The gate is open and the model is about to be asked: what it is shown and the text that it goes by to its end are
    noted, and those who watch are told."""
    held(session)
    first = not turn.seen
    turn.seen, turn.definition = dict(seen), session.agent.definition if session.agent else ""
    turn.save(update_fields=["seen", "definition"])
    if first:
        fields = {name: field["value"] for name, field in seen.get("fields", {}).items()}
        told: dict[str, Any] = {"hot_state": fields, "alerts": [alert["name"] for alert in seen.get("alerts", ())]}
        event_emit(EventKind.TURN_STARTED, session=session, now=now, turn=turn.number, **told)


@transaction.atomic
def turn_skip(
    session: AgentSession, turn: Turn, *, cause: str, calls: Sequence[Done], memory: Memory, now: datetime
) -> None:
    """The gate found nothing to wake for."""
    row = held(session)
    _close(turn, TurnState.SKIPPED, calls=calls, reason=cause, now=now)
    _remember(session, row, memory)
    _hear_out(row, memory, now=now)
    event_emit(EventKind.PRECHECK_SKIPPED, session=session, now=now, turn=turn.number, cause=cause)


@transaction.atomic
def turn_fail(
    session: AgentSession, turn: Turn, *, error: str, calls: Sequence[Done], memory: Memory, now: datetime
) -> None:
    """Something went wrong in it. What it was shown is not cleared."""
    row = held(session)
    _close(turn, TurnState.FAILED, calls=calls, reason=error, now=now)
    _remember(session, row, memory)


@transaction.atomic
def turn_close(
    session: AgentSession,
    turn: Turn,
    *,
    calls: Sequence[Done],
    actions: Sequence[str],
    yielded: str,
    sleep_seconds: int | None,
    reason: str,
    now: datetime,
    **told: Any,
) -> None:
    """It ran to its end: how the agent yielded, what it cost, and the alerts that it has seen. What the loop remembers
    of it is kept in the same transaction, by `memory_settle`."""
    row = held(session)
    turn.yielded, turn.sleep_seconds, turn.actions = yielded, sleep_seconds, len(actions)
    _close(turn, TurnState.DONE, calls=calls, reason=reason, now=now)
    alerts_clear(row, [alert["id"] for alert in turn.seen.get("alerts", ())], now)
    told |= {"yield": yielded, "sleep_seconds": sleep_seconds, "reason": reason, "actions": list(actions)}
    told |= {"tokens": turn.tokens, "cost_usd": str(turn.cost_usd)}
    event_emit(EventKind.TURN_COMPLETED, session=session, now=now, turn=turn.number, **told)


@transaction.atomic
def memory_keep(session: AgentSession, memory: Memory) -> None:
    """Without a change to a turn."""
    _remember(session, held(session), memory)


@transaction.atomic
def memory_settle(session: AgentSession, memory: Memory, *, now: datetime) -> None:
    """After a turn that ran to its end."""
    row = held(session)
    _remember(session, row, memory)
    _hear_out(row, memory, now=now)


def turn_is_open(row: AgentSession) -> bool:
    last = turn_latest(row)
    return last is not None and last.state == TurnState.OPEN


def event_keep(row: AgentSession, *, name: str, text: str, source: str) -> None:
    """Keeps an event until the agent lies down: it may yet say that it would wake for it. Of each name the last one,
    and of names the latest. The caller holds the row."""
    others = [said for said in row.metadata.get(HEARD, ()) if said["name"] != name]
    row.metadata[HEARD] = [*others, {"name": name, "text": text, "source_name": source}][-MOST_HEARD:]
    row.save(update_fields=["metadata"])


def turns_forget(now: datetime) -> int:
    """Removes turns that ended long ago, but the last of each loop and the last that ran to its end, and the alerts
    that were seen long ago."""
    old = Turn.objects.filter(ended_at__lt=now - KEPT)
    later = Turn.objects.filter(session=OuterRef("session"), number__gt=OuterRef("number"), state=TurnState.DONE)
    gone = list(old.filter(Exists(later)).values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    seen = list(Alert.objects.filter(cleared_at__lt=now - KEPT).values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    return Turn.objects.filter(pk__in=gone).delete()[0] + Alert.objects.filter(pk__in=seen).delete()[0]


def _close(turn: Turn, state: TurnState, *, calls: Sequence[Done], reason: str, now: datetime) -> None:
    turn.state, turn.ended_at, turn.reason, turn.definition = state, now, reason[:REASON_CHARS], ""
    turn.tokens = sum(call.tokens for call in calls)
    turn.cost_usd = sum((call.charged_usd for call in calls), ZERO)
    turn.save()


def _remember(session: AgentSession, row: AgentSession, memory: Memory) -> None:
    row.metadata = {**row.metadata, PACE: dict(memory.pace), WAKES: list(memory.wakes)}
    row.save(update_fields=["metadata"])
    session.metadata = row.metadata


def _hear_out(row: AgentSession, memory: Memory, *, now: datetime) -> None:
    """An agent that has lain down has said what it would wake for: alerts come of those events, also if a guardrail
    makes it sleep for longer, and nothing of the rest."""
    if not memory.pace["sleep_seconds"] or HEARD not in row.metadata:
        return
    heard = row.metadata.pop(HEARD)
    row.save(update_fields=["metadata"])
    for said in heard:
        if said["name"] in memory.pace["wakes"]:
            alert_push(row, **said, now=now)


def loop_hear_chat(chat: AgentSession, *, now: datetime) -> Alert | None:
    """Tells the loop of an agent, once, that somebody has spoken with it: which chat, not what was said."""
    loop = loop_current(chat.agent_id) if chat.agent_id else None
    if loop is None or loop.agent is None or not pace_of(definition_of(loop.agent)).wake_on_chat:
        return None
    named = str(chat.public_id)
    return alert_push(loop, name=CHAT_MESSAGE, text=named, source_name="chat", now=now, dedupe=f"chat:{named}")


def loops_hear_event(owner_id: int, *, name: str, text: str, source: str, now: datetime) -> int:
    """Tells an event to the loops of its owner whose agents wake for it, or may say so when they next lie down; to any
    other it means nothing. How many were told at once."""
    if name in {"", CHAT_MESSAGE}:
        return 0
    loops = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.LOOP).exclude(status__in=TERMINAL)
    # Read before the loops are: a turn that ends in between has left what its loop wakes for.
    in_turn = set(Turn.objects.filter(session__in=loops, state=TurnState.OPEN).values_list("session_id", flat=True))
    told = [
        _hear_event(loop.pk, name=name, text=text, source=source, now=now)
        for loop in loops
        if _has_named(loop, name) or _may_yet_name(loop, in_turn=loop.pk in in_turn)
    ]
    return sum(told)


@transaction.atomic
def _hear_event(loop_pk: int, *, name: str, text: str, source: str, now: datetime) -> bool:
    """Under the lock that a loop takes to end its turn: the event comes before that or after it, and is not lost."""
    row = session_lock(loop_pk)
    in_turn = turn_is_open(row)
    if wakes_for(row, name) or (_has_named(row, name) and not in_turn):
        return alert_push(row, name=name, text=text, source_name=source, now=now) is not None
    if _may_yet_name(row, in_turn=in_turn):
        event_keep(row, name=name, text=text, source=source)
    return False


def _has_named(row: AgentSession, name: str) -> bool:
    """The agent wants to wake for it; from a sleep that it did not choose it is not woken, and sees it afterwards."""
    return wakes_for(row, name) or name in _paced(row, "wakes", ())


def _may_yet_name(row: AgentSession, *, in_turn: bool) -> bool:
    """It is not in a sleep of its own choice, at whose beginning it has named what it would wake for."""
    chosen = _paced(row, "sleep_seconds", 0) and not _paced(row, "errors", 0)
    return in_turn or row.status != Status.SLEEPING or not chosen


def _paced(row: AgentSession, name: str, missing: Any) -> Any:
    return (row.metadata.get(PACE) or {}).get(name) or missing
