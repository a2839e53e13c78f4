"""`sample_metrics`: the source of the sample agent that watches figures. Server-sent events on loopback, made up."""

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
PLACE_IN_SAMPLE: Final = f"{HOST}:8765"  # as the file of the sample agent has it
EVERY_SECONDS: Final = 10.0
SPIKE_EVERY: Final = 18  # events: one in three minutes
DIGITS: Final = 15
MOST_MISSED: Final = 100  # that are sent to whoever comes back later
RETRY_SECONDS: Final = 30.0
TAKEN: Final = (
    "Port {port} of this machine is taken: no figures are sent, and the sample agent reads whatever listens there. End "
    "that program; or set LQOPS_SAMPLE_METRICS_PORT to a free port, write the same port into the address of its "
    "sensor, and start again. It is tried again every {seconds:.0f} seconds."
)


def place() -> str:
    """Where the figures are sent in this installation."""
    return f"{HOST}:{settings.LQOPS_SAMPLE_METRICS_PORT}"


def url() -> str:
    return f"http://{place()}/metrics"


def figures(number: int) -> dict[str, int]:
    """The figures of one event: the same for the same number. Now and then there is a spike."""
    spike = number % SPIKE_EVERY == 0
    cpu = 96 if spike else round(40 + 15 * math.sin(number / 5))
    return {"latency_ms": 900 if spike else round(120 + 30 * math.cos(number / 7)), "cpu": cpu}


class Command(ActingCommand):
    help = (
        "Sends made-up figures as server-sent events on this machine, for the sample agent that watches them. `up` "
        "starts it by itself while that agent's loop runs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        port = settings.LQOPS_SAMPLE_METRICS_PORT
        parser.add_argument(
            "--port", type=int, default=port, help=f"Port to listen on, by default {port}; loopback only."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with self._listening(options["port"]) as server:
            server.daemon_threads = True
            self.stdout.write(f"Sends figures at http://{HOST}:{server.server_port}/metrics. Stop it with Ctrl-C.")
            self.stdout.flush()
            server.serve_forever()

    def _listening(self, port: int) -> ThreadingHTTPServer:
        """Waits for the port while somebody else has it, and says so once."""
        told = False
        while True:
            try:
                return ThreadingHTTPServer((HOST, port), Source)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise CommandError(f"Port {port} cannot be used: {error.strerror}.") from None
            if not told:
                self.stderr.write(TAKEN.format(port=port, seconds=RETRY_SECONDS))
                told = True
            time.sleep(RETRY_SECONDS)


class Source(BaseHTTPRequestHandler):
    """An event has its number for an id: whoever names the last one that it has seen is sent those that it missed."""

    every = EVERY_SECONDS

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        number, pause = self._last_seen(), threading.Event()
        try:
            while not pause.wait(self.every / 20):
                while number < self._number():
                    number += 1
                    self.wfile.write(f"id: {number}\ndata: {json.dumps(figures(number))}\n\n".encode())
        except OSError:
            return  # the listener has gone

    def _last_seen(self) -> int:
        said, latest = self.headers.get("Last-Event-ID", ""), self._number()
        if not said.isdecimal() or len(said) > DIGITS:
            return latest - 1
        return min(max(int(said), latest - MOST_MISSED), latest)

    def _number(self) -> int:
        return int(clock().timestamp() / self.every)

    def log_message(self, *_: Any) -> None:
        """Nothing: it is a sample."""
