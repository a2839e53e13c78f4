"""Whether the installation can work, read from its rows: ticker, queue, leases, outbox, models, checkpoints.

For the health page, /healthz and whoever else asks. What needs attention is a line in `red`; nothing here mends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Min, Q
from django.db.models.functions import Coalesce
from django_q.models import OrmQ

from agents.conf import requeue_after
from agents.enums import OutboxStatus, Status
from agents.models import AgentSession, Installation, Lease, OutboxMessage, SuspendedModel
from audit.checkpoints import EVERY, last_checkpoint

TICKER: Final = "ticker"
HALTED: Final = "All work is halted."
TICKER_LATE: Final = timedelta(seconds=60)
SHOWN: Final = 50


@dataclass(frozen=True)
class Worker:
    """Who holds sessions, how many, and until when it was last heard of."""

    owner: str
    sessions: int
    lease_until: datetime | None


@dataclass(frozen=True)
class Health:
    halted: bool
    ticker_owner: str
    ticker_done_at: datetime | None
    queued: int
    oldest_queued_at: datetime | None
    broker_depth: int | None
    workers: tuple[Worker, ...]
    oldest_lease_until: datetime | None
    lost: int
    outbox_pending: int
    outbox_failed: int
    outbox_oldest_at: datetime | None
    suspended: tuple[str, ...]
    checkpoint_at: datetime | None
    red: tuple[str, ...]


def health(now: datetime) -> Health:
    """Raises Installation.DoesNotExist when the row that every call needs is missing."""
    halted = Installation.objects.get(pk=1).halt_id is not None
    suspended = tuple(SuspendedModel.objects.order_by("model").values_list("model", flat=True))
    ticker = Lease.objects.filter(name=TICKER).first()
    queue = AgentSession.objects.filter(status=Status.QUEUED).aggregate(
        number=Count("pk"), oldest=Min(Coalesce("enqueued_at", "created_at"))
    )
    running = AgentSession.objects.filter(status=Status.RUNNING)
    leases = running.aggregate(oldest=Min("lease_until"), lost=Count("pk", filter=Q(lease_until__lte=now)))
    held = running.values("lease_owner").annotate(number=Count("pk"), until=Min("lease_until")).order_by("lease_owner")
    pending = OutboxMessage.objects.filter(status=OutboxStatus.PENDING)
    outbox = pending.aggregate(number=Count("pk"), oldest=Min("due_at"))
    facts: dict[str, Any] = {
        "halted": halted,
        "ticker_owner": ticker.owner if ticker else "",
        "ticker_done_at": ticker.done_at if ticker else None,
        "queued": queue["number"],
        "oldest_queued_at": queue["oldest"],
        "broker_depth": OrmQ.objects.count() if "orm" in settings.Q_CLUSTER else None,
        "workers": tuple(Worker(row["lease_owner"], row["number"], row["until"]) for row in held[:SHOWN]),
        "oldest_lease_until": leases["oldest"],
        "lost": leases["lost"],
        "outbox_pending": outbox["number"],
        "outbox_failed": OutboxMessage.objects.filter(status=OutboxStatus.FAILED).count(),
        "outbox_oldest_at": outbox["oldest"],
        "suspended": suspended,
        "checkpoint_at": _checkpoint_at(),
    }
    return Health(**facts, red=_red(facts, now))


def _checkpoint_at() -> datetime | None:
    last = last_checkpoint()
    return datetime.fromisoformat(last["at"]) if last else None


def _red(facts: dict[str, Any], now: datetime) -> tuple[str, ...]:
    lines = [f"Model {model} is suspended: it billed more than its bound." for model in facts["suspended"]]
    if facts["halted"]:
        lines.append(HALTED)
    if facts["lost"]:
        lines.append("A worker has not been heard of for a whole lease.")
    done_at, oldest, checkpoint = facts["ticker_done_at"], facts["oldest_queued_at"], facts["checkpoint_at"]
    if done_at is None or now - done_at > TICKER_LATE:
        lines.append("The ticker is not running: nothing that is due is started. Start `manage.py tick`.")
    if oldest is not None and now - oldest > 2 * requeue_after():
        lines.append("A session has been waiting for a worker. Start `manage.py qcluster`, or more of its workers.")
    if facts["outbox_failed"]:
        lines.append(f"{facts['outbox_failed']} notices could not be sent by e-mail.")
    if checkpoint is not None and now - checkpoint > 4 * EVERY:
        lines.append("No checkpoint of the record was written lately; a cut tail would not be seen.")
    return tuple(lines)
