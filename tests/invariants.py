"""What must hold of the rows whatever was killed, paused or restarted: `problems()` reads the database and names all.

Used after every crash, simulation and chaos run. Order is judged by the audit log (ids and places in a chain), not by
clocks, which a run may step. One more invariant is one more function in CHECKS and one row in tests/test_invariants.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property

from django.conf import settings
from django.db import connection
from django_q.brokers import get_broker
from django_q.models import OrmQ

from agents.conf import clock
from agents.enums import (
    ApprovalMode,
    ApprovalStatus,
    HaltState,
    InputState,
    Level,
    OutboxStatus,
    Outcome,
    QuestionStatus,
    Status,
    TerminalReason,
    ToolIntent,
    WaitingOn,
)
from agents.ledger.inputs import answers_input
from agents.ledger.outages import is_away
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Budget,
    Finding,
    InferenceLog,
    OutboxMessage,
    Question,
    SkillSetting,
    ToolCall,
    UnreadInput,
)
from agents.people.outbox import CLAIMED_FOR, RETRY_DELAYS
from agents.policy.consent import call_digest
from agents.policy.transitions import TERMINAL
from agents.queue import Queue
from agents.skills.registry import installed_skills
from audit.kinds import KINDS
from audit.models import AuditEvent
from audit.verify import verify_log

ZERO = Decimal(0)
OUTBOX_HORIZON = max(sum(delays, (len(delays) + 1) * CLAIMED_FOR) for delays in RETRY_DELAYS.values())
CALLED = "autonomous_session.tool_call"
HALT_REQUESTED = "autonomous_session.halt_requested"
ENDS = frozenset(f"autonomous_session.{end}" for end in ("completed", "halted", "failed", "cost_cap_reached"))


@dataclass(frozen=True)
class Look:
    """The rows that several checks read, each read once.

    `late` is how long a lease, a wake or a task may be overdue: nothing, when everything was driven to rest.
    """

    now: datetime
    late: timedelta = timedelta()
    secrets: Sequence[str] = field(default_factory=tuple)

    @cached_property
    def sessions(self) -> dict[int, AgentSession]:
        return {row.pk: row for row in AgentSession.objects.defer("result", "params")}

    @cached_property
    def calls(self) -> list[ToolCall]:
        return list(ToolCall.objects.defer("result").order_by("pk"))

    @cached_property
    def has_tasks(self) -> bool:
        """Whether the queue holds a task, taken by a worker or not."""
        if "orm" in settings.Q_CLUSTER:
            return OrmQ.objects.filter(key=Queue.MAIN.value).exists()
        broker = get_broker(Queue.MAIN.value)
        return bool(broker.connection.llen(broker.list_key))

    @cached_property
    def events(self) -> dict[str, list[AuditEvent]]:
        """The audit log by kind, in the order in which it was written."""
        found = defaultdict(list)
        kinds = {CALLED, HALT_REQUESTED, *ENDS, "approval.consumed", "tool_call.resolved", "budget.cap_set"}
        kinds |= {"organisation.halted", "organisation.released", "input.given_up"}
        if (
            unknown := kinds - KINDS.keys()
        ):  # a kind of another name would be found nowhere, and nothing be wrong with it
            raise LookupError(f"the audit log has no kinds {sorted(unknown)}")
        for event in AuditEvent.objects.filter(kind__in=kinds).order_by("pk"):
            found[event.kind].append(event)
        return found

    @cached_property
    def events_of_calls(self) -> dict[str, list[AuditEvent]]:
        found = defaultdict(list)
        for event in self.events[CALLED]:
            found[event.details.get("call_id")].append(event)
        return found

    @cached_property
    def consumed(self) -> dict[str, list[AuditEvent]]:
        """The uses of approvals, by the id of the call that used them."""
        found = defaultdict(list)
        for event in self.events["approval.consumed"]:
            found[event.details["call_id"]].append(event)
        return found


def problems(*, now: datetime | None = None, late: timedelta = timedelta(), secrets: Sequence[str] = ()) -> list[str]:
    """Return everything that is wrong, in words; nothing if all invariants hold."""
    look = Look(now or clock(), late, secrets)
    return [problem for check in CHECKS for problem in check(look)]


# --- Money ---


def sessions_balance(look: Look) -> Iterator[str]:
    calls = defaultdict(list)
    for call in look.calls:
        calls[call.session_id].append(call)
    for session in look.sessions.values():
        mine = calls[session.pk]
        booked = (session.cost_total_usd, session.cost_reserved_usd, session.cost_actual_usd, session.cost_held_usd)
        yield from _balance(f"session {session.public_id}", booked, mine)
        if session.total_tokens != sum(call.tokens for call in mine):
            yield f"ledger: session {session.public_id} has {session.total_tokens} tokens, its calls another sum"
        if session.status in TERMINAL and any(call.outcome == Outcome.STARTED for call in mine):
            yield f"ledger: session {session.public_id} is over and has an open call"
        if session.max_cost_usd is not None:
            yield from _within(f"session {session.public_id}", session.max_cost_usd, booked)


def budgets_balance(look: Look) -> Iterator[str]:
    calls = defaultdict(list)
    for call in look.calls:
        for pk in call.budget_ids:
            calls[pk].append(call)
    raised = defaultdict(list)  # a cap may have been lowered below what was spent under the old one
    for event in look.events["budget.cap_set"]:
        raised[event.details["budget"]] += [event.details["cap_usd"], event.details["old_cap_usd"]]
    budgets = {budget.pk: budget for budget in Budget.objects.all()}
    for pk, budget in budgets.items():
        booked = (budget.charged_usd, budget.reserved_usd, budget.actual_usd, budget.held_usd)
        yield from _balance(f"budget {budget}", booked, calls[pk])
        caps = [None if cap is None else Decimal(cap) for cap in (budget.cap_usd, *raised[budget.name])]
        if None not in caps:
            yield from _within(f"budget {budget}", max(caps), booked)
    for pk in calls.keys() - budgets.keys():
        yield f"ledger: a call was reserved in budget {pk}, which does not exist"


def _balance(name: str, booked: tuple[Decimal, ...], calls: Iterable[ToolCall]) -> Iterator[str]:
    """Compare the four amounts of a ledger with the calls that it is the sum of."""
    charged = reserved = actual = held = ZERO
    for call in calls:
        charged += call.charged_usd
        actual += call.actual_usd
        if call.outcome == Outcome.STARTED:
            reserved += call.approved_usd
            held += call.held_usd
    amounts = zip(("charged", "reserved", "actual", "held"), booked, (charged, reserved, actual, held), strict=True)
    for kind, stands, should in amounts:
        if stands != should:
            yield f"ledger: {name} has {kind} {stands}, its calls sum up to {should}"


def _within(name: str, cap: Decimal, booked: tuple[Decimal, ...]) -> Iterator[str]:
    charged, reserved, actual, held = booked
    spent = max(charged + reserved, actual + held)
    if spent > cap:
        yield f"overspent: {name} has {spent} of {cap}"


# --- Nothing is lost, nothing is done twice ---


def sessions_go_on(look: Look) -> Iterator[str]:
    """A session that is not over has a live lease, a task in the queue, something to wait for, or a time to wake."""
    for session in look.sessions.values():
        if session.status in TERMINAL:
            continue
        if why := _left_alone(session, look):
            yield f"lost: session {session.public_id} is {session.status} {why}"
        if session.halt_state == HaltState.HALT_REQUESTED and session.status != Status.RUNNING:
            yield f"lost: session {session.public_id} is to halt, and nobody holds it"


def _left_alone(session: AgentSession, look: Look) -> str:
    """Return why nothing would ever move the session, or nothing."""
    overdue = look.now - look.late
    match session.status:
        case Status.RUNNING if session.lease_until is None or session.lease_until <= overdue:
            return "under a lease that is over"
        case Status.QUEUED if not look.has_tasks and _has_room(session, look):
            return "without a task in the queue"
        case Status.SLEEPING if session.next_wake_at is None or session.next_wake_at <= overdue:
            return "without a time to wake that is to come"
        case Status.WAITING if not _is_awaited(session):
            return f"on {session.waiting_on}, and nothing is pending"
    return ""


def _has_room(session: AgentSession, look: Look) -> bool:
    """The ticker sends a task when the owner has room."""
    running = [one for one in look.sessions.values() if one.status == Status.RUNNING]
    return sum(one.owner_id == session.owner_id for one in running) < settings.LQOPS_MAX_RUNNING_PER_USER


def _is_awaited(session: AgentSession) -> bool:
    match session.waiting_on:
        case WaitingOn.APPROVAL:
            return Approval.objects.filter(session=session, status=ApprovalStatus.PENDING).exists()
        case WaitingOn.INPUT:
            return Question.objects.filter(session=session, status=QuestionStatus.PENDING).exists()
        case WaitingOn.OPERATOR:
            return ToolCall.objects.filter(session=session, outcome=Outcome.UNKNOWN).exists()
        case WaitingOn.MODEL:
            wait = session.metadata.get("model_wait") or {}
            return is_away(wait.get("model", "")) and session.next_wake_at is not None
        case WaitingOn.RESUME:
            return session.paused_at is not None
    return False


def inputs_are_somewhere(look: Look) -> Iterator[str]:
    """Every input of a trigger is in one place: read, queued, retrying, given up (and told) or dismissed."""
    unread = {row.session_id: row for row in UnreadInput.objects.all()}
    taken_over = {one.restarted_from_id for one in look.sessions.values()}
    told = {event.details["session_id"] for event in look.events["input.given_up"]}
    for session in look.sessions.values():
        row = unread.get(session.pk)
        is_over = session.status in TERMINAL
        was_read = session.terminal_reason == TerminalReason.COMPLETED and not session.metadata.get("fault")
        wrong = ""
        if is_over and not was_read and answers_input(session) and row is None and session.pk not in taken_over:
            wrong = "was not read, and nothing says so"
        elif row is not None and is_over != (row.state != InputState.QUEUED):
            wrong = f"is {row.state}, and its run is {session.status}"
        elif row is not None and was_read:
            wrong = f"was read, and is {row.state}"
        elif row is not None and (row.due_at is None) != (row.state != InputState.RETRYING):
            wrong = f"is {row.state} and due at {row.due_at}"
        elif row is not None and row.state == InputState.GIVEN_UP and str(session.public_id) not in told:
            wrong = "was given up, and the audit log does not say so"
        if wrong:
            yield f"input: that of session {session.public_id} {wrong}"


def ends_are_recorded_once(look: Look) -> Iterator[str]:
    ended = Counter(event.chain for kind in ENDS for event in look.events[kind])
    for session in look.sessions.values():
        braked = session.halt_state == HaltState.HALTED
        if ended[session.chain] != (1 if session.status in TERMINAL or braked else 0):
            number = ended[session.chain]
            yield f"ends: session {session.public_id} is {session.status} and has {number} ends in its chain"


def effects_happen_once(look: Look) -> Iterator[str]:
    done = Counter((call.session_id, call.key) for call in look.calls if call.outcome == Outcome.SUCCESS)
    for (session, key), number in done.items():
        if number > 1:
            yield f"doubled: call {key} of session {session} succeeded {number} times"
    emitted = Counter(
        call.session_id
        for call in look.calls
        if call.intent == ToolIntent.EMIT_FINDING and call.outcome == Outcome.SUCCESS
    )
    findings = Counter(Finding.objects.values_list("session_id", flat=True))
    for session in emitted.keys() | findings.keys():
        if emitted[session] != findings[session]:
            yield f"effects: session {session} has {findings[session]} findings of {emitted[session]} calls"


# --- The guard, approvals, the audit log ---


def calls_were_allowed_before(look: Look) -> Iterator[str]:
    """Every call has a verdict, a reservation and an audit row, all of them written before it went out."""
    resolved = {event.details["call_id"] for event in look.events["tool_call.resolved"]}
    for call in look.calls:
        session = look.sessions[call.session_id]
        events = look.events_of_calls[str(call.public_id)]
        first = events[0] if events else None
        if first is None or first.details["outcome"] != Outcome.STARTED or first.at > call.started_at:
            yield f"unguarded: call {call.key} of {session.public_id} has no verdict dated before it"
        if call.outcome != Outcome.STARTED and str(call.public_id) not in resolved:
            last = events[-1].details["outcome"] if events else ""
            if last != call.outcome:
                yield f"unguarded: call {call.key} of {session.public_id} is {call.outcome}, the audit log says {last}"
        if call.model and not call.budget_ids:
            yield f"unguarded: call {call.key} of {session.public_id} asked a model without a reservation"
    asked = {(call.session_id, call.model) for call in look.calls}
    for one in InferenceLog.objects.filter(session__isnull=False).values_list("session_id", "model").distinct():
        if one not in asked:
            yield f"unguarded: model {one[1]} was asked for session {one[0]} without a call"


def approvals_are_used_once(look: Look) -> Iterator[str]:
    calls = {str(call.public_id): call for call in look.calls}
    uses = Counter(event.details["approval_id"] for event in look.events["approval.consumed"])
    tickets = {str(ticket.public_id): ticket for ticket in Approval.objects.filter(consumed_at__isnull=False)}
    for name in tickets.keys() | uses.keys():
        if uses[name] != 1 or name not in tickets:
            yield f"approval: {name} was used {uses[name]} times"
    for call_id, events in look.consumed.items():
        call, ticket = calls.get(call_id), tickets.get(events[0].details["approval_id"])
        if call is None or ticket is None or len(events) != 1:
            yield f"approval: call {call_id} used {len(events)} approvals"
        elif not ticket.digest == call.digest == events[0].details["digest"] == _digest(call, look):
            yield f"approval: call {call_id} was made with other arguments than those that were approved"
    yield from _unapproved(look)


def _digest(call: ToolCall, look: Look) -> str:
    return call_digest(
        session_id=str(look.sessions[call.session_id].public_id),
        key=call.key,
        intent=call.intent,
        name=call.name,
        version=call.version,
        phase=call.phase,
        arguments=call.arguments,
    )


def _unapproved(look: Look) -> Iterator[str]:
    """Calls that need a person by their level, and had none."""
    agents = dict(Agent.objects.values_list("pk", "mode"))
    levels = {name: skill.level for name, skill in installed_skills().items()}
    levels |= dict(SkillSetting.objects.exclude(level="").values_list("name", "level"))
    for call in look.calls:
        session = look.sessions[call.session_id]
        level = Level(levels.get(call.name, Level.SAFE))
        asks = agents.get(session.agent_id, ApprovalMode.SEMI) != ApprovalMode.AUTO
        if asks and level.rank >= Level.RESTRICTED.rank and str(call.public_id) not in look.consumed:
            yield f"approval: call {call.key} of {session.public_id} ({call.name}, {level}) was made without one"


def audit_log_verifies(look: Look) -> Iterator[str]:
    yield from (f"audit: {problem}" for problem in verify_log().problems)


# --- Halts ---


def halted_work_stays_halted(look: Look) -> Iterator[str]:
    """No call is allowed after a halt; a session that was to halt never ends as completed."""
    began = [event for event in look.events[CALLED] if event.details["outcome"] == Outcome.STARTED]
    halted_at = {event.chain: event.seq for event in look.events[HALT_REQUESTED]}
    for event in began:
        if event.seq > halted_at.get(event.chain, event.seq):
            yield f"halt: session {event.chain} began call {event.details.get('call_id')} after its halt"
    for session in look.sessions.values():
        if session.status == Status.COMPLETED and (
            session.chain in halted_at or session.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}
        ):
            yield f"halt: session {session.public_id} was halted and ended as completed"
    for start, end in _halts_of_all_work(look):
        for event in began:
            if start < event.pk < end and not _stopped_before_dispatch(event):
                yield f"halt: call {event.details.get('call_id')} began while all work was halted"


def _stopped_before_dispatch(event: AuditEvent) -> bool:
    """A halt that is committed between a call's verdict and its commit stops the call before its first byte."""
    call = ToolCall.objects.filter(public_id=event.details.get("call_id")).first()
    return call is not None and (call.outcome, call.detail) == (Outcome.DENIED, "halted_before_dispatch")


def _halts_of_all_work(look: Look) -> Iterator[tuple[int, float]]:
    """The halts of all work, each from one row of the audit log to another."""
    released = [event.pk for event in look.events["organisation.released"]]
    for event in look.events["organisation.halted"]:
        yield event.pk, min((pk for pk in released if pk > event.pk), default=float("inf"))


# --- Messages and secrets ---


def messages_leave(look: Look) -> Iterator[str]:
    stuck = OutboxMessage.objects.filter(
        status=OutboxStatus.PENDING, created_at__lt=look.now - OUTBOX_HORIZON - look.late
    )
    for message in stuck:
        yield f"outbox: message {message.public_id} is neither sent nor given up after {message.attempts} attempts"


def secrets_are_nowhere(look: Look) -> Iterator[str]:
    if not look.secrets:
        return
    for table in sorted(connection.introspection.table_names()):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            while rows := cursor.fetchmany(500):
                text = str(rows)
                for number, secret in enumerate(look.secrets):
                    if secret in text:
                        yield f"secret: number {number} stands in {table}"


CHECKS: tuple[Callable[[Look], Iterator[str]], ...] = (
    sessions_balance,
    budgets_balance,
    sessions_go_on,
    ends_are_recorded_once,
    effects_happen_once,
    inputs_are_somewhere,
    calls_were_allowed_before,
    approvals_are_used_once,
    audit_log_verifies,
    halted_work_stays_halted,
    messages_leave,
    secrets_are_nowhere,
)
