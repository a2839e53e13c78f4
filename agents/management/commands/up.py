"""`manage.py up`: everything that a new installation needs, in order, and then the web process until it is stopped.

It starts nothing that has not proven its brakes. `--check` does the same once, on a free port, and reports as JSON.
"""

import io
import json
import re
import secrets
import signal
import socket
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.urls import reverse

from agents import selftest
from agents.conf import clock
from agents.management.web import WebError, WebProcess, open_socket
from agents.services.people import FIRST_ADMIN, first_admin_create

HIGHEST_PORT = 65_535
STYLE_SHEET = re.compile(r'href="(/[^"]+\.css)"')
LINE = "-" * 72


class _Stop(BaseException):
    """Somebody pressed Ctrl-C, or the process manager asked for the end."""


class Command(BaseCommand):
    help = (
        "Starts lqops on this machine: brings the database up to date, makes the first admin, proves the brakes, and "
        "serves the web pages until Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on; by default this machine only")
        parser.add_argument(
            "--port", type=_port, default=8000, help="port to listen on (default 8000; 0 picks a free one)"
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="do everything once on a free port, print a JSON summary as the last line, and exit with 0 or 1",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _stop)
        try:
            if options["check"]:
                self._check()
            else:
                self._serve(_listen(options["host"], options["port"]))
        except _Stop:
            self.stdout.write("Stopped.")
        except WebError as error:
            raise CommandError(str(error)) from error

    def _serve(self, listening: socket.socket) -> None:
        self._say(self._migrate())
        failed = [check for check in self._prove_brakes() if not check.ok]
        if failed:
            raise CommandError("Not started: " + "; ".join(f"{check.name}: {check.found}" for check in failed))
        connection.close()
        self._say("Starting the web process …")
        with _web(listening) as web:
            web.wait_until_it_answers()
            self._announce(web.address)
            web.wait()

    def _check(self) -> None:
        self._say(self._migrate())
        brakes = self._prove_brakes()
        audit = _verify_audit()
        connection.close()
        self._say("Starting the web process …")
        with _web(_listen("127.0.0.1", 0)) as web:
            web.wait_until_it_answers()
            pages = _fetch_pages(web)
        summary = {
            "ok": all(check.ok for check in brakes) and audit["verified"] and set(pages.values()) == {200},
            "database": connection.vendor,
            "brakes": {check.name: check.found for check in brakes},
            "audit": audit,
            "pages": pages,
        }
        self._say(json.dumps(summary))
        if not summary["ok"]:
            raise SystemExit(1)

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

    def _announce(self, address: str) -> None:
        password = secrets.token_urlsafe(12)
        made = first_admin_create(password=password, now=clock())
        connection.close()
        lines = [f"lqops is running     {address}"]
        if made is not None:
            change = address.rstrip("/") + reverse("admin:password_change")
            lines += [f"user                 {FIRST_ADMIN}"]
            lines += [f"password             {password}"]
            lines += [f"                     shown this once; change it at {change}"]
        else:
            lines += ["user                 exists already; `manage.py changepassword <user>` sets a new password"]
        lines += ["stop                 Ctrl-C"]
        self._say("\n".join(["", LINE, *(f"  {line}" for line in lines), LINE]))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _stop(number: int, frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # once is enough: what follows has time limits of its own
    raise _Stop


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port: use a number from 0 to {HIGHEST_PORT}.")
    return int(text)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return open_socket(host, port)
    except OSError as error:
        raise CommandError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from error


def _web(listening: socket.socket) -> WebProcess:
    module, _, name = str(settings.ASGI_APPLICATION).rpartition(".")
    return WebProcess(listening, f"{module}:{name}", root=settings.BASE_DIR)


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


def _fetch_pages(web: WebProcess) -> dict[str, int]:
    """The sign-in page and its style sheets, asked for as the proxy in front would ask."""
    hosts = [host for host in settings.ALLOWED_HOSTS if host != "*"] or ["127.0.0.1"]
    headers = {"Host": hosts[0].lstrip("."), "X-Forwarded-Proto": "https"}
    login = reverse("admin:login")
    status, text = web.get(login, headers=headers)
    return {login: status} | {path: web.get(path, headers=headers)[0] for path in STYLE_SHEET.findall(text)}
