"""The statements that PostgreSQL executes, as its server counts them."""

import re
from contextlib import contextmanager

from django.db import connection

MARKS = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}
READS = {"SELECT", "SHOW"}
SETTINGS = {"SET", "RESET"}


@contextmanager
def executed_statements():
    """The statements that PostgreSQL says it has executed, each by its first word."""
    words = []

    def heard(diagnostic):
        found = re.match(r"(?:statement|execute [^:]*):\s+(\w+)", diagnostic.message_primary)
        if found:
            words.append(found[1].upper())

    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SET client_min_messages = log")
        cursor.execute("SET log_statement = 'all'")
    connection.connection.add_notice_handler(heard)
    try:
        yield words
    finally:
        connection.connection.remove_notice_handler(heard)
        with connection.cursor() as cursor:
            cursor.execute("RESET log_statement")
            cursor.execute("RESET client_min_messages")


def counted(words):
    """How many statements these are, beside those about transactions, and how many commits of what was written."""
    statements, commits, in_transaction = 0, 0, False
    for word in words:
        in_transaction = word == "BEGIN" or (in_transaction and word not in {"COMMIT", "ROLLBACK"})
        commits += word == "COMMIT" or not (in_transaction or word in MARKS | READS | SETTINGS)
        statements += word not in MARKS | SETTINGS
    return statements, commits
