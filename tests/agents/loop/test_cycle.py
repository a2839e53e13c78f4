"""A turn of a loop: its ten steps, what is stored, and how it resumes after a crash."""

import pytest

from agents.conf import clock
from agents.enums import EventKind, Outcome, Status, TerminalReason
from agents.loop import cycle
from agents.models import InferenceLog, Message, ToolCall
from agents.providers.scripted import Step
from agents.sessions.fairness import next_run
from agents.text.blocks import parse_blocks
from agents.types import Asleep, SliceOver
from tests.agents.conftest import script
from tests.agents.loop import samples
from tests.agents.loop.scripted_replies import GO_ON, SHUT_DOWN, says, sleeps

pytestmark = pytest.mark.django_db

STEPS = [
    "check_before_turn",
    "hot_snapshot",  # 1
    "alerts_pending",  # 2
    "gate",  # 3
    "refresh",  # 4
    "render",  # 5
    "run_agent_turn",  # 6
    "read_yield",  # 7
    "turn_close",  # 8
    "next_move",  # 9
    "apply_guardrails",  # 10
]
PRESS = ("press", {"button": "a"})


@pytest.fixture
def trace(monkeypatch):
    """Record the steps of a turn in their order."""
    taken = []

    def noting(name, step):
        def take(*args, **kwargs):
            taken.append(name)
            return step(*args, **kwargs)

        return take

    for name in STEPS:
        monkeypatch.setattr(cycle, name, noting(name, getattr(cycle, name)))
    return taken


def test_three_continues_and_a_shutdown_are_four_turns(agent, drive):
    loop = drive(agent())
    with script(GO_ON, GO_ON, GO_ON, SHUT_DOWN) as model:
        row = loop.for_(hours=1)
    assert (row.status, row.terminal_reason) == (Status.COMPLETED, TerminalReason.AGENT_SHUTDOWN)
    assert [turn.yielded for turn in loop.turns()] == ["continue", "continue", "continue", "shutdown"]
    assert len(model.requests) == 4


def test_turn_takes_ten_steps_in_order(agent, drive, trace):
    loop = drive(agent())
    with script(sleeps(5)):
        loop.task()
    assert trace == STEPS


def test_each_turn_is_one_task_and_a_pause_holds_no_worker(agent, drive):
    loop = drive(agent())
    with script(GO_ON, sleeps(5)):
        for status in (Status.QUEUED, Status.SLEEPING):
            assert loop.task() == status
            assert (loop.row.lease_owner, loop.row.lease_until) == ("", None)
    assert len(loop.turns()) == 2


def test_turn_events_report_what_it_saw_did_and_decided(agent, drive):
    loop = drive(agent("autonomy: {enabled: true}\nhot_state: {fields: {cash: {type: number}}}"))
    loop.see("cash", 5)
    loop.alert("anomaly")
    with script(says(PRESS, ("yield", {"mode": "sleep", "sleep": 5, "reason": "quiet"}))):
        loop.task()
    started, completed = loop.events(EventKind.TURN_STARTED, EventKind.TURN_COMPLETED)
    assert started.data == {"turn": 1, "hot_state": {"cash": "5"}, "alerts": ["anomaly"]}
    assert started.agent_id == loop.session.agent_id
    told = completed.data
    assert (told["actions"], told["yield"], told["sleep_seconds"], told["reason"]) == (["press"], "sleep", 5, "quiet")
    [turn] = loop.turns()
    assert turn.seen["fields"]["cash"]["value"] == "5"
    assert (turn.tokens, turn.actions, turn.state) == (20, 1, "done")
    assert turn.cost_usd == loop.row.cost_total_usd > 0


def test_later_turns_see_earlier_messages_and_results(agent, drive):
    loop = drive(agent("instructions: Watch the till.\nautonomy: {enabled: true}"))
    with script(says(PRESS, text="I press."), Step("All calm."), sleeps(5)) as model:
        loop.task()
        loop.task()
    last = model.requests[-1].messages
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert last[0]["content"].startswith("You are ")
    assert [(block.kind, block.text) for block in parse_blocks(last[0]["content"])] == [
        ("instructions", "Watch the till.")
    ]
    assert "pressed a" in last[3]["content"]
    assert Message.objects.filter(session=loop.session, turn=2, role="assistant").count() == 1


def test_only_whole_turns_are_remembered(agent, drive, monkeypatch):
    monkeypatch.setattr("agents.loop.context.MOST_MESSAGES", 5)
    loop = drive(agent())
    with script(Step("One."), Step("Two."), Step("Three."), Step("Four.")) as model:
        for _ in range(4):
            loop.task()
    said = [message["content"] for message in model.requests[-1].messages if message["role"] == "assistant"]
    assert said == ["Three."], "of the second turn the beginning would be missing"


def test_failed_turn_is_remembered_with_its_open_calls_closed(agent, drive, monkeypatch):
    loop = drive(agent())
    with script(says(PRESS, ("echo", {"text": "x"})), GO_ON) as model:
        monkeypatch.setattr("agents.engine.loop.SkillExecutor", lambda *_, **__: 1 / 0)
        assert loop.task() == Status.SLEEPING
        monkeypatch.undo()
        loop.sleep_out()
        loop.task()
    told = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert ["This call was not run" in text for text in told] == [True, True]
    assert samples.pressed == []


# --- After a crash ---


class Crash(BaseException):
    """The worker process died."""


def crash_once(monkeypatch, place):
    """Crash the worker the first time that it calls this function."""
    module, _, name = place.rpartition(".")
    step = getattr(__import__(module, fromlist=[name]), name)

    def die(*args, **kwargs):
        monkeypatch.setattr(place, step)
        raise Crash

    monkeypatch.setattr(place, die)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "place",
    [
        "agents.loop.cycle.hot_snapshot",
        "agents.loop.cycle.turn_begin",
        "agents.loop.cycle.run_agent_turn",
        "agents.engine.loop.read_reply",
        "agents.engine.loop.SkillExecutor",
        "agents.loop.cycle.read_yield",
        "agents.loop.cycle.turn_settle",
    ],
)
def test_crashed_turn_resumes_without_a_second_effect_or_charge(agent, drive, time, monkeypatch, place):
    loop = drive(agent("autonomy: {enabled: true}\nhot_state: {fields: {cash: {type: number}}}"))
    loop.alert("anomaly")
    crash_once(monkeypatch, place)
    with script(says(PRESS), sleeps(5)) as model:
        with pytest.raises(Crash):
            loop.task()
        time.shift(61)
        assert next_run(clock()) == loop.session.pk
        assert loop.task() == Status.SLEEPING
    assert samples.pressed == ["a"]
    assert len(model.requests) == InferenceLog.objects.count() == 2
    [turn] = loop.turns()
    assert (turn.state, turn.sleep_seconds, turn.actions) == ("done", 5, 1)
    kinds = [event.kind for event in loop.events(EventKind.TURN_STARTED, EventKind.TURN_COMPLETED)]
    assert kinds == [EventKind.TURN_STARTED, EventKind.TURN_COMPLETED]
    assert not loop.session.alerts.pending().exists()


def test_turn_longer_than_a_slice_continues_in_the_next(agent, drive, time):
    loop = drive(agent())
    slow = says(("look", {"place": "far"}), before_reply=lambda: time.shift(61))
    with script(slow, sleeps(5)) as model:
        assert loop.task() == Status.QUEUED
        assert [turn.state for turn in loop.turns()] == ["open"]
        assert loop.task() == Status.SLEEPING
    assert len(model.requests) == 2
    assert ToolCall.objects.filter(name="look", outcome=Outcome.SUCCESS).count() == 1
    assert [turn.number for turn in loop.turns()] == [1]


def test_engine_returns_the_ends_that_the_runner_knows(agent, drive):
    """The engine returns how a slice ended, so it can be driven without a queue."""
    loop = drive(agent())
    loop.session.status = Status.RUNNING
    loop.session.save()
    with script(GO_ON, sleeps(5)):
        assert cycle.run_loop(loop.session) == SliceOver()
        assert isinstance(cycle.run_loop(loop.session), Asleep)
