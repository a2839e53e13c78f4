"""The database: SQLite (embedded) or PostgreSQL, each tuned for many small durable writes."""

from pathlib import Path
from typing import Any, Final

from lqops.env import Env

# A process that hangs keeps its locks no longer than this. Statements of a call are planned once a connection.
# No statement of a page reads so many rows that starting further processes or compiling it would pay. Rows that
# are read one by one are in memory or on a disk without moving parts: an index is to be preferred to whole tables.
_SESSION: Final = {
    "idle_in_transaction_session_timeout": "20s",
    "plan_cache_mode": "force_generic_plan",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "random_page_cost": "1.1",
}


def configured_database(env: Env, folder: Path) -> dict[str, Any]:
    """Return Django's settings of the database; an embedded one is in the data folder unless an address is set."""
    database = env.database("LQOPS_DATABASE_URL", default=f"sqlite:///{folder / 'lqops.sqlite3'}")
    if is_embedded(database):
        # WAL lets readers continue while one process writes. FULL means that a commit is on disk. IMMEDIATE takes the
        # write lock at BEGIN, so a transaction that reads and then writes cannot fail half-way with "database is
        # locked".
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;"
            f"PRAGMA synchronous={env.one_of('LQOPS_SQLITE_SYNCHRONOUS', 'FULL', ('FULL', 'NORMAL', 'EXTRA'))};"
            "PRAGMA foreign_keys=ON;",
        }
    else:
        options = database.setdefault("OPTIONS", {})
        options.setdefault("options", " ".join(f"-c {name}={value}" for name, value in _SESSION.items()))
        options.setdefault("connect_timeout", 5)  # a host that is gone is noticed before clients give up
        # A line that is cut without a word would keep whoever waits on it for a quarter of an hour, or for ever.
        for name, value in {"tcp_user_timeout": 30_000, "keepalives_idle": 30, "keepalives_interval": 10}.items():
            options.setdefault(name, value)
    database["CONN_MAX_AGE"] = env.whole("LQOPS_CONN_MAX_AGE", 0)
    return database


def is_embedded(database: dict[str, Any]) -> bool:
    return str(database["ENGINE"]).endswith("sqlite3")
