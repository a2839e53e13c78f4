"""doctor, halt, release, opt_in and up --check: effects, output and exit codes."""

import json
from contextlib import closing
from datetime import timedelta
from unittest.mock import patch
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.urls import reverse

from agents import database_clock
from agents.checks import doctor
from agents.conf import clock
from agents.enums import HaltState, Status
from agents.management.commands import up
from agents.models import AgentSession, Halt, Host, Installation, SuspendedModel
from agents.policy import brakes
from agents.sessions.pauses import work_pause
from agents.skills.isolation import SkillFailed
from audit import models, recorder
from audit.models import AuditEvent
from audit.receipts import outcome_sentence
from tests.agents.admin.rows import make_playbook, sign_in, text_of
from tests.embeddings_wire import embedding
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user
from tests.table import every_row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("durable_commits")]


def run(capsys, *arguments):
    call_command(*arguments)
    return capsys.readouterr().out


def other_host(keys):
    Host.objects.create(name="other", seen_at=clock(), keys=keys, free_bytes=10**12)


@pytest.mark.parametrize("command", ["work", "tick", "sense"])
def test_host_with_other_keys_is_refused_with_what_to_do(command):
    other_host("LQOPS_SECRET_KEY=0")
    with pytest.raises(CommandError, match=r"host other uses another value of .* Give all hosts the same keys"):
        call_command(command)


def test_doctor_passes_on_a_healthy_installation(capsys):
    assert "FAIL" not in run(capsys, "doctor", "--no-color")
    found = json.loads(run(capsys, "doctor", "--json"))
    assert found["ok"]
    assert found["halted"] is None
    r5 = {"name": "R5 refuses a halted session", "ok": True, "found": "as it should be", "note": False}
    assert r5 in found["checks"]


def test_doctor_tries_what_isolated_skills_are_kept_from(capsys):
    said = run(capsys, "doctor", "--no-color")
    for protection in ("environment", "limits", "disk", "memory", "files", "metadata", "network", "processes"):
        assert f" isolated skills, {protection}: o" in said  # on, or off and why
    assert "ok   isolated skills, environment: on" in said


def test_protection_that_is_off_is_a_note_and_strict_a_fault(capsys, settings, client):
    sign_in(client)
    off = {"environment": "", "files": "the kernel has no Landlock"}
    with patch.object(doctor, "isolation_report", return_value=off):
        said = run(capsys, "doctor", "--no-color")
        page = text_of(client.post(reverse("admin:health")))
        settings.LQOPS_SKILL_ISOLATION = "STRICT"
        with pytest.raises(CommandError, match="1 of"):
            call_command("doctor", "--no-color")
    assert "ok   isolated skills, environment: on" in said
    assert "note isolated skills, files: off: the kernel has no Landlock" in said
    assert "off: the kernel has no Landlock" in page
    assert "FAIL isolated skills, files: off: the kernel has no Landlock" in capsys.readouterr().out


def test_doctor_fails_when_isolated_skills_do_not_start(capsys):
    failure = SkillFailed("probe did not start")
    with patch.object(doctor, "isolation_report", side_effect=failure), pytest.raises(CommandError, match="1 of"):
        call_command("doctor", "--no-color")
    assert "FAIL isolated skills, start: probe did not start" in capsys.readouterr().out


def test_doctor_fails_when_a_brake_does_not_refuse(capsys):
    with patch.object(brakes, "temporal", return_value=None), pytest.raises(CommandError, match="do not start"):
        call_command("doctor", "--no-color")
    assert "FAIL R5 refuses a halted session" in capsys.readouterr().out


def test_doctor_mentions_brakes_only_when_one_fails():
    SuspendedModel.objects.create(model="m-1", bound_usd=1, actual_usd=2)
    with pytest.raises(CommandError) as failed:
        call_command("doctor", "--json")
    assert str(failed.value).endswith(" checks failed.")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda: Installation.objects.all().delete(), "every call is refused"),
        (lambda: SuspendedModel.objects.create(model="m-1", bound_usd=1, actual_usd=2), "m-1"),
        (lambda: models.remove(doctor.connection), "missing triggers"),
        (lambda: other_host(keys="LQOPS_SECRET_KEY=0"), "use different keys: LQOPS_AUDIT_KEY, LQOPS_SECRET_KEY"),
    ],
)
def test_doctor_reports_what_is_wrong(break_it, says, capsys):
    break_it()
    with pytest.raises(CommandError):
        call_command("doctor", "--json")
    out = capsys.readouterr().out
    assert says in out


def test_doctor_sees_the_other_hosts_although_the_clock_here_is_ahead(monkeypatch, capsys):
    ahead = timedelta(minutes=3)
    monkeypatch.setattr(database_clock, "_ask", lambda: clock() - ahead)
    other_host(keys="LQOPS_SECRET_KEY=0")
    Host.objects.update(seen_at=clock() - ahead)
    with pytest.raises(CommandError):
        call_command("doctor", "--json")
    assert "use different keys: LQOPS_AUDIT_KEY, LQOPS_SECRET_KEY" in capsys.readouterr().out


def test_doctor_reports_missing_migrations(capsys):
    MigrationRecorder(connection).record_unapplied("agents", "0006_model_outages")
    with pytest.raises(CommandError):
        call_command("doctor", "--json")
    assert "missing: agents.0006_model_outages" in capsys.readouterr().out


def test_doctor_shows_who_must_look_at_calls_and_counts_those_who_may(settings):
    [check] = doctor._second_eyes()
    assert (check.name, check.ok) == ("four eyes are off; calls from PRIVILEGED need 1 yes", True)
    settings.LQOPS_FOUR_EYES, settings.LQOPS_QUORUM, settings.LQOPS_QUORUM_ROLE = True, 2, "approver"
    settings.LQOPS_ESCALATE_TO, settings.LQOPS_ESCALATE_AFTER = "operator", timedelta(minutes=30)
    make_user(is_superuser=True)  # decides, but is not in the role
    people = [make_user(), make_user()]
    found = []
    for person in people:
        person.groups.add(Group.objects.get(name="approver"))
        eyes, escalation = doctor._second_eyes()
        found.append((eyes.ok, escalation.ok))
        person.groups.add(Group.objects.get(name="operator"))
    assert eyes.name == "four eyes are on; calls from PRIVILEGED need 2 yeses of the role approver"
    assert escalation.name == "approvals that wait 30 minutes are escalated to operator"
    assert found == [(False, False), (True, True)]


def test_doctor_reports_commits_that_are_not_durable():
    with doctor.connection.cursor() as cursor:
        if doctor.connection.vendor == "postgresql":
            cursor.execute("SET LOCAL synchronous_commit TO off")
            assert not doctor._durable().ok
        else:
            with patch.object(doctor, "SQLITE_NORMAL", 3):
                assert not doctor._durable().ok


def test_halt_halts_a_session_and_records_the_user(capsys):
    session, operator = make_session(), make_user(username="ada")
    out = run(capsys, "halt", str(session.public_id), "--user", "ada", "--reason", "it loops")
    assert out == "Halt requested for 1; 0 already halted, 0 already ended.\n"
    assert Halt.objects.get().requested_by == operator
    assert json.loads(run(capsys, "halt", str(session.public_id), "--json")) == {
        "requested": 0,
        "already_halted": 1,
        "terminal": 0,
        "failed": 0,
    }


def test_halt_accepts_a_unique_beginning_of_an_id(capsys):
    first = make_session(public_id="f6344a8c-0000-4000-8000-000000000001")
    second = make_session(public_id="f6344a8c-0001-4000-8000-000000000001", agent=make_agent())
    with pytest.raises(CommandError, match="Several sessions match 'f6344a8c'"):
        call_command("halt", "f6344a8c")
    run(capsys, "halt", "f6344a8c-0000")
    states = dict(AgentSession.objects.values_list("pk", "halt_state"))
    assert states == {first.pk: HaltState.HALT_REQUESTED, second.pk: HaltState.RUNNING}
    run(capsys, "halt", "--agent", str(second.agent.public_id)[:13])
    second.refresh_from_db()
    assert second.halt_state == HaltState.HALT_REQUESTED


def test_halt_agent_halts_only_its_sessions(capsys):
    agent = make_agent()
    mine, other = make_session(agent=agent, owner=agent.owner), make_session()
    run(capsys, "halt", "--agent", str(agent.public_id))
    states = dict(AgentSession.objects.values_list("pk", "halt_state"))
    assert states == {mine.pk: HaltState.HALT_REQUESTED, other.pk: HaltState.RUNNING}


def test_halt_all_and_release(capsys):
    session = make_session(status=Status.QUEUED)
    assert json.loads(run(capsys, "halt", "--all", "--reason", "incident", "--json"))["halted"] == "all"
    assert run(capsys, "release") == "Released. New work may start.\n"
    session.refresh_from_db()
    assert session.status == Status.HALTED
    with pytest.raises(CommandError, match="nothing to release"):
        call_command("release", "--json")


def test_repeated_halt_all_prints_the_first_halt(capsys):
    make_user(username="ada")
    make_session(status=Status.QUEUED)
    output = run(capsys, "halt", "--all", "--reason", "incident", "--user", "ada")
    assert output == "All work is halted until `release`. 1 active run ends now.\n"

    again = run(capsys, "halt", "--all", "--reason", "another")
    facts = json.loads(run(capsys, "halt", "--all", "--reason", "another", "--json"))

    halt = Halt.objects.get()
    assert again == (
        f"All work is already halted by ada since {halt.requested_at:%Y-%m-%d %H:%M} UTC: incident. "
        "1 run is still ending. The halt keeps its reason. `manage.py release` lets work start again.\n"
    )
    assert facts == {
        "halt_id": halt.pk,
        "halted": "all",
        "already_halted": True,
        "by": "ada",
        "since": halt.requested_at.isoformat(),
        "reason": "incident",
        "sessions": 1,
        "spared": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "actor"), [([], lambda _: "command"), (["--user", "ada"], lambda user: f"user:{user.pk}")]
)
def test_audit_log_and_receipt_name_the_command(arguments, actor, capsys):
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


def test_doctor_notes_a_halt_and_passes(capsys):
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
    ],
)
def test_halt_reports_invalid_arguments(arguments, says):
    with pytest.raises(CommandError, match=says):
        call_command("halt", *arguments)


def test_opt_in_and_opt_out(capsys):
    user = make_user(username="bob", opted_in=False)
    assert run(capsys, "opt_in", "bob") == "Agents may run for bob.\n"
    user.lqops_profile.refresh_from_db()
    assert user.lqops_profile.opted_in
    assert json.loads(run(capsys, "opt_in", "bob", "--out", "--json")) == {"user": "bob", "opted_in": False}
    kinds = AuditEvent.objects.filter(chain="system").order_by("seq").values_list("kind", flat=True)
    assert list(kinds) == ["people.opted_in", "people.opted_out"]
    with pytest.raises(CommandError, match="no user 'eve'"):
        call_command("opt_in", "eve")


def test_up_suggests_another_port():
    with closing(up._listen("127.0.0.1", 0)) as taken:
        taken.listen()
        with pytest.raises(CommandError, match=r"--port 8001, or with make run PORT=8001\."):
            up._listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.django_db(transaction=True)
def test_up_check_fails_on_a_changed_audit_log():
    recorder.append("system", "organisation.released", now=NOW, details={"halt_id": 1})
    models.remove(connection)
    AuditEvent.objects.update(actor="user:7")
    models.install(connection)

    assert up._verify_audit()["verified"] is False


def test_up_check_fails_on_unreadable_checkpoints(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path

    audit = up._verify_audit()

    assert audit["verified"] is False
    assert "cannot be read" in audit["error"]


def test_doctor_names_the_missing_extra_of_search_by_meaning(monkeypatch):
    def found():
        return next(check.found for check in doctor.diagnose() if "search by meaning" in check.name)

    monkeypatch.setattr(doctor, "has_numpy", lambda: False)
    assert found() == "as it should be"
    with embedding():
        assert "install the extra `semantic`" in found()


# --- pause and resume ---


def test_run_is_paused_and_resumed(capsys):
    session = make_session(status=Status.QUEUED)
    assert run(capsys, "pause", str(session.public_id)[:8]) == f"Run {session.public_id} is paused.\n"
    session.refresh_from_db()
    assert session.waiting_on == "resume"
    work_pause(by=None, now=clock())
    said = run(capsys, "resume", str(session.public_id))
    assert said.startswith("Its own pause ended. All work is paused")
    run(capsys, "pause", str(session.public_id))
    call_command("resume", "--all")
    capsys.readouterr()
    found = json.loads(run(capsys, "resume", str(session.public_id), "--json"))
    assert found == {"resumed": str(session.public_id), "still_paused": False}


def test_agent_and_trigger_and_all_work_are_paused_and_resumed(capsys):
    agent = make_agent(name="Clerk")
    make_session(agent=agent)
    assert run(capsys, "pause", "--agent", "Clerk") == "Agent Clerk is paused. Paused runs: 1.\n"
    assert run(capsys, "resume", "--agent", "Clerk") == "Agent Clerk goes on.\n"
    owner = make_user()
    trigger = make_trigger(owner=owner, name="Weekly", playbook=make_playbook(owner))
    assert run(capsys, "pause", "--trigger", "Weekly", "--with-runs") == "Trigger Weekly is paused.\n"
    assert trigger.pauses.open().exists()
    assert run(capsys, "resume", "--trigger", "Weekly") == "Trigger Weekly fires again.\n"
    assert "Paused runs: 1." in run(capsys, "pause", "--all", "--reason", "look")
    assert run(capsys, "resume", "--all") == "All work goes on.\n"
    with pytest.raises(CommandError, match="nothing to resume"):
        call_command("resume", "--all")


def test_halt_spares_what_waits_for_a_person_and_the_release_may_keep_it_paused(capsys):
    session = make_session(status=Status.WAITING, waiting_on="approval")
    assert "Spared, because they wait for a person: 1." in run(capsys, "halt", "--all")
    call_command("release", "--keep-paused")
    session.refresh_from_db()
    assert session.paused_at is not None
