"""`work`: the queue's workers and a ticker under one supervisor, for machines that serve no pages."""

import signal
from argparse import ArgumentParser
from typing import Any

from django.db import connection

from agents.management.supervisor import without_web
from audit.management.base import ActingCommand


class _Stop(BaseException):
    """Somebody asked for the end."""


class Command(ActingCommand):
    help = (
        "Runs the queue's workers and a ticker until it is stopped, and starts them again when they end or get stuck. "
        "Run it on as many machines as you like over one PostgreSQL; one ticker at a time holds the duty."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-ticker", action="store_true", help="Run the workers only.")

    def handle(self, *args: Any, **options: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            with without_web(say=self._say, ticker=not options["no_ticker"]) as children:
                connection.close()
                self._say("The workers are running. Stop them with Ctrl-C.")
                children.watch()
        except _Stop:
            self._say("Stopped.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _stop(number: int, frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise _Stop
