"""A call that everything allows, opened in one statement and settled in one.

This is a faster way to the same rows, never to another decision: each statement tests everything that the brakes test
and writes all or nothing. When it writes nothing, the guard goes step by step, and finds out and records why. What
would add another row, such as a warning or an approval, goes step by step from the start.

PostgreSQL does it in one round trip and one commit, SQLite in a transaction of short statements.
"""

# ruff: noqa: S608 the statements are put together from names of our own columns

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

from agents.enums import Outcome
from agents.ledger.budgets import APPLYING, THEIR_BUDGETS
from agents.ledger.journal import call_details
from agents.ledger.prices import longest_prefix_sql
from agents.models import AgentSession, InferenceLog, ToolCall
from agents.models.shared_texts import stored
from agents.policy.costs import WARN_FRACTION
from agents.types import ToolResult
from audit import recorder
from audit.models import SkillAudit
from audit.recorder import LAST_LINK, NEXT_LINK, Head
from audit.skill_audits import SKILL_AUDIT, skill_digest

KIND: Final = "autonomous_session.tool_call"
WAITED_SECONDS: Final = 0.01  # a statement that took longer may have waited for a lock

# --- Opening ---

# R5: this worker holds a running session that nobody halted. R6: it is in the phase that the guard judged by. Nobody
# paused it. Journal: nothing stands at this place of the run.
_HELD: Final = """
    SELECT s.id, s.agent_id, s.trigger_id, s.owner_id, s.project_id FROM agents_agentsession s
    JOIN agents_installation i ON i.id = 1 AND i.halt_id IS NULL
    WHERE s.id = %(session)s AND s.fencing = %(fencing)s AND s.status = 'running' AND s.halt_state = 'running'
      AND s.paused_at IS NULL
      AND s.current_phase = %(phase)s
      AND NOT EXISTS (SELECT 1 FROM agents_toolcall c WHERE c.session_id = s.id AND c.key = %(key)s)"""

# R4: the estimate fits beside what was approved, and the worst case beside what may be billed; no budget comes to the
# part of its cap at which people are warned.
_warned, _of = Fraction(str(WARN_FRACTION)).as_integer_ratio()
_FITS: Final = (
    "({cap} IS NULL OR ({charged} + {reserved} + %(estimate)s <= {cap} AND {actual} + {held} + %(worst)s <= {cap} "
    f"AND ({{cap}} = 0 OR {{warned}} OR ({{charged}} + {{reserved}} + %(estimate)s) * {_of} < {{cap}} * {_warned})))"
)
_SESSION_FITS: Final = _FITS.format(
    cap="s.max_cost_usd",
    charged="s.cost_total_usd",
    reserved="s.cost_reserved_usd",
    actual="s.cost_actual_usd",
    held="s.cost_held_usd",
    warned="s.budget_warned",
)
_BUDGET_FITS: Final = _FITS.format(
    cap="b.cap_usd",
    charged="b.charged_usd",
    reserved="b.reserved_usd",
    actual="b.actual_usd",
    held="b.held_usd",
    warned="b.warned",
)
# Also R4: tokens are left, and the model is there, with the very price that the worst case was computed by.
_PRICED_HELD: Final = f"""{_HELD}
      AND {_SESSION_FITS}
      AND (s.token_budget = 0 OR s.total_tokens < s.token_budget)
      AND NOT EXISTS (SELECT 1 FROM agents_suspendedmodel x WHERE x.model = %(model)s)
      AND NOT EXISTS (SELECT 1 FROM agents_modeloutage o WHERE o.model = %(model)s)
      AND %(price)s = COALESCE((
          SELECT p.model || ' ' || p.input_usd || ' ' || p.output_usd || ' ' || p.overhead_tokens
          FROM ({longest_prefix_sql().replace("%s", "%(model)s")}) p), '')"""
_BUDGETS: Final = f"SELECT b.* FROM {THEIR_BUDGETS} ORDER BY b.id"
_ALL_APPLYING: Final = "(SELECT count(*) FROM applying)"

_CALL: Final = tuple(
    field.attname for field in ToolCall._meta.concrete_fields if not field.primary_key and field.name != "budget_ids"
)
# PostgreSQL takes an empty parameter for text.
_CASTS: Final = {
    "arguments": "jsonb",
    "result": "jsonb",
    "settled_at": "timestamptz",
    "resolved_at": "timestamptz",
    "log_cost_estimate": "bigint",
    "skill_user_id": "bigint",
    "skill_session_id": "uuid",
}
_FROM_WRITTEN: Final = "FROM written WHERE"
_INSERT_CALL: Final = f"INSERT INTO agents_toolcall ({', '.join(_CALL)}, budget_ids)"
# A call that is opened has no end yet.
_NO_END: Final = {
    "charged_usd": "0",
    "actual_usd": "0",
    "tokens": "0",
    "outcome": f"'{Outcome.STARTED}'",
    "detail": "''",
    "result": "NULL::jsonb",
    "error": "''",
    "settled_at": "NULL::timestamptz",
    "resolved_at": "NULL::timestamptz",
}


def _marks(names: Iterable[str]) -> str:
    return ", ".join(f"%({name})s::{_CASTS[name]}" if name in _CASTS else f"%({name})s" for name in names)


_CALL_VALUES: Final = _marks(_CALL)
_OPEN_VALUES: Final = ", ".join(_NO_END.get(name) or _marks([name]) for name in _CALL)
_OPEN: Final = f"""
WITH held AS ({_HELD}
    FOR NO KEY UPDATE OF s SKIP LOCKED
), head AS ({LAST_LINK}
), written AS ({NEXT_LINK.format(source="held, head")}
), opened AS (
    {_INSERT_CALL} SELECT {_OPEN_VALUES}, '[]'::jsonb FROM written RETURNING id
)
SELECT opened.id, written.seq, written.hash, NULL FROM opened, written"""

# Locks in the order of everybody: session, budgets by id, chain. A row that was locked is read again as it is then.
_OPEN_PRICED: Final = f"""
WITH held AS ({_PRICED_HELD}
    FOR NO KEY UPDATE OF s SKIP LOCKED
), applying AS ({APPLYING}
), budgets AS ({_BUDGETS}
    FOR NO KEY UPDATE OF b
), room AS (
    SELECT array_agg(b.id) AS ids FROM budgets b HAVING count(*) = {_ALL_APPLYING} AND bool_and({_BUDGET_FITS})
), head AS ({LAST_LINK}
), written AS ({NEXT_LINK.format(source="held, room, head")}
), reserved AS (
    UPDATE agents_agentsession s
    SET cost_reserved_usd = s.cost_reserved_usd + %(estimate)s, cost_held_usd = s.cost_held_usd + %(worst)s
    FROM written WHERE s.id = %(session)s
), shared AS (
    UPDATE agents_budget b SET reserved_usd = b.reserved_usd + %(estimate)s, held_usd = b.held_usd + %(worst)s
    FROM budgets, written WHERE b.id = budgets.id
), opened AS (
    {_INSERT_CALL} SELECT {_OPEN_VALUES}, to_jsonb(room.ids) FROM room, written RETURNING id
)
SELECT opened.id, written.seq, written.hash, room.ids FROM opened, written, room"""

_SQLITE_ROOM: Final = f"""
WITH held AS ({_PRICED_HELD}), applying AS ({APPLYING}), budgets AS ({_BUDGETS})
SELECT json_group_array(b.id) FROM budgets b
HAVING count(*) = {_ALL_APPLYING} AND min(CASE WHEN {_BUDGET_FITS} THEN 1 ELSE 0 END) = 1"""
_SQLITE_RESERVE: Final = """
UPDATE agents_agentsession
SET cost_reserved_usd = cost_reserved_usd + %(estimate)s, cost_held_usd = cost_held_usd + %(worst)s
WHERE id = %(session)s"""
_SQLITE_RESERVE_SHARED: Final = """
UPDATE agents_budget SET reserved_usd = reserved_usd + %(estimate)s, held_usd = held_usd + %(worst)s
WHERE id IN (SELECT value FROM json_each(%(budget_ids)s))"""
_SQLITE_OPEN: Final = f"{_INSERT_CALL} VALUES ({_OPEN_VALUES}, %(budget_ids)s) RETURNING id"
_SQLITE_WHOLE: Final = f"{_INSERT_CALL} VALUES ({_CALL_VALUES}, %(budget_ids)s) RETURNING id"

# Activity is noted to the second: the session's row is wide, and an hour without any is what its readers look for.
NOTED_EVERY: Final = timedelta(seconds=1)
_STAMP: Final = """
    UPDATE agents_agentsession SET last_activity_at = %(event_at)s
    {source} id = %(session)s AND last_activity_at <= %(noted_before)s"""

# --- A local call: its two events around its effect, in the transaction of the effect ---

_BEGIN_LOCAL: Final = f"""
WITH held AS ({_HELD}
    FOR NO KEY UPDATE OF s SKIP LOCKED
), head AS ({LAST_LINK}
), written AS ({NEXT_LINK.format(source="held, head")}
)
SELECT seq, hash FROM written"""
# A halt of all work since the verdict undoes the call.
_END_LOCAL: Final = f"""
WITH held AS ({_HELD}
), head AS ({LAST_LINK}
), written AS ({NEXT_LINK.format(source="held, head")}
), stamped AS (
    {_STAMP.format(source=_FROM_WRITTEN)}
)
{_INSERT_CALL} SELECT {_CALL_VALUES}, '[]'::jsonb FROM written RETURNING id"""

# --- Settling ---

# This worker still holds the session; a call that was in flight when a halt was requested is settled too.
_HOLDER: Final = """
    SELECT s.id FROM agents_agentsession s
    WHERE s.id = %(session)s AND s.fencing = %(fencing)s AND s.status = 'running'"""
_CLOSE: Final = """
    UPDATE agents_toolcall AS c
    SET outcome = %(outcome)s, detail = %(detail)s, result = %(result)s::jsonb, error = %(error)s,
        charged_usd = %(charged)s, actual_usd = c.actual_usd + %(booked)s, tokens = c.tokens + %(used)s,
        settled_at = %(event_at)s
    {source} c.id = %(call)s AND c.outcome = 'started'"""
_BOOK: Final = """
    UPDATE agents_agentsession
    SET last_activity_at = %(event_at)s, cost_reserved_usd = cost_reserved_usd - %(estimate)s,
        cost_held_usd = cost_held_usd - %(worst)s, cost_total_usd = cost_total_usd + %(charged)s,
        cost_actual_usd = cost_actual_usd + %(booked)s, total_tokens = total_tokens + %(used)s
    {source} id = %(session)s"""
_BOOK_SHARED: Final = """
    UPDATE agents_budget
    SET reserved_usd = reserved_usd - %(estimate)s, held_usd = held_usd - %(worst)s,
        charged_usd = charged_usd + %(charged)s, actual_usd = actual_usd + %(booked)s
    {source} agents_budget.id {ids}"""
_LOGGED: Final = (
    "session_id",
    "provider",
    "model",
    "purpose",
    "attempt",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "approved_usd",
    "cost_estimate",
    "latency_ms",
    "request_id",
    "refused",
    "outcome",
    "created_at",
)
_LOG_VALUES: Final = _marks(f"log_{name}" for name in _LOGGED)
_LOG: Final = f"INSERT INTO agents_inferencelog ({', '.join(_LOGGED)})"
_AUDITED: Final = tuple(
    field.attname
    for field in SkillAudit._meta.concrete_fields
    if not field.primary_key and field.name not in {"chain", "seq"}
)
_AUDIT: Final = f"INSERT INTO audit_skillaudit ({', '.join(_AUDITED)}, chain, seq)"
_AUDIT_VALUES: Final = _marks(f"skill_{name}" for name in _AUDITED)


_STARTED: Final = f"'{Outcome.STARTED}'"


def _settle_sql(*, priced: bool, logged: bool, audited: bool) -> str:
    """Put the statement of PostgreSQL together; its parts run in the order in which they need each other's rows."""
    budgets = "SELECT b.id FROM held JOIN agents_budget b ON b.id = ANY(%(budget_ids)s) ORDER BY b.id"
    book = _BOOK if priced else _STAMP
    parts = [
        f"held AS ({_HOLDER} FOR NO KEY UPDATE OF s)",
        *([f"budgets AS ({budgets} FOR NO KEY UPDATE OF b)"] if priced else []),
        f"head AS ({LAST_LINK})",
        f"open AS (SELECT c.id FROM held JOIN agents_toolcall c ON c.id = %(call)s AND c.outcome = {_STARTED})",
        "written AS ("
        + NEXT_LINK.format(source="open, head" + (", (SELECT count(*) FROM budgets) locked" if priced else ""))
        + ")",
        f"booked AS ({book.format(source=_FROM_WRITTEN)})",
        *(
            [f"shared AS ({_BOOK_SHARED.format(source='FROM budgets, written WHERE', ids='= budgets.id')})"]
            if priced
            else []
        ),
        *([f"logged AS ({_LOG} SELECT {_LOG_VALUES} FROM written)"] if logged else []),
        *([f"audited AS ({_AUDIT} SELECT {_AUDIT_VALUES}, %(chain)s, written.seq FROM written)"] if audited else []),
        f"closed AS ({_CLOSE.format(source=_FROM_WRITTEN)} RETURNING c.id)",
    ]
    return f"WITH {', '.join(parts)} SELECT closed.id FROM closed"


_kinds = [
    (priced, logged, audited) for priced in (False, True) for logged in (False, True) for audited in (False, True)
]
_SETTLE: Final = {kind: _settle_sql(priced=kind[0], logged=kind[1], audited=kind[2]) for kind in _kinds}
_SQLITE_OPEN_CALL: Final = (
    f"{_HOLDER} AND EXISTS (SELECT 1 FROM agents_toolcall WHERE id = %(call)s AND outcome = 'started')"
)
_SHARED_IDS: Final = "IN (SELECT value FROM json_each(%(budget_ids)s))"


# --- For the guard ---


_price_rows: Final[dict[str, tuple[Any, ...]]] = {}


def known_price_row(model: str) -> tuple[Any, ...] | None:
    """Return a model's price row as a call last read it. The statement that opens a call tests that it still holds."""
    return _price_rows.get(model)


def keep_price_row(model: str, row: tuple[Any, ...]) -> None:
    _price_rows[model] = row


@dataclass(frozen=True)
class Opened:
    """A call that was written down and paid for. `waited` means that a halt may have come since."""

    head: Head
    waited: bool


def open_call(
    row: ToolCall, *, session: AgentSession, now: datetime, price_row: tuple[Any, ...] | None = None, **more: Any
) -> Opened | None:
    """Write the intent down if everything allows it: reservation, journal row, `started` event. Else nothing."""
    started = time.monotonic()
    params = _params(row, session, now=now, **more)
    if price_row is not None:
        params |= {
            "day": (day := now.astimezone(UTC).date()),
            "month": day.replace(day=1),
            "estimate": params["approved_usd"],
            "worst": params["held_usd"],
            "price": "" if price_row[0] is None else " ".join(str(part) for part in price_row),
        }
    opened = _open_on_postgres if connection.vendor == "postgresql" else _open_on_sqlite
    found = opened(params, priced=price_row is not None)
    if found is None:
        return None
    row.pk, head, row.budget_ids = found
    row._state.adding = False  # noqa: SLF001 as save() does
    return Opened(head, waited=time.monotonic() - started > WAITED_SECONDS)


def _params(row: ToolCall, session: AgentSession, *, now: datetime, **more: Any) -> dict[str, Any]:
    """Return the columns of the journal row, and the event that says how far the call is."""
    return {
        **{name: getattr(row, name) for name in _CALL},
        **recorder.link_params(session.chain, KIND, now=now, details={**call_details(row), **more}),
        **{name: _micro(getattr(row, name)) for name in ("approved_usd", "held_usd", "charged_usd", "actual_usd")},
        "session": session.pk,
        "arguments": json.dumps(stored(row.arguments)),
        "result": None if row.result is None else json.dumps(stored(row.result)),
    }


def begin_local(row: ToolCall, *, session: AgentSession, now: datetime) -> bool:
    """Write the `started` event of a local call if everything allows it, in the transaction of its effect."""
    params = {
        **recorder.link_params(session.chain, KIND, now=now, details=call_details(row)),
        "session": session.pk,
        "fencing": row.fencing,
        "phase": row.phase,
        "key": row.key,
    }
    if connection.vendor == "postgresql":
        return _fetch(_BEGIN_LOCAL, params) is not None
    return _execute(_HELD, params) is not None and _link(params) is not None


def end_local(row: ToolCall, *, session: AgentSession, now: datetime) -> bool:
    """Write a local call whole. False: the session was stopped meanwhile, and the caller undoes the effect."""
    row.settled_at = now
    params = {**_params(row, session, now=now), "noted_before": now - NOTED_EVERY}
    if connection.vendor == "postgresql":
        found = _fetch(_END_LOCAL, params)
    else:
        found = _end_on_sqlite(params)
    if found is None:
        return False
    row.pk = found[0]
    row._state.adding = False  # noqa: SLF001 as save() does
    return True


def settle_call(
    row: ToolCall,
    *,
    session: AgentSession,
    charged: Decimal,
    booked: Decimal,
    result: ToolResult,
    tokens: int,
    log: InferenceLog | None,
    skill_call: SkillAudit | None,
    now: datetime,
) -> bool:
    """Close an open call in the ledgers, the journal and the audit log, if this worker holds it. Else write nothing."""
    before = dict(vars(row))
    row.outcome, row.detail, row.error, row.result = result.outcome, result.detail, result.error, result.data
    row.charged_usd, row.actual_usd, row.tokens = charged, row.actual_usd + booked, row.tokens + tokens
    row.settled_at = now
    details = call_details(row)
    if skill_call is not None:
        details[SKILL_AUDIT] = skill_digest(vars(skill_call))
    params = {
        **recorder.link_params(session.chain, KIND, now=now, details=details),
        "session": session.pk,
        "fencing": session.fencing,
        "call": row.pk,
        "outcome": row.outcome,
        "detail": row.detail,
        "error": row.error,
        "result": None if row.result is None else json.dumps(stored(row.result)),
        "estimate": _micro(row.approved_usd),
        "worst": _micro(row.held_usd),
        "charged": _micro(charged),
        "booked": _micro(booked),
        "used": tokens,
        "budget_ids": row.budget_ids,
        "noted_before": now - NOTED_EVERY,
    }
    if log is not None:
        params |= {f"log_{name}": getattr(log, name) for name in _LOGGED}
        params |= {f"log_{name}": _micro(getattr(log, name)) for name in ("approved_usd", "cost_estimate")}
    if skill_call is not None:
        params |= {f"skill_{name}": getattr(skill_call, name) for name in _AUDITED}
    kind = (bool(row.model), log is not None, skill_call is not None)
    settled = _settle_on_postgres if connection.vendor == "postgresql" else _settle_on_sqlite
    done = False
    try:
        done = settled(kind, params)
    finally:
        if not done:
            vars(row).update(before)
    return done


# --- The databases ---


def _open_on_postgres(params: Mapping[str, Any], *, priced: bool) -> tuple[int, Head, list[int]] | None:
    found = _fetch(_OPEN_PRICED if priced else _OPEN, params)
    return None if found is None else (found[0], Head(found[1], found[2]), found[3] or [])


def _open_on_sqlite(params: Mapping[str, Any], *, priced: bool) -> tuple[int, Head, list[int]] | None:
    with transaction.atomic(durable=True):
        found = _execute(_SQLITE_ROOM if priced else _HELD, params)
        head = _link(params) if found else None
        if found is None or head is None:
            return None
        budget_ids = found[0] if priced else "[]"
        if priced:
            _execute(_SQLITE_RESERVE, params)
            _execute(_SQLITE_RESERVE_SHARED, {**params, "budget_ids": budget_ids})
        opened = _execute(_SQLITE_OPEN, {**params, "budget_ids": budget_ids})
    assert opened is not None  # noqa: S101 a row was inserted
    return opened[0], head, json.loads(budget_ids)


def _end_on_sqlite(params: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if _execute(_HELD, params) is None or _link(params) is None:
        return None
    _execute(_STAMP.format(source="WHERE"), params)
    return _execute(_SQLITE_WHOLE, {**params, "budget_ids": "[]"})


def _settle_on_postgres(kind: tuple[bool, bool, bool], params: Mapping[str, Any]) -> bool:
    return _fetch(_SETTLE[kind], params) is not None


def _settle_on_sqlite(kind: tuple[bool, bool, bool], params: Mapping[str, Any]) -> bool:
    priced, logged, audited = kind
    with transaction.atomic(durable=True):
        head = _link(params) if _execute(_SQLITE_OPEN_CALL, params) else None
        if head is None:
            return False
        own = {**params, "budget_ids": json.dumps(params["budget_ids"]), "seq": head.seq}
        _execute((_BOOK if priced else _STAMP).format(source="WHERE"), own)
        if priced:
            _execute(_BOOK_SHARED.format(source="WHERE", ids=_SHARED_IDS), own)
        if logged:
            _execute(f"{_LOG} VALUES ({_LOG_VALUES})", own)
        if audited:
            _execute(f"{_AUDIT} VALUES ({_AUDIT_VALUES}, %(chain)s, %(seq)s)", own)
        _execute(_CLOSE.format(source="WHERE"), own)
    return True


_NAMED: Final = re.compile(r"%\((\w+)\)s")
_CAST: Final = re.compile(r"(?<=[)sL])::\w+")


def _fetch(sql: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Run one statement that the server keeps prepared. Outside of a transaction it is one of its own."""
    numbered, names = _numbered(sql)
    database = connections[DEFAULT_DB_ALIAS]
    database.ensure_connection()
    with database.wrap_database_errors:
        cursor = _cursor_of(database.connection, numbered)
        cursor.execute(numbered, [params[name] for name in names], prepare=True)
        found: tuple[Any, ...] | None = cursor.fetchone()
    return found


def _cursor_of(opened: Any, numbered: bytes) -> Any:
    """Return the cursor of this connection for this statement: used again, it knows how to send the parameters."""
    import psycopg  # it is not installed with the embedded default

    kept = vars(opened).setdefault("lqops_cursors", {})
    if numbered not in kept:
        kept[numbered] = psycopg.RawCursor(opened)
    return kept[numbered]


@lru_cache(maxsize=32)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """Return the statement with $1, $2 and so on, as the server takes it, and the parameters in that order.

    The driver then has nothing to translate: a third of its time.
    """
    names = list(dict.fromkeys(_NAMED.findall(sql)))
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode(), names


@lru_cache(maxsize=32)
def _on_sqlite(sql: str) -> tuple[str, frozenset[str]]:
    """Return the statement with :name for each parameter and without the casts of PostgreSQL, and those names."""
    return _NAMED.sub(r":\1", _CAST.sub("", sql)), frozenset(_NAMED.findall(sql))


def _execute(sql: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Run one statement by SQLite's driver, which keeps it prepared; return its first row."""
    named, names = _on_sqlite(sql)
    database = connections[DEFAULT_DB_ALIAS]
    with database.wrap_database_errors:
        cursor = database.connection.execute(named, {name: _adapted(params[name]) for name in names})
        found: tuple[Any, ...] | None = cursor.fetchone()
    return found


def _adapted(value: Any) -> Any:
    """Convert a value as Django does for SQLite."""
    match value:
        case datetime():
            return connection.ops.adapt_datetimefield_value(value)
        case date():
            return str(value)
        case UUID():
            return value.hex
        case _:
            return value


def _link(params: Mapping[str, Any]) -> Head | None:
    """Append the event where the transaction is the lock."""
    return recorder.append_next(params)


def _micro(amount: Decimal | None) -> int | None:
    return None if amount is None else int(Decimal(amount).scaleb(6))
