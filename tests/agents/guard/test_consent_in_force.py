"""Consent is what is in force when a call is written down: what is forbidden before that, at whatever moment, holds."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from agents.conf import clock
from agents.engine.skills import SkillExecutor
from agents.enums import ApprovalStatus, BudgetScope, Level, Outcome, Phase, Risk, ToolIntent
from agents.exceptions import AutonomousBrake, ModelSuspended, RetryLater, SessionHalted
from agents.guard import guarded_group, guarded_tool_call
from agents.guard.calls import fitting, plan_call
from agents.guard.tools import BadParams
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    ApprovalRule,
    Budget,
    ModelOutage,
    SkillCount,
    SkillSetting,
    SuspendedModel,
    ToolCall,
)
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.approval_rules import rule_change, rule_create, rule_delete
from agents.sessions.approvals import (
    approval_approve,
    approval_approve_edited,
    approval_reject,
    approvals_expire,
    standing_create,
)
from agents.sessions.halts import session_halt
from agents.skills.parsing import SkillCall
from agents.skills.registry import installed_skills
from agents.skills.skill import SkillContext, skill
from agents.types import ModelRequest, Usage
from audit.verify import verify_chain
from tests.agents.conftest import MODEL, ask, script
from tests.agents.guard.meanwhile import Meanwhile
from tests.agents.sessions.test_lifecycle import somebody_waits
from tests.factories import make_agent, make_price, make_session
from tests.flows.processes import PATIENCE, in_threads, until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
made = []


def _request(arguments):
    return ModelRequest(MODEL, ({"role": "user", "content": arguments["text"]},), max_tokens=100)


@skill(level=Level.SAFE, side_effects=False)
def glance(text: str = "") -> str:
    """Nobody is asked about it: it is opened by one statement."""
    return _done("glance")


@skill(level=Level.SAFE, local=True)
def jot(text: str = "") -> str:
    """Nobody is asked about it, and its whole effect is rows."""
    return _done("jot")


@skill(level=Level.SAFE, side_effects=False, cooldown_seconds=0.001)
def pace(text: str = "") -> str:
    """Nobody is asked about it, and it goes step by step."""
    return _done("pace")


@skill(level=Level.MONITORED, side_effects=False, request=_request)
def summarise(context: SkillContext, text: str = "") -> str:
    """Asks a model."""
    _done("summarise")
    return context.infer().text


@skill(level=Level.CONTROLLED)
def visit(text: str = "") -> str:
    """Mode manual asks about it."""
    return _done("visit")


@skill(level=Level.CONTROLLED, local=True)
def note(text: str = "") -> str:
    """Mode manual asks about it, and its whole effect is rows."""
    return _done("note")


@skill(level=Level.CONTROLLED)
def shell(command: str = "") -> str:
    """Risk decides whether it is asked about."""
    return _done("shell")


@skill(level=Level.RESTRICTED)
def post(text: str = "") -> str:
    """Modes semi and manual ask about it."""
    return _done("post")


@skill(level=Level.PRIVILEGED)
def rule_all(text: str = "") -> str:
    """Every mode asks about it, unless that is waived."""
    return _done("rule_all")


def _done(name):
    made.append(name)
    return name


@pytest.fixture(autouse=True)
def _skills(settings):
    settings.LQOPS_SKILL_MODULES = [__name__]
    installed_skills.cache_clear()
    made.clear()
    with script(Step("fine", usage=Usage(1, 1))):
        yield
    installed_skills.cache_clear()


# --- What decides consent, and how people make it stricter ---


def rule(effect, **fields):
    return rule_create(by=None, now=clock(), **{"name": f"Rule {effect}", "effect": effect, "enabled": True, **fields})


def set_agent(**changed):
    return lambda world: Agent.objects.filter(pk=world.agent.pk).update(**changed)


def set_skill(**changed):
    return lambda world: SkillSetting.objects.update_or_create(name=world.skill, defaults=changed)


CHANGES = {
    "a rule denies": lambda world: rule("deny", skill=world.skill),
    "a rule denies all": lambda world: rule("deny"),
    "a rule denies to its agent": lambda world: rule("deny", agent=world.agent),
    "a rule asks": lambda world: rule("ask", skill=world.skill),
    "a rule allows no longer": lambda world: rule_change(world.rule, by=None, now=clock(), enabled=False),
    "a rule denies what it allowed": lambda world: rule_change(world.rule, by=None, now=clock(), effect="deny"),
    "a rule that allows is deleted": lambda world: rule_delete(world.rule, by=None, now=clock()),
    "mode manual": set_agent(mode="manual"),
    "mode semi": set_agent(mode="semi"),
    "high risk is asked about": set_agent(allow_high_risk=False),
    "PRIVILEGED is asked about": set_agent(waived_skills=[]),
    "its agent is gone": lambda world: Agent.objects.filter(pk=world.agent.pk).delete(),
    "the skill is switched off": set_skill(enabled=False),
    "the skill is PRIVILEGED": set_skill(level="PRIVILEGED"),
    "no calls an hour": set_skill(hourly_limit=0),
    "the model is suspended": lambda world: SuspendedModel.objects.create(
        model=MODEL, bound_usd=1, actual_usd=2, suspended_at=clock()
    ),
    "the run is halted": lambda world: session_halt(world.session.pk, by=None, reason="", now=clock()),
}
ANY = ("a rule denies", "a rule asks", "the skill is switched off", "the skill is PRIVILEGED", "no calls an hour")
CASES = [
    *[("glance", change) for change in (*ANY, "a rule denies all", "a rule denies to its agent", "the run is halted")],
    *[("jot", change) for change in ANY],
    *[("pace", change) for change in (*ANY, "the run is halted")],
    *[("summarise", change) for change in (*ANY, "the model is suspended")],
    *[("visit", change) for change in (*ANY, "mode manual", "its agent is gone", "the run is halted")],
    *[("note", change) for change in (*ANY, "mode manual")],
    *[("post", change) for change in ("a rule denies", "mode semi")],
    ("rule_all", "PRIVILEGED is asked about"),
    ("wipe", "high risk is asked about"),
    *[("allowed post", change) for change in CHANGES if change.startswith("a rule allows") or "allow" in change],
]


@dataclass
class World:
    """A run of an agent that may do everything unasked, and how it makes one call."""

    way: str
    agent: Agent = field(init=False)
    session: AgentSession = field(init=False)
    rule: ApprovalRule | None = None
    key: str = "last"

    def __post_init__(self):
        mode = "semi" if self.way == "allowed post" else "auto"
        waived = {"allow_high_risk": self.way == "wipe", "waived_skills": ["rule_all"]}
        self.agent = make_agent(mode=mode, **waived)
        self.session = make_session(current_phase=Phase.TURN, agent=self.agent)
        if self.way == "allowed post":
            self.rule = rule("allow", skill="post")

    @property
    def skill(self):
        return {"allowed post": "post", "wipe": "shell"}.get(self.way, self.way)

    @property
    def arguments(self):
        return {"command": "rm -rf /srv/data"} if self.way == "wipe" else {"text": "hello"}

    @property
    def params(self):
        return {"skill": self.skill, "arguments": self.arguments}

    def call(self):
        """Alone, as the engine asks for it."""
        return self._executed(None, self.skill)

    def group(self):
        """With another call beside it, opened first."""
        return self._executed(0, "glance" if self.skill != "glance" else "pace", self.skill)

    def plain(self):
        """By the guard itself."""
        return guarded_tool_call(self.session, ToolIntent.RUN_SKILL, self.params, key=self.key, now=clock())

    def _executed(self, group, *names):
        calls = [
            (self.key if name == names[-1] else "first", SkillCall(name, self.arguments, parallel_group=group))
            for name in names
        ]
        executor = SkillExecutor(dict(installed_skills()), session=self.session)
        return [result for _, result in executor.execute_batch(calls)][-1]

    def is_written(self):
        return ToolCall.objects.filter(session=self.session, key=self.key).exists()


def attempts(way, form, change):
    """The call, with the change at each of its moments in turn: which moment, whether it came in time, was it made."""
    for number in range(100):
        world = World(way)
        made.clear()

        def act(world=world):
            CHANGES[change](world)
            return not world.is_written()

        meanwhile = Meanwhile(number, act)
        try:
            with meanwhile.watched():
                getattr(world, form)()
        except (AutonomousBrake, BadParams, ModelSuspended):
            pass
        if not meanwhile.is_done:
            assert world.skill in made, "without the change the call is made"
            return
        assert verify_chain(world.session.chain).problems == []
        yield number, meanwhile.answer, world.skill in made
        clear()


def clear():
    ApprovalRule.objects.all().delete()
    SkillSetting.objects.all().delete()
    SuspendedModel.objects.all().delete()


def judge(way, form, change):
    make_price(MODEL)
    found = list(attempts(way, form, change))
    in_time = [(number, was_made) for number, came_in_time, was_made in found if came_in_time]
    assert in_time, "the change came before the call was written at least once"
    assert [number for number, was_made in in_time if was_made] == []


@pytest.mark.sampled(14)
@pytest.mark.usefixtures("approver")
@pytest.mark.parametrize(("way", "change"), CASES)
def test_call_that_is_forbidden_before_it_is_written_is_not_made(way, change):
    judge(way, "call", change)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("approver")
@pytest.mark.parametrize("way", ["glance", "visit", "note"])
@pytest.mark.parametrize("change", ["a rule denies", "a rule asks", "the skill is switched off", "no calls an hour"])
def test_call_of_a_group_that_is_forbidden_before_it_is_written_is_not_made(way, change):
    judge(way, "group", change)


@pytest.mark.parametrize("change", ["a rule denies", "no calls an hour", "the skill is switched off"])
def test_call_by_the_guard_alone_that_is_forbidden_before_it_is_written_is_not_made(change):
    judge("visit", "plain", change)


@pytest.mark.usefixtures("approver")
def test_call_whose_skill_was_raised_meanwhile_is_asked_for_by_the_level_that_it_has_then():
    world = World("visit")
    Agent.objects.update(mode="semi")
    planned = plan_call(world.session, ToolIntent.RUN_SKILL, world.params, key="last", now=clock())
    set_skill(level="RESTRICTED")(world)
    [result] = guarded_group([planned])
    assert result.outcome == Outcome.APPROVAL_PENDING
    assert Approval.objects.values_list("level", "risk_level").get() == ("RESTRICTED", "low")


@pytest.mark.usefixtures("approver")
def test_nobody_is_asked_about_a_call_of_a_run_that_is_halted_before():
    for number in range(100):
        world = World("rule_all")
        Agent.objects.update(waived_skills=[])
        meanwhile = Meanwhile(number, lambda world=world: CHANGES["the run is halted"](world))
        with meanwhile.watched(), suppress(SessionHalted):
            world.call()
        asked = Approval.objects.filter(session=world.session)
        if not meanwhile.is_done:
            assert asked.get().status == ApprovalStatus.PENDING
            break
        assert not asked.filter(status=ApprovalStatus.PENDING).exists()
    assert number > 1


# --- Approvals that are there already ---


def ticket_of(world, approver, decide=approval_approve, **more):
    assert world.call().waits
    ticket = Approval.objects.get(session=world.session)
    decide(ticket.pk, by=approver, digest=ticket.digest, now=clock(), **more)
    return ticket


def asks_a_role(world):
    rule("ask", skill=world.skill, role="Lawyers")


STRICTER_THAN_A_TICKET = {
    "a rule denies": CHANGES["a rule denies"],
    "a rule asks people of a role": asks_a_role,
    "the skill is PRIVILEGED": CHANGES["the skill is PRIVILEGED"],
    "the skill is switched off": CHANGES["the skill is switched off"],
    "no calls an hour": CHANGES["no calls an hour"],
    "nobody used it in time": lambda world: approvals_expire(clock() + timedelta(days=30)),
}
NOT_STRICTER = {
    "a rule asks": CHANGES["a rule asks"],
    "mode manual": CHANGES["mode manual"],
    "a rule allows no longer": lambda world: rule_change(
        rule("allow", skill=world.skill), by=None, now=clock(), enabled=False
    ),
}


@pytest.fixture
def lawyer(approver):
    approver.groups.add(Group.objects.create(name="Lawyers"))
    return approver


def ways_with_a_ticket(change, prepare):
    for number in range(100):
        world = World("post")
        prepare(world)
        made.clear()

        def act(world=world):
            change(world)
            return not world.is_written()

        meanwhile = Meanwhile(number, act)
        with meanwhile.watched():
            world.call()
        if not meanwhile.is_done:
            assert made == ["post"], "without the change the call is made"
            return
        yield meanwhile.answer, bool(made)
        clear()
        Approval.objects.all().delete()


@pytest.mark.parametrize("change", STRICTER_THAN_A_TICKET)
def test_approved_call_that_is_forbidden_before_its_ticket_is_used_is_not_made(lawyer, change):
    def approve(world):
        Agent.objects.update(mode="semi")
        ticket_of(world, lawyer)

    found = list(ways_with_a_ticket(STRICTER_THAN_A_TICKET[change], approve))
    in_time = [was_made for came_in_time, was_made in found if came_in_time]
    assert in_time
    assert not any(in_time)


@pytest.mark.parametrize("change", NOT_STRICTER)
def test_a_person_s_yes_to_a_call_outlives_what_asked_for_it(lawyer, change):
    """A rule or a mode that asks is content with it: a person has decided about this call."""

    def approve(world):
        Agent.objects.update(mode="semi")
        ticket_of(world, lawyer)

    found = list(ways_with_a_ticket(NOT_STRICTER[change], approve))
    assert found
    assert all(was_made for _, was_made in found)


@pytest.mark.parametrize("change", ["a rule denies", "a rule asks", "the skill is PRIVILEGED"])
def test_call_that_a_standing_approval_covers_is_not_made_if_it_is_forbidden_before(approver, change):
    """Nobody has seen that call, so a rule that asks is not content either."""

    def cover(world):
        Agent.objects.update(mode="semi")
        ticket = ticket_of(world, approver, standing_create)
        assert world.call().output == "post"
        assert not Approval.objects.exclude(pk=ticket.pk).exists()
        world.key = "covered"
        made.clear()

    found = list(ways_with_a_ticket(CHANGES[change], cover))
    in_time = [was_made for came_in_time, was_made in found if came_in_time]
    assert in_time
    assert not any(in_time)


def test_ticket_of_a_standing_approval_that_was_not_used_yet_does_not_satisfy_a_rule_that_asks(approver):
    """The call was covered, and its model was away: nobody has seen it, so it is asked for again."""
    make_price(MODEL)
    world = World("summarise")
    Agent.objects.update(mode="semi")
    set_skill(level="RESTRICTED")(world)
    ticket_of(world, approver, standing_create)
    assert world.call().output == "fine"
    world.key = "covered"
    away = ModelOutage.objects.create(model=MODEL, since=clock(), next_try_at=clock() + timedelta(hours=1), error="503")
    with pytest.raises(RetryLater):
        world.call()
    away.delete()
    rule("ask", skill="summarise")
    assert world.call().waits
    statuses = Approval.objects.filter(call_key="covered").order_by("pk").values_list("status", flat=True)
    assert list(statuses) == [ApprovalStatus.CANCELLED, ApprovalStatus.PENDING]


def test_call_that_an_approver_changed_is_judged_by_the_changes_when_it_is_written(approver):
    def change_it(world):
        Agent.objects.update(mode="semi")
        arguments = {"skill": "post", "arguments": {"text": "changed"}}
        ticket_of(world, approver, approval_approve_edited, arguments=arguments, fits=fitting)

    def deny(world):
        rule("deny", conditions=[{"argument": "text", "operator": "is", "value": "changed"}])

    found = list(ways_with_a_ticket(deny, change_it))
    in_time = [was_made for came_in_time, was_made in found if came_in_time]
    assert in_time
    assert not any(in_time)


def test_call_that_a_person_denies_before_it_is_written_is_not_made(approver):
    """Its mode was loosened while they looked at it, so that nobody would be asked now."""

    def ask_first(world):
        Agent.objects.update(mode="semi")
        assert world.call().waits
        Agent.objects.update(mode="auto")

    def deny(world):
        ticket = Approval.objects.get(session=world.session)
        approval_reject(ticket.pk, by=approver, digest=ticket.digest, now=clock())

    for number in range(100):
        world = World("post")
        ask_first(world)
        meanwhile = Meanwhile(number, lambda world=world: deny(world))
        with meanwhile.watched():
            world.call()
        assert made == []
        if not meanwhile.is_done:
            break
    assert number > 1


# --- Waiting for others ---


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite whoever writes waits for the one who does")
@pytest.mark.usefixtures("approver")
@pytest.mark.parametrize("way", ["glance", "jot", "visit", "note", "summarise"])
def test_call_that_waits_for_others_is_judged_by_what_is_in_force_afterwards(way):
    """Its skill is counted, or its budget used, by somebody who takes long."""
    make_price(MODEL)
    world = World(way)
    world.plain()  # makes the rows for which calls wait
    assert made.pop() == world.skill
    world.key = "waiting"
    rows = Budget.objects.filter(scope=BudgetScope.INSTALLATION) if way == "summarise" else SkillCount.objects.all()
    is_locked, may_end = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            assert list(rows.select_for_update())
            is_locked.set()
            assert may_end.wait(PATIENCE)

    def forbid():
        assert is_locked.wait(PATIENCE)
        until(somebody_waits)
        rule("deny", skill=world.skill)
        may_end.set()

    def call():
        assert is_locked.wait(PATIENCE)
        return world.plain()

    *_, result = in_threads(3, lambda number: (hold, forbid, call)[number]())
    assert (result.outcome, result.detail, made) == (Outcome.DENIED, "rule", [])


def test_call_whose_approver_named_another_model_is_priced_and_judged_by_that_one(approver):
    make_price(MODEL, input_usd="1", output_usd="1")
    make_price("other-model", input_usd="2", output_usd="2")
    session = make_session()
    asked = {"key": "k", "risk": Risk.HIGH, "now": clock()}
    assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), **asked).outcome == Outcome.APPROVAL_PENDING
    ticket = Approval.objects.get()
    changed = {"arguments": ask(model="other-model"), "fits": fitting}
    approval_approve_edited(ticket.pk, by=approver, digest=ticket.digest, now=clock(), **changed)
    suspended = SuspendedModel.objects.create(model="other-model", bound_usd=1, actual_usd=2, suspended_at=clock())
    with serving("other-model", ScriptedProvider([Step("ok", usage=Usage(1, 1))])):
        with pytest.raises(ModelSuspended):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), **asked)
        suspended.delete()
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), **asked).ok
    assert ToolCall.objects.get().model == "other-model"
