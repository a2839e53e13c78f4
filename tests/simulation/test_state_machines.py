"""Budget, approvals, lease and inputs against small models of themselves: rows and model stay alike in any order."""

from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agents.conf import clock, input_tries, lease_lifetime
from agents.enums import ApprovalStatus, InputState, Level, Outcome, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import AutonomousBrake, InvalidTransition, LeaseLost, RetryLater, TicketRefused
from agents.guard import guard, guarded_tool_call
from agents.guard.calls import Call, plan_call
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentSession, Approval, Budget, Finding, Playbook, Trigger, UnreadInput
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.approvals import approval_approve, approval_reject, approvals_expire
from agents.sessions.ending import session_finish, session_rest
from agents.sessions.halts import session_halt
from agents.sessions.leases import lease_claim, leases_renew
from agents.triggers.firing import session_restart
from agents.triggers.inputs import input_dismiss, input_retry, inputs_fire
from agents.triggers.watches import watches_fire, watches_fire_unfired
from agents.types import Usage
from tests.agents.conftest import MODEL, Probe, ask, tool
from tests.agents.triggers.rows import attach, make_collection, make_watch
from tests.factories import NOW, make_agent, make_price, make_session, make_user
from tests.invariants import Look, budgets_balance, inputs_are_somewhere, sessions_balance
from tests.serving import serving
from tests.simulation.simulator import _watching

pytestmark = [pytest.mark.django_db, pytest.mark.hypothesis]

CAP = Decimal("0.05")
WORKERS = ("ada", "grace", "edsger")


def play(machine, *needed):
    """Try it with the profile in force: few and the same examples in CI, many new ones in `make stress`.

    What is needed must have happened in them, or nothing was tried.
    """
    machine.happened = Counter()
    explores = settings.default.max_examples >= 1_000
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=1_000 if explores else 4,
            stateful_step_count=50 if explores else 20,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert [one for one in needed if not machine.happened[one]] == [], machine.happened


class Chosen:
    """In the place of hypothesis' data: draws what was chosen."""

    def __init__(self, value):
        self.draw = lambda _: value


class Machine(RuleBasedStateMachine):
    """Every example begins with the same rows and the same few steps, and leaves none.

    A few examples of hypothesis' own choice may reach nothing.
    """

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        block = transaction.atomic()
        block._from_testcase = True
        self.stack.enter_context(block)
        self.stack.callback(transaction.set_rollback, True)
        self.time = self.stack.enter_context(time_machine.travel(NOW, tick=False))
        self.stack.enter_context(patch.object(guard, "watching", _watching))
        self.begin()

    def teardown(self):
        self.stack.close()


# --- Budget ---


class Budgets(Machine):
    """Calls of two sessions under one budget are opened, answered, failed and lost in any order."""

    def begin(self):
        invalidate_estimates()
        make_price(MODEL, input_usd="10", output_usd="100")
        agent = make_agent()
        budget_set_cap(scope="agent", subject_id=agent.pk, cap_usd=CAP, by=None)
        self.budget = Budget.objects.get(scope="agent")
        self.rows = [make_session(agent=agent, owner=agent.owner, lease_until=clock()) for _ in range(2)]
        self.open, self.number = [], 0
        self.spent = {"charged": Decimal(0), "actual": Decimal(0)}

    @initialize()
    def one_is_answered_and_one_is_lost(self):
        self.reserve(0, 10)
        self._settle(self.open.pop(), "well", Usage(5, 5))
        self.reserve(0, 10)
        self.lose(0)

    @rule(which=st.integers(0, 1), tokens=st.integers(1, 300))
    def reserve(self, which, tokens):
        self.number += 1
        planned = plan_call(
            self.rows[which], ToolIntent.RUN_SKILL, ask(max_tokens=tokens), key=f"call:{self.number}", now=clock()
        )
        try:
            opened = guard._open(guard._decide(planned))
        except (AutonomousBrake, LeaseLost, RetryLater):
            return  # over its cap, held by another worker, or the model is away
        if isinstance(opened, Call):
            self.open.append(opened)
        else:  # calls in flight hold the rest of the budget
            assert self.open
            assert opened.outcome == Outcome.DENIED

    @precondition(lambda self: self.open)
    @rule(data=st.data(), answers=st.sampled_from(["well", "refused", "gone"]))
    def settle(self, data, answers):
        call = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = Usage(data.draw(st.integers(0, 20)), data.draw(st.integers(0, call.journal.max_tokens)))
        self._settle(call, answers, used)

    def _settle(self, call, answers, used):
        errors = {
            "refused": ProviderError("no", fault=Fault.AUTH, contacted=True),
            "gone": ProviderError("no", fault=Fault.CONNECTION, contacted=False),
        }
        script = [Step("ok", usage=used, error=errors.get(answers))]
        with (
            serving(MODEL, ScriptedProvider(script)),
            patch("agents.guard.metering.Meter._wait"),
            suppress(AutonomousBrake, LeaseLost, RetryLater),
        ):
            guard._finish(call)
        call.journal.refresh_from_db()
        self._note(call)

    @rule()
    def time_passes(self):
        self.time.shift(60)

    @rule(which=st.integers(0, 1))
    def lose(self, which):
        """Its worker is gone; another one closes what it left open, and pays for it in full."""
        row = self.rows[which]
        AgentSession.objects.filter(pk=row.pk, status=Status.RUNNING).update(lease_until=clock(), recoveries=0)
        claimed = lease_claim(row.pk, owner="other", now=clock())
        lost = [call for call in self.open if call.session.pk == row.pk]
        self.open = [call for call in self.open if call.session.pk != row.pk]
        for call in lost:
            call.journal.refresh_from_db()
            assert call.journal.outcome == Outcome.WORKER_LOST
            assert (call.journal.charged_usd, call.journal.actual_usd) == (call.estimate, call.held)
            self._note(call)
        if claimed is not None:
            self.rows[which] = claimed

    def _note(self, call):
        assert call.journal.outcome != Outcome.STARTED
        self.happened[call.journal.outcome] += 1
        self.spent["charged"] += call.journal.charged_usd
        self.spent["actual"] += call.journal.actual_usd

    @invariant()
    def rows_and_model_are_alike(self):
        self.budget.refresh_from_db()
        reserved = sum((call.estimate for call in self.open), Decimal(0))
        held = sum((call.held for call in self.open), Decimal(0))
        assert (self.budget.charged_usd, self.budget.actual_usd) == tuple(self.spent.values())
        assert (self.budget.reserved_usd, self.budget.held_usd) == (reserved, held)
        assert max(self.budget.charged_usd + reserved, self.budget.actual_usd + held) <= CAP
        look = Look(clock())
        assert [*sessions_balance(look), *budgets_balance(look)] == []


def test_budget_is_never_passed_and_always_balances():
    play(Budgets, Outcome.SUCCESS, Outcome.WORKER_LOST)


# --- Approvals ---


class Approvals(Machine):
    """Calls at three places of a run are asked for, decided, expired, halted and made in any order."""

    def begin(self):
        self.probe = Probe()
        self.stack.enter_context(tool(probe=self.probe, level=Level.RESTRICTED))
        self.person = make_user(is_superuser=True)
        self.session = make_session()
        self.tickets = {}  # by place: what the model takes the ticket for, and when it expires
        self.done = set()
        self.halted = False

    @initialize()
    def one_is_used_and_one_is_denied(self):
        for place, decision in ((1, approval_approve), (2, approval_reject)):
            self.call(place)
            self.decide(Chosen(place), decision, digest=True)
            self.call(place)

    @rule(place=st.integers(1, 3))
    def call(self, place):
        expected, effects = self._expected(place), len(self.probe.calls)
        try:
            result = guarded_tool_call(
                self.session, ToolIntent.RUN_SKILL, {"to": f"person {place}"}, key=f"turn:{place}", now=clock()
            )
        except AutonomousBrake:
            assert self.halted
            return
        assert not self.halted
        assert (result.outcome, result.replayed) == expected
        acted = len(self.probe.calls) - effects
        assert acted == (expected == (Outcome.SUCCESS, False))
        self.happened[result.outcome] += 1
        if acted:
            self.done.add(place)
            self.tickets[place] = "consumed", self.tickets[place][1]
        elif place not in self.tickets:
            self.tickets[place] = ApprovalStatus.PENDING, clock() + timedelta(days=1)

    def _expected(self, place):
        """The outcome of a call now, and whether it is only told again."""
        if place in self.done:
            return Outcome.SUCCESS, True
        status, until = self.tickets.get(place, ("", None))
        if status in {"", ApprovalStatus.PENDING}:
            return Outcome.APPROVAL_PENDING, False
        usable = status == ApprovalStatus.APPROVED and until > clock()
        return (Outcome.SUCCESS if usable else Outcome.DENIED), False

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), decision=st.sampled_from([approval_approve, approval_reject]), digest=st.booleans())
    def decide(self, data, decision, digest):
        place = data.draw(st.sampled_from(sorted(self.tickets)))
        status, until = self.tickets[place]
        row = Approval.objects.get(call_key=f"turn:{place}")
        can = status == ApprovalStatus.PENDING and until > clock() and digest
        try:
            decision(row.pk, by=self.person, digest=row.digest if digest else "x" * 64, now=clock())
            decided = True
        except (InvalidTransition, TicketRefused):
            decided = False
        assert decided == can
        if not decided:
            return
        yes = decision is approval_approve
        self.tickets[place] = ApprovalStatus.APPROVED if yes else ApprovalStatus.REJECTED, until

    @rule(hours=st.sampled_from([1, 13, 25]))
    def time_passes(self, hours):
        self.time.shift(timedelta(hours=hours))
        approvals_expire(clock())
        for place, (status, until) in self.tickets.items():
            if status in {ApprovalStatus.PENDING, ApprovalStatus.APPROVED} and until <= clock():
                self.tickets[place] = ApprovalStatus.EXPIRED, until

    @precondition(lambda self: self.tickets)
    @rule(seldom=st.integers(0, 9))
    def halt(self, seldom):
        if seldom:
            return
        session_halt(self.session.pk, by=self.person, reason="enough", now=clock())
        self.halted = True

    @invariant()
    def rows_and_model_are_alike(self):
        for place, (status, _) in self.tickets.items():
            row = Approval.objects.get(call_key=f"turn:{place}")
            consumed = row.consumed_at is not None
            assert (row.status, consumed) == (
                (ApprovalStatus.APPROVED, True) if status == "consumed" else (status, False)
            )
        assert len(self.probe.calls) == len(self.done)


def test_approvals_are_used_once_and_only_as_decided():
    play(Approvals, Outcome.SUCCESS, Outcome.DENIED, Outcome.APPROVAL_PENDING)


# --- Lease ---


class Leases(Machine):
    """Three workers claim, renew, write and give back one session; some of them do not know that they lost it."""

    def begin(self):
        self.row = make_session(Status.QUEUED)
        self.hands = {}  # worker: what it believes to hold
        self.holder, self.until, self.status = None, None, Status.QUEUED
        self.written, self.halted = 0, False

    @initialize()
    def one_writes_and_loses_its_lease(self):
        self.claim("ada")
        self.write(Chosen("ada"))
        self.time_passes(61)
        self.claim("grace")
        self.write(Chosen("ada"))
        self.give_back(Chosen("grace"), "rest")

    @rule(worker=st.sampled_from(WORKERS))
    def claim(self, worker):
        lost = self.status == Status.RUNNING and self.until <= clock()
        can = self.status == Status.QUEUED or lost
        AgentSession.objects.filter(pk=self.row.pk).update(recoveries=0)
        claimed = lease_claim(self.row.pk, owner=worker, now=clock())
        if can and self.halted:
            assert claimed is None
            self.holder, self.status = None, Status.HALTED
            return
        assert (claimed is not None) == can
        if claimed is not None:
            self.hands[worker] = claimed
            self.holder, self.until, self.status = worker, clock() + lease_lifetime(), Status.RUNNING
            for other in WORKERS:
                assert other == worker or other not in self.hands or self.hands[other].fencing < claimed.fencing

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def renew(self, data):
        worker = data.draw(st.sampled_from(sorted(self.hands)))
        hand = self.hands[worker]
        renewed = bool(leases_renew([(hand.pk, hand.fencing)], now=clock()))
        assert renewed == (worker == self.holder)
        if renewed:
            self.until = clock() + lease_lifetime()

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def write(self, data):
        worker = data.draw(st.sampled_from(sorted(self.hands)))
        try:
            guarded_tool_call(self.hands[worker], ToolIntent.EMIT_FINDING, {"title": worker}, now=clock())
        except LeaseLost:
            assert worker != self.holder
            self.happened["lost"] += 1
        except AutonomousBrake:
            assert self.halted
        else:
            self.happened["written"] += 1
            assert worker == self.holder
            assert not self.halted
            self.written += 1

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), how=st.sampled_from(["rest", "rest", "wait", "finish"]))
    def give_back(self, data, how):
        worker = data.draw(st.sampled_from(sorted(self.hands)))
        held = self.hands.pop(worker)
        try:
            if how == "finish":
                session_finish(held, TerminalReason.COMPLETED, now=clock())
            elif how == "wait":  # for a decision that was made meanwhile
                session_rest(held, Status.WAITING, now=clock(), waiting_on=WaitingOn.APPROVAL)
            else:
                session_rest(held, Status.QUEUED, now=clock())
        except LeaseLost:
            assert worker != self.holder
            return
        assert worker == self.holder
        after = Status.COMPLETED if how == "finish" else Status.QUEUED
        self.holder, self.status = None, Status.HALTED if self.halted else after

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def time_passes(self, seconds):
        self.time.shift(seconds)

    @rule(seldom=st.integers(0, 9))
    def halt(self, seldom):
        if seldom or self.status in {Status.COMPLETED, Status.HALTED}:
            return
        session_halt(self.row.pk, by=None, reason="enough", now=clock())
        self.halted = True
        if self.status != Status.RUNNING:
            self.status = Status.HALTED

    @invariant()
    def rows_and_model_are_alike(self):
        row = AgentSession.objects.get(pk=self.row.pk)
        assert row.status == self.status
        assert row.lease_owner == (self.holder or "")
        assert Finding.objects.count() == self.written


def test_one_worker_at_a_time_can_write():
    play(Leases, "written", "lost")


# --- Inputs ---


class Inputs(Machine):
    """Documents arrive; their runs end in every way, in any order; people retry, dismiss, run again and pause."""

    def begin(self):
        self.watch = make_watch(make_collection(), max_runs_per_hour=1_000)
        self.owner = self.watch.owner
        playbook = Playbook.objects.create(owner=self.owner, name="Leases", digest="0" * 64)
        Trigger.objects.filter(pk=self.watch.pk).update(playbook=playbook)
        self.state, self.tries = {}, {}  # by the document

    @initialize()
    def one_is_read_and_one_is_given_up(self):
        for how in ("read", "capped"):
            self.arrive()
            self.end(Chosen(next(one for one, state in self.state.items() if state == "queued")), how)

    @rule()
    def arrive(self):
        if len(self.state) < 3:
            attachment = attach(self.watch.collection)
            watches_fire(attachment.pk, now=clock())
            document = str(attachment.document.public_id)
            behind = "waiting" in self.state.values()  # first come, first served
            self.state[document] = "waiting" if behind or self._is_paused() else "queued"
            self.tries[document] = 0

    @precondition(lambda self: "queued" in self.state.values())
    @rule(data=st.data(), how=st.sampled_from(["read", "failed", "failed", "unanswered", "capped"]))
    def end(self, data, how):
        document = self._one(data, "queued")
        run = self._runs(document).active().get()
        held = lease_claim(run.pk, owner="worker", now=clock())
        if how == "unanswered":
            AgentSession.objects.filter(pk=run.pk).update(metadata={"fault": "unanswered"})
        reasons = {"failed": TerminalReason.WORKER_ERROR, "capped": TerminalReason.COST_CAP_REACHED}
        session_finish(held, reasons.get(how, TerminalReason.COMPLETED), now=clock())
        self.tries[document] += 1
        may_pass = how != "capped" and self.tries[document] < input_tries()
        self.state[document] = "read" if how == "read" else "retrying" if may_pass else "given_up"
        self.happened[self.state[document]] += 1

    @rule(hours=st.sampled_from([0.01, 0.2, 7]))
    def tick(self, hours):
        self.time.shift(timedelta(hours=hours))
        due = set(self._unread().filter(due_at__lte=clock()).values_list("session__params__document", flat=True))
        watches_fire_unfired(now=clock())
        inputs_fire(now=clock())
        if not self._is_paused():
            came = {document for document, state in self.state.items() if state == "waiting"} | due
            self.state |= dict.fromkeys(came, "queued")

    @precondition(lambda self: {"retrying", "given_up", "dismissed"} & set(self.state.values()))
    @rule(data=st.data(), decide=st.sampled_from([input_retry, input_dismiss]))
    def decide(self, data, decide):
        document = self._one(data, "retrying", "given_up", "dismissed")
        decide(unread_input=self._row(document), by=self.owner, now=clock())
        self.state[document] = "retrying" if decide is input_retry else "dismissed"
        self.tries[document] *= decide is not input_retry

    @precondition(lambda self: {"retrying", "given_up", "dismissed"} & set(self.state.values()))
    @rule(data=st.data())
    def run_again(self, data):
        document = self._one(data, "retrying", "given_up", "dismissed")
        session_restart(session=self._row(document).session, by=self.owner, now=clock())
        self.state[document] = "queued"

    @rule()
    def pause_or_resume(self):
        Trigger.objects.filter(pk=self.watch.pk).update(paused_at=None if self._is_paused() else clock())

    def _is_paused(self):
        return Trigger.objects.filter(pk=self.watch.pk, paused_at__isnull=False).exists()

    def _one(self, data, *states):
        return data.draw(st.sampled_from(sorted(one for one, state in self.state.items() if state in states)))

    def _runs(self, document):
        return AgentSession.objects.filter(params__document=document)

    def _unread(self):
        return UnreadInput.objects.filter(state=InputState.RETRYING)

    def _row(self, document):
        return UnreadInput.objects.get(session__params__document=document)

    @invariant()
    def every_input_is_where_the_model_says(self):
        for document, state in self.state.items():
            rows = list(UnreadInput.objects.filter(session__params__document=document))
            active = self._runs(document).active().count()
            if state in {"read", "waiting"}:
                assert (rows, active) == ([], 0)
            elif state == "queued":
                assert active == 1
                assert all(row.state == InputState.QUEUED for row in rows)
            else:
                assert (active, [(row.state, row.tries) for row in rows]) == (0, [(state, self.tries[document])])
        assert list(inputs_are_somewhere(Look(clock()))) == []


def test_every_input_is_read_or_somebody_knows():
    play(Inputs, "read", "given_up")
