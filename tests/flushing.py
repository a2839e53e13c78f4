"""Empties the database between tests, behind the append-only triggers, unless processes are at work on it."""

import threading

from django.core.management import call_command
from django.db import connection

from audit import triggers

held_off = threading.Event()  # set while a cluster of a whole module works on the database


def behind_the_triggers(flush):
    """The triggers are removed around a flush, and at no other time."""
    triggers.remove(connection)
    try:
        flush()
    finally:
        triggers.install(connection)


def flush_now():
    behind_the_triggers(lambda: call_command("flush", interactive=False, verbosity=0))
