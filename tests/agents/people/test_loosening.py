"""Who may loosen what binds an agent: every act, by every kind of person and key, through functions, API and admin."""

from datetime import timedelta
from decimal import Decimal
from itertools import product

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import Client
from django.urls import reverse

from agents.accounts import profile_set, roles_sync
from agents.enums import BudgetScope, Level
from agents.exceptions import LqopsError, NotAllowed
from agents.ledger.budgets import budget_set_cap
from agents.models import Agent, Installation, SkillSetting, Trigger
from agents.people.access import acting_by
from agents.people.keys import api_key_create
from agents.roster.agents import agent_create, agent_edit
from agents.roster.files import agent_import, definition_write
from agents.skills.registry import skill_set
from agents.triggers.triggers import trigger_edit, triggers_set_cap
from audit.models import AuditEvent
from tests.agents.api.contract import CheckedClient
from tests.agents.triggers.rows import make_playbook
from tests.factories import NOW, make_agent, make_trigger, make_user

pytestmark = pytest.mark.django_db

TIGHT, LOOSE = "name: Clerk\nskills: [now]\n", "name: Clerk\nskills: [now, send_email]\n"


@pytest.fixture(autouse=True)
def _roles():
    roles_sync(apps=apps, using="default")


def person(role, **fields):
    user = make_user(is_staff=True, **fields)
    if role:
        user.groups.add(Group.objects.get(name=role))
    profile_set(user=user, opted_in=True, by=user, now=NOW)
    return user


def by_key(user, *scopes):
    key, _ = api_key_create(user=user, name="k", scopes=scopes, expires_at=None, by=user, now=NOW)
    return acting_by(key)


class House:
    """An owner's agent and trigger, as an admin has set them: tight."""

    def __init__(self, owner):
        self.agent = agent_import(owner=owner, text=TIGHT, by=None, now=NOW).agent
        tight = {"max_cost_per_day_usd": Decimal(1)}
        agent_edit(agent=self.agent, by=None, now=NOW, mode="manual", **tight)
        fields = {"playbook": make_playbook(owner), "review_flagged": True, "max_cost_usd": Decimal(1), **tight}
        fields |= {"max_runs_per_hour": 2, "pause_after": 3}
        self.trigger = make_trigger(owner=owner, **fields)
        SkillSetting.objects.get_or_create(name="calculate", level="RESTRICTED", enabled=False, hourly_limit=0)

    def facts(self):
        agents = Agent.objects.values_list("mode", "max_cost_per_day_usd", "definition", "waived_skills")
        limits = ("max_cost_usd", "max_cost_per_day_usd", "review_flagged", "max_runs_per_hour", "pause_after")
        triggers = Trigger.objects.values_list(*limits)
        skills = SkillSetting.objects.values_list("level", "enabled", "hourly_limit")
        whole = Installation.objects.values_list("max_cost_per_day_usd"), skills
        return [list(rows) for rows in (agents, triggers, *whole)]


def edit_agent(**changes):
    return lambda house, by: agent_edit(agent=house.agent, by=by, now=NOW, **changes)


def edit_trigger(**changes):
    return lambda house, by: trigger_edit(trigger=house.trigger, by=by, now=NOW, **changes)


def define(text):
    return lambda house, by: definition_write(agent=house.agent, text=text, by=by, now=NOW)


def set_caps(cap):
    return lambda house, by: triggers_set_cap(triggers=[house.trigger], cap=cap, by=by, now=NOW)


def set_skill(**changes):
    return lambda house, by: skill_set(name="calculate", declared=Level.SAFE, by=by, now=NOW, **changes)


def set_day_cap(scope, cap):
    def act(house, by):
        subjects = {BudgetScope.AGENT: house.agent.pk, BudgetScope.TRIGGER: house.trigger.pk}
        budget_set_cap(scope=scope, subject_id=subjects.get(scope, 0), cap_usd=Decimal(cap), by=by, now=NOW)

    return act


# What binds one owner, and what binds everybody who has an agent.
OF_OWNER = {
    "mode": edit_agent(mode="auto"),
    "a little laxer mode": edit_agent(mode="semi"),
    "higher cap": edit_agent(max_cost_per_day_usd=Decimal(2)),
    "no cap": edit_agent(max_cost_per_day_usd=None),
    "cap in the file": define(f"{TIGHT}max_cost_per_day_usd: 9\n"),
    "mode in the file": define(f"{TIGHT}mode: auto\n"),
    "skill in the file": define(LOOSE),
    "all skills in the file": define("name: Clerk\n"),
    "cap of a trigger": edit_trigger(max_cost_usd=Decimal(2)),
    "day cap of a trigger": edit_trigger(max_cost_per_day_usd=None),
    "default cap of a trigger": edit_trigger(max_cost_usd=None),
    "review": edit_trigger(review_flagged=False),
    "runs of a trigger": edit_trigger(max_runs_per_hour=3),
    "failed runs of a trigger": edit_trigger(pause_after=4),
    "trigger that never pauses": edit_trigger(pause_after=0),
    "caps of triggers": set_caps(Decimal(3)),
    "default caps of triggers": set_caps(None),
    "books of the agent": set_day_cap(BudgetScope.AGENT, 5),
    "books of the trigger": set_day_cap(BudgetScope.TRIGGER, 5),
}
OF_ALL = {
    "level of a skill": set_skill(level="SAFE"),
    "declared level of a skill": set_skill(level=None),
    "skill that was switched off": set_skill(enabled=True),
    "limit of a skill": set_skill(hourly_limit=1_000_000),
    "a little higher limit of a skill": set_skill(hourly_limit=1),
    "no limit of a skill": set_skill(hourly_limit=None),
    "limit of a skill beside a higher level": set_skill(hourly_limit=1, level="PRIVILEGED"),
    "books of the installation": set_day_cap(BudgetScope.INSTALLATION, 100_000),
}
TIGHTER = {
    "mode": edit_agent(mode="manual"),
    "cap": edit_agent(max_cost_per_day_usd=Decimal("0.5")),
    "file": define("name: Clerk\nskills: []\n"),
    "trigger": edit_trigger(max_cost_usd=Decimal("0.5"), max_cost_per_day_usd=Decimal("0.5"), review_flagged=True),
    "trigger that runs seldom": edit_trigger(max_runs_per_hour=1, pause_after=1),
    "caps": set_caps(Decimal("0.1")),
}
# Who acts: a role, whether they own what is bound, and the scopes of the key that they act by.
ROLES, KEYS = ["", "operator", "admin"], [None, ("write",), ("write", "admin")]
PEOPLE = list(product(ROLES, [True, False], KEYS))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("four_eyes", [False, True])
@pytest.mark.parametrize("act", [*OF_OWNER, *OF_ALL])
def test_only_who_may_loosen_loosens_and_with_four_eyes_nobody_for_themselves(act, four_eyes, settings):
    settings.LQOPS_FOUR_EYES = four_eyes
    users = {role: person(role) for role in ROLES}
    houses = {role: House(user) for role, user in users.items()}
    strange = House(make_user())
    for role, owns, scopes in PEOPLE:
        user, house = users[role], houses[role] if owns else strange
        by = by_key(user, *scopes) if scopes else user
        may = role == "admin" and scopes != ("write",) and not (four_eyes and owns)
        if four_eyes and act in OF_ALL:
            may = False  # they have an agent here, so it binds them too
        before = house.facts()
        with transaction.atomic():
            try:
                (OF_OWNER | OF_ALL)[act](house, by)
            except LqopsError:
                assert not may, (role, owns, scopes)
                assert house.facts() == before
            else:
                assert may, (role, owns, scopes)
                assert house.facts() != before
                actor = AuditEvent.objects.order_by("pk").last().actor
                assert actor == (f"user:{user.pk}:key:{by.acts_by.prefix}" if scopes else f"user:{user.pk}")
            transaction.set_rollback(True)


def test_raised_level_takes_no_limit_of_the_level_before_away(settings):
    settings.LQOPS_SKILL_LIMITS = {Level.SAFE: 5, Level.CONTROLLED: 9}
    operator = person("operator")
    for changes in ({"level": "MONITORED"}, {"level": "CONTROLLED"}, {"level": "MONITORED", "hourly_limit": 6}):
        with pytest.raises(NotAllowed, match="the hourly limit of a skill"), transaction.atomic():
            skill_set(name="now", declared=Level.SAFE, by=operator, now=NOW, **changes)
    row = skill_set(name="now", declared=Level.SAFE, by=operator, now=NOW, level="MONITORED", hourly_limit=5)
    assert (row.level, row.hourly_limit) == ("MONITORED", 5)


@pytest.mark.parametrize("act", OF_ALL)
def test_with_four_eyes_what_binds_all_is_loosened_by_an_admin_without_agents(act, settings):
    settings.LQOPS_FOUR_EYES = True
    house, admin = House(make_user()), person("admin")
    before = house.facts()
    OF_ALL[act](house, admin)
    assert house.facts() != before


@pytest.mark.parametrize("act", TIGHTER)
def test_owners_tighten_freely(act, settings):
    settings.LQOPS_FOUR_EYES = True
    owner = person("")
    TIGHTER[act](House(owner), by_key(owner, "write"))


def test_refusal_says_what_is_loosened_and_who_may(settings):
    owner = person("")
    with pytest.raises(NotAllowed, match=r"the approval mode, the cap of a day: .* agents\.loosen \(role admin\)"):
        edit_agent(mode="auto", max_cost_per_day_usd=None)(House(owner), owner)
    admin = person("admin")
    house = House(admin)
    with pytest.raises(NotAllowed, match="needs an API key with the scope admin, or a signed-in person"):
        edit_agent(mode="auto")(house, by_key(admin, "write", "decide"))
    settings.LQOPS_FOUR_EYES = True
    with pytest.raises(NotAllowed, match="binds yourself: with four eyes on, somebody else"):
        edit_agent(mode="auto")(house, admin)


def test_new_agent_is_not_laxer_than_the_default():
    owner, admin = person(""), person("admin")
    with pytest.raises(NotAllowed, match="loosens the approval mode"):
        agent_create(owner=owner, name="bold", mode="auto", by=owner, now=NOW)
    with pytest.raises(NotAllowed, match="loosens the approval mode"):
        agent_import(owner=owner, text="name: bold\nmode: auto\n", by=owner, now=NOW)
    assert agent_create(owner=owner, name="bold", mode="auto", by=admin, now=NOW).mode == "auto"
    assert agent_create(owner=owner, name="meek", mode="manual", by=owner, now=NOW).mode == "manual"


# --- PRIVILEGED skills that are not asked about ---


def test_only_a_superuser_waives_a_privileged_skill_for_an_agent():
    admin, root = person("admin"), person("", is_superuser=True)
    agent = make_agent(owner=make_user())
    with pytest.raises(NotAllowed, match="Only a superuser may waive the approval of PRIVILEGED skills"):
        agent_edit(agent=agent, by=admin, now=NOW, waived_skills=["now"])
    for wrong, says in (("now", "a list of names"), ([1], "a list of names"), (["nothing"], "named nothing")):
        with pytest.raises(LqopsError, match=says):
            agent_edit(agent=agent, by=root, now=NOW, waived_skills=wrong)
    assert agent_edit(agent=agent, by=root, now=NOW, waived_skills=["now", "now"]).waived_skills == ["now"]
    assert AuditEvent.objects.order_by("pk").last().details["waived_skills"] == ["now"]
    assert agent_edit(agent=agent, by=admin, now=NOW, waived_skills=[]).waived_skills == []


# --- The same through the API and the admin pages ---


def api_of(user, *scopes):
    _, secret = api_key_create(
        user=user, name="k", scopes=scopes, expires_at=NOW + timedelta(days=9_999), by=user, now=NOW
    )
    return CheckedClient(HTTP_AUTHORIZATION=f"Bearer {secret}")


def over_api(house, client):
    agent, trigger = f"/api/v1/agents/{house.agent.public_id}", f"/api/v1/triggers/{house.trigger.public_id}"
    return {
        "mode": client.patch(agent, {"mode": "auto"}, format="json"),
        "cap": client.patch(agent, {"max_cost_per_day_usd": None}, format="json"),
        "file": client.put(f"{agent}/definition", {"definition": LOOSE}, format="json"),
        "trigger": client.patch(trigger, {"max_cost_usd": "4"}, format="json"),
        "review": client.patch(trigger, {"review_flagged": False}, format="json"),
        "caps": client.post(
            "/api/v1/triggers/set-cap", {"triggers": [str(house.trigger.public_id)], "max_cost_usd": "4"}, format="json"
        ),
        "import": client.post("/api/v1/agents/import", {"definition": "name: bold\nmode: auto\n"}, format="json"),
    }


def test_api_refuses_owners_and_keys_without_the_scope_admin():
    owner, admin = person("operator"), person("admin")
    house = House(owner)
    before = house.facts()
    answers = over_api(house, api_of(owner, "read", "write", "decide", "admin"))
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 403)
    assert house.facts() == before
    own = House(admin)
    before = own.facts()
    answers = over_api(own, api_of(admin, "read", "write", "decide"))
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 403)
    assert own.facts() == before
    answers = over_api(own, api_of(admin, "read", "write", "admin"))
    assert {answer.status_code for answer in answers.values()} <= {200, 201}, {
        name: answer.content for name, answer in answers.items()
    }


@pytest.mark.parametrize("four_eyes", [False, True])
def test_admin_page_of_an_agent_loosens_for_others(four_eyes, settings):
    settings.LQOPS_FOUR_EYES = four_eyes
    admin = person("admin")
    house = House(admin if four_eyes else make_user())
    client = Client()
    client.force_login(admin)
    page = reverse("admin:agents_agent_change", args=[house.agent.pk])
    form = {"name": "Clerk", "mode": "auto", "max_cost_per_day_usd": "1", "enabled": "on", "waived_skills": ""}
    answer = client.post(page, form)
    house.agent.refresh_from_db()
    assert house.agent.mode == ("manual" if four_eyes else "auto"), answer.content.decode()[:2_000]
    if four_eyes:
        assert "somebody else with the right must do it" in answer.content.decode()


def test_a_trigger_does_not_leave_an_agent_that_asks_more(settings):
    owner = person("operator")
    strict, lax = make_agent(owner=owner, mode="manual"), make_agent(owner=owner, mode="auto")
    trigger = make_trigger(owner=owner, agent=strict, playbook=make_playbook(owner))
    for agent in (None, lax):
        with pytest.raises(NotAllowed, match="loosens the approval mode"):
            trigger_edit(trigger=trigger, by=owner, now=NOW, agent=agent)
    trigger_edit(trigger=trigger, by=person("admin"), now=NOW, agent=lax)
    trigger_edit(trigger=trigger, by=owner, now=NOW, agent=strict)
