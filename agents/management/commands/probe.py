"""`probe`: whether lqops works on this host, for the probes of containers and services without a web process."""

import json
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from agents.conf import clock
from agents.database_clock import shared
from agents.models import Host
from agents.sessions.faults import host_name
from agents.sessions.schema import missing_migrations, newer_migrations

SILENT: Final = timedelta(seconds=60)  # a process of lqops reports its host several times a minute


class Command(BaseCommand):
    help = (
        "Exit code 0 if lqops works on this host: the database answers and fits this version, and `work`, `up` or a "
        "web process of this host has reported within a minute. Else 1, with the reason. `/healthz` and `/readyz` do "
        "the same for a web process."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of text.")

    def handle(self, *args: Any, **options: Any) -> None:
        problem = _problem()
        if options["json"]:
            self.stdout.write(json.dumps({"ok": not problem, "host": host_name(), "problem": problem or None}))
        if problem:
            raise CommandError(problem)
        if not options["json"]:
            self.stdout.write(f"lqops works on host {host_name()}.")


def _problem() -> str:
    try:
        if missing := missing_migrations():
            return f"The database lacks migrations: run `manage.py migrate`. Missing: {', '.join(missing)}."
        if newer := newer_migrations():
            return f"A newer version of lqops has migrated the database: start that version. New: {', '.join(newer)}."
        seen_at = Host.objects.filter(name=host_name()).values_list("seen_at", flat=True).first()
    except DatabaseError as error:
        return f"The database does not answer: {str(error).strip().partition(chr(10))[0]}"
    if seen_at is None:
        return f"Host {host_name()} has never reported: `manage.py work` does not run here."
    silent = shared(clock()) - seen_at
    if silent > SILENT:
        return (
            f"Host {host_name()} has not reported for {silent.total_seconds():.0f} seconds: `manage.py work` is down."
        )
    return ""
