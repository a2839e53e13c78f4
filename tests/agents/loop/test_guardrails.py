"""The guardrails of loops: each one holds, reports its numbers, and is out of the agent's reach."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from agents.ask.chats import chat, chat_send
from agents.conf import clock
from agents.enums import BudgetPeriod, BudgetScope, EventKind, NoticeKind, Outcome, Status, TerminalReason
from agents.ledger.budgets import budget_set_cap
from agents.loop.guardrails import ActionRate
from agents.loop.pacing import Pace
from agents.models import Agent, Budget, Installation, Message, Notification, Profile, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.leases import idle_sweep
from agents.skills.registry import SkillCount, skill_named
from agents.types import Usage
from audit.models import AuditEvent
from tests.agents.conftest import script
from tests.agents.loop import samples
from tests.agents.loop.scripted_replies import GO_ON, prompt, says, sleeps

pytestmark = pytest.mark.django_db

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BIG = Usage(600, 500)


def autonomous(**limits):
    said = ", ".join(f"{name}: {value}" for name, value in limits.items())
    return f"autonomy: {{enabled: true{', ' if said else ''}{said}}}"


def presses(*buttons, **more):
    return says(*(("press", {"button": button}) for button in buttons), **more)


# --- Consecutive turns ---


def test_too_many_turns_without_a_sleep_force_one(agent, drive):
    loop = drive(agent(autonomous(max_consecutive_turns=3)))
    with script(GO_ON):
        assert [loop.task() for _ in range(3)] == [Status.QUEUED, Status.QUEUED, Status.SLEEPING]
    assert loop.row.next_wake_at == clock() + 60 * SECOND
    [told] = loop.events(EventKind.GUARDRAIL_TRIGGERED)
    assert told.data == {"guardrail": "max_consecutive_turns", "turns": 3, "limit": 3, "sleep_seconds": 60}
    assert loop.row.metadata["loop"]["consecutive"] == 0


def test_no_alert_ends_a_forced_sleep(agent, drive):
    loop = drive(agent(autonomous(max_consecutive_turns=1)))
    with script(GO_ON):
        loop.task()
    loop.alert("chat_message")
    assert loop.row.status == Status.SLEEPING


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("limits", "reply", "until"),
    [
        ({"max_consecutive_turns": 1}, GO_ON, datetime(2026, 3, 16, 9, 1, tzinfo=UTC)),
        ({"token_budget_per_hour": 20}, sleeps(10), datetime(2026, 3, 16, 10, tzinfo=UTC)),
        ({"active_hours": '{start: "10:00", end: "11:00"}'}, None, datetime(2026, 3, 16, 10, tzinfo=UTC)),
    ],
)
def test_chat_is_answered_in_a_guardrail_pause_without_ending_it(agent, drive, limits, reply, until):
    loop = drive(agent(autonomous(**limits)))
    with script(*filter(None, [reply]), Step("Hi."), sleeps(600)) as model:
        assert loop.task() == Status.SLEEPING
        said = chat_send(owner=loop.session.owner, by=None, text="Hello", agent=loop.session.agent, now=clock())
        run_session(said.pk, chat, owner="worker")
        assert (loop.row.status, loop.row.next_wake_at) == (Status.SLEEPING, until)
        loop.sleep_out()
        loop.task()
    assert "! chat_message (chat)" in prompt(model.requests[-1])


# --- Tokens per hour ---


def test_token_budget_of_zero_never_pauses(agent, drive):
    loop = drive(agent(autonomous(token_budget_per_hour=0)))
    with script(says(("yield", {"mode": "continue"}), usage=BIG)):
        assert [loop.task() for _ in range(3)] == [Status.QUEUED] * 3
    assert loop.guardrails() == []


def test_spent_token_budget_pauses_the_loop_until_the_next_hour(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 10, 20, tzinfo=UTC))
    loop = drive(agent(autonomous(token_budget_per_hour=1_000)))
    with script(says(("yield", {"mode": "sleep", "sleep": 10}), usage=BIG), sleeps(10)) as model:
        loop.task()
        assert loop.row.next_wake_at == datetime(2026, 3, 16, 11, tzinfo=UTC)
        [told] = loop.events(EventKind.GUARDRAIL_TRIGGERED)
        assert (told.data["guardrail"], told.data["tokens"], told.data["limit"]) == (
            "token_budget_per_hour",
            1_100,
            1_000,
        )
        loop.sleep_out()
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 2
    assert loop.guardrails() == ["token_budget_per_hour"]


def test_tokens_of_a_chat_count_to_the_hour(agent, drive, time):
    loop = drive(agent(autonomous(token_budget_per_hour=1_000, wake_on_chat="false")))
    with script(sleeps(60), Step("Hi.", usage=BIG)) as model:
        loop.task()
        said = chat_send(owner=loop.session.owner, by=None, text="Hello", agent=loop.session.agent, now=clock())
        run_session(said.pk, chat, owner="worker")
        loop.sleep_out()
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 2
    assert loop.row.next_wake_at == datetime(2026, 3, 16, 10, tzinfo=UTC)
    assert loop.row.metadata["loop"]["consecutive"] == 0


def test_tokens_of_the_hour_before_do_not_count(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 9, 59, 50, tzinfo=UTC))
    loop = drive(agent(autonomous(token_budget_per_hour=2_000)))
    with script(says(("yield", {"mode": "sleep", "sleep": 20}), usage=BIG)):
        for _ in range(2):
            assert loop.task() == Status.SLEEPING
            assert loop.guardrails() == []
            loop.sleep_out()
        loop.task()
    assert loop.guardrails() == ["token_budget_per_hour"]


# --- Actions per minute ---


def test_action_beyond_the_limit_is_not_run_and_the_model_is_told(agent, drive):
    loop = drive(agent(autonomous(max_actions_per_minute=2)))
    with script(presses("a", "b", "c"), sleeps(5)) as model:
        loop.task()
    assert samples.pressed == ["a", "b"]
    assert "2 actions were started in the last minute, and 2 are allowed" in prompt(model.requests[1])
    [told] = loop.events(EventKind.GUARDRAIL_TRIGGERED)
    assert told.data == {"guardrail": "max_actions_per_minute", "actions": 2, "limit": 2, "skill": "press"}
    refused = AuditEvent.objects.filter(chain=loop.session.chain, details__outcome=Outcome.RATE_LIMITED)
    assert [event.details["detail"] for event in refused] == ["max_actions_per_minute"]
    assert SkillCount.objects.get(skill="press").used == 2


def test_grouped_calls_count_before_they_run_and_reads_are_free(agent, drive):
    loop = drive(agent())
    loop.session.status = Status.RUNNING
    loop.session.save()
    rate = ActionRate(loop.session, Pace(), limit=1)
    admit = rate.group()
    press, look = skill_named("press"), skill_named("look")
    refused = [bool(admit(f"k:{place}", one, {})) for place, one in enumerate([press, look, press, look])]
    assert refused == [False, False, True, False]
    assert rate.group()("k:5", press, {}) == "", "what was admitted and then not made uses nothing up"
    assert rate.refused == 1


@pytest.mark.long
def test_action_window_slides_over_turns(agent, drive, time):
    loop = drive(agent(autonomous(max_actions_per_minute=2)))
    at = [(0, "a"), (30, "b"), (40, "c"), (61, "d"), (62, "e"), (91, "f")]
    begun = clock()
    for offset, button in at:
        time.move_to(begun + offset * SECOND)
        with script(presses(button), GO_ON):
            loop.task()
    assert samples.pressed == ["a", "b", "d", "f"]


def test_three_refused_actions_force_a_sleep_until_the_window_frees(agent, drive, time):
    loop = drive(agent(autonomous(max_actions_per_minute=1)))
    began = clock()
    with script(presses("a"), GO_ON):
        loop.task()
    time.shift(20 * SECOND)
    with script(presses("b"), presses("c"), presses("d"), GO_ON):
        assert loop.task() == Status.SLEEPING
    assert loop.row.next_wake_at == began + 60 * SECOND
    assert loop.guardrails() == ["max_actions_per_minute"] * 4


# --- Idle ---


def idling(time, seconds):
    looks = ("look", {"place": str(seconds)}), ("yield", {"mode": "continue"})
    return says(*looks, before_reply=lambda: time.shift(seconds))


def test_idle_timeout_ends_the_loop(agent, drive, time):
    loop = drive(agent(autonomous(idle_timeout=600)))
    with script(*(idling(time, 199 + number) for number in range(5))):  # the first turn is the chance to act
        row = loop.for_(hours=1)
    assert (row.status, row.terminal_reason) == (Status.HALTED, TerminalReason.IDLE_TIMEOUT)
    assert len(loop.turns()) == 4
    [told] = loop.events(EventKind.GUARDRAIL_TRIGGERED)
    assert told.data == {"guardrail": "idle_timeout", "idle_seconds": 603, "limit": 600}


def test_lowered_idle_limit_applies_before_the_next_turn(agent, drive, time):
    loop = drive(agent(autonomous(idle_timeout=600)))
    with script(GO_ON, idling(time, 200)) as model:
        loop.task()
        loop.task()
        Agent.objects.update(definition=autonomous(idle_timeout=100))
        assert loop.task() == Status.HALTED
    assert (len(model.requests), loop.guardrails()) == (2, ["idle_timeout"])


def test_action_resets_the_idle_time(agent, drive, time):
    loop = drive(agent(autonomous(idle_timeout=600)))
    acting = presses("a", before_reply=lambda: time.shift(400))
    with script(idling(time, 400), acting, GO_ON, idling(time, 401), sleeps(5)):  # the second turn takes two slices
        assert [loop.task() for _ in range(5)] == [Status.QUEUED] * 4 + [Status.SLEEPING]


def test_sleep_and_waiting_are_not_idle(agent, drive):
    loop = drive(agent(autonomous(idle_timeout=600)))
    with script(sleeps(1_800)):
        loop.for_(hours=1)
    assert loop.row.status == Status.SLEEPING
    assert len(loop.turns()) == 3


def test_watchdog_leaves_sleeping_and_waiting_loops_alone(agent, drive, approver, time):
    sleeping, waiting = drive(agent(autonomous())), drive(agent(autonomous()))
    with script(sleeps(1_800), says(("act", {"what": "it"})), Step("risky")):
        sleeping.task()
        waiting.task()
    for minute in range(30):
        assert idle_sweep(clock() + minute * MINUTE) == 0
    assert (sleeping.row.status, waiting.row.status) == (Status.SLEEPING, Status.WAITING)


# --- Active hours ---


def test_loop_sleeps_outside_its_active_hours(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 22, 59, tzinfo=UTC))
    loop = drive(agent(autonomous(active_hours='{start: "08:00", end: "23:00"}')))
    with script(sleeps(60)) as model:
        loop.task()
        loop.sleep_out()
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 1
    assert loop.row.next_wake_at == datetime(2026, 3, 17, 8, tzinfo=UTC)
    [told] = loop.events(EventKind.GUARDRAIL_TRIGGERED)
    assert told.data["guardrail"] == "active_hours"
    assert (told.data["start"], told.data["end"], told.data["until"]) == ("08:00", "23:00", "2026-03-17T08:00:00+00:00")


# --- Owner and agent ---


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda agent: Profile.objects.filter(user=agent.owner).update(opted_in=False), TerminalReason.OPTED_OUT),
        (lambda agent: Agent.objects.filter(pk=agent.pk).update(enabled=False), TerminalReason.EXTERNAL_HALT),
        (lambda agent: Agent.objects.filter(pk=agent.pk).update(definition=""), TerminalReason.EXTERNAL_HALT),
    ],
    ids=["opted out", "switched off", "not autonomous any more"],
)
def test_loop_ends_before_its_next_turn_when_it_may_not_run(agent, drive, change, reason):
    loop = drive(agent())
    change(loop.session.agent)
    with script(GO_ON) as model:
        assert loop.task() == Status.HALTED
    assert (loop.row.terminal_reason, model.requests) == (reason, [])


# --- Money ---


def test_spent_shared_budget_makes_the_loop_sleep_until_reset(agent, drive):
    loop = drive(agent())
    loop.alert("anomaly")
    Installation.objects.update(max_cost_per_day_usd=Decimal("0.006"))
    with script(GO_ON) as model:
        loop.task()
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 1
    assert loop.row.next_wake_at == datetime(2026, 3, 17, tzinfo=UTC)
    assert loop.guardrails() == ["budget"]
    Budget.objects.update(cap_usd=Decimal(5))
    Installation.objects.update(max_cost_per_day_usd=Decimal(5))
    loop.sleep_out()
    with script(sleeps(5)):
        assert loop.task() == Status.SLEEPING


def test_loop_that_the_budget_of_a_month_stops_asks_again_each_day(agent, drive):
    loop = drive(agent())
    loop.alert("anomaly")
    month = {"scope": BudgetScope.OWNER, "subject_id": loop.row.owner_id, "period": BudgetPeriod.MONTH}
    budget_set_cap(**month, cap_usd=Decimal("0.006"), by=None)
    with script(GO_ON):
        loop.task()
        assert loop.task() == Status.SLEEPING
    assert loop.row.next_wake_at == datetime(2026, 3, 17, tzinfo=UTC)
    loop.sleep_out()
    with script(sleeps(5)) as model:
        assert loop.task() == Status.SLEEPING
    assert (model.requests, loop.row.next_wake_at) == ([], datetime(2026, 3, 18, tzinfo=UTC))
    budget_set_cap(**month, cap_usd=Decimal(5), by=None)
    loop.sleep_out()
    with script(sleeps(5)) as model:
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 1


def test_own_cost_cap_ends_the_loop(agent, drive):
    loop = drive(agent("max_cost_usd: 0.006\n" + autonomous()))
    with script(GO_ON):
        row = loop.for_(hours=1)
    assert (row.status, row.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    done, broken_off = loop.turns()
    assert (done.state, broken_off.state, broken_off.reason) == ("done", "failed", "cost_cap_reached")


# --- Errors in a turn ---

DOWN = Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))


REFUSED = Step("I cannot help with that.", stop_reason="refusal")


def test_failed_turns_are_retried_and_five_in_a_row_end_the_loop(agent, drive):
    loop = drive(agent())
    pauses = []
    with script(REFUSED):
        while loop.task() == Status.SLEEPING:
            pauses.append((loop.row.next_wake_at - clock()).total_seconds())
            loop.sleep_out()
    assert pauses == [5, 10, 20, 40]
    assert (loop.row.status, loop.row.terminal_reason) == (Status.FAILED, TerminalReason.REFUSED)
    assert {turn.state for turn in loop.turns()} == {"failed"}


@pytest.mark.parametrize("hours", [2, pytest.param(24, marks=pytest.mark.long)])
def test_model_that_refuses_its_key_for_a_day_does_not_end_the_loop(agent, drive, hours):
    loop = drive(agent())
    with script(DOWN):
        loop.for_(hours=hours)
    assert loop.row.status == Status.SLEEPING
    assert len(loop.turns()) < 16 + hours, "the pauses grow to an hour"
    [notice] = Notification.objects.all()
    assert (notice.kind, notice.owner_id) == (NoticeKind.LOOP_WAITING, loop.row.owner_id)
    with script(sleeps(60)):
        loop.sleep_out()
        assert loop.task() == Status.SLEEPING
    assert loop.turns()[-1].state == "done"


def test_completed_turn_resets_the_error_count(agent, drive):
    loop = drive(agent())
    with script(*[DOWN] * 4, GO_ON, DOWN, sleeps(99)):
        loop.for_(seconds=80)
    assert loop.row.status == Status.SLEEPING
    assert [turn.state for turn in loop.turns()] == ["failed"] * 4 + ["done", "failed", "done"]


def test_internal_error_in_a_turn_does_not_end_the_loop(agent, drive, monkeypatch):
    loop = drive(agent())
    monkeypatch.setattr("agents.loop.cycle.history_of", lambda *_: 1 / 0)
    with script(sleeps(60)):
        assert loop.task() == Status.SLEEPING
        monkeypatch.undo()
        assert loop.turns()[0].reason.startswith("ZeroDivisionError")
        loop.sleep_out()
        loop.task()
    assert [turn.state for turn in loop.turns()] == ["failed", "done"]


# --- Rounds of calls ---


def test_sixth_round_of_calls_is_not_run_and_the_transcript_says_so(agent, drive):
    loop = drive(agent())
    with script(*(says(("look", {"place": str(number)})) for number in range(60))) as model:
        assert loop.task() == Status.QUEUED
    assert len(model.requests) == 5
    assert ToolCall.objects.filter(name="look").count() == 5
    assert "after 5 rounds" in Message.objects.get(reason="max_tool_rounds").content
    [turn] = loop.turns()
    assert (turn.state, turn.yielded) == ("done", "continue")
