"""What a guarded call costs, against the least that a durable call can cost in the same database.

`make bench`, or `python -m tests.benchmarks.guard [--rounds 60] [--steps 15]` on the database of LQOPS_DATABASE_URL,
which is created and migrated if need be; the rows stay there. The references are plain statements of the driver on
tables of their own: `raw.one` writes a session row and an audit row in one commit, `raw.two` does so before and after
the act, in two.
"""

import argparse
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402

from agents.enums import Level, Phase, Status, ToolIntent  # noqa: E402
from agents.exceptions import ToolNotGranted  # noqa: E402
from agents.guard import guarded_tool_call  # noqa: E402
from agents.guard.intents import override  # noqa: E402
from agents.guard.tools import Tool  # noqa: E402
from agents.models import AgentSession, ModelPrice  # noqa: E402
from agents.policy.brakes import PHASE_GRANTS  # noqa: E402
from agents.providers.scripted import ScriptedProvider, Step  # noqa: E402
from agents.types import Capability, SkillPace, Usage  # noqa: E402
from tests.benchmarks.paired import measure, report  # noqa: E402
from tests.benchmarks.peers import peers  # noqa: E402
from tests.serving import serving  # noqa: E402

MODEL = "benchmark"
LONG_RUN = 1_600  # calls of a run before its calls are compared with those of a new one
NOT_GRANTED = next(intent for intent in ToolIntent if intent not in PHASE_GRANTS[Phase.TURN])
STEP = {"step": "one of many"}
ASK = {"model": MODEL, "prompt": "Is it in order?", "max_tokens": 100}
TABLES = (
    "CREATE TABLE IF NOT EXISTS bench_session (id BIGINT PRIMARY KEY, halt TEXT, cost BIGINT, cap BIGINT, at TEXT)",
    "CREATE TABLE IF NOT EXISTS bench_audit (id {serial}, session BIGINT, kind TEXT, details TEXT)",
)
ONE = (
    "WITH u AS (UPDATE bench_session SET cost = cost + 1, at = %s WHERE id = %s AND halt = 'running' AND cost < cap "
    "RETURNING id) INSERT INTO bench_audit (session, kind, details) SELECT id, %s, %s FROM u"
)
SQLITE_ONE = (
    "UPDATE bench_session SET cost = cost + 1, at = ? WHERE id = ? AND halt = 'running' AND cost < cap",
    "INSERT INTO bench_audit (session, kind, details) VALUES (?, ?, ?)",
)
ALONE = {"guard.local", "guard.local.skill", "guard.long"}  # not compared with two statements
DETAILS = '{"call_id":"0c1f0d1e-1f3a-4b62-a7f4-9a0d4f3b1c11","outcome":"started","phase":"turn","tool":"run_skill"}'


def raw_step() -> Callable[[str], None]:
    """Return a function that makes one durable step by the driver alone."""
    serial = "BIGSERIAL PRIMARY KEY" if connection.vendor == "postgresql" else "INTEGER PRIMARY KEY"
    pk = uuid.uuid4().int % 2**62
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(table.format(serial=serial))
        cursor.execute("INSERT INTO bench_session VALUES (%s, 'running', 0, 1000000000, '')", [pk])
    if connection.vendor == "postgresql":
        import psycopg

        raw = psycopg.connect(**_plain(connection.get_connection_params()), autocommit=True)
        raw.prepare_threshold = 0
        return lambda kind: _unused(raw.execute(ONE, ["now", pk, kind, DETAILS], prepare=True))
    import sqlite3

    lite = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    for pragma in connection.settings_dict["OPTIONS"]["init_command"].split(";"):
        lite.execute(pragma)

    def step(kind: str) -> None:
        lite.execute("BEGIN IMMEDIATE")
        lite.execute(SQLITE_ONE[0], ["now", pk])
        lite.execute(SQLITE_ONE[1], [pk, kind, DETAILS])
        lite.execute("COMMIT")

    return step


def plain_url() -> str:
    """Return the address of the database as other libraries take it."""
    params = {name: str(value) for name, value in _plain(connection.get_connection_params()).items()}
    user = f"{params.get('user', '')}:{params['password']}" if params.get("password") else params.get("user", "")
    return f"postgresql://{user}@{params.get('host', '127.0.0.1')}:{params.get('port', '5432')}/{params['dbname']}"


def _plain(params: dict[str, object]) -> dict[str, object]:
    return {name: params[name] for name in ("dbname", "user", "password", "host", "port") if params.get(name)}


def _unused(_: object) -> None:
    """Take a result that nobody looks at."""


def made() -> None:
    """Create the database, if there is none, and bring it up to date."""
    if connection.vendor == "postgresql":
        name = connection.settings_dict["NAME"]
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE DATABASE {connection.ops.quote_name(name)}")
    call_command("migrate", verbosity=0)


def running(owner: User, **more: object) -> AgentSession:
    return AgentSession.objects.create(owner=owner, status=Status.RUNNING, current_phase=Phase.TURN, **more)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=15)
    given = parser.parse_args()
    made()
    owner, _ = User.objects.get_or_create(username="benchmark")
    ModelPrice.objects.get_or_create(model=MODEL, defaults={"input_usd": 1, "output_usd": 1})
    step = raw_step()
    free = running(owner)
    priced = running(owner, max_cost_usd=1_000_000)
    long = running(owner)
    tool = Capability("act", level=Level.SAFE)
    remote = Tool(lambda context, params: {"done": True}, tool, remote=True)
    local = Tool(lambda context, params: {"done": True}, tool, undoable=True)
    pace = SkillPace("act", None, timedelta(0))
    local_skill = Tool(lambda context, params: {"done": True}, tool, pace=pace, is_skill=True)
    skill = Tool(lambda context, params: {"done": True}, tool, remote=True, pace=pace, is_skill=True)

    def act(session: AgentSession, made: Tool, key: str = "", params: Mapping[str, object] = STEP) -> None:
        with override({ToolIntent.RUN_SKILL: made}):
            assert guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key).ok

    def refuse(session: AgentSession) -> None:
        with suppress(ToolNotGranted):
            guarded_tool_call(session, NOT_GRANTED, STEP)

    contenders = {
        "raw.one": lambda: step("acted"),
        "raw.two": lambda: _unused((step("started"), step("success"))),
        "guard.local": lambda: act(free, local),
        "guard.remote": lambda: act(free, remote),
        "guard.local.skill": lambda: act(free, local_skill, params={"skill": "act", "arguments": STEP}),
        "guard.skill": lambda: act(free, skill, params={"skill": "act", "arguments": STEP}),
        "guard.priced": lambda: _unused(guarded_tool_call(priced, ToolIntent.RUN_SKILL, ASK)),
        "guard.replay": lambda: act(free, remote, key="done"),
        "guard.refused": lambda: refuse(free),
        "guard.long": lambda: act(long, remote),
    }
    with ExitStack() as stack:
        stack.enter_context(serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(10, 10))])))
        for _ in range(LONG_RUN):
            act(long, remote)
        if connection.vendor == "postgresql":
            contenders |= peers(plain_url(), stack)
        rows = measure(contenders, rounds=given.rounds, steps=given.steps)
    others = {name: (name, "raw.two") for name in contenders if name[:4] != "raw." and name not in ALONE}
    report(
        rows,
        references={
            "raw.two": ("raw.two", "raw.one"),
            "guard.local": ("guard.local", "raw.one"),
            "guard.local.skill": ("guard.local.skill", "raw.one"),
            "guard.growth": ("guard.long", "guard.remote"),
            **others,
        },
        database=connection.vendor,
    )


if __name__ == "__main__":
    main()
