"""`migrate`: Django's, which here refuses beside running hosts of a version that the migrations do not allow."""

from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate

from agents.exceptions import VersionsDiffer
from agents.sessions.schema import overriding


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--force",
            action="store_true",
            help="Migrates although hosts are running whose version the migrations do not allow. Their runs in hand "
            "may fail with worker_error and stay failed. The audit log names the hosts.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        forced = options.pop("force")
        try:
            with overriding() if forced else nullcontext():
                super().handle(*args, **options)
        except VersionsDiffer as error:
            raise CommandError(str(error)) from error
