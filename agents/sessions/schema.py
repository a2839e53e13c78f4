"""Which migrations the database has, and which versions of lqops may run beside them.

Each migration names the oldest version that may run beside it, as `oldest_beside` of its class. That is stored when it
is applied, for a version cannot read the files of a newer one. A migration that this version does not know, and that
does not allow it, stops it; no migration is applied while a host of a version that it does not allow reports itself.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Final

from django.apps import apps
from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from agents import __version__
from agents.conf import clock
from agents.database_clock import shared
from agents.exceptions import VersionsDiffer
from agents.models import AppliedMigration, Host
from audit.models import SYSTEM_CHAIN
from audit.recorder import append

OURS: Final = frozenset({"agents", "audit"})
UNREPORTED: Final = "0.1.0"  # of hosts that report no version; what the migrations of that version allow
HOST_SEEN: Final = timedelta(minutes=2)
STILL_SECONDS: Final = 30.0  # a running host has reported three times by then
POLL_SECONDS: Final = 0.5
FORCED: Final = "installation.migrated_beside"
NAMES_SHOWN: Final = 5
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")

Key = tuple[str, str]


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare it; of a host that reports none, those of the last that did not."""
    found = _NUMBERS.match(version or UNREPORTED)
    return tuple(map(int, found[0].split("."))) if found else ()


# --- What the database has ---


def missing_migrations() -> list[str]:
    """Return the migrations of this code that the database lacks."""
    return [f"{app}.{name}" for app, name in sorted(_known() - _applied())]


def newer_migrations() -> list[str]:
    """Return the migrations of the database that this code does not know and that do not allow its version."""
    unknown = {key for key in _applied() - _known() if key[0] in OURS}
    allowed = _allowed() if unknown else {}
    return [f"{app}.{name}" for app, name in sorted(unknown) if _refuses(allowed.get((app, name)))]


def require_allowed_version() -> None:
    """Refuse to work with a database that allows only newer versions."""
    if newer := newer_migrations():
        raise VersionsDiffer(
            f"This is lqops {__version__}, and a newer version has migrated the database: {_listed(newer)}. Start that "
            "version, or restore a backup from before it."
        )


def oldest_allowed() -> str:
    """Return the oldest version that may work with the database."""
    return max((oldest for oldest in _allowed().values()), key=release, default=UNREPORTED)


def _refuses(oldest: str | None) -> bool:
    """Return whether a migration that allows this oldest version refuses this one; so does one that says nothing."""
    return oldest is None or release(__version__) < release(oldest)


def _allowed() -> dict[Key, str]:
    """Return the oldest version stored for each migration; empty before the table exists."""
    if AppliedMigration._meta.db_table not in connection.introspection.table_names():
        return {}
    rows = AppliedMigration.objects.values_list("app", "name", "oldest_beside")
    return {(app, name): oldest for app, name, oldest in rows}


def _applied() -> set[Key]:
    return set(_recorder().applied_migrations())


@cache
def _recorder() -> MigrationRecorder:
    """Return one for the process: it looks once whether its table exists."""
    return MigrationRecorder(connection)


@cache
def _known() -> frozenset[Key]:
    """Return the migrations of this code by the names of their files: imported, they would take nine megabytes."""
    found: set[Key] = set()
    for app in apps.get_app_configs():
        package, _ = MigrationLoader.migrations_module(app.label)
        spec = find_spec(package) if package else None
        folders = spec.submodule_search_locations if spec else None
        names = [one.name for one in iter_modules(folders or []) if not one.ispkg and one.name[0] not in "_~"]
        found |= {(app.label, name) for name in names}
    return frozenset(found)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# --- Noting what was applied ---


def applied_note() -> None:
    """Store which version each applied migration of ours allows; forget those that were taken back."""
    applied, stored = {key for key in _applied() if key[0] in OURS}, _allowed()
    for app, name in stored.keys() - applied:
        AppliedMigration.objects.filter(app=app, name=name).delete()
    AppliedMigration.objects.bulk_create(
        [
            AppliedMigration(app=app, name=name, oldest_beside=_declared(app, name))
            for app, name in sorted(applied & _known() - stored.keys())
        ],
        ignore_conflicts=True,
    )


def _declared(app: str, name: str) -> str:
    package, _ = MigrationLoader.migrations_module(app)
    return oldest_beside(import_module(f"{package}.{name}").Migration)


def oldest_beside(migration: Migration | type[Migration]) -> str:
    """Return the oldest version that a migration allows beside it."""
    return str(getattr(migration, "oldest_beside", UNREPORTED))


# --- Migrating beside running hosts ---


@dataclass(frozen=True)
class Running:
    """A host that reports itself."""

    name: str
    version: str
    seen_at: datetime

    def __str__(self) -> str:
        return f"{self.name} (lqops {self.version or f'{UNREPORTED} or older'})"


_gone: set[Running] = set()  # reported themselves once, and not again while this process waited for it
Plan = Iterable[tuple[Migration, bool]]
_overridden: list[Running] | None = None  # who was overridden, while a command overrides


@contextmanager
def overriding() -> Iterator[None]:
    """Migrate beside hosts that the migrations do not allow; it is recorded which hosts those were."""
    global _overridden  # noqa: PLW0603 a signal is all that lies between this and the check
    _overridden = []
    try:
        yield
    finally:
        hosts, _overridden = _overridden, None
        if hosts:
            details = {"hosts": [host.name for host in hosts], "version": __version__}
            append(SYSTEM_CHAIN, FORCED, now=clock(), details=details)


def require_no_other_version(plan: Plan, *, say: Callable[[str], object] = lambda _: None) -> None:
    """Refuse migrations beside a running host that they do not allow, and all where the database refuses this version.

    A host that was stopped has reported itself a moment ago all the same: it is given time to do so again.
    """
    ours = [(migration, backwards) for migration, backwards in plan if migration.app_label in OURS]
    if _overridden is None:
        require_allowed_version()
    if not ours:
        return
    taken_back = any(backwards for _, backwards in ours)
    least = max((oldest_beside(migration) for migration, _ in ours), key=release)
    found = _still_reporting(lambda host: taken_back or release(host.version) < release(least), say)
    if not found:
        return
    if _overridden is not None:
        _overridden.extend(found)
        return
    names = _listed([f"{migration.app_label}.{migration.name}" for migration, _ in ours])
    rule = "nothing may run while they are taken back" if taken_back else f"only {least} or newer may run beside them"
    raise VersionsDiffer(
        f"Not migrated, for these hosts are running: {', '.join(map(str, found))}. {names}: {rule}. "
        "Stop lqops there: its runs wait in their rows and go on afterwards. Then run this again. "
        "`manage.py migrate --force` migrates all the same: runs in hand there may fail, and stay failed."
    )


def _still_reporting(concerns: Callable[[Running], bool], say: Callable[[str], object]) -> list[Running]:
    """Return the hosts that concern us and report themselves while we look, regardless of their clocks."""
    waiting = {host.name: host for host in _hosts_seen() if concerns(host) and host not in _gone}
    if waiting:
        say(f"Waiting up to {STILL_SECONDS:.0f} s: do these hosts still run? {', '.join(map(str, waiting.values()))}")
    deadline = time.monotonic() + STILL_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        if again := [host for host in _hosts_seen() if host.name in waiting and host != waiting[host.name]]:
            return [host for host in again if concerns(host)]
    _gone.update(waiting.values())
    return []


def _hosts_seen() -> list[Running]:
    """Return the hosts that have reported lately, also from a table that has no column for their versions yet."""
    with connection.cursor() as cursor:
        if Host._meta.db_table not in connection.introspection.table_names(cursor):
            return []
        columns = {one.name for one in connection.introspection.get_table_description(cursor, Host._meta.db_table)}
    fields = ["name", "seen_at", *(["version"] if "version" in columns else [])]
    rows = Host.objects.filter(seen_at__gte=shared(clock()) - HOST_SEEN).order_by("name").values(*fields)
    return [Running(row["name"], row.get("version", ""), row["seen_at"]) for row in rows]
