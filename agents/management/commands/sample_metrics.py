"""`sample_metrics`: invented metrics for the sample agent, as server-sent events on loopback."""

import errno
import json
import math
import threading
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
DIGITS: Final = 15
MOST_MISSED: Final = 100  # events that a reconnecting client is sent
RETRY_SECONDS: Final = 30.0
TAKEN: Final = (
    "Port {port} is taken: no metrics are sent, and the sample agent reads whatever listens there. Stop that program, "
    "or set LQOPS_SAMPLE_METRICS_PORT to a free port, use the same port in the address of the agent's sensor, and "
    "restart. Retrying every {seconds:.0f} seconds."
)


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
        with self._listening(options["port"]) as server:
            server.daemon_threads = True
            self.stdout.write(f"Sending metrics at http://{HOST}:{server.server_port}/metrics. Stop it with Ctrl-C.")
            self.stdout.flush()
            server.serve_forever()

    def _listening(self, port: int) -> ThreadingHTTPServer:
        """Wait for a taken port, and print so once."""
        is_reported = False
        while True:
            try:
                return ThreadingHTTPServer((HOST, port), Source)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise CommandError(f"Port {port} cannot be used: {error.strerror}.") from None
            if not is_reported:
                self.stderr.write(TAKEN.format(port=port, seconds=RETRY_SECONDS))
                is_reported = True
            time.sleep(RETRY_SECONDS)


class Source(BaseHTTPRequestHandler):
    """Event ids are consecutive numbers: a reconnecting client is sent the events that it missed."""

    every = EVERY_SECONDS

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number = self._last_seen()
        pause = threading.Event()
        try:
            while not pause.wait(self.every / 20):
                while number < self._number():
                    number += 1
                    self.wfile.write(f"id: {number}\ndata: {json.dumps(figures(number))}\n\n".encode())
        except OSError:
            return  # the client disconnected

    def _last_seen(self) -> int:
        last = self.headers.get("Last-Event-ID", "")
        latest = self._number()
        if not last.isdecimal() or len(last) > DIGITS:
            return latest - 1
        return min(max(int(last), latest - MOST_MISSED), latest)

    def _number(self) -> int:
        return int(clock().timestamp() / self.every)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
