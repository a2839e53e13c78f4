"""Measures every subject and sums up: `make bench`, or `python -m tests.benchmarks [--only wakes] [--rounds 60]`.

Pages are measured with ten thousand rows and with a hundred thousand, or as many as --rows says.

Each subject is a process of its own, on a new database of its own; a failure is named at the end, and the measures of
the others stand. On PostgreSQL the databases are made beside the one that --postgres names, and dropped again.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.paired import OUT

FOLDER = Path("build/bench")
MAX_SECONDS = 300  # of one subject on one database
MAX_SECONDS_OF_PAGES = 1_800  # a million rows are filled in the first time
LAST_LINES = 15
BOTH = ("sqlite", "postgresql")
# Name of the module, and the databases on which it is measured.
SUBJECTS = {
    "guard": BOTH,
    "guard_scale": BOTH,
    "audit_append": BOTH,
    "verify_audit": BOTH,
    "walks": BOTH,
    "wakes": BOTH,
    "loops": ("postgresql",),
    "streams": BOTH,
    "text": ("none",),
    "documents": ("none",),
    "idle": ("none", "postgresql"),
    "pages": ("postgresql",),
}


class Lite:
    """Files of SQLite."""

    def __init__(self) -> None:
        self._migrated = FOLDER / "migrated.sqlite3"
        migrate(f"sqlite:///{self._migrated}", FOLDER / "migrated")

    def make(self, var: Path) -> str:
        shutil.copy(self._migrated, var / "lqops.sqlite3")
        return f"sqlite:///{var / 'lqops.sqlite3'}"

    def drop(self, url: str) -> None:
        """It goes with its folder."""

    def close(self) -> None:
        """Nothing is left open."""


class Postgres:
    """Databases of a server, named after the one that is given."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._url = url
        self._server = psycopg.connect(urlsplit(url)._replace(path="/postgres").geturl(), autocommit=True)
        self._migrated = self._create("migrated")
        migrate(self._migrated, FOLDER / "migrated")

    def make(self, var: Path) -> str:
        return self._create(var.name, like=_name(self._migrated))

    def drop(self, url: str) -> None:
        self._server.execute(f'DROP DATABASE IF EXISTS "{_name(url)}" WITH (FORCE)')

    def close(self) -> None:
        self.drop(self._migrated)

    def _create(self, name: str, like: str = "template1") -> str:
        url = f"{self._url}_{name.replace('.', '_')}"
        self.drop(url)
        self._server.execute(f'CREATE DATABASE "{_name(url)}" TEMPLATE "{like}"')
        return url


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def migrate(url: str, var: Path) -> None:
    run([sys.executable, "manage.py", "migrate", "--verbosity=0"], url=url, var=var)


def run(command: list[str], *, url: str, var: Path, seconds: float = MAX_SECONDS) -> None:
    """Run a command on a database, with files of its own; raises if it fails or takes too long.

    What it has started ends with it. Log lines go into a file beside the folder of its files.
    """
    var.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in os.environ.items() if not name.startswith("LQOPS_")}
    given |= {"LQOPS_VAR_DIR": str(var.resolve()), "LQOPS_DATABASE_URL": url, "PYTHONPATH": os.curdir}
    log = var.with_name(f"{var.name}.log")
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=given, stderr=errors, start_new_session=True) as process,
    ):
        try:
            code = process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        print("\n".join(log.read_text().splitlines()[-LAST_LINES:]))
        raise RuntimeError(f"ended with code {code}, see {log}")


def measure(subject: str, name: str, database: Lite | Postgres | None, arguments: list[str]) -> None:
    var = FOLDER / f"{subject}.{name}"
    var.mkdir(parents=True)
    url = database.make(var) if database else ""
    written = _measures()
    try:
        seconds = MAX_SECONDS_OF_PAGES if subject == "pages" else MAX_SECONDS
        run([sys.executable, "-m", f"tests.benchmarks.{subject}", *arguments], url=url, var=var, seconds=seconds)
    finally:
        if database:
            database.drop(url)
    if _measures() == written:
        raise RuntimeError(f"measured nothing: no line was added to {OUT}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), metavar="SUBJECT")
    parser.add_argument("--rounds", help="rounds of the subject guard")
    parser.add_argument("--rows", default="100000", help="rows of the larger database of the subject pages")
    parser.add_argument("--postgres", default="", metavar="URL", help="without it, SQLite alone is measured")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends with it
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    OUT.unlink(missing_ok=True)
    failed, taken = [], {}
    databases: dict[str, Lite | Postgres | None] = {"none": None}
    used = {name for subject in given.only for name in SUBJECTS[subject]}
    for name, make in {"sqlite": Lite, "postgresql": lambda: Postgres(given.postgres)}.items():
        try:
            if name in used and (name == "sqlite" or given.postgres):
                databases[name] = make()
        except Exception as error:  # noqa: BLE001 the other database can still be measured
            failed.append(f"{name}: {error}")
    for subject in given.only:
        for name in SUBJECTS[subject]:
            if name not in databases:
                continue
            began = time.monotonic()
            print(f"\n== {subject}, {name}", flush=True)
            try:
                measure(subject, name, databases[name], _arguments(subject, given))
            except Exception as error:  # noqa: BLE001 the others are measured all the same
                failed.append(f"{subject}, {name}: {error}")
            taken[f"{subject}, {name}"] = time.monotonic() - began
    for database in filter(None, databases.values()):
        with suppress(Exception):
            database.close()
    print("\nSeconds: " + "; ".join(f"{what} {seconds:.0f}" for what, seconds in taken.items()))
    if "postgresql" not in databases:
        print("PostgreSQL was not measured.")
    failed += [] if taken else ["nothing was measured: these subjects need PostgreSQL, which --postgres names"]
    print("\n".join(f"Failed: {what}" for what in failed) or f"Every subject was measured: {OUT}")
    return 1 if failed else 0


def _measures() -> int:
    return len(OUT.read_text().splitlines()) if OUT.exists() else 0


def _arguments(subject: str, given: argparse.Namespace) -> list[str]:
    if subject == "pages":
        return ["--large", given.rows, "--rounds", "4"]
    return ["--rounds", given.rounds] if subject == "guard" and given.rounds else []


if __name__ == "__main__":
    sys.exit(main())
