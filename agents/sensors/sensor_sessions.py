"""The session under which an agent's sensors call tools and ask models: one for each UTC day and run of its loop.

A slice holds it as a runner holds any session, under a lease and all brakes. Between slices it sleeps; when its day is
over, or its loop has stopped, it is woken and ends (agents/sensors/day.py).
"""

from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from django.db import transaction

from agents.conf import lease_lifetime
from agents.enums import Mode, Status
from agents.exceptions import LeaseLost, NotAllowed, SessionHalted
from agents.models import Agent, AgentSession, Sensor
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import session_rest
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from audit.receipts import worded

KEY: Final = "key"
DAY: Final = "day"


def day_of(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


def end_of_day(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


@transaction.atomic
def sensor_session_claim(
    *, agent: Agent, loop_pk: int, sensor_pk: int, fencing: int, owner: str, cap: Decimal | None, now: datetime
) -> AgentSession | str | None:
    """Today's session of the agent, held by the slice that holds the sensor; or why there is none to be had.

    None while another slice holds it: that one gives it back, or its lease runs out. One that was halted, or reached a
    limit, is not begun anew on the same day, unless the loop was.
    """
    if not _holds(sensor_pk, fencing, owner):
        raise LeaseLost(f"Sensor {sensor_pk} is held by another slice now.")
    day = day_of(now)
    row = _latest(agent.pk, day)
    if row is not None and row.status in TERMINAL:
        began_at = AgentSession.objects.values_list("created_at", flat=True).get(pk=loop_pk)
        if row.created_at >= began_at:
            return f"the sensors' run of today has ended: {worded('reason', str(row.terminal_reason))}"
        row = None
    if row is None:
        try:
            row = session_create(
                owner=agent.owner,
                agent=agent,
                mode=Mode.SENSOR,
                max_cost_usd=cap,
                params={KEY: f"agent:{agent.public_id}:sensors:{day}", DAY: day},
                now=now,
            )
        except (NotAllowed, SessionHalted) as refused:
            return str(refused)
    # Claimed in this transaction, it need not be handed to a worker: whoever is, finds nothing to take.
    AgentSession.objects.filter(pk=row.pk, status=Status.SLEEPING).update(status=Status.QUEUED, next_wake_at=None)
    claimed = lease_claim(row.pk, owner=owner, now=now)
    return claimed if claimed is not None else _why_not(row.pk)


def _holds(sensor_pk: int, fencing: int, owner: str) -> bool:
    """Under the sensor's lock, so that of two slices one makes the session."""
    rows = Sensor.objects.filter(pk=sensor_pk, fencing=fencing, lease_owner=owner)
    if transaction.get_connection().features.has_select_for_update:
        rows = rows.select_for_update(no_key=True)
    return rows.first() is not None


def _latest(agent_pk: int, day: str) -> AgentSession | None:
    rows = AgentSession.objects.filter(agent_id=agent_pk, mode=Mode.SENSOR, params__day=day)
    return rows.order_by("-pk").first()


def _why_not(pk: int) -> str | None:
    row = AgentSession.objects.get(pk=pk)
    if row.status == Status.RUNNING:
        return None
    if row.status == Status.WAITING:
        return f"the sensors' run of today waits on {row.waiting_on}"
    return f"the sensors' run of today is {row.status}"


def sensor_sessions_renew(*, owner: str, now: datetime) -> int:
    """Says that the slice is alive, for all sessions that it holds."""
    mine = AgentSession.objects.filter(lease_owner=owner, status=Status.RUNNING, mode=Mode.SENSOR)
    return mine.update(lease_until=now + lease_lifetime())


def sensor_session_rest(session: AgentSession, *, now: datetime) -> None:
    """Lets it sleep to the end of its day; to now, if its sensors are not wanted any more, or its loop is over."""
    same_day = session.params[DAY] == day_of(now)
    wake_at = end_of_day(now) if same_day and is_needed(session) else now
    session_rest(session, Status.SLEEPING, wake_at=wake_at, now=now)
    if wake_at != now and not is_needed(session):  # who ended its loop meanwhile has found it awake
        sensor_sessions_let_go([session.agent_id or 0], now=now)


def is_needed(session: AgentSession) -> bool:
    """Its loop is under way, and its sensors are wanted."""
    wanted = Sensor.objects.filter(agent__sessions=session, wanted=True).exists()
    return wanted and AgentSession.objects.active().filter(agent=session.agent_id, mode=Mode.LOOP).exists()


def sensor_sessions_let_go(agent_ids: Iterable[int], *, now: datetime) -> None:
    """Those that sleep are woken, to end. One that a slice holds, or is about to, comes to rest with it."""
    asleep = AgentSession.objects.filter(agent_id__in=list(agent_ids), mode=Mode.SENSOR, status=Status.SLEEPING)
    with transaction.atomic():
        free = [row.pk for row in asleep.select_for_update(no_key=True, skip_locked=True)]
        asleep.filter(pk__in=free).update(next_wake_at=now)
