"""A simulated day of loops whose model server goes away three times: all live on, and no turn is lost.

The clock is simulated; ticks and turns happen in one thread, on a real database.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from agents.conf import clock
from agents.enums import Mode, NoticeKind, Status, TurnState
from agents.guard import metering
from agents.loop.cycle import run_loop
from agents.models import AgentSession, Message, ModelOutage, Notification, ToolCall, Turn
from agents.providers.base import Chunk, Fault, ProviderError, ended_once
from agents.roster.loops import loop_start, loops_revive
from agents.runner import run_session
from agents.sessions.leases import idle_sweep, model_waiters_wake, sleepers_wake
from agents.skills.registry import installed_skills
from agents.types import ModelReply, Usage
from tests.agents.loop.scripted_replies import sleeps
from tests.factories import make_agent, make_price, make_user
from tests.serving import serving

pytestmark = pytest.mark.django_db

START = datetime(2026, 3, 16, 0, 5, tzinfo=UTC)
MODEL = "day-model"
MINUTE = timedelta(minutes=1)
# When the server goes away, for how long, and how: refused connections, a rate limit, errors.
OUTAGES = (
    (timedelta(hours=3), 8 * MINUTE, Fault.SERVER),
    (timedelta(hours=9), 40 * MINUTE, Fault.CONNECTION),
    (timedelta(hours=17), 25 * MINUTE, Fault.RATE_LIMITED),
)

DUTIES = (sleepers_wake, model_waiters_wake, loops_revive, idle_sweep)  # of the ticker, for loops


class Server:
    """A model server that answers every turn with a sleep, except during the outages."""

    name = "day"

    def __init__(self, pause, outages):
        self.reply = sleeps(pause, reason="all quiet")
        self.outages = outages
        self.served, self.refused = 0, Counter()

    def stream(self, request, on_chunk):
        for number, (begins, lasts, fault) in enumerate(self.outages):
            if START + begins <= clock() < START + begins + lasts:
                self.refused[number] += 1
                with ended_once(on_chunk):
                    raise ProviderError("the server is away", fault=fault, usage=Usage(0, 0))
        self.served += 1
        on_chunk(Chunk(finished=True))
        return ModelReply("", Usage(10, 10), stop_reason="tool_use", calls=self.reply.calls)


@pytest.fixture
def traveller(monkeypatch, settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 10_000
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [MODEL], "main": [MODEL]}
    monkeypatch.setattr(metering.Meter, "_wait", lambda *_: None)
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 600)
    installed_skills.cache_clear()
    with time_machine.travel(START, tick=False) as moved:
        yield moved


def start(number):
    make_price(MODEL, input_usd="0", output_usd="1")
    owner = make_user()
    said = "skills: [now]\nmax_cost_usd: 100\nautonomy: {enabled: true}"
    agents = [make_agent(owner=owner, definition=said, definition_version=1) for _ in range(number)]
    return [loop_start(agent=agent, by=None, now=clock()) for agent in agents]


def live(traveller, *, pause, until, outages=OUTAGES):
    """Tick and run what is queued, as a ticker and workers would; during an outage, in short steps."""
    server = Server(pause, outages)
    with serving(MODEL, server):
        while clock() < START + until:
            for duty in DUTIES:
                duty(clock())
            queued = AgentSession.objects.filter(status=Status.QUEUED, mode=Mode.LOOP).order_by("pk")
            for pk in list(queued.values_list("pk", flat=True)):
                run_session(pk, run_loop, owner="worker")
            traveller.shift(timedelta(seconds=20) if ModelOutage.objects.exists() else pause * timedelta(seconds=1) / 4)
    return server


def check(loops, server, *, outages):
    rows = AgentSession.objects.filter(mode=Mode.LOOP)
    assert [row.pk for row in rows.order_by("pk")] == [loop.pk for loop in loops], "nobody was started again"
    assert {row.status for row in rows} <= {Status.SLEEPING, Status.QUEUED}
    assert sorted(server.refused) == list(range(outages)), "the server was away, each time"
    # No turn was lost, failed or paid twice: each was answered once, and its model call stands in the journal once.
    turns = Turn.objects.filter(session__in=loops)
    assert set(turns.values_list("state", flat=True)) == {TurnState.DONE}
    assert turns.count() == server.served == Message.objects.filter(stop="tool_use").count()
    for loop in loops:
        numbers = list(turns.filter(session=loop).order_by("number").values_list("number", flat=True))
        assert numbers == list(range(1, len(numbers) + 1))
    answered = ToolCall.objects.filter(model=MODEL, outcome="success")
    assert answered.count() == server.served
    told = Counter(Notification.objects.filter(kind=NoticeKind.LOOP_WAITING).values_list("session_id", flat=True))
    assert told == {loop.pk: outages for loop in loops}
    assert not ModelOutage.objects.exists()


def test_loops_live_through_an_outage_with_one_notification_each(traveller):
    loops = start(3)
    outages = ((10 * MINUTE, 8 * MINUTE, Fault.SERVER),)
    server = live(traveller, pause=240, until=30 * MINUTE, outages=outages)
    check(loops, server, outages=1)


@pytest.mark.stress
@pytest.mark.timeout(0)
def test_fifty_loops_live_through_a_day_with_three_outages(traveller):
    loops = start(50)
    server = live(traveller, pause=1_200, until=timedelta(hours=23))
    check(loops, server, outages=3)
    print(f"{server.served} turns of {len(loops)} loops, {sum(server.refused.values())} requests during the outages")
