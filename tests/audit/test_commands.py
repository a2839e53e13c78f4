import json
import os
import stat
import subprocess
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from audit.keys import public_key
from audit.models import SkillAudit
from tests.audit.samples import RUN, call, edit, later, record_session, record_skill_call, remove, start
from tests.lqops import processes
from tests.table import every_row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("checkpoint_file")]


def run(name, *arguments):
    """Exit code, stdout and stderr of a command."""
    out, err = StringIO(), StringIO()
    try:
        call_command(name, *arguments, stdout=out, stderr=err)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    except SystemExit as exit_:
        return exit_.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    "name", ["verify_audit", "export_audit", "checkpoint_audit", "audit", "countersign_audit", "replace_audit_key"]
)
def test_help_explains(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        call_command(name, "--help")
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out.split()) > 50


def test_verify_prints_the_result_in_its_last_line():
    record_session()
    code, out, _ = run("verify_audit")
    assert code == 0
    assert out.splitlines() == [
        "No checkpoints checked: rows cut from the end of an open chain would go unnoticed.",
        "Verified: 9 of 9 events intact (chains: 2, checkpoints: 0).",
    ]


def test_verify_checks_the_configured_checkpoints():
    record_session()
    run("checkpoint_audit")
    assert run("verify_audit") == (0, "Verified: 10 of 10 events intact (chains: 2, checkpoints: 1).\n", "")


def test_verify_names_the_first_bad_row_of_each_chain(unguarded):
    record_session()
    edit(RUN, 3, actor="user:666")
    edit(RUN, 5, actor="user:666")
    code, out, _ = run("verify_audit", "--no-head")
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith(f"Bad: chain {RUN}, row 3 (id ")
    assert lines[1] == "Further problems: 1"
    assert lines[-1].startswith("Tampering found. Checked 9 events (chains: 2, checkpoints: 0)")


def test_verify_finds_a_cut_tail_unless_checkpoints_are_off(unguarded, checkpoint_file):
    record_session(closed=False)
    run("checkpoint_audit")
    remove(chain=RUN, seq=7)
    assert run("verify_audit")[0] == 1
    assert run("verify_audit", "--head", str(checkpoint_file))[0] == 1
    assert run("verify_audit", "--no-head")[0] == 0


def test_verify_notes_a_crash(checkpoint_file):
    start(RUN)
    run("checkpoint_audit")
    with checkpoint_file.open("a") as file:
        file.write('{"at"')
    run("checkpoint_audit")
    code, out, _ = run("verify_audit")
    assert (code, out.splitlines()[0][:32]) == (0, "Note: checkpoint file, line 3: a")


def test_verify_as_json(unguarded):
    record_session()
    edit(RUN, 3, actor="user:666")
    code, out, _ = run("verify_audit", "--json")
    found = json.loads(out)
    assert (code, found["verified"], found["rows"], found["checkpoints"]) == (1, False, 9, None)
    assert (found["problems"][0]["chain"], found["problems"][0]["seq"]) == (RUN, 3)
    assert found["problems"][0]["text"].startswith(f"chain {RUN}, row 3")


def test_verify_cannot_read_a_missing_file(tmp_path):
    code, _, said = run("verify_audit", "--head", str(tmp_path / "nothing"))
    assert (code, "cannot be read: No such file" in said) == (2, True)


def test_verify_cannot_read_a_broken_database(monkeypatch):
    def broken(**_):
        raise DatabaseError("no such table")

    monkeypatch.setattr("audit.management.commands.verify_audit.verify_log", broken)
    assert run("verify_audit") == (2, "", "The audit log cannot be read: no such table")


def test_verify_prints_its_progress(monkeypatch):
    record_session()
    monkeypatch.setattr("audit.verify.PROGRESS_ROWS", 4)
    assert run("verify_audit")[2] == "Rows so far: 4\nRows so far: 8\n"


def test_checkpoint_is_written_and_printed(checkpoint_file):
    start(RUN)
    assert run("checkpoint_audit")[:2] == (
        0,
        f"Checkpoint 1 written (events: 2, last row of `system`: 1, open chains: 1).\nPublic key: {public_key()}\n",
    )
    code, out, _ = run("checkpoint_audit", "--json")
    assert (code, json.loads(out)) == (0, json.loads(checkpoint_file.read_text().splitlines()[1]))


def test_checkpoint_that_cannot_be_written_fails(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path
    code, _, said = run("checkpoint_audit")
    assert (code, f"No checkpoint written to {tmp_path}" in said) == (1, True)


def test_export_goes_to_stdout():
    record_session()
    code, out, err = run("export_audit")
    assert (code, err) == (0, f"Lines exported: 13. Public key: {public_key()}\n")
    lines = [json.loads(line) for line in out.splitlines()]
    assert ("checkpoint" in lines[0], "manifest" in lines[-1]) == (True, True)
    assert {line["chain"] for line in lines[1:-1]} == {RUN, "system"}


def test_export_file_is_private(tmp_path, monkeypatch):
    record_session()
    monkeypatch.setattr("audit.management.commands.export_audit.PROGRESS_LINES", 5)
    file = tmp_path / "export.jsonl"
    code, out, told = run("export_audit", "--output", str(file))
    assert (code, out, told.splitlines()[:2]) == (0, "", ["Lines so far: 5", "Lines so far: 10"])
    assert len(file.read_text().splitlines()) == 13
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["export.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--chain", RUN], 7),
        (["--kind", "audit.chain_closed"], 1),
        (["--since", "2026-05-04T09:01"], 4),
        (["--since", "2026-05-04T11:01:00+02:00"], 4),
        (["--since", "2026-05-05", "--format", "jsonl"], 2),
    ],
)
def test_export_can_be_filtered(arguments, count):
    record_session()
    out = run("export_audit", *arguments)[1].splitlines()
    assert json.loads(out[-1])["manifest"]["events"] == count


@pytest.mark.parametrize(
    "arguments", [["--chain", "nobody"], ["--kind", "nothing"], ["--since", "yesterday"], ["--format", "xml"]]
)
def test_export_refuses_unknown_values(arguments, tmp_path):
    file = tmp_path / "export.jsonl"
    assert run("export_audit", "--output", str(file), *arguments)[0] == 1
    assert not file.exists()


def test_export_stops_at_an_unreadable_row(unguarded, tmp_path):
    record_session()
    edit(RUN, 3, details=[])
    code, _, said = run("export_audit", "--output", str(tmp_path / "export.jsonl"))
    assert (code, said) == (
        2,
        f"Stopped: row 3 of chain {RUN} holds details that are not an object; run verify_audit for details.",
    )
    assert not [found for found in tmp_path.iterdir() if found.is_file()]


def test_export_does_not_replace_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert run("export_audit", "--output", str(pipe))[::2] == (2, f"{pipe} is not a file.")
    assert pipe.is_fifo()


def test_export_says_where_it_cannot_write(tmp_path):
    code, _, said = run("export_audit", "--output", str(tmp_path / "no" / "folder"))
    assert (code, "Stopped after 0 lines" in said) == (2, True)


def skill_calls(count):
    for number in range(count):
        record_skill_call(
            skill_name=f"skill-{number}",
            arguments={"n": number},
            output=f"out\x1b[2J{number}",
            capability_level="CONTROLLED",
            risk_level=None,
            duration_ms=1,
            now=later(number),
        )


def test_audit_lists_the_newest_skill_calls_first():
    skill_calls(25)
    lines = run("audit")[1].splitlines()
    assert len(lines) == 20
    assert lines[0] == '2026-05-04T09:00:24+00:00  skill-24  {"n":24}  out·[2J24'
    assert lines[-1].split()[1] == "skill-5"


def test_audit_takes_a_limit_and_gives_json():
    skill_calls(5)
    rows = [json.loads(line) for line in run("audit", "--limit", "2", "--json")[1].splitlines()]
    assert [row["skill"] for row in rows] == ["skill-4", "skill-3"]
    assert set(rows[0]) == {"time", "skill", "input", "output"}


def test_audit_lists_events_as_sentences():
    start(RUN)
    call(RUN, "denied", second=1)
    lines = run("audit", "--events", "--limit", "1")[1].splitlines()
    assert lines == [f"2026-05-04T09:00:01+00:00  {RUN}  system  Run_skill: denied."]


def test_audit_shows_a_receipt():
    record_session()
    assert run("audit", "--receipt", RUN)[1].startswith(f"Run {RUN}")
    assert json.loads(run("audit", "--receipt", RUN, "--json")[1])["rows"] == 7
    assert run("audit", "--receipt", "nobody")[0] == 1


def test_audit_completes_a_unique_beginning_of_a_session_id():
    record_session()
    assert run("audit", "--receipt", RUN[:8].upper())[1].startswith(f"Run {RUN}")
    assert run("audit", "--receipt", RUN[:5])[0] == 1
    assert run("audit", "--receipt", "system")[0] == 1
    start(f"{RUN[:8]}-0000-4000-8000-000000000001")
    code, _, err = run("audit", "--receipt", RUN[:8])
    assert (code, err) == (1, f"Several sessions begin with {RUN[:8]}: give more of the id.")
    assert run("audit", "--receipt", RUN)[0] == 0


def test_audit_says_when_there_are_no_rows():
    assert "--events lists the audit events" in run("audit")[1]
    assert run("audit", "--events")[1] == "No audit events yet.\n"
    assert run("audit", "--json")[1] == ""
    assert not SkillAudit.objects.exists()


@every_row("limit", ["0", "-1", "many", "99999999999999999999", "\u0663"])
def test_audit_refuses_an_invalid_limit(limit):
    code, _, told = run("audit", f"--limit={limit}")
    assert (code, f"{limit!r} is not a number from 1 to 999999999" in told) == (1, True)


def test_export_names_the_format_of_times():
    assert "'yesterday' is not a time, such as 2026-01-31" in run("export_audit", "--since", "yesterday")[2]


ROWS = """
import django; django.setup()
from django.apps import apps
from django.db import connection
with connection.schema_editor() as editor:  # without migrations, which take longer
    for model in apps.get_app_config("audit").get_models():
        editor.create_model(model)
from tests.audit.samples import record_session
record_session(calls=200)
"""


def test_export_to_a_closed_pipe_ends_without_error(tmp_path, some):
    env = processes.environment(tmp_path, DJANGO_SETTINGS_MODULE="lqops.settings")
    assert processes.run_python(ROWS, env=env).returncode == 0
    for arguments in some([[], ["--kind", "audit.chain_opened"]], 2):  # more than a buffer holds, and less
        assert exported_to_nobody(arguments, env) == (0, "")


def exported_to_nobody(arguments, env):
    reader, writer = os.pipe()
    os.close(reader)
    command = processes.command("export_audit", *arguments)
    done = subprocess.run(command, env=env, cwd=processes.ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    return done.returncode, done.stderr.decode()


@every_row(
    "arguments",
    [
        ("export_audit", "--chain="),
        ("audit", "--receipt="),
        ("audit", "--receipt", " "),
        ("verify_audit", "--archive="),
        ("verify_audit", "--archive", " "),
    ],
)
def test_empty_option_value_is_refused(arguments):
    record_session()
    code, out, told = run(*arguments)
    assert (code, out) == (1, "")
    assert "empty value: give one, or leave the option out" in told
