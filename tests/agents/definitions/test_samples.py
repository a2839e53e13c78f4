"""The sample agents of a new installation are files: they load as they are, and leave what a newcomer is shown."""

import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from django.test import override_settings

from agents.definitions.in_force import checked_definition
from agents.enums import TriggerKind
from agents.knowledge.playbooks import skills_load
from agents.management.samples import samples_install
from agents.models import Agent, AgentSession, Document, Trigger
from agents.skills.registry import unresolved_names
from tests.factories import NOW, make_user
from tests.table import every_row

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "samples" / "agents").glob("*.yaml"))


@pytest.fixture
def skills(settings):
    settings.LQOPS_SKILL_FOLDERS = [str(ROOT / "samples" / "skills")]
    skills_load(by=None, now=NOW)


@pytest.mark.django_db
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_sample_has_no_errors_or_notes(path):
    definition = checked_definition(path.read_text(encoding="utf-8"), file=path.name)

    assert definition.name
    assert definition.description
    assert definition.instructions
    assert (definition.broken_sensors, definition.notes) == ((), ())
    assert unresolved_names(definition) == []


@pytest.mark.django_db(transaction=True)
def test_all_sample_agents_are_loaded(skills):
    owner = make_user()

    said = samples_install(owner, now=NOW)

    assert said.startswith(f"Samples: {len(FILES)} agents, ")
    assert "\n" not in said
    agents = {agent.name: agent for agent in Agent.objects.all()}
    assert {"Contract reviewer", "Weekly scanner", "Incident clerk"} <= agents.keys()
    assert all(agent.definition_version == 1 and agent.owner == owner for agent in agents.values())
    assert agents["Contract reviewer"].max_cost_per_day_usd == Decimal(5)
    watch, schedule, event = (
        Trigger.objects.get(agent=agents[name]) for name in ("Contract reviewer", "Weekly scanner", "Incident clerk")
    )
    assert (watch.kind, schedule.kind, event.kind) == (TriggerKind.WATCH, TriggerKind.SCHEDULE, TriggerKind.EVENT)
    assert (watch.collection.name, watch.project.name, watch.review_flagged) == (
        "Contracts",
        "Supplier contracts",
        True,
    )
    assert (schedule.collection.name, schedule.skill.name, schedule.cron) == (
        "Weekly reports",
        "weekly-scan",
        "0 6 * * 1",
    )
    assert {trigger.max_cost_usd for trigger in (watch, schedule, event)} == {Decimal("0.5")}
    assert AgentSession.objects.filter(trigger=watch).count() == 3  # a watch is told of the contracts as they come in
    assert Document.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_invalid_sample_does_not_stop_the_others(settings, tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    settings.BASE_DIR = tmp_path

    said = samples_install(make_user(), now=NOW).splitlines()

    left_out = "Sample skipped: weekly-scanner.yaml:14: triggers[0].skill: expected the name of a skill"
    assert any(line.startswith(left_out) for line in said[1:])
    assert Agent.objects.filter(name="Contract reviewer").exists()
    assert not Agent.objects.filter(name="Weekly scanner").exists()


@pytest.mark.django_db
def test_missing_samples_are_reported(settings, tmp_path):
    settings.SAMPLES_DIR = tmp_path
    assert samples_install(make_user(), now=NOW) == "Samples: none in this installation"


@pytest.mark.django_db
@every_row(
    ("host", "notes"),
    [
        ("mail.example.org", []),
        ("", ["a skill that is available in this installation: no mail server is configured (LQOPS_SMTP_HOST)"]),
    ],
)
def test_unavailable_skill_is_noted(host, notes):
    definition = checked_definition("name: Clerk\nskills: [now, send_email]\n", file="agent.yaml")

    with override_settings(EMAIL_HOST=host):
        found = unresolved_names(definition)

    assert [(note.key, note.expected) for note in found] == [("skills[1]", text) for text in notes]
