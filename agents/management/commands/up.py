"""`manage.py up`: everything that a new installation needs, in order, and then all its parts until it is stopped.

It starts nothing that has not proven its brakes. `--check` does the same once, on a free port, runs one whole walk
through the real queue, and reports as JSON, also when it fails before its end.
"""

import io
import json
import re
import secrets
import signal
import socket
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.urls import reverse

from agents.accounts import FIRST_ADMIN, first_admin_create
from agents.conf import clock
from agents.guard import selftest
from agents.knowledge.playbooks import skills_load
from agents.management.samples import samples_install, walk_once
from agents.management.summary import fault_of, summary_line
from agents.management.supervisor import ChildError, Web, everything, open_socket
from audit.management.base import BriefCommand

HIGHEST_PORT = 65_535
STYLE_SHEET = re.compile(r'href="(/[^"]+\.css)"')
LINE = "-" * 72


class _Stop(BaseException):
    """Somebody pressed Ctrl-C, or the process manager asked for the end."""


class Command(BriefCommand):
    help = (
        "Starts lqops on this machine: brings the database up to date, proves the brakes, makes the first admin and "
        "sample agents, and runs the web process, the workers and the ticker until Ctrl-C."
    )
    _checks: Sequence[selftest.Check] = ()
    _known = ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on; by default this machine only")
        parser.add_argument(
            "--port", type=_port, default=8000, help="port to listen on (default 8000; 0 picks a free one)"
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="do everything once on a free port, run a whole walk, print JSON as the last line, exit with 0 or 1",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Whatever keeps a check from its end is its summary, too; the words go to stderr as well."""
        try:
            return super().execute(*args, **options)
        except Exception as error:
            if options["check"]:
                told = f"{error}" if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
                self._say(summary_line(error=told, database=connection.vendor, brakes=self._brakes()))
            if isinstance(error, ImproperlyConfigured):
                raise CommandError(str(error)) from error
            raise

    def handle(self, *args: Any, **options: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            if options["check"]:
                self._check()
            else:
                self._serve(_listen(options["host"], options["port"]))
        except _Stop:
            if options["check"]:
                raise CommandError("Stopped before the check had come to its end.") from None
            self.stdout.write("Stopped.")
        except ChildError as error:
            raise CommandError(str(error)) from error

    def _serve(self, listening: socket.socket) -> None:
        with listening:
            password = self._prepare()
            web = Web(listening)
            with everything(web, say=self._say) as children:
                web.wait_until_it_answers()
                self._announce(web.address, password)
                children.watch()

    def _check(self) -> None:
        if self._prepare():  # what a check prints is kept in logs: it holds no password
            self._say(f"The first admin was made; `manage.py changepassword {FIRST_ADMIN}` gives it a password")
        listening = _listen("127.0.0.1", 0)
        web = Web(listening)
        with listening, everything(web, say=self._say) as children:
            web.wait_until_it_answers()
            pages = _fetch_pages(web)
            self._say("Running one walk through the queue …")
            walked = walk_once(now=clock(), look=children.look)
        audit = _verify_audit()
        fault = fault_of(walked, audit, pages)
        found: dict[str, Any] = {"brakes": self._brakes(), "walk": walked, "audit": audit, "pages": pages}
        self._say(summary_line(error=fault, database=connection.vendor, **found))
        if fault:
            raise SystemExit(1)

    def _brakes(self) -> dict[str, str]:
        return {check.name: check.found for check in self._checks}

    def _prepare(self) -> str:
        """Everything that has to be there before anything runs. The first admin's password, if one was made."""
        self._say(self._migrate())
        self._checks = self._prove_brakes()
        failed = [check for check in self._checks if not check.ok]
        if failed:
            raise CommandError("Not started: " + "; ".join(f"{check.name}: {check.found}" for check in failed))
        password = secrets.token_urlsafe(12)
        made = first_admin_create(password=password, now=clock())
        self._known = _known_admin()
        skills_load(by=None, now=clock())
        if made is not None:
            self._say(samples_install(made, now=clock()))
        connection.close()
        self._say("Starting the web process, the workers and the ticker …")
        return password if made is not None else ""

    def _migrate(self) -> str:
        try:
            executor = MigrationExecutor(connection)
            missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
            if missing:
                self._say(f"Database: {connection.vendor}, {len(missing)} migrations to apply …")
            call_command("migrate", interactive=False, verbosity=0)
        except DatabaseError as error:
            raise CommandError(
                f"The database cannot be used: {str(error).strip()}. LQOPS_DATABASE_URL says which one it is."
            ) from error
        return f"Database: {connection.vendor}, up to date"

    def _prove_brakes(self) -> list[selftest.Check]:
        checks = selftest.run_checks()
        self._say(f"Brakes: {sum(check.ok for check in checks)} of {len(checks)} checks passed")
        return checks

    def _announce(self, address: str, password: str) -> None:
        lines = [f"lqops is running     {address}"]
        if password:
            change = address.rstrip("/") + reverse("admin:password_change")
            lines += [f"user                 {FIRST_ADMIN}"]
            lines += [f"password             {password}"]
            lines += [f"                     shown this once; change it at {change}"]
        else:
            lines += [f"user                 {self._known}"]
        lines += ["stop                 Ctrl-C"]
        self._say("\n".join(["", LINE, *(f"  {line}" for line in lines), LINE]))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _stop(number: int, frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # once is enough: what follows has time limits of its own
    raise _Stop


def _known_admin() -> str:
    """Who can sign in from an earlier start, and what to do without the password."""
    names = list(
        User.objects.filter(is_superuser=True, is_active=True).order_by("pk").values_list("username", flat=True)
    )
    if not names:
        return "no active superuser; `manage.py createsuperuser` makes one"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}, from before; `manage.py changepassword {names[0]}` sets a new password"


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port: use a number from 0 to {HIGHEST_PORT}.")
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
        pass  # tampering: the summary says what was found
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def _fetch_pages(web: Web) -> dict[str, int]:
    """The sign-in page and its style sheets, asked for as the proxy in front would ask."""
    hosts = [host for host in settings.ALLOWED_HOSTS if host != "*"] or ["127.0.0.1"]
    headers = {"Host": hosts[0].lstrip("."), "X-Forwarded-Proto": "https"}
    login = reverse("admin:login")
    status, text = web.get(login, headers=headers)
    return {login: status} | {path: web.get(path, headers=headers)[0] for path in STYLE_SHEET.findall(text)}
