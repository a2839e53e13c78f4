"""Whole scenarios: a waking alert, a stuck loop, approvals and questions, chats, opting out."""

from datetime import timedelta

import pytest

from agents.accounts import profile_set
from agents.ask.chats import chat, chat_answer, chat_send
from agents.conf import clock
from agents.enums import EventKind, Outcome, Status, TerminalReason
from agents.models import AgentSession, Approval, InferenceLog, Message, ToolCall, Trigger
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import session_halt
from agents.text.blocks import parse_blocks
from agents.triggers.schedules import schedules_fire
from audit.models import AuditEvent, SkillAudit
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, prompt, says, sleeps
from tests.factories import make_trigger

pytestmark = pytest.mark.django_db

TRADER = """
    autonomy:
      enabled: true
      max_consecutive_turns: 50
      token_budget_per_hour: 100000
      max_actions_per_minute: 10
      idle_timeout: 600
      active_hours: {start: "08:00", end: "23:00"}
    hot_state:
      fields:
        positions: {type: object, ttl: 30, refresh_tool: look}
        cash: {type: number, ttl: 30}
        signals_log: {type: array, max_items: 20}
"""


def test_alert_wakes_the_loop_is_shown_first_and_cleared(agent, drive, time):
    loop = drive(agent(TRADER))
    loop.see("cash", 100)
    with script(GO_ON, sleeps(10, wake=["anomaly"]), sleeps(10), sleeps(10)) as model:
        loop.task()
        loop.task()
        time.shift(2)
        loop.alert("anomaly", "scored 0.9")
        assert loop.row.status == Status.QUEUED, "it was woken eight seconds early"
        loop.task()
        loop.sleep_out()
        loop.task()
    third = parse_blocks(prompt(model.requests[2]))
    assert [block.kind for block in third if block.kind != "tool_output"] == ["alerts", "hot_state"]
    assert "scored 0.9" not in prompt(model.requests[3])
    happened = [event.kind.removeprefix("autonomy:") for event in loop.events()]
    turn = ["turn_started", "turn_completed"]
    assert happened == [*turn, *turn, "notification_pushed", *turn, *turn]


def test_repeated_identical_calls_fail_the_loop(agent, drive):
    loop = drive(agent())
    with script(says(("look", {"place": "a"}), ("yield", {"mode": "continue"}))):
        row = loop.for_(hours=1)
    assert (row.status, row.terminal_reason) == (Status.FAILED, TerminalReason.STUCK_LOOP)
    assert ToolCall.objects.filter(name="look").count() == 3
    assert row.result["terminal_reason"] == "stuck_loop"
    last = loop.turns()[-1]
    assert (last.state, last.reason, last.tokens) == ("failed", "stuck_loop", 20)
    assert sum(turn.cost_usd for turn in loop.turns()) == row.cost_total_usd


def test_same_call_on_each_wake_is_allowed(agent, drive):
    loop = drive(agent())
    with script(says(("look", {"place": "a"}), ("yield", {"mode": "sleep", "sleep": 60}))):
        loop.for_(seconds=180)
    assert loop.row.status == Status.SLEEPING
    assert ToolCall.objects.filter(name="look").count() == 4


def test_call_that_needs_approval_waits_and_runs_once(agent, drive, approver, time):
    loop = drive(agent())
    with script(says(("act", {"what": "it"})), Step("risky, perhaps"), sleeps(60)) as model:
        assert loop.task() == Status.WAITING
        assert loop.row.state == "waiting_for_approval"
        [ticket] = Approval.objects.all()
        assert (ticket.simulation, ticket.risk_level) == ("[ANTICIPATORY SIMULATION]: risky, perhaps", "low")
        asked = InferenceLog.objects.count()
        time.shift(3_600)
        loop.alert("anomaly")
        assert (loop.row.status, InferenceLog.objects.count()) == (Status.WAITING, asked)
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=clock())
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 3
    [done] = ToolCall.objects.filter(name="act")
    assert done.outcome == Outcome.SUCCESS
    assert SkillAudit.objects.get(skill_name="act").risk_level == "low"
    assert list(loop.session.alerts.pending().values_list("name", flat=True)) == ["anomaly"], "its turn did not show it"


def test_denied_call_is_reported_and_the_loop_goes_on(agent, drive, approver):
    loop = drive(agent())
    with script(says(("act", {"what": "it"})), Step("hm"), sleeps(60)) as model:
        loop.task()
        [ticket] = Approval.objects.all()
        approval_reject(ticket.pk, digest=ticket.digest, by=approver, note="not today", now=clock())
        assert loop.task() == Status.SLEEPING
    assert "not today" in prompt(model.requests[-1])


def test_question_to_a_person_makes_the_loop_wait(agent, drive):
    loop = drive(agent())
    loop.session.agent.definition = "autonomy: {enabled: true}\nskills: [ask_person]"
    loop.session.agent.save()
    with script(says(("ask_person", {"question": "Which?"}))):
        assert loop.task() == Status.WAITING
    assert loop.row.waiting_on == "input"


def say(loop, text="How are you?"):
    return chat_send(owner=loop.session.owner, by=None, text=text, agent=loop.session.agent, now=clock())


def test_chat_with_a_sleeping_loop_is_answered_and_then_wakes_it(agent, drive):
    loop = drive(agent())
    with script(sleeps(600), Step("Fine."), sleeps(600)) as model:
        loop.task()
        said = say(loop)
        assert loop.row.status == Status.SLEEPING
        run_session(said.pk, chat, owner="worker")
        said.refresh_from_db()
        assert chat_answer(said) == "Fine."
        assert loop.row.status == Status.QUEUED
        loop.task()
    [block] = [block for block in parse_blocks(prompt(model.requests[-1])) if block.kind == "alerts"]
    assert block.text == f'! chat_message (chat): "{said.public_id}"'
    assert not Message.objects.filter(session=said, content__contains="Turn ").exists()
    assert not Message.objects.filter(session=loop.session, content__contains="How are you?").exists()


def test_chat_during_a_turn_runs_beside_it(agent, drive):
    loop = drive(agent())
    with script(sleeps(600), Step("Busy.")) as model:

        def speak():
            run_session(say(loop).pk, chat, owner="another")

        model._steps = (sleeps(600, before_reply=speak), Step("Busy."), sleeps(600))
        assert loop.task() == Status.QUEUED, "the message came before it lay down, so it does not"
        loop.task()
    said = AgentSession.objects.get(mode="chat")
    assert (said.status, loop.row.status) == (Status.COMPLETED, Status.SLEEPING)
    assert [turn.state for turn in loop.turns()] == ["done", "done"]


def test_chat_wakes_nothing_where_the_agent_says_so(agent, drive):
    loop = drive(agent("autonomy: {enabled: true, wake_on_chat: false}"))
    with script(sleeps(600), Step("Fine.")):
        loop.task()
        run_session(say(loop).pk, chat, owner="worker")
    assert loop.row.status == Status.SLEEPING
    assert not loop.session.alerts.exists()


def test_chat_with_a_loop_differs_by_the_state_of_the_loop_alone(agent, drive):
    told = []
    for text in ("autonomy: {enabled: true}", ""):
        owner = agent(text, name=f"Clerk{bool(text)}")
        if text:
            drive(owner)
        said = chat_send(owner=owner.owner, by=None, text="Hi", agent=owner, now=clock())
        with script(says(("echo", {"text": "x"})), Step("Hello.")):
            run_session(said.pk, chat, owner="worker")
        rows = Message.objects.filter(session=said).exclude(role="system").exclude(reason="loop_state").order_by("seq")
        told.append([(row.role, row.content, row.reason) for row in rows])
    assert told[0] == told[1]


def test_halt_ends_a_sleeping_loop_now_and_a_running_one_at_its_next_call(agent, drive):
    sleeping, running = drive(agent()), drive(agent())
    with script(sleeps(3_600)):
        sleeping.task()
    session_halt(sleeping.session.pk, by=None, reason="enough", now=clock())
    assert (sleeping.row.status, sleeping.row.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)

    def halt():
        session_halt(running.session.pk, by=None, reason="enough", now=clock())

    with script(says(("look", {"place": "a"}), before_reply=halt)):
        running.task()
    assert (running.row.status, running.row.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert not ToolCall.objects.filter(session=running.session, name="look").exists()


def test_opting_out_ends_loops_and_fires_nothing(agent, drive):
    loop = drive(agent())
    owner = loop.session.owner
    make_trigger(owner=owner, kind="schedule", cron="* * * * *", next_run_at=clock())
    with script(sleeps(600)):
        loop.task()
    profile_set(user=owner, opted_in=False, by=owner, now=clock())
    assert (loop.row.status, loop.row.terminal_reason) == (Status.HALTED, TerminalReason.OPTED_OUT)
    assert schedules_fire(now=clock() + timedelta(minutes=1)) == 0
    assert Trigger.objects.get().sessions.count() == 0
    assert loop.row.result["terminal_reason"] == "opted_out"


def test_every_act_of_a_turn_passes_the_guard(agent, drive):
    loop = drive(agent())
    with script(says(("look", {"place": "a"})), says(("echo", {"text": "b"})), Step("Done.")):
        loop.task()
    started = AuditEvent.objects.filter(chain=loop.session.chain, details__outcome="started")
    assert started.count() == 3 + 2
    assert loop.events(EventKind.TURN_COMPLETED)[0].data["yield"] == "continue"
