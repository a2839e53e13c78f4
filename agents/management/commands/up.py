"""`up`: set up the installation, then run all its processes until it is stopped.

Nothing starts unless the brakes pass their checks. `--check` does the same once, on a free port, runs one whole run
through the queue, and prints a JSON summary, also when it fails early.
"""

import io
import json
import os
import re
import secrets
import socket
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory
from django.db.migrations.executor import MigrationExecutor
from django.urls import reverse

from agents.accounts import FIRST_ADMIN, first_admin_create
from agents.conf import clock
from agents.exceptions import VersionsDiffer
from agents.guard import selftest
from agents.knowledge.playbooks import skills_load
from agents.management import summary_line
from agents.management.base import data_text, register_host
from agents.management.samples import samples_install, walk_once
from agents.management.supervisor import (
    ChildError,
    Stopped,
    Web,
    everything,
    load,
    open_socket,
    run_apart,
    stop_on_signals,
)
from agents.models import AgentSession
from agents.sessions.schema import require_no_other_version

HIGHEST_PORT = 65_535
STYLE_SHEET = re.compile(r'href="(/[^"]+\.css)"')
LINE = "-" * 72


@dataclass(frozen=True)
class Installed:
    """The installation as it was set up. With a failed check nothing was made."""

    checks: Sequence[selftest.Check]
    password: str = ""  # of the first admin, if it was created
    admin_hint: str = ""


class Command(BaseCommand):
    help = (
        "Starts lqops on this machine: migrates the database, checks the brakes, creates the first admin and sample "
        "agents, and runs the web process, the workers and the ticker until Ctrl-C."
    )
    _brakes: Mapping[str, str] = {}  # for the summary
    _admin_hint = ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on. Default: this machine only.")
        parser.add_argument(
            "--port", type=_port, default=8000, help="Port to listen on. Default: 8000; 0: a free port."
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="Do everything once on a free port, run one run, print JSON as the last line, and exit with 0 or 1.",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Print the summary of a check also when it fails early."""
        try:
            return super().execute(*args, **options)
        except Exception as error:
            if options["check"]:
                message = f"{error}" if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
                self._say(summary_line(error=message, database=connection.vendor, brakes=self._brakes))
            if isinstance(error, ImproperlyConfigured):
                raise CommandError(str(error)) from error
            raise

    def handle(self, *args: Any, **options: Any) -> None:
        stop_on_signals()
        try:
            if options["check"]:
                self._check()
            else:
                self._serve(_listen(options["host"], options["port"]))
        except Stopped:
            if options["check"]:
                raise CommandError("Stopped before the check was complete.") from None
            self.stdout.write("Stopped.")
        except ChildError as error:
            raise CommandError(str(error)) from error

    def _serve(self, listening: socket.socket) -> None:
        with listening:
            password = self._prepare()
            web = Web(listening)
            address = web.address.rstrip("/")
            settings.ADDRESS_FILE.write_text(address)  # other processes link to it
            if not os.environ.get("LQOPS_BASE_URL"):
                settings.LQOPS_BASE_URL = address  # the processes that are forked from this one link to it too
            try:
                with everything(web, say=self._say) as children:
                    web.wait_until_it_answers()
                    self._announce(web.address, password)
                    children.watch()
            finally:
                settings.ADDRESS_FILE.unlink(missing_ok=True)

    def _check(self) -> None:
        if self._prepare():  # the output of a check ends up in logs: no password in it
            self._say(f"Created the first admin; `manage.py changepassword {FIRST_ADMIN}` sets its password")
        listening = _listen("127.0.0.1", 0)
        web = Web(listening)
        with listening, everything(web, say=self._say) as children:
            web.wait_until_it_answers()
            pages = _fetch_pages(web)
            self._say("Running one run through the queue …")
            walk = walk_once(now=clock(), check=children.check)
        audit = _verify_audit()
        fault = _fault(walk, audit, pages)
        results = {"brakes": self._brakes, "walk": walk, "audit": audit, "pages": pages}
        self._say(summary_line(error=fault, database=connection.vendor, **results))
        if fault:
            raise SystemExit(1)

    def _prepare(self) -> str:
        """Set up the installation. Returns the first admin's password, if it was created."""
        self._say(data_text())
        load()
        found = run_apart(self._set_up)  # children share the memory of this process, and migrations take much
        self._brakes = {check.name: check.found for check in found.checks}
        if failed := [check for check in found.checks if not check.ok]:
            raise CommandError("Not started: " + "; ".join(f"{check.name}: {check.found}" for check in failed))
        self._admin_hint = found.admin_hint
        self._say("Starting the web process, the workers and the ticker …")
        return found.password

    def _set_up(self) -> Installed:
        self._say(self._migrate())
        register_host()
        checks = selftest.run_checks()
        passed = sum(check.ok for check in checks)
        self._say(f"Brakes: {passed} of {len(checks)} checks passed")
        if passed < len(checks):
            return Installed(checks)
        password = secrets.token_urlsafe(12)
        admin = first_admin_create(password=password, now=clock())
        hint = _existing_admin()
        skills_load(by=None, now=clock())
        if admin is not None:
            self._say(samples_install(admin, now=clock()))
        return Installed(checks, password if admin is not None else "", hint)

    def _migrate(self) -> str:
        try:
            executor = MigrationExecutor(connection)
            executor.loader.check_consistent_history(connection)
            last_ones = executor.loader.graph.leaf_nodes()
            missing = executor.migration_plan(last_ones)
            require_no_other_version(missing, say=self._say)
            if missing:
                self._say(f"Database: {connection.vendor}, {len(missing)} migrations to apply …")
                # Ours last: whatever alters users has all tables that refer to them drawn anew.
                executor.migrate([last for last in last_ones if last[0] != AgentSession._meta.app_label])
            call_command("migrate", interactive=False, verbosity=0)
        except VersionsDiffer as error:
            raise CommandError(str(error)) from error
        except InconsistentMigrationHistory as error:
            raise CommandError(
                f"The database was migrated by a version that this one does not know: {error} Start it once with a "
                "version in between, or restore a backup."
            ) from error
        except DatabaseError as error:
            raise CommandError(
                f"The database cannot be used: {str(error).strip()}. It is set by LQOPS_DATABASE_URL."
            ) from error
        return f"Database: {connection.vendor}, up to date"

    def _announce(self, address: str, password: str) -> None:
        lines = [f"lqops is running     {address}"]
        if password:
            change = address.rstrip("/") + reverse("admin:password_change")
            lines += [f"user                 {FIRST_ADMIN}"]
            lines += [f"password             {password}"]
            lines += [f"                     shown once; change it at {change}"]
        else:
            lines += [f"user                 {self._admin_hint}"]
        lines += ["stop                 Ctrl-C"]
        self._say("\n".join(["", LINE, *(f"  {line}" for line in lines), LINE]))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _existing_admin() -> str:
    """The admin of an earlier start, and how to set a new password."""
    names = list(
        User.objects.filter(is_superuser=True, is_active=True).order_by("pk").values_list("username", flat=True)
    )
    if not names:
        return "no active superuser; `manage.py createsuperuser` creates one"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}, created earlier; `manage.py changepassword {names[0]}` sets a new password"


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port. Use a number from 0 to {HIGHEST_PORT}.")
    return int(text)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return open_socket(host, port)
    except OSError as error:
        raise CommandError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port 8001, or with "
            "make run PORT=8001."
        ) from error


def _verify_audit() -> dict[str, Any]:
    printed = io.StringIO()
    try:
        call_command("verify_audit", "--json", stdout=printed, stderr=io.StringIO())
    except CommandError as error:
        return {"verified": False, "error": str(error)}
    except SystemExit:
        pass  # verification failed; the JSON has the details
    result: dict[str, Any] = json.loads(printed.getvalue())
    return result


def _fault(walk: Mapping[str, Any], audit: Mapping[str, Any], pages: Mapping[str, int]) -> str:
    """Describe what failed in a complete check; empty if nothing did."""
    faults = []
    if not walk["ok"]:
        faults.append(walk.get("error") or f"The run ended as {walk['status']} ({walk['terminal_reason']}).")
    if not audit["verified"]:
        faults.append(audit.get("error") or "The audit log does not verify.")
    if failed := [f"{path}: {status}" for path, status in pages.items() if status != 200]:  # noqa: PLR2004 HTTP's OK
        faults.append(f"Pages failed: {', '.join(failed)}.")
    return " ".join(faults)


def _fetch_pages(web: Web) -> dict[str, int]:
    """The HTTP status of the sign-in page and its style sheets, requested as a proxy would."""
    hosts = [host for host in settings.ALLOWED_HOSTS if host != "*"] or ["127.0.0.1"]
    headers = {"Host": hosts[0].lstrip("."), "X-Forwarded-Proto": "https"}
    login = reverse("account_login")
    status, text = web.get(login, headers=headers)
    return {login: status} | {path: web.get(path, headers=headers)[0] for path in STYLE_SHEET.findall(text)}
