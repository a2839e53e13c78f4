"""`sample_metrics`: the source of the sample agent that watches figures. Server-sent events on loopback, made up."""

import json
import math
import threading
from argparse import ArgumentParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from agents.conf import clock
from audit.management.base import ActingCommand

HOST: Final = "127.0.0.1"
PORT: Final = 8765
PLACE: Final = f"{HOST}:{PORT}"
URL: Final = f"http://{PLACE}/metrics"
EVERY_SECONDS: Final = 10.0
SPIKE_EVERY: Final = 18  # events: one in three minutes
DIGITS: Final = 15
MOST_MISSED: Final = 100  # that are sent to whoever comes back later


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
        parser.add_argument(
            "--port", type=int, default=PORT, help=f"Port to listen on, by default {PORT}; loopback only."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with ThreadingHTTPServer((HOST, options["port"]), Source) as server:
            server.daemon_threads = True
            self.stdout.write(f"Sends figures at http://{HOST}:{server.server_port}/metrics. Stop it with Ctrl-C.")
            self.stdout.flush()
            server.serve_forever()


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
