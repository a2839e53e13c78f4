"""`tick`: does what is due until it is stopped. Several may run; one of them at a time does the work."""

import json
import signal
from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from agents.conf import clock
from agents.process_end import Asked
from agents.ticker import Ticker
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Does what is due: fires triggers, wakes sessions, takes over lost ones, expires approvals, watches for idle "
        "runs, writes checkpoints. Run it beside the workers; several may run, and one at a time holds the duty."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="Do what is due now, say what it was, and end.")
        parser.add_argument("--json", action="store_true", help="With --once: one JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            self._once(as_json=options["json"])
            return
        over = Asked()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        Ticker().run(over, every=settings.LQOPS_TICK_SECONDS)

    def _once(self, *, as_json: bool) -> None:
        ticker = Ticker()
        done = ticker.tick(clock())
        if done is None:
            said = {"ticked": False, "done": {}}
            line = "Another process holds the duty; nothing was done."
        else:
            ticker.leave()
            said = {"ticked": True, "done": done}
            line = "\n".join(f"{name}: {count}" for name, count in done.items()) or "Nothing was due."
        self.stdout.write(json.dumps(said) if as_json else line)
        if done is not None and -1 in done.values():
            raise SystemExit(1)
