"""Trigger health: counts failed and empty runs in a row and pauses a trigger before it wastes more.

Owns the lock on a trigger's row and the one way in which a trigger is paused. Lock order: trigger → budgets → system
chain; nobody who holds budgets or has written to the system chain waits for a trigger's lock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Sum

from agents.enums import NoticeKind, Status, TerminalReason
from agents.models import AgentSession, Trigger
from agents.models.sessions import spent_by_run
from agents.people.access import actor_of
from agents.people.notifications import notification_create
from agents.policy.transitions import REASON_STATUS
from agents.types import ZERO
from audit import recorder
from audit.models import SYSTEM_CHAIN

FAILING: Final = "failing"
EMPTY: Final = "empty"
STORM: Final = "storm"
BAD_CRON: Final = "bad_cron"
BY_HAND: Final = "by_hand"

# Faults of runs that completed without doing their work.
UNANSWERED_RUN: Final = "unanswered"
UNREAD_RUN: Final = "unread"
CUT_OFF_RUN: Final = "cut_off"
NO_TARGET_RUN: Final = "no_target"
PARTIAL_RUN: Final = "partial"  # it did a part of its work, which is no failure of its trigger

# Ends that say nothing about the trigger: a person or the watchdog stopped the run.
_NO_FAULT: Final = frozenset(
    {TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT, TerminalReason.IDLE_TIMEOUT, TerminalReason.AGENT_SHUTDOWN}
)
_WHY: Final[Mapping[str, str]] = {
    FAILING: "Its last {runs} runs failed.{last} Look at their receipts, then let it go on.",
    EMPTY: "Its last {runs} runs found nothing. Look at what it reads, then let it go on.",
    STORM: "It was asked to fire far more often than its limit of runs per hour. Find out who asks, then let it go on.",
    BAD_CRON: "Its schedule or its time zone cannot be read. Correct it, then let it go on.",
}
_LAST: Final[Mapping[str, str]] = {
    UNANSWERED_RUN: " In the last one the model could not be asked, or gave no answer.",
    UNREAD_RUN: " In the last one what it was to read could not be fetched.",
    CUT_OFF_RUN: " In the last one the model's answer could not be read.",
    NO_TARGET_RUN: " It has nothing to check against: give it a playbook or a skill.",
}


def trigger_lock(trigger_pk: int) -> Trigger | None:
    """Return the trigger's row, locked until the transaction ends; None if it is gone.

    On SQLite the transaction is the lock.
    """
    return Trigger.objects.select_for_update(no_key=True).filter(pk=trigger_pk).first()


def trigger_record(trigger: Trigger, kind: str, /, *, now: datetime, by: User | None = None, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=subject_of(trigger),
        details={"trigger_id": str(trigger.public_id), **details},
    )


def subject_of(trigger: Trigger) -> str:
    return f"trigger:{trigger.public_id}"


def trigger_stop(
    row: Trigger,
    reason: str,
    *,
    now: datetime,
    by: User | None = None,
    runs: int = 0,
    fault: str = "",
    with_runs: bool = False,
) -> None:
    """Pause a trigger whose row the caller has locked. Its owner is notified unless a person did it."""
    row.paused_at = now
    row.pause_reason = reason
    row.save(update_fields=["paused_at", "pause_reason"])
    more = {"with_runs": True} if with_runs else {}
    trigger_record(row, "autonomous_trigger.paused", now=now, by=by, reason=reason, runs=runs, **more)
    if by is None:
        notification_create(
            owner_id=row.owner_id,
            kind=NoticeKind.TRIGGER_PAUSED,
            title=f"Trigger paused: {row.name}",
            body=_WHY.get(reason, "It does not fire until somebody lets it go on.").format(
                runs=runs, last=_LAST.get(fault, "")
            ),
            now=now,
            page=f"/admin/agents/trigger/{row.pk}/change/",
        )


def trigger_note_end(trigger_pk: int, *, reason: TerminalReason, empty: bool, now: datetime, fault: str = "") -> None:
    """Count the end of a run for its trigger. A run that completed with a fault counts as failed.

    In the caller's transaction if the trigger's row is free, else right after its commit. It never waits: a session
    that ends has written to the audit log, and whoever fires the trigger holds its lock and may be waiting for just
    that.
    """
    if reason in _NO_FAULT:
        return
    row = _lock_if_free(trigger_pk)
    if row is not None:
        _count_end(row, reason, empty=empty, fault=fault, now=now)
    else:

        def later() -> None:
            _count_end_later(trigger_pk, reason, empty=empty, fault=fault, now=now)

        transaction.on_commit(later, robust=True)


def _lock_if_free(trigger_pk: int) -> Trigger | None:
    return Trigger.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=trigger_pk).first()


@transaction.atomic
def _count_end_later(trigger_pk: int, reason: TerminalReason, *, empty: bool, fault: str, now: datetime) -> None:
    row = trigger_lock(trigger_pk)
    if row is not None:
        _count_end(row, reason, empty=empty, fault=fault, now=now)


def _count_end(row: Trigger, reason: TerminalReason, *, empty: bool, fault: str, now: datetime) -> None:
    fine = REASON_STATUS[reason] == Status.COMPLETED and fault in {"", PARTIAL_RUN}
    row.failed_in_a_row = 0 if fine else row.failed_in_a_row + 1
    if fine:
        row.empty_in_a_row = row.empty_in_a_row + 1 if empty else 0
    row.save(update_fields=["failed_in_a_row", "empty_in_a_row"])
    if row.pause_after and row.paused_at is None and row.deleted_at is None:
        for why, runs in ((FAILING, row.failed_in_a_row), (EMPTY, row.empty_in_a_row)):
            if runs >= row.pause_after:
                trigger_stop(row, why, now=now, runs=runs, fault=fault)
                return


# --- Spend of triggers to date ---


@dataclass(frozen=True)
class TriggerSpend:
    """What the runs of a trigger cost together, and the figures of both ledgers: approved and reported."""

    sessions: int = 0
    spent_usd: Decimal = ZERO
    charged_usd: Decimal = ZERO
    actual_usd: Decimal = ZERO


def trigger_spend(trigger: Trigger) -> TriggerSpend:
    return triggers_spend([trigger.pk]).get(trigger.pk, TriggerSpend())


def triggers_spend(trigger_pks: Iterable[int]) -> dict[int, TriggerSpend]:
    """Return the spend by trigger in one statement; triggers without sessions are left out."""
    rows = AgentSession.objects.filter(trigger__in=list(trigger_pks)).values("trigger_id")
    sums = rows.annotate(
        sessions=Count("pk"), spent=Sum(spent_by_run()), charged=Sum("cost_total_usd"), actual=Sum("cost_actual_usd")
    )
    found = sums.order_by().values_list("trigger_id", "sessions", "spent", "charged", "actual")
    return {pk: TriggerSpend(*facts) for pk, *facts in found}
