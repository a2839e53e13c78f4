"""doctor, halt, release: what they do, say and return."""

import json
from contextlib import closing
from unittest.mock import patch
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from agents import doctor
from agents.enums import HaltState, Status
from agents.management.commands import up
from agents.models import AgentSession, Halt, Installation, SuspendedModel
from agents.policy import brakes
from agents.sessions import halts
from audit import models, recorder
from audit.models import AuditEvent
from audit.receipt_text import outcome_sentence
from tests.factories import NOW, make_agent, make_session, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db


def run(capsys, *arguments):
    call_command(*arguments)
    return capsys.readouterr().out


def test_doctor_finds_a_healthy_installation(capsys):
    assert "FAIL" not in run(capsys, "doctor", "--no-color")
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["ok"]
    assert found["halted"] is None
    assert {"name": "R5 refuses a halted session", "ok": True, "found": "as it should be"} in found["checks"]


def test_doctor_fails_when_a_brake_does_not_refuse(capsys):
    with patch.object(brakes, "temporal", return_value=None), pytest.raises(CommandError, match="do not start"):
        call_command("doctor", "--no-color")
    assert "FAIL R5 refuses a halted session" in capsys.readouterr().out


def test_doctor_speaks_of_brakes_only_when_one_fails():
    SuspendedModel.objects.create(model="m-1", bound_usd=1, actual_usd=2)
    with pytest.raises(CommandError) as failed:
        call_command("doctor", "--json")
    assert str(failed.value).endswith(" checks failed.")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda: Installation.objects.all().delete(), "every call is refused"),
        (lambda: SuspendedModel.objects.create(model="m-1", bound_usd=1, actual_usd=2), "m-1"),
        (lambda: models.remove(doctor.connection), "triggers are missing"),
    ],
)
def test_doctor_says_what_is_wrong(break_it, says, capsys):
    break_it()
    with pytest.raises(CommandError):
        call_command("doctor", "--json")
    out = capsys.readouterr().out
    assert says in out


def test_doctor_sees_a_database_that_is_not_migrated(capsys):
    plan = [("agents.0009", False)]
    with (
        patch.object(doctor.MigrationExecutor, "migration_plan", return_value=plan),
        pytest.raises(CommandError),
    ):
        call_command("doctor", "--json")
    assert "agents.0009" in capsys.readouterr().out


def test_doctor_sees_commits_that_do_not_reach_the_disk():
    with doctor.connection.cursor() as cursor:
        if doctor.connection.vendor == "postgresql":
            cursor.execute("SET LOCAL synchronous_commit TO off")
            assert not doctor._durable().ok
        else:
            with patch.object(doctor, "SQLITE_NORMAL", 3):
                assert not doctor._durable().ok


def test_halt_stops_a_session_and_names_who_did_it(capsys):
    session, operator = make_session(), make_user(username="ada")
    out = run(capsys, "halt", str(session.public_id), "--user", "ada", "--reason", "it loops")
    assert out == "1 asked to halt, 0 halted before, 0 over.\n"
    assert Halt.objects.get().requested_by == operator
    assert json.loads(run(capsys, "halt", str(session.public_id), "--json")) == {
        "requested": 0,
        "already_halted": 1,
        "terminal": 0,
        "failed": 0,
    }


def test_halt_takes_the_beginning_of_an_id_if_it_is_the_only_one(capsys):
    first = make_session(public_id="f6344a8c-0000-4000-8000-000000000001")
    second = make_session(public_id="f6344a8c-0001-4000-8000-000000000001", agent=make_agent())
    with pytest.raises(CommandError, match="More than one session begins with f6344a8c"):
        call_command("halt", "f6344a8c")
    run(capsys, "halt", "f6344a8c-0000")
    states = dict(AgentSession.objects.values_list("pk", "halt_state"))
    assert states == {first.pk: HaltState.HALT_REQUESTED, second.pk: HaltState.RUNNING}
    run(capsys, "halt", "--agent", str(second.agent.public_id)[:13])
    second.refresh_from_db()
    assert second.halt_state == HaltState.HALT_REQUESTED


def test_halt_stops_an_agent_s_sessions_and_no_others(capsys):
    agent = make_agent()
    mine, other = make_session(agent=agent, owner=agent.owner), make_session()
    run(capsys, "halt", "--agent", str(agent.public_id))
    states = dict(AgentSession.objects.values_list("pk", "halt_state"))
    assert states == {mine.pk: HaltState.HALT_REQUESTED, other.pk: HaltState.RUNNING}


def test_halt_all_and_release(capsys):
    session = make_session(status=Status.QUEUED)
    assert json.loads(run(capsys, "halt", "--all", "--reason", "incident", "--json"))["halted"] == "all"
    session.refresh_from_db()
    assert session.status == Status.HALTED
    assert run(capsys, "release") == "Work may start again.\n"
    with pytest.raises(CommandError, match="nothing to release"):
        call_command("release", "--json")


def test_halt_all_said_again_says_by_whom_since_when_and_why_it_was(capsys):
    make_user(username="ada")
    make_session(status=Status.QUEUED)
    said = run(capsys, "halt", "--all", "--reason", "incident", "--user", "ada")
    assert said == "All work is halted until `release`. Sessions told to stop: 1.\n"

    again = run(capsys, "halt", "--all", "--reason", "another")
    shown = json.loads(run(capsys, "halt", "--all", "--reason", "another", "--json"))

    halt = Halt.objects.get()
    assert again == (
        f"All work is already halted by ada since {halt.requested_at:%Y-%m-%d %H:%M} UTC: incident. "
        "Nothing more was to be stopped. The halt keeps its reason. `manage.py release` lets work start again.\n"
    )
    assert shown == {
        "halt_id": halt.pk,
        "halted": "all",
        "already_halted": True,
        "by": "ada",
        "since": halt.requested_at.isoformat(),
        "reason": "incident",
        "sessions": 0,
    }


def test_halt_all_that_could_not_reach_a_session_says_so(capsys):
    make_session()
    with patch.object(halts, "session_halt", side_effect=OperationalError("database is locked")):
        for _ in range(2):
            with pytest.raises(CommandError, match="1 could not be halted; run the command again"):
                call_command("halt", "--all", "--reason", "incident")
            assert "Nothing more" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "actor"), [([], lambda _: "command"), (["--user", "ada"], lambda user: f"user:{user.pk}")]
)
def test_a_halt_from_the_command_line_says_so_in_the_record_and_on_the_receipt(arguments, actor, capsys):
    session, operator = make_session(status=Status.QUEUED), make_user(username="ada")
    run(capsys, "halt", str(session.public_id), *arguments)
    run(capsys, "halt", "--all", "--reason", "incident", *arguments)
    run(capsys, "release", *arguments)
    assert set(AuditEvent.objects.exclude(kind__startswith="audit.").values_list("actor", flat=True)) == {
        actor(operator)
    }
    session.refresh_from_db()
    stopped = "Halted by a person." if arguments else "Halted from the command line."
    assert outcome_sentence(session.result) == stopped


def test_doctor_says_that_all_work_is_halted_and_does_not_fail(capsys):
    make_user(username="ada")
    run(capsys, "halt", "--all", "--reason", "incident", "--user", "ada")
    assert "note All work is halted by ada since " in run(capsys, "doctor", "--no-color")
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["ok"]
    assert found["halted"].endswith("UTC: incident.")


def test_release_answers_in_json(capsys):
    run(capsys, "halt", "--all", "--reason", "incident")
    assert json.loads(run(capsys, "release", "--json"))["released"]


@every_row(
    ("arguments", "says"),
    [
        (["nonsense"], "no session 'nonsense'"),
        ([str(uuid4())], "no session"),
        (["--agent", str(uuid4())], "no agent"),
        (["--agent", ""], "There is no agent ''"),
        (["--all", "--user", "nobody"], "no active user"),
        (["--all"], "needs a reason"),
        (["--all", "--reason", " "], "needs a reason"),
    ],
)
def test_halt_explains_what_it_cannot_do(arguments, says):
    with pytest.raises(CommandError, match=says):
        call_command("halt", *arguments)


def test_opt_in_lets_agents_run_for_a_user_and_takes_it_back(capsys):
    user = make_user(username="bob", opted_in=False)
    assert run(capsys, "opt_in", "bob") == "Agents may run for bob.\n"
    user.lqops_profile.refresh_from_db()
    assert user.lqops_profile.opted_in
    assert json.loads(run(capsys, "opt_in", "bob", "--out", "--json")) == {"user": "bob", "opted_in": False}
    kinds = AuditEvent.objects.filter(chain="system").order_by("seq").values_list("kind", flat=True)
    assert list(kinds) == ["people.opted_in", "people.opted_out"]
    with pytest.raises(CommandError, match="no user 'eve'"):
        call_command("opt_in", "eve")


def test_up_says_how_to_choose_another_port():
    with closing(up._listen("127.0.0.1", 0)) as taken:
        taken.listen()
        with pytest.raises(CommandError, match=r"--port 8001, or with make run PORT=8001\."):
            up._listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.django_db(transaction=True)
def test_up_check_fails_when_the_record_was_changed():
    recorder.append("system", "organisation.released", now=NOW, details={"halt_id": 1})
    models.remove(connection)
    AuditEvent.objects.update(actor="user:7")
    models.install(connection)

    assert up._verify_audit()["verified"] is False


def test_up_check_fails_when_the_checkpoints_cannot_be_read(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path

    audit = up._verify_audit()

    assert audit["verified"] is False
    assert "cannot be read" in audit["error"]
