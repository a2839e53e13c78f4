"""The thirteen fast paths: ways to say each that hit, near misses that go on to the model, and never an inference."""

import json

import pytest

from agents.ask.fast_paths import FAST_PATHS, scope_of
from agents.ask.naming import Kind
from agents.enums import Status
from agents.models import AgentSession, Approval
from tests.agents.ask.rows import make_chat, make_question
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail
from tests.agents.triggers.rows import halt_all
from tests.factories import make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

HITS = {
    "help": [
        "help", "Can you help me?", "What can you do?", "show me the available commands, please", "HELP!",
    ],
    "service_status": [
        "status", "Is everything ok?", "How is the system doing?", "Please show me the service status.", "are you up?",
        "list agents",
    ],
    "list_triggers": [
        "list triggers", "Which triggers are paused?", "Do I have any watches?", "Hi, could you show me my schedules?",
        "How many triggers are there?",
    ],
    "list_sessions": [
        "my sessions", "What's running?", "Which sessions failed?", "list the latest runs",
        "are there any active sessions?",
    ],
    "show_receipt": [
        "show receipt {s}", "Receipt for session {s}, please", "give me the latest receipt",
        "can I see the receipt of {s}?",
    ],
    "halt_session": [
        "halt session {s}", "Please stop {s} now!", "Could you kill the run {s}?", "Hi, cancel session #{s}. Thanks!",
        "HALT {s}",
    ],
    "switch_agent": [
        "pause agent Clerk", "Please switch Clerk off", "resume the agent clerk", 'turn on "Clerk"',
        "put Clerk on hold", "Stop the clerk",
    ],
    "list_approvals": [
        "who is waiting on me?", "anything I need to sign off?",
        "pending approvals", "What needs my approval?", "Is there anything to approve?", "What's waiting for me?",
        "show open approvals", "list questions", "open questions", "does anybody ask me something?",
        "do my agents ask me anything?", "are there any unanswered questions?", "who asks me something?",
    ],
    "decide_approval": [
        "approve {a} {d}", "Please reject {a} {d}", "deny approval {a} with digest {d}", "approve {a}", "approve all",
    ],
    "list_precedents": [
        "list precedents", "What recurring patterns are there?", "Show me my precedents please", "precedents",
    ],
    "cost_summary": [
        "cost summary", "How much have I spent today?", "show my costs", "What did yesterday cost?",
        "cost per agent", "What's our spending this month?",
    ],
    "run_now": [
        "run the weekly scan", "Run playbook Lease on collection Leases", "Could you start Weekly scan now, please?",
        "check Leases against Lease", "run nda-review over acme.txt",
    ],
    "create_schedule": [
        "every 6 hours run playbook Lease on Leases", "Run Lease on Leases daily",
        "schedule Lease over Leases every 30 minutes",
        "check Leases with Lease each Monday at 9:30",
    ],
}  # fmt: skip
MISSES = {
    "help": ["help me write a letter", "what does help desk mean?", "help Jane with her lease"],
    "service_status": ["what is the status of session {s}?", "status of the Acme lease", "why is the system down?"],
    "list_triggers": ["what are triggers?", "what do the triggers do?", "show me how triggers work"],
    "list_sessions": ["why did my sessions fail?", "what is a session?", "don't list sessions"],
    "show_receipt": ["explain what a receipt is", "why is receipt {s} so long?", "show me what a receipt is"],
    "halt_session": [
        "why did you halt session {s}?", "don't halt anything", "halt session {s}?", "should I halt session {s}",
        "can I halt session {s}", '"halt session {s}"',
        "what does `halt session {s}` do?", "never halt {s}", "tomorrow halt session {s}", "he said: halt session {s}",
    ],
    "switch_agent": [
        "should I pause Clerk?", "why is Clerk paused?", "don't pause Clerk", "what happens when I pause agent Clerk",
    ],
    "list_approvals": ["why do I need approvals?", "what should I approve?", "explain approvals",
        "answer these questions", "ask me something",
        "what questions should I ask the landlord?", "list questions for the landlord", "who asked for the lease?",
    ],
    "decide_approval": [
        "should I approve 12?", "don't approve {a} {d}", "approve {a} {d}?", "what happens if I approve {a} {d}",
        'say "approve {a} {d}"',
    ],
    "list_precedents": ["what is a precedent?", "is there a precedent for this clause?", "dismiss the precedent"],
    "cost_summary": ["why are the costs so high?", "how much would it cost to run the scan?", "reduce my costs"],
    "run_now": [
        "what would happen if I run the weekly scan", "don't run the weekly scan", "run the weekly scan?",
        "who can run playbook Lease on Leases",
    ],
    "create_schedule": [
        "why is Lease on Leases run every 6 hours?", "don't run Lease on Leases every 6 hours",
        "what if we run Lease on Leases every hour?",
    ],
}  # fmt: skip


@pytest.fixture
def scene():
    return make_scene()


def pairs(table):
    return [(path, text) for path, texts in table.items() for text in texts]


def test_there_are_thirteen_and_each_has_its_tests():
    names = [path.name for path in FAST_PATHS]
    assert len(names) == len(set(names)) == 13
    assert set(names) == HITS.keys() == MISSES.keys()
    assert all(len(texts) >= 3 for table in (HITS, MISSES) for texts in table.values())


@pytest.mark.parametrize(("path", "text"), pairs(HITS))
def test_paraphrase_is_answered_without_a_model(scene, path, text):
    answer = asked(scene, text)

    assert (answer.path, answer.strategy) == (path, None)
    assert answer.text
    assert json.dumps(dict(answer.data))
    assert nothing_was_inferred()


@pytest.mark.parametrize(("path", "text"), pairs(MISSES))
def test_near_miss_is_left_to_the_model_and_changes_nothing(scene, path, text):
    before = last_row()
    answer = asked(scene, text)

    assert answer.path == ""
    assert answer.strategy is not None
    assert {kind for kind, *_ in trail(before)} <= {"autonomous_trigger.run_now"}  # that it was asked for
    scene.session.refresh_from_db()
    scene.agent.refresh_from_db()
    assert (scene.session.halt_state, scene.agent.enabled) == ("running", True)
    assert is_pending(scene.approval)


@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
def test_example_of_the_help_is_itself_understood(scene, path):
    examples = path.example.replace("1f2e3d4c", "{s}" if path.name != "decide_approval" else "{a}").split("; ")
    assert {asked(scene, example).path for example in examples} == {path.name}


def test_lists_hold_the_persons_own_rows_only(scene):
    other = make_scene()
    texts = ["list sessions", "list triggers", "list precedents", "show the receipts", "halt session", "pause agent"]
    for text in texts:
        said = f"{asked(scene, text)}"
        for row in (other.session, other.trigger, other.agent, other.approval.session):
            assert str(row.public_id) not in said, text


def test_words_choose_which_sessions_are_listed(scene):
    assert asked(scene, "list sessions").data["count"] == 2
    assert asked(scene, "which sessions are running?").data["count"] == 2
    assert asked(scene, "show me the failed runs").text == "You have no such sessions. You have: 1 running, 1 waiting."
    [shown] = asked(scene, "waiting sessions").data["sessions"]
    assert (shown["status"], shown["id"]) == ("waiting", str(scene.approval.session.public_id))


def test_number_says_how_many_sessions_are_listed(scene):
    answer = asked(scene, "show the last 1 sessions")
    assert (answer.data["count"], len(answer.data["sessions"])) == (2, 1)
    assert asked(scene, "list sessions 1f2e3d4c").path == ""
    assert asked(scene, "list sessions 0").path == ""


def test_words_choose_which_triggers_are_listed(scene):
    assert asked(scene, "which triggers are enabled?").data["count"] == 1
    assert asked(scene, "disabled triggers").data["count"] == 0
    assert asked(scene, "paused triggers").data["count"] == 0


def test_receipt_is_that_of_the_record(scene):
    answer = asked(scene, "show receipt {s}")
    assert answer.data["receipt"]["session_id"] == scene.s
    assert f"Session {scene.s}" in answer.text


def test_session_that_has_not_begun_has_no_receipt(scene):
    answer = asked(scene, f"show receipt {scene.approval.session.public_id}")
    assert "no receipt yet" in answer.text


def test_costs_are_the_persons_own(scene):
    AgentSession.objects.filter(pk=scene.session.pk).update(cost_total_usd=2, created_at="2026-03-01T12:00:00Z")
    spent = asked(scene, "cost summary").data["spent"]
    assert (spent["today"]["charged_usd"], spent["this_month"]["charged_usd"]) == ("0.000000", "2.000000")
    assert asked(make_scene(), "cost summary").data["spent"]["this_month"]["charged_usd"] == "0.000000"


def test_costs_show_the_larger_of_both_ledgers(scene):
    AgentSession.objects.filter(pk=scene.session.pk).update(
        cost_total_usd="0.000161", cost_actual_usd="0.001357", created_at="2026-03-13T12:00:00Z", agent=scene.agent
    )
    text = asked(scene, "what did yesterday cost?").text
    assert "yesterday: $0.001357, 1 session" in text.splitlines()[2]
    assert "today: $0.00, 1 session" in text
    [mine, other] = asked(scene, "cost per agent").data["agents"]
    assert (mine["name"], mine["actual_usd"], other["name"]) == ("Clerk", "0.001357", "without an agent")
    assert "$0.001357" in asked(scene, "list sessions").text


def test_agents_are_listed_with_where_they_stand(scene):
    make_session(owner=scene.owner, agent=scene.agent, mode="loop", status=Status.SLEEPING)
    make_agent(owner=scene.owner, name="Off", enabled=False)
    make_agent(name="Of somebody else")
    answer = asked(scene, "which agents do I have?")
    assert answer.text == "2 agents:\n- Clerk: on, works by itself (sleeping)\n- Off: off"


def test_status_says_what_is_to_be_mended(scene):
    answer = asked(scene, "is everything ok?")
    assert "ticker is not running" in answer.text
    assert answer.data["sessions"] == {Status.RUNNING: 1, Status.WAITING: 1}


def test_what_waits_holds_calls_and_questions_with_how_to_deal_with_them(scene):
    mine = make_question(make_session(owner=scene.owner), text="Which of the two leases holds?")
    others = make_question(text="A secret of somebody else")
    answer = asked(scene, "what waits for me?")
    head, *rows = answer.text.splitlines()
    assert head.startswith("1 call waiting for a decision: `approve <id>`")
    assert "2 questions waiting for an answer:" in head
    assert "manage.py answer" in head
    assert f"- {str(mine.public_id)[:8]} asks {scene.owner}: Which of the two leases holds?" in rows
    assert f"- {str(others.public_id)[:8]} asks {others.session.owner}" in rows, "it is counted, and not read"
    assert (answer.data["count"], answer.data["questions_count"]) == (1, 2)
    assert asked(scene, "list questions").text == answer.text


def test_who_does_not_decide_hears_of_their_own_questions_only(scene):
    asker = make_question().session.owner
    assert asked(scene, "open questions", by=asker).data["questions_count"] == 1
    assert asked(scene, "open questions", by=make_user()).text == "Nothing waits for a decision."


def test_any_questions_is_said_to_the_agent_in_a_chat(scene):
    assert asked(scene, "any questions?", chat=make_chat(scene.owner).public_id).kind == Kind.SESSION


def test_status_does_not_say_that_nothing_needs_attention_while_something_waits(scene, monkeypatch):
    monkeypatch.setattr("agents.sessions.control_room._red", lambda facts, now: ())
    assert asked(scene, "status").text.endswith("Calls that wait for a decision: 1. Ask: what waits for me?")
    Approval.objects.all().delete()
    assert asked(scene, "status").text.endswith("Nothing needs attention.")
    make_question(scene.session)
    answer = asked(scene, "status")
    assert "Questions of agents that wait for an answer: 1" in answer.text
    assert "Nothing needs attention" not in answer.text
    assert (answer.data["approvals_pending"], answer.data["questions_pending"]) == (0, 1)


def test_status_says_once_who_has_halted_and_why(scene):
    halt_all(reason="an incident", requested_by=make_user(username="olga"))
    answer = asked(scene, "is everything ok?")
    assert answer.text.startswith(
        "All work is halted by olga since 2026-03-14 09:26 UTC: an incident. Release it first"
    )
    assert answer.text.count("All work is halted") == 1
    assert (answer.data["halted"], answer.data["red"][0]) == (True, "All work is halted.")


def test_run_now_is_a_session_and_a_schedule_is_a_draft(scene):
    assert asked(scene, "run the weekly scan").kind == Kind.SESSION
    assert asked(scene, "every hour run Lease on Leases").kind == Kind.DRAFT


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("list sessions", "read"),
        ("approve {a} {d}", "decide"),
        ("reject {a}", "decide"),
        ("halt session {s}", "write"),
        ("run the weekly scan", "write"),
        ("tell me a story", "write"),
        ("x" * 5_000, "write"),
    ],
)
def test_each_request_needs_the_scope_of_what_it_does(scene, text, scope):
    assert scope_of(text.format(s=scene.s, a=scene.a, d=scene.d)) == scope
