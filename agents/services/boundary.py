"""Reads the session at a boundary: once without a lock (R5 first), and once locked, inside the block that decides.

The locked read takes the session's row and shares the installation's row, so neither a session halt nor the halt of all
work can commit between the verdict and the commit of the block. SQLite's IMMEDIATE transaction is that lock.
"""

from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Exists, F, FilteredRelation, Q, QuerySet, Subquery

from agents.brakes import Boundary
from agents.enums import HaltState, Status
from agents.exceptions import LeaseLost
from agents.models import AgentSession, Installation, SuspendedModel
from agents.services.prices import PRICE_COLUMNS, longest_prefix_sql
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
_LOCKED = (
    "status",
    "halt_state",
    "terminal_reason",
    "current_phase",
    "fencing",
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
    row = (
        AgentSession.objects.filter(pk=session.pk)
        .annotate(
            organisation_halt=Subquery(Installation.objects.filter(pk=1).values("halt_id")),
            installed=Subquery(Installation.objects.filter(pk=1).values("pk")),
            call=FilteredRelation("tool_calls", condition=Q(tool_calls__key=key)),
        )
        .order_by(F("call__attempt").desc(nulls_last=True))
        .values(
            "status", "halt_state", "terminal_reason", "current_phase", "fencing", "organisation_halt", "installed",
            *(f"call__{name}" for name in _JOURNAL),
        )
        .first()
    )  # fmt: skip
    if row is None or row["installed"] is None:
        raise LeaseLost(f"Session {session.public_id} cannot be read; nothing is done for it.")
    boundary = _boundary(row, row["organisation_halt"])
    _check_holder(session, row["fencing"])
    found = {name: row[f"call__{name}"] for name in _JOURNAL}
    return Glance(boundary, found if found["public_id"] else None)


def lock(session: AgentSession, *, model: str = "") -> Locked:
    """One SELECT under lock, with what is declared of the model; only inside a transaction."""
    columns = [*(f"s.{name}" for name in _LOCKED), "i.halt_id", "x.model", *(f"p.{name}" for name in PRICE_COLUMNS)]
    share = "FOR NO KEY UPDATE OF s FOR SHARE OF i" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(columns)} FROM {AgentSession._meta.db_table} s "  # noqa: S608
            f"JOIN {Installation._meta.db_table} i ON i.id = 1 "
            f"LEFT JOIN {SuspendedModel._meta.db_table} x ON x.model = %s "
            f"LEFT JOIN ({longest_prefix_sql()}) p ON true "
            f"WHERE s.id = %s {share}",
            [model, model, session.pk],
        )
        rows = cursor.fetchall()
    if not rows:
        raise LeaseLost(f"Session {session.public_id} cannot be read; nothing is done for it.")
    [values] = rows
    row = {name: _from_db(name, value) for name, value in zip(_LOCKED, values, strict=False)}
    organisation_halt, suspended, *price = values[len(_LOCKED) :]
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
            warned=bool(row["budget_warned"]),
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
        halt_state__in=(HaltState.RUNNING, HaltState.PAUSED),
    )


def is_halted(session: AgentSession) -> bool:
    """A last look before the first byte leaves; best effort, after the brakes have decided."""
    return not holder(session).filter(Exists(Installation.objects.filter(pk=1, halt__isnull=True))).exists()


def in_open_transaction() -> bool:
    """True inside somebody's transaction; a test case's own wrapper does not count, as for atomic(durable=True)."""
    blocks = connection.atomic_blocks
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)


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


def _from_db(name: str, value: Any) -> Any:
    field = AgentSession._meta.get_field(name)
    convert = getattr(field, "from_db_value", None)
    return convert(value, None, connection) if convert else value
