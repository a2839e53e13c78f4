"""`sample_metrics`: invented metrics for the sample agent, as server-sent events on loopback."""

import json
import math
import time
from argparse import ArgumentParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError

from agents.conf import clock
from audit.management.base import ActingCommand

HOST: Final = "127.0.0.1"
PLACE_IN_SAMPLE: Final = f"{HOST}:8765"  # as in the file of the sample agent
EVERY_SECONDS: Final = 10.0
SPIKE_EVERY: Final = 18  # events: one in three minutes


def place() -> str:
    """Host and port of the metrics."""
    return f"{HOST}:{settings.LQOPS_SAMPLE_METRICS_PORT}"


def url() -> str:
    return f"http://{place()}/metrics"


def figures(number: int) -> dict[str, int]:
    """The metrics of one event: the same for the same number, with a spike now and then."""
    spike = number % SPIKE_EVERY == 0
    cpu = 96 if spike else round(40 + 15 * math.sin(number / 5))
    return {"latency_ms": 900 if spike else round(120 + 30 * math.cos(number / 7)), "cpu": cpu}


class Command(ActingCommand):
    help = (
        "Sends invented metrics as server-sent events on this machine, for the sample agent. `up` starts it "
        "automatically while that agent's loop runs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        port = settings.LQOPS_SAMPLE_METRICS_PORT
        parser.add_argument(
            "--port", type=int, default=port, help=f"Port to listen on, loopback only. Default: {port}."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        port = options["port"]
        try:
            server = ThreadingHTTPServer((HOST, port), Source)
        except OSError as error:
            raise CommandError(
                f"Port {port} cannot be used: {error.strerror}. No metrics are sent. Stop the program that uses it, or "
                "set LQOPS_SAMPLE_METRICS_PORT to a free port, also in the address of the agent's sensor, and restart."
            ) from None
        with server:
            server.daemon_threads = True
            self.stdout.write(f"Sending metrics at http://{HOST}:{server.server_port}/metrics. Stop it with Ctrl-C.")
            self.stdout.flush()
            server.serve_forever()


class Source(BaseHTTPRequestHandler):
    """The latest metrics, then new ones. Event ids are consecutive numbers."""

    every = EVERY_SECONDS

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = self._latest() - 1
        try:
            while True:
                while number < self._latest():
                    number += 1
                    self.wfile.write(f"id: {number}\ndata: {json.dumps(figures(number))}\n\n".encode())
                time.sleep(self.every / 20)
        except OSError:
            return  # the client disconnected

    def _latest(self) -> int:
        return int(clock().timestamp() / self.every)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
