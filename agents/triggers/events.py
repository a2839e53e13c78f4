"""Events from outside: choose the trigger, start its session, keep the event and its outcome.

Two ways in: the API, where rules choose among the owner's triggers, and signed webhooks to one trigger, each of which
counts once. What an event says is data: it picks a trigger by rules that people wrote, and nothing else.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import EventOutcome, EventSeverity, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.ledger.boundary import may_run_for
from agents.ledger.trigger_health import STORM, trigger_lock
from agents.loop.turns import loops_alert_event
from agents.models import Agent, AgentSession, InboundEvent, Trigger
from agents.people.access import SYSTEM, actor_of
from agents.policy.run_spec import RunSpec
from agents.text.clean import one_line
from agents.triggers import signing
from agents.triggers.firing import HOUR, Reason, Refused, trigger_fire
from agents.triggers.signing import verified_id
from agents.triggers.triggers import plain
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

WORD_CHARS: Final = 120
_NO_RULE: Final = "No rule fits the event."
TITLE_CHARS: Final = 300
_STATUS: Final[Mapping[Reason, int]] = {Reason.DELETED: 404, Reason.HALTED: 503, Reason.RATE: 429, Reason.STORM: 429}
_MESSAGES: Final[Mapping[str, str]] = {
    Reason.DELETED: "There is no such trigger.",
    Reason.DISABLED: "The trigger, or its agent, is switched off.",
    Reason.PAUSED: "The trigger is paused.",
    Reason.STORM: "The trigger was asked to fire far too often and is paused.",
    Reason.OPTED_OUT: "Agents do not run for the owner.",
    Reason.HALTED: "All work is halted. Send the event again later.",
    Reason.RATE: "The trigger has had all its runs of this hour. Send the event again later.",
    Reason.DEPTH: "Too many runs have led to this one.",
}


@dataclass(frozen=True)
class EventIn:
    """An event as it was sent. `target_agent` is the name or the public id of one of the owner's agents."""

    source: str = ""
    event_type: str = ""
    category: str = ""
    severity: str = EventSeverity.INFO
    title: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    target_agent: str = ""


@dataclass(frozen=True)
class EventAnswer:
    """Outcome of an event, with its HTTP status. Only `spawned` has a session."""

    status: int
    code: str
    message: str = ""
    event_id: uuid.UUID | None = None
    session_id: uuid.UUID | None = None
    trigger_id: uuid.UUID | None = None
    score: int | None = None
    retry_after: int = 0


# --- The API: rules choose the trigger ---
#
# A rule is a trigger's: what it leaves empty, or writes as `*`, fits anything and adds nothing. What it names has to
# be equal, character by character. The more a rule names, the higher it scores.


ANYTHING: Final = frozenset({"", "*"})
POINTS: Final[Mapping[str, int]] = {"source": 10, "event_type": 5, "category": 3}


def specificity(rule: Trigger) -> int:
    """Return how much the rule names: the score of an event that fits it."""
    named = sum(points for name, points in POINTS.items() if getattr(rule, name) not in ANYTHING)
    return EventSeverity(rule.min_severity).rank + named


def fits(rule: Trigger, event: EventIn) -> bool:
    is_severe = EventSeverity(event.severity).rank >= EventSeverity(rule.min_severity).rank
    return is_severe and all(getattr(rule, name) in {*ANYTHING, getattr(event, name)} for name in POINTS)


def best_match(rules: Sequence[Trigger], event: EventIn) -> tuple[Trigger | None, int]:
    """Return the rule that fits best and its score; of equals the first.

    For an event to a named agent, whose rules these are, it is the one that names most if none fits.
    """
    fitting = [rule for rule in rules if fits(rule, event)]
    if fitting:
        best = max(fitting, key=specificity)
        return best, specificity(best)
    return max(rules, key=specificity, default=None) if event.target_agent else None, 0


def event_receive(*, owner: User, event: EventIn, now: datetime, dry_run: bool = False) -> EventAnswer:
    """Start a session of the trigger whose rule fits best. An event without a match is kept and is no error.

    A dry run returns which trigger it would be; it starts, stores and records nothing.
    """
    checked = _checked(event)
    trigger, score = best_match(_live_rules(owner, event.target_agent), checked)
    if dry_run and trigger is not None:
        return EventAnswer(200, "would_spawn", trigger_id=trigger.public_id, score=score)
    if dry_run:
        return EventAnswer(200, EventOutcome.NO_MATCH, _NO_RULE)
    if not may_run_for(owner.pk):
        return _refused(Refused(Reason.OPTED_OUT))
    _wake_loops(owner.pk, checked, now=now)
    if trigger is None:
        return _no_match(owner, checked, now=now)
    return replace(event_spawn(trigger, checked, now=now), score=score)


def _checked(event: EventIn) -> EventIn:
    if event.severity not in EventSeverity.values:
        raise Invalid(f"severity is {event.severity!r}; it must be one of {', '.join(EventSeverity.values)}.")
    if not isinstance(event.data, dict):
        raise Invalid("data must be a JSON object.")
    data = signing.kept(event.data)
    if (size := signing.size_of(data)) > signing.MAX_DATA_BYTES:
        raise Invalid(f"data has {size} bytes; at most {signing.MAX_DATA_BYTES} are kept: send less.")
    words = {name: plain(name, getattr(event, name), WORD_CHARS) for name in POINTS}
    return replace(event, title=plain("title", event.title, TITLE_CHARS), data=data, **words)


def _live_rules(owner: User, target_agent: str) -> list[Trigger]:
    live = Trigger.objects.live().filter(kind=TriggerKind.EVENT, owner_id=owner.pk).exclude(agent__enabled=False)
    if target_agent:
        live = live.filter(agent=_agent(owner, target_agent))
    return list(live.select_related("collection").order_by("pk"))


def _agent(owner: User, named: str) -> Agent:
    mine = Agent.objects.filter(owner_id=owner.pk)
    try:
        found = mine.filter(public_id=uuid.UUID(named)).first()
    except ValueError:
        found = mine.filter(name=named).first()
    if found is None:
        raise NotFound(f"There is no agent {named[:WORD_CHARS]!r}.")
    return found


@transaction.atomic
def _no_match(owner: User, event: EventIn, *, now: datetime) -> EventAnswer:
    row = InboundEvent(owner_id=owner.pk)
    _store(row, event, EventOutcome.NO_MATCH, now=now)
    _record(row, actor_of(owner), now=now)
    return EventAnswer(200, EventOutcome.NO_MATCH, _NO_RULE, event_id=row.public_id)


# --- Webhooks: signed messages to one trigger ---


def webhook_receive(
    *, trigger_public_id: uuid.UUID, headers: Mapping[str, str], body: bytes, now: datetime
) -> EventAnswer:
    """Start a session for a message signed with the trigger's secret.

    The same message again gets the same answer. Nothing is parsed or stored of a message without a valid signature. One
    that is refused for now does not use up its id: sent again, it counts. The URL names the trigger, so its rule is not
    asked.
    """
    if len(body) > signing.MAX_BODY_BYTES:
        return EventAnswer(413, "too_large", f"The body has more than {signing.MAX_BODY_BYTES} bytes.")
    events = Trigger.objects.select_related("collection").filter(kind=TriggerKind.EVENT, deleted_at__isnull=True)
    trigger = events.filter(public_id=trigger_public_id).first()
    webhook_id = verified_id(trigger, headers, body, now=now)
    if trigger is None:
        return EventAnswer(404, "not_found", _MESSAGES[Reason.DELETED])
    if webhook_id is None:
        return EventAnswer(401, "not_signed", "The signature does not hold, or is older or newer than five minutes.")
    return _seen(trigger, webhook_id) or _webhook_event(trigger, webhook_id, body, now=now)


def _webhook_event(trigger: Trigger, webhook_id: str, body: bytes, *, now: datetime) -> EventAnswer:
    if trigger.pause_reason == STORM:  # no transaction, no parsing: a storm should cost as little as possible
        return _refused(Refused(Reason.STORM, int(HOUR.total_seconds())))
    try:
        event = _known_fields(signing.parsed(body))
    except Invalid as error:
        return EventAnswer(422, error.code, str(error))
    _wake_loops(trigger.owner_id, event, now=now)
    return event_spawn(trigger, event, now=now, webhook_id=webhook_id)


def _wake_loops(owner_id: int, event: EventIn, *, now: datetime) -> None:
    """Wake the agents that wait for an event of this type, whatever else comes of it."""
    source = event.source or "event"
    loops_alert_event(owner_id, name=event.event_type, text=event.title, source=source, now=now)


def _known_fields(body: dict[str, Any]) -> EventIn:
    """Read the known fields of a message; the rest is data."""
    kept = signing.kept(body)
    words = {name: _word(kept.get(name), WORD_CHARS) for name in POINTS}
    words["event_type"] = words["event_type"] or _word(kept.get("type"), WORD_CHARS)
    severity = _word(kept.get("severity"), WORD_CHARS)
    return EventIn(
        **words,
        severity=severity if severity in EventSeverity.values else EventSeverity.INFO,
        title=_word(kept.get("title"), TITLE_CHARS),
        data=signing.excerpt(kept),
    )


def _word(value: object, limit: int) -> str:
    return one_line(redact(value), limit) if isinstance(value, str) else ""


def _seen(trigger: Trigger, webhook_id: str) -> EventAnswer | None:
    row = InboundEvent.objects.select_related("session").filter(trigger=trigger, webhook_id=webhook_id).first()
    return _spawned(trigger, row.session, row.public_id) if row is not None else None


# --- Common to both ---


@transaction.atomic
def event_spawn(
    trigger: Trigger,
    event: EventIn,
    *,
    now: datetime,
    webhook_id: str = "",
    slot: str = "",
    parent: AgentSession | None = None,
) -> EventAnswer:
    """Fire the trigger and store the event with its outcome, in one transaction under the trigger's lock.

    A message with a webhook id, or an event for a slot, counts once.
    """
    trigger_lock(trigger.pk)
    if webhook_id and (seen := _seen(trigger, webhook_id)):
        return seen
    event_id = uuid.uuid4()
    if webhook_id:
        slot = f"hook:{hashlib.sha256(webhook_id.encode()).hexdigest()}"
    inputs = RunSpec.of(collection=trigger.collection, event=str(event_id))
    answer = trigger_fire(trigger=trigger, slot=slot or f"event:{event_id}", inputs=inputs, parent=parent, now=now)
    row = InboundEvent(public_id=event_id, owner_id=trigger.owner_id, trigger=trigger)
    if isinstance(answer, Refused):
        if answer.reason == Reason.RATE:  # counted by the fuse; stored without data, since it will be sent again
            _store(row, replace(event, data={}), EventOutcome.REFUSED, now=now)
        return _refused(answer)
    if answer.first:
        row.webhook_id = webhook_id
        row.session = answer.session
        _store(row, event, EventOutcome.SPAWNED, now=now)
        # Only an event through the API names a user: it was sent by the trigger's owner.
        actor = SYSTEM if webhook_id or parent else actor_of(trigger.owner)
        ids = {"trigger_id": str(trigger.public_id), "session_id": str(answer.session.public_id)}
        _record(row, actor, now=now, **ids)
    return _spawned(trigger, answer.session, event_id if answer.first else None)


def _spawned(trigger: Trigger, session: AgentSession | None, event_id: uuid.UUID | None) -> EventAnswer:
    session_id = session.public_id if session else None
    return EventAnswer(
        200, EventOutcome.SPAWNED, event_id=event_id, session_id=session_id, trigger_id=trigger.public_id
    )


def _refused(refused: Refused) -> EventAnswer:
    status = _STATUS.get(refused.reason, 409)
    return EventAnswer(status, refused.reason, _MESSAGES[refused.reason], retry_after=refused.retry_after)


def _store(row: InboundEvent, event: EventIn, outcome: EventOutcome, *, now: datetime) -> None:
    for name in ("source", "event_type", "category", "severity", "title", "data"):
        setattr(row, name, getattr(event, name))
    row.outcome = outcome
    row.received_at = now
    row.save(force_insert=True)


def _record(row: InboundEvent, actor: str, *, now: datetime, **details: Any) -> None:
    details |= {"event_id": str(row.public_id), "outcome": row.outcome}
    subject = f"event:{row.public_id}"
    recorder.append(SYSTEM_CHAIN, "autonomous_event.received", now=now, actor=actor, subject=subject, details=details)
