"""load_agents, check_agents and export_agent: effects, output and exit codes."""

import json

import pytest
from django.core.management import CommandError, call_command

from agents.definitions.in_force import definition_of
from agents.models import Agent, Trigger
from agents.roster.agents import agent_edit
from agents.text.strict_yaml import MAX_BYTES
from audit.models import AuditEvent
from tests.agents.api.world import make_skill
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db
TEXT = "name: Watch\nmode: manual\ntriggers: [{name: Ring, kind: event, skill: reviewing}]\n"
SEED = """\
autonomy: {enabled: true}
hot_state: {fields: {cash: {type: number, ttl: 30, refresh_tool: get_account_balance}}}
sensors:
  - name: price_feed
    type: poll
    interval: 5
    source: {tool: get_market_data}
    updates: [{field: cash}]
    signals: [{name: anomaly, model: qwen3-1.7b, prompt: "Anomalous? Score 0-1."}]
"""


@pytest.fixture(autouse=True)
def _skill():
    make_skill(name="reviewing")


def run(capsys, *arguments):
    call_command(*map(str, arguments))
    return capsys.readouterr().out


def failed(capsys, *arguments):
    with pytest.raises(CommandError) as caught:
        call_command(*map(str, arguments))
    return f"{capsys.readouterr().out}{caught.value}"


@pytest.fixture
def ada():
    return make_user(username="ada")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "watch.yaml").write_text(TEXT)
    (tmp_path / "trader.yml").write_text(SEED)
    (tmp_path / "notes.txt").write_text("no: agent")
    return tmp_path


def test_load_agents_loads_a_folder_and_records_the_user(capsys, ada, folder):
    out = run(capsys, "load_agents", folder, "--user", "ada")

    trader, watch = Agent.objects.order_by("pk")
    assert (trader.name, watch.name, watch.owner) == ("trader", "Watch", ada)
    assert [line.partition("expected")[0] for line in out.splitlines()] == [
        f"{folder}/trader.yml: trader is at version 1.",
        f"  NOTE {folder}/trader.yml:2: hot_state.fields.cash.refresh_tool: ",
        f"  NOTE {folder}/trader.yml:7: sensors[0].source.tool: ",
        f"  NOTE {folder}/trader.yml:9: sensors[0].signals[0].model: ",
        "  Next: `manage.py agent start trader`.",
        f"{folder}/watch.yaml: Watch is at version 1.",
        "  Trigger 'Ring' created.",
    ]
    assert "expected the name of an installed and enabled skill; got get_market_data" in out
    assert set(AuditEvent.objects.values_list("actor", flat=True)) == {f"user:{ada.pk}"}


def test_load_agents_again_changes_nothing(capsys, ada, folder):
    run(capsys, "load_agents", folder, "--user", "ada")
    rows = AuditEvent.objects.count()

    assert f"{folder}/watch.yaml: no changes: Watch is at version 1." in run(
        capsys, "load_agents", folder / "watch.yaml", "--owner", "ada"
    )
    assert AuditEvent.objects.count() == rows


def test_load_agents_prints_json(capsys, ada, folder):
    (folder / "watch.yaml").write_text(TEXT + "sensors: [{name: s, type: poll, source: {tool: now}}]\n")

    facts = json.loads(run(capsys, "load_agents", folder / "watch.yaml", "--user", "ada", "--json"))

    agent = Agent.objects.get()
    assert facts["agents"] == [
        {
            "file": f"{folder}/watch.yaml",
            "agent_id": str(agent.public_id),
            "name": "Watch",
            "version": 1,
            "digest": agent.definition_digest,
            "changed": True,
            "told": ["Trigger 'Ring' created."],
            "next": [],
            "broken_sensors": [{"name": "s", "problem": definition_of(agent).broken_sensors[0].problem.replace(
                "agent.yaml", f"{folder}/watch.yaml")}],
            "notes": [],
        }
    ]  # fmt: skip
    assert (facts["dry_run"], facts["problems"]) == (False, [])


def test_dry_run_prints_the_plan_and_changes_nothing(capsys, ada, folder):
    out = run(capsys, "load_agents", folder, "--user", "ada", "--dry-run")

    assert out.startswith("Dry run. This would be done:\n")
    assert f"{folder}/watch.yaml: Watch would be at version 1.\n  Trigger 'Ring' created.\n" in out
    assert out.endswith("Nothing was done.\n")
    assert not Agent.objects.exists()
    assert not Trigger.objects.exists()
    assert not AuditEvent.objects.exists()


def test_one_problem_loads_nothing_and_all_are_listed(capsys, ada, folder):
    (folder / "worse.yaml").write_text("mode: fast\nzone: Mars\n")
    (folder / "wrong.yaml").write_text("name: Wrong\ntriggers: [{name: a, kind: event, playbook: none}]\n")

    output = failed(capsys, "load_agents", folder, folder / "none.yaml", "--user", "ada")

    assert [line.partition(": expected")[0] for line in output.splitlines()] == [
        f"PROBLEM {folder}/worse.yaml:1: mode",
        f"PROBLEM {folder}/worse.yaml:2: zone",
        f"PROBLEM {folder}/wrong.yaml:2: triggers[0].playbook",
        f"PROBLEM {folder}/none.yaml",
        "4 problems in 5 files. Nothing was loaded.",
    ]
    assert not Agent.objects.exists()
    assert (
        len(json.loads(failed(capsys, "load_agents", folder, "--user", "ada", "--json").splitlines()[0])["problems"])
        == 3
    )


def test_refused_import_is_a_problem_of_its_file(capsys, ada, folder):
    agent = make_agent(owner=ada, name="Watch", mode="manual")
    make_session(owner=ada, agent=agent)
    (folder / "watch.yaml").write_text("name: Watch\nmode: auto\n")

    assert "manual can be tightened now, not loosened to auto" in failed(capsys, "load_agents", folder)


def test_load_agents_needs_an_owner_with_several_users(capsys, ada, folder):
    run(capsys, "load_agents", folder / "watch.yaml")
    assert Agent.objects.get().owner == ada
    assert AuditEvent.objects.latest("pk").actor == "system"

    make_user()
    assert "Give the owner of the agents" in failed(capsys, "load_agents", folder)
    assert "no active user 'nobody'" in failed(capsys, "load_agents", folder, "--user", "nobody")


def test_check_agents_passes_files_and_notes_unknown_names(capsys, folder):
    out = run(capsys, "check_agents", folder)

    assert [line.partition(": expected")[0] for line in out.splitlines()] == [
        f"NOTE {folder}/trader.yml:2: hot_state.fields.cash.refresh_tool",
        f"NOTE {folder}/trader.yml:7: sensors[0].source.tool",
        f"NOTE {folder}/trader.yml:9: sensors[0].signals[0].model",
        "2 files without problems.",
    ]
    assert not Agent.objects.exists()


def test_check_agents_lists_problems_of_skipped_sensors(capsys, folder):
    (folder / "copy.yaml").write_text(TEXT + "sensors: [{name: s, type: poll, source: {tool: now}}]\n")
    (folder / "long.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (folder / "latin.yaml").write_bytes(b"name: \xe9\n")

    output = failed(capsys, "check_agents", folder)

    interval = "sensors[0].interval: expected a whole number of seconds, 1 or more"
    assert [line for line in output.splitlines() if not line.startswith("NOTE")] == [
        f"PROBLEM {folder}/copy.yaml:4: {interval}: a poll needs one; got nothing",
        f"PROBLEM {folder}/latin.yaml: expected UTF-8 text: byte 6 makes no character",
        f"PROBLEM {folder}/long.yaml: expected at most {MAX_BYTES} bytes",
        f'PROBLEM {folder}/watch.yaml:1: name: expected a name that no other file has; got "Watch"',
        "4 problems in 5 files.",
    ]


def test_check_agents_prints_json(capsys, folder):
    (folder / "watch.yaml").write_text("mode: fast\n")
    facts = json.loads(failed(capsys, "check_agents", folder, "--json").splitlines()[0])

    assert (facts["ok"], facts["files"]) == (False, [f"{folder}/trader.yml", f"{folder}/watch.yaml"])
    assert (facts["problems"][0]["line"], facts["problems"][0]["key"], len(facts["notes"])) == (1, "mode", 3)


def test_folder_without_yaml_is_an_error(capsys, tmp_path):
    assert f"There is no YAML file in {tmp_path}." in failed(capsys, "check_agents", tmp_path)


def test_export_agent_writes_what_load_agents_reads(capsys, ada, folder):
    run(capsys, "load_agents", folder / "watch.yaml", "--user", "ada")

    assert run(capsys, "export_agent", "Watch") == TEXT
    facts = json.loads(run(capsys, "export_agent", "Watch", "--owner", "ada", "--json"))
    assert (facts["yaml"], facts["version"], facts["owner"], facts["drift"]) == (TEXT, 1, "ada", [])


def test_export_agent_notes_drift(capsys, ada, folder):
    run(capsys, "load_agents", folder / "watch.yaml", "--user", "ada")
    agent_edit(agent=Agent.objects.get(), by=None, now=NOW, mode="semi")

    call_command("export_agent", "Watch")
    assert capsys.readouterr().err == "NOTE mode is semi here, and manual in its text.\n"


def test_export_agent_needs_an_unambiguous_name(capsys, ada):
    assert "There is no agent 'Nobody'." in failed(capsys, "export_agent", "Nobody")
    make_agent(owner=ada, name="Twin")
    make_agent(name="Twin")
    assert "Several agents match 'Twin'. Give the public id of one:" in failed(capsys, "export_agent", "Twin")
    assert run(capsys, "export_agent", "Twin", "--owner", "ada").startswith("name: Twin\nmode: semi\n")
