"""Triggers of an agent's file: created, changed and switched off with the file, and no others."""

from decimal import Decimal

import pytest

from agents.definitions.playbooks import Position
from agents.definitions.schema import DefinitionError
from agents.enums import TriggerKind
from agents.knowledge.documents import collection_create
from agents.knowledge.playbooks import playbook_create
from agents.knowledge.projects import project_create
from agents.models import Collection, Trigger
from agents.roster.files import agent_export, agent_import
from agents.triggers.triggers import trigger_create, trigger_delete, trigger_edit
from tests.agents.triggers.rows import make_skill
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
TEXT = """\
name: Clerk
zone: Europe/Paris
triggers:
  - name: New papers
    kind: watch
    collection: Papers
    playbook: Terms
    max_cost_usd: 0.5
  - name: Mondays
    kind: schedule
    cron: "0 6 * * 1"
    playbook: Terms
    query: terms
"""


@pytest.fixture
def owner():
    user = make_user(is_superuser=True)
    playbook_create(owner=user, name="Terms", positions=[Position(issue="i")], by=user, now=NOW)
    return user


def load(owner, text=TEXT):
    return agent_import(owner=owner, text=text, by=owner, now=NOW, file="clerk.yaml")


def refused(owner, text):
    with pytest.raises(DefinitionError) as caught:
        load(owner, text)
    return str(caught.value)


def trigger(name):
    return Trigger.objects.get(name=name, deleted_at__isnull=True)


def test_triggers_are_created_with_their_references(owner):
    defined = load(owner)

    assert defined.messages == (
        "Collection 'Papers' created.",
        "Trigger 'New papers' created.",
        "Trigger 'Mondays' created.",
    )
    watch, schedule = trigger("New papers"), trigger("Mondays")
    assert (watch.agent, watch.owner, watch.kind) == (defined.agent, owner, TriggerKind.WATCH)
    assert (watch.collection.name, watch.playbook.name, watch.max_cost_usd) == ("Papers", "Terms", Decimal("0.5"))
    assert (schedule.zone, schedule.query) == ("Europe/Paris", "terms")
    assert schedule.next_run_at is not None


def test_existing_collection_is_used(owner):
    papers = collection_create(owner=owner, name="Papers", by=owner, now=NOW)
    collection_create(owner=make_user(), name="Papers", by=None, now=NOW)
    load(owner, TEXT.replace("query: terms", "collection: Papers"))

    assert trigger("New papers").collection == trigger("Mondays").collection == papers
    assert Collection.objects.filter(owner=owner).count() == 1


def test_missing_collection_named_twice_is_created_once(owner):
    load(owner, TEXT.replace("query: terms", "collection: Papers"))
    assert Collection.objects.get().name == "Papers"


def test_missing_names_are_all_reported_with_their_lines(owner):
    text = TEXT.replace("playbook: Terms\n    query", "skill: none\n    project: Nowhere\n    query")
    assert refused(owner, text.replace("playbook: Terms\n    max", "playbook: Torms\n    max")).splitlines() == [
        "clerk.yaml:7: triggers[0].playbook: expected the name of a playbook: no playbook is named 'Torms'",
        "clerk.yaml:12: triggers[1].skill: expected the name of a skill: no skill is named 'none'",
        "clerk.yaml:13: triggers[1].project: expected the name of a project: no project is named 'Nowhere'",
    ]
    assert not Trigger.objects.exists()
    assert not Collection.objects.exists()


def test_playbook_of_another_owner_is_not_found():
    playbook_create(owner=make_user(), name="Terms", positions=[Position(issue="i")], by=None, now=NOW)
    assert "no playbook is named 'Terms'" in refused(make_user(), TEXT)


def test_ambiguous_name_is_refused(owner):
    for _ in range(2):
        project_create(owner=owner, name="Twice", by=owner, now=NOW)
    text = TEXT.replace("query: terms", "query: terms\n    project: Twice")
    assert "triggers[1].project: expected the name of one project: there are several named 'Twice'" in refused(
        owner, text
    )


def test_only_what_the_new_text_changes_is_applied(owner):
    load(owner)
    trigger_edit(trigger=trigger("New papers"), by=owner, now=NOW, enabled=False, max_runs_per_hour=7)

    defined = load(owner, TEXT.replace("0.5", "0.75"))

    assert defined.messages == ("Trigger 'New papers' changed.",)
    watch = trigger("New papers")
    assert (watch.max_cost_usd, watch.enabled, watch.max_runs_per_hour) == (Decimal("0.75"), False, 7)


def test_removed_trigger_settings_return_to_defaults(owner):
    load(owner)
    load(owner, TEXT.replace("    max_cost_usd: 0.5\n", ""))
    assert trigger("New papers").max_cost_usd is None


def test_new_zone_of_the_agent_moves_its_schedules(owner):
    load(owner)
    before = trigger("Mondays").next_run_at
    load(owner, TEXT.replace("Europe/Paris", "UTC"))

    assert trigger("Mondays").zone == "UTC"
    assert trigger("Mondays").next_run_at != before


def test_trigger_removed_from_the_file_is_switched_off_until_it_returns(owner):
    load(owner)
    shorter = TEXT[: TEXT.index("  - name: Mondays")]

    assert load(owner, shorter).messages == ("Trigger 'Mondays' switched off: it is no longer in the file.",)
    assert not trigger("Mondays").enabled
    assert load(owner).messages == ("Trigger 'Mondays' changed.",)
    assert trigger("Mondays").enabled
    assert Trigger.objects.count() == 2


def test_triggers_created_by_people_are_left_alone(owner):
    agent = load(owner).agent
    trigger_create(
        owner=owner, kind=TriggerKind.MANUAL, name="By hand", agent=agent, skill=make_skill(), by=owner, now=NOW
    )
    load(owner, "name: Clerk\n")

    assert trigger("By hand").enabled
    assert not trigger("New papers").enabled


def test_deleted_trigger_is_created_again_only_when_its_text_changes(owner):
    load(owner)
    trigger_delete(trigger=trigger("Mondays"), by=owner, now=NOW)

    assert load(owner, TEXT + "description: other\n").messages == (
        "Trigger 'Mondays' was deleted and is not created again.",
    )
    assert load(owner, TEXT.replace("0 6", "0 7")).messages == ("Trigger 'Mondays' created.",)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("collection: Papers", "collection: Others", "triggers[0].collection: expected 'Papers': a watch keeps its"),
        (
            "    kind: watch\n",
            "    kind: event\n",
            "triggers[0].kind: expected watch, which the trigger of that name is",
        ),
    ],
)
def test_change_of_kind_or_collection_is_refused(owner, old, new, expected):
    load(owner)
    assert expected in refused(owner, TEXT.replace(old, new))


def test_name_of_two_existing_triggers_is_refused(owner):
    agent = load(owner).agent
    given = {"owner": owner, "agent": agent, "kind": TriggerKind.MANUAL, "name": "Mondays", "by": owner, "now": NOW}
    trigger_create(**given, skill=make_skill())
    assert "triggers[1].name: expected a name of its own: the agent has 2 triggers of this one" in refused(
        owner, TEXT + "description: other\n"
    )


def test_triggers_of_an_agent_without_a_text_are_exported(owner):
    agent = load(owner).agent
    agent.definition = ""
    written = agent_export(agent)
    other = make_user()
    playbook_create(owner=other, name="Terms", positions=[Position(issue="i")], by=other, now=NOW)

    load(other, written)

    for name in ("New papers", "Mondays"):
        mine, theirs = (Trigger.objects.get(owner=user, name=name) for user in (owner, other))
        for field in ("kind", "zone", "cron", "query", "max_cost_usd", "enabled", "pause_after"):
            assert getattr(mine, field) == getattr(theirs, field)
        assert mine.playbook.name == theirs.playbook.name
