"""A call that everything allows, opened in one statement and settled in one.

This is a faster way to the same rows, never to another decision: each statement tests everything that the brakes test
and writes all or nothing. When it writes nothing, the guard goes step by step, and finds out and records why. What
would add another row, such as a warning or an approval, goes step by step from the start. A skill's call is counted in
its hour, by the same statement.

PostgreSQL does it in one round trip and one commit, SQLite in a transaction of short statements.
"""

# ruff: noqa: S608 the statements are put together from names of our own columns

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django.db import DataError, IntegrityError

from agents.enums import Outcome
from agents.ledger.budgets import APPLYING, THEIR_BUDGETS
from agents.ledger.journal import call_details
from agents.ledger.prepared import (
    adapted,
    database_of_thread,
    on_postgres,
    run_on_postgres,
    run_on_sqlite,
    short_transaction,
)
from agents.ledger.prices import longest_prefix_sql
from agents.models import AgentSession, ToolCall
from agents.models.shared_texts import stored_json
from agents.policy.costs import WARN_FRACTION
from agents.policy.schedule import hour_of
from agents.types import SkillPace, ToolResult
from audit import recorder
from audit.kinds import TOOL_CALL
from audit.models import SkillAudit
from audit.recorder import LAST_LINK, NEXT_LINK, NEXT_LINK_ON_SQLITE, Head
from audit.skill_audits import SKILL_AUDIT, skill_digest

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

# Of a skill's call also: no rule might fit it, no approval of this run was refused or is still to be decided or used,
# the operators' settings of the skill are those that the call was planned by, and in its hour there is room for one
# more. The steps make the row of an hour, and wait while another call counts: a statement that has waited could miss a
# halt or a rule.
_NOBODY_ASKS: Final = """
      AND NOT EXISTS (
          SELECT 1 FROM agents_approvalrule r
          WHERE r.replaced_at IS NULL AND r.enabled AND (r.agent_id IS NULL OR r.agent_id = s.agent_id)
            AND r.skill IN ('', %(skill)s))
      AND NOT EXISTS (SELECT 1 FROM agents_approval a WHERE a.session_id = s.id AND a.consumed_at IS NULL)
      AND NOT EXISTS (
          SELECT 1 FROM agents_skillsetting g
          WHERE g.name = %(skill)s
            AND NOT (g.enabled AND g.level = %(chosen_level)s AND COALESCE(g.hourly_limit, -1) = %(chosen_limit)s))"""
_ROOM_IN_ITS_HOUR: Final = """
    SELECT k.id FROM {source}
    WHERE k.skill = %(skill)s AND k.hour = %(hour)s
      AND (%(hourly_limit)s::bigint IS NULL OR k.used < %(hourly_limit)s::bigint)"""
_COUNT: Final = """
    UPDATE agents_skillcount AS k SET used = k.used + 1, last_used_at = %(event_at)s
    {source} k.id {ids}"""

# R4: the estimate fits beside what was approved, and the worst case beside what may be billed; no budget comes to the
# part of its cap at which people are warned. No product of a cap stands there: the highest leaves no room for one.
_warned, _of = Fraction(str(WARN_FRACTION)).as_integer_ratio()
_FITS: Final = (
    "({cap} IS NULL OR ({charged} + {reserved} + %(estimate)s <= {cap} AND {actual} + {held} + %(worst)s <= {cap} "
    "AND ({cap} = 0 OR {warned} OR {cap} - ({charged} + {reserved} + %(estimate)s) > "
    f"({{charged}} + {{reserved}} + %(estimate)s) * {_of - _warned} / {_warned})))"
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
    "unknown_since": "timestamptz",
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
    "unknown_since": "NULL::timestamptz",
}


def _marks(names: Iterable[str]) -> str:
    return ", ".join(f"%({name})s::{_CASTS[name]}" if name in _CASTS else f"%({name})s" for name in names)


_CALL_VALUES: Final = _marks(_CALL)
_OPEN_VALUES: Final = ", ".join(_NO_END.get(name) or _marks([name]) for name in _CALL)


def _counted(source: str, *, counted: bool) -> list[str]:
    """A call that cannot be recorded is not counted, so it is counted where all that its event needs is there."""
    hour = _ROOM_IN_ITS_HOUR.format(source=f"agents_skillcount k, {source}")
    count = _COUNT.format(source="FROM hour WHERE", ids="= hour.id")
    parts = [f"hour AS ({hour} FOR NO KEY UPDATE OF k SKIP LOCKED)", f"counted AS ({count} RETURNING k.id)"]
    return parts if counted else []


def _open_sql(*, priced: bool, counted: bool) -> str:
    """Put the statement of PostgreSQL together. Locks in the order of everybody: session, budgets by id, count, chain.

    A row that was locked is read again as it is then; rules and settings are not. So the call of a skill waits for no
    budget: where another transaction holds one, there is no room, and the steps decide.
    """
    held = (_PRICED_HELD if priced else _HELD) + (_NOBODY_ASKS if counted else "")
    allowed = "held, room, head" if priced else "held, head"
    fits = f"HAVING count(*) = {_ALL_APPLYING} AND bool_and({_BUDGET_FITS})"
    reserved = """
    UPDATE agents_agentsession s
    SET cost_reserved_usd = s.cost_reserved_usd + %(estimate)s, cost_held_usd = s.cost_held_usd + %(worst)s
    FROM written WHERE s.id = %(session)s"""
    shared = """
    UPDATE agents_budget b SET reserved_usd = b.reserved_usd + %(estimate)s, held_usd = b.held_usd + %(worst)s
    FROM budgets, written WHERE b.id = budgets.id"""
    ids = "to_jsonb(room.ids)" if priced else "'[]'::jsonb"
    room = ", room" if priced else ""
    parts = [
        f"held AS ({held} FOR NO KEY UPDATE OF s SKIP LOCKED)",
        *([f"applying AS ({APPLYING})"] if priced else []),
        *([f"budgets AS ({_BUDGETS} FOR NO KEY UPDATE OF b{' SKIP LOCKED' if counted else ''})"] if priced else []),
        *([f"room AS (SELECT array_agg(b.id) AS ids FROM budgets b {fits})"] if priced else []),
        f"head AS ({LAST_LINK})",
        *_counted(allowed, counted=counted),
        f"written AS ({NEXT_LINK.format(source=allowed + (', counted' if counted else ''))})",
        *([f"reserved AS ({reserved})", f"shared AS ({shared})"] if priced else []),
        f"opened AS ({_INSERT_CALL} SELECT {_OPEN_VALUES}, {ids} FROM written{room} RETURNING id)",
    ]
    return f"WITH {', '.join(parts)} SELECT opened.id, written.seq, written.hash, {ids} FROM opened, written{room}"


_BOTH: Final = (False, True)
_OPEN: Final = {(priced, counted): _open_sql(priced=priced, counted=counted) for priced in _BOTH for counted in _BOTH}

# On SQLite the transaction is the lock, and rows are written by statements of their own.
_SQLITE_HOUR: Final = _ROOM_IN_ITS_HOUR.format(source="agents_skillcount k")


def _sqlite_sql(what: str, source: str, parts: Sequence[str], *, counted: bool) -> str:
    hour = [f"hour AS ({_SQLITE_HOUR})"] if counted else []
    return f"WITH {', '.join([*parts, *hour])} {what.format(source=source + (', hour' if counted else ''))}"


def _sqlite_free(*, counted: bool) -> str:
    """Put the statement together that appends the event of a call without a price, if everything allows it."""
    parts = [f"held AS ({_HELD}{_NOBODY_ASKS if counted else ''})", f"head AS ({LAST_LINK})"]
    return _sqlite_sql(NEXT_LINK_ON_SQLITE, "held, head", parts, counted=counted)


def _sqlite_room(*, counted: bool) -> str:
    """Put the statement together that reads the budgets which have room for a priced call, if all else allows it."""
    fits = f"min(CASE WHEN {_BUDGET_FITS} THEN 1 ELSE 0 END) = 1"
    room = f"SELECT json_group_array(b.id) AS ids FROM budgets b HAVING count(*) = {_ALL_APPLYING} AND {fits}"
    parts = [
        f"held AS ({_PRICED_HELD}{_NOBODY_ASKS if counted else ''})",
        f"applying AS ({APPLYING})",
        f"budgets AS ({_BUDGETS})",
        f"room AS ({room})",
    ]
    return _sqlite_sql("SELECT room.ids FROM {source}", "held, room", parts, counted=counted)


_SQLITE_FREE: Final = {counted: _sqlite_free(counted=counted) for counted in _BOTH}
_SQLITE_ROOM: Final = {counted: _sqlite_room(counted=counted) for counted in _BOTH}
_SQLITE_LINK: Final = _sqlite_sql(NEXT_LINK_ON_SQLITE, "head", [f"head AS ({LAST_LINK})"], counted=False)
_SQLITE_COUNT: Final = _COUNT.format(source="WHERE", ids=f"IN ({_SQLITE_HOUR})")
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

# --- A local call, in the transaction of its effect ---
#
# Its two events stand around its effect. If its tool may be undone, the effect comes first, and one statement judges it
# and writes both events.


def _begin_sql(*, counted: bool) -> str:
    parts = [
        f"held AS ({_HELD}{_NOBODY_ASKS if counted else ''} FOR NO KEY UPDATE OF s SKIP LOCKED)",
        f"head AS ({LAST_LINK})",
        *_counted("held, head", counted=counted),
        f"written AS ({NEXT_LINK.format(source='held, head' + (', counted' if counted else ''))})",
    ]
    return f"WITH {', '.join(parts)} SELECT seq, hash FROM written"


_BEGIN_LOCAL: Final = {counted: _begin_sql(counted=counted) for counted in _BOTH}
# A halt of all work since the verdict undoes the call.
_END_LOCAL: Final = f"""
WITH held AS ({_HELD}
), head AS ({LAST_LINK}
), written AS ({NEXT_LINK.format(source="held, head")}
), stamped AS (
    {_STAMP.format(source=_FROM_WRITTEN)}
)
{_INSERT_CALL} SELECT {_CALL_VALUES}, '[]'::jsonb FROM written RETURNING id"""

# What differs between the two events.
_OF_ONE_EVENT: Final = re.compile(r"%\((event_details|hash_\d)\)s")
_BEGAN: Final = _OF_ONE_EVENT.sub(r"%(began_\1)s", NEXT_LINK.format(source="held, head"))
_LOCAL: Final = f"""
WITH held AS ({_HELD} FOR NO KEY UPDATE OF s SKIP LOCKED
), head AS ({LAST_LINK}
), began AS ({_BEGAN}
), written AS ({NEXT_LINK.format(source="began AS head")}
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
        settled_at = %(event_at)s, unknown_since = %(unknown_since)s::timestamptz
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


_kinds = [(priced, logged, audited) for priced in _BOTH for logged in _BOTH for audited in _BOTH]
_SETTLE: Final = {kind: _settle_sql(priced=kind[0], logged=kind[1], audited=kind[2]) for kind in _kinds}
_IS_OPEN: Final = f"EXISTS (SELECT 1 FROM agents_toolcall WHERE id = %(call)s AND outcome = {_STARTED})"
_SQLITE_SETTLED: Final = _sqlite_sql(
    NEXT_LINK_ON_SQLITE, f"head WHERE EXISTS ({_HOLDER} AND {_IS_OPEN})", [f"head AS ({LAST_LINK})"], counted=False
)
_SQLITE_STAMP: Final = _STAMP.format(source="WHERE")
_SQLITE_BOOK: Final = _BOOK.format(source="WHERE")
_SQLITE_BOOK_SHARED: Final = _BOOK_SHARED.format(source="WHERE", ids="IN (SELECT value FROM json_each(%(budget_ids)s))")
_SQLITE_LOG: Final = f"{_LOG} VALUES ({_LOG_VALUES})"
_SQLITE_AUDIT: Final = f"{_AUDIT} VALUES ({_AUDIT_VALUES}, %(chain)s, %(seq)s)"
_SQLITE_CLOSE: Final = _CLOSE.format(source="WHERE")


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
    row: ToolCall,
    *,
    session: AgentSession,
    now: datetime,
    price_row: tuple[Any, ...] | None = None,
    pace: SkillPace | None = None,
    **more: Any,
) -> Opened | None:
    """Write the intent down if everything allows it: reservation, journal row, `started` event. Else nothing."""
    started = time.monotonic()
    params = _params(row, session, now=now, **more) | _count_params(pace, now)
    if price_row is not None:
        params |= {
            "day": (day := now.astimezone(UTC).date()),
            "month": day.replace(day=1),
            "estimate": params["approved_usd"],
            "worst": params["held_usd"],
            "price": "" if price_row[0] is None else " ".join(str(part) for part in price_row),
        }
    opened = _open_on_postgres if on_postgres() else _open_on_sqlite
    found = opened(params, priced=price_row is not None, counted=pace is not None)
    if found is None:
        return None
    row.pk, head, row.budget_ids = found
    row._state.adding = False  # noqa: SLF001 as save() does
    return Opened(head, waited=time.monotonic() - started > WAITED_SECONDS)


def _params(row: ToolCall, session: AgentSession, *, now: datetime, **more: Any) -> dict[str, Any]:
    """Return the columns of the journal row, and the event that says how far the call is."""
    columns = vars(row)
    return {
        **columns,
        **recorder.link_params(session.chain, TOOL_CALL, now=now, details={**call_details(row), **more}),
        **{name: _micro(columns[name]) for name in ("approved_usd", "held_usd", "charged_usd", "actual_usd")},
        "session": session.pk,
        "arguments": stored_json(row.arguments, row.arguments_json),
        "result": None if row.result is None else stored_json(row.result, row.result_json),
    }


def _count_params(pace: SkillPace | None, now: datetime) -> dict[str, Any]:
    if pace is None:
        return {}
    return {
        "skill": pace.name,
        "hour": hour_of(now),
        "hourly_limit": pace.limit,
        "chosen_level": pace.chosen_level,
        "chosen_limit": -1 if pace.chosen_limit is None else pace.chosen_limit,
    }


def begin_local(row: ToolCall, *, session: AgentSession, now: datetime, pace: SkillPace | None) -> bool:
    """Write the `started` event of a local call if everything allows it, in the transaction of its effect.

    Raises IntegrityError, as `end_local` does, if another writer of the chain was faster.
    """
    params = {
        **recorder.link_params(session.chain, TOOL_CALL, now=now, details=call_details(row)),
        "session": session.pk,
        "fencing": row.fencing,
        "phase": row.phase,
        "key": row.key,
        **_count_params(pace, now),
    }
    counted = pace is not None
    if on_postgres():
        return run_on_postgres(_BEGIN_LOCAL[counted], params) is not None
    return _begin_on_sqlite(params, counted=counted)


def end_local(row: ToolCall, *, session: AgentSession, now: datetime) -> bool:
    """Write a local call whole. False: the session was stopped meanwhile, and the caller undoes the effect."""
    row.settle(now)
    params = {**_params(row, session, now=now), "noted_before": now - NOTED_EVERY}
    is_postgres = on_postgres()
    return _has_id(row, run_on_postgres(_END_LOCAL, params) if is_postgres else _end_on_sqlite(params))


def record_local(row: ToolCall, *, session: AgentSession, now: datetime, started: Mapping[str, Any]) -> bool:
    """Write a local call whole if everything allows it, both events too. False: the caller undoes its effect.

    It is the last statement of the transaction. `started` is what the first event tells. Raises IntegrityError if
    another writer of the chain was faster.
    """
    row.settle(now)
    first = recorder.link_params(session.chain, TOOL_CALL, now=now, details=started)
    params = {**_params(row, session, now=now), "noted_before": now - NOTED_EVERY}
    began = {name: first[name] for name in ("event_details", "hash_1", "hash_2", "hash_3")}  # the rest is the same
    if on_postgres():
        params |= {f"began_{name}": value for name, value in began.items()}
        return _has_id(row, run_on_postgres(_LOCAL, params, is_last=True))
    return _has_id(row, _end_on_sqlite(params, began))


def _has_id(row: ToolCall, found: Sequence[Any] | None) -> bool:
    """Give the row the id with which it was written. False: it was not."""
    if found is None:
        return False
    row.pk = int(found[0])
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
    log: Mapping[str, Any] | None,
    skill_call: SkillAudit | None,
    now: datetime,
) -> bool:
    """Close an open call in the ledgers, the journal and the audit log, if this worker holds it. Else write nothing."""
    before = dict(vars(row))
    row.end(result)
    row.charged_usd, row.actual_usd, row.tokens = charged, row.actual_usd + booked, row.tokens + tokens
    row.settle(now)
    details = call_details(row)
    if skill_call is not None:
        details[SKILL_AUDIT] = skill_digest(vars(skill_call))
    params = {
        **recorder.link_params(session.chain, TOOL_CALL, now=now, details=details),
        "session": session.pk,
        "fencing": session.fencing,
        "call": row.pk,
        "outcome": row.outcome,
        "unknown_since": row.unknown_since,
        "detail": row.detail,
        "error": row.error,
        "result": None if row.result is None else stored_json(row.result, row.result_json),
        "estimate": _micro(row.approved_usd),
        "worst": _micro(row.held_usd),
        "charged": _micro(charged),
        "booked": _micro(booked),
        "used": tokens,
        "budget_ids": row.budget_ids,
        "noted_before": now - NOTED_EVERY,
    }
    if log is not None:
        params |= {f"log_{name}": value for name, value in log.items()}
        params |= {f"log_{name}": _micro(log[name]) for name in ("approved_usd", "cost_estimate")}
    if skill_call is not None:
        params |= {f"skill_{name}": getattr(skill_call, name) for name in _AUDITED}
    kind = (bool(row.model), log is not None, skill_call is not None)
    settled = _settle_on_postgres if on_postgres() else _settle_on_sqlite
    done = False
    try:
        done = settled(kind, params)
    finally:
        if not done:
            vars(row).update(before)
    return done


# --- The databases ---


def _open_on_postgres(params: Mapping[str, Any], *, priced: bool, counted: bool) -> tuple[int, Head, list[int]] | None:
    found = _run_unless_overtaken(_OPEN[priced, counted], params)
    if found is None:
        return None
    pk, seq, last, budgets = found
    return int(pk), Head(int(seq), last), json.loads(budgets or "[]")


def _open_on_sqlite(params: Mapping[str, Any], *, priced: bool, counted: bool) -> tuple[int, Head, list[int]] | None:
    given = adapted(params)
    given["budget_ids"] = "[]"
    with short_transaction() as database:
        if priced:
            room = run_on_sqlite(_SQLITE_ROOM[counted], given, database)
            if room is None:
                return None
            (given["budget_ids"],) = room
        linked = run_on_sqlite(_SQLITE_LINK if priced else _SQLITE_FREE[counted], given, database)
        if linked is None:
            return None
        if counted:
            run_on_sqlite(_SQLITE_COUNT, given, database)
        if priced:
            run_on_sqlite(_SQLITE_RESERVE, given, database)
            run_on_sqlite(_SQLITE_RESERVE_SHARED, given, database)
        opened = run_on_sqlite(_SQLITE_OPEN, given, database)
    assert opened is not None  # noqa: S101 a row was inserted
    return opened[0], Head(*linked), json.loads(given["budget_ids"])


def _begin_on_sqlite(params: Mapping[str, Any], *, counted: bool) -> bool:
    given, database = adapted(params), database_of_thread()
    if run_on_sqlite(_SQLITE_FREE[counted], given, database) is None:
        return False
    if counted:
        run_on_sqlite(_SQLITE_COUNT, given, database)
    return True


def _end_on_sqlite(params: Mapping[str, Any], first: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
    given, database = adapted(params), database_of_thread()
    if run_on_sqlite(_SQLITE_FREE[False], given if first is None else given | first, database) is None:
        return None
    if first is not None:
        run_on_sqlite(_SQLITE_LINK, given, database)
    run_on_sqlite(_SQLITE_STAMP, given, database)
    return run_on_sqlite(_SQLITE_WHOLE, given | {"budget_ids": "[]"}, database)


def _settle_on_postgres(kind: tuple[bool, bool, bool], params: Mapping[str, Any]) -> bool:
    return _run_unless_overtaken(_SETTLE[kind], params) is not None


def _run_unless_overtaken(sql: str, params: Mapping[str, Any]) -> list[Any] | None:
    """Run a statement that is a transaction of its own. None also if another writer of the chain was faster.

    Or if the server cannot count as far as the amounts go; the steps can.
    """
    try:
        return run_on_postgres(sql, params)
    except (IntegrityError, DataError):
        return None


def _settle_on_sqlite(kind: tuple[bool, bool, bool], params: Mapping[str, Any]) -> bool:
    priced, logged, audited = kind
    given = adapted(params)
    given["budget_ids"] = json.dumps(params["budget_ids"])
    with short_transaction() as database:
        linked = run_on_sqlite(_SQLITE_SETTLED, given, database)
        if linked is None:
            return False
        run_on_sqlite(_SQLITE_BOOK if priced else _SQLITE_STAMP, given, database)
        if priced:
            run_on_sqlite(_SQLITE_BOOK_SHARED, given, database)
        if logged:
            run_on_sqlite(_SQLITE_LOG, given, database)
        if audited:
            run_on_sqlite(_SQLITE_AUDIT, given | {"seq": linked[0]}, database)
        run_on_sqlite(_SQLITE_CLOSE, given, database)
    return True


def _micro(amount: Decimal | None) -> int | None:
    if not amount:
        return None if amount is None else 0
    return int(Decimal(amount).scaleb(6))
