"""How much longer the pages and lists take with a million rows than with ten thousand.

`python -m tests.benchmarks.pages [--small 10000] [--large 1000000] [--rounds 7]` on the server of LQOPS_DATABASE_URL,
with two databases beside its own, or on SQLite with two files in build/. They are made and filled at the first run and
stay there. Two processes answer in turn, one from each database, so that both are measured in the same minute.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")

PAGES = {
    "home": "/admin/",
    "charts": "/admin/charts/",
    "runs": "/admin/agents/agentsession/",
    "runs.search": "/admin/agents/agentsession/?q=0a1b2c3d",
    "runs.words": "/admin/agents/agentsession/?q=quarterly",
    "runs.failed": "/admin/agents/agentsession/?run_result__exact=failed",
    "findings": "/admin/agents/finding/",
    "approvals": "/admin/agents/approval/",
    "questions": "/admin/agents/question/",
    "documents": "/admin/agents/document/",
    "agents": "/admin/agents/agent/",
    "triggers": "/admin/agents/trigger/",
    "notifications": "/admin/agents/notification/",
    "memories": "/admin/agents/memory/",
    "inputs": "/admin/agents/unreadinput/",
    "audit": "/admin/audit/auditevent/",
    "api.sessions": "/api/v1/sessions",
    "api.sessions.by_status": "/api/v1/sessions?status=completed",
    "api.sessions.failed": "/api/v1/sessions?status=failed",
    "api.tool_calls": "/api/v1/tool-calls",
    "api.findings": "/api/v1/findings",
    "api.approvals": "/api/v1/approvals",
    "api.documents": "/api/v1/documents",
    "api.events": "/api/v1/events",
    "api.memories": "/api/v1/memories",
    "api.notifications": "/api/v1/notifications",
    "api.triggers": "/api/v1/triggers",
    "api.agents": "/api/v1/agents",
    "api.chats": "/api/v1/chats",
    "api.unread_inputs": "/api/v1/unread-inputs",
}
SECONDS_APART = (
    8.64  # ten thousand a day, back from now: a month of a busy installation lies in the range of the charts
)
OF_ITS_TIME = {"created_at", "at", "started_at", "completed_at", "resolved_at", "settled_at"}
A_FULL_PAGE = 200  # rows that there are at least, so that no page of the small database is shorter
# A tenth or a hundredth as many rows as there are runs.
FEWER = {
    "Document": 10,
    "Approval": 10,
    "Question": 10,
    "Memory": 10,
    "UnreadInput": 100,
    "Agent": 1_000,
    "Trigger": 1_000,
}
GROWN = (
    "AgentSession", "ToolCall", "Finding", "InferenceLog", "Notification", "InboundEvent", "AgentEvent", "Document",
    "Approval", "Question", "Memory", "UnreadInput", "Agent", "Trigger",
)  # fmt: skip
ENDED = {"status": "completed", "run_result": "ok", "terminal_reason": "completed"}


def fill(rows: int) -> None:
    """Make one row of everything, and many copies of each with ids, keys and times of their own."""
    from django.apps import apps
    from django.db import connection, transaction

    from agents.enums import ApprovalStatus
    from agents.models import AgentSession, Approval, Question
    from audit.models import AuditEvent
    from tests.agents.admin.rows import make_everything
    from tests.factories import NOW

    if AgentSession.objects.count() >= rows:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        made = make_everything()
        AgentSession.objects.filter(pk=made.session.pk).update(**ENDED, completed_at=NOW)
        Approval.objects.update(
            status=ApprovalStatus.APPROVED, resolved_at=NOW, resolved_by=made.session.owner, consumed_at=NOW
        )
        Question.objects.update(status="answered", answered_at=NOW)
        for name in GROWN:
            model = apps.get_model("agents", name)
            cursor.execute(_copies(model, max(rows // FEWER.get(name, 1), A_FULL_PAGE), rows))
        cursor.execute(_copies(AuditEvent, rows, rows))
    if connection.vendor == "postgresql":  # it does so by itself, in time; nothing of lqops does so on SQLite
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def _copies(model: Any, copies: int, sessions: int) -> str:
    """Return the statement that multiplies the newest row of a table."""
    from django.db import connection, models

    from agents.models import AgentSession

    lite = connection.vendor == "sqlite"
    numbers = (
        f"(WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < {copies}) SELECT n FROM k) k"
        if lite
        else f"generate_series(1, {copies}) k(n)"
    )
    own = {name for constraint in model._meta.total_unique_constraints for name in constraint.fields}
    own |= {name for constraint in model._meta.constraints for name in getattr(constraint, "fields", ())}
    first = f"(SELECT min(id) FROM {AgentSession._meta.db_table})"
    columns = {}
    for field in model._meta.concrete_fields:
        if field.primary_key:
            continue
        column = field.column
        if isinstance(field, models.UUIDField) and field.unique:
            columns[column] = "lower(hex(randomblob(16)))" if lite else "gen_random_uuid()"
        elif field.related_model is AgentSession and column == "session_id":
            columns[column] = f"{first} + k.n % {sessions}"
        elif isinstance(field, models.DateTimeField) and field.name in OF_ITS_TIME:
            columns[column] = (
                f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || (k.n * {SECONDS_APART}) || ' seconds')"
                if lite
                else f"now() - k.n * interval '{SECONDS_APART} seconds'"
            )
        elif (
            isinstance(field, models.CharField)
            and (field.unique or field.name in own)
            and field.name != "slot"
            and not field.choices
        ):
            columns[column] = (
                f"substr('0000000000000000' || k.n, -16) || substr(one.{column}, 17)"
                if lite
                else f"lpad(k.n::text, 16, '0') || substr(one.{column}, 17)"
            )
        elif isinstance(field, models.IntegerField) and field.name in own:
            columns[column] = f"one.{column} + k.n"
        else:
            columns[column] = f"one.{column}"
    table = model._meta.db_table
    newest = f"(SELECT max(id) FROM {table})"
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
        f"FROM {table} one, {numbers} WHERE one.id = {newest}"
    )


def serve() -> None:
    """Answer each line, the address of a page, with its seconds and its number of statements."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    call_command("migrate", verbosity=0)
    fill(int(sys.argv[2]))
    client = Client(headers={"host": "localhost"})
    user, _ = User.objects.get_or_create(username="reader", defaults={"is_staff": True, "is_superuser": True})
    client.force_login(user)
    print("ready", flush=True)
    for line in sys.stdin:
        connection.force_debug_cursor = False
        started = time.perf_counter()
        response = client.get(line.strip(), follow=True)
        took = time.perf_counter() - started
        with CaptureQueriesContext(connection) as seen:
            client.get(line.strip(), follow=True)
        print(json.dumps([took, len(seen), response.status_code]), flush=True)


def _started(url: str, rows: int) -> subprocess.Popen[str]:
    env = {**os.environ, "LQOPS_DATABASE_URL": url, "LQOPS_DEBUG": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.pages", "--serve", str(rows)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def _ask(process: subprocess.Popen[str], page: str) -> list[Any]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{page}\n")
    process.stdin.flush()
    found: list[Any] = json.loads(process.stdout.readline())
    return found


def _databases(small: int, large: int) -> tuple[str, str]:
    url = os.environ.get("LQOPS_DATABASE_URL", "")
    if not url:
        os.makedirs("build", exist_ok=True)  # noqa: PTH103
        return f"sqlite:///build/pages-{small}.sqlite3", f"sqlite:///build/pages-{large}.sqlite3"
    parts = urlsplit(url)
    import psycopg

    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as server:
        for rows in (small, large):
            with suppress(psycopg.errors.DuplicateDatabase):
                server.execute(f"CREATE DATABASE lqops_pages_{rows}")
    made = partial(parts._replace)
    return tuple(urlunsplit(made(path=f"/lqops_pages_{rows}")) for rows in (small, large))  # type: ignore[return-value]


def main() -> None:
    from tests.benchmarks.paired import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    sizes = (given.small, given.large)
    processes = [_started(url, rows) for url, rows in zip(_databases(*sizes), sizes, strict=True)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    database = "postgresql" if os.environ.get("LQOPS_DATABASE_URL") else "sqlite"
    print(f"\n{database}, {given.large} rows by {given.small}")
    print(f"{'page':28} {'ratio':>7} {'ms':>8} {'statements':>11}")
    for name, page in PAGES.items():
        for process in processes:
            _ask(process, page)
        taken = [[_ask(process, page) for process in processes] for _ in range(given.rounds)]
        ratios = sorted(large[0] / small[0] for small, large in taken)
        low, ratio, high = statistics.quantiles(ratios, n=4)
        (_, queries, status) = taken[-1][1]
        milliseconds = statistics.median(large[0] for _, large in taken) * 1_000
        told = "" if status == 200 else f"   answered {status}"
        print(f"{name:28} {ratio:7.2f} {milliseconds:8.1f} {queries:11}{told}", flush=True)
        write(
            f"pages.{name}", ratio=ratio, low=low, high=high, rounds=given.rounds, database=database,
            reference=f"{given.small} rows", ms=milliseconds, queries=queries,
        )  # fmt: skip
    for process in processes:
        assert process.stdin
        process.stdin.close()
        process.wait(30)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve()
    else:
        main()
