"""Rows of turns, and what reaches a loop between them: chats and events.

Each step of a turn is one transaction of the worker that holds the session, so a turn, the pace that the loop remembers
and the events about them are written together or not at all.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Case, Exists, OuterRef, Value, When

from agents.definitions.in_force import autonomy_of, definition_of
from agents.enums import EventKind, Mode, Outcome, Status, TurnState
from agents.loop.pacing import Move, Pace, Yielded
from agents.loop.reads import DROPPED, alerts_dropped, loop_current
from agents.models import AgentSession, Alert, Message, ToolCall, Turn
from agents.people.activity import event_emit
from agents.policy.guardrails import CHAT_MESSAGE, Counters, observe_turn
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import HEARD, WAKES, held, session_lock, wake_by_alert, wakes_for
from agents.sessions.transcripts import GUARDRAILS
from agents.text.clean import json_safe
from agents.types import ZERO
from audit.redaction import redact

# Alerts: what a loop must see at its next turn. They are pending until a turn that showed them is completed.
#
# An alert that the agent wants to be woken for ends its sleep at once; any other waits for the next turn. When too
# many are pending, further ones are dropped, and one alert above all others says how many.


NAME_CHARS: Final = 64
TEXT_CHARS: Final = 2_000
MOST_PENDING: Final = 500
MOST_SHOWN: Final = 100


@transaction.atomic
def alert_push(
    session: AgentSession, *, name: str, text: str, source_name: str, now: datetime, dedupe: str = ""
) -> Alert | None:
    """Add an alert; None when the run is over, too many are pending, or one with that `dedupe` exists."""
    row = session_lock(session.pk)
    if row.status in TERMINAL:
        return None
    alerts = Alert.objects.filter(session=row)
    if dedupe and alerts.filter(dedupe=dedupe).exists():
        return None
    if alerts.pending().count() >= MOST_PENDING:
        _drop(row, name, now)
        return None
    return _push(row, name=name, text=text, source_name=source_name, dedupe=dedupe, now=now)


def _push(row: AgentSession, *, name: str, text: str, source_name: str, dedupe: str, now: datetime) -> Alert:
    alert = Alert.objects.create(
        session=row,
        name=name[:NAME_CHARS],
        text=redact(json_safe(text))[:TEXT_CHARS],
        source_name=source_name[:NAME_CHARS],
        dedupe=dedupe,
        created_at=now,
    )
    event_emit(
        EventKind.NOTIFICATION_PUSHED,
        session=row,
        now=now,
        woken=_wake(row, alert.name, now),
        name=alert.name,
        source=alert.source_name,
        text=alert.text,
        alert=alert.pk,
    )
    return alert


def _drop(row: AgentSession, name: str, now: datetime) -> None:
    """Count a dropped alert, and keep one alert about all of them. It wakes the loop like any other."""
    row.metadata[DROPPED] = dropped = alerts_dropped(row) + 1
    row.save(update_fields=["metadata"])
    text = f"{dropped} alerts of this run were dropped because {MOST_PENDING} were pending. The last was {name}."
    pending = Alert.objects.pending().filter(session=row, name=DROPPED, source_name="")
    if not pending.update(text=redact(json_safe(text))[:TEXT_CHARS]):
        _push(row, name=DROPPED, text=text, source_name="", dedupe="", now=now)
    _wake(row, name, now)


def _wake(row: AgentSession, name: str, now: datetime) -> bool:
    """Wake a sleeping loop whose agent wants to be woken for this alert. The caller has locked its row."""
    return row.status == Status.SLEEPING and wakes_for(row, name) and wake_by_alert(row, name, now=now)


def alerts_pending(session: AgentSession) -> list[Alert]:
    """Return pending alerts, the oldest first, after the one about dropped alerts."""
    first = Case(When(name=DROPPED, source_name="", then=Value(0)), default=Value(1))
    return list(Alert.objects.pending().filter(session=session).order_by(first, "pk")[:MOST_SHOWN])


PACE: Final = "loop"  # in a session's metadata: what the loop remembers between turns
REASON_CHARS: Final = 2_000
KEPT: Final = timedelta(days=90)
DELETED_AT_ONCE: Final = 5_000
MOST_HEARD: Final = 100


# --- Reading ---


def turn_latest(session: AgentSession) -> Turn | None:
    return Turn.objects.filter(session=session).order_by("-number").first()


def turn_last_done(session: AgentSession) -> Turn | None:
    """Return the last turn that was completed."""
    return Turn.objects.filter(session=session, state=TurnState.DONE).order_by("-number").first()


def turn_has_begun(session: AgentSession, turn: Turn) -> bool:
    """Tell whether the transcript has messages of the turn. Turns are written one after the other."""
    last = Message.objects.filter(session=session).order_by("-seq").values_list("turn", flat=True).first()
    return last == turn.number


def calls_since(session: AgentSession, after: int) -> list[ToolCall]:
    """Return the calls of a session after one of them, in order, without reading the earlier ones."""
    columns = ("key", "name", "outcome", "tokens", "charged_usd", "actual_usd", "started_at", "settled_at")
    return list(ToolCall.objects.filter(session_id=session.pk, pk__gt=after).order_by("pk").only(*columns))


def succeeded(call: ToolCall) -> bool:
    return call.outcome == Outcome.SUCCESS


# --- Steps of a turn ---


@transaction.atomic
def turn_open(session: AgentSession, *, pace: Pace, after_sleep: bool, now: datetime) -> Turn:
    """Create the next turn. After a sleep, what the guardrails count per stretch starts again."""
    row = held(session)
    last = turn_latest(row)
    if after_sleep:
        row.metadata[GUARDRAILS] = Counters.from_json(row.metadata.get(GUARDRAILS)).awake().to_json()
    _remember(session, row, pace)
    return Turn.objects.create(session=row, number=last.number + 1 if last else 1, started_at=now)


@transaction.atomic
def turn_begin(session: AgentSession, turn: Turn, *, seen: Mapping[str, Any], now: datetime) -> None:
    """Store what the model is about to see and the definition of the turn, and publish the start."""
    held(session)
    first = not turn.seen
    turn.seen = dict(seen)
    turn.definition = session.agent.definition if session.agent else ""
    turn.save(update_fields=["seen", "definition"])
    if first:
        event_emit(
            EventKind.TURN_STARTED,
            session=session,
            now=now,
            turn=turn.number,
            hot_state={name: field["value"] for name, field in seen.get("fields", {}).items()},
            alerts=[alert["name"] for alert in seen.get("alerts", ())],
        )


@transaction.atomic
def turn_close(
    session: AgentSession,
    turn: Turn,
    state: TurnState,
    *,
    reason: str,
    calls: Sequence[ToolCall],
    now: datetime,
    yielded: Yielded | None = None,
    actions: Sequence[str] = (),
) -> None:
    """Close a turn. A completed one, with its yield, clears the alerts that it showed; a failed one does not.

    The pace is saved in the same transaction.
    """
    row = held(session)
    turn.state = state
    turn.ended_at = now
    turn.reason = reason[:REASON_CHARS]
    turn.definition = ""
    turn.tokens = sum(call.tokens for call in calls)
    approved, reported = (sum((getattr(call, name) for call in calls), ZERO) for name in ("charged_usd", "actual_usd"))
    turn.cost_usd = max(approved, reported)
    turn.actions = len(actions)
    if yielded is not None:
        turn.yielded = str(yielded.mode)
        turn.sleep_seconds = yielded.sleep or None
        shown = [alert["id"] for alert in turn.seen.get("alerts", ())]
        Alert.objects.pending().filter(session=row, pk__in=shown).update(cleared_at=now)
    turn.save()
    if state == TurnState.SKIPPED:
        event_emit(EventKind.PRECHECK_SKIPPED, session=session, now=now, turn=turn.number, cause=reason)
    if yielded is not None:
        data: dict[str, Any] = {
            "yield": turn.yielded,
            "sleep_seconds": turn.sleep_seconds,
            "wake_early_if": list(yielded.wake_early_if),
            "reason": yielded.reason,
            "actions": list(actions),
            "tokens": turn.tokens,
            "cost_usd": str(turn.cost_usd),
        }
        event_emit(EventKind.TURN_COMPLETED, session=session, now=now, turn=turn.number, **data)


@transaction.atomic
def turn_observe(session: AgentSession, turn: Turn) -> Counters:
    """Count a turn that called nothing, or end the count; return the counters."""
    row = held(session)
    calls = Message.objects.filter(session=row, turn=turn.number, role="assistant").values_list("calls", flat=True)
    counters = observe_turn(Counters.from_json(row.metadata.get(GUARDRAILS)), has_calls=any(calls))
    row.metadata[GUARDRAILS] = counters.to_json()
    row.save(update_fields=["metadata"])
    session.metadata = row.metadata
    return counters


@transaction.atomic
def turn_settle(session: AgentSession, move: Move, *, now: datetime) -> None:
    """Save the pace after a completed or skipped turn, and give the loop the events that it now wakes for."""
    row = held(session)
    _remember(session, row, move.pace, move.wakes)
    _push_kept_events(row, move.pace, now=now)


@transaction.atomic
def pace_save(session: AgentSession, pace: Pace, wakes: Sequence[str] = ()) -> None:
    """Save the pace, and the alerts that end the sleep."""
    _remember(session, held(session), pace, wakes)


def _remember(session: AgentSession, row: AgentSession, pace: Pace, wakes: Sequence[str] = ()) -> None:
    row.metadata = {**row.metadata, PACE: pace.to_json(), WAKES: list(wakes)}
    row.save(update_fields=["metadata"])
    session.metadata = row.metadata


def _push_kept_events(row: AgentSession, pace: Pace, *, now: datetime) -> None:
    """Turn the kept events that the sleeping agent wakes for into alerts, and drop the others."""
    if not pace.sleep_seconds or HEARD not in row.metadata:
        return
    events = row.metadata.pop(HEARD)
    row.save(update_fields=["metadata"])
    for event in events:
        if event["name"] in pace.wakes:
            alert_push(row, **event, now=now)


def turns_delete_old(now: datetime) -> int:
    """Delete old turns, except the last and the last completed one of each loop, and old cleared alerts."""
    old = Turn.objects.filter(ended_at__lt=now - KEPT)
    later = Turn.objects.filter(session=OuterRef("session"), number__gt=OuterRef("number"), state=TurnState.DONE)
    turns = list(old.filter(Exists(later)).values_list("pk", flat=True)[:DELETED_AT_ONCE])
    alerts = list(Alert.objects.filter(cleared_at__lt=now - KEPT).values_list("pk", flat=True)[:DELETED_AT_ONCE])
    return Turn.objects.filter(pk__in=turns).delete()[0] + Alert.objects.filter(pk__in=alerts).delete()[0]


# --- Chats and events ---


def loop_alert_chat(chat: AgentSession, *, now: datetime) -> Alert | None:
    """Alert the agent's loop, once, that somebody chatted with the agent: which chat, not its text."""
    loop = loop_current(chat.agent_id) if chat.agent_id else None
    if loop is None or loop.agent is None or not autonomy_of(definition_of(loop.agent)).wake_on_chat:
        return None
    chat_id = str(chat.public_id)
    if Alert.objects.filter(session=loop, dedupe__startswith=f"instruction:{chat_id}:").exists():
        return None  # it has passed on what the loop is to know
    return alert_push(loop, name=CHAT_MESSAGE, text=chat_id, source_name="chat", now=now, dedupe=f"chat:{chat_id}")


def loops_alert_event(owner_id: int, *, name: str, text: str, source: str, now: datetime) -> int:
    """Alert the owner's loops that wake for an event; return how many.

    Loops that may still name it when they next go to sleep keep it until then.
    """
    if name in {"", CHAT_MESSAGE}:
        return 0
    loops = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.LOOP).exclude(status__in=TERMINAL)
    # Read before the loops: a turn that ends in between has stored what its loop wakes for.
    in_turn = set(Turn.objects.filter(session__in=loops, state=TurnState.OPEN).values_list("session_id", flat=True))
    return sum(
        _hear_event(loop.pk, name=name, text=text, source=source, now=now)
        for loop in loops
        if _has_named(loop, name) or _may_yet_name(loop, in_turn=loop.pk in in_turn)
    )


@transaction.atomic
def _hear_event(loop_pk: int, *, name: str, text: str, source: str, now: datetime) -> bool:
    """Alert one loop, under the lock that it takes to end its turn, so that no event is lost in between."""
    row = session_lock(loop_pk)
    last = turn_latest(row)
    in_turn = last is not None and last.state == TurnState.OPEN
    if wakes_for(row, name) or (_has_named(row, name) and not in_turn):
        return alert_push(row, name=name, text=text, source_name=source, now=now) is not None
    if _may_yet_name(row, in_turn=in_turn):
        others = [event for event in row.metadata.get(HEARD, ()) if event["name"] != name]
        row.metadata[HEARD] = [*others, {"name": name, "text": text, "source_name": source}][-MOST_HEARD:]
        row.save(update_fields=["metadata"])
    return False


def _has_named(row: AgentSession, name: str) -> bool:
    """Tell whether the agent wants to wake for it; from a sleep that it did not choose it is not woken."""
    return wakes_for(row, name) or name in Pace.from_json(row.metadata.get(PACE)).wakes


def _may_yet_name(row: AgentSession, *, in_turn: bool) -> bool:
    """Tell whether the agent is not in a sleep of its own choice, for which it has already named its events."""
    pace = Pace.from_json(row.metadata.get(PACE))
    return in_turn or row.status != Status.SLEEPING or not pace.sleep_seconds or bool(pace.errors)
