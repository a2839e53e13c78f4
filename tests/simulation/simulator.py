"""A deterministic simulation of workers, ticker, people, models and clock, all in one thread on a real database.

A seed chooses what happens next: a trigger fires, a duty of the ticker runs, a worker takes a task, makes one step of
its slice, dies, or stands still and comes back too late; people approve, deny, halt and release; the model goes away
and comes back; the clock is stepped. In the end everything is driven to rest. The same seed does the same again.
"""

import random
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from unittest.mock import patch

import time_machine
from django.db import transaction
from django.test import override_settings
from django_q.models import OrmQ

from agents import runner
from agents.conf import clock
from agents.enums import ApprovalStatus, Level, Outcome, Phase, Status, TerminalReason, ToolIntent, TriggerKind
from agents.exceptions import LeaseLost
from agents.guard import guard
from agents.guard.selftest import arm
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentSession, Approval, Installation, ToolCall
from agents.policy.transitions import TERMINAL
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.approvals import Decision, approval_approve, approval_reject, approvals_expire, tool_call_resolve
from agents.sessions.fairness import tasks_send
from agents.sessions.halts import halt_all_work, halted_work_end, release_all_work, session_halt
from agents.sessions.leases import idle_sweep, lease_next, leases_renew, model_waiters_wake, sleepers_wake
from agents.sessions.lifecycle import session_enter_phase
from agents.skills.registry import installed_skills
from agents.skills.skill import SkillContext, skill
from agents.triggers.events import EventIn, event_receive
from agents.triggers.inputs import inputs_fire
from agents.triggers.schedules import schedules_fire
from agents.triggers.watches import watches_fire_unfired
from agents.types import Asleep, Finished, SliceOver, Usage, Waiting
from audit.recorder import append_pending
from tests.agents.triggers.rows import attach, make_collection, make_watch
from tests.factories import make_agent, make_price, make_trigger, make_user
from tests.invariants import problems
from tests.serving import serving

START = datetime(2026, 3, 16, 9, 0, tzinfo=UTC)
MODEL = "simulated-model"
STEPS = 30  # of a seed, before everything is driven to rest
REST = 60  # rounds in which everything comes to rest
RUNS = 3  # that a seed starts at most
REDELIVERED = timedelta(minutes=2)  # a task that was taken and not acknowledged comes again
PHASES = [Phase.INTAKE, Phase.ANALYSIS, Phase.DRAFTING]
GO_ON = object()
GOING_ON = (
    lambda _now: append_pending(),
    halted_work_end,
    sleepers_wake,
    model_waiters_wake,
    lambda now: inputs_fire(now=now),
    tasks_send,
    approvals_expire,
    idle_sweep,
)
DUTIES = (*GOING_ON, lambda now: schedules_fire(now=now), lambda now: watches_fire_unfired(now=now))
effects: Counter[str] = Counter()  # what was done outside, by the key of its call


class Died(BaseException):
    """The process is gone, in the middle of a call."""


@skill(level=Level.RESTRICTED)
def send(context: SkillContext, number: int) -> str:
    """Sends something, which cannot be taken back."""
    effects[context.idempotency_key] += 1
    return f"sent {number}"


@dataclass(eq=False)
class Slice:
    """What one worker has in hand."""

    task: int
    session: AgentSession
    steps: object

    def next_step(self):
        try:
            return next(self.steps)
        except LeaseLost:
            transaction.set_rollback(False)  # an installation has no transaction around it, and nothing was written
            raise


class Simulation:
    """One seed. `world` holds the rows that all seeds begin with."""

    def __init__(self, seed, world, time):
        self.random = random.Random(seed)
        self.world = world
        self.time = time
        self.plans = {}
        self.slices = []
        self.stalled = []
        self.taken = {}
        self.dies_at = ""
        self.happened = Counter()

    # --- What happens ---

    def run(self):
        """Play the seed to its end; return what is wrong then."""
        effects.clear()
        self.world.model_is_away = False
        acts = {
            self.fire: 4,
            self.duty: 6,
            self.take: 10,
            self.advance: 20,
            self.die: 1.5,
            self.die_in_a_call: 2,
            self.stall: 1.5,
            self.come_back: 2,
            self.decide: 4,
            self.resolve: 1.5,
            self.halt_one: 0.6,
            self.halt_all: 0.3,
            self.release: 1,
            self.model: 1.5,
            self.step_clock: 5,
        }
        self.fire()
        for act in self.random.choices(list(acts), list(acts.values()), k=STEPS):
            self.happened[act.__name__] += 1
            act()
        self.rest()
        self.happened["runs_over"] += AgentSession.objects.filter(status__in=TERMINAL).count()
        self.happened["calls_made"] += ToolCall.objects.filter(outcome=Outcome.SUCCESS).count()
        return [*self.faults(), *problems()]

    def fire(self):
        if AgentSession.objects.count() >= RUNS:
            return
        kind = self.random.choice(["event", "watch", "schedule"])
        if kind == "event":
            event_receive(owner=self.world.owner, event=EventIn("plant", "alarm"), now=clock())
        elif kind == "watch":
            attach(self.world.collection, attached_at=clock())
            watches_fire_unfired(now=clock())
        else:
            schedules_fire(now=clock())

    def duty(self):
        self.random.choice(DUTIES)(clock())

    def take(self):
        """A worker takes a task, in any order, and claims the next session. Return False if there was no task."""
        free = [row for row in OrmQ.objects.order_by("pk") if self.taken.get(row.pk, START) <= clock()]
        if not free:
            return False
        row = self.random.choice(free)
        session = lease_next(owner=f"worker-{row.pk}", now=clock())
        self.taken[row.pk] = clock() + REDELIVERED
        if session is None:
            OrmQ.objects.filter(pk=row.pk).delete()
        else:
            self.slices.append(Slice(row.pk, session, self.engine(session)))
        return True

    def advance(self):
        """A worker makes its next step: one call, or its end."""
        if self.slices:
            self._step(self.random.choice(self.slices))

    def _step(self, one):
        leases_renew([(one.session.pk, one.session.fencing)], now=clock())
        try:
            end = runner._run(one.session, lambda _: one.next_step())
        except Died:
            self.happened["died_in_a_call"] += 1
            self.dies_at = ""
            self.slices.remove(one)
            return
        if end is GO_ON:
            return
        self.slices.remove(one)
        try:
            runner.record_end(one.session, end)
        except LeaseLost:
            end = None
        self.happened["refused_late"] += end is None
        OrmQ.objects.filter(pk=one.task).delete()

    def die(self):
        """Between two calls. Its task and its lease are left behind."""
        if self.slices:
            self.slices.remove(self.random.choice(self.slices))

    def die_in_a_call(self):
        """The next call kills its worker: before it goes out, or after it came back and before that is written down."""
        self.dies_at = self.random.choice(["dispatch", "settle"])
        self.advance()

    def stall(self):
        """Stops without knowing it; its lease runs out."""
        if self.slices:
            one = self.random.choice(self.slices)
            self.slices.remove(one)
            self.stalled.append(one)

    def come_back(self):
        """Goes on as if nothing had happened."""
        if self.stalled:
            one = self.stalled.pop(self.random.randrange(len(self.stalled)))
            self.slices.append(one)
            self._step(one)

    def decide(self):
        for ticket in Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__gt=clock()).order_by("pk")[:1]:
            decision = self.random.choice([approval_approve, approval_approve, approval_reject])
            decision(ticket.pk, by=self.world.person, digest=ticket.digest, now=clock())

    def resolve(self):
        """A person looks what became of a call, and says it."""
        for call in ToolCall.objects.filter(outcome=Outcome.UNKNOWN).order_by("pk")[:1]:
            done = effects[f"{call.session.public_id}:{call.key}"]
            decision = Decision.HAPPENED if done else Decision.DID_NOT_HAPPEN
            tool_call_resolve(call.pk, decision, by=self.world.person, now=clock(), result="sent")

    def halt_one(self):
        active = list(AgentSession.objects.active().order_by("pk").values_list("pk", flat=True))
        if active:
            session_halt(self.random.choice(active), by=self.world.person, reason="enough", now=clock())

    def halt_all(self):
        halt_all_work(by=self.world.person, reason="stop", now=clock())

    def release(self):
        if Installation.objects.filter(pk=1, halt__isnull=False).exists():
            release_all_work(by=self.world.person, now=clock())

    def model(self):
        self.world.model_is_away = not self.world.model_is_away

    def step_clock(self):
        self.time.shift(self.random.choice([1, 5, 20, 45, 90, 130, 400, 3_600, -5, -40, -300]))

    # --- What a run does: a few calls, which it finds again in the journal when another worker goes on with it ---

    def engine(self, session):
        if session.pk not in self.plans:
            kinds = self.random.choices(["ask", "send", "nap", "slice"], k=self.random.randint(2, 4))
            self.plans[session.pk] = [*kinds, *self.random.choices(["find"], k=self.random.randint(0, 2))]
        plan = self.plans[session.pk]
        for place, kind in enumerate(plan):
            if kind != "find" and session.current_phase == Phase.DRAFTING:
                continue  # another worker has come this far
            enter(session, Phase.DRAFTING if kind == "find" else Phase.ANALYSIS)
            if kind in {"nap", "slice"}:
                plan[place] = "done"
                yield SliceOver() if kind == "slice" else Asleep(clock() + timedelta(seconds=70))
            elif kind != "done":
                result = guard.guarded_tool_call(session, *CALLS[kind], key=f"{kind}:{place}", now=clock())
                if result.outcome == Outcome.APPROVAL_PENDING:
                    yield Waiting(runner.WaitingOn.APPROVAL)
                yield GO_ON
        yield Finished()

    # --- The end ---

    def rest(self):
        """Everything that was stopped goes on; whoever was away comes back too late."""
        self.release()
        self.world.model_is_away = False
        self.stalled += [one for one in self.slices if self.random.random() < 0.5]
        self.slices.clear()
        watches_fire_unfired(now=clock())
        for _ in range(REST):
            self.time.shift(150)
            for duty in GOING_ON:
                duty(clock())
            self._decide_all()
            while OrmQ.objects.exists() and (self.take() or self.slices):
                while self.slices:
                    self.advance()
            if not AgentSession.objects.active().exists():
                break
        while self.stalled:
            self.come_back()
        while self.slices:
            self.advance()

    def _decide_all(self):
        while Approval.objects.filter(status=ApprovalStatus.PENDING, expires_at__gt=clock()).exists():
            self.decide()
        while ToolCall.objects.filter(outcome=Outcome.UNKNOWN, session__status=Status.WAITING).exists():
            self.resolve()

    def faults(self):
        """What the rows alone do not show."""
        found = [f"{one.public_id} is still {one.status} {one.waiting_on}" for one in AgentSession.objects.active()]
        found += [f"{key} was done {number} times" for key, number in effects.items() if number > 1]
        noted = {
            f"{call.session.public_id}:{call.key}"
            for call in ToolCall.objects.filter(name="send", outcome=Outcome.SUCCESS).select_related("session")
        }
        found += [f"{key} is noted as done and was not" for key in noted - effects.keys()]
        odd = AgentSession.objects.filter(terminal_reason__in=[TerminalReason.WORKER_ERROR, TerminalReason.REFUSED])
        return found + [f"{one.public_id} ended with {one.terminal_reason}: {one.error}" for one in odd]


def enter(session, phase):
    """Phases are entered in their order, and none again."""
    if PHASES.index(session.current_phase) < PHASES.index(phase):
        session_enter_phase(session, phase, now=clock())


CALLS = {
    "ask": (ToolIntent.RUN_PLAYBOOK, {"model": MODEL, "prompt": "Is it in order?", "max_tokens": 100}),
    "send": (ToolIntent.RUN_SKILL, {"skill": "send", "arguments": {"number": 1}}),
    "find": (ToolIntent.EMIT_FINDING, {"title": "Something", "severity": "info"}),
}


class World:
    """The rows that every seed begins with, and the model."""

    def __init__(self):
        self.model_is_away = False
        self.owner = make_user()
        self.person = make_user(is_superuser=True)
        agent = make_agent(owner=self.owner)
        every = {"owner": self.owner, "agent": agent, "max_cost_usd": Decimal("0.02"), "max_runs_per_hour": 1_000}
        make_trigger(kind=TriggerKind.EVENT, **every)
        plan = {"cron": "*/10 * * * *", "zone": "UTC", "next_run_at": START + timedelta(minutes=1)}
        self.collection = make_collection(self.owner)
        make_trigger(kind=TriggerKind.SCHEDULE, collection=self.collection, **plan, **every)
        make_watch(self.collection, agent=agent, max_cost_usd=Decimal("0.01"))
        make_price(MODEL, input_usd="1", output_usd="10")
        budget_set_cap(scope="agent", subject_id=agent.pk, cap_usd=Decimal("0.03"), by=None, now=START)

    def reply(self):
        if self.model_is_away:
            raise ProviderError("refused", fault=Fault.CONNECTION, contacted=False)


@contextmanager
def simulated():
    """Give a function that plays one seed and takes everything back; all seeds begin with the same rows."""
    with ExitStack() as stack:
        stack.enter_context(
            override_settings(
                LQOPS_SKILL_MODULES=["tests.simulation.simulator"],
                LQOPS_MODEL_TRIES=1,
                LQOPS_MAX_RUNNING_PER_USER=2,
            )
        )
        installed_skills.cache_clear()
        stack.callback(installed_skills.cache_clear)
        stack.callback(invalidate_estimates)
        time = stack.enter_context(time_machine.travel(START, tick=False))
        world = World()
        script = [Step("ok", usage=Usage(10, 20), before_reply=world.reply)]
        stack.enter_context(serving(MODEL, ScriptedProvider(script)))
        arm()

        def play(seed):
            block = transaction.atomic()
            block._from_testcase = True  # the guard takes it for the test's own transaction, and not for its caller's
            time.move_to(START)
            invalidate_estimates()
            with block, ExitStack() as dying:
                simulation = Simulation(seed, world, time)
                dying.enter_context(patch.object(guard, "watching", _watching))
                for name in ("_dispatch", "settle_durably"):
                    dying.enter_context(patch.object(guard, name, _deadly(simulation, name)))
                wrong = simulation.run()
                transaction.set_rollback(True)
            return wrong, simulation.happened

        yield play


@contextmanager
def _watching(session):
    """No thread looks for halts; the brakes read them before every call."""
    yield lambda: False


def _deadly(simulation, name):
    """The function of the guard, in which a process may die."""
    original = getattr(guard, name)

    def act(*arguments, **named):
        if simulation.dies_at and name.lstrip("_").startswith(simulation.dies_at):
            raise Died
        return original(*arguments, **named)

    return act
