"""Reads the session at a boundary: once without a lock (R5 first), and once locked, inside the block that decides.

The locked read takes the session's row and shares the installation's row, so neither a session halt nor the halt of all
work can commit between the verdict and the commit of the block. SQLite's IMMEDIATE transaction is that lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Model, QuerySet

from agents.enums import HaltState, Status
from agents.exceptions import LeaseLost
from agents.ledger.prices import PRICE_COLUMNS, longest_prefix_sql
from agents.models import AgentSession, Installation, SuspendedModel, ToolCall
from agents.policy.brakes import Boundary
from agents.types import Ledger

_JOURNAL = (
    "public_id",
    "key",
    "attempt",
    "asked_digest",
    "outcome",
    "detail",
    "result",
    "error",
    "charged_usd",
    "fencing",
)
_GOING_ON = (HaltState.RUNNING, HaltState.PAUSED)
_SEEN = ("status", "halt_state", "terminal_reason", "current_phase", "fencing")
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
    "agent_id",
    "trigger_id",
)


@dataclass(frozen=True)
class Glance:
    """The unlocked read: where the session stands, and what its journal holds under the call's key."""

    boundary: Boundary
    journal: dict[str, Any] | None


@dataclass(frozen=True)
class Locked:
    """The locked read: what is decided on until the block commits."""

    boundary: Boundary
    ledger: Ledger
    token_budget: int
    total_tokens: int
    agent_id: int | None
    trigger_id: int | None
    model_suspended: bool
    price_row: tuple[Any, ...]


def glance(session: AgentSession, key: str) -> Glance:
    """One SELECT. A session whose row cannot be read, or is held by another worker, is refused."""
    columns = [*(f"s.{name}" for name in _SEEN), "i.halt_id", *(f"c.{name}" for name in _JOURNAL)]
    rows = _select(
        f"SELECT {', '.join(columns)} FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 "
        f"LEFT JOIN {ToolCall._meta.db_table} c ON c.session_id = s.id AND c.key = %s "
        "WHERE s.id = %s ORDER BY c.attempt DESC LIMIT 1",
        [key, session.pk],
    )
    if not rows:
        raise LeaseLost(f"Session {session.public_id} cannot be read; nothing is done for it.")
    [values] = rows
    row, (organisation_halt, *found) = _named(AgentSession, _SEEN, values), values[len(_SEEN) :]
    _check_holder(session, row["fencing"])
    journal = _named(ToolCall, _JOURNAL, found)
    return Glance(_boundary(row, organisation_halt), journal if journal["public_id"] else None)


def lock(session: AgentSession, *, model: str = "") -> Locked:
    """One SELECT under lock, with what is declared of the model; only inside a transaction."""
    columns = [*(f"s.{name}" for name in _LOCKED), "i.halt_id", "x.model", *(f"p.{name}" for name in PRICE_COLUMNS)]
    share = "FOR NO KEY UPDATE OF s FOR SHARE OF i" if connection.vendor == "postgresql" else ""
    rows = _select(
        f"SELECT {', '.join(columns)} FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 "
        f"LEFT JOIN {SuspendedModel._meta.db_table} x ON x.model = %s "
        f"LEFT JOIN ({longest_prefix_sql()}) p ON true "
        f"WHERE s.id = %s {share}",
        [model, model, session.pk],
    )
    if not rows:
        raise LeaseLost(f"Session {session.public_id} cannot be read; nothing is done for it.")
    [values] = rows
    row, (organisation_halt, suspended, *price) = _named(AgentSession, _LOCKED, values), values[len(_LOCKED) :]
    _check_holder(session, row["fencing"])
    return Locked(
        boundary=_boundary(row, organisation_halt),
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
        agent_id=row["agent_id"],
        trigger_id=row["trigger_id"],
        model_suspended=suspended is not None,
        price_row=tuple(price),
    )


def holder(session: AgentSession) -> QuerySet[AgentSession]:
    """The rows that this worker may write: its own session, under its own fencing number, neither over nor halted."""
    return AgentSession.objects.filter(
        pk=session.pk,
        fencing=session.fencing,
        status=Status.RUNNING,
        halt_state__in=_GOING_ON,
    )


def is_halted(session: AgentSession) -> bool:
    """A last look before the first byte leaves; best effort, after the brakes have decided."""
    return not _select(
        f"SELECT 1 FROM {AgentSession._meta.db_table} s "  # noqa: S608
        f"JOIN {Installation._meta.db_table} i ON i.id = 1 AND i.halt_id IS NULL "
        "WHERE s.id = %s AND s.fencing = %s AND s.status = %s AND s.halt_state IN (%s, %s)",
        [session.pk, session.fencing, Status.RUNNING, *_GOING_ON],
    )


def _boundary(row: dict[str, Any], organisation_halt: int | None) -> Boundary:
    return Boundary(
        status=row["status"],
        halt_state=row["halt_state"],
        terminal_reason=row["terminal_reason"],
        organisation_halt=organisation_halt,
        phase=row["current_phase"],
    )


def _check_holder(session: AgentSession, fencing: int) -> None:
    if fencing != session.fencing:
        raise LeaseLost(
            f"Session {session.public_id} is held under number {fencing} now, not {session.fencing}; "
            "this worker's write is refused."
        )


def _select(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    """Read in SQL: a boundary is read at every call, and building the statement took longer than the reading."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _named(model: type[Model], names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """The first values of a row, as the fields of these names give them."""
    return {name: _from_db(model, name, value) for name, value in zip(names, values, strict=False)}


def _from_db(model: type[Model], name: str, value: Any) -> Any:
    field: Any = model._meta.get_field(name)
    column = field.cached_col
    for convert in (*connection.ops.get_db_converters(column), *column.get_db_converters(connection)):
        value = convert(value, column, connection)
    return value
