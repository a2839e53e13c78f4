"""Every condition and every amount of the statements that open and settle a call matters.

Each is taken out in turn, and a call then comes to something else than step by step, or no longer takes the short way.
"""

import re
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest
from django.db import DatabaseError, IntegrityError, connection

from agents.enums import BudgetPeriod, BudgetScope, Outcome
from agents.ledger import at_once
from agents.models import ToolCall
from agents.types import ToolResult
from tests.agents.guard.test_at_once import BY_ANOTHER, Case, World, judged, undone
from tests.factories import NOW

pytestmark = pytest.mark.django_db

ON_POSTGRES = connection.vendor == "postgresql"
REMOTE = {"kind": "remote"}
SKILL = {"kind": "skill"}
AGENT = {"scope": BudgetScope.AGENT}
LAST_CALL = "EXISTS (SELECT 1 FROM agents_toolcall c WHERE c.session_id = s.id AND c.key = %(key)s)"

# What is taken out, what takes its place, and a case in which that shows.
OPENING = [
    ("AND i.halt_id IS NULL", "", Case(**REMOTE, all_work=True)),
    ("AND i.halt_id IS NULL", "", Case(kind="local", within="all work is halted")),
    ("s.id = %(session)s AND", "", Case(**REMOTE, state="over")),
    ("AND s.fencing = %(fencing)s", "", Case(**REMOTE, state="taken over")),
    ("AND s.status = 'running'", "", Case(**REMOTE, state="over")),
    ("AND s.halt_state = 'running'", "", Case(**REMOTE, state="halt requested")),
    ("AND s.paused_at IS NULL", "", Case(**REMOTE, state="paused")),
    ("AND s.current_phase = %(phase)s", "", Case(**REMOTE, state="another phase")),
    (f"AND NOT {LAST_CALL}", "", Case(**REMOTE, made_before=Outcome.SUCCESS)),
    ("c.session_id = s.id AND", "", Case(**REMOTE, made_before=BY_ANOTHER)),
    (" AND c.key = %(key)s", "", Case(**REMOTE)),
]
OPENING += [
    (condition, instead, replace(case, kind="undoable"))
    for condition, instead, case in OPENING
    if case.made_before != Outcome.SUCCESS  # the table has one row for a place, and the call is undone
]
PRICED = [
    ("s.max_cost_usd IS NULL OR", "", Case(state="without a cap")),
    (
        "(s.cost_total_usd + s.cost_reserved_usd + %(estimate)s <= s.max_cost_usd AND",
        "(",
        Case(state="spent"),
    ),
    (
        "AND s.cost_actual_usd + s.cost_held_usd + %(worst)s <= s.max_cost_usd",
        "",
        Case(state="billed to the cap"),
    ),
    ("s.cost_total_usd + s.cost_reserved_usd", "s.cost_total_usd", Case(state="reserved to the cap")),
    ("s.cost_actual_usd + ", "", Case(state="billed to the cap")),
    ("+ s.cost_held_usd", "", Case(state="held to the cap")),
    ("s.max_cost_usd = 0 OR", "", Case(state="cap of nothing", price="free")),
    ("s.budget_warned OR", "", Case(state="nearly spent")),
    ("AND (s.max_cost_usd = 0", "OR (s.max_cost_usd = 0", Case(state="nearly spent, not warned")),
    ("s.token_budget = 0 OR", "", Case()),
    ("AND (s.token_budget = 0 OR s.total_tokens < s.token_budget)", "", Case(state="tokens used up")),
    ("AND NOT EXISTS (SELECT 1 FROM agents_suspendedmodel x WHERE x.model = %(model)s)", "", Case(model="suspended")),
    ("AND NOT EXISTS (SELECT 1 FROM agents_modeloutage o WHERE o.model = %(model)s)", "", Case(model="away")),
    ("%(price)s = COALESCE", "%(price)s <> '.' OR '' = COALESCE", Case(price="changed")),
    (
        "UNION ALL SELECT 'agent', agent_id, 'day' FROM held WHERE agent_id IS NOT NULL",
        "",
        Case(**AGENT, budget="spent"),
    ),
    (
        "UNION ALL SELECT 'trigger', trigger_id, 'day' FROM held WHERE trigger_id IS NOT NULL",
        "",
        Case(scope=BudgetScope.TRIGGER, budget="spent"),
    ),
    *(
        (
            f"(c.scope = '{scope}' AND",
            f"(c.scope = 'x{scope}' AND",
            Case(scope=scope, period=BudgetPeriod.MONTH, budget="spent"),
        )
        for scope in BudgetScope
    ),
    *(
        (f"AND c.subject_id = held.{scope}_id", "", Case(scope=scope, period=BudgetPeriod.MONTH, budget="of another"))
        for scope in BudgetScope
        if scope != BudgetScope.INSTALLATION
    ),
    ("b.scope = applying.scope AND", "", Case(**AGENT, budget="of another kind")),
    ("AND b.subject_id = applying.subject_id", "", Case(**AGENT, budget="of another")),
    ("AND b.period = applying.period", "", Case(budget="of a month from today")),
    ("AND b.day = CASE applying.period WHEN 'month' THEN %(month)s ELSE %(day)s END", "", Case(budget="of yesterday")),
    ("count(*) = (SELECT count(*) FROM applying) AND", "", Case(**AGENT, budget="not opened")),
    *([] if ON_POSTGRES else [("b.cap_usd IS NULL OR", "", Case())]),  # PostgreSQL leaves unknown ones out of bool_and
    ("(b.charged_usd + b.reserved_usd + %(estimate)s <= b.cap_usd AND", "(", Case(budget="spent, and warned")),
    ("AND b.actual_usd + b.held_usd + %(worst)s <= b.cap_usd", "", Case(budget="billed")),
    ("b.charged_usd + b.reserved_usd", "b.charged_usd", Case(budget="reserved to the cap")),
    ("b.actual_usd + ", "", Case(budget="billed")),
    ("b.cap_usd = 0 OR", "", Case(budget="of nothing", price="free")),
    ("+ b.held_usd", "", Case(budget="busy")),
    ("b.warned OR", "", Case(budget="nearly spent")),
    ("AND (b.cap_usd = 0", "OR (b.cap_usd = 0", Case(budget="nearly spent, not warned")),
]
SETTLING = [
    ("AND s.fencing = %(fencing)s", "", Case(**REMOTE, within="it is taken over")),
    ("AND s.status = 'running'", "", Case(**REMOTE, within="it ends")),
]
SKILLS = [
    ("AND r.enabled", "", Case(**SKILL, skill="denied by a rule that is off")),
    ("r.replaced_at IS NULL AND", "", Case(**SKILL, skill="denied by an old rule")),
    ("(r.agent_id IS NULL OR r.agent_id = s.agent_id)", "1 = 1", Case(**SKILL, skill="denied to another agent")),
    ("r.agent_id IS NULL OR", "", Case(**SKILL, skill="denied by a rule")),
    ("OR r.agent_id = s.agent_id", "", Case(**SKILL, skill="asked for by a rule of its agent")),
    ("AND r.skill IN ('', %(skill)s)", "", Case(**SKILL, skill="another denied")),
    ("IN ('', %(skill)s)", "IN (%(skill)s)", Case(**SKILL, skill="denied by a rule")),
    ("IN ('', %(skill)s)", "IN ('')", Case(**SKILL, skill="denied by a rule of its name")),
    (
        "AND NOT EXISTS (SELECT 1 FROM agents_approval a WHERE a.session_id = s.id AND a.consumed_at IS NULL)",
        "",
        Case(**SKILL, skill="denied by a person"),
    ),
    ("a.session_id = s.id AND", "", Case(**SKILL, skill="denied in another run")),
    ("AND a.consumed_at IS NULL", "", Case(**SKILL, skill="approved and made before")),
    ("g.name = %(skill)s", "1 = 1", Case(**SKILL, skill="another switched off")),
    ("g.enabled AND ", "", Case(**SKILL, skill="switched off since it was planned")),
    ("g.level = %(chosen_level)s AND ", "", Case(**SKILL, skill="of another level since it was planned")),
    (
        "AND COALESCE(g.hourly_limit, -1) = %(chosen_limit)s",
        "",
        Case(**SKILL, skill="limited since it was planned"),
    ),
    ("k.skill = %(skill)s AND", "", Case(**SKILL, skill="another called before")),
    ("AND k.hour = %(hour)s", "", Case(**SKILL, skill="called an hour ago")),
    ("OR k.used < %(hourly_limit)s::bigint", "OR 1 = 1", Case(**SKILL, skill="at its limit")),
    ("%(hourly_limit)s::bigint IS NULL OR", "", Case(**SKILL, skill="without a limit")),
    ("used = k.used + 1", "used = 1", Case(**SKILL, skill="called before")),
    (", last_used_at = %(event_at)s", "", Case(**SKILL, skill="called before")),
]
# Which rows are changed: without it, all are.
WHICH = (
    [
        ("FROM written WHERE s.id = %(session)s", "FROM written", Case()),
        ("FROM written WHERE id = %(session)s", "FROM written", Case()),
        ("WHERE b.id = budgets.id", "", Case(**AGENT, budget="of another")),
        ("WHERE k.id = hour.id", "", Case(**SKILL, skill="another called before")),
        ("WHERE agents_budget.id = budgets.id", "", Case(**AGENT, budget="of another")),
        ("FROM written WHERE c.id = %(call)s AND", "FROM written WHERE", Case(made_before=BY_ANOTHER)),
    ]
    if ON_POSTGRES
    else [
        ("WHERE id = %(session)s", "", Case()),
        ("WHERE c.id = %(call)s AND", "WHERE", Case(made_before=BY_ANOTHER)),
        ("WHERE id IN (SELECT value FROM json_each(%(budget_ids)s))", "", Case(**AGENT, budget="of another")),
        (
            "WHERE agents_budget.id IN (SELECT value FROM json_each(%(budget_ids)s))",
            "",
            Case(**AGENT, budget="of another"),
        ),
    ]
)
AMOUNT = re.compile(r"(\w+) = (?:\w\.)?\1 [+-] %\(\w+\)s")
CHARGED = ("charged_usd = %(charged)s", "charged_usd = 0", Case())  # in the journal


def changed(change, seen):
    """Have every statement run as `change` makes it, and note which it changed.

    A change that makes no statement of SQL proves nothing; what the tables do not accept does.
    """

    def run_changed(real):
        def run(sql, *given, **how):
            new = change(sql)
            seen.append(new != sql)
            try:
                return real(new, *given, **how)
            except IntegrityError:
                raise
            except DatabaseError as error:
                raise AssertionError(f"not a statement: {new}") from error

        return run

    name = "run_on_postgres" if ON_POSTGRES else "run_on_sqlite"
    return patch.object(at_once, name, run_changed(getattr(at_once, name)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("condition", "instead", "case"), [*OPENING, *PRICED, *SKILLS, *SETTLING, *WHICH, CHARGED])
def test_without_one_of_its_conditions_the_statement_does_something_else(condition, instead, case):
    plain, short, written = undone(lambda: judged(case, 0))
    assert plain == short

    seen = []
    assert noticed(lambda sql: sql.replace(condition, instead), case, written, seen)
    assert any(seen)


def noticed(change, case, written, seen=None):
    """Tell whether a case comes to something else with changed statements, or breaks what the tables demand."""
    during = partial(changed, change, [] if seen is None else seen)
    try:
        plain, short, now_written = undone(lambda: judged(case, 0, during))
    except DatabaseError:  # the transaction is of no more use after what the tables did not accept
        return True
    assert "AssertionError" not in short[0], short[0]
    return plain != short or now_written != written


def test_every_amount_that_the_statements_book_matters():
    texts = []
    undone(lambda: judged(Case(), 0, partial(changed, lambda sql: texts.append(sql) or sql, [])))
    assert not noticed(lambda sql: sql, Case(), 1)
    amounts = {(sql, found.span()) for sql in texts for found in AMOUNT.finditer(sql)}
    unnoticed = []
    for text, (start, end) in amounts:
        booked = text[start:end]
        other = text[:start] + booked.rpartition(" ")[0][:-2] + text[end:]  # without the sign and the amount
        if not noticed(lambda sql, text=text, other=other: other if sql == text else sql, Case(), 1):
            unnoticed.append(booked)

    assert (len(amounts) >= 10, unnoticed) == (True, [])


def test_call_is_settled_once():
    """After an answer that was lost, the guard looks first; the statement would not do it either."""
    world = World(Case(**REMOTE), 0)
    world.call()
    row = ToolCall.objects.get(key="here")
    again = {
        "charged": row.charged_usd,
        "booked": row.actual_usd,
        "result": ToolResult(row.charged_usd, None, row.outcome),
    }
    again |= {"tokens": 0, "session": world.session, "log": None, "skill_call": None, "now": NOW}

    assert not at_once.settle_call(row, **again)
    with changed(lambda sql: sql.replace("outcome = 'started'", "outcome <> ''"), []):
        assert at_once.settle_call(row, **again)
