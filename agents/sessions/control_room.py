"""Home and health: what runs, what needs attention, today's cost, recent problems, what is due.

Each function runs a fixed number of statements over a bounded number of rows, however long the installation has run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Coalesce
from django_q.models import OrmQ

from agents.enums import (
    ApprovalStatus,
    BudgetScope,
    HaltScope,
    InputState,
    Mode,
    OutboxStatus,
    Outcome,
    ProposalStatus,
    QuestionStatus,
    Status,
    TerminalReason,
)
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Budget,
    ContextProposal,
    Halt,
    Host,
    Installation,
    Lease,
    Memory,
    ModelOutage,
    Notification,
    OutboxMessage,
    Question,
    SuspendedModel,
    ToolCall,
    Trigger,
    UnreadInput,
)
from agents.models.sessions import UNFINISHED
from agents.policy.transitions import TERMINAL
from agents.sessions.faults import failing_models, host_faults, hosts_live, missing_migrations
from agents.sessions.reads import purposes
from audit.checkpoints import EVERY, last_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent

SHOWN: Final = 8
LOOKED_AT: Final = 300
COUNTED: Final = 1_000
BRAKES: Final = (
    "autonomous_session.cost_cap_reached",
    "autonomous_trigger.refused",
    "autonomous_schedule.skipped",
)
CALL: Final = "autonomous_session.tool_call"
HALT: Final = "autonomous_session.halted"
# Labels for the reasons for which calls are refused.
REASONS: Final = {
    "rejected": "by a person",
    "expired": "no decision in time",
    "cancelled": "the run had ended",
    "refused_before": "the same call was denied before",
    "ticket_refused": "it is not the approved call",
    "budget_spent": "a shared budget is used up",
    "budget_busy": "other calls have reserved the rest of a budget",
    "dimension:cost": "the rest of the run's cap is too small",
    "dimension:tokens": "the run's tokens are used up",
}
REFUSED: Final = frozenset({Outcome.DENIED, Outcome.TOOL_NOT_GRANTED, Outcome.RATE_LIMITED})


@dataclass(frozen=True)
class Running:
    """Sessions that are not over, newest first, with counts by status and of loops."""

    rows: tuple[AgentSession, ...]
    counts: dict[str, int]
    loops: int

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Waiting:
    """Runs that cannot go on without a person."""

    approvals: tuple[Approval, ...]
    approvals_count: int
    oldest_at: datetime | None
    questions: tuple[Question, ...]
    questions_count: int
    unknown: tuple[ToolCall, ...]
    given_up: tuple[UnreadInput, ...]
    given_up_count: int
    unfinished: tuple[AgentSession, ...]
    unfinished_count: int
    away: tuple[ModelOutage, ...]
    proposals: int
    memories: int
    notices: int


@dataclass(frozen=True)
class Meter:
    """Today's spend of one budget against its cap."""

    scope: str
    name: str
    subject_id: int
    charged_usd: Decimal
    actual_usd: Decimal
    open_usd: Decimal
    cap_usd: Decimal | None


@dataclass(frozen=True)
class Refusal:
    """A recent refusal, with the purpose of its run or the name of its trigger, if it has one."""

    at: datetime
    sentence: str
    session_id: str
    purpose: str = ""
    trigger: Trigger | None = None


def sessions_running() -> Running:
    active = AgentSession.objects.exclude(status__in=sorted(TERMINAL))
    counts = dict(active.order_by().values_list("status").annotate(number=Count("pk")))
    rows = active.select_related("owner", "agent", "trigger").order_by("-pk")[:SHOWN]
    standing = {status: counts[status] for status in Status.values if status in counts}
    return Running(tuple(rows), standing, active.filter(mode=Mode.LOOP).count())


def sessions_ended() -> tuple[AgentSession, ...]:
    """Return the newest runs that are over."""
    over = AgentSession.objects.filter(status__in=sorted(TERMINAL), mode=Mode.PHASED)
    return tuple(over.select_related("owner", "agent", "trigger").defer("result").order_by("-pk")[:SHOWN])


def sessions_unfinished(now: datetime) -> QuerySet[AgentSession]:
    """Return runs of the last day that failed or did a part of their work, and that nothing has taken up since.

    Those that somebody halted are left out, and those whose input is retried, given up or dismissed: it is listed
    itself.
    """
    ended = AgentSession.objects.filter(run_result__in=UNFINISHED, completed_at__gt=now - timedelta(days=1))
    ended = ended.exclude(terminal_reason__in=(TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT))
    return ended.filter(restarts__isnull=True, unread_input__isnull=True)


def waiting_for(user: User, now: datetime) -> Waiting:
    pending = Approval.objects.filter(status=ApprovalStatus.PENDING)
    facts = pending.aggregate(number=Count("pk"), oldest=Min("created_at"))
    asked = Question.objects.filter(status=QuestionStatus.PENDING)
    unknown = ToolCall.objects.filter(outcome=Outcome.UNKNOWN, resolved_at__isnull=True)
    given_up = UnreadInput.objects.filter(state=InputState.GIVEN_UP)
    unfinished = sessions_unfinished(now)
    mine = Notification.objects.filter(owner=user, read_at__isnull=True)
    proposed = ContextProposal.objects.filter(status=ProposalStatus.PROPOSED, project__owner=user)
    noted = Memory.objects.filter(owner=user, state="proposed", deleted_at__isnull=True)
    return Waiting(
        approvals=tuple(
            pending.select_related("session__agent", "session__owner", "session__trigger").order_by("created_at", "pk")[
                :SHOWN
            ]
        ),
        approvals_count=facts["number"],
        oldest_at=facts["oldest"],
        questions=tuple(asked.select_related("session__agent", "session__owner").order_by("asked_at", "pk")[:SHOWN]),
        questions_count=asked[:COUNTED].count(),
        unknown=tuple(unknown.select_related("session").order_by("pk")[:SHOWN]),
        given_up=tuple(
            given_up.select_related("trigger", "session__agent", "session__trigger").order_by("-pk")[:SHOWN]
        ),
        given_up_count=given_up[:COUNTED].count(),
        unfinished=tuple(
            unfinished.select_related("owner", "agent", "trigger").defer("result").order_by("-completed_at")[:SHOWN]
        ),
        unfinished_count=unfinished[:COUNTED].count(),
        away=tuple(ModelOutage.objects.order_by("model")[:SHOWN]),
        proposals=proposed[:COUNTED].count(),
        memories=noted[:COUNTED].count(),
        notices=mine[:COUNTED].count(),
    )


def meters_today(now: datetime) -> tuple[Meter, ...]:
    """Return today's meters: the installation, then the agents and triggers that spent most."""
    today = Budget.objects.filter(day=now.astimezone(UTC).date())
    whole = today.filter(scope=BudgetScope.INSTALLATION).first()
    cap = Installation.objects.filter(pk=1).values_list("max_cost_per_day_usd", flat=True).first()
    meters = [_meter(whole or Budget(scope=BudgetScope.INSTALLATION, cap_usd=cap), "Installation")]
    for scope, known in ((BudgetScope.AGENT, Agent.objects.all()), (BudgetScope.TRIGGER, Trigger.objects.all())):
        rows = list(today.filter(scope=scope).order_by("-charged_usd", "pk")[:5])
        names = dict(known.filter(pk__in=[row.subject_id for row in rows]).values_list("pk", "name"))
        meters += [_meter(row, names.get(row.subject_id, f"{scope} {row.subject_id}")) for row in rows]
    return tuple(meters)


def meter_today(scope: str, subject_id: int, *, cap: Decimal | None, name: str, now: datetime) -> Meter:
    """Return today's meter of one agent or trigger; an empty one before its first call of the day."""
    row = Budget.objects.filter(scope=scope, subject_id=subject_id, day=now.astimezone(UTC).date()).first()
    return _meter(row or Budget(scope=scope, subject_id=subject_id, cap_usd=cap), name)


def _meter(row: Budget, name: str) -> Meter:
    charged, actual, reserved = (Decimal(x) for x in (row.charged_usd, row.actual_usd, row.reserved_usd))
    return Meter(row.scope, name, row.subject_id, charged, actual, reserved, row.cap_usd)


def refusals_lately() -> tuple[Refusal, ...]:
    """Return the last acts of the brakes and the last refused firings, newest first."""
    events = [event for kind in BRAKES for event in AuditEvent.objects.filter(kind=kind).order_by("-id")[:SHOWN]]
    calls = AuditEvent.objects.filter(kind=CALL).order_by("-id")[:LOOKED_AT]
    events += [call for call in calls if call.details.get("outcome") in REFUSED][:SHOWN]
    halts = AuditEvent.objects.filter(kind=HALT).order_by("-id")[:LOOKED_AT]
    own = Halt.objects.filter(scope=HaltScope.SESSION, session__public_id__in=[halt.chain for halt in halts])
    stopped = set(map(str, own.values_list("session__public_id", flat=True)))  # by a person: no problem
    events += [halt for halt in halts if halt.chain not in stopped][:SHOWN]
    events = sorted(events, key=lambda event: (event.at, event.pk), reverse=True)[:SHOWN]
    sessions = AgentSession.objects.filter(public_id__in={_session_of(event) for event in events} - {""})
    rows = list(sessions.select_related("agent", "trigger"))
    known = purposes(rows)
    named = {str(row.public_id): known[row.pk] for row in rows}
    fired = Trigger.objects.filter(public_id__in={event.details.get("trigger_id") for event in events} - {None, ""})
    triggers = {str(trigger.public_id): trigger for trigger in fired}
    return tuple(_refusal(event, named, triggers) for event in events)


def _refusal(event: AuditEvent, purposes: dict[str, str], triggers: dict[str, Trigger]) -> Refusal:
    """Build a refusal; a trigger is shown by its name."""
    trigger_id, session_id = str(event.details.get("trigger_id")), _session_of(event)
    trigger, sentence = triggers.get(trigger_id), _reason_text(event)
    if trigger:
        sentence = sentence.replace(trigger_id, f"“{trigger.name}”")
    return Refusal(event.at, sentence, session_id, purposes.get(session_id, ""), trigger)


def _reason_text(event: AuditEvent) -> str:
    detail = str(event.details.get("detail") or "")
    return f"{event.sentence[:-1]} ({REASONS.get(detail, detail.replace('_', ' '))})." if detail else event.sentence


def _session_of(event: AuditEvent) -> str:
    if event.chain != SYSTEM_CHAIN:
        return event.chain
    kind, _, public_id = event.subject.partition(":")
    return public_id if kind == "session" else ""


def triggers_due_next() -> tuple[Trigger, ...]:
    """Return schedules by next run; those already due come first."""
    live = Trigger.objects.live().filter(next_run_at__isnull=False)
    return tuple(live.select_related("owner", "playbook", "collection").order_by("next_run_at", "pk")[:SHOWN])


def is_new() -> dict[str, bool]:
    """Return what a new installation lacks, for the hints on an empty page."""
    return {
        "no_triggers": not Trigger.objects.filter(deleted_at__isnull=True).exists(),
        "no_sessions": not AgentSession.objects.exists(),
    }


# --- Health: ticker, queue, leases, outbox, models, checkpoints, read from rows ---
#
# What needs attention is a line in `red`. Nothing is repaired here.


TICKER: Final = "ticker"
HALTED: Final = "All work is halted."
TICKER_LATE: Final = timedelta(seconds=30)
WAITS_TOO_LONG: Final = timedelta(seconds=60)
UNACKNOWLEDGED: Final = 50  # tasks taken beyond those that are worked on; a killed worker leaves one for a while
WORKERS_SHOWN: Final = 50


@dataclass(frozen=True)
class Worker:
    """A worker that holds sessions, how many, and when its last lease ends."""

    owner: str
    sessions: int
    lease_until: datetime | None


@dataclass(frozen=True)
class Fault:
    """A fault that an operator must fix. `tells`: people are notified of it here, and not elsewhere."""

    code: str
    text: str
    tells: bool = True


@dataclass(frozen=True)
class Health:
    halted: bool
    ticker_owner: str
    ticker_done_at: datetime | None
    queued: int
    oldest_queued_at: datetime | None
    broker_depth: int | None
    unacknowledged: int
    running: int
    workers: tuple[Worker, ...]
    oldest_lease_until: datetime | None
    lost: int
    outbox_pending: int
    outbox_failed: int
    outbox_oldest_at: datetime | None
    suspended: tuple[str, ...]
    away: tuple[ModelOutage, ...]
    checkpoint_at: datetime | None
    missing: tuple[str, ...]
    failing: tuple[str, ...]
    hosts: tuple[Host, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def red(self) -> tuple[str, ...]:
        return tuple(fault.text for fault in self.faults)


def health(now: datetime) -> Health:
    """Read the health of the installation.

    Raises Installation.DoesNotExist when the row that every call needs is missing.
    """
    installation = Installation.objects.get(pk=1)
    ticker = Lease.objects.filter(name=TICKER).first()
    queue = AgentSession.objects.filter(status=Status.QUEUED).aggregate(
        number=Count("pk"), oldest=Min(Coalesce("enqueued_at", "created_at"))
    )
    running = AgentSession.objects.filter(status=Status.RUNNING)
    leases = running.aggregate(
        number=Count("pk"), oldest=Min("lease_until"), lost=Count("pk", filter=Q(lease_until__lte=now))
    )
    held = running.values("lease_owner").annotate(number=Count("pk"), until=Min("lease_until")).order_by("lease_owner")
    pending = OutboxMessage.objects.filter(status=OutboxStatus.PENDING)
    outbox = pending.aggregate(number=Count("pk"), oldest=Min("due_at"))
    found = Health(
        halted=installation.halt_id is not None,
        ticker_owner=ticker.owner if ticker else "",
        ticker_done_at=ticker.done_at if ticker else None,
        queued=queue["number"],
        oldest_queued_at=queue["oldest"],
        broker_depth=OrmQ.objects.count() if "orm" in settings.Q_CLUSTER else None,
        unacknowledged=OrmQ.objects.filter(lock__gt=now).count() if "orm" in settings.Q_CLUSTER else 0,
        workers=tuple(Worker(row["lease_owner"], row["number"], row["until"]) for row in held[:WORKERS_SHOWN]),
        running=leases["number"],
        oldest_lease_until=leases["oldest"],
        lost=leases["lost"],
        outbox_pending=outbox["number"],
        outbox_failed=OutboxMessage.objects.filter(status=OutboxStatus.FAILED).count(),
        outbox_oldest_at=outbox["oldest"],
        suspended=tuple(SuspendedModel.objects.order_by("model").values_list("model", flat=True)),
        away=tuple(ModelOutage.objects.order_by("model")),
        checkpoint_at=_checkpoint_at(),
        missing=tuple(missing_migrations()),
        failing=tuple(failing_models(now)),
        hosts=tuple(hosts_live(now)),
    )
    return replace(found, faults=_faults(found, now))


def _checkpoint_at() -> datetime | None:
    try:
        last = last_checkpoint()
    except OSError:  # the ticker's host reports why it cannot be used
        return None
    return datetime.fromisoformat(last["at"]) if last else None


def _faults(found: Health, now: datetime) -> tuple[Fault, ...]:
    return (*_model_faults(found), *_work_faults(found, now), *_place_faults(found, now))


def _model_faults(found: Health) -> Iterator[Fault]:
    for model in found.suspended:
        yield Fault(f"suspended:{model}", f"Model {model} is suspended: it billed more than its bound.", tells=False)
    for one in found.away:
        text = f"Model {one.model} has not answered since {one.since:%Y-%m-%d %H:%M} UTC."
        yield Fault(f"away:{one.model}", text, tells=False)
    for model in sorted(set(found.failing) - {one.model for one in found.away}):
        yield Fault(f"failing:{model}", f"Model {model} fails every request. See the errors of its last calls.")


def _work_faults(found: Health, now: datetime) -> Iterator[Fault]:
    if found.halted:
        yield Fault("halted", HALTED, tells=False)
    if found.lost:
        yield Fault("lost", "A worker did not renew its lease and counts as lost.", tells=False)
    if ticker_is_late(found.ticker_done_at, now):
        yield Fault(TICKER, "The ticker is not running: nothing that is due is started. Start `manage.py tick`.")
    if found.oldest_queued_at is not None and now - found.oldest_queued_at > WAITS_TOO_LONG:
        text = "A session has been waiting for a worker. Start `manage.py qcluster`, or more of its workers."
        yield Fault("queue", text)
    if found.unacknowledged > found.running + UNACKNOWLEDGED:
        text = f"{found.unacknowledged} tasks were taken and never acknowledged: restart `manage.py qcluster`."
        yield Fault("acknowledgement", text)
    if found.outbox_failed:
        text = f"{found.outbox_failed} notifications could not be sent by e-mail."
        yield Fault("outbox", text, tells=False)


def _place_faults(found: Health, now: datetime) -> Iterator[Fault]:
    if found.checkpoint_at is not None and now - found.checkpoint_at > 4 * EVERY:
        text = "No checkpoint of the audit log was written lately: removed rows at its end would go unnoticed."
        yield Fault("checkpoint", text)
    if found.missing:
        names = ", ".join(found.missing)
        yield Fault("migrations", f"The database lacks migrations: run `manage.py migrate`. Missing: {names}.")
    for code, text in host_faults(found.hosts):
        yield Fault(code, text)


def ticker_is_late(done_at: datetime | None, now: datetime) -> bool:
    return done_at is None or now - done_at > TICKER_LATE
