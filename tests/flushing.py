"""Empties the database between tests, behind the append-only triggers, unless processes are at work on it.

Django's own flush empties every table and then makes content types, permissions and groups anew, which takes longer
than most tests. Here tables that hold nothing are left alone, and what a fresh database holds is put back as it was.
"""

import threading

from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction

from audit import models

held_off = threading.Event()  # set while a cluster of a whole module works on the database
_fresh = {}  # what each table held before the first test that commits


def remember():
    """To be called before anything is committed; later calls change nothing."""
    if not _fresh:
        with connection.cursor() as cursor:
            _fresh.update({table: _rows(cursor, table) for table in _tables()})


def flush_now():
    with transaction.atomic(), connection.cursor() as cursor:
        changed = _changed(cursor)
        is_behind_triggers = bool(models.TABLES.keys() & changed or models.missing(connection))
        if is_behind_triggers:
            models.remove(connection)  # around a flush, and at no other time
        for table in changed:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
        for table in changed:
            _put_back(cursor, table)
        if is_behind_triggers:
            models.install(connection)
    ContentType.objects.clear_cache()


def _changed(cursor):
    """The tables that do not hold what they held at first. Those that were empty are asked about together."""
    empty = [table for table in _tables() if not _fresh.get(table)]
    asked = (f"EXISTS (SELECT 1 FROM {connection.ops.quote_name(table)})" for table in empty)
    cursor.execute(f"SELECT {', '.join(asked)}")
    filled = [table for table, is_filled in zip(empty, cursor.fetchone(), strict=True) if is_filled]
    return sorted([*filled, *(table for table, rows in _fresh.items() if rows and _rows(cursor, table) != rows)])


def _tables():
    kept = {"django_migrations"}
    return sorted(set(connection.introspection.django_table_names(include_views=False)) - kept)


def _rows(cursor, table):
    cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} ORDER BY 1")
    return cursor.fetchall()


def _put_back(cursor, table):
    rows = _fresh.get(table, [])
    if rows:
        places = ", ".join(["%s"] * len(rows[0]))
        cursor.executemany(f"INSERT INTO {connection.ops.quote_name(table)} VALUES ({places})", rows)
