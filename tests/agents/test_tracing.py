"""What operators see of runs outside of lqops: log lines and spans, with ids and figures and without content."""

import gzip
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

import pytest

from agents import runner, tracing
from agents.enums import Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import AgentSession, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.types import Finished, Usage
from lqops.logs import JsonLine
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.factories import NOW, make_price, make_session
from tests.lqops.processes import environment, run_python

pytestmark = pytest.mark.django_db

CANARY = "canary-4711"


@pytest.fixture(autouse=True)
def _no_heartbeat_from_another_connection():
    with patch.object(runner, "lease_renewal_seconds", return_value=60):
        yield


@pytest.fixture
def lines(django_capture_on_commit_callbacks):
    """What the loggers of lqops write during a call of the fixture, as JSON lines."""

    def written_by(act):
        found = []
        handler = logging.Handler()
        handler.emit = lambda record: found.append(json.loads(JsonLine().format(record)))
        logging.getLogger("agents").addHandler(handler)
        try:
            with django_capture_on_commit_callbacks(execute=True):
                act()
        finally:
            logging.getLogger("agents").removeHandler(handler)
        return found

    logger = logging.getLogger("agents")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield written_by
    logger.setLevel(before)


def asking(session):
    guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(prompt=f"What of {CANARY}?"))
    return Finished()


def run(engine=asking):
    make_price(MODEL)
    session = make_session(status=Status.QUEUED, current_phase=Phase.TURN)
    assert run_session(session.pk, engine, owner="worker-1")
    return AgentSession.objects.get(pk=session.pk)


def test_start_end_and_model_failures_are_one_line_each(lines):
    failing = Step(error=ProviderError("the server is broken", fault=Fault.SERVER, contacted=False))
    with script(failing, Step("ok", usage=Usage(10, 10))), patch("agents.providers.base.wait_listening"):
        found = lines(run)

    session = AgentSession.objects.get()
    call = ToolCall.objects.get()
    assert {line["run_id"] for line in found} == {str(session.public_id)}
    failed = next(line for line in found if "failed try" in line["message"])
    assert (failed["level"], failed["call_id"]) == ("WARNING", str(call.public_id))
    assert f"model {MODEL} failed try 1: ProviderError: the server is broken" in failed["message"]
    about = f"run {session.public_id}"
    ends = [(line["level"], line["message"].removeprefix(about)) for line in found if line is not failed]
    cost = session.spent_usd
    assert ends == [
        ("INFO", " started: mode phased, trigger manual"),
        ("INFO", f" ended: status completed, reason completed, result ok, spent_usd {cost}"),
    ]


def test_failed_run_and_takeover_are_warnings(lines):
    def break_down(session):
        raise RuntimeError("broken")

    found = lines(lambda: run(break_down))
    assert [line["level"] for line in found if " ended: " in line["message"]] == ["WARNING"]

    lost = make_session(lease_until=NOW, started_at=NOW)
    found = lines(lambda: run_session(lost.pk, lambda _: Finished(), owner="worker-2"))
    assert (found[0]["level"], found[0]["message"]) == (
        "WARNING",
        f"run {lost.public_id} taken over from a lost worker: recoveries 1",
    )


# --- Spans ---


@pytest.fixture
def spans():
    """The spans that have ended, in order."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with patch.object(tracing, "_tracer", return_value=provider.get_tracer("lqops")):
        yield exporter.get_finished_spans


def test_run_and_its_calls_are_spans_without_content(spans):
    with script(Step(f"Reply with {CANARY}", usage=Usage(12, 5))):
        session = run()

    call, slice_ = spans()[-2:]
    row = ToolCall.objects.get()
    assert (call.name, slice_.name) == (f"chat {MODEL}", "invoke_agent")
    assert call.parent.span_id == slice_.context.span_id
    attributes = dict(call.attributes)
    assert attributes.pop("gen_ai.request.max_tokens") > 0
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": str(session.public_id),
        "gen_ai.tool.call.id": str(row.public_id),
        "gen_ai.request.model": MODEL,
        "gen_ai.provider.name": "scripted",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "lqops.attempts": 1,
        "lqops.intent": "run_skill",
        "lqops.phase": "turn",
        "lqops.outcome": "success",
        "lqops.cost_usd": float(row.charged_usd),
    }
    assert dict(slice_.attributes).items() >= {"lqops.outcome": "completed", "lqops.mode": "phased"}.items()
    assert CANARY not in "".join(span.to_json() for span in spans())


def test_failed_call_and_broken_run_are_marked_by_type_alone(spans):
    def act(session):
        with tool(probe=Probe(error=RuntimeError(CANARY))):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, {})
        raise RuntimeError(CANARY)

    run(act)

    call, slice_ = spans()[-2:]
    assert (call.name, call.attributes["error.type"]) == ("execute_tool send_letter", "error")
    assert call.attributes["gen_ai.tool.name"] == "send_letter"
    assert call.status.status_code.name == "ERROR"
    assert slice_.attributes["lqops.outcome"] == "worker_error"
    assert CANARY not in call.to_json() + slice_.to_json()

    with pytest.raises(KeyError), tracing.working_on("chat", run="r", attributes={}):
        raise KeyError(CANARY)
    assert spans()[-1].attributes["error.type"] == "KeyError"
    assert CANARY not in spans()[-1].to_json()


PROGRAM = """
import sys, django
django.setup()
from agents import tracing
with tracing.working_on("chat m", run="r", attributes={"gen_ai.request.model": "m"}):
    pass
print("opentelemetry" in sys.modules)
if tracing._tracer():
    from opentelemetry import trace
    provider = trace.get_tracer_provider()
    print(provider.resource.attributes["service.name"], provider.force_flush(5_000))
"""


@pytest.fixture
def collector():
    """The address of a collector, and what it has received."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_are_off_at_no_cost_and_sent_to_the_collector_when_on(tmp_path, collector):
    def printed(**more):
        done = run_python(PROGRAM, env=environment(tmp_path, DJANGO_SETTINGS_MODULE="lqops.settings", **more))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert printed() == ["False"]
    pytest.importorskip("opentelemetry")
    address, received = collector
    on = {"LQOPS_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_SERVICE_NAME": "ops"}
    assert printed(**on) == ["True", "ops True"]
    [(path, body)] = received
    assert path == "/v1/traces"
    assert b"gen_ai.request.model" in body
