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
        held = _tables_with_rows(cursor)
        changed = [table for table in held if _rows(cursor, table) != _fresh.get(table)]
        changed += [table for table, rows in _fresh.items() if rows and table not in held]
        if not changed and not models.missing(connection):
            return
        models.remove(connection)  # around a flush, and at no other time
        for table in changed:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
        for table in changed:
            _put_back(cursor, table)
        models.install(connection)
    ContentType.objects.clear_cache()


def _tables_with_rows(cursor):
    parts = (f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(table)})" for table in _tables())
    cursor.execute(" UNION ALL ".join(parts))
    return [table for (table,) in cursor.fetchall()]


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
