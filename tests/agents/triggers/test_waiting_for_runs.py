"""A run that has lent money waits for what comes back, where a call that does not fit would else end it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import transaction
from django.utils.html import strip_tags

from agents.api.sessions import SessionDetailSerializer
from agents.conf import clock
from agents.engine.loop import require_budget
from agents.enums import HaltState, Mode, Phase, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import BudgetExceeded, CostCapReached, RunsAwaited
from agents.guard import guarded_tool_call
from agents.ledger.loans import ends_after_its_runs, loan_text, runs_wait_of
from agents.loop.reads import loop_why
from agents.models import Agent, AgentSession, Message, ToolCall, Turn
from agents.providers.scripted import Step
from agents.runner import record_end, run_session
from agents.sessions.ending import session_end_unheld, session_finish
from agents.sessions.halts import halt_all_work, halted_work_end, release_all_work, session_halt
from agents.sessions.leases import lease_claim, next_runs_waiter, runs_waiters_wake
from agents.sessions.lifecycle import session_lock
from agents.sessions.pauses import pauses_apply, session_pause, session_resume
from agents.tasks import ENGINES
from agents.triggers.handing_on import agent_run_within, children_attend, run_result
from agents.types import Usage, Waiting
from audit.kinds import TOOL_CALL
from audit.models import AuditEvent
from audit.receipts import build_receipt, outcome_sentence, receipt_text, spent_text
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.conftest import MODEL, script
from tests.factories import make_agent, make_price, make_session, make_user

pytestmark = pytest.mark.django_db
ASK = {"model": MODEL, "prompt": "Is it in order?", "max_tokens": 500}
DAY = timedelta(hours=24)


@pytest.fixture
def owner():
    make_price(MODEL, input_usd="10", output_usd="10")
    return make_user()


@pytest.fixture
def caller(owner):
    """A held run that has lent $0.80 of its $1.00 to a first run."""
    agent = make_agent(owner=owner, name="Caller", mode="auto")
    row = make_session(
        owner=owner, agent=agent, mode=Mode.CHAT, max_cost_usd=Decimal(1), starting_cap_usd=Decimal(1), fencing=1
    )
    AgentSession.objects.filter(pk=row.pk).update(params={"way": "goal", "message": "Do it."})
    row.refresh_from_db()
    return row


def lend(caller, usd="0.80"):
    agent = make_agent(owner=caller.owner, mode="auto")
    return agent_run_within(caller, agent, "Do it.", max_cost_usd=Decimal(usd), now=clock())


def spend(session, usd):
    AgentSession.objects.filter(pk=session.pk).update(cost_total_usd=Decimal(usd), cost_actual_usd=Decimal(usd))


def end(session, *, spent="0"):
    spend(session, spent)
    with transaction.atomic():
        session_end_unheld(session_lock(session.pk), TerminalReason.WORKER_ERROR, now=clock(), actor="system")


def ask(session, key="question"):
    with script(Step("fine")):
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK, key=key, now=clock())


def put_aside(caller):
    """Let the caller meet its limit and rest, as the runner does."""
    with pytest.raises(RunsAwaited) as awaited:
        ask(caller)
    record_end(caller, Waiting(WaitingOn.RUNS, runs=awaited.value.runs))
    caller.refresh_from_db()
    return awaited.value.runs


def claimed(caller):
    found = lease_claim(caller.pk, owner="worker", now=clock())
    assert found is not None
    return found


def test_call_that_does_not_fit_waits_and_is_made_when_the_money_is_back(caller):
    child = lend(caller)
    spend(caller, "0.1999")
    assert put_aside(caller) == {child.pk}
    assert (caller.status, caller.waiting_on, caller.lease_owner) == (Status.WAITING, WaitingOn.RUNS, "")
    assert (caller.halt_state, caller.cost_cap_reached) == (HaltState.RUNNING, False)
    refused = AuditEvent.objects.get(chain=caller.chain, kind=TOOL_CALL)
    assert (refused.details["brake"], refused.details["detail"]) == ("R4", "cap_lent")
    assert children_attend(clock()) == 0
    caller.refresh_from_db()
    assert caller.status == Status.WAITING, "its run is not over"

    end(child, spent="0.10")
    assert children_attend(clock()) == 1
    caller.refresh_from_db()
    assert (caller.status, caller.waiting_on, caller.next_wake_at) == (Status.QUEUED, "", None)
    assert ask(claimed(caller)).ok


def test_call_whose_worst_case_does_not_fit_waits_too(caller):
    lend(caller)
    AgentSession.objects.filter(pk=caller.pk).update(cost_actual_usd=Decimal("0.1999"))
    put_aside(caller)


def test_used_up_tokens_are_no_reason_to_wait(caller):
    lend(caller)
    AgentSession.objects.filter(pk=caller.pk).update(token_budget=10, total_tokens=10)
    with pytest.raises(BudgetExceeded, match="tokens are used up"):
        ask(caller)


def test_run_that_has_lent_nothing_ends_at_its_cap(caller):
    spend(caller, "0.9999")
    with pytest.raises(CostCapReached):
        ask(caller)


@pytest.mark.parametrize("others", [0, 1])
def test_run_that_comes_back_before_its_caller_rests_keeps_it_from_waiting(caller, others):
    child, *_ = [lend(caller, "0.40") for _ in range(1 + others)]
    spend(caller, "0.9999")
    with pytest.raises(RunsAwaited) as awaited:
        ask(caller)
    end(child)
    children_attend(clock())
    record_end(caller, Waiting(WaitingOn.RUNS, runs=awaited.value.runs))
    caller.refresh_from_db()
    assert (caller.status, caller.waiting_on) == (Status.QUEUED, "")


def test_each_run_that_comes_back_wakes_it(caller):
    first, second = lend(caller, "0.40"), lend(caller, "0.40")
    spend(caller, "0.1999")
    put_aside(caller)
    for child in (first, second):
        end(child, spent="0.40")
        children_attend(clock())
        held = claimed(caller)
        if child is first:
            assert put_aside(held) == {second.pk}
    with pytest.raises(CostCapReached, match=r"Cap \$1.00, of which \$0.80 was spent by runs that it started"):
        ask(held)


def test_worker_that_dies_while_it_gives_back_leaves_all_of_it_to_the_next(caller, monkeypatch):
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    end(child)

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("agents.triggers.handing_on.session_wake", die)
        with pytest.raises(KeyboardInterrupt):
            children_attend(clock())
    caller.refresh_from_db()
    assert (caller.status, caller.max_cost_usd) == (Status.WAITING, Decimal("0.20"))
    assert children_attend(clock()) == 1
    caller.refresh_from_db()
    assert (caller.status, caller.max_cost_usd) == (Status.QUEUED, Decimal(1))


def test_run_that_cannot_give_back_keeps_no_other_caller_waiting(owner, caller, monkeypatch, caplog):
    other = make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), mode=Mode.LOOP, max_cost_usd=1)
    broken = lend(other)
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    for run in (broken, child):
        end(run)

    def fail(*_, **__):
        raise RuntimeError("out of order")

    monkeypatch.setattr("agents.triggers.handing_on.alert_push", fail)
    assert children_attend(clock()) == 1
    caller.refresh_from_db()
    assert caller.status == Status.QUEUED
    assert "could not give back" in caplog.text


def test_caller_waits_for_what_a_run_that_is_over_has_lent_on(caller):
    child = lend(caller)
    grandchild = lend(child, "0.60")
    end(child, spent="0.20")
    children_attend(clock())
    spend(caller, "0.1999")
    assert put_aside(caller) == {grandchild.pk}
    end(grandchild)
    children_attend(clock())
    caller.refresh_from_db()
    assert (caller.status, caller.max_cost_usd) == (Status.QUEUED, Decimal("0.80"))
    assert loan_text(caller) == "Cap $1.00, of which $0.20 was spent by runs that it started."


# --- It does not wait forever ---


def test_caller_that_has_waited_as_long_as_it_may_ends_and_says_who_holds_its_money(caller):
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    until = runs_wait_of(caller).until
    assert until - DAY - clock() < timedelta(minutes=1)
    assert next_runs_waiter(clock()) == until == caller.next_wake_at
    assert runs_waiters_wake(until - timedelta(seconds=1)) == 0
    assert runs_waiters_wake(until) == 1

    held = lease_claim(caller.pk, owner="worker", now=until)
    lent = rf"Cap \$1.00, of which \$0.80 is lent to run {child.chain[:8]}"
    with script(Step("fine")), pytest.raises(CostCapReached, match=lent):
        guarded_tool_call(held, ToolIntent.RUN_SKILL, ASK, key="question", now=until)
    session_finish(held, TerminalReason.COST_CAP_REACHED, now=until)
    receipt = build_receipt(caller.chain)
    assert receipt["loans"] == {"lent": {child.chain: "0.800000"}, "spent_usd": "0.000000"}
    said = f"$0.80 is lent to run {child.chain[:8]}"
    assert said in outcome_sentence(receipt)
    assert "did not fit into what it kept" in outcome_sentence(receipt)
    assert said in spent_text(receipt)
    assert said in receipt_text(receipt)


def test_patience_begins_anew_when_something_has_come_back(caller):
    first, _second = lend(caller, "0.40"), lend(caller, "0.40")
    spend(caller, "0.1999")
    put_aside(caller)
    since = runs_wait_of(caller).since
    AgentSession.objects.filter(pk=caller.pk).update(
        metadata={"runs_wait": {**caller.metadata["runs_wait"], "since": (since - DAY).isoformat()}}
    )
    end(first, spent="0.40")
    children_attend(clock())
    put_aside(claimed(caller))
    caller.refresh_from_db()
    assert runs_wait_of(caller).since >= since


def test_time_it_may_wait_is_a_setting(caller, settings):
    settings.LQOPS_RUN_WAIT_HOURS = 0
    lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    assert runs_waiters_wake(clock()) == 1
    with pytest.raises(CostCapReached):
        ask(claimed(caller))


# --- Halts and pauses ---


def test_halt_ends_a_caller_that_waits_and_the_runs_below_it(caller):
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    session_halt(caller.pk, by=None, reason="enough", now=clock())
    children_attend(clock())
    for row in (caller, child):
        row.refresh_from_db()
        assert (row.status, row.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)


def test_paused_caller_that_gets_its_money_back_goes_on_when_it_is_resumed(caller):
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    session_pause(caller.pk, by=None, now=clock())
    end(child)
    children_attend(clock())
    assert lease_claim(caller.pk, owner="worker", now=clock()) is None
    caller.refresh_from_db()
    assert caller.waiting_on == WaitingOn.RESUME
    session_resume(caller.pk, by=None, now=clock())
    assert ask(claimed(caller)).ok


def test_halt_of_all_work_spares_a_caller_whose_run_waits_for_a_person(caller, owner):
    middle = lend(caller)
    last = lend(middle, "0.60")
    working = make_session(owner=owner, agent=make_agent(owner=owner, mode="auto"), max_cost_usd=1)
    idle = lend(working, "0.60")
    AgentSession.objects.filter(pk=last.pk).update(status=Status.WAITING, waiting_on=WaitingOn.INPUT)
    for row, below in ((middle, last), (working, idle)):
        noted = {"runs_wait": {"runs": [below.pk], "since": clock().isoformat()}}
        AgentSession.objects.filter(pk=row.pk).update(status=Status.WAITING, waiting_on=WaitingOn.RUNS, metadata=noted)
    spend(caller, "0.1999")
    put_aside(caller)
    halt_all_work(by=None, now=clock())
    halted_work_end(clock())
    children_attend(clock())
    rows = AgentSession.objects.in_bulk()
    assert [rows[row.pk].status for row in (caller, middle, last)] == [Status.WAITING] * 3
    assert [rows[row.pk].status for row in (working, idle)] == [Status.HALTED] * 2
    release_all_work(by=None, now=clock())
    pauses_apply(clock())
    assert not AgentSession.objects.filter(pk__in=[caller.pk, middle.pk, last.pk], paused_at__isnull=False).exists()


# --- Reading ---


def test_page_says_what_it_waits_for_and_what_it_has_lent(caller, client):
    child = lend(caller)
    AgentSession.objects.filter(pk=child.pk).update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    spend(caller, "0.1999")
    put_aside(caller)
    sign_in(client)
    shown = text_of(client.get(page(AgentSession, "change", caller.pk)))
    text = " ".join(strip_tags(shown.replace("<", " <")).split())
    named = child.chain[:8]
    assert f"Waiting for runs run {named} (waiting for approval) since" in text
    assert "goes on without them in 23 hours" in text or "goes on without them in 24 hours" in text
    assert f"Loans Cap $1.00, of which $0.80 is lent to run {named}." in text


def test_run_of_an_earlier_message_is_shown_in_its_chat(owner):
    agent = make_agent(owner=owner, mode="auto")
    params = {"way": "answer", "chat": "the-chat", "message": "Do it."}
    first, later = (
        make_session(owner=owner, agent=agent, mode=Mode.CHAT, max_cost_usd=5, params=params) for _ in range(2)
    )
    child = lend(first)
    assert run_result(later, child.chain)["status"] == Status.QUEUED


# --- In the steps of a run ---


def work(session, *steps):
    """Run a queued session with these replies until it ends or rests."""
    AgentSession.objects.filter(pk=session.pk).update(status=Status.QUEUED, current_phase=Phase.TURN)
    with script(*steps):
        assert run_session(session.pk, ENGINES[session.mode], owner="worker")
    session.refresh_from_db()


def started_by(session):
    return AgentSession.objects.get(parent=session)


@pytest.fixture
def roles(settings):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [MODEL], "main": [MODEL], "console": [MODEL]}


HAND_ON = Step('<skill>start_run(agent="Helper", task="Read it.")</skill>')


@pytest.fixture
def goal(caller, roles):
    make_agent(owner=caller.owner, name="Helper", mode="auto")
    params = {"way": "goal", "chat": str(caller.public_id), "message": "Use start_run to hand it on to Helper."}
    AgentSession.objects.filter(pk=caller.pk).update(params=params, max_cost_usd=5, starting_cap_usd=5)
    caller.refresh_from_db()
    return caller


def test_goal_ends_after_the_runs_that_it_started_and_is_told_of_them(goal):
    work(goal, HAND_ON, Step("It is handed on."))
    child = started_by(goal)
    assert (goal.status, goal.waiting_on) == (Status.WAITING, WaitingOn.RUNS)
    assert Decimal("2.4") < child.max_cost_usd < Decimal("2.5")
    end(child)
    children_attend(clock())
    work(goal, Step("Helper failed."))
    assert (goal.status, goal.run_result) == (Status.COMPLETED, "ok")
    told = Message.objects.get(session=goal, reason="runs_over")
    assert f"{child.chain}: failed, failed" in told.content
    answers = Message.objects.filter(session=goal, role="assistant").values_list("content", flat=True)
    assert list(answers)[1:] == ["It is handed on.", "Helper failed."]


def test_result_that_is_asked_for_is_waited_for_and_read_once(goal):
    child = lend(goal, "1")
    asked = Step(f'<skill>run_result(run="{child.chain}")</skill>')
    work(goal, asked)
    assert (goal.status, goal.waiting_on) == (Status.WAITING, WaitingOn.RUNS)
    assert not ToolCall.objects.filter(session=goal, name="run_result").exists()
    end(child)
    children_attend(clock())
    work(goal, Step("It failed."))
    assert goal.status == Status.COMPLETED
    assert ToolCall.objects.get(session=goal, name="run_result").result["is_over"] is True
    assert not Message.objects.filter(session=goal, reason="runs_over").exists()


def test_goal_that_has_waited_as_long_as_it_may_ends_without_its_runs(goal, settings):
    settings.LQOPS_RUN_WAIT_HOURS = 0
    work(goal, HAND_ON, Step("It is handed on."))
    assert goal.status == Status.WAITING
    assert runs_waiters_wake(clock()) == 1
    work(goal)
    assert goal.status == Status.COMPLETED


def test_answer_to_a_person_does_not_wait(goal):
    AgentSession.objects.filter(pk=goal.pk).update(params={**goal.params, "way": "answer"})
    work(goal, HAND_ON, Step("It is handed on."))
    assert started_by(goal).status == Status.QUEUED
    assert goal.status == Status.COMPLETED


def test_agent_that_cannot_read_results_does_not_wait_for_them(goal):
    Agent.objects.filter(pk=goal.agent_id).update(definition="skills: [start_run]\n", definition_version=1)
    work(goal, HAND_ON, Step("It is handed on."))
    assert goal.status == Status.COMPLETED


def test_calls_of_a_reply_that_used_up_what_was_kept_wait(goal):
    work(goal, HAND_ON, Step("It is handed on."))
    child = started_by(goal)
    AgentSession.objects.filter(pk=goal.pk).update(cost_actual_usd=Decimal("4.99"))
    goal.refresh_from_db()
    goal.status = Status.RUNNING
    AgentSession.objects.filter(pk=goal.pk).update(status=Status.RUNNING, waiting_on="")
    with pytest.raises(RunsAwaited):
        require_budget(goal)
    end(child)
    children_attend(clock())
    require_budget(goal)
    AgentSession.objects.filter(pk=goal.pk).update(cost_actual_usd=Decimal(5))
    with pytest.raises(BudgetExceeded, match="budget is used up"):
        require_budget(goal)


def test_turn_of_a_loop_that_has_lent_its_money_goes_on_when_it_is_back(caller, roles, settings):
    settings.LQOPS_LENDER_FLOOR_USD = Decimal("0.01")
    text = "autonomy: {enabled: true}\ninstructions: Hand it on.\n"
    Agent.objects.filter(pk=caller.agent_id).update(definition=text, definition_version=1)
    make_agent(owner=caller.owner, name="Helper", mode="auto")
    AgentSession.objects.filter(pk=caller.pk).update(mode=Mode.LOOP, params={})
    caller.refresh_from_db()
    lending = Step('<skill>start_run(agent="Helper", task="Read it.", max_cost_usd=0.89)</skill>', usage=Usage(0, 9000))
    work(caller, lending, Step("<skill>yield(mode='sleep', sleep=60)</skill>"))
    child = started_by(caller)
    assert (caller.status, caller.waiting_on) == (Status.WAITING, WaitingOn.RUNS), caller.error
    assert f"It waits for run {child.chain[:8]} (queued)" in loop_why(caller)
    turn = Turn.objects.get(session=caller)
    assert turn.state == "open"
    end(child)
    children_attend(clock())
    work(caller, Step("<skill>yield(mode='sleep', sleep=60)</skill>"))
    assert caller.status == Status.SLEEPING, (caller.status, caller.error)
    turn.refresh_from_db()
    assert turn.state == "done"


def test_loop_is_shown_at_once_that_a_run_is_not_over(caller, roles):
    text = "autonomy: {enabled: true}\ninstructions: Hand it on.\n"
    Agent.objects.filter(pk=caller.agent_id).update(definition=text, definition_version=1)
    AgentSession.objects.filter(pk=caller.pk).update(mode=Mode.LOOP, params={})
    caller.refresh_from_db()
    child = lend(caller, "0.10")
    asked = Step(f'<skill>run_result(run="{child.chain}")</skill>')
    work(caller, asked, Step("<skill>yield(mode='sleep', sleep=60)</skill>"))
    assert caller.status == Status.SLEEPING
    assert ToolCall.objects.get(session=caller, name="run_result").result["is_over"] is False


def test_many_awaited_runs_are_counted_and_paused_ones_are_named_so(caller):
    children = [lend(caller, "0.10") for _ in range(7)]
    AgentSession.objects.filter(pk=children[0].pk).update(paused_at=clock())
    spend(caller, "0.2999")
    put_aside(caller)
    text = runs_wait_of(caller).text
    assert text.startswith(f"run {children[0].chain[:8]} (paused), run {children[1].chain[:8]} (queued), ")
    assert text.endswith(" and 2 more")
    assert loan_text(caller).endswith("and 4 more.")


def test_run_without_loans_tells_of_none(caller):
    assert loan_text(caller) == ""
    AgentSession.objects.filter(pk=caller.pk).update(starting_cap_usd=None)
    caller.refresh_from_db()
    assert loan_text(caller) == "", "it was created before caps were kept"
    assert caller.cap_usd == Decimal(1)


def test_call_of_a_model_with_fallbacks_waits_when_none_of_them_can_be_paid(caller, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "fallback": ["another"]}}
    make_price("another", input_usd="10", output_usd="10")
    lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)


@pytest.mark.parametrize(
    ("mode", "way", "waits"),
    [
        (Mode.HEARTBEAT, "", True),
        (Mode.CHAT, "goal", True),
        (Mode.CHAT, "answer", False),
        (Mode.LOOP, "", False),
    ],
)
def test_goals_and_heartbeats_end_after_their_runs(owner, mode, way, waits):
    assert ends_after_its_runs(make_session(owner=owner, mode=mode, params={"way": way})) == waits


def test_detail_of_the_api_names_the_awaited_runs(caller):
    assert SessionDetailSerializer(caller).get_runs_wait(caller) is None
    child = lend(caller)
    spend(caller, "0.1999")
    put_aside(caller)
    found = SessionDetailSerializer(caller).get_runs_wait(caller)
    assert found["runs"] == [child.chain]
    assert found["since"] < found["until"]
