"""Ceilings of a person: an agent that an admin tightened has no looser twin, through every surface."""

import json
from datetime import timedelta
from decimal import Decimal
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from agents.accounts import limits_of, limits_set, profile_set, roles_sync
from agents.ask.chats import chat_send
from agents.builtin_skills.outside import send_email
from agents.engine.indexing import index_start
from agents.engine.prompting import skills_of
from agents.enums import ApprovalMode, BudgetPeriod, BudgetScope, Level, Mode
from agents.exceptions import Invalid, NotAllowed
from agents.guard.consent import _mode
from agents.knowledge.playbooks import playbook_import
from agents.ledger.budgets import budget_set_cap, budgets_lock, budgets_reserve, cap_of
from agents.models import Agent, AgentSession, Profile, Project, SkillSetting, Trigger
from agents.people.access import acting_by
from agents.people.ceilings import ceilings_of, ceilings_set, own_ceilings
from agents.people.keys import api_key_create
from agents.policy.loosening import tighter
from agents.policy.run_spec import RunSpec
from agents.roster.agents import agent_create, agent_edit
from agents.roster.files import agent_import, definition_write
from agents.sessions.lifecycle import session_create
from agents.skills.registry import installed_skills, skill_set
from agents.triggers.firing import run_now, run_within
from agents.triggers.triggers import trigger_create, trigger_edit, triggers_set_cap
from audit.models import AuditEvent
from tests.agents.triggers.rows import make_playbook
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

CLERK = "name: Clerk\nmode: semi\nskills: all\nmax_cost_usd: 5\nmax_cost_per_day_usd: 10\n"
SAMPLES = Path(__file__).parents[3] / "samples"
TIGHT = "name: Clerk\nmode: semi\nskills: [now]\nmax_cost_usd: 0.5\nmax_cost_per_day_usd: 10\n"
TWIN = "name: Twin\nmode: semi\nskills: all\nmax_cost_per_day_usd: 90000\n"


@pytest.fixture(autouse=True)
def _roles():
    roles_sync(apps=apps, using="default")


def person(role, **fields):
    user = make_user(is_staff=True, **fields)
    if role:
        user.groups.add(Group.objects.get(name=role))
    profile_set(user=user, opted_in=True, by=user, now=NOW)
    return user


def key_secret(user, *scopes):
    expires_at = NOW + timedelta(days=9_999)
    return api_key_create(user=user, name="k", scopes=scopes, expires_at=expires_at, by=user, now=NOW)


def by_key(user, *scopes):
    return acting_by(key_secret(user, *scopes)[0])


def api_of(user, *scopes):
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {key_secret(user, *scopes)[1]}")


def load(owner, text, by):
    return agent_import(owner=owner, text=text, by=by, now=NOW).agent


def tightened(owner, admin):
    """An agent of the owner that an admin has set to manual, 1 USD a day, and one skill."""
    agent = load(owner, CLERK, owner)
    definition_write(agent=agent, text=TIGHT, by=admin, now=NOW)
    return agent_edit(agent=agent, by=admin, now=NOW, mode="manual", max_cost_per_day_usd=Decimal(1))


# --- The twin ---


@pytest.mark.parametrize("scopes", [None, ("write",), ("read", "write", "decide", "admin")])
@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (TWIN, "the cap of a day"),
        ("name: Twin\nmode: semi\nskills: []\n", "the approval mode"),
        ("name: Twin\nskills: all\n", "the level of the skills"),
        ("name: Twin\nskills: [send_email]\n", "the level of the skills"),
        ("name: Twin\nskills: []\nmax_cost_per_day_usd: 1.01\n", "the cap of a day"),
        ("name: Twin\nskills: []\nmax_cost_usd: 0.51\n", "the cap of a run"),
    ],
)
def test_twin_of_a_tightened_agent_is_refused(text, refused, scopes):
    owner, admin = person("operator"), person("admin")
    tightened(owner, admin)
    with pytest.raises(NotAllowed, match=refused) as caught:
        load(owner, text, by_key(owner, *scopes) if scopes else owner)
    assert f"the ceiling of {owner} is" in str(caught.value)
    assert "agents.loosen (role admin)" in str(caught.value)
    assert "manage.py ceilings" in str(caught.value)
    assert not Agent.objects.filter(name="Twin").exists()


def test_twin_that_is_as_tight_is_made_and_shares_the_day():
    owner, admin = person("operator"), person("admin")
    agent = tightened(owner, admin)

    twin = load(owner, "name: Twin\nskills: [now]\n", owner)

    assert (twin.mode, twin.max_cost_per_day_usd) == ("manual", Decimal(1))
    assert cap_of(BudgetScope.OWNER, owner.pk, BudgetPeriod.DAY) == 1
    for one, left in ((agent, "1"), (twin, "0.4")):
        session = make_session(owner=owner, agent=one)
        ledgers = budgets_lock(session_id=session.pk, now=NOW)
        [together] = [ledger for ledger in ledgers if ledger.name == f"owner:{owner.pk}"]
        assert together.cap - together.approved == Decimal(left)
        budgets_reserve(ledgers, estimate=Decimal("0.6"), held=Decimal("0.6"))


@pytest.mark.parametrize("other", ["agent without a cap", "trigger without an agent", "smaller cap already"])
def test_cap_of_all_runs_follows_only_where_there_is_a_sum(other):
    owner, admin = person("operator"), person("admin")
    agent = load(owner, CLERK, owner)
    if other == "agent without a cap":
        make_agent(owner=owner)
    elif other == "trigger without an agent":
        make_trigger(owner=owner, playbook=make_playbook(owner))
    else:
        budget_set_cap(scope=BudgetScope.OWNER, subject_id=owner.pk, cap_usd=Decimal("0.5"), by=None, now=NOW)
    before = cap_of(BudgetScope.OWNER, owner.pk, BudgetPeriod.DAY)

    agent_edit(agent=agent, by=admin, now=NOW, max_cost_per_day_usd=Decimal(1))

    assert cap_of(BudgetScope.OWNER, owner.pk, BudgetPeriod.DAY) == before
    assert ceilings_of(owner.pk)["max_cost_per_day_usd"] == (before or 1)


def test_what_follows_is_recorded_with_what_it_follows_from():
    owner, admin = person("operator"), person("admin")
    agent = tightened(owner, admin)
    events = AuditEvent.objects.filter(kind="people.ceilings_set").order_by("pk")
    assert {event.actor for event in events} == {f"user:{admin.pk}"}
    assert {event.details["follows"] for event in events} == {f"agent:{agent.public_id}"}
    named = [name for event in events for name in event.details["fields"]]
    assert sorted(named) == ["highest_level", "max_cost_per_day_usd", "max_cost_usd", "mode"]


def test_nothing_follows_from_what_owners_and_commands_tighten():
    owner = person("operator")
    for by in (owner, None):
        agent = load(owner, CLERK.replace("Clerk", f"Clerk {by}"), owner)
        agent_edit(agent=agent, by=by, now=NOW, mode="manual", max_cost_per_day_usd=Decimal(1))
    assert own_ceilings(owner.pk) == {}


def test_nothing_follows_from_somebody_who_could_not_take_it_back():
    owner, editor = person("operator"), person("operator")
    editor.user_permissions.add(Permission.objects.get(codename="change_agent"))
    agent = load(owner, CLERK, owner)
    editor = User.objects.get(pk=editor.pk)
    agent_edit(agent=agent, by=editor, now=NOW, mode="manual", max_cost_per_day_usd=Decimal(1))
    assert own_ceilings(owner.pk) == {}


def test_nothing_follows_from_triggers():
    """The cap of one cheap trigger says nothing about its owner's other runs."""
    owner, admin = person("operator"), person("admin")
    rows = [make_trigger(owner=owner, playbook=make_playbook(owner), max_cost_usd=Decimal(9)) for _ in range(2)]
    trigger_edit(trigger=rows[0], by=admin, now=NOW, max_cost_usd=Decimal(2), max_cost_per_day_usd=Decimal(3))
    triggers_set_cap(triggers=rows, cap=Decimal(1), by=admin, now=NOW)
    assert own_ceilings(owner.pk) == {}
    assert not AuditEvent.objects.filter(kind="people.ceilings_set").exists()


# --- Defaults of the installation ---


def test_at_defaults_nobody_makes_more_than_the_installation_allows():
    owner = person("operator")
    for text, words in (
        ("name: A\nmode: auto\n", "the approval mode"),
        ("name: A\nmax_cost_per_day_usd: 90000\n", "the cap of a day"),
        ("name: A\nmax_cost_usd: 90000\n", "the cap of a run"),
    ):
        with pytest.raises(NotAllowed, match=words):
            load(owner, text, owner)
    SkillSetting.objects.create(name="send_email", level="PRIVILEGED")
    with pytest.raises(NotAllowed, match="the level of the skills"):
        load(owner, "name: A\nskills: [send_email]\n", owner)


def test_samples_fit_the_defaults():
    owner = person("operator")
    call_command("load_skills", stdout=StringIO())
    Project.objects.create(owner=owner, name="Supplier contracts")
    for file in (SAMPLES / "playbooks").glob("*.yaml"):
        playbook_import(owner=owner, text=file.read_text(), by=owner, now=NOW)
    files = sorted((SAMPLES / "agents").glob("*.yaml"))
    assert len(files) >= 5
    for file in files:
        load(owner, file.read_text(), owner)


@pytest.mark.parametrize(
    ("ceiling", "text"),
    [
        ({"mode": "auto"}, "name: A\nmode: auto\n"),
        ({"highest_level": "PRIVILEGED"}, "name: A\nskills: [send_email]\n"),
        ({"max_cost_usd": Decimal(100)}, "name: A\nmax_cost_usd: 100\n"),
    ],
)
def test_own_ceiling_of_a_person_allows_more(ceiling, text):
    owner, admin = person("operator"), person("admin")
    SkillSetting.objects.create(name="send_email", level="PRIVILEGED")
    with pytest.raises(NotAllowed):
        load(owner, text, owner)
    ceilings_set(user=owner, by=admin, now=NOW, **ceiling)
    assert load(owner, text, owner).name == "A"


def test_admin_may_go_beyond():
    owner, admin = person("operator"), person("admin")
    tightened(owner, admin)
    assert load(owner, TWIN, admin).mode == "semi"
    with pytest.raises(NotAllowed, match="scope admin"):
        load(admin, "name: A\nmode: auto\n", by_key(admin, "write"))


def test_setting_of_the_installation_holds_for_new_agents(settings):
    settings.LQOPS_CEILING_MODE = "manual"
    owner = person("operator")
    assert agent_create(owner=owner, name="quiet", by=owner, now=NOW).mode == "manual"
    with pytest.raises(NotAllowed, match=r"the ceiling of .* is manual"):
        agent_create(owner=owner, name="bold", mode="semi", by=owner, now=NOW)


# --- Triggers, runs, chats ---


def bound(**ceilings):
    owner = person("operator")
    ceilings_set(user=owner, by=None, now=NOW, **ceilings)
    return owner


def test_triggers_runs_chats_and_indexing_state_no_higher_cap():
    owner = bound(max_cost_usd=Decimal(1))
    playbook, two = make_playbook(owner), Decimal(2)
    acts = (
        lambda: trigger_create(
            owner=owner, kind="schedule", name="t", cron="0 6 * * *", playbook=playbook, max_cost_usd=two, by=owner,
            now=NOW,
        ),
        lambda: trigger_create(
            owner=owner, kind="schedule", name="t", cron="0 6 * * *", playbook=playbook, by=owner, now=NOW,
            max_cost_per_day_usd=Decimal(21),
        ),
        lambda: run_now(RunSpec(goal="look", max_cost_usd=two), owner=owner, by=owner, now=NOW),
        lambda: chat_send(owner=owner, by=owner, text="hello", max_cost_usd=two, now=NOW),
        lambda: index_start(owner=owner, by=owner, max_cost_usd=two, now=NOW),
    )  # fmt: skip
    for act in acts:
        with pytest.raises(NotAllowed, match=f"the ceiling of {owner} is"):
            act()
    assert not AgentSession.objects.exists()
    assert not Trigger.objects.exists()


def test_run_without_a_stated_cap_has_at_most_the_ceiling(settings):
    owner = bound(max_cost_usd=Decimal(1))
    assert run_now(RunSpec(goal="look"), owner=owner, by=owner, now=NOW).max_cost_usd == 1
    assert session_create(owner=owner, mode=Mode.CHAT, now=NOW).max_cost_usd == 1
    settings.LQOPS_DEFAULT_SESSION_CAP_USD = "0.5"
    assert session_create(owner=owner, now=NOW).max_cost_usd == Decimal("0.5")
    assert session_create(owner=make_user(), now=NOW).max_cost_usd == Decimal("0.5")


def test_default_cap_of_a_run_is_at_most_the_ceiling_of_the_installation(settings):
    settings.LQOPS_CEILING_RUN_USD = Decimal(1)
    assert session_create(owner=make_user(), now=NOW).max_cost_usd == 1
    assert session_create(owner=bound(max_cost_usd=Decimal(2)), now=NOW).max_cost_usd == 2


def made_trigger(owner, **fields):
    given = {"kind": "schedule", "name": "t", "cron": "0 6 * * *", "query": "x", "playbook": make_playbook(owner)}
    return trigger_create(owner=owner, by=owner, now=NOW, **{**given, **fields})


@pytest.mark.parametrize("way", ["edit", "bulk", "definition"])
def test_trigger_without_a_cap_gets_none_above_the_ceiling(way):
    owner = bound(max_cost_usd=Decimal(1))
    acts = {
        "edit": lambda cap: trigger_edit(trigger=made_trigger(owner), by=owner, now=NOW, max_cost_usd=cap),
        "bulk": lambda cap: triggers_set_cap(triggers=[made_trigger(owner)], cap=cap, by=owner, now=NOW),
        "definition": partial(with_capped_trigger, owner),
    }
    with pytest.raises(NotAllowed, match="the cap of a run"), transaction.atomic():
        acts[way](Decimal("1.01"))
    acts[way](Decimal(1))
    assert Trigger.objects.get().max_cost_usd == 1


def with_capped_trigger(owner, cap):
    playbook = make_playbook(owner).name
    trigger = f"{{name: t, kind: schedule, cron: '0 6 * * *', query: x, playbook: {playbook}"
    text = f"name: A\nskills: []\ntriggers: [{trigger}}}]\n"
    agent = load(owner, text, owner)
    definition_write(agent=agent, text=text.replace("}]", f", max_cost_usd: {cap}}}]"), by=owner, now=NOW)


def test_trigger_without_a_cap_of_a_day_has_the_ceiling():
    owner = bound(max_cost_per_day_usd=Decimal(1))
    trigger = made_trigger(owner)
    assert trigger.max_cost_per_day_usd == 1
    with pytest.raises(NotAllowed, match="the cap of a day"):
        trigger_edit(trigger=trigger, by=owner, now=NOW, max_cost_per_day_usd=None)
    assert made_trigger(person("operator")).max_cost_per_day_usd is None


# --- Definitions, after the agent was made ---


def rewritten(agent, text, by):
    return definition_write(agent=agent, text=text, by=by, now=NOW)


@pytest.mark.parametrize("text", ["name: A\nskills: [send_email]\n", "name: A\nskills: all\n"])
def test_agent_that_named_no_skills_names_none_above_the_ceiling(text):
    owner = bound(highest_level="CONTROLLED")
    agent = load(owner, "name: A\n", owner)
    with pytest.raises(NotAllowed, match="the level of the skills"):
        rewritten(agent, text, owner)
    rewritten(agent, "name: A\nskills: [now]\n", owner)


def test_raised_level_of_a_skill_offers_no_other_of_that_level():
    owner = bound(highest_level="SAFE")
    agent = load(owner, "name: A\nskills: [now]\n", owner)
    now = installed_skills()["now"]
    skill_set(name="now", declared=now.level, level="PRIVILEGED", by=owner, now=NOW)
    with pytest.raises(NotAllowed, match="the level of the skills"):
        rewritten(agent, "name: A\nskills: all\n", owner)
    rewritten(agent, "name: A\ndescription: with the skill that it has\nskills: [now]\n", owner)


def test_skill_above_the_ceiling_is_not_added_beside_one_that_is_there():
    owner, admin = person("operator"), person("admin")
    agent = load(owner, "name: A\nskills: [send_email]\n", owner)
    ceilings_set(user=owner, by=admin, now=NOW, highest_level="SAFE")
    with pytest.raises(NotAllowed, match=f"the ceiling of {owner} is SAFE"):
        rewritten(agent, "name: A\nskills: [send_email, fetch_url]\n", owner)
    rewritten(agent, "name: A\nskills: [send_email, now]\n", owner)


@pytest.mark.parametrize("cap", ["max_cost_usd: 4\n", ""])
def test_cap_of_a_run_in_a_definition_is_not_raised_by_its_owner(cap):
    owner, admin = person("operator"), person("admin")
    text = "name: A\nskills: []\nmax_cost_usd: 0.5\n"
    agent = agent_import(owner=owner, text=text, by=admin, now=NOW).agent
    assert own_ceilings(owner.pk) == {}, "an agent that an admin makes tightens no other"
    with pytest.raises(NotAllowed, match="the cap of a run"):
        rewritten(agent, f"name: A\nskills: []\n{cap}", owner)
    rewritten(agent, f"name: A\nskills: []\n{cap}", admin)


def test_first_definition_by_an_admin_tightens_an_agent():
    owner, admin = person("operator"), person("admin")
    agent = agent_create(owner=owner, name="A", by=owner, now=NOW)
    rewritten(agent, "name: A\nskills: [now]\nmax_cost_usd: 0.5\n", admin)
    assert own_ceilings(owner.pk) == {"highest_level": "SAFE", "max_cost_usd": Decimal("0.5")}


@pytest.mark.parametrize("project", ["", "project: Q\n"])
def test_agent_does_not_leave_the_cap_of_its_project(project):
    owner, admin = person("operator"), person("admin")
    capped, _ = (Project.objects.create(owner=owner, name=name, created_at=NOW) for name in "PQ")
    agent = load(owner, "name: A\nskills: []\nproject: P\n", owner)
    budget_set_cap(scope=BudgetScope.PROJECT, subject_id=capped.pk, cap_usd=Decimal(1), by=admin, now=NOW)
    with pytest.raises(NotAllowed, match="the cap of a day of the project"):
        rewritten(agent, f"name: A\nskills: []\n{project}", owner)
    rewritten(agent, f"name: A\nskills: []\n{project}", admin)


# --- Runs without an agent ---


@pytest.mark.parametrize(("ceiling", "mode"), [("", "semi"), ("auto", "semi"), ("manual", "manual")])
def test_run_without_an_agent_asks_as_the_ceiling_says(ceiling, mode):
    owner = bound(mode=ceiling)
    assert _mode(make_session(owner=owner, agent=None)) == (mode, False, ())


def test_skills_above_the_ceiling_are_not_offered_where_none_are_named():
    owner = bound(highest_level="CONTROLLED")
    offered, before = (skills_of(None, phase="turn", owner_id=pk) for pk in (owner.pk, make_user().pk))
    left = {name for name, skill in before.items() if skill.level.rank > Level.CONTROLLED.rank}
    assert left
    assert offered.keys() == before.keys() - left
    SkillSetting.objects.create(name="calculate", level="RESTRICTED")
    assert "calculate" not in skills_of(None, phase="turn", owner_id=owner.pk)


# --- Who sets them, and where ---


def test_only_who_may_loosen_sets_ceilings(settings):
    owner, admin = person("operator"), person("admin")
    for by in (owner, by_key(admin, "write"), person("approver")):
        with pytest.raises(NotAllowed, match="the ceilings of"):
            ceilings_set(user=owner, by=by, now=NOW, mode="auto")
    settings.LQOPS_FOUR_EYES = True
    with pytest.raises(NotAllowed, match="binds yourself"):
        ceilings_set(user=admin, by=admin, now=NOW, mode="auto")
    limits_set(user=owner, by=by_key(admin, "write", "admin"), now=NOW, mode="auto", together_per_day_usd=Decimal(3))
    event = AuditEvent.objects.get(kind="people.ceilings_set")
    assert (event.details["fields"], event.details["mode"]) == (["mode"], "auto")
    assert limits_of(owner) == {
        "mode": "auto", "highest_level": "RESTRICTED", "max_cost_usd": Decimal(20), "max_cost_per_day_usd": Decimal(3),
        "together_per_day_usd": Decimal(3),
    }  # fmt: skip
    ceilings_set(user=owner, by=None, now=NOW, mode="auto")
    assert AuditEvent.objects.filter(kind="people.ceilings_set").count() == 1
    ceilings_set(user=owner, by=None, now=NOW, mode=None)
    assert AuditEvent.objects.filter(kind="people.ceilings_set").last().details["mode"] == "default"


@pytest.mark.parametrize(
    "wrong", [{"mode": "bold"}, {"highest_level": "HIGH"}, {"max_cost_usd": Decimal(-1)}, {"max_cost_usd": 3}, {"x": 1}]
)
def test_what_is_no_ceiling_is_refused(wrong):
    with pytest.raises(Invalid):
        ceilings_set(user=make_user(), by=None, now=NOW, **wrong)


def test_person_without_a_profile_gets_one():
    owner, admin = person("operator"), person("admin")
    agent = load(owner, CLERK, owner)
    Profile.objects.filter(user=owner).delete()
    agent_edit(agent=agent, by=admin, now=NOW, mode="manual")
    assert Profile.objects.get(user=owner).ceiling_mode == "manual"
    assert not Profile.objects.get(user=owner).opted_in


def test_api_shows_and_sets_ceilings():
    owner, admin, stranger = person("operator", username="olga"), person("admin"), person("operator")
    address = "/api/v1/people/olga/ceilings"
    assert api_of(stranger, "read").get(address).status_code == 404
    assert api_of(owner, "read").get(address).json()["mode"] == "semi"
    for client, status in ((api_of(owner, "write", "admin"), 403), (api_of(admin, "write"), 403)):
        assert client.patch(address, {"mode": "manual"}, format="json").status_code == status
    answer = api_of(admin, "write", "admin").patch(
        address, {"mode": "manual", "max_cost_usd": "2", "together_per_day_usd": "4"}, format="json"
    )
    assert answer.json() == {
        "mode": "manual", "highest_level": "RESTRICTED", "max_cost_usd": "2.000000",
        "max_cost_per_day_usd": "4.000000", "together_per_day_usd": "4.000000",
    }  # fmt: skip
    refused = api_of(owner, "write").post(
        "/api/v1/agents/import", {"definition": "name: Twin\nmode: semi\n"}, format="json"
    )
    assert refused.status_code == 403
    assert "the ceiling of olga is manual" in refused.json()["message"]
    refused = api_of(owner, "write").post("/api/v1/run-now", {"goal": "look", "max_cost_usd": "3"}, format="json")
    assert refused.status_code == 403


def test_command_shows_and_sets_ceilings():
    owner = person("operator", username="olga")

    def told(*words):
        out = StringIO()
        call_command("ceilings", "olga", *words, stdout=out)
        return out.getvalue()

    assert "approval mode semi, skills up to RESTRICTED, $20.00 per run" in told()
    assert "approval mode manual" in told("--mode", "manual", "--run", "1", "--all-day", "2", "--agent-day", "1")
    assert own_ceilings(owner.pk) == {"mode": ApprovalMode.MANUAL, "max_cost_usd": 1, "max_cost_per_day_usd": 1}
    assert json.loads(told("--json", "--mode", "default", "--all-day", "default"))["together_per_day_usd"] is None
    with pytest.raises(CommandError, match="neither an amount"):
        told("--run", "much")


def test_agents_that_are_above_already_are_named():
    owner, admin = person("operator", username="olga"), person("admin")
    agent = load(owner, CLERK, owner)
    out = StringIO()
    call_command("ceilings", "olga", "--mode", "manual", "--agent-day", "2", stdout=out)
    assert "Above them, until somebody changes that: Clerk (mode semi, max_cost_per_day_usd 10." in out.getvalue()
    agent_edit(agent=agent, by=admin, now=NOW, mode="manual", max_cost_per_day_usd=Decimal(2))
    out = StringIO()
    call_command("ceilings", "olga", stdout=out)
    assert "Above" not in out.getvalue()


def test_started_run_has_its_cap_out_of_the_one_above():
    owner = bound(max_cost_usd=Decimal(1))
    parent = run_now(RunSpec(goal="look"), owner=owner, by=owner, now=NOW)
    with pytest.raises(Invalid, match="is left of this run's cap"):
        run_within(parent, RunSpec(goal="look", query="term", max_cost_usd=Decimal(9)), now=NOW)
    child = run_within(parent, RunSpec(goal="look", query="term"), now=NOW)
    parent.refresh_from_db()
    assert parent.max_cost_usd + child.max_cost_usd <= 1


def test_load_agents_for_somebody_bound_is_measured_when_it_names_them(tmp_path):
    owner = bound(mode="manual")
    file = tmp_path / "agent.yaml"
    file.write_text("name: Twin\nmode: semi\n")
    with pytest.raises(CommandError):
        call_command("load_agents", str(file), "--user", owner.username, stdout=StringIO())
    assert not Agent.objects.filter(owner=owner).exists()


def test_admin_page_sets_ceilings_of_others_only():
    owner, admin = person("operator"), person("admin")
    client = Client()
    client.force_login(admin)
    page = reverse("admin:auth_user_change", args=[owner.pk])
    assert "Set ceilings" in client.get(page).content.decode()
    client.force_login(owner)
    assert client.get(page).status_code in {302, 403}


def test_tighter_keeps_the_tighter_of_each():
    one, other = {"mode": "semi", "max_cost_usd": Decimal(2)}, {"mode": "manual", "max_cost_usd": Decimal(3)}
    assert tighter(one, other) == {"mode": "manual", "max_cost_usd": Decimal(2)}
    assert send_email.level == Level.RESTRICTED
