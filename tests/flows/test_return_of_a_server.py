"""A real model server that goes away and comes back: work resumes soon after its return, however long it was away."""

import threading
from datetime import timedelta
from http.server import ThreadingHTTPServer

import pytest
import time_machine

from agents.conf import clock
from agents.enums import Outcome, Status, ToolIntent
from agents.guard import guarded_tool_call, metering
from agents.models import AgentSession, ModelOutage, ToolCall
from agents.policy.model_catalogue import GATED
from agents.runner import run_session
from agents.ticker import Ticker
from agents.types import Finished
from tests.agents.conftest import ask
from tests.factories import NOW, make_price, make_session, make_user
from tests.flows.model_server import ModelServer

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = "served"
STEP = timedelta(seconds=5)
SOON = timedelta(seconds=30)


class Server(ModelServer):
    """It can be switched off, so that its port refuses, and on again."""

    def __enter__(self):
        super().__enter__()
        self.port = self._server.server_port
        return self

    def off(self):
        super().__exit__()

    def on(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def _handler(self):
        handler = super()._handler()
        handler.do_GET = lambda request: (request.send_response(200), request.end_headers())
        return handler


@pytest.fixture
def time(monkeypatch):
    monkeypatch.setattr(metering.Meter, "_wait", lambda *_: None)
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 600)
    with time_machine.travel(NOW, tick=False) as moved:
        yield moved


@pytest.fixture
def server(settings):
    with Server() as one:
        url = f"http://127.0.0.1:{one.port}/v1"
        settings.LQOPS_MODELS = {MODEL: {"provider": "openai_compatible", "url": url, GATED: False}}
        make_price(MODEL)
        yield one


def engine(held):
    guarded_tool_call(held, ToolIntent.RUN_SKILL, {**ask(), "model": MODEL}, key="step:1")
    return Finished()


KEPT = {"try models that are away", "ask servers that are away"}


class Installation:
    """One ticker, and a worker that takes whatever is queued; both by the simulated clock."""

    def __init__(self, time):
        self._time = time
        self._ticker = Ticker()
        self._ticker._duties = tuple(duty for duty in self._ticker._duties if duty.name in KEPT)

    def pass_time(self):
        self._time.shift(STEP)
        self._ticker._next.clear()
        self._ticker._quiet_since = None  # SQLite does not tell a connection of its own writes
        self._ticker.tick(clock())
        for thread in threading.enumerate():
            if thread.name == "ping":
                thread.join(30)
        for pk in list(AgentSession.objects.filter(status=Status.QUEUED).order_by("pk").values_list("pk", flat=True)):
            run_session(pk, engine, owner="worker")


@pytest.mark.parametrize(
    "away",
    [
        timedelta(seconds=440),
        pytest.param(timedelta(hours=1), marks=pytest.mark.long),
        pytest.param(timedelta(hours=5), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_work_resumes_soon_after_the_return_of_its_server_however_long_it_was_away(time, server, away):
    server.off()
    first, second = (make_session(Status.QUEUED, owner=make_user()) for _ in range(2))
    installation = Installation(time)
    gone_until = clock() + away
    while clock() < gone_until:
        installation.pass_time()
    assert ModelOutage.objects.get().is_gone
    assert AgentSession.objects.filter(status=Status.WAITING, waiting_on="model").count() == 2
    assert ToolCall.objects.filter(outcome=Outcome.SUCCESS).count() == 0
    tries = ModelOutage.objects.get().tries
    assert tries <= 8 + away / timedelta(minutes=4), "the pauses of calls still grow"

    server.on()
    back_at = clock()
    while AgentSession.objects.filter(status=Status.COMPLETED).count() < 2 and clock() < back_at + 4 * SOON:
        installation.pass_time()

    assert AgentSession.objects.filter(pk__in=[first.pk, second.pk], status=Status.COMPLETED).count() == 2
    assert clock() - back_at <= SOON
    assert len(server.requests) == 2, "nothing but the runs has asked the model"
