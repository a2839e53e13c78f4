"""The sample agents with sensors: their readings arrive, and the offline model notifies their owner."""

import os
import re
import socket
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.conf import clock
from agents.definitions.loader import read_definition
from agents.enums import Status
from agents.ledger.prices import invalidate_estimates
from agents.loop.cycle import run_loop as engine
from agents.management.commands.sample_metrics import PLACE_IN_SAMPLE, SPIKE_EVERY, Source, figures, place, url
from agents.management.samples import samples_install
from agents.models import Agent, AgentSession, Alert, HotField, Notification, Turn
from agents.roster.files import agent_import
from agents.roster.loops import loop_start
from agents.runner import run_session
from agents.sessions.leases import sleepers_wake
from tests.agents.sensors.scene import running_slice
from tests.factories import make_user
from tests.flows.processes import until

ROOT = Path(__file__).resolve().parents[3]


def sample(name):
    return (ROOT / "samples" / "agents" / f"{name}.yaml").read_text(encoding="utf-8")


def begin(text):
    """Import an agent from a file, start its loop and run its first turn."""
    owner = make_user()
    text = text.replace("autonomy:\n", "autonomy:\n  start: at_once\n")
    agent = agent_import(text=text, file="agent.yaml", owner=owner, by=owner, now=clock()).agent
    loop = loop_start(agent=agent, by=owner, now=clock())
    turn(loop)
    return loop


def turn(loop):
    assert run_session(loop.pk, engine, owner="worker:1")
    loop.refresh_from_db()


def alerted(loop):
    """Wait for an alert to wake the loop, and run its turn."""
    until(lambda: Alert.objects.filter(session=loop).exists())
    until(lambda: AgentSession.objects.get(pk=loop.pk).status == Status.QUEUED)
    turn(loop)


@pytest.fixture(autouse=True)
def _fresh_estimates():
    invalidate_estimates()
    yield
    invalidate_estimates()


@pytest.fixture
def source():
    """The sample's source, ten times as fast, with a spike soon."""

    class Quick(Source):
        every = 0.1

        def _number(self):
            return super()._number() - start + SPIKE_EVERY - 3

    start = int(clock().timestamp() / Quick.every)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Quick)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_metrics_watcher_wakes_on_a_spike_and_notifies_its_owner(source):
    loop = begin(sample("metrics-watcher").replace(url(), source))
    assert loop.status == Status.SLEEPING
    with running_slice():
        alerted(loop)

    [notice] = Notification.objects.filter(owner=loop.owner)
    assert notice.title == "1 alert for the agent"
    assert "spike scored 1.00" in notice.body
    assert '"cpu' in notice.body
    assert loop.status == Status.SLEEPING
    assert set(HotField.objects.filter(session=loop).values_list("name", flat=True)) == {"cpu", "latency_ms", "recent"}
    assert not Alert.objects.pending().filter(session=loop).exists()
    assert [one.yielded for one in Turn.objects.filter(session=loop).order_by("number")] == ["sleep", "sleep"]


@pytest.mark.django_db(transaction=True)
def test_inbox_clerk_notifies_its_owner_of_a_file(tmp_path):
    (tmp_path / "inbox").mkdir()
    loop = begin(sample("inbox-clerk"))
    with running_slice():
        until(lambda: HotField.objects.filter(session=loop, name="inbox").exists())
        (tmp_path / "inbox" / "letter.txt").write_text("Dear all,")
        alerted(loop)

    [notice] = Notification.objects.filter(owner=loop.owner)
    assert "letter.txt" in notice.body
    assert sleepers_wake(clock()) == 0


def test_sample_figures_are_deterministic_and_spike_sometimes():
    seen = [figures(number)["cpu"] for number in range(1, 4 * SPIKE_EVERY)]

    assert seen == [figures(number)["cpu"] for number in range(1, 4 * SPIKE_EVERY)]
    assert [number for number, cpu in enumerate(seen, 1) if cpu > 90] == [SPIKE_EVERY, 2 * SPIKE_EVERY, 3 * SPIKE_EVERY]


def test_sample_listens_to_the_address_of_the_sample_source():
    [sensor] = read_definition(sample("metrics-watcher")).sensors

    assert sensor.source.url == url()
    assert place() == PLACE_IN_SAMPLE


@pytest.mark.django_db(transaction=True)
def test_sample_agent_uses_the_configured_port(settings):
    settings.LQOPS_SAMPLE_METRICS_PORT = 9123
    samples_install(make_user(), now=clock())

    agent = Agent.objects.get(name="Metrics watcher")
    assert agent.sensors.get().config["source"]["url"] == url() == "http://127.0.0.1:9123/metrics"


def test_sample_source_reports_a_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"Port {port} cannot be used: .*LQOPS_SAMPLE_METRICS_PORT"):
            call_command("sample_metrics", "--port", str(port))


def test_sample_source_command_sends_events():
    process = subprocess.Popen(
        [sys.executable, "manage.py", "sample_metrics", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(re.search(r":(\d+)/metrics", process.stdout.readline())[1])
        latest = int(clock().timestamp() / Source.every)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            said = b""
            while b"data: " not in said:
                said += connection.recv(65_536)
    finally:
        process.kill()
        process.communicate()

    assert b"text/event-stream" in said
    assert int(re.search(rb"id: (\d+)", said)[1]) >= latest
