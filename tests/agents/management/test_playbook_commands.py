"""load_skills, import_playbook and export_playbook: effects, output and exit codes."""

import json

import pytest
from django.core.management import CommandError, call_command

from agents.knowledge.playbooks import playbook_delete
from agents.models import Playbook, PromptSkill
from agents.text.strict_yaml import MAX_BYTES
from audit.models import AuditEvent
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
TEXT = "name: Leases\npositions:\n- issue: Deposit\n  severity: warn\n  standard: Two months.\n"


def run(capsys, *arguments):
    call_command(*arguments)
    return capsys.readouterr().out


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "leases.yaml"
    path.write_text(TEXT)
    return path


def last_actor():
    return AuditEvent.objects.filter(chain="system").order_by("-seq").first().actor


def test_load_skills_loads_new_and_marks_changed_skills(capsys, write_skill):
    assert run(capsys, "load_skills") == "There are no skills.\n"
    write_skill()
    assert run(capsys, "load_skills") == "reader (version 1): new, loaded\n"
    assert run(capsys, "load_skills") == "reader (version 1): unchanged\n"
    accepted = run(capsys, "load_skills", "--accept", "reader")
    assert accepted == "reader (version 1): nothing to accept: unchanged\n"
    write_skill(body="New text.")
    assert "CHANGED; it does not run until it is accepted: review its files, then --accept reader" in run(
        capsys, "load_skills"
    )


def test_load_skills_accepts_skills_and_records_the_user(capsys, write_skill):
    ada = make_user(username="ada", is_superuser=True)
    for name in ("reader", "writer", "third"):
        write_skill(name)
    run(capsys, "load_skills")
    for name in ("reader", "writer", "third"):
        write_skill(name, body="New text.")

    out = run(capsys, "load_skills", "--accept", "reader", "writer", "--json", "--user", "ada")

    states = {one["name"]: (one["state"], one["version"]) for one in json.loads(out)["skills"]}
    assert states == {"reader": ("accepted", 2), "third": ("changed", 1), "writer": ("accepted", 2)}
    accepted = AuditEvent.objects.filter(kind="skill.accepted").values_list("actor", flat=True)
    assert list(accepted) == [f"user:{ada.pk}"] * 2


def test_load_skills_fails_when_a_folder_is_bad_and_loads_the_others(capsys, root, write_skill):
    write_skill("good")
    (root / "bad").mkdir()

    with pytest.raises(CommandError, match=r"1 could not be loaded or accepted\. The others were"):
        call_command("load_skills")

    assert f"PROBLEM {root / 'bad'}: there is no SKILL.md." in capsys.readouterr().out
    assert PromptSkill.objects.get().name == "good"
    with pytest.raises(CommandError):
        call_command("load_skills", "--json")
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_load_skills_needs_the_permission(write_skill):
    make_user(username="eve")

    with pytest.raises(CommandError, match=r"agents\.change_promptskill"):
        call_command("load_skills", "--user", "eve")


def test_the_sample_skills_are_loaded_by_default(capsys):
    out = json.loads(run(capsys, "load_skills", "--json"))

    assert [(one["name"], one["state"]) for one in out["skills"]] == [
        ("incident-triage", "loaded"),
        ("weekly-scan", "loaded"),
    ]


def test_import_and_export_a_playbook(capsys, file):
    owner = make_user(username="bob")

    assert run(capsys, "import_playbook", str(file), "--owner", "bob") == "Leases of bob is at version 1.\n"
    assert last_actor() == "system"
    assert run(capsys, "export_playbook", "Leases", "--owner", "bob") == TEXT
    again = run(capsys, "import_playbook", str(file), "--owner", "bob")
    assert again == "No changes: Leases of bob is at version 1.\n"
    file.write_text(TEXT.replace("Two", "Three"))
    output = json.loads(run(capsys, "import_playbook", str(file), "--owner", "bob", "--user", "bob", "--json"))
    playbook = Playbook.objects.get()
    assert output == {
        "playbook_id": str(playbook.public_id),
        "name": "Leases",
        "version": 2,
        "digest": playbook.digest,
        "owner": "bob",
        "changed": True,
    }
    assert last_actor() == f"user:{owner.pk}"
    assert json.loads(run(capsys, "export_playbook", "Leases", "--owner", "bob", "--json")) == {
        "name": "Leases",
        "version": 2,
        "digest": playbook.digest,
        "yaml": TEXT.replace("Two", "Three"),
    }


def test_import_reports_the_line_of_an_error(file):
    make_user(username="bob")
    file.write_text(TEXT.replace("severity: warn", "severity: [warn]"))

    with pytest.raises(CommandError) as refusal:
        call_command("import_playbook", str(file), "--owner", "bob")

    assert str(refusal.value) == f"{file}: positions[0].severity: expected text; got a list (line 4)"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "a file that can be read: No such file"),
        (b"\xff", "UTF-8 text: byte 0"),
        (b"#" * (MAX_BYTES + 1), f"at most {MAX_BYTES} bytes"),
    ],
)
def test_import_refuses_other_files(file, content, says):
    make_user(username="bob")
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)

    with pytest.raises(CommandError, match=says):
        call_command("import_playbook", str(file), "--owner", "bob")


def test_import_needs_the_permission(file):
    make_user(username="bob")
    make_user(username="eve")

    with pytest.raises(CommandError, match="There is nothing of that kind here"):
        call_command("import_playbook", str(file), "--owner", "bob", "--user", "eve")
    assert not Playbook.objects.exists()


def test_unknown_users_and_playbooks_are_errors(capsys, file):
    make_user(username="bob")
    for arguments in (["import_playbook", str(file)], ["export_playbook", "Leases"]):
        with pytest.raises(CommandError, match="no active user 'nobody'"):
            call_command(*arguments, "--owner", "nobody")
    run(capsys, "import_playbook", str(file), "--owner", "bob")
    playbook_delete(Playbook.objects.get(), by=None, now=NOW)
    with pytest.raises(CommandError, match="bob has no playbook 'Leases'"):
        call_command("export_playbook", "Leases", "--owner", "bob")
