"""A halt ends the model's reply in every mode: the server is left alone, and the run ends as halted."""

import random
from collections import Counter

import pytest
from django.db import connection

from agents.conf import clock
from agents.enums import Mode, Status, TerminalReason
from agents.ledger.journal import HALTED
from agents.models import AgentSession, ToolCall
from agents.runner import run_session
from agents.sessions.halts import session_halt
from agents.tasks import ENGINES
from tests.agents.sensors.scene import running_slice
from tests.flows.halting import MODES, agent_with_sensor, halts, meets_bars, new_mark, report, serving_slowly
from tests.flows.processes import PATIENCE, until

pytestmark = pytest.mark.django_db(transaction=True)

GENEROUS = 15.0  # seconds: it takes less than one on a machine that is not busy
EACH = 1
MANY = 200
CALLS = {
    "chat": "run_skill step:1",
    "walk": "run_playbook analysis:1",
    "agentic": "run_skill analysis:1",
    "judged": "run_skill judge:0:0",
    "loop": "run_skill turn:1:1",
    "heartbeat": "run_skill step:1",
    "sensor": "run_skill signal:",
}


def halted(count):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with serving_slowly() as model:
        done = halts(model, count, seed)
    print(report(done, database=connection.vendor, seed=seed))
    assert {(one.status, one.reason) for one in done} == {(Status.HALTED, TerminalReason.EXTERNAL_HALT)}
    assert [one for one in done if not one.call.startswith(CALLS[one.mode])] == []
    assert [one for one in done if one.asked_later or one.unnoticed] == []
    return done


def test_halt_ends_the_reply_in_every_mode():
    done = halted(EACH * len(MODES))
    assert Counter(one.mode for one in done) == dict.fromkeys(MODES, EACH)
    assert max(one.to_disconnect for one in done) < GENEROUS
    assert max(one.to_ended for one in done) < GENEROUS


def test_halt_ends_the_reply_to_a_sensor_whose_slice_is_over():
    """Nobody holds the session then: the model is left at once, and the run ends when its lease has run out."""
    with serving_slowly() as model:
        mark = new_mark("sensor")
        agent = agent_with_sensor(model, mark)
        with running_slice():
            assert model.wait_for_word(mark, PATIENCE)
        session = AgentSession.objects.get(agent=agent, mode=Mode.SENSOR)
        assert session.status == Status.RUNNING
        session_halt(session.pk, by=None, reason="halted in flight", now=clock())
        [reply] = model.replies(mark)
        assert reply.left.wait(GENEROUS)
        until(lambda: ToolCall.objects.get(session=session).detail == HALTED)
    AgentSession.objects.filter(pk=session.pk).update(lease_until=clock())
    run_session(session.pk, ENGINES[session.mode], owner="worker")
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)


@pytest.mark.stress
def test_two_hundred_halts_leave_the_model_within_a_second():
    assert meets_bars(halted(MANY))
