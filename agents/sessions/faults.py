"""Faults of the installation that no row tells of: missing migrations."""

from functools import cache

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def missing_migrations() -> list[str]:
    """Return the migrations of this code that the database lacks."""
    applied = MigrationRecorder(connection).applied_migrations().keys()
    return [f"{app}.{name}" for app, name in sorted(_migrations() - applied)]


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Return the migrations of this code; they do not change while the process runs."""
    loader = MigrationLoader(None)
    return frozenset((app, name) for app, name in loader.disk_migrations or {})
