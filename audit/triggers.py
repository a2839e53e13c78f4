"""Database triggers that make a table append-only, on SQLite and PostgreSQL.

They are prevention against the application, not against the owner of the database, who can drop them; an edit behind a
dropped trigger is evidence for verify_audit.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

TABLES = ("audit_auditevent", "audit_skillaudit")
MESSAGE = "audit rows are append-only"

_ABORT = f"SELECT RAISE(ABORT, '{MESSAGE}')"
_SQLITE = {
    "install": [
        f"CREATE TRIGGER IF NOT EXISTS {{table}}_no_{{verb}} BEFORE {{verb}} ON {{table}} BEGIN {_ABORT}; END",
    ],
    "remove": ["DROP TRIGGER IF EXISTS {table}_no_{verb}"],
    "verbs": ["UPDATE", "DELETE"],
}
_RAISE = f"$$ BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$"
_FOR_EACH = "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()"
_POSTGRESQL = {
    "install": [
        f"CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS {_RAISE}",
        f"CREATE OR REPLACE TRIGGER {{table}}_no_{{verb}} BEFORE {{verb}} ON {{table}} {_FOR_EACH}",
    ],
    "remove": ["DROP TRIGGER IF EXISTS {table}_no_{verb} ON {table}"],
    "verbs": ["UPDATE", "DELETE", "TRUNCATE"],
}
_DIALECTS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}


def install(connection: BaseDatabaseWrapper) -> None:
    _run(connection, "install")


def remove(connection: BaseDatabaseWrapper) -> None:
    _run(connection, "remove")


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of triggers that should be there and are not."""
    verbs = _DIALECTS[connection.vendor]["verbs"]
    wanted = {f"{table}_no_{verb}".lower() for table in TABLES for verb in verbs}
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = {str(name).lower() for (name,) in cursor.fetchall()}
    return sorted(wanted - found)


def _run(connection: BaseDatabaseWrapper, what: str) -> None:
    dialect = _DIALECTS[connection.vendor]
    with connection.cursor() as cursor:
        for table in TABLES:
            for verb in dialect["verbs"]:
                for statement in dialect[what]:
                    cursor.execute(statement.format(table=table, verb=verb))
