"""One statement each to open and to settle a call: the same rows, refusals and money as step by step."""

import random
import re
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, OperationalError, ProgrammingError, connection, transaction

from agents.enums import (
    ApprovalStatus,
    BudgetPeriod,
    BudgetScope,
    HaltState,
    Level,
    Outcome,
    Phase,
    RuleEffect,
    Status,
    TerminalReason,
    ToolIntent,
)
from agents.exceptions import RetryLater, SessionHalted
from agents.guard import guard, guarded_tool_call, settlement
from agents.guard.calls import plan_call
from agents.guard.intents import override, request_of
from agents.guard.tools import Tool, persisting
from agents.ledger import at_once
from agents.ledger.budgets import budget_set_cap
from agents.ledger.journal import END
from agents.models import (
    AgentSession,
    Approval,
    ApprovalRule,
    Budget,
    Cap,
    InferenceLog,
    Installation,
    ModelOutage,
    ModelPrice,
    SkillCount,
    SkillSetting,
    SuspendedModel,
    ToolCall,
)
from agents.policy.costs import MOST_USD
from agents.policy.schedule import hour_of
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.halts import halt_all_work
from agents.types import Capability, SkillPace, Usage
from audit import recorder
from audit.models import AuditEvent, SkillAudit
from audit.verify import verify_chain
from tests.agents.conftest import MODEL, ask
from tests.agents.sessions.test_lifecycle import somebody_waits
from tests.executed import executed_statements
from tests.factories import NOW, make_agent, make_price, make_project, make_session, make_trigger, make_user
from tests.flows.processes import PATIENCE, in_threads, until
from tests.serving import serving

pytestmark = pytest.mark.django_db
HOUR = hour_of(NOW)

STATES = {
    "usual": {},
    "halt requested": {"halt_state": HaltState.HALT_REQUESTED},
    "halted": {"halt_state": HaltState.HALTED, "terminal_reason": TerminalReason.EXTERNAL_HALT},
    "idle": {"halt_state": HaltState.IDLE},
    "paused": {"paused_at": NOW},
    "over": {"status": Status.COMPLETED, "terminal_reason": TerminalReason.COMPLETED, "completed_at": NOW},
    "taken over": {"fencing": 9},
    "another phase": {"current_phase": Phase.ANALYSIS},
    "phase without grants": {"current_phase": Phase.INTAKE},
    "tokens used up": {"token_budget": 10, "total_tokens": 10},
    "tokens left": {"token_budget": 10, "total_tokens": 9},
    "cap of nothing": {"max_cost_usd": Decimal(0)},
    "cap passed": {"max_cost_usd": Decimal("0.006"), "cost_total_usd": Decimal("0.002")},
    "cap to the last": {"max_cost_usd": Decimal("0.005"), "budget_warned": True},
    "warned at 80 percent": {"max_cost_usd": Decimal("0.006")},
    "billed to the cap": {"max_cost_usd": Decimal(1), "cost_actual_usd": Decimal(1)},
    "held to the cap": {"max_cost_usd": Decimal(1), "cost_held_usd": Decimal("0.9999"), "budget_warned": True},
    "room for half the answer": {"max_cost_usd": Decimal("0.0065"), "budget_warned": True},
    "room for all of it": {"max_cost_usd": Decimal(5)},
    "without a cap": {"max_cost_usd": None},
    "the highest cap": {"max_cost_usd": MOST_USD},
    "reserved to the cap": {"max_cost_usd": Decimal(1), "cost_reserved_usd": Decimal(1), "budget_warned": True},
    "spent": {"max_cost_usd": Decimal(1), "cost_total_usd": Decimal(1), "budget_warned": True},
    "nearly spent": {"max_cost_usd": Decimal(1), "cost_total_usd": Decimal("0.9"), "budget_warned": True},
    "nearly spent, not warned": {"max_cost_usd": Decimal(1), "cost_total_usd": Decimal("0.9")},
}
BUDGETS = {
    "usual": {},
    "spent": {"cap_usd": Decimal("0.004")},
    "near its warning": {"cap_usd": Decimal("0.006")},
    "warned": {"cap_usd": Decimal("0.0061"), "warned": True},
    "busy": {"cap_usd": Decimal(1), "held_usd": Decimal(1)},
    "of nothing": {"cap_usd": Decimal(0)},
    "the highest": {"cap_usd": MOST_USD},
    "billed": {"cap_usd": Decimal(1), "actual_usd": Decimal(1)},
    "reserved to the cap": {"cap_usd": Decimal(1), "reserved_usd": Decimal(1), "warned": True},
    "spent, and warned": {"cap_usd": Decimal(1), "charged_usd": Decimal(1), "warned": True},
    "nearly spent": {"cap_usd": Decimal(1), "charged_usd": Decimal("0.9"), "warned": True},
    "nearly spent, not warned": {"cap_usd": Decimal(1), "charged_usd": Decimal("0.9")},
    "not opened": None,
}
# Totals that are not this call's, all spent: what differs from those that are.
NOT_ITS_OWN = {
    "of another": {"subject_id": 9_999},
    "of another kind": {"scope": BudgetScope.PROJECT},
    "of yesterday": {"day": NOW.date() - timedelta(days=1)},
    "of a month from today": {"period": BudgetPeriod.MONTH, "day": NOW.date()},
}
MEANWHILE = {
    "": lambda rows: None,
    "all work is halted": lambda rows: halt_all_work(by=None, reason="meanwhile", now=NOW),
    "it is taken over": lambda rows: rows.update(fencing=9),
    "it ends": lambda rows: rows.update(**STATES["over"]),
}


def make_ticket(session, **fields):
    usual = {"session": session, "call_key": "here", "intent": ToolIntent.RUN_SKILL, "action": "act", "version": ""}
    usual |= {"phase": Phase.TURN, "level": Level.SAFE, "description": "act", "arguments": {}}
    usual |= {"digest": "d", "signature": "s", "created_at": NOW, "expires_at": NOW + timedelta(hours=1)}
    Approval.objects.create(**usual | fields)


HOURLY_LIMIT = 2
# What there is about a skill: of its hour, and of rules.
SKILLS = {
    "usual": lambda session: None,
    "first of its hour": lambda session: SkillCount.objects.all().delete(),
    "called before": lambda session: counted_calls(1),
    "called an hour ago": lambda session: counted_calls(1, hour=HOUR - timedelta(hours=1)),
    "another called before": lambda session: counted_calls(1, skill="other"),
    "at its limit": lambda session: counted_calls(HOURLY_LIMIT),
    "at its limit an hour ago": lambda session: counted_calls(HOURLY_LIMIT, hour=HOUR - timedelta(hours=1)),
    "another at its limit": lambda session: counted_calls(HOURLY_LIMIT, skill="other"),
    "of no calls": lambda session: None,
    "without a limit": lambda session: counted_calls(HOURLY_LIMIT),
    "with a pause between two calls": lambda session: counted_calls(1),
    "denied by a rule": lambda session: make_rule(effect=RuleEffect.DENY),
    "allowed by a rule": lambda session: make_rule(effect=RuleEffect.ALLOW),
    "asked for by a rule of its agent": lambda session: make_rule(effect=RuleEffect.ASK, agent_id=session.agent_id),
    "denied by a rule of its name": lambda session: make_rule(effect=RuleEffect.DENY, skill="act"),
    "denied to another agent": lambda session: make_rule(
        effect=RuleEffect.DENY, agent=make_agent(owner=session.owner, name="other")
    ),
    "another denied": lambda session: make_rule(effect=RuleEffect.DENY, skill="other"),
    "denied by a rule that is off": lambda session: make_rule(effect=RuleEffect.DENY, enabled=False),
    "denied by an old rule": lambda session: make_rule(effect=RuleEffect.DENY, replaced_at=NOW),
    "denied by a person": lambda session: make_ticket(session, status=ApprovalStatus.REJECTED),
    "asked for when there was a rule": make_ticket,
    "asked for, and nobody decided": lambda session: make_ticket(session, status=ApprovalStatus.EXPIRED),
    "approved and made before": lambda session: make_ticket(
        session, status=ApprovalStatus.APPROVED, consumed_at=NOW, call_key="before"
    ),
    "denied in another run": lambda session: make_ticket(
        make_session(owner=session.owner), status=ApprovalStatus.REJECTED
    ),
    "set as it was planned": lambda session: SkillSetting.objects.create(name="act"),
    "switched off since it was planned": lambda session: SkillSetting.objects.create(name="act", enabled=False),
    "of another level since it was planned": lambda session: SkillSetting.objects.create(name="act", level="SAFE"),
    "limited since it was planned": lambda session: SkillSetting.objects.create(name="act", hourly_limit=50),
    "another switched off": lambda session: SkillSetting.objects.create(name="other", enabled=False),
}
PACES = {
    "of no calls": {"limit": 0},
    "without a limit": {"limit": None},
    "with a pause between two calls": {"cooldown": timedelta(hours=1)},
}
PRICES = ("known", "changed", "a longer one", "none", "free")
BY_ANOTHER = "by another run"
REPLIES = {
    "usual": Step("ok", usage=Usage(10, 10)),
    "without usage": Step("ok", usage=None),
    "too dear": Step("ok", usage=Usage(0, 90_000)),
    "refused": Step("", usage=Usage(1, 1), stop_reason="refusal"),
    "failed": Step(error=ProviderError("no", fault=Fault.INVALID_REQUEST, contacted=True)),
    "away": Step(error=ProviderError("no", fault=Fault.CONNECTION)),
}


def counted_calls(used, skill="act", hour=None):
    found = {"used": used, "last_used_at": NOW - timedelta(minutes=1)}
    SkillCount.objects.update_or_create(skill=skill, hour=hour or HOUR, defaults=found)


def make_rule(**fields):
    ApprovalRule.objects.create(**{"name": "a rule", "enabled": True, "created_at": NOW} | fields)


@dataclass(frozen=True)
class Case:
    kind: str = "priced"
    skill: str = "usual"
    state: str = "usual"
    scope: str = BudgetScope.INSTALLATION
    period: str = BudgetPeriod.DAY
    budget: str = "usual"
    price: str = "known"
    reply: str = "usual"
    model: str = "there"
    all_work: bool = False
    made_before: str = ""
    result: str = "short"
    more_events: bool = False
    within: str = ""  # what happens while the tool is at work


def cases(count, seed):
    """Cases that differ from the usual one in up to three ways, those that differ in one first."""
    ways = {
        "kind": ("priced", "remote", "local", "undoable", "controlled", "skill", "priced skill", "local skill"),
        "skill": tuple(SKILLS),
        "state": tuple(STATES),
        "scope": tuple(BudgetScope),
        "period": tuple(BudgetPeriod),
        "budget": (*BUDGETS, *NOT_ITS_OWN),
        "price": PRICES,
        "reply": tuple(REPLIES),
        "model": ("there", "suspended", "away"),
        "all_work": (False, True),
        "made_before": ("", Outcome.SUCCESS, Outcome.STARTED, Outcome.WORKER_LOST, BY_ANOTHER),
        "result": ("short", "long", "failing", "not to be stored"),
        "more_events": (False, True),
        "within": tuple(MEANWHILE),
    }
    yield from (
        replace(Case(kind=kind), **{way: value}) for kind in ways["kind"] for way in ways for value in ways[way]
    )
    yield from (
        Case(scope=scope, period=period, budget=budget)
        for scope in ways["scope"]
        for period in ways["period"]
        for budget in ("usual", "spent", "billed", "not opened")
    )
    chosen = random.Random(seed)
    for _ in range(count):
        differing = chosen.sample(sorted(ways), 3)
        yield Case(**{way: chosen.choice(ways[way]) for way in differing})


class World:
    """One session and everything that a call of it depends on; what a call does to it is undone."""

    def __init__(self, case, number):
        self.case = case
        owner = make_user()
        rows = {"agent": make_agent(name=f"agent-{number}", owner=owner), "trigger": make_trigger(owner=owner)}
        rows |= {"project": make_project(owner=owner), "owner": owner}
        self.other = make_session(**rows, current_phase=Phase.TURN, fencing=3)
        self.session = make_session(**rows, current_phase=Phase.TURN, fencing=3)
        if case.scope != BudgetScope.INSTALLATION or case.period != BudgetPeriod.DAY:
            subject_id = rows[case.scope].pk if case.scope in rows else 0
            capped = {"scope": case.scope, "subject_id": subject_id, "period": case.period}
            budget_set_cap(**capped, cap_usd=Decimal(5), by=None, now=NOW)
        recorder.append(self.session.chain, "autonomous_session.started", now=NOW)
        rate = "0" if case.price == "free" else "1"
        make_price(MODEL, input_usd=rate, output_usd=rate)
        with serving(MODEL, ScriptedProvider([REPLIES["usual"]])), self.estimated():
            guarded_tool_call(self.session, ToolIntent.RUN_SKILL, ask(), now=NOW)  # opens the day, shows the price
        self.change_budget(Budget.objects.filter(scope=case.scope, period=case.period))
        AgentSession.objects.filter(pk=self.session.pk).update(**STATES[case.state])
        self.change_price()
        if case.model == "suspended":
            SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2, suspended_at=NOW)
        if case.model == "away":
            ModelOutage.objects.create(model=MODEL, since=NOW, next_try_at=NOW + timedelta(minutes=1), error="503")
        if case.all_work:
            halt_all_work(by=None, reason="test", now=NOW)
        counted_calls(0)  # there was a call in this hour, which was refused
        SKILLS[case.skill](self.session)

    def estimated(self):
        """A model that costs nothing, and of which that is known."""
        free = patch.object(guard, "estimate_tool_cost", return_value=Decimal(0))
        return free if self.case.price == "free" else nullcontext()

    def change_budget(self, rows):
        assert rows.count() == 1
        if other := NOT_ITS_OWN.get(self.case.budget):
            if other.get("scope") == self.case.scope:
                other = {"scope": BudgetScope.OWNER}
            self.add_budget(rows.get(), **other)
            return
        changed = BUDGETS[self.case.budget]
        if changed is None:
            rows.delete()
        else:
            rows.update(**changed)

    def add_budget(self, own, **other):
        spent = {"cap_usd": Decimal("0.001"), "charged_usd": Decimal("0.001")}
        place = {name: getattr(own, name) for name in ("scope", "subject_id", "period", "day")} | other
        Budget.objects.create(**place, **spent)
        if place["period"] == BudgetPeriod.MONTH and "subject_id" in other:
            Cap.objects.create(scope=own.scope, subject_id=place["subject_id"], period=own.period, cap_usd=1)

    def change_price(self):
        match self.case.price:
            case "changed":
                ModelPrice.objects.filter(model=MODEL).update(output_usd=Decimal(3))
            case "a longer one":
                make_price(MODEL[:-1], input_usd="9", output_usd="9")
            case "none":
                ModelPrice.objects.all().delete()

    def act(self, context, params):
        if self.case.more_events and self.case.kind != "undoable":  # which adds none
            recorder.append(self.session.chain, "budget.warned", now=NOW, details={"budget": "session"})
        MEANWHILE[self.case.within](AgentSession.objects.filter(pk=self.session.pk))
        if self.case.result == "failing":
            raise ValueError("it does not work")
        return {"long": "word " * 2_000, "not to be stored": float("nan")}.get(self.case.result, {"done": True})

    def tool(self):
        kind = self.case.kind
        capability = Capability("act", level=Level.CONTROLLED if kind == "controlled" else Level.SAFE)
        if "skill" not in kind:
            return Tool(self.act, capability, remote=kind not in ("local", "undoable"), undoable=kind == "undoable")
        usual = {"name": "act", "limit": HOURLY_LIMIT, "cooldown": timedelta(0)}
        pace = SkillPace(**usual | PACES.get(self.case.skill, {}))
        if kind == "priced skill":
            asked = request_of(ask())
            return Tool(
                lambda context, params: context.infer().text,
                capability,
                remote=True,
                request=lambda params: asked,
                pace=pace,
                is_skill=True,
            )
        return Tool(self.act, capability, remote=kind == "skill", pace=pace, is_skill=True)

    def call(self):
        """Make the call and return what came of it, for the caller and in the database."""
        held = AgentSession.objects.get(pk=self.session.pk)
        held.fencing = 3
        held.current_phase = Phase.TURN
        params = ask() if self.case.kind == "priced" else {"step": 1}
        if "skill" in self.case.kind:
            params = {"skill": "act", "arguments": {"step": 1}}
        tools = {} if self.case.kind == "priced" else {ToolIntent.RUN_SKILL: self.tool()}
        with (
            serving(MODEL, ScriptedProvider([REPLIES[self.case.reply]])),
            override(tools),
            persisting(1),
            self.estimated(),
        ):
            try:
                if self.case.made_before:
                    self.make_before(held, params)
                if self.case.kind == "undoable":
                    held.called_keys = set()  # its worker believes that nothing stands there
                result = guarded_tool_call(held, ToolIntent.RUN_SKILL, params, key="here", now=NOW)
                seen = (result.outcome, result.data, result.error, result.detail, result.cost_usd, result.replayed)
            except RetryLater:  # at a moment that the clock has a part in
                seen = (RetryLater.__name__,)
            except Exception as error:  # noqa: BLE001 what the caller gets is compared
                ids = {str(pk) for pk in calls_in_order()}
                seen = (type(error).__name__, *(word for word in str(error).split() if word not in ids))
        return seen, self.rows()

    def make_before(self, held, params):
        if self.case.made_before == BY_ANOTHER:
            recorder.append(self.other.chain, "autonomous_session.started", now=NOW)
            guarded_tool_call(self.other, ToolIntent.RUN_SKILL, params, key="here", now=NOW)
            ToolCall.objects.filter(session=self.other).update(outcome=Outcome.STARTED, settled_at=None)
            return
        guarded_tool_call(held, ToolIntent.RUN_SKILL, params, key="here", now=NOW)
        open_again = {"settled_at": None} if self.case.made_before == Outcome.STARTED else {}
        ToolCall.objects.filter(key="here").update(outcome=self.case.made_before, **open_again)

    def rows(self):
        assert verify_chain(self.session.chain).problems == []
        ids = {str(pk): f"call {number}" for number, pk in enumerate(calls_in_order())}
        budgets = {row.pk: row.name for row in Budget.objects.all()}
        return {
            "sessions": [
                dict(row, last_activity_at=0)
                for row in AgentSession.objects.filter(pk__in=[self.session.pk, self.other.pk]).order_by("pk").values()
            ],
            "calls": [
                dict(
                    row,
                    public_id=0,
                    id=0,
                    settled_at=row["settled_at"] is not None,
                    budget_ids=[budgets.get(pk) for pk in row["budget_ids"]],
                )
                for row in ToolCall.objects.order_by("pk").values()
            ],
            "budgets": [dict(row, id=0) for row in Budget.objects.order_by("pk").values()],
            "logs": [
                dict(row, id=0, latency_ms=0, created_at=0) for row in InferenceLog.objects.order_by("pk").values()
            ],
            "skills": [
                dict(row, id=0, duration_ms=0, created_at=0) for row in SkillAudit.objects.order_by("pk").values()
            ],
            "counts": [dict(row, id=0) for row in SkillCount.objects.order_by("pk").values()],
            "halted": Installation.objects.get().halt_id is not None,
            "events": [
                (chain, kind, {name: ids.get(value, value) for name, value in details.items() if name != "halt_id"})
                for chain, kind, details in AuditEvent.objects.order_by("pk").values_list("chain", "kind", "details")
                if "hash" not in str(details)
            ],
        }


def calls_in_order():
    return ToolCall.objects.order_by("pk").values_list("public_id", flat=True)


def undone(work):
    block = transaction.atomic()
    block._from_testcase = True  # like the one around a test: calls take no notice of it
    with block:
        found = work()
        transaction.set_rollback(True)
    return found


def step_by_step(world):
    with (
        patch.object(guard, "_may_pass_at_once", return_value=False),
        patch.object(settlement, "settle_call", return_value=False),
    ):
        return world.call()


def judged(case, number, during_the_short_way=nullcontext):
    """Return both ways of a case, and how often the short one wrote something."""
    world = World(case, number)
    written = []
    real = {name: getattr(guard, name) for name in ("open_call", "end_local", "record_local")}

    def counted(name):
        def do(*args, **kwargs):
            done = real[name](*args, **kwargs)
            written.append(bool(done))
            return done

        return do

    known = dict(at_once._price_rows)
    plain = undone(lambda: step_by_step(world))
    at_once._price_rows |= known  # the short way goes by the price that it last saw
    with (
        patch.multiple(guard, **{name: counted(name) for name in real}),
        during_the_short_way(),
    ):
        short = undone(world.call)
    return plain, short, sum(written)


def compare(count, seed, step=1):
    differing, short_ways = [], 0
    for number, case in enumerate([*cases(count, seed)][::step]):
        plain, short, written = undone(lambda case=case, number=number: judged(case, number))
        short_ways += written
        if plain != short:
            differing.append((case, difference(plain, short)))
    assert differing == []
    return short_ways


def difference(plain, short):
    if plain[0] != short[0]:
        return plain[0], short[0]
    return {name: (plain[1][name], short[1][name]) for name in plain[1] if plain[1][name] != short[1][name]}


@pytest.mark.parametrize("step", [28, pytest.param(1, marks=pytest.mark.long)])
def test_both_ways_come_to_the_same_rows_refusals_and_money(step):
    assert compare(60, seed=1, step=step) > 60 / step


@pytest.mark.stress
def test_both_ways_come_to_the_same_in_thousands_of_cases():
    assert compare(4_000, seed=random.SystemRandom().randrange(2**32)) > 1_000


@pytest.mark.parametrize("kind", ["priced", "remote", "local", "undoable", "skill", "priced skill", "local skill"])
def test_usual_call_takes_the_short_way(kind):
    plain, short, written = judged(Case(kind=kind), 0)
    assert (plain, written) == (short, 1)


@pytest.mark.parametrize("kind", ["skill", "priced skill", "local skill"])
@pytest.mark.parametrize("skill", SKILLS)
def test_skill_is_called_and_counted_or_refused_the_same_both_ways(kind, skill):
    plain, short, written = judged(Case(kind=kind, skill=skill), 0)
    assert plain == short
    refused = {"at its limit", "of no calls"}
    ruled = {name for name in SKILLS if "by a rule" in name} - {"denied by a rule that is off"}
    asked = {"denied by a person", "asked for when there was a rule", "asked for, and nobody decided"}
    to_be_counted_by_steps = {"first of its hour", "with a pause between two calls"}
    set_since = {name for name in SKILLS if "since it was planned" in name}
    assert written == (skill not in refused | ruled | asked | to_be_counted_by_steps | set_since)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("period", BudgetPeriod)
@pytest.mark.parametrize("scope", BudgetScope)
def test_call_within_every_cap_takes_the_short_way_and_is_counted_in_each(scope, period):
    plain, short, written = judged(Case(scope=scope, period=period), 0)
    assert (plain, written) == (short, 1)
    [capped] = [row for row in short[1]["budgets"] if (row["scope"], row["period"]) == (scope, period)]
    assert capped["charged_usd"] == 2 * Decimal("0.005")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("budget", ["spent", "billed"])
@pytest.mark.parametrize("period", BudgetPeriod)
@pytest.mark.parametrize("scope", BudgetScope)
def test_call_beyond_any_cap_is_refused_by_both_ways_and_names_it(scope, period, budget):
    plain, short, written = judged(Case(scope=scope, period=period, budget=budget), 0)
    assert (plain, written) == (short, 0)
    [name] = [row["scope"] for row in short[1]["budgets"] if (row["scope"], row["period"]) == (scope, period)]
    assert short[0][0] == "BudgetRefused"
    told = " ".join(short[0])
    assert f"Budget {name}" in told
    assert ("/month" in told) is (period == BudgetPeriod.MONTH)
    assert ("2026-04-01" in told) is (period == BudgetPeriod.MONTH)


@pytest.mark.parametrize("acts", [True, False], ids=["that acts", "that reads"])
def test_statement_of_a_tool_that_fails_leaves_the_transaction_of_the_caller_of_use(acts):
    def fail(context, params):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO agents_installation (id) VALUES (1)")

    tool = Tool(fail, Capability("act", level=Level.SAFE, side_effects=acts), undoable=True)
    session = make_session()
    with override({ToolIntent.RUN_SKILL: tool}), transaction.atomic():
        failed = guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, now=NOW)
        assert ToolCall.objects.count() == 1

    assert failed.outcome == Outcome.ERROR


@pytest.mark.parametrize("kind", ["local", "undoable"])
def test_local_call_that_a_halt_of_all_work_overtakes_leaves_nothing(kind):
    plain, short, written = judged(Case(kind=kind, within="all work is halted"), 0)
    assert (plain, written) == (short, 0)
    assert plain[0][0] == "SessionHalted"
    assert [row["key"] for row in plain[1]["calls"] if row["key"] == "here"] == []


@pytest.mark.parametrize("then", ["raises", "goes on"])
def test_local_tool_that_breaks_its_transaction_leaves_its_error_and_no_rows(then):
    """A tool that fails is undone as a whole; whoever catches an error of the database does not get away with it."""
    world = World(Case(kind="local"), 0)
    calls = []

    def act(context, params):
        calls.append(params)
        Group.objects.create(name="half done")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM no_such_table")
        except ProgrammingError:
            if then == "raises":
                raise
        except OperationalError as error:  # so SQLite calls it
            raise ValueError("no such table") from error
        return {"done": True}

    tool = Tool(act, Capability("act", level=Level.SAFE))
    with override({ToolIntent.RUN_SKILL: tool}):
        held = AgentSession.objects.get(pk=world.session.pk)
        result = guarded_tool_call(held, ToolIntent.RUN_SKILL, {"step": 1}, key="there", now=NOW)
    assert result.outcome == Outcome.ERROR
    assert not Group.objects.filter(name="half done").exists()
    assert ToolCall.objects.get(key="there").outcome == Outcome.ERROR
    assert len(calls) == 2


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite whoever writes waits for the one who does")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("remote", "overtaken"), [(True, "opening"), (True, "settling"), (False, "opening")])
def test_call_that_another_writer_of_the_chain_overtakes_is_made_and_recorded_once(remote, overtaken):
    session = make_session(current_phase=Phase.TURN)
    recorder.append(session.chain, "autonomous_session.started", now=NOW)
    may_write, is_written, acts = threading.Event(), threading.Event(), []

    def act(context, params):
        acts.append(params)
        may_write.set()
        assert is_written.wait(PATIENCE)
        return {"done": True}

    def call():
        if overtaken == "opening":
            may_write.set()
            assert is_written.wait(PATIENCE)
        with override({ToolIntent.RUN_SKILL: Tool(act, Capability("act", level=Level.SAFE), remote=remote)}):
            return guarded_tool_call(session, ToolIntent.RUN_SKILL, {"step": 1}, key="here", now=NOW)

    def write():
        assert may_write.wait(PATIENCE)
        with transaction.atomic():
            recorder.append(session.chain, "autonomous_session.resumed", now=NOW)
            is_written.set()
            until(somebody_waits)

    _, result = in_threads(2, lambda number: call() if number else write())
    assert (result.outcome, len(acts)) == (Outcome.SUCCESS, 1)
    assert ToolCall.objects.get().outcome == Outcome.SUCCESS
    rows = AuditEvent.objects.filter(chain=session.chain).order_by("seq")
    told = [row.details.get("outcome", "") for row in rows]
    assert told == (["", "started", "", "success"] if overtaken == "settling" else ["", "", "started", "success"])
    assert verify_chain(session.chain).problems == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite whoever writes waits for the one who does")
@pytest.mark.django_db(transaction=True)
def test_skill_that_waits_for_its_count_while_all_work_is_halted_is_not_called():
    world = World(Case(kind="skill"), 0)
    is_locked, is_halted, acts = threading.Event(), threading.Event(), []
    world.act = lambda context, params: acts.append(params)

    def count_elsewhere():
        with transaction.atomic():
            SkillCount.objects.select_for_update().get(skill="act")
            is_locked.set()
            assert is_halted.wait(PATIENCE)

    def halt():
        assert is_locked.wait(PATIENCE)
        until(somebody_waits)
        halt_all_work(by=None, reason="meanwhile", now=NOW)
        is_halted.set()

    def call():
        assert is_locked.wait(PATIENCE)
        return world.call()[0]

    *_, seen = in_threads(3, lambda number: (count_elsewhere, halt, call)[number]())
    assert (seen[0], acts) == ("SessionHalted", [])
    assert SkillCount.objects.get(skill="act").used == 0


def test_statement_that_may_have_waited_is_followed_by_a_look_for_a_halt(monkeypatch):
    looks = []
    world = World(Case(kind="remote"), 0)
    monkeypatch.setattr(guard, "is_halted", lambda session: looks.append(session.pk))
    monkeypatch.setattr(at_once, "WAITED_SECONDS", 60)
    world.call()
    assert looks == []
    monkeypatch.setattr(at_once, "WAITED_SECONDS", 0)
    undone(world.call)  # the first one is replayed
    ToolCall.objects.all().delete()
    world.call()
    assert looks


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite takes several short statements")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("priced", ["WITH", "WITH"]),  # each is a transaction of its own: two commits
        ("remote", ["WITH", "WITH"]),
        ("skill", ["WITH", "WITH"]),
        ("priced skill", ["WITH", "WITH"]),
        ("undoable", ["WITH"]),
        ("local", ["BEGIN", "WITH", "WITH", "COMMIT"]),
        ("local skill", ["BEGIN", "WITH", "WITH", "COMMIT"]),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_call_is_one_or_two_statements_as_the_server_counts_them(kind, told, monkeypatch):
    monkeypatch.setattr(at_once, "WAITED_SECONDS", 60)  # a busy machine makes nobody look for a halt
    real, heard = guarded_tool_call, []

    def counted(session, *given, **more):
        assert session.project, "a run reads its project once"
        with executed_statements() as words:
            result = real(session, *given, **more)
        heard.append([word for word in words if word not in {"SET", "RESET"}])
        return result

    monkeypatch.setitem(globals(), "guarded_tool_call", counted)
    world = World(Case(kind=kind), 0)
    world.call()  # what a process reads once
    ToolCall.objects.all().delete()
    world.call()
    assert heard[1] == told


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite takes several short statements")
@pytest.mark.django_db(transaction=True)
def test_local_call_with_rows_is_one_statement_more_than_its_rows():
    world = World(Case(kind="undoable"), 0)
    world.act = lambda context, params: {"made": Group.objects.create(name=str(context.call_id)).pk}
    world.call()
    ToolCall.objects.all().delete()
    with executed_statements() as words, patch.object(World, "rows"):
        world.call()
    assert [word for word in words if word not in {"SET", "RESET", "SELECT"}] == ["BEGIN", "INSERT", "WITH", "COMMIT"]


@pytest.mark.django_db(transaction=True)
def test_search_of_a_run_keeps_nobody_waiting_and_is_refused_if_it_was_halted_meanwhile():
    session = make_session(status=Status.RUNNING, current_phase=Phase.TURN)
    recorder.append(session.chain, "autonomous_session.started", now=NOW)
    halted = AgentSession.objects.filter(pk=session.pk)
    seen = []

    def look(context, params):
        seen.append(params)
        in_threads(1, lambda _: halted.update(halt_state=HaltState.HALT_REQUESTED))
        return {"found": "much"}

    tool = Tool(look, Capability("look", level=Level.SAFE, side_effects=False), undoable=True)
    with override({ToolIntent.RUN_SKILL: tool}), pytest.raises(SessionHalted):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, now=NOW)
    assert (len(seen), ToolCall.objects.count()) == (1, 0)
    assert verify_chain(session.chain).problems == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite nobody halts while a transaction is open")
@pytest.mark.django_db(transaction=True)
def test_rows_of_a_tool_that_is_judged_last_go_with_it_if_its_session_was_halted_meanwhile():
    world = World(Case(kind="undoable"), 0)
    seen = []

    def act(context, params):
        if not seen:  # the steps find the halt before they act
            halted = AgentSession.objects.filter(pk=world.session.pk)
            in_threads(1, lambda _: halted.update(halt_state=HaltState.HALT_REQUESTED))
        seen.append(Group.objects.create(name="made too late").pk)

    world.act = act
    outcome, rows = world.call()
    assert (outcome[0], len(seen), Group.objects.filter(pk__in=seen).count()) == ("SessionHalted", 1, 0)
    assert [row for row in rows["calls"] if row["key"] == "here"] == []


def test_settling_a_call_changes_no_column_of_an_index():
    """PostgreSQL then writes the row alone: a HOT update. `unknown_since` changes only for an unknown outcome."""
    definitions = {
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE tablename = %s",
        "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = %s",
    }
    with connection.cursor() as cursor:
        cursor.execute(definitions[connection.vendor], [ToolCall._meta.db_table])
        indexes = " ".join(definition for (definition,) in cursor.fetchall() if definition)
    assert "tool_call_unresolved" in indexes
    assert not [column for column in set(END) - {"unknown_since"} if re.search(rf"\b{column}\b", indexes)]


@pytest.mark.parametrize("kind", ["priced", "remote"])
@pytest.mark.django_db(transaction=True)
def test_settlement_whose_answer_was_lost_is_not_booked_twice(kind, monkeypatch):
    world = World(Case(kind=kind), 0)
    real, calls = settlement.settle_call, []

    def lost(*given, **more):
        calls.append(real(*given, **more))
        raise OperationalError("the connection was lost after the commit")

    monkeypatch.setattr(settlement, "settle_call", lost)
    world.call()
    assert calls == [True]
    session = AgentSession.objects.get(pk=world.session.pk)
    row = ToolCall.objects.get(session=session, key="here")
    assert row.outcome == Outcome.SUCCESS
    charged = sum(ToolCall.objects.filter(session=session).values_list("charged_usd", flat=True))
    assert (session.cost_reserved_usd, session.cost_total_usd) == (0, charged)
    assert AuditEvent.objects.filter(chain=session.chain, details__call_id=str(row.public_id)).count() == 2


def test_local_tool_that_goes_on_after_an_error_of_the_database_has_no_success_without_a_row():
    """The transaction of the short way is undone then; its result would have no journal row and no events."""
    session = make_session(status=Status.RUNNING, current_phase=Phase.TURN)
    recorder.append(session.chain, "budget.warned", now=NOW, details={"budget": "session"})

    def swallow(context, params):
        with suppress(IntegrityError):
            Installation.objects.create(pk=1)
        return {"done": True}

    tool = Tool(swallow, Capability("swallow", level=Level.SAFE))
    with override({ToolIntent.RUN_SKILL: tool}):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, key="here", now=NOW)

    assert ToolCall.objects.get(session=session).outcome == result.outcome
    assert AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.tool_call").count() == 2


def test_misspelt_field_of_a_call_is_refused():
    call = plan_call(make_session(), ToolIntent.NOTIFY, {"title": "x"}, key="here", now=NOW)

    with pytest.raises(TypeError, match="fallbak"):
        call.but(fallbak="other")
