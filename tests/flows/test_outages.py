"""A model server that is away in the middle of runs of every kind of trigger, for seconds or for hours.

The clock is simulated and one thread does all the work: ticks, then everything that is queued. In the end every input
was read once, no run is lost, and the books hold what the server really served.
"""

from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.db.models import Sum

from agents.conf import clock
from agents.enums import Mode, Outcome, Status, TriggerKind
from agents.guard import metering
from agents.models import AgentSession, InferenceLog, ModelOutage, ToolCall, Trigger, UnreadInput
from agents.providers.base import Chunk, Fault, ProviderError, ended_once
from agents.runner import run_session
from agents.ticker import Ticker
from agents.triggers.events import EventIn, event_spawn
from agents.types import ModelReply, Usage
from agents.walk.walk import walk
from audit.verify import verify_log
from tests.agents.walk.scene import Scene, reply
from tests.factories import NOW, make_session, make_trigger
from tests.serving import serving

pytestmark = pytest.mark.django_db

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
INPUT, OUTPUT = 50, 70  # tokens of a reply


class Server:
    """A model server that is away from its `after`-th call on until a moment of the simulated clock."""

    name = "flaky"

    def __init__(self, *, after, away):
        self.after, self.away = after, away
        self.served = 0
        self.refused = 0
        self.back_at = None

    def stream(self, request, on_chunk):
        if self.back_at is None and self.served == self.after:
            self.back_at = clock() + self.away
        if self.back_at is not None and clock() < self.back_at:
            self.refused += 1
            with ended_once(on_chunk):
                raise ProviderError("503 from the model server", fault=Fault.SERVER, usage=Usage(0, 0))
        self.served += 1
        text = reply(suggested_memories=[], suggested_precedents=[])
        on_chunk(Chunk(text))
        on_chunk(Chunk(finished=True))
        return ModelReply(text, Usage(INPUT, OUTPUT))


class Day:
    """Triggers of every kind and what arrives for them, worked on under a simulated clock."""

    def __init__(self, moved):
        self._moved = moved
        self._ticker = Ticker()
        self.scene = Scene()
        by = {"owner": self.scene.owner, "playbook": self.scene.playbook, "max_runs_per_hour": 10_000}
        self.watch = make_trigger(kind=TriggerKind.WATCH, collection=self.scene.collection, name="watch", **by)
        self.event = make_trigger(kind=TriggerKind.EVENT, name="event", **by)
        self.feed = make_trigger(kind=TriggerKind.EVENT, name="feed", **by)
        self.schedules = [
            make_trigger(
                kind=TriggerKind.SCHEDULE, name=f"schedule-{number}", cron="*/5 * * * *", query="invoices", **by
            )
            for number in range(3)
        ]
        self.loop = make_session(
            mode=Mode.LOOP, owner=self.scene.owner, status=Status.SLEEPING, next_wake_at=NOW + 99 * HOUR
        )

    def arrive(self, number):
        """One input of each kind."""
        self.scene.document(f"Document {number}. The Customer shall pay invoices within 60 days.", at=clock())
        event = EventIn("monitor", "alarm", title=f"Alarm {number}", data={"number": number})
        event_spawn(self.event, event, now=clock())
        event_spawn(self.feed, event, now=clock(), slot=f"sensor:1:{number}", parent=self.loop)

    def pass_time(self, seconds):
        self._moved.shift(timedelta(seconds=seconds))

    def work(self, *, most=10_000):
        """Tick, then run up to `most` of the queued sessions, the oldest first."""
        self._ticker._next.clear()  # duties are due by the simulated clock
        self._ticker.tick(clock())
        queued = AgentSession.objects.filter(status=Status.QUEUED, mode=Mode.PHASED).order_by("pk")
        for pk in list(queued.values_list("pk", flat=True)[:most]):
            run_session(pk, walk, owner="worker")

    @property
    def is_at_rest(self):
        unfinished = AgentSession.objects.active().filter(mode=Mode.PHASED).exists()
        return not unfinished and not UnreadInput.objects.exists() and not ModelOutage.objects.exists()


@pytest.fixture
def day(monkeypatch, settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 10_000
    monkeypatch.setattr(metering.Meter, "_wait", lambda *_: None)
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 600)
    with time_machine.travel(NOW, tick=False) as moved:
        yield Day(moved)


def live_through(day, *, inputs, away, step, hours):
    """Let inputs arrive, the server go away in the middle and come back; work until everything is at rest."""
    server = Server(after=inputs // 2, away=away)
    Trigger.objects.filter(kind=TriggerKind.SCHEDULE).update(next_run_at=NOW - 10 * MINUTE, last_run_at=NOW - HOUR)
    with serving("offline", server):
        for number in range(inputs // 4):
            day.arrive(number)
            if number % 5 == 0:
                day.work(most=6)
                day.pass_time(300)
        Trigger.objects.filter(kind=TriggerKind.SCHEDULE).update(next_run_at=None)
        for _ in range(int(timedelta(hours=hours) / step)):
            day.work()
            if day.is_at_rest:
                break
            day.pass_time(step.total_seconds())
    return server


def check(day, server):
    assert day.is_at_rest
    assert server.refused, "the server was away"
    runs = AgentSession.objects.filter(mode=Mode.PHASED)
    # A run that did not read its input was followed by one that did; each firing was read once in the end.
    followed = set(runs.exclude(restarted_from=None).values_list("restarted_from_id", flat=True))
    ends = Counter(runs.exclude(pk__in=followed).values_list("status", flat=True))
    assert set(ends) == {Status.COMPLETED}
    for run in runs.exclude(pk__in=followed):
        assert not run.metadata.get("fault"), run
    answered = ToolCall.objects.filter(key="analysis:1", outcome=Outcome.SUCCESS)
    assert answered.count() == answered.values("session_id").distinct().count() == server.served
    names = Counter(answered.values_list("session__trigger__name", flat=True))
    assert {"watch", "event", "feed", "schedule-0"} <= set(names), names
    per_document = Counter(
        run.params["document"] for run in runs.exclude(pk__in=followed) if run.trigger_id == day.watch.pk
    )
    assert set(per_document.values()) == {1}
    # The books: the very tokens that the server gave, and nothing for what it refused.
    price = Decimal(INPUT * 3 + OUTPUT * 15) / 1_000_000  # of the offline model, per million
    assert runs.aggregate(total=Sum("cost_actual_usd"))["total"] == server.served * price
    tokens = InferenceLog.objects.aggregate(total=Sum("input_tokens") + Sum("output_tokens"))["total"]
    assert tokens == server.served * (INPUT + OUTPUT)
    assert verify_log().problems == []


OUTAGES = {
    "1 s": {"away": SECOND, "step": SECOND, "hours": 1},
    "10 s": {"away": 10 * SECOND, "step": SECOND, "hours": 1},
    "10 min": {"away": 10 * MINUTE, "step": MINUTE, "hours": 3},
    "5 h": {"away": 5 * HOUR, "step": 10 * MINUTE, "hours": 12},
}


@pytest.mark.parametrize(
    ("length", "inputs"), [("10 s", 8), *(pytest.param(length, 100, marks=pytest.mark.stress) for length in OUTAGES)]
)
def test_every_input_is_read_once_whatever_the_length_of_the_outage(day, length, inputs):
    server = live_through(day, inputs=inputs, **OUTAGES[length])
    check(day, server)
    assert not AgentSession.objects.exclude(restarted_from=None).exists(), "all runs went on where they were"


@pytest.mark.long
def test_inputs_of_runs_that_ran_out_of_patience_are_read_by_other_runs(day, settings):
    settings.LQOPS_MODEL_WAIT_HOURS = 1
    server = live_through(day, inputs=8, away=5 * HOUR, step=30 * MINUTE, hours=24)
    check(day, server)
    assert AgentSession.objects.exclude(restarted_from=None).exists()
