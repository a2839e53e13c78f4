"""`tick`: run the ticker. Several may run; one at a time does the work."""

import signal
from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from agents.conf import clock
from agents.management.base import JsonCommand, data_text, register_host
from agents.process_end import SignalEvent
from agents.sessions.schema import require_allowed_version
from agents.ticker import Ticker


class Command(JsonCommand):
    help = (
        "Runs periodic work: fires triggers, wakes sessions, recovers lost ones, expires approvals, watches for idle "
        "runs, writes checkpoints. Run it beside the workers. Several may run; one at a time holds the lease."
    )
    json_help = "With --once: print one JSON object instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="Do the due work once, print what was done, and exit.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["once"]:
            self._once(options)
            return
        self.stdout.write(data_text())
        self.stdout.flush()
        register_host()
        over = SignalEvent()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        Ticker().run(over, every=settings.LQOPS_TICK_SECONDS)

    def _once(self, options: dict[str, Any]) -> None:
        require_allowed_version()
        ticker = Ticker()
        done = ticker.tick(clock())
        facts = {"ticked": done is not None, "done": done or {}, "data": str(settings.VAR_DIR)}
        if done is None:
            self.print(facts, f"{data_text()}\nAnother process holds the lease. Nothing was done.", options)
            return
        ticker.leave()
        text = "\n".join(f"{name}: {count}" for name, count in done.items()) or "Nothing was due."
        self.print(facts, f"{data_text()}\n{text}", options)
        if -1 in done.values():
            raise SystemExit(1)
