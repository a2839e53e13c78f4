"""`doctor`: proves that the brakes refuse, and says what else keeps this installation from working safely."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.doctor import diagnose
from agents.ledger.boundary import halt_told
from agents.models import Installation
from audit.management.base import BriefCommand


class Command(BriefCommand):
    help = (
        "Calls the guard on a throw-away session with a probe in place of a handler and proves that each brake "
        "refuses; then looks at the database, the record and the models, and says so if all work is halted. Leaves no "
        "row behind. Exit code 1 when something is wrong; a halt is not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        checks = diagnose()
        failed = [check for check in checks if not check.ok]
        halted = _halted() if checks[0].ok else ""  # the first is whether the database is migrated
        if options["json"]:
            found = [{"name": check.name, "ok": check.ok, "found": check.found} for check in checks]
            self.stdout.write(json.dumps({"ok": not failed, "checks": found, "halted": halted or None}))
        else:
            for check in checks:
                mark = self.style.SUCCESS("ok  ") if check.ok else self.style.ERROR("FAIL")
                self.stdout.write(f"{mark} {check.name}" + ("" if check.ok else f": {check.found}"))
            if halted:
                self.stdout.write(f"{self.style.WARNING('note')} {halted} `manage.py release` lets work start again.")
        if failed:
            braked = " While a brake fails, workers do not start." if any(check.brake for check in failed) else ""
            raise CommandError(f"{len(failed)} of {len(checks)} checks failed.{braked}")


def _halted() -> str:
    found = Installation.objects.select_related("halt__requested_by").filter(pk=1).first()
    return halt_told(found.halt) if found and found.halt else ""
