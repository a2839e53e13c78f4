"""Database sensors: the rows of one query, read-only, bounded in rows, bytes, memory and time.

An operator names the connections (LQOPS_SENSOR_DATABASE_<NAME>); a definition names one of them and never sees its
address. Queries run in a read-only transaction that is never committed, one statement each, in a process of their own
(agents.sensors.query_process).
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import dj_database_url
from django.conf import settings

from agents.sensors.poll import Poll
from agents.sensors.query_process import CONNECT_SECONDS, TOO_MUCH_MEMORY, too_slow
from agents.sensors.sensing import Failed

QUERY_SECONDS: Final = 10
START_SECONDS: Final = 5
_ROOT: Final = Path(__file__).resolve().parents[2]
_START: Final = "from agents.sensors.query_process import main; main()"
_KEPT: Final = ("PATH", "HOME", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Query(Poll):
    async def look(self) -> tuple[Any, str]:
        source = self.spec.source
        async with self.services.queries:
            rows = await asyncio.get_running_loop().run_in_executor(
                self.services.threads, run_query, str(source.database), str(source.query), source.max_rows
            )
        text = json.dumps(rows, sort_keys=True)
        return rows, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def run_query(database: str, query: str, max_rows: int) -> list[dict[str, Any]]:
    """Return the first rows of a query as objects; Failed if it cannot be run."""
    url = settings.LQOPS_SENSOR_DATABASES.get(database)
    if url is None:
        known = ", ".join(sorted(settings.LQOPS_SENSOR_DATABASES)) or "none"
        raise Failed(f"there is no database {database!r} for sensors; known names: {known}")
    sqlite_file = str(dj_database_url.parse(url)["NAME"]) if url.startswith("sqlite:") else ""
    job = {"url": url, "sqlite_file": sqlite_file, "statement": query.strip().rstrip(";"), "max_rows": max_rows}
    found = _read_answer(_run_process(json.dumps({**job, "seconds": QUERY_SECONDS}).encode()))
    if "failed" in found:
        raise Failed(str(found["failed"]))
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def _run_process(job: bytes) -> "subprocess.CompletedProcess[bytes]":
    # It has the variables that PostgreSQL's library reads, and no key and no setting of lqops.
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("PG")}
    search_path = os.pathsep.join([str(_ROOT), *(place for place in sys.path if place)])
    try:
        return subprocess.run(  # noqa: S603 our own interpreter and module; the query goes in as input
            [sys.executable, "-P", "-B", "-c", _START, str(os.getpid())],
            input=job,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": search_path},
            timeout=START_SECONDS + CONNECT_SECONDS + QUERY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(too_slow(QUERY_SECONDS)) from None


def _read_answer(done: "subprocess.CompletedProcess[bytes]") -> dict[str, Any]:
    if done.returncode == -signal.SIGALRM:
        raise Failed(too_slow(QUERY_SECONDS))
    if done.returncode != 0:
        raise Failed(f"{TOO_MUCH_MEMORY} (its process ended with code {done.returncode})")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except RecursionError:
        raise Failed("a value of the rows is nested too deeply: select a part of it") from None
    return found
