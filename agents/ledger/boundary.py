"""Reads of a session at a boundary: first unlocked (R5 first), then locked, in the transaction that decides.

The locked read takes the session's row, so no halt of the session can commit between the verdict and the commit. Nobody
locks the installation's row to read it: the halt of all work waits for no one, and the last write of a call looks for
it again (`all_work_goes_on`). On SQLite the IMMEDIATE transaction is the lock. Also here: what lets a session be
created.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Exists, Model, Q, QuerySet

from agents.enums import HaltState, Status, TerminalReason
from agents.exceptions import Invalid, LeaseLost, NotAllowed, SessionHalted
from agents.ledger.prices import PRICE_COLUMNS, longest_prefix_sql
from agents.models import (
    Agent,
    AgentSession,
    Halt,
    Installation,
    ModelOutage,
    Profile,
    SuspendedModel,
    ToolCall,
    agents_may_run,
)
from agents.policy.brakes import Boundary
from agents.types import Ledger
from audit.rows import digest

_JOURNAL = (
    "public_id",
    "key",
    "attempt",
    "digest",
    "asked_digest",
    "outcome",
    "detail",
    "result",
    "error",
    "charged_usd",
    "fencing",
)
GOING_ON = (HaltState.RUNNING, HaltState.IDLE)
_SEEN = ("status", "halt_state", "terminal_reason", "current_phase", "fencing", "paused_at")
_LOCKED = (
    *_SEEN,
    "max_cost_usd",
    "cost_total_usd",
    "cost_reserved_usd",
    "cost_actual_usd",
    "cost_held_usd",
    "budget_warned",
    "token_budget",
    "total_tokens",
)


@dataclass(frozen=True)
class UnlockedRead:
    """The unlocked read: the session's state, and the journal entry under the call's key."""

    boundary: Boundary
    journal: dict[str, Any] | None


@dataclass(frozen=True)
class LockedRead:
    """The locked read: valid until the transaction commits."""

    boundary: Boundary
    ledger: Ledger
    token_budget: int
    total_tokens: int
    model_suspended: bool
    model_away_until: datetime | None
    price_row: tuple[Any, ...]


def read_unlocked(session: AgentSession, key: str) -> UnlockedRead:
    """Read the session and the journal entry in one SELECT; raise LeaseLost if another worker holds it."""
    columns = [*(f"s.{name}" for name in _SEEN), "i.halt_id", *(f"c.{name}" for name in _JOURNAL)]
    rows = _select(
        f"SELECT {', '.join(columns)} FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 "
        f"LEFT JOIN {ToolCall._meta.db_table} c ON c.session_id = s.id AND c.key = %s "
        "WHERE s.id = %s ORDER BY c.attempt DESC LIMIT 1",
        [key, session.pk],
    )
    row, (all_work_halt, *found) = _held(session, _SEEN, rows)
    journal = _named(ToolCall, _JOURNAL, found)
    return UnlockedRead(_boundary(row, all_work_halt), journal if journal["public_id"] else None)


def read_for_update(session: AgentSession, *, model: str = "") -> LockedRead:
    """Read the session under lock in one SELECT, with the model's price; only inside a transaction."""
    own = [f"s.{name}" for name in _LOCKED]
    columns = [*own, "i.halt_id", "x.model", "o.next_try_at", *(f"p.{name}" for name in PRICE_COLUMNS)]
    lock = "FOR NO KEY UPDATE OF s" if connection.vendor == "postgresql" else ""
    rows = _select(
        f"SELECT {', '.join(columns)} FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 "
        f"LEFT JOIN {SuspendedModel._meta.db_table} x ON x.model = %s "
        f"LEFT JOIN {ModelOutage._meta.db_table} o ON o.model = %s "
        f"LEFT JOIN ({longest_prefix_sql()}) p ON true "
        f"WHERE s.id = %s {lock}",
        [model, model, model, session.pk],
    )
    row, (all_work_halt, suspended, away_until, *price) = _held(session, _LOCKED, rows)
    return LockedRead(
        boundary=_boundary(row, all_work_halt),
        ledger=Ledger(
            name="session",
            cap=row["max_cost_usd"],
            charged=row["cost_total_usd"],
            reserved=row["cost_reserved_usd"],
            actual=row["cost_actual_usd"],
            held=row["cost_held_usd"],
            warned=row["budget_warned"],
        ),
        token_budget=row["token_budget"],
        total_tokens=row["total_tokens"],
        model_suspended=suspended is not None,
        model_away_until=_from_db(ModelOutage, "next_try_at", away_until),
        price_row=tuple(price),
    )


_TRY_AGAIN = frozenset({"40P01", "40001"})  # deadlock, serialization failure


def was_in_the_way(error: Exception) -> bool:
    """Return whether the database undid the work because it and others waited for each other: it can be done again."""
    return getattr(error.__cause__, "sqlstate", "") in _TRY_AGAIN


def holder(session: AgentSession) -> QuerySet[AgentSession]:
    """Return the session's row if this worker may write it: same fencing number, running, not halted."""
    return AgentSession.objects.filter(
        pk=session.pk,
        fencing=session.fencing,
        status=Status.RUNNING,
        halt_state__in=GOING_ON,
    )


def all_work_goes_on() -> Q:
    """Return the condition for a write that a halt of all work since the verdict must prevent."""
    return Q(Exists(Installation.objects.filter(pk=1, halt__isnull=True)))


def is_halted(session: AgentSession) -> bool:
    """Look once more before the first byte leaves; best effort, after the brakes have decided.

    A run that reached its cap meanwhile still makes the calls that were paid for before.
    """
    return not _select(
        f"SELECT 1 FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 AND i.halt_id IS NULL "
        "WHERE s.id = %s AND s.fencing = %s AND s.status = %s AND (s.halt_state IN (%s, %s) OR s.terminal_reason = %s)",
        [session.pk, session.fencing, Status.RUNNING, *GOING_ON, TerminalReason.COST_CAP_REACHED],
    )


def _boundary(row: dict[str, Any], all_work_halt: int | None) -> Boundary:
    return Boundary(
        status=row["status"],
        halt_state=row["halt_state"],
        terminal_reason=row["terminal_reason"],
        all_work_halt=all_work_halt,
        phase=row["current_phase"],
        is_paused=row["paused_at"] is not None,
    )


def _held(
    session: AgentSession, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[dict[str, Any], Sequence[Any]]:
    """Return the session's columns and the others of the row that was read; raise if another worker holds it."""
    if not rows:
        raise LeaseLost(f"Session {session.public_id} cannot be read; nothing is done for it.")
    [values] = rows
    row = _named(AgentSession, names, values)
    fencing = row["fencing"]
    if fencing != session.fencing:
        raise LeaseLost(
            f"Session {session.public_id} is held under number {fencing} now, not {session.fencing}; "
            "this worker's write is refused."
        )
    return row, values[len(names) :]


def _select(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    """Run plain SQL: a boundary is read at every call, and building the ORM query took longer than reading."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _named(model: type[Model], names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Convert the first values of a row as their fields would."""
    return {name: _from_db(model, name, value) for name, value in zip(names, values, strict=False)}


def _from_db(model: type[Model], name: str, value: Any) -> Any:
    field: Any = model._meta.get_field(name)
    column = field.cached_col
    for convert in (*connection.ops.get_db_converters(column), *column.get_db_converters(connection)):
        value = convert(value, column, connection)
    return value


# --- May a session be created? ---
# Opting out waits for the creations that have seen the old state, or these see the new one. The halt of all work waits
# for nobody: a session whose creation it overtook is halted by the ticker, and none of its calls starts.


TO_RELEASE = "Release it first: Release in the admin, manage.py release, or POST /api/v1/release."


def require_may_start(owner_pk: int) -> Profile:
    """Return the owner's profile, or raise unless a session may be created for them now."""
    profile = _standing(owner_pk)
    if profile is None or not profile.opted_in:
        raise NotAllowed("Agents run only for users who have opted in.")
    require_not_halted()
    return profile


def require_enabled(agent: Agent | None) -> Agent | None:
    """Return the agent, or raise if it is disabled."""
    if agent is not None and not agent.enabled:
        raise Invalid(f"The agent {agent.name} is switched off: switch it on, or choose another.")
    return agent


def may_run_for(user_pk: int) -> bool:
    """Return whether the user has opted in and is active, read without a lock."""
    return User.objects.filter(agents_may_run(), pk=user_pk).exists()


def is_opted_in(user_pk: int) -> bool:
    """Return the same under a shared lock: opting out then waits for this transaction and finds its session."""
    profile = _standing(user_pk)
    return profile is not None and profile.opted_in


def _standing(user_pk: int) -> Profile | None:
    """Return the profile of an active user under a shared lock; None if there is none."""
    profiles, users = Profile._meta.db_table, User._meta.db_table
    lock = " FOR SHARE OF p" if connection.vendor == "postgresql" else ""  # on SQLite the transaction is the lock
    rows = Profile.objects.raw(
        f"SELECT p.* FROM {profiles} p JOIN {users} u ON u.id = p.user_id "  # noqa: S608
        f"WHERE p.user_id = %s AND u.is_active{lock}",
        [user_pk],
    )
    return next(iter(rows), None)


def require_not_halted() -> None:
    """Raise while all work is halted."""
    halt = Installation.objects.select_related("halt__requested_by").get(pk=1).halt
    if halt is not None:
        raise SessionHalted(TerminalReason.EXTERNAL_HALT, f"{halt_message(halt)} {TO_RELEASE}")


def current_halt() -> Halt | None:
    """Return the halt of all work in force, if any; without a lock, for display."""
    return Halt.objects.select_related("requested_by").filter(pk__in=Installation.objects.values("halt_id")).first()


def halt_details(halt: Halt | int | None) -> dict[str, Any]:
    """Return what an audit event says of a halt: its id, and the digest of its reason, which is text of a person."""
    if isinstance(halt, int):
        halt = Halt.objects.get(pk=halt)
    return {"halt_id": halt.pk, "reason_digest": digest(halt.reason)} if halt else {}


def halt_message(halt: Halt, *, already: bool = False) -> str:
    """Say who halted all work, since when, and why."""
    by = halt.requested_by.get_username() if halt.requested_by else "somebody unnamed"
    why = f": {halt.reason.rstrip('.')}" if halt.reason else ""
    return (
        f"All work is {'already ' if already else ''}halted by {by} since {halt.requested_at:%Y-%m-%d %H:%M} UTC{why}."
    )
