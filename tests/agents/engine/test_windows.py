"""Context windows: the task stays, and no result is sent without its call."""

import re
from types import SimpleNamespace

import pytest
import time_machine

from agents.engine.loop import Answered
from agents.engine.prompting import as_sent
from agents.models import InferenceLog, Message
from agents.policy.context_window import MARK, estimate_tokens
from agents.policy.guardrails import READ_ONLY_STEPS, LoopConfig, Reason
from tests.agents.pairing import is_paired
from tests.factories import NOW

from .conftest import MODEL, Step, calls, native, script

pytestmark = pytest.mark.django_db

LONG = "x" * 1_200
DONE = Step("All done.")


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False):
        yield


def tags(number):
    return calls(f'echo(text="{number}{LONG}")')


def provider_form(number):
    return native("echo", text=f"{number}{LONG}")


def texts(request):
    return [message["content"] or "" for message in request.messages]


def has_task(request):
    return any("Do it." in message["content"] for message in request.messages if message["role"] == "user")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strategy", ["sliding_window", "compact", "summarize"])
@pytest.mark.parametrize("asking", [tags, provider_form])
def test_every_window_keeps_the_task_and_call_pairs(loop, asking, strategy):
    config = LoopConfig(context_window=1_500, context_strategy=strategy)
    with script(*map(asking, range(5)), DONE) as model:
        assert loop(config=config).run() == Answered("All done.")

    assert len(texts(model.requests[-1])) < 10, "something was dropped"
    for request in model.requests:
        assert has_task(request)
        assert is_paired(request.messages)
        assert all(MARK not in message for message in request.messages)
        for at, text in enumerate(texts(request)):
            if found := re.match(r"Result of call call_(\d+)_1:", text):
                assert f'echo(text="{int(found[1]) - 1}x' in texts(request)[at - 1]
    assert not InferenceLog.objects.filter(purpose="compaction").exists()


def test_loop_instructions_are_not_taken_for_the_task(loop, messages):
    config = LoopConfig(context_window=1_500)
    with script(*map(provider_form, range(READ_ONLY_STEPS + 1)), DONE) as model:
        loop(config=config).run()
    assert len(messages(reason=Reason.READ_ONLY_NUDGE)) == 1
    assert all(map(has_task, model.requests))


def sent_back(**asked):
    """The function of a call that a model has asked for, as it is sent to a server again."""
    calls = [{"id": "c", "name": "look", "arguments": "{}", "native": True} | asked]
    entry = SimpleNamespace(role="assistant", content="", calls=calls, call_id="", reason="")
    [message] = as_sent([entry], nonce="0123456789abcdef")
    return message["tool_calls"][0]["function"]


def test_unreadable_call_is_sent_back_without_arguments():
    """Servers refuse arguments that are no JSON object."""
    assert sent_back(arguments='{"place": "a"}')["arguments"] == '{"place": "a"}'
    unreadable = ("{bad", "[1]", '{"a": 1} x', "[" * 100_000)
    assert [sent_back(arguments=text)["arguments"] for text in unreadable] == ["{}"] * 4


def test_call_by_an_unusable_name_is_sent_back_by_one_that_servers_take():
    names = ("look-up_2", "\uff43arry", "", "a b.c", "x" * 65)
    assert [sent_back(name=name)["name"] for name in names] == ["look-up_2", "_arry", "_", "a_b_c", "x" * 64]


@pytest.mark.parametrize("summary", ["Goals: find it.", ""], ids=["told", "none to be had"])
def test_earlier_turns_are_summarised_or_dropped(loop, summary):
    before = tuple(Message(role=role, content=f"{role} {LONG}", calls=[]) for role in ("user", "assistant") * 4)
    config = LoopConfig(context_window=2_000, context_strategy="summarize")
    with script(Step(summary), DONE) as model:
        assert loop(config=config, before=before).run() == Answered("All done.")

    asked, answered = model.requests
    assert asked.purpose == "compaction"
    assert has_task(answered)
    assert any("Goals: find it." in text for text in texts(answered)) == bool(summary)
    assert len(texts(answered)) < len(before) + 3, "something was dropped"


@pytest.mark.parametrize(("max_tokens", "asked"), [(100, 1), (1_000, 2)])
def test_window_reserves_room_for_the_reply(loop, max_tokens, asked):
    before = tuple(Message(role=role, content=LONG, calls=[]) for role in ("user", "assistant") * 2)  # 1,200 tokens
    config = LoopConfig(context_window=2_000, context_strategy="summarize")
    with script(Step("Goals: find it."), DONE) if asked == 2 else script(DONE) as model:
        assert loop(config=config, before=before, max_tokens=max_tokens).run() == Answered("All done.")
    assert len(model.requests) == asked


def test_the_window_of_the_model_is_kept_where_the_agent_declares_none(loop, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "context_window": 2_600}}
    with script(*map(tags, range(5)), DONE) as model:
        assert loop(config=LoopConfig()).run() == Answered("All done.")
    longest = max(estimate_tokens(request.messages) for request in model.requests)
    assert longest <= 2_600 - 1_024 + 100, "besides the note on the budget"
    assert all(map(has_task, model.requests))


def test_the_narrower_window_counts(loop, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "context_window": 100_000}}
    with script(*map(tags, range(5)), DONE) as model:
        assert loop(config=LoopConfig(context_window=1_500)).run() == Answered("All done.")
    assert len(texts(model.requests[-1])) < 10, "something was dropped"
