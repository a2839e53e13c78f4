"""`doctor`: check that the brakes work and that the installation is safe."""

import json
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agents.checks.doctor import diagnose, warnings
from agents.guard.selftest import AS_IT_SHOULD_BE, Check
from agents.ledger.boundary import halt_message
from agents.management.base import data_text
from agents.models import Installation


class Command(BaseCommand):
    help = (
        "Calls the guard on a temporary session, with a probe as its handler, and proves that each brake refuses. "
        "Then checks the database, the audit log, the models and what isolated skills are kept from, and prints "
        "whether all work is halted. Leaves no row behind. Exit code 1 if a check fails; a halt and a warning are no "
        "failures."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of text.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["json"]:
            self.stdout.write(data_text())
        checks = diagnose()
        failed = [check for check in checks if not check.ok]
        is_migrated = checks[0].ok
        halted = _halted() if is_migrated else ""
        warned = warnings() if is_migrated else []
        if options["json"]:
            found = [{"name": check.name, "ok": check.ok, "found": check.found, "note": check.note} for check in checks]
            facts = {"ok": not failed, "checks": found, "halted": halted or None, "warnings": warned}
            unused = None if settings.UNUSED_DATA_DIR is None else str(settings.UNUSED_DATA_DIR)
            self.stdout.write(json.dumps({**facts, "data": str(settings.VAR_DIR), "unused_data": unused}))
        else:
            for check in checks:
                self.stdout.write(f"{self._mark(check)} {check.name}" + _remark(check))
            for warning in warned:
                self.stdout.write(f"{self.style.WARNING('warn')} {warning}")
            if halted:
                self.stdout.write(f"{self.style.WARNING('note')} {halted} `manage.py release` lets work start again.")
        if failed:
            brake = " Workers do not start while a brake fails." if any(check.brake for check in failed) else ""
            raise CommandError(f"{len(failed)} of {len(checks)} checks failed.{brake}")

    def _mark(self, check: Check) -> str:
        if not check.ok:
            return self.style.ERROR("FAIL")
        return self.style.WARNING("note") if check.note else self.style.SUCCESS("ok  ")


def _remark(check: Check) -> str:
    return "" if check.found == AS_IT_SHOULD_BE else f": {check.found}"


def _halted() -> str:
    installation = Installation.objects.select_related("halt__requested_by").filter(pk=1).first()
    return halt_message(installation.halt) if installation and installation.halt else ""
