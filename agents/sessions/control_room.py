"""Home and health: what runs, what needs attention, today's budgets, recent problems, what is due.

Each function runs a fixed number of statements over a bounded number of rows, however long the installation has run.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Concat, NullIf
from django_q.models import OrmQ

from agents.database_clock import shared
from agents.enums import (
    ApprovalStatus,
    BudgetPeriod,
    BudgetScope,
    HaltScope,
    InputState,
    Mode,
    OutboxStatus,
    ProposalStatus,
    QuestionStatus,
    SensorState,
    Status,
    TerminalReason,
)
from agents.ledger.pooler import pooler_fault
from agents.ledger.trigger_health import BY_HAND
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Budget,
    Cap,
    Channel,
    ContextProposal,
    Document,
    Halt,
    Host,
    Installation,
    Lease,
    Memory,
    ModelOutage,
    Notification,
    OutboxMessage,
    Project,
    Question,
    Sensor,
    SuspendedModel,
    ToolCall,
    Trigger,
    UnreadInput,
)
from agents.models.expressions import CountOf
from agents.models.sessions import UNFINISHED
from agents.people.notifications import ABOUT_APPROVALS, ABOUT_QUESTIONS
from agents.policy.outcomes import REASONS, REFUSED
from agents.policy.transitions import TERMINAL
from agents.queue import broker_fault
from agents.sessions.faults import failing_models, host_faults, hosts_live
from agents.sessions.reads import purposes
from agents.sessions.restarts import agent_names, agents_not_running
from agents.sessions.schema import missing_migrations, newer_migrations
from audit.checkpoints import EVERY, last_checkpoint
from audit.kinds import TOOL_CALL
from audit.models import SYSTEM_CHAIN, AuditEvent

SHOWN: Final = 8
FIRST_FEW: Final = 3  # of each kind that needs attention: no kind pushes the others out of sight
LOOKED_AT: Final = 300
LOOKED_THROUGH: Final = 3_000  # events among which calls are looked for: no index has them, and most events are calls
CALLS_LOOKED_AT: Final = f"the newest {LOOKED_AT} calls within the last {LOOKED_THROUGH:,} audit events"
COUNTED: Final = 1_000
BRAKES: Final = (
    "autonomous_session.cost_cap_reached",
    "autonomous_trigger.refused",
    "autonomous_schedule.skipped",
)
HALT: Final = "autonomous_session.halted"


class Kind(StrEnum):
    """What can need attention, the most urgent first."""

    AGENT = "agent"
    RUN = "run"
    INPUT = "input"
    APPROVAL = "approval"
    QUESTION = "question"
    CALL = "call"
    SENSOR = "sensor"
    TRIGGER = "trigger"
    MODEL = "model"
    BUDGET = "budget"


@dataclass(frozen=True)
class Matter:
    """A question, a call, an input, a sensor or a trigger that needs attention."""

    kind: Kind
    pk: int
    name: str
    detail: str
    at: datetime | None
    owner_id: int
    agent_id: int


@dataclass(frozen=True)
class Attention:
    """What cannot go on, or goes wrong, without a person; at most a few of each kind."""

    runs: tuple[AgentSession, ...]
    approvals: tuple[Approval, ...]
    matters: tuple[Matter, ...]
    budgets: tuple["Meter", ...]


@dataclass(frozen=True)
class Counts:
    """The numbers of Home, up to the highest that is counted: active runs, what needs attention, what waits for one
    person, and what was done at least once.
    """

    by_status: dict[str, int]
    loops: int
    attention: dict[Kind, int]
    proposals: int
    memories: int
    notifications: int
    questions: int  # that this person may answer
    done: dict[str, bool]
    day_cap_usd: Decimal
    month_cap_usd: Decimal | None

    @property
    def active(self) -> int:
        return sum(self.by_status.values())


@dataclass(frozen=True)
class Meter:
    """The spend of one budget of this day or month against its cap."""

    scope: str
    name: str
    subject_id: int
    charged_usd: Decimal
    actual_usd: Decimal
    open_usd: Decimal
    cap_usd: Decimal | None
    budget_id: int | None = None
    period: str = BudgetPeriod.DAY

    @property
    def spent_usd(self) -> Decimal:
        """The larger of approved and reported cost."""
        return max(self.charged_usd, self.actual_usd)


@dataclass(frozen=True)
class Refusal:
    """A recent refusal, with the purpose of its run or the name of its trigger, if it has one."""

    at: datetime
    sentence: str
    session_id: str
    purpose: str = ""
    trigger: Trigger | None = None


def sessions_active() -> QuerySet[AgentSession]:
    """Return the runs that are not over."""
    return AgentSession.objects.filter(completed_at__isnull=True)


def sessions_running() -> tuple[AgentSession, ...]:
    """Return the newest runs that are not over."""
    named = sessions_active().select_related("owner", "agent", "trigger").defer("result")
    return tuple(named.order_by("-pk")[:SHOWN])


def sessions_ended() -> tuple[AgentSession, ...]:
    """Return the runs that ended last."""
    over = AgentSession.objects.filter(completed_at__isnull=False, mode=Mode.PHASED)
    return tuple(over.select_related("owner", "agent", "trigger").defer("result").order_by("-completed_at")[:SHOWN])


def sessions_unfinished(now: datetime) -> QuerySet[AgentSession]:
    """Return runs of the last day that failed or did a part of their work, and that nothing has taken up since.

    Those that somebody halted are left out, and those whose input is retried, given up or dismissed: it is listed
    itself.
    """
    ended = AgentSession.objects.filter(run_result__in=UNFINISHED, completed_at__gt=now - timedelta(days=1))
    ended = ended.exclude(terminal_reason__in=(TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT))
    return ended.filter(restarts__isnull=True, unread_input__isnull=True)


# --- Needs attention ---


FAILING_ATTEMPTS: Final = 2  # to send through a channel, in a row
FAILING_RUNS: Final = 3  # failed runs in a row by which a trigger counts as failing


def approvals_pending() -> QuerySet[Approval]:
    return Approval.objects.filter(status=ApprovalStatus.PENDING)


def questions_pending() -> QuerySet[Question]:
    return Question.objects.filter(status=QuestionStatus.PENDING)


def triggers_failing() -> QuerySet[Trigger]:
    """Return triggers that paused themselves, and those whose last runs all failed."""
    broken = (Q(paused_at__isnull=False) & ~Q(pause_reason=BY_HAND)) | Q(
        paused_at__isnull=True, enabled=True, failed_in_a_row__gte=FAILING_RUNS
    )
    return Trigger.objects.filter(broken, deleted_at__isnull=True)


def sensors_failing() -> QuerySet[Sensor]:
    """Return sensors of running loops that cannot be read."""
    broken = (SensorState.FAILING, SensorState.INVALID, SensorState.UNRESOLVED)
    return Sensor.objects.filter(Q(wanted=True) | Q(agent__wanted=True), state__in=broken)


NOBODY: Final = Value(0, output_field=BigIntegerField())
# What is shown of a matter: name, detail, since when, owner, agent.
_SHOWN: Final[Mapping[Kind, tuple[Any, ...]]] = {
    Kind.INPUT: (F("trigger__name"), F("reason"), F("failed_at"), F("owner_id"), NOBODY),
    Kind.QUESTION: (F("text"), F("session__agent__name"), F("asked_at"), F("session__owner_id"), NOBODY),
    Kind.CALL: (
        Coalesce(NullIf("name", Value("")), "intent"),
        F("detail"),
        F("settled_at"),
        F("session__owner_id"),
        NOBODY,
    ),
    Kind.SENSOR: (
        Concat("name", Value(" of "), "agent__name"),
        F("problem"),
        F("read_at"),
        F("agent__owner_id"),
        F("agent_id"),
    ),
    Kind.TRIGGER: (F("name"), F("pause_reason"), F("paused_at"), F("owner_id"), NOBODY),
}

_FIRST: Final = {Kind.QUESTION: ("asked_at",)}  # as everywhere, and as the index of those that wait has them


def _rows_of(now: datetime) -> dict[Kind, QuerySet[Any]]:
    """Return the rows of each kind that need attention, except models, budgets and agents that do not run."""
    return {
        Kind.RUN: sessions_unfinished(now),
        Kind.INPUT: UnreadInput.objects.filter(state=InputState.GIVEN_UP),
        Kind.APPROVAL: approvals_pending(),
        Kind.QUESTION: questions_pending(),
        Kind.CALL: ToolCall.objects.unknown(),
        Kind.SENSOR: sensors_failing(),
        Kind.TRIGGER: triggers_failing(),
    }


def counts_for(user: User, now: datetime, *, all_questions: bool, samples: Collection[str] = ()) -> Counts:
    """Return the numbers of Home, by one statement.

    Documents with the names of samples do not count as done; `all_questions`: this person may answer all.
    """
    kinds = _rows_of(now)
    numbers = {
        **{kind.name: rows for kind, rows in kinds.items()},
        **{status: AgentSession.objects.filter(status=status) for status in Status.values if status not in TERMINAL},
        "loops": sessions_active().filter(mode=Mode.LOOP),
        "proposals": ContextProposal.objects.filter(status=ProposalStatus.PROPOSED, project__owner=user),
        "memories": Memory.objects.filter(owner=user, state="proposed", deleted_at__isnull=True),
        **_for_user(user, all_questions=all_questions),
    }
    done: dict[str, QuerySet[Any]] = {
        "trigger": Trigger.objects.filter(deleted_at__isnull=True),
        "run": AgentSession.objects.all(),
        "document": Document.objects.exclude(name__in=samples),
        "decision": Approval.objects.filter(resolved_by__isnull=False),
        "halt": Halt.objects.all(),
    }
    columns: dict[str, Any] = {name: CountOf(rows, most=COUNTED) for name, rows in numbers.items()}
    columns |= {f"did_{name}": Exists(rows) for name, rows in done.items()}
    months = Cap.objects.filter(scope=BudgetScope.INSTALLATION, period=BudgetPeriod.MONTH)
    columns["month_cap"] = Subquery(months.values("cap_usd"))
    found = Installation.objects.values("max_cost_per_day_usd", **columns)
    row: Mapping[str, Any] = found.get(pk=1)
    return Counts(
        by_status={status: row[status] for status in Status.values if row.get(status)},
        attention={kind: row[kind.name] for kind in kinds},
        done={name: row[f"did_{name}"] for name in done},
        day_cap_usd=row["max_cost_per_day_usd"],
        month_cap_usd=row["month_cap"],
        **{name: row[name] for name in ("loops", "proposals", "memories", "notifications", "questions")},
    )


def _for_user(user: User, *, all_questions: bool) -> dict[str, QuerySet[Any]]:
    """Return the rows that the sidebar counts for one person."""
    asked = questions_pending()
    return {
        "questions": asked if all_questions else asked.filter(session__owner=user),
        # What waits for a decision is counted where it is decided.
        "notifications": Notification.objects.filter(owner=user, read_at__isnull=True).exclude(
            kind__in=ABOUT_APPROVALS | ABOUT_QUESTIONS
        ),
    }


def badge_counts(user: User, *, all_questions: bool) -> dict[str, int]:
    """Return the numbers beside the pages of the sidebar, by one statement."""
    rows = {"approvals": approvals_pending(), **_for_user(user, all_questions=all_questions)}
    found = Installation.objects.filter(pk=1).values(
        **{name: CountOf(found, most=COUNTED) for name, found in rows.items()}
    )
    return found.first() or dict.fromkeys(rows, 0)


def needs_attention(kinds: Collection[Kind], now: datetime) -> Attention:
    """Return what needs attention, of these kinds alone: four statements, however many rows there are."""
    rows = {kind: found for kind, found in _rows_of(now).items() if kind in kinds}
    runs: Iterable[AgentSession] = ()
    if Kind.RUN in rows:
        named = rows[Kind.RUN].select_related("owner", "agent", "trigger").defer("result")
        runs = named.order_by("-completed_at")[:FIRST_FEW]
    approvals: Iterable[Approval] = ()
    if Kind.APPROVAL in rows:
        named = rows[Kind.APPROVAL].select_related("session__agent", "session__owner", "session__trigger")
        approvals = named.order_by("created_at", "pk")[:FIRST_FEW]
    budgets = budgets_nearly_spent(now) if Kind.BUDGET in kinds else ()
    return Attention(tuple(runs), tuple(approvals), _matters(rows), budgets)


def _matters(rows: Mapping[Kind, QuerySet[Any]]) -> tuple[Matter, ...]:
    """Return the first few matters of each kind, by one statement for all kinds."""
    parts = []
    for kind, shown in _SHOWN.items():
        if kind in rows:
            few = rows[kind].order_by(*_FIRST.get(kind, ()), "pk").values("pk")[:FIRST_FEW]
            named = rows[kind].model._meta.default_manager.filter(pk__in=few).order_by()
            kind_ = Value(kind.value, output_field=CharField())
            parts.append(named.values_list(kind_, "pk", *shown))
    found = parts[0].union(*parts[1:], all=True) if parts else ()
    return tuple(Matter(Kind(kind), *facts) for kind, *facts in sorted(found, key=lambda row: (row[0], row[1])))


def budgets_nearly_spent(now: datetime) -> tuple["Meter", ...]:
    """Return the budgets of this day and month of which 80 % or more are spent."""

    def times(columns: Any, number: int) -> Any:
        return ExpressionWrapper(columns * number, output_field=BigIntegerField())

    full = (
        _named(Budget.objects.current(now).filter(cap_usd__gt=0))
        .annotate(
            approved=times(F("charged_usd") + F("reserved_usd"), 5),
            reported=times(F("actual_usd"), 5),
            most=times(F("cap_usd"), 4),
        )
        .filter(Q(approved__gte=F("most")) | Q(reported__gte=F("most")))
    )
    return tuple(_meter(row, row.known_as or row.name) for row in full.order_by("scope", "pk")[:SHOWN])


# --- Budgets of this day and month ---


def budget_subjects() -> dict[BudgetScope, QuerySet[Any]]:
    """Return the rows of each scope that has several, with what they are `known_as`."""
    return {
        BudgetScope.OWNER: User.objects.annotate(known_as=F("username")),
        BudgetScope.PROJECT: Project.objects.annotate(known_as=F("name")),
        BudgetScope.AGENT: Agent.objects.annotate(known_as=F("name")),
        BudgetScope.TRIGGER: Trigger.objects.annotate(known_as=F("name")),
    }


def budgets_binding(user: User, now: datetime, most: int = 50) -> tuple["Meter", ...]:
    """Return the budgets of this day and month with a cap that bind a person's runs."""
    own = Q(scope=BudgetScope.INSTALLATION) | Q(scope=BudgetScope.OWNER, subject_id=user.pk)
    for scope, rows in budget_subjects().items():
        if scope != BudgetScope.OWNER:
            own |= Q(scope=scope, subject_id__in=rows.filter(owner=user).values("pk"))
    rows = _named(Budget.objects.current(now).filter(own, cap_usd__isnull=False))
    return tuple(_meter(row, row.known_as) for row in rows.order_by("scope", "period", "pk")[:most])


def _named(budgets: QuerySet[Budget]) -> QuerySet[Any]:
    """Return the budgets with what their subjects are known as."""
    names = {scope: rows.filter(pk=OuterRef("subject_id")) for scope, rows in budget_subjects().items()}
    return budgets.annotate(
        known_as=Case(
            *(When(scope=scope, then=Subquery(rows.values("known_as")[:1])) for scope, rows in names.items()),
            default=Value("Installation"),
            output_field=CharField(),
        )
    )


def meter_today(scope: str, subject_id: int, *, cap: Decimal | None, name: str, now: datetime) -> Meter:
    """Return today's meter of one agent or trigger; an empty one before its first call of the day."""
    today = Budget.objects.daily().filter(day=now.astimezone(UTC).date())
    row = today.filter(scope=scope, subject_id=subject_id).first()
    return _meter(row or Budget(scope=scope, subject_id=subject_id, cap_usd=cap), name)


def _meter(row: Budget, name: str) -> Meter:
    charged, actual, reserved = (Decimal(x) for x in (row.charged_usd, row.actual_usd, row.reserved_usd))
    return Meter(row.scope, name, row.subject_id, charged, actual, reserved, row.cap_usd, row.pk, row.period)


def refusals_lately() -> tuple[Refusal, ...]:
    """Return the last acts of the brakes and the last refused firings, newest first.

    Refused calls are looked for among CALLS_LOOKED_AT, which the page says.
    """
    events = [event for kind in BRAKES for event in AuditEvent.objects.of_kind(kind).order_by("-id")[:SHOWN]]
    last = AuditEvent.objects.aggregate(last=Max("pk"))["last"] or 0
    calls = AuditEvent.objects.of_kind(TOOL_CALL).filter(pk__gt=last - LOOKED_THROUGH).order_by("-id")[:LOOKED_AT]
    events += [call for call in calls if call.details.get("outcome") in REFUSED][:SHOWN]
    halts = AuditEvent.objects.of_kind(HALT).order_by("-id")[:LOOKED_AT]
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
class Away:
    """A model that does not answer."""

    model: str
    since: datetime
    next_try_at: datetime
    error: str


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
    oldest_lease_until: datetime | None
    lost: int
    outbox_pending: int
    outbox_failed: int
    channels_failing: int
    outbox_oldest_at: datetime | None
    suspended: tuple[str, ...]
    away: tuple[Away, ...]
    checkpoint_at: datetime | None
    missing: tuple[str, ...]
    newer: tuple[str, ...]
    failing: tuple[str, ...]
    key_refused: tuple[str, ...]
    hosts: tuple[Host, ...]
    broker_away: str = ""
    not_running: tuple[AgentSession, ...] = ()  # the last loops and heartbeats of agents that were started
    faults: tuple[Fault, ...] = ()

    @property
    def red(self) -> tuple[str, ...]:
        return tuple(fault.text for fault in self.faults)


def health(now: datetime) -> Health:
    """Read the health of the installation.

    Raises Installation.DoesNotExist when the row that every call needs is missing.
    """
    now = shared(now)
    facts: Mapping[str, Any] = Installation.objects.values(**_health_columns(now)).get(pk=1)
    suspended, away = _models_out()
    failing = failing_models(now)
    found = Health(
        **facts,
        suspended=suspended,
        away=away,
        checkpoint_at=_checkpoint_at(),
        missing=tuple(missing_migrations()),
        newer=tuple(newer_migrations()),
        failing=failing.all_requests,
        key_refused=failing.key_refused,
        hosts=tuple(hosts_live(now)),
        broker_away=broker_fault(),
        not_running=() if facts["halted"] else tuple(agents_not_running()),
    )
    return replace(found, faults=_faults(found, now))


def _health_columns(now: datetime) -> dict[str, Any]:
    """Return everything that is counted, as columns of the installation's row: one statement reads it all."""

    def first(rows: QuerySet[Any], column: str) -> Subquery:
        return Subquery(rows.order_by(column).values(column)[:1])

    ticker = Lease.objects.filter(name=TICKER)
    queue = AgentSession.objects.filter(status=Status.QUEUED).annotate(since=Coalesce("enqueued_at", "created_at"))
    running = AgentSession.objects.filter(status=Status.RUNNING)
    pending = OutboxMessage.objects.filter(status=OutboxStatus.PENDING)
    counts: dict[str, QuerySet[Any]] = {
        "queued": queue,
        "running": running,
        "lost": running.filter(lease_until__lte=now),
        "outbox_pending": pending,
        "outbox_failed": OutboxMessage.objects.filter(status=OutboxStatus.FAILED),
        "channels_failing": Channel.objects.filter(enabled=True, failures__gte=FAILING_ATTEMPTS),
    }
    broker: dict[str, Any] = {
        "broker_depth": Value(None, output_field=IntegerField()),
        "unacknowledged": Value(0, output_field=IntegerField()),
    }
    if "orm" in settings.Q_CLUSTER:
        counts |= {"broker_depth": OrmQ.objects.all(), "unacknowledged": OrmQ.objects.filter(lock__gt=now)}
    return {
        "halted": Exists(Installation.objects.filter(pk=1, halt__isnull=False)),
        "ticker_owner": Coalesce(first(ticker, "owner"), Value("")),
        "ticker_done_at": first(ticker, "done_at"),
        "oldest_queued_at": first(queue, "since"),
        "oldest_lease_until": first(running.filter(lease_until__isnull=False), "lease_until"),
        "outbox_oldest_at": first(pending, "due_at"),
        **broker,
        **{name: CountOf(rows) for name, rows in counts.items()},
    }


def _models_out() -> tuple[tuple[str, ...], tuple[Away, ...]]:
    """Return the suspended models, and those that do not answer."""
    away = ModelOutage.objects.values_list("model", "since", "next_try_at", "error")
    suspended = SuspendedModel.objects.values_list(
        "model", "suspended_at", "suspended_at", Value(None, output_field=CharField())
    )
    found = sorted(away.union(suspended, all=True), key=lambda row: row[0])
    return tuple(row[0] for row in found if row[3] is None), tuple(Away(*row) for row in found if row[3] is not None)


def workers_active() -> tuple[Worker, ...]:
    """Return the workers that hold sessions."""
    held = AgentSession.objects.filter(status=Status.RUNNING).values("lease_owner").order_by("lease_owner")
    rows = held.annotate(number=Count("pk"), until=Min("lease_until"))[:WORKERS_SHOWN]
    return tuple(Worker(row["lease_owner"], row["number"], row["until"]) for row in rows)


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
    for model in found.key_refused:
        text = f"The server of model {model} refuses its key. Set another key, then test the model on the page Models."
        yield Fault(f"key:{model}", text)


def _work_faults(found: Health, now: datetime) -> Iterator[Fault]:
    if found.halted:
        yield Fault("halted", HALTED, tells=False)
    if found.lost:
        yield Fault("lost", "A worker did not renew its lease and counts as lost.", tells=False)
    if ticker_is_late(found.ticker_done_at, now):
        yield Fault(TICKER, "The ticker is not running: nothing that is due is started. Start `manage.py work`.")
    if idle := len(agent_names(found.not_running)):
        what = "1 agent that was started does" if idle == 1 else f"{idle} agents that were started do"
        text = f"{what} not run, and nothing starts it again. Start it again, or stop it: see Needs attention on Home."
        yield Fault("agents", text, tells=False)
    if found.oldest_queued_at is not None and now - found.oldest_queued_at > WAITS_TOO_LONG:
        text = "A run has been waiting for a worker. Start `manage.py work`, on one more host if it runs already."
        yield Fault("queue", text)
    if found.unacknowledged > found.running + UNACKNOWLEDGED:
        text = f"{found.unacknowledged} tasks were taken and never acknowledged: restart `manage.py work`."
        yield Fault("acknowledgement", text)
    if found.broker_away:
        text = f"Redis does not answer ({found.broker_away}), so no task reaches a worker. Start it, or mend its URL."
        yield Fault("broker", text)
    if found.channels_failing:
        what = "A channel does" if found.channels_failing == 1 else f"{found.channels_failing} channels do"
        yield Fault("channels", f"{what} not take notifications: see Channels for the error.", tells=False)
    if found.outbox_failed:
        number = f"{found.outbox_failed} notification{'' if found.outbox_failed == 1 else 's'}"
        text = f"{number} could not be delivered. See Deliveries."
        yield Fault("outbox", text, tells=False)


def _place_faults(found: Health, now: datetime) -> Iterator[Fault]:
    if found.checkpoint_at is not None and now - found.checkpoint_at > 4 * EVERY:
        text = "No checkpoint of the audit log was written lately: removed rows at its end would go unnoticed."
        yield Fault("checkpoint", text)
    if found.missing:
        names = ", ".join(found.missing)
        yield Fault("migrations", f"The database lacks migrations: run `manage.py migrate`. Missing: {names}.")
    if found.newer:
        names = ", ".join(found.newer)
        text = "A newer version of lqops has migrated the database, and does not allow this one. Start that version."
        yield Fault("newer migrations", f"{text} Its migrations: {names}.")
    if text := pooler_fault():
        yield Fault("pooler", text)
    for code, text in host_faults(found.hosts):
        yield Fault(code, text)


def ticker_is_late(done_at: datetime | None, now: datetime) -> bool:
    return done_at is None or now - done_at > TICKER_LATE
