"""run_now and triggers: effects, output and exit codes."""

import json
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from agents.enums import Status, TriggerKind, WaitingOn
from agents.management import base
from agents.models import AgentSession
from audit.models import AuditEvent
from tests.agents.ask.rows import make_question
from tests.agents.triggers.rows import attach, make_collection, make_document, make_playbook, make_skill
from tests.factories import NOW, make_project, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user(username="ada")


def run(capsys, *arguments):
    call_command(*arguments)
    return capsys.readouterr().out


def ends_as(monkeypatch, **fields):
    """A worker runs the session while the command waits."""

    def work(_seconds):
        AgentSession.objects.update(completed_at=NOW, **fields)

    monkeypatch.setattr(base.time, "sleep", work)


def test_run_now_runs_a_playbook_and_names_the_session(owner, capsys):
    playbook, collection, project = make_playbook(owner), make_collection(owner), make_project(owner)
    out = run(
        capsys, "run_now", "--playbook", playbook.name, "--owner", "ada", "--collection", collection.name,
        "--project", project.name, "--max-cost", "0.001", "--artifacts", "--analysis", "agentic", "--user", "ada",
    )  # fmt: skip
    session = AgentSession.objects.get()
    assert out == f"Run {session.public_id}: queued, $0.00.\n"
    assert (session.owner, session.project, session.max_cost_usd) == (owner, project, Decimal("0.001"))
    assert session.params["collection"] == str(collection.public_id)
    assert (session.params["emit_artifacts"], session.params["analysis_mode"]) == (True, "agentic")
    assert AuditEvent.objects.get(kind="autonomous_trigger.run_now").actor == f"user:{owner.pk}"


def test_run_now_runs_a_skill_over_a_document(owner, capsys):
    skill, document = make_skill(), make_document(owner)
    out = run(
        capsys, "run_now", "--skill", skill.name, "--owner", "ada", "--document", str(document.public_id), "--json"
    )
    session = AgentSession.objects.get()
    assert json.loads(out) == {
        "session": str(session.public_id),
        "status": "queued",
        "terminal_reason": None,
        "result": "",
        "result_reason": "",
        "spent_usd": "0.000000",
        "charged_usd": "0.000000",
        "cost_usd": "0.000000",
        "actual_usd": "0.000000",
        "max_cost_usd": "5.000000",
        "findings": [],
    }
    assert session.params == {"skill": skill.name, "document": str(document.public_id)}
    assert AuditEvent.objects.get(kind="autonomous_trigger.run_now").actor == "command"


def test_run_now_accepts_a_trigger_by_name_or_id(owner, capsys):
    trigger = make_trigger(owner=owner, name="Nightly", query="late fees", skill=make_skill())
    make_trigger(name="Nightly")
    for named in ("Nightly", str(trigger.public_id)):
        run(capsys, "run_now", "--trigger", named, "--owner", "ada")
    assert trigger.sessions.count() == 2


def test_run_now_accepts_a_playbook_alone(owner, capsys):
    playbook = make_playbook(owner)
    run(capsys, "run_now", "--playbook", playbook.name, "--owner", "ada")
    assert AgentSession.objects.get().params == {"playbook": str(playbook.public_id)}


def test_run_now_can_ask_for_a_review_and_search(owner, capsys):
    run(capsys, "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "late fees", "--review")
    params = AgentSession.objects.get().params
    assert (params["query"], params["review_flagged"]) == ("late fees", True)


def test_run_now_waits_for_the_end(owner, capsys, monkeypatch):
    done = {"run_result": "ok", "result_reason": "Everything was checked."}
    ends_as(monkeypatch, status=Status.COMPLETED, terminal_reason="completed", **done)
    out = run(capsys, "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30")
    assert out.endswith("completed (completed), $0.00.\nResult: ok. Everything was checked.\n")


@pytest.mark.parametrize(
    ("status", "result", "code", "says"),
    [
        ("completed", "partial", 3, "The run did not check everything: Not checked: lease.txt"),
        ("completed", "failed", 1, "The run failed: Not checked: lease.txt"),
        ("halted", "partial", 3, r"did not complete: halted \(timed_out\)"),
        ("halted", "failed", 1, r"did not complete: halted \(timed_out\)"),
    ],
)
def test_exit_code_goes_by_the_result(owner, capsys, monkeypatch, status, result, code, says):
    reason = "completed" if status == "completed" else "timed_out"
    why = {"run_result": result, "result_reason": "Not checked: lease.txt"}
    ends_as(monkeypatch, status=status, terminal_reason=reason, **why)
    with pytest.raises(CommandError, match=says) as caught:
        call_command(
            "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30", "--json"
        )
    assert caught.value.returncode == code
    facts = json.loads(capsys.readouterr().out)
    assert (facts["result"], facts["result_reason"]) == (result, "Not checked: lease.txt")


def test_run_now_prints_each_section_while_it_waits(owner, capsys, monkeypatch):
    read = iter([0, 6, 6, 22])

    def work(_seconds):
        number = next(read, None)
        if number is None:
            AgentSession.objects.update(
                status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW, run_result="ok"
            )
        else:
            reading = {"room": 60_000, "sections": 23, "read": number, "estimate_usd": "0.120000"}
            AgentSession.objects.update(current_phase="analysis", metadata={"reading": reading})

    monkeypatch.setattr(base.time, "sleep", work)
    out = run(capsys, "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30")
    assert out.splitlines()[:3] == [f"Section {number} of 23, about $0.12 for all." for number in (1, 7, 23)]
    assert out.splitlines()[-1] == "Result: ok."


def test_run_now_estimates_without_starting_anything(owner, capsys):
    collection, playbook = make_collection(owner), make_playbook(owner)
    for chars in (100_000, 30_000):
        attach(collection, make_document(owner, text="word " * (chars // 5)))
    asked = ["run_now", "--playbook", playbook.name, "--owner", "ada", "--collection", collection.name, "--estimate"]
    assert (
        run(capsys, *asked)
        == "3 sections of up to 60,000 characters, about $0.20; a cap of $0.44 is enough. Nothing was started.\n"
    )
    facts = {"sections": 3, "section_chars": 60_000, "estimate_usd": "0.20", "cap_usd": "0.44"}
    assert json.loads(run(capsys, *asked, "--json")) == facts
    document = str(make_document(owner, text="short").public_id)
    by_document = ["run_now", "--playbook", playbook.name, "--owner", "ada", "--document", document, "--estimate"]
    assert run(capsys, *by_document).startswith("1 section of up to ")
    trigger = make_trigger(owner=owner, name="Nightly", playbook=playbook, collection=collection)
    by_trigger = ["run_now", "--trigger", trigger.name, "--owner", "ada", "--estimate"]
    assert run(capsys, *by_trigger).startswith("3 sections")
    assert not AgentSession.objects.exists()
    assert not AuditEvent.objects.exists()


def test_an_estimate_goes_by_the_length_of_the_documents_and_the_price(owner, capsys, settings):
    settings.LQOPS_MODEL_ROLES = {"main": ["priced"]}
    playbook, document = make_playbook(owner), make_document(owner, text="word " * 150_000)
    asked = ["run_now", "--playbook", playbook.name, "--owner", "ada", "--document", str(document.public_id)]
    with pytest.raises(CommandError, match="Model priced has no price"):
        run(capsys, *asked, "--estimate")
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "priced": {"input_usd": "4", "output_usd": "0"}}
    found = json.loads(run(capsys, *asked, "--estimate", "--json"))
    assert 1 <= Decimal(found["estimate_usd"]) <= Decimal("1.1")  # 750,000 characters, about 250,000 tokens


@pytest.mark.parametrize("more", [["--query", "late fees"], ["--goal", "Compare them."], []])
def test_estimate_is_of_documents_that_are_read_as_a_whole(owner, more):
    with pytest.raises(CommandError, match="An estimate needs a document or a collection"):
        call_command("run_now", "--skill", make_skill().name, "--owner", "ada", "--estimate", *more)


def test_estimate_says_when_nothing_fits_into_a_question(owner, settings):
    settings.LQOPS_MODELS = {"offline": {"context_window": 1_000}}
    document = str(make_document(owner, text="text").public_id)
    with pytest.raises(CommandError, match=r"Nothing would be read: .* leave no room"):
        playbook = make_playbook(owner).name
        call_command("run_now", "--playbook", playbook, "--owner", "ada", "--document", document, "--estimate")


def test_run_now_prints_the_findings(owner, capsys, monkeypatch):
    def work(_seconds):
        AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
        AgentSession.objects.get().findings.create(title="Late fees", content="Two per cent.")

    monkeypatch.setattr(base.time, "sleep", work)
    out = run(capsys, "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30")
    assert out.endswith("\ninfo: Late fees\nTwo per cent.\n")


def test_run_now_names_the_document_of_each_finding_and_quotes_it(owner, capsys, monkeypatch):
    document = make_document(owner, name="lease.txt")

    def work(_seconds):
        AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
        for quote, check in (("A fee of\n2 %" + " and" * 100, "verified"), ("Never said", "unverified")):
            location = "page 7" if check == "verified" else ""
            about = {"document": document, "quote": quote, "quote_check": check, "location": location}
            AgentSession.objects.latest("pk").findings.create(title=f"Is {check}", content="See there.", **about)

    monkeypatch.setattr(base.time, "sleep", work)
    asked = ["run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30"]
    output = run(capsys, *asked)
    assert (
        "\ninfo: Is verified (lease.txt, page 7)\nSee there.\n"
        "Quote verified, cut here; it has 412 characters: “A fee" in output
    )
    assert "info: Is unverified (lease.txt)\nSee there.\nQuote not found in the document: “Never said”\n" in output
    assert max(map(len, output.splitlines())) < 260

    first, second = json.loads(run(capsys, *asked, "--json"))["findings"]
    assert (first["document"], first["document_id"]) == ("lease.txt", str(document.public_id))
    assert first["quote"] == "A fee of\n2 %" + " and" * 100
    assert (first["quote_check"], second["quote_check"]) == ("verified", "unverified")
    assert (first["location"], second["location"]) == ("page 7", None)


def test_run_now_reports_a_waiting_run(owner, monkeypatch):
    def work(_seconds):
        AgentSession.objects.update(status=Status.WAITING, waiting_on=WaitingOn.INPUT)
        session = AgentSession.objects.get()
        if not session.questions.exists():
            make_question(session)

    monkeypatch.setattr(base.time, "sleep", work)
    with pytest.raises(CommandError, match="The run did not complete: it is waiting for an answer"):
        call_command("run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "0.1")


def test_run_now_fails_when_the_run_does_not_complete(owner, capsys, monkeypatch):
    ends_as(monkeypatch, status=Status.HALTED, terminal_reason="cost_cap_reached")
    with pytest.raises(CommandError, match=r"halted \(cost_cap_reached\)"):
        call_command(
            "run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "30", "--json"
        )
    assert json.loads(capsys.readouterr().out)["terminal_reason"] == "cost_cap_reached"


def test_run_now_stops_waiting_after_the_limit(owner):
    with pytest.raises(CommandError, match="did not complete: queued"):
        call_command("run_now", "--skill", make_skill().name, "--owner", "ada", "--query", "q", "--wait", "0")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--playbook", "absent"], "ada has no playbook 'absent'"),
        (["--skill", "absent"], "no skill 'absent'"),
        (["--trigger", "absent"], "ada has no trigger 'absent'"),
        (["--trigger", "Twice"], "Several triggers match"),
        (["--skill", "s", "--collection", "absent"], "ada has no collection 'absent'"),
        (["--skill", "s", "--document", "absent"], "no document 'absent'"),
        (["--skill", "s", "--document", "4554cdd9-0000-4000-8000-000000000000"], "no document"),
        (["--skill", "s", "--max-cost", "much"], "not an amount"),
        (["--skill", "s", "--query", "q", "--max-cost", "-1"], "from 0 to 9223372036854"),
        (["--skill", "s", "--query", "q", "--max-cost", "NaN"], "from 0 to 9223372036854"),
        (["--skill", "s", "--query", "q", "--max-cost", "1e30"], "from 0 to 9223372036854"),
        (["--skill", "s", "--playbook", "p"], "not allowed with"),
        (
            ["--skill", "s", "--document", "d", "--collection", "c"],
            "not allowed with argument --document",
        ),
        ([], "exactly one playbook or skill, or a goal"),
    ],
)
def test_run_now_reports_invalid_arguments(owner, arguments, says):
    make_skill(name="s")
    make_trigger(owner=owner, name="Twice")
    make_trigger(owner=owner, name="Twice")
    with pytest.raises(CommandError, match=says):
        call_command("run_now", *arguments, "--owner", "ada")
    assert not AgentSession.objects.exists()


def test_run_now_needs_an_opted_in_user(owner):
    make_skill(name="s")
    make_user(username="bob", opted_in=False)
    for name, says in (("nobody", "no active user 'nobody'"), ("bob", "opted in")):
        with pytest.raises(CommandError, match=says):
            call_command("run_now", "--skill", "s", "--query", "q", "--owner", name)


def test_triggers_lists_active_triggers(owner, capsys):
    due = make_trigger(
        owner=owner, kind=TriggerKind.SCHEDULE, name="Nightly", cron="0 6 * * *", zone="Europe/Paris", next_run_at=NOW
    )
    make_session(trigger=due, cost_total_usd=Decimal("0.25"), cost_actual_usd=Decimal("0.2"))
    make_trigger(owner=owner, name="Stormy", paused_at=NOW, pause_reason="storm", next_run_at=NOW)
    make_trigger(owner=owner, name="Off", enabled=False, next_run_at=NOW)
    make_trigger(owner=owner, name="Gone", deleted_at=NOW)
    make_trigger(name="Other")

    found = json.loads(run(capsys, "triggers", "--json"))["triggers"]
    assert [row["name"] for row in found] == ["Nightly", "Stormy", "Off", "Other"]
    assert found[0] == {
        "id": str(due.public_id),
        "kind": "schedule",
        "name": "Nightly",
        "owner": "ada",
        "enabled": True,
        "paused": None,
        "next_run_at": NOW.isoformat(),
        "zone": "Europe/Paris",
        "sessions": 1,
        "spent_usd": "0.250000",
        "charged_usd": "0.250000",
        "actual_usd": "0.200000",
    }
    lines = run(capsys, "triggers", "--owner", "ada").splitlines()
    assert len(lines) == 3
    assert "Nightly  ada  on  next 2026-03-14" in lines[0]
    assert "paused: storm  0 runs" in lines[1]
    assert "Off  ada  off  0 runs" in lines[2]
    assert [row["next_run_at"] for row in found[1:3]] == [None, None]


def test_triggers_says_when_there_are_none(capsys):
    assert run(capsys, "triggers") == "There are no triggers.\n"
