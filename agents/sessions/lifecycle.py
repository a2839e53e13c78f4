"""The life of a session: create, lock, enqueue, enter a phase, wake.

Together with ending.py and leases.py the only writer of a session's status. Every move locks the session's row, checks
the state it starts from (and, for a worker, its fencing number), writes and records, in one transaction.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, F, Func, JSONField, Q, QuerySet, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.sql.compiler import SQLCompiler

from agents.definitions.in_force import project_of
from agents.enums import (
    ApprovalStatus,
    Mode,
    Phase,
    QuestionStatus,
    Status,
    TerminalReason,
    TriggerKind,
    Urgency,
    WaitingOn,
)
from agents.exceptions import InvalidTransition, LeaseLost
from agents.ledger.boundary import require_may_start
from agents.ledger.loans import runs_out
from agents.ledger.outages import BUSY, WAIT, is_away
from agents.models import Agent, AgentSession, Alert, Approval, Project, Question, ToolCall, Trigger
from agents.people.ceilings import default_run_cap
from agents.policy.costs import usd
from agents.policy.guardrails import CHAT_MESSAGE, Wakes
from agents.policy.transitions import STATUS_MOVES
from agents.queue import TaskName, enqueue
from audit import recorder

logger = logging.getLogger(__name__)
Ticket = TypeVar("Ticket", Approval, Question)
_BY_A_PERSON = (WaitingOn.APPROVAL, WaitingOn.INPUT, WaitingOn.OPERATOR)
_URGENCY = Case(When(Q(mode=Mode.CHAT) | Q(waiting_on__in=_BY_A_PERSON), then=Urgency.URGENT), default=Urgency.BATCH)


@transaction.atomic
def session_create(
    *,
    owner: User,
    now: datetime,
    mode: Mode = Mode.PHASED,
    agent: Agent | None = None,
    trigger: Trigger | None = None,
    project: Project | None = None,
    slot: str = "",
    max_cost_usd: Decimal | None = None,
    token_budget: int = 0,
    params: dict[str, Any] | None = None,
    restarted_from: AgentSession | None = None,
    depth: int = 0,
    parent: AgentSession | None = None,
    trigger_kind: TriggerKind | None = None,
    asked_by: str = "",
    purpose: str = "",
    wake_at: datetime | None = None,
) -> AgentSession:
    """Create a queued session with a cap: its own, its trigger's, or the installation's default.

    The default is at most the owner's ceiling of a run. Caps that somebody states are measured where they are.
    Without a project it belongs to its agent's. It is enqueued in the same transaction, unless it starts asleep.
    """
    profile = require_may_start(owner.pk)
    cap = max_cost_usd if max_cost_usd is not None else (trigger.max_cost_usd if trigger else None)
    cap_usd = usd(default_run_cap(profile) if cap is None else cap)
    session = AgentSession.objects.create(
        owner_id=owner.pk,
        **by_definition(agent),
        trigger=trigger,
        project=project or project_of(agent),
        mode=mode,
        status=Status.SLEEPING if wake_at else Status.QUEUED,
        next_wake_at=wake_at,
        current_phase=Phase.INTAKE if mode in {Mode.PHASED, Mode.INDEX} else Phase.TURN,
        trigger_kind=trigger_kind or (trigger.kind if trigger else TriggerKind.MANUAL),
        trigger_ref=str(trigger.public_id) if trigger else "",
        urgency=Urgency.URGENT if mode == Mode.CHAT else Urgency.BATCH,
        slot=slot,
        max_cost_usd=cap_usd,
        starting_cap_usd=cap_usd,
        token_budget=token_budget,
        params=params or {},
        restarted_from=restarted_from,
        depth=depth,
        parent=parent,
        metadata={key: words for key, words in (("asked_by", asked_by), ("purpose", purpose)) if words},
        created_at=now,
        last_activity_at=now,
    )
    if wake_at is None:
        session_enqueue(session.pk, now=now)
    return session


def by_definition(agent: Agent | None) -> dict[str, Any]:
    """Return the agent with the version of its definition that the session keeps."""
    if agent is None or not agent.definition_version:
        return {"agent": agent}
    version, digest = agent.definition_version, agent.definition_digest
    return {"agent": agent, "definition_version": version, "definition_digest": digest}


def session_enqueue(session_pk: int, *, now: datetime) -> bool:
    """Note since when a queued session waits, and send a task for it. If the queue fails, the ticker sends one."""
    AgentSession.objects.filter(pk=session_pk, status=Status.QUEUED).update(enqueued_at=now)
    try:
        with transaction.atomic():
            enqueue(TaskName.RUN_SESSION, session_pk)
    except Exception:  # whatever the broker raises, the session is safe in its row
        logger.exception("no task could be sent for session %s; the ticker sends one", session_pk)
        return False
    return True


def session_lock(session_pk: int) -> AgentSession:
    """Return the session's row, locked until the transaction ends. On SQLite the transaction is the lock."""
    return session_row(session_pk, "FOR NO KEY UPDATE" if connection.features.has_select_for_update else "")


def session_row(session_pk: int, lock: str = "") -> AgentSession:
    """Return the session's row as it is now.

    Every call and every move reads it. The ORM would compose the statement, and find out how to read each of its many
    columns, each time: that takes several times as long as the statement.
    """
    reader = _reader_of(connections[DEFAULT_DB_ALIAS])
    with connection.cursor() as cursor:
        cursor.execute(f"{_SELECT} {lock}", [session_pk])
        found = cursor.fetchone()
    if found is None:
        raise AgentSession.DoesNotExist(f"There is no session {session_pk}.")
    [values] = reader.compiler.apply_converters([found], reader.converters)
    return AgentSession.from_db(DEFAULT_DB_ALIAS, _COLUMNS, values)


_FIELDS: Final = AgentSession._meta.concrete_fields
_COLUMNS: Final = [field.attname for field in _FIELDS]
_TABLE: Final = AgentSession._meta.db_table
_SELECT: Final = f"SELECT {', '.join(str(field.column) for field in _FIELDS)} FROM {_TABLE} WHERE id = %s"  # noqa: S608 ours


@dataclass(frozen=True)
class _Reader:
    """How a connection gives the values of a row, as its columns are stored."""

    compiler: SQLCompiler
    converters: Any


def _reader_of(database: BaseDatabaseWrapper) -> _Reader:
    """Return that of a connection, which keeps it."""
    kept = vars(database)
    if "lqops_session_reader" not in kept:
        compiler = AgentSession.objects.none().query.get_compiler(connection=database)
        converters = compiler.get_converters(field.get_col(_TABLE) for field in _FIELDS)
        kept["lqops_session_reader"] = _Reader(compiler, converters)
    found: _Reader = kept["lqops_session_reader"]
    return found


def each_under_lock(rows: Iterable[Ticket], act: Callable[[Ticket, datetime], bool], *, now: datetime) -> int:
    """Return for how many rows the act had an effect, each under its session's lock in a transaction of its own.

    One failure does not stop the others.
    """
    done = 0
    for row in rows:
        try:
            with transaction.atomic():
                session_lock(row.session_id)
                done += act(row, now)
        except Exception:  # the others are done all the same
            logger.exception("%s %s failed; it is tried again", row._meta.verbose_name, row.public_id)
    return done


def halt_reason(row: AgentSession) -> TerminalReason:
    """Return what a session that is to halt ends as: what was requested, else an external halt."""
    return TerminalReason(row.terminal_reason or TerminalReason.EXTERNAL_HALT)


def held(session: AgentSession) -> AgentSession:
    """Return the locked row of a session that this worker holds; raise LeaseLost for any other."""
    row = session_lock(session.pk)
    if row.fencing != session.fencing or row.status != Status.RUNNING:
        raise LeaseLost(
            f"Session {row.public_id} is {row.status} under number {row.fencing}; this worker held number "
            f"{session.fencing} and may not write."
        )
    return row


def _merged(notes: Mapping[str, Any]) -> Func | CombinedExpression:
    """Return the metadata of a session with these notes in the place of those of the same names."""
    if connection.vendor == "sqlite":
        pairs = [(Value(f"$.{name}"), Func(Value(json.dumps(note)), function="json")) for name, note in notes.items()]
        return Func(F("metadata"), *chain.from_iterable(pairs), function="json_set", output_field=JSONField())
    return CombinedExpression(F("metadata"), "||", Value(dict(notes), output_field=JSONField()), JSONField())


def _held_rows(session: AgentSession) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(pk=session.pk, fencing=session.fencing, status=Status.RUNNING)


def session_note(session: AgentSession, notes: Mapping[str, Any], **columns: Any) -> None:
    """Write notes to the metadata of a held session, by one fenced statement; its other notes stay."""
    if not _held_rows(session).update(metadata=_merged(notes), **columns):
        held(session)  # raises that another worker holds it
    session.metadata = {**session.metadata, **notes}


# The phase, its notes and its event by one statement; without the event if somebody else wrote to the chain meanwhile.
_HEAD: Final = f"head AS ({recorder.LAST_LINK})"
_MOVE: Final = (
    "UPDATE agents_agentsession SET current_phase = %(phase)s, metadata = metadata || %(notes)s::jsonb "
    "WHERE id = %(session)s AND fencing = %(fencing)s AND status = 'running' "
    "AND (current_phase <> %(phase)s OR metadata ->> 'phase_entered' IS DISTINCT FROM %(phase)s) RETURNING id"
)
_RECORD: Final = f"written AS ({recorder.NEXT_LINK_IF_FREE.format(source='moved, head')})"
_ENTER: Final = f"WITH {_HEAD}, moved AS ({_MOVE}), {_RECORD} SELECT EXISTS (SELECT 1 FROM written) FROM moved"  # noqa: S608 names of our own
_ENTERED: Final = "autonomous_session.phase_transition"


@transaction.atomic(savepoint=False)
def session_enter_phase(
    session: AgentSession, phase: Phase, *, now: datetime, notes: Mapping[str, Any] | None = None
) -> None:
    """Move a held session to a phase, with notes, and record it. Entering the same phase again changes nothing."""
    noted = {**(notes or {}), "phase_entered": str(phase)}
    details = {"from_phase": session.current_phase, "to_phase": phase}
    if connection.vendor == "postgresql":
        event = recorder.link_params(session.chain, _ENTERED, now=now, details=details)
        is_moved, is_recorded = _move_recorded(session, phase, noted, event)
    else:
        is_moved, is_recorded = _move(session, phase, noted), False
    if not is_moved:
        held(session)  # it is there already, or raises that another worker holds it
        return
    session.current_phase = phase
    session.metadata = {**session.metadata, **noted}
    if not is_recorded:
        recorder.append(session.chain, _ENTERED, now=now, details=details)


def _move_recorded(
    session: AgentSession, phase: Phase, notes: Mapping[str, Any], event: Mapping[str, Any]
) -> tuple[bool, bool]:
    """Return whether the session was moved, and whether the event was written."""
    own: dict[str, Any] = {
        "session": session.pk,
        "fencing": session.fencing,
        "phase": str(phase),
        "notes": json.dumps(notes),
    }
    with connection.cursor() as cursor:
        cursor.execute(_ENTER, {**event, **own})
        found = cursor.fetchone()
    return found is not None, found is not None and found[0]


def _move(session: AgentSession, phase: Phase, notes: Mapping[str, Any]) -> bool:
    last = "metadata__phase_entered"
    elsewhere = ~Q(current_phase=phase) | Q((f"{last}__isnull", True)) | ~Q((last, phase))
    return bool(_held_rows(session).filter(elsewhere).update(current_phase=phase, metadata=_merged(notes)))


@transaction.atomic
def session_wake(session_pk: int, *, now: datetime) -> bool:
    """Put a sleeping or waiting session back into the queue. Return False if it is neither.

    A person waits for a chat, and has just decided or answered something for a run that waited for that.
    """
    woken = AgentSession.objects.filter(pk=session_pk, status__in=(Status.SLEEPING, Status.WAITING)).update(
        status=Status.QUEUED, urgency=_URGENCY, waiting_on="", next_wake_at=None, last_activity_at=now
    )
    if woken:
        session_enqueue(session_pk, now=now)
    return bool(woken)


def totals(row: AgentSession, *, calls: int) -> dict[str, Any]:
    return {
        "charged_usd": str(row.cost_total_usd),
        "actual_usd": str(row.cost_actual_usd),
        "tokens": row.total_tokens,
        "calls": calls,
    }


def check_move(before: str, after: Status) -> None:
    if after not in STATUS_MOVES.get(before, frozenset()):
        raise InvalidTransition(f"A session cannot go from {before} to {after}.")


# --- Before resting: has the decision or alert come already? The caller holds the row ---
#
# If it came while the session was at work, nobody would wake it.


WAKES: Final = "wake_early_if"  # key in metadata: the names of alerts that end its sleep
WOKEN: Final = "woken"  # key in metadata: how often alerts of each name woke it lately
MOST_WOKEN: Final = 50
HEARD: Final = "heard"  # key in metadata: the events since the agent last went to sleep


def still_pending(row: AgentSession, waiting_on: WaitingOn, runs: frozenset[int] = frozenset()) -> bool:
    """Return whether what it waits for is still pending; of `runs` none may have come back."""
    if waiting_on == WaitingOn.APPROVAL:
        return Approval.objects.filter(session=row, status=ApprovalStatus.PENDING).exists()
    if waiting_on == WaitingOn.MODEL:
        return row.metadata[WAIT]["outage"] == BUSY or is_away(row.metadata[WAIT]["model"])
    if waiting_on == WaitingOn.RESUME:
        return row.paused_at is not None
    if waiting_on == WaitingOn.RUNS:
        return runs <= set(runs_out(row.pk).values_list("pk", flat=True))
    if waiting_on == WaitingOn.OPERATOR:
        return ToolCall.objects.unknown().filter(session=row).exists()
    return Question.objects.filter(session=row, status=QuestionStatus.PENDING).exists()


def wakes_for(row: AgentSession, name: str) -> bool:
    return name in (row.metadata.get(WAKES) or ())


def early_wake_at(row: AgentSession, *, now: datetime) -> datetime | None:
    """Return when a pending alert ends the sleep that is about to begin; None if none does. The caller saves the row.

    An alert that has woken the loop too often lately does so later.
    """
    names = row.metadata.get(WAKES) or ()
    found = Alert.objects.pending().filter(session=row, name__in=names).values_list("name", flat=True) if names else ()
    times = {name: _wake_allowed_at(row, name, now=now) for name in found}
    if not times:
        return None
    first = min(times, key=lambda name: times[name])
    if times[first] <= now:
        _note_wake(row, first, now=now)
    return times[first]


def wake_by_alert(row: AgentSession, name: str, *, now: datetime) -> bool:
    """Wake a sleeping loop for an alert; later, if alerts of that name woke it too often. The caller has its lock."""
    allowed = _wake_allowed_at(row, name, now=now)
    if allowed > now:
        sleeping = AgentSession.objects.filter(pk=row.pk, status=Status.SLEEPING, next_wake_at__gt=allowed)
        sleeping.update(next_wake_at=allowed)
        return False
    _note_wake(row, name, now=now)
    row.save(update_fields=["metadata"])
    return session_wake(row.pk, now=now)


def _wake_allowed_at(row: AgentSession, name: str, *, now: datetime) -> datetime:
    """A person's message always wakes."""
    if name == CHAT_MESSAGE:
        return now
    woke = Wakes.from_json((row.metadata.get(WOKEN) or {}).get(name))
    return now + timedelta(seconds=woke.allowed_at(now.timestamp()) - now.timestamp())


def _note_wake(row: AgentSession, name: str, *, now: datetime) -> None:
    before = dict(row.metadata.get(WOKEN) or {})
    woke = Wakes.from_json(before.pop(name, None)).woke(now.timestamp())
    kept = dict(list(before.items())[-MOST_WOKEN:])
    row.metadata = {**row.metadata, WOKEN: {**kept, name: woke.to_json()}}


def log_run(row: AgentSession, what: str, level: int = logging.INFO, **facts: object) -> None:
    """Write one log line about a run when the transaction has committed."""
    text = ", ".join(f"{name} {value}" for name, value in facts.items())

    def write() -> None:
        logger.log(level, "run %s %s: %s", row.public_id, what, text, extra={"run_id": str(row.public_id)})

    transaction.on_commit(write, robust=True)
