"""`work`: workers and a ticker under one supervisor, for machines without a web process."""

from argparse import ArgumentParser
from typing import Any

from django.db import connection

from agents.management.base import data_text, register_host
from agents.management.supervisor import Stopped, stop_on_signals, without_web
from agents.ticker import StandIn
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Runs the workers and a ticker until it is stopped, and restarts them when they end or get stuck. It may run "
        "on any number of machines with one PostgreSQL; one ticker at a time holds the lease."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-ticker", action="store_true", help="Runs the workers only.")

    def handle(self, *args: Any, **options: Any) -> None:
        self._say(data_text())
        register_host()
        stop_on_signals()
        StandIn().start()
        try:
            with without_web(say=self._say, ticker=not options["no_ticker"]) as children:
                connection.close()
                self._say("The workers are running. Stop them with Ctrl-C.")
                children.watch()
        except Stopped:
            self._say("Stopped.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
