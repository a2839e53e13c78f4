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
    "health": "/admin/health/",
    "runs": "/admin/agents/agentsession/",
    "runs.search": "/admin/agents/agentsession/?q=0a1b2c3d",
    "runs.words": "/admin/agents/agentsession/?q=quarterly",
    "runs.failed": "/admin/agents/agentsession/?run_result__exact=failed",
    "runs.deep": "/admin/agents/agentsession/?p=200",
    "findings": "/admin/agents/finding/",
    "findings.deep": "/admin/agents/finding/?p=100",
    "approvals": "/admin/agents/approval/",
    "questions": "/admin/agents/question/",
    "documents": "/admin/agents/document/",
    "documents.search": "/admin/agents/document/search/?q=batch7",
    "documents.search.more": "/admin/agents/document/search/?q=lot7",
    "documents.search.often": "/admin/agents/document/search/?q=term+years",
    "collections": "/admin/agents/collection/",
    "agents": "/admin/agents/agent/",
    "triggers": "/admin/agents/trigger/",
    "notifications": "/admin/agents/notification/",
    "memories": "/admin/agents/memory/",
    "inputs": "/admin/agents/unreadinput/",
    "chats": "/admin/chats/",
    "chat": "/admin/chats/00000000-0000-4000-8000-000000000007/",
    "calls": "/admin/agents/toolcall/",
    "audit": "/admin/audit/auditevent/",
    "audit.deep": "/admin/audit/auditevent/?p=100",
    "api.health": "/api/v1/health",
    "api.sessions": "/api/v1/sessions",
    "api.sessions.by_status": "/api/v1/sessions?status=completed",
    "api.sessions.failed": "/api/v1/sessions?status=failed",
    "api.sessions.deep": "/api/v1/sessions?page={last}",
    "api.tool_calls": "/api/v1/tool-calls",
    "api.tool_calls.deep": "/api/v1/tool-calls?page={last}",
    "api.findings": "/api/v1/findings",
    "api.approvals": "/api/v1/approvals",
    "api.questions": "/api/v1/questions",
    "api.documents": "/api/v1/documents",
    "api.search": "/api/v1/search?q=batch7",
    "api.search.more": "/api/v1/search?q=lot7",
    "api.search.words": "/api/v1/search?q=term+of+lot7+years+batch7+clause",
    "api.search.often": "/api/v1/search?q=term+years",
    "api.search.apart": "/api/v1/search?q=lot7+lot8",
    "api.search.none": "/api/v1/search?q=elephant",
    "api.search.in_fifty": "/api/v1/search?q=batch7&collection={fifty}",
    "api.search.in_fifty.words": "/api/v1/search?q=term+of+lot7+years+batch7+clause&collection={fifty}",
    "api.search.in_fifty.often": "/api/v1/search?q=term+years&collection={fifty}",
    "api.search.in_everything": "/api/v1/search?q=batch7&collection={everything}",
    "api.search.in_everything.words": "/api/v1/search?q=term+of+lot7+years+batch7+clause&collection={everything}",
    "api.search.in_everything.often": "/api/v1/search?q=term+years&collection={everything}",
    "api.collections": "/api/v1/collections",
    "api.events": "/api/v1/events",
    "api.memories": "/api/v1/memories",
    "api.notifications": "/api/v1/notifications",
    "api.triggers": "/api/v1/triggers",
    "api.agents": "/api/v1/agents",
    "api.chats": "/api/v1/chats",
    "api.chat": "/api/v1/chats/00000000-0000-4000-8000-000000000007",
    "api.unread_inputs": "/api/v1/unread-inputs",
}
SECONDS_APART = (
    8.64  # ten thousand a day, back from now: a month of a busy installation lies in the range of the charts
)
OF_ITS_TIME = {"created_at", "at", "started_at", "completed_at", "resolved_at", "settled_at", "attached_at"}
ROWS_OF_A_PAGE = 50  # of the API
A_PAGE_OF_HITS = 50
A_FULL_PAGE = 200  # rows that there are at least, so that no page of the small database is shorter
A_FULL_FORM = 1_000  # and agents, so that no form with a choice of them is
# A tenth or a hundredth as many rows as there are runs.
FEWER = {
    "Document": 10,
    "Approval": 10,
    "Question": 10,
    "Memory": 10,
    "UnreadInput": 100,
    "Attachment": 10,
    "Agent": 1_000,
    "Trigger": 1_000,
    "Collection": 1_000,
}
GROWN = (
    "AgentSession", "ToolCall", "Finding", "InferenceLog", "Notification", "InboundEvent", "AgentEvent", "Document",
    "Chunk", "Collection", "Attachment", "Approval", "Question", "Memory", "UnreadInput", "Agent", "Trigger",
)  # fmt: skip
EVERY_CHAT = 10  # every tenth run is a message of a chat, every tenth event is no call; five messages are a chat
PENDING = 50  # approvals and questions that wait for a person, however many there were before
# Words of chunks: "term" stands in all of them, "lot7" in every two hundredth, "batch7" in fifty of any number.
LOTS = 200
COLLECTED = ("fifty", "everything")  # documents of two collections
ENDED = {"status": "completed", "run_result": "ok", "terminal_reason": "completed"}


def fill(rows: int) -> None:
    """Make one row of everything, and many copies of each with ids, keys and times of their own."""
    from django.apps import apps
    from django.db import ProgrammingError, connection, transaction

    from agents.enums import ApprovalStatus
    from agents.models import AgentSession, Approval, Question
    from audit.models import AuditEvent
    from tests.agents.admin.rows import make_everything
    from tests.factories import NOW

    if AgentSession.objects.count() >= rows:
        return
    if connection.vendor == "postgresql":  # no foreign key is checked: it takes as long as all the rest
        with connection.cursor() as cursor, suppress(ProgrammingError):  # whose user may not say so
            cursor.execute("SET session_replication_role = replica")
    with transaction.atomic(), connection.cursor() as cursor:
        made = make_everything()
        AgentSession.objects.filter(pk=made.session.pk).update(**ENDED, completed_at=NOW)
        Approval.objects.update(
            status=ApprovalStatus.APPROVED, resolved_at=NOW, resolved_by=made.session.owner, consumed_at=NOW
        )
        Question.objects.update(status="answered", answered_at=NOW)
        for name in GROWN:
            model = apps.get_model("agents", name)
            cursor.execute(_copies(model, _number(name, rows), rows))
        cursor.execute(_copies(AuditEvent, rows, rows))
    if connection.vendor == "postgresql":  # it does so by itself, in time; nothing of lqops does so on SQLite
        with connection.cursor() as cursor:
            cursor.execute("RESET session_replication_role")
            cursor.execute("ANALYZE")


def collect() -> None:
    """Put fifty documents, old and new ones, into one collection, and all documents into another."""
    from agents.models import AgentSession, Attachment, Collection, Document

    owner = AgentSession.objects.order_by("pk")[:1].get().owner
    documents = list(Document.objects.filter(owner=owner).order_by("pk").values_list("pk", flat=True))
    for name, step in (("fifty", len(documents) // 50), ("everything", 1)):
        collection, created = Collection.objects.get_or_create(owner=owner, name=name)
        inside = documents[::step][: len(documents) if step == 1 else 50]
        if created:
            Attachment.objects.bulk_create(
                [Attachment(document_id=pk, collection=collection) for pk in inside], batch_size=1_000
            )
            collection.documents = len(inside)
            collection.save(update_fields=["documents"])


def _number(name: str, rows: int) -> int:
    return max(rows // FEWER.get(name, 1), A_FULL_FORM if name == "Agent" else A_FULL_PAGE)


def _different(name: str, rows: int, *, lite: bool) -> dict[str, str]:
    """Return the columns in which the copies of a row differ, beside those that have to: chats, places, what waits."""
    days = "strftime('%Y-%m-%d %H:%M:%f', 'now', '+30 days')" if lite else "now() + interval '30 days'"
    group = f"k.n / {EVERY_CHAT * 5}"
    padded = f"substr('000000000000' || ({group}), -12)" if lite else f"lpad(({group})::text, 12, '0')"
    build = "json_object" if lite else "jsonb_build_object"
    chat = f"{build}('chat', '00000000-0000-4000-8000-' || {padded}, 'message', 'How long is the term?')"
    documents, collections = _number("Document", rows), _number("Collection", rows)
    if name == "AgentSession":
        found = {"mode": "'chat'", "params": chat}
        return {of: f"CASE WHEN k.n % {EVERY_CHAT} = 0 THEN {then} ELSE one.{of} END" for of, then in found.items()}
    if name in ("Approval", "Question"):
        ended = ("resolved_at", "resolved_by_id", "consumed_at") if name == "Approval" else ("answered_at",)
        found = {"status": "'pending'", "expires_at": days, **dict.fromkeys(ended, "NULL")}
        every = _number(name, rows) // PENDING
        return {of: f"CASE WHEN k.n % {every} = 0 THEN {then} ELSE one.{of} END" for of, then in found.items()}
    if name == "AuditEvent":
        return {"kind": f"CASE WHEN k.n % {EVERY_CHAT} = 0 THEN one.kind ELSE 'autonomous_session.tool_call' END"}
    if name == "Attachment":
        return {
            "document_id": "(SELECT min(id) FROM agents_document) + k.n",
            "collection_id": f"(SELECT min(id) FROM agents_collection) + k.n % {collections}",
        }
    if name == "Chunk":
        return {
            "document_id": f"(SELECT min(id) FROM agents_document) + k.n % {rows} / {rows // documents}",
            "text": f"one.text || ' lot' || (k.n % {LOTS}) || ' batch' || (k.n % {rows // A_PAGE_OF_HITS})",
        }
    return {}


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
    different = _different(model.__name__, sessions, lite=lite)
    columns = {}
    for field in model._meta.concrete_fields:
        if field.primary_key:
            continue
        column = field.column
        if column in different:
            columns[column] = different[column]
        elif isinstance(field, models.UUIDField) and field.unique:
            columns[column] = "lower(hex(randomblob(16)))" if lite else "gen_random_uuid()"
        elif field.related_model is AgentSession and column == "session_id":
            columns[column] = f"{first} + k.n % {sessions}"
        elif isinstance(field, models.DateTimeField) and field.name in OF_ITS_TIME:
            columns[column] = (
                f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || (({copies} - k.n) * {SECONDS_APART}) || ' seconds')"
                if lite
                else f"now() - ({copies} - k.n) * interval '{SECONDS_APART} seconds'"
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
            columns[column] = f'one."{column}"'
    table = model._meta.db_table
    newest = f"(SELECT max(id) FROM {table})"
    named = ", ".join(map(connection.ops.quote_name, columns))
    return (
        f"INSERT INTO {table} ({named}) SELECT {', '.join(columns.values())} "
        f"FROM {table} one, {numbers} WHERE one.id = {newest}"
    )


def serve() -> None:
    """Answer each line, the address of a page, with its seconds and its number of statements."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from agents.models import AgentSession

    call_command("migrate", verbosity=0)
    fill(int(sys.argv[2]))
    collect()
    client = Client(headers={"host": "localhost"})
    user = AgentSession.objects.order_by("pk")[:1].get().owner  # the API shows everybody their own rows alone
    user.is_staff = user.is_superuser = True
    user.save()
    client.force_login(user)
    print("ready", flush=True)
    statements: dict[str, int] = {}
    for line in sys.stdin:
        page = _deep(client, line.strip(), int(sys.argv[2]))
        if page not in statements:  # at first, when nothing is in anybody's memory yet
            with CaptureQueriesContext(connection) as seen:
                client.get(page, follow=True)
            statements[page] = len(seen)
        connection.force_debug_cursor = False
        started = time.perf_counter()
        response = client.get(page, follow=True)
        took = time.perf_counter() - started
        print(json.dumps([took, statements[page], response.status_code]), flush=True)


def _deep(client: Any, page: str, rows: int) -> str:
    """Return the address of the last full page: as `next` names it, by the row before it, if it does so."""
    from django.apps import apps

    if "{last}" not in page:
        found = dict(
            apps.get_model("agents", "Collection").objects.filter(name__in=COLLECTED).values_list("name", "public_id")
        )
        return page.format(**found)

    last = rows // ROWS_OF_A_PAGE
    following = client.get(page.format(last=1)).json()["next"]
    if "cursor=" not in following:
        return page.format(last=last)
    model = apps.get_model("agents", "ToolCall" if "tool-calls" in page else "AgentSession")
    before = model.objects.order_by("pk").values_list("pk", flat=True)[ROWS_OF_A_PAGE + 1]
    return f"{page.format(last=last)}&cursor=after-{before}"


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
        assert status == 200, f"{name} answered {status}"
        print(f"{name:28} {ratio:7.2f} {milliseconds:8.1f} {queries:11}", flush=True)
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
