"""Lookups in words: status, lists, receipts, and costs by days and by agent."""

import pytest

from agents.ask.console import found_rows
from agents.ask.naming import Kind
from agents.enums import RunResult, Status
from agents.models import AgentSession, Approval
from tests.agents.ask.rows import make_chat, make_question
from tests.agents.ask.scene import asked, make_scene, nothing_was_inferred
from tests.agents.triggers.rows import halt_all
from tests.factories import NOW, make_agent, make_session, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def test_lists_contain_own_rows_only(scene):
    other = make_scene()
    texts = ["list sessions", "list triggers", "list precedents", "receipt", "cancel", "pause"]
    for text in texts:
        said = f"{asked(scene, text)}"
        for row in (other.session, other.trigger, other.agent, other.approval.session):
            assert str(row.public_id) not in said, text


def test_status_filters_the_list_of_runs(scene):
    assert asked(scene, "list sessions").data["count"] == 2
    assert asked(scene, "which sessions are running?").data["count"] == 2
    assert asked(scene, "runs failed").text == "You have no such runs."
    [shown] = asked(scene, "runs waiting").data["sessions"]
    assert (shown["status"], shown["id"]) == ("waiting", str(scene.approval.session.public_id))


def test_runs_are_listed_by_their_result(scene):
    over = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW, "owner": scene.owner}
    make_session(**over, run_result="failed", result_reason="Nothing to check against.", params={"query": "alpha"})
    make_session(**over, run_result="partial", result_reason="Not checked: b.txt", params={"query": "bravo"})
    make_session(**over, run_result="findings", params={"query": "charlie"})
    [failed] = asked(scene, "runs failed").data["sessions"]
    assert (failed["status"], failed["result"]) == ("completed", "failed")
    [partial] = asked(scene, "runs partial").data["sessions"]
    assert partial["result_reason"] == "Not checked: b.txt"
    text = asked(scene, "list runs").text
    for words in (" failed: “alpha”, $0.00. Nothing to check against.", " findings: “charlie”, $0.00"):
        assert words in text, words


def test_what_happened_last_night_is_from_six_to_six(scene):
    AgentSession.objects.filter(owner=scene.owner).update(created_at="2026-03-01T12:00:00Z")
    row = make_session(owner=scene.owner, params={"query": "alpha"})
    for hour, count in (("13T17:59", 0), ("13T18:00", 1), ("14T05:59", 1), ("14T06:00", 0)):
        AgentSession.objects.filter(pk=row.pk).update(created_at=f"2026-03-{hour}:00Z")
        assert asked(scene, "what happened last night?").data.get("count", 0) == count, hour


def test_state_filters_the_list_of_triggers(scene):
    assert asked(scene, "triggers enabled").data["count"] == 1
    assert asked(scene, "triggers disabled").data["count"] == 0
    assert asked(scene, "triggers paused").data["count"] == 0


def test_receipt_comes_from_the_audit_log(scene):
    answer = asked(scene, "receipt {s}")
    assert answer.data["receipt"]["session_id"] == scene.s
    assert f"Run {scene.s}" in answer.text


def test_run_that_has_not_started_has_no_receipt(scene):
    answer = asked(scene, f"receipt {scene.approval.session.public_id}")
    assert "no receipt yet" in answer.text


def test_costs_are_those_of_own_runs(scene):
    AgentSession.objects.filter(pk=scene.session.pk).update(cost_total_usd=2, created_at="2026-03-01T12:00:00Z")
    spent = asked(scene, "costs").data["spent"]
    assert (spent["today"]["charged_usd"], spent["this_month"]["charged_usd"]) == ("0.000000", "2.000000")
    assert asked(make_scene(), "costs").data["spent"]["this_month"]["charged_usd"] == "0.000000"


def test_costs_show_both_ledgers_if_they_differ(scene):
    AgentSession.objects.filter(pk=scene.session.pk).update(
        cost_total_usd="0.000161", cost_actual_usd="0.001357", created_at="2026-03-13T12:00:00Z", agent=scene.agent
    )
    text = asked(scene, "costs yesterday").text
    assert "yesterday: $0.001357, 1 run" in text.splitlines()[2]
    assert "today: $0.00, 1 run" in text
    [mine, other] = asked(scene, "cost per agent").data["agents"]
    assert (mine["name"], mine["actual_usd"], other["name"]) == ("Clerk", "0.001357", "without an agent")
    assert "$0.001357" in asked(scene, "list sessions").text


def test_agents_are_listed_with_their_state(scene):
    make_session(owner=scene.owner, agent=scene.agent, mode="loop", status=Status.SLEEPING)
    make_agent(owner=scene.owner, name="Off", enabled=False)
    make_agent(name="Of somebody else")
    answer = asked(scene, "agents")
    assert answer.text == "2 agents:\n- Clerk: on, loop sleeping\n- Off: off"


def test_status_lists_problems(scene):
    answer = asked(scene, "is everything ok?")
    assert "ticker is not running" in answer.text
    assert answer.data["sessions"] == {Status.RUNNING: 1, Status.WAITING: 1}


def test_waiting_calls_and_questions_are_listed_with_instructions(scene):
    mine = make_question(make_session(owner=scene.owner), text="Which of the two leases holds?")
    others = make_question(text="A secret of somebody else")
    answer = asked(scene, "what waits for me?")
    head, _, questions, *rows = answer.text.splitlines()
    assert head == "1 approval: `approve <id>` shows the call in full."
    assert questions.startswith("2 questions: Answer on the page Questions")
    assert "manage.py answer" in questions
    assert f"- {str(mine.public_id)[:8]} asks {scene.owner}: Which of the two leases holds?" in rows
    assert f"- {str(others.public_id)[:8]} asks {others.session.owner}" in rows, "it is counted, and not read"
    assert (answer.data["count"], answer.data["questions_count"]) == (1, 2)
    assert asked(scene, "list questions").text == answer.text


def test_user_without_permission_sees_own_questions_only(scene):
    asker = make_question().session.owner
    assert asked(scene, "questions", by=asker).data["questions_count"] == 1
    assert asked(scene, "questions", by=make_user()).text == "Nothing is waiting for you."


def test_any_questions_in_a_chat_is_for_the_agent(scene):
    assert asked(scene, "questions", chat=make_chat(scene.owner).public_id).kind == Kind.SESSION


def test_status_counts_what_is_waiting(scene, monkeypatch):
    monkeypatch.setattr("agents.sessions.control_room._faults", lambda facts, now: ())
    assert asked(scene, "status").text.endswith("Calls waiting for approval: 1. Ask: approvals")
    Approval.objects.all().delete()
    assert asked(scene, "status").text.endswith("Nothing needs attention.")
    make_question(scene.session)
    answer = asked(scene, "status")
    assert "Questions of agents waiting for an answer: 1" in answer.text
    assert "Nothing needs attention" not in answer.text
    assert (answer.data["approvals_pending"], answer.data["questions_pending"]) == (0, 1)


def test_status_names_own_runs_that_failed(scene, monkeypatch):
    monkeypatch.setattr("agents.sessions.control_room._faults", lambda facts, now: ())
    Approval.objects.all().delete()
    failed = {"status": Status.FAILED, "terminal_reason": "worker_error", "run_result": RunResult.FAILED}
    for owner in (scene.owner, make_user()):
        make_session(owner=owner, completed_at=NOW, **failed)

    text = asked(scene, "status").text

    assert text.endswith("Your runs that failed or stopped early in the last 24 hours: 1. Ask: runs failed partial")
    assert len(asked(scene, "runs failed partial").data["sessions"]) == 1


def test_status_says_once_who_halted_all_work_and_why(scene):
    halt_all(reason="an incident", requested_by=make_user(username="olga"))
    answer = asked(scene, "is everything ok?")
    assert answer.text.startswith(
        "All work is halted by olga since 2026-03-14 09:26 UTC: an incident. Release it first"
    )
    assert answer.text.count("All work is halted") == 1
    assert (answer.data["halted"], answer.data["red"][0]) == (True, "All work is halted.")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("runs running today", 1),
        ("runs yesterday", 1),
        ("runs failed today", 0),
        ("sessions this week", 2),
        ("sessions last week", 0),
        ("runs last month", 1),
        ("runs this month", 3),
        ("list sessions", 4),
    ],
)
def test_days_filter_the_list_of_runs(text, count):
    scene = make_scene()
    began = ["2026-03-14T00:00:00Z", "2026-03-13T23:59:00Z", "2026-03-01T00:00:00Z", "2026-02-28T23:59:00Z"]
    AgentSession.objects.all().delete()
    for moment in began:
        AgentSession.objects.create(owner=scene.owner, created_at=moment, status="running")
    answer = asked(scene, text)
    assert answer.data.get("count") == count


# --- Costs ---


# Saturday, 14 March 2026: what a session of each day cost.
DAYS = {"2026-03-14": 1, "2026-03-13": 2, "2026-03-09": 4, "2026-03-08": 8, "2026-03-02": 16, "2026-03-01": 32,
        "2026-02-28": 64, "2026-02-01": 128, "2026-01-31": 256}  # fmt: skip
SPANS = [
    ("today", "today", 1), ("yesterday", "yesterday", 2), ("this week", "this week", 7), ("last week", "last week", 24),
    ("this month", "this month", 63), ("last month", "last month", 192),
]  # fmt: skip


@pytest.fixture
def spent(scene):
    for day, usd in DAYS.items():
        row = {"owner": scene.owner, "agent": scene.agent, "created_at": f"{day}T12:00:00Z"}
        make_session(cost_total_usd=usd, cost_actual_usd=usd, **row)
    return scene


@pytest.mark.parametrize(("said", "name", "usd"), SPANS)
def test_costs_cover_the_named_days(spent, said, name, usd):
    answer = asked(spent, f"costs {said}")
    assert answer.path == "cost_summary"
    assert answer.data["spent"][name.replace(" ", "_")]["charged_usd"] == f"{usd}.000000"
    assert nothing_was_inferred()


@pytest.mark.parametrize(("said", "name", "usd"), SPANS)
def test_costs_by_agent_cover_the_named_days(spent, said, name, usd):
    make_agent(owner=spent.owner, name="Idle")
    for text in ("costs per agent {}", "costs Clerk {}", "costs agent clerk {}"):
        answer = asked(spent, text.format(said))
        assert (answer.path, answer.data["days"]) == ("cost_summary", name), text
        assert answer.data["agents"][0]["name"] == "Clerk"
        assert answer.data["agents"][0]["charged_usd"] == f"{usd}.000000", text
    assert asked(spent, "costs Idle").text == "You have no such runs this month."


def test_answer_names_the_days(spent):
    assert "- last week (2 March to 8 March): $24.00, 2 runs" in asked(spent, "costs last week").text
    assert asked(spent, "costs Clerk last month").text == (
        "Your runs that started last month (1 February to 28 February), in UTC, by agent:\n- Clerk: $192.00, 2 runs"
    )
    assert asked(spent, "cost per agent", by=make_user()).text == "You have no such runs this month."


@pytest.mark.parametrize("text", ["cost of living in Berlin", "costs Clark", "costs last year"])
def test_other_questions_about_cost_are_no_command(spent, text):
    assert asked(spent, text, model=False).path == ""


def test_archived_agents_are_not_named(scene):
    agent = make_agent(owner=scene.owner, name="Old hand", archived_at=NOW, enabled=False)
    for text in ("agents", "start", "start old hand", "pause"):
        answer = asked(scene, text, model=False)
        assert agent.name not in f"{answer}", text
    assert all(row.kind != "agent" or row.name != agent.name for row in found_rows("old hand", scene.owner))


@every_row(
    ("text", "path"),
    [
        ("What did it cost today?", "cost_summary"),
        ("how much did we spend last week", "cost_summary"),
        ("Why did last night's run fail?", "list_sessions"),
        ("which runs failed yesterday", "list_sessions"),
        ("which agents are running?", "service_status"),
        ("who halted everything?", "service_status"),
    ],
)
def test_plain_questions_are_answered_without_a_model(text, path):
    scene = make_scene()
    assert asked(scene, text).path == path
    assert nothing_was_inferred()


def test_search_finds_the_manual_and_not_the_questions_themselves(scene):
    make_session(owner=scene.owner, mode="chat", params={"message": "allow a private address", "way": "console"})
    found = found_rows("How do I allow private addresses?", scene.owner)
    assert [link.kind for link in found if link.kind in {"run", "manual"}] == ["manual"] * 3
    assert "manual:sensors#addresses" in [link.ref for link in found]


def test_receipt_takes_the_reference_of_a_run(scene):
    assert asked(scene, f"receipt run:{scene.session.public_id.hex[:12]}").path == "show_receipt"
