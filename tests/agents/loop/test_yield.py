"""`yield` is a call, read from the journal, and offered only in loops."""

import logging
from datetime import timedelta

import pytest

from agents.ask.chats import chat, chat_send
from agents.conf import clock
from agents.enums import EventKind, Status, TerminalReason
from agents.models import Message
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.skills.registry import installed_skills, skill_named, yield_turn
from agents.skills.skill import skill
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, SHUT_DOWN, prompt, says, sleeps, yields

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(agent, drive):
    return drive(agent("autonomy: {enabled: true, max_sleep: 3600}"))


def test_sleep_without_a_limit_ends_after_a_year(agent, drive):
    loop = drive(agent("autonomy: {enabled: true, max_sleep: 0}"))
    with script(sleeps(10**15)):
        assert loop.task() == Status.SLEEPING
    assert loop.row.next_wake_at - clock() == timedelta(days=365)


def offered(request):
    return {tool["function"]["name"] for tool in request.tools}


def test_yield_schema():
    schema = yield_turn.parameters
    assert schema["required"] == ["mode"]
    assert set(schema["properties"]) == {"mode", "sleep", "wake_early_if", "reason"}
    assert schema["properties"]["mode"]["enum"] == ["continue", "sleep", "shutdown"]
    assert (yield_turn.side_effects, yield_turn.local) == (False, True)


def test_yield_is_offered_in_loops_and_not_in_chats(loop):
    assert "yield" not in installed_skills()
    with script(GO_ON) as model:
        loop.task()
    assert "yield" in offered(model.requests[0])
    said = chat_send(owner=loop.session.owner, by=None, text="Hi", agent=loop.session.agent, now=clock())
    with script(says(("yield", {"mode": "shutdown"})), Step("Hello.")) as model:
        run_session(said.pk, chat, owner="worker")
    assert "yield" not in offered(model.requests[0])
    assert "not found or disabled" in Message.objects.get(session=said, role="tool").content
    assert loop.row.status == Status.QUEUED


def test_no_other_skill_may_be_named_yield(caplog):
    @skill(name="yield")
    def other() -> str:
        """Something else."""
        return ""

    assert skill_named("yield") is yield_turn
    assert skill_named(other.name) is not other


def test_sleep_is_a_row_and_resets_the_turn_count(loop):
    with script(GO_ON, sleeps(30, reason="quiet")):
        loop.task()
        assert loop.task() == Status.SLEEPING
    row = loop.row
    assert (row.next_wake_at - clock()).total_seconds() == 30
    assert (row.lease_owner, row.state, row.metadata["loop"]["consecutive"]) == ("", "sleeping", 0)
    last = loop.turns()[-1]
    assert (last.yielded, last.sleep_seconds, last.reason) == ("sleep", 30, "quiet")


def test_sleep_that_is_too_long_is_cut_and_logged(loop, caplog):
    with caplog.at_level(logging.INFO), script(sleeps(10**6)):
        loop.task()
    assert (loop.row.next_wake_at - clock()).total_seconds() == 3_600
    assert "a sleep of 1000000 seconds is cut to 3600" in caplog.text


@pytest.mark.parametrize("text", ["YIELD: sleep=30s", "Sleeping for 9s.", "I will shut down now."])
def test_words_do_not_yield(loop, text):
    with script(Step(text)):
        assert loop.task() == Status.QUEUED
    [turn] = loop.turns()
    assert (turn.yielded, loop.row.metadata["loop"]["consecutive"]) == ("continue", 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "given",
    [{}, {"mode": "nap"}, {"mode": "sleep"}, {"mode": "sleep", "sleep": 0}, {"mode": "sleep", "sleep": "long"}],
    ids=str,
)
def test_unreadable_yield_is_an_error_and_counts_as_continue(loop, given):
    with script(says(("yield", given)), Step("Well then.")) as model:
        assert loop.task() == Status.QUEUED
    assert "error:" in prompt(model.requests[1])
    assert (loop.turns()[0].yielded, loop.row.metadata["loop"]["consecutive"]) == ("continue", 1)


def test_last_successful_yield_wins(loop):
    both = says(("yield", {"mode": "continue"}), ("yield", {"mode": "sleep", "sleep": 5}))
    with script(both):
        assert loop.task() == Status.SLEEPING
    assert loop.turns()[0].sleep_seconds == 5


def test_last_successful_yield_wins_over_a_later_bad_one(loop):
    with script(says(("yield", {"mode": "sleep", "sleep": 5}), ("yield", {"mode": "nap"})), Step("Done.")):
        assert loop.task() == Status.SLEEPING


def test_yield_ends_the_turn_without_another_model_call(loop):
    with script(says(("echo", {"text": "hi"}), ("yield", {"mode": "sleep", "sleep": 5}))) as model:
        loop.task()
    assert len(model.requests) == 1
    assert Message.objects.get(session=loop.session, role="tool", content="hi").turn == 1


def test_agent_sees_calls_that_failed_beside_its_yield(loop):
    with script(says(("fail", {"words": "no"}), ("yield", {"mode": "sleep", "sleep": 900})), sleeps(5)) as model:
        loop.task()
    assert len(model.requests) == 2
    assert loop.turns()[0].sleep_seconds == 5


def test_yield_in_tags_works_the_same(loop):
    with script(Step('<skill>yield(mode="sleep", sleep=7)</skill>')):
        loop.task()
    assert loop.turns()[0].sleep_seconds == 7


def test_shutdown_ends_the_loop_with_its_reason(loop):
    with script(SHUT_DOWN):
        assert loop.task() == Status.COMPLETED
    assert loop.row.terminal_reason == TerminalReason.AGENT_SHUTDOWN
    [told] = loop.events(EventKind.TURN_COMPLETED)
    assert (told.data["yield"], told.data["reason"]) == ("shutdown", "all is done")


def test_mode_continue_needs_nothing_else(loop):
    with script(yields("continue", wake=["a"])):
        assert loop.task() == Status.QUEUED
