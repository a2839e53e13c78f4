"""What the step loop really sends: tags and native calls, its own notes, summaries and predictions."""

import pytest

from agents.engine.loop import Answered
from agents.models import Message
from agents.policy.guardrails import READ_ONLY_STEPS, LoopConfig
from agents.types import RequestedCall, WireForm
from tests.wire import PLAIN, recording

from .conftest import Step, calls, native, script

pytestmark = pytest.mark.django_db

LONG = "x" * 1_200
STEPS = [
    Step("It goes on", stop_reason="max_tokens"),
    calls('look(place="a")', 'look(place="b")'),
    calls("look(place=open)"),
    Step(
        "Two at once.", stop_reason="tool_use", calls=(RequestedCall("", "look", "{}"), RequestedCall("", "echo", "{"))
    ),
    *(native("echo", text=f"{number}{LONG}") for number in range(READ_ONLY_STEPS + 1)),
    calls('act(what="it")'),
    Step("All done."),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("strategy", "form"),
    [("none", WireForm()), ("sliding_window", PLAIN), ("compact", WireForm()), ("summarize", PLAIN)],
)
def test_every_step_is_what_strict_servers_take(loop, session, form, strategy):
    session.agent.mode = "auto"
    session.agent.save()
    before = tuple(Message(role=role, content=f"{role} {LONG}", calls=[]) for role in ("user", "assistant") * 3)
    config = LoopConfig(context_window=2_500, context_strategy=strategy)
    summary = [Step("Goals: find it.")] if strategy == "summarize" else []
    with recording(form) as bodies, script(*summary, *STEPS):
        assert isinstance(loop(config=config, before=before).run(), Answered)

    assert len(bodies) >= len(STEPS)
