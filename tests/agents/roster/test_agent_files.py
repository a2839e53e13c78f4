"""Texts become versions of an agent, with a digest and an audit event, and change only what they changed."""

import hashlib
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction

from agents.definitions.in_force import definition_drift, definition_of, resolved_settings
from agents.definitions.loader import read_definition
from agents.definitions.schema import DefinitionError
from agents.enums import ApprovalMode, BudgetPeriod, BudgetScope, SensorState
from agents.exceptions import InvalidTransition, NotAllowed, NotFound
from agents.ledger.budgets import cap_of, caps_set
from agents.models import Agent, Budget, Playbook
from agents.roster.agents import agent_edit
from agents.roster.files import agent_export, agent_import, definition_write
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db
TEXT = "name: Watch\nmode: manual\nmax_cost_per_day_usd: 2.5\nautonomy: {enabled: true, idle_timeout: 60}\n"


def imported(owner, text=TEXT, **more):
    return agent_import(owner=owner, text=text, by=owner, now=NOW, **more)


def kinds():
    return list(AuditEvent.objects.order_by("pk").values_list("kind", flat=True))


def test_import_creates_an_agent_and_audits_it():
    owner = make_user(is_superuser=True)

    defined = imported(owner)

    agent = Agent.objects.get()
    assert (defined.agent, defined.changed) == (agent, True)
    assert (agent.name, agent.mode, agent.max_cost_per_day_usd) == ("Watch", "manual", Decimal("2.5"))
    assert (agent.definition, agent.definition_version, agent.edited_by) == (TEXT, 1, owner)
    assert agent.definition_digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert kinds() == ["agent.created", "agent.defined"]
    assert AuditEvent.objects.get(kind="agent.defined").details == {
        "agent_id": str(agent.public_id),
        "version": 1,
        "digest": agent.definition_digest,
        "sensors": 0,
        "broken_sensors": 0,
        "triggers": 0,
    }


def test_same_text_with_other_line_breaks_changes_nothing():
    owner = make_user(is_superuser=True)
    imported(owner)

    again = imported(owner, "\ufeff" + TEXT.replace("\n", "\r\n"))

    assert not again.changed
    assert again.agent.definition_version == 1
    assert kinds() == ["agent.created", "agent.defined"]


def test_changed_text_becomes_the_next_version_and_is_applied():
    owner = make_user(is_superuser=True)
    agent = imported(owner).agent
    text = "name: Night watch\nmode: semi\nmax_cost_per_day_usd: 3\n"

    agent = definition_write(agent=agent, text=text, by=owner, now=NOW).agent

    assert (agent.name, agent.mode, agent.definition_version) == ("Night watch", "semi", 2)
    assert Budget.objects.get(scope=BudgetScope.AGENT, subject_id=agent.pk).cap_usd == 3
    assert definition_of(agent).autonomy is None
    assert kinds()[2:] == ["budget.cap_set", "agent.edited", "agent.defined"]


def months(agent):
    """The caps per month of an agent and its triggers."""
    rows = [
        (BudgetScope.AGENT, agent.pk),
        *((BudgetScope.TRIGGER, pk) for pk in agent.triggers.values_list("pk", flat=True)),
    ]
    return [cap_of(scope, pk, BudgetPeriod.MONTH) for scope, pk in rows]


def test_caps_per_month_are_set_by_the_text_that_changes_them():
    owner = make_user(is_superuser=True)
    Playbook.objects.create(owner=owner, name="Review")
    go = "- {name: Go, kind: manual, playbook: Review, max_cost_per_month_usd: 9}\n"
    text = f"name: Watch\nmax_cost_per_month_usd: 30\ntriggers:\n{go}"
    agent = imported(owner, text).agent
    assert months(agent) == [30, 9]

    caps_set(subject=agent, by=owner, now=NOW, max_cost_per_month_usd=Decimal(20))
    agent = imported(owner, text + "description: more\n").agent
    assert months(agent) == [20, 9], "people have set it since"
    assert definition_drift(agent) == ["max_cost_per_month_usd is 20 here, and 30 in its text"]

    agent = imported(owner, text.replace("30", "40").replace("usd: 9", "usd: 8")).agent
    assert months(agent) == [40, 8]
    assert definition_drift(agent) == []

    agent = imported(owner, "name: Watch\ntriggers:\n- {name: Go, kind: manual, playbook: Review}\n").agent
    assert months(agent) == [None, None]


def test_higher_cap_per_month_in_a_text_is_a_loosening():
    owner = make_user()
    Playbook.objects.create(owner=owner, name="Review")
    go = "triggers:\n- {name: Go, kind: manual, playbook: Review, max_cost_per_month_usd: 9}\n"
    text = f"name: Watch\nmax_cost_per_month_usd: 30\n{go}"
    agent = imported(owner, text).agent
    for now, then in (("30", "31"), ("usd: 9", "usd: 10"), (", max_cost_per_month_usd: 9", "")):
        with pytest.raises(NotAllowed), transaction.atomic():
            imported(owner, text.replace(now, then))
    imported(owner, text.replace("30", "29").replace("usd: 9", "usd: 8"))
    assert months(agent) == [29, 8]


def test_cap_per_month_is_listed_with_its_source():
    owner = make_user(is_superuser=True)
    agent = imported(owner, "name: Watch\nmax_cost_per_month_usd: 30\n").agent

    def listed():
        [found] = [one for one in resolved_settings(agent) if one.key == "max_cost_per_month_usd"]
        return found.value, found.said_by

    assert listed() == ("30.000000", "its text")
    caps_set(subject=agent, by=owner, now=NOW, max_cost_per_month_usd=Decimal(20))
    assert listed() == ("20.000000", "set here")


def test_caps_per_month_are_exported_with_an_agent_that_has_no_text():
    owner = make_user(is_superuser=True)
    agent = make_agent(owner=owner)
    trigger = make_trigger(owner=owner, agent=agent)
    for row, cap in ((agent, 30), (trigger, 9)):
        caps_set(subject=row, by=owner, now=NOW, max_cost_per_month_usd=Decimal(cap))

    written = read_definition(agent_export(agent))

    assert (written.max_cost_per_month_usd, written.triggers[0].max_cost_per_month_usd) == (30, 9)


def test_import_with_a_known_name_is_the_next_version():
    owner = make_user(is_superuser=True)
    agent = make_agent(owner=owner, name="Watch", mode=ApprovalMode.SEMI)

    assert imported(owner).agent == agent
    assert imported(make_user()).agent != agent


def test_text_without_a_name_takes_the_name_of_its_file():
    assert imported(make_user(), "zone: Europe/Paris", file="shop/day-watch.yaml").agent.name == "day-watch"


def test_settings_changed_by_people_stay_until_the_text_changes_them():
    owner = make_user(is_superuser=True)
    agent = imported(owner, TEXT + "enabled: true\n").agent
    agent_edit(agent=agent, by=owner, now=NOW, enabled=False, max_cost_per_day_usd=Decimal(1))
    agent.refresh_from_db()

    agent = definition_write(agent=agent, text=TEXT + "enabled: true\ndescription: more\n", by=owner, now=NOW).agent

    assert (agent.enabled, agent.max_cost_per_day_usd) == (False, 1)
    assert (definition_of(agent).enabled, definition_of(agent).max_cost_per_day_usd) == (False, 1)
    assert definition_drift(agent) == [
        "enabled is false here, and true in its text",
        "max_cost_per_day_usd is 1 here, and 2.5 in its text",
    ]


def test_removed_settings_return_to_defaults_except_name_and_mode():
    owner = make_user(is_superuser=True)
    agent = imported(owner, TEXT + "enabled: false\n").agent

    agent = definition_write(agent=agent, text="description: bare\n", by=owner, now=NOW).agent

    assert (agent.enabled, agent.max_cost_per_day_usd) == (True, None)
    assert (agent.name, agent.mode) == ("Watch", "manual")


def test_agent_without_a_text_takes_its_first_one():
    agent = make_agent(mode=ApprovalMode.AUTO, max_cost_per_day_usd=Decimal(9))

    agent = definition_write(agent=agent, text="instructions: Be brief.\n", by=agent.owner, now=NOW).agent

    assert (agent.mode, agent.max_cost_per_day_usd, agent.definition_version) == ("auto", 9, 1)
    assert definition_of(agent).instructions == "Be brief."


def test_mode_is_not_loosened_while_sessions_are_active():
    owner = make_user(is_superuser=True)
    agent = imported(owner).agent
    make_session(owner=owner, agent=agent)

    with pytest.raises(InvalidTransition, match="not loosened to auto"):
        definition_write(agent=agent, text=TEXT.replace("manual", "auto"), by=owner, now=NOW)
    agent.refresh_from_db()
    assert (agent.mode, agent.definition_version) == ("manual", 1)
    assert definition_write(agent=agent, text=TEXT.replace("60", "90"), by=owner, now=NOW).agent.definition_version == 2


def test_name_of_another_agent_is_refused_with_its_line():
    owner = make_user(is_superuser=True)
    make_agent(owner=owner, name="Taken")

    with pytest.raises(DefinitionError) as caught:
        definition_write(agent=imported(owner).agent, text="# renamed\nname: Taken\n", by=owner, now=NOW)
    assert str(caught.value) == 'agent.yaml:2: name: expected a name that no other agent of the owner has; got "Taken"'


KEY = (
    "-----BEGIN PRIVATE KEY-----\n  "
    + "\n  ".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 8)
    + "\n  -----END PRIVATE KEY-----"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: a\ndescription: |\n  password: hunter2abc\n", 3),
        ("name: a\n# api_key: sk-abcdefghijklmnopqrstuvwxyz123456\n", 2),
        (f"name: a\ndescription: |\n  {KEY}\n", 3),
        ("name: a\ndescription: |\n  password:\n    hunter2abcDEF9\n", 4),
    ],
)
def test_secret_is_refused_even_in_a_comment(text, line):
    with pytest.raises(DefinitionError) as caught:
        imported(make_user(), text)
    assert [problem.line for problem in caught.value.problems] == [line]
    assert "expected no secrets" in str(caught.value)
    assert not Agent.objects.exists()


def test_definition_is_hidden_from_strangers_without_permission():
    agent, other = make_agent(), make_user()
    with pytest.raises(NotFound):
        definition_write(agent=agent, text=TEXT, by=other, now=NOW)
    with pytest.raises(NotFound):
        agent_import(owner=agent.owner, text=TEXT, by=other, now=NOW)
    other.user_permissions.add(Permission.objects.get(codename="change_agent"))
    other = type(other).objects.get(pk=other.pk)

    assert definition_write(agent=agent, text=TEXT, by=other, now=NOW).agent.edited_by == other


def test_refused_text_changes_nothing():
    with pytest.raises(DefinitionError):
        imported(make_user(), TEXT + "triggers: [{name: a, kind: event, playbook: none}]\n")
    assert not Agent.objects.exists()
    assert not AuditEvent.objects.exists()


def test_sessions_keep_the_version_they_started_with():
    owner = make_user(is_superuser=True)
    agent = imported(owner).agent
    session = session_create(owner=owner, agent=agent, now=NOW)
    newer = definition_write(agent=agent, text=TEXT + "description: newer\n", by=owner, now=NOW).agent

    session.refresh_from_db()
    assert (session.definition_version, session.definition_digest) == (1, agent.definition_digest)
    assert session_create(owner=owner, agent=newer, now=NOW).definition_version == 2
    assert session_create(owner=owner, agent=make_agent(owner=owner), now=NOW).definition_version is None
    assert session_create(owner=owner, now=NOW).definition_digest == ""

    lease_claim(session.pk, owner="worker", now=NOW + timedelta(seconds=1))
    born = AuditEvent.objects.get(chain=session.chain, kind="autonomous_session.started").details
    assert (born["definition_version"], born["definition_digest"]) == (1, agent.definition_digest)


def test_sensors_become_rows_and_a_broken_one_shows_its_problem():
    owner = make_user(is_superuser=True)
    sensor = "{name: feed, type: poll, interval: 5, source: {tool: get_market_data}}"
    agent = imported(owner, f"{TEXT}sensors:\n- {sensor}\n- {{name: bad, type: poll, source: {{tool: now}}}}\n").agent

    assert [(row.name, row.state) for row in agent.sensors.order_by("pk")] == [
        ("bad", SensorState.INVALID),
        ("feed", SensorState.WAITING),
    ]
    assert "sensors[1].interval: expected a whole number of seconds" in agent.sensors.get(name="bad").problem
    definition_write(agent=agent, text=f"{TEXT}sensors: [{sensor}]\n", by=owner, now=NOW)
    assert [row.name for row in agent.sensors.all()] == ["feed"]


def test_rolled_back_change_leaves_the_agent_unchanged():
    owner = make_user(is_superuser=True)
    agent = imported(owner).agent
    with transaction.atomic():
        definition_write(agent=agent, text="name: Other\n", by=owner, now=NOW)
        transaction.set_rollback(True)

    assert definition_of(Agent.objects.get()).name == "Watch"


def test_export_returns_the_stored_text():
    owner = make_user(is_superuser=True)
    text = "# by hand\n" + TEXT
    agent = imported(owner, text).agent

    assert agent_export(agent) == text
    assert not definition_write(agent=agent, text=agent_export(agent), by=owner, now=NOW).agent.definition_version > 1


def test_agent_without_a_text_is_exported_from_its_settings():
    agent = make_agent(name="on", mode=ApprovalMode.AUTO, max_cost_per_day_usd=Decimal("2.50"))

    text = agent_export(agent)

    assert text == "name: 'on'\nmode: auto\nenabled: true\nmax_cost_per_day_usd: 2.5\n"
    other = imported(make_user(is_superuser=True), text).agent
    assert (other.name, other.mode, other.max_cost_per_day_usd) == ("on", "auto", Decimal("2.5"))
