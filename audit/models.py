"""Tables of the audit log. Plain ids and no foreign keys: events outlive the rows they name.

Events and skill audits refuse UPDATE, DELETE and TRUNCATE by database triggers, below. Only audit/recorder.py writes
rows.
"""

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

from audit import kinds

SYSTEM_CHAIN = "system"


class AuditEvent(models.Model):
    """One link of one hash chain. A chain is a session's public id, or `system`."""

    chain = models.CharField(max_length=64)
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=64)
    at = models.DateTimeField()
    actor = models.CharField(max_length=64)
    subject = models.CharField(max_length=96, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    details = models.JSONField()
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "seq"], name="audit_event_chain_seq")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="audit_event_newest"),
            models.Index(fields=["kind", "-id"], name="audit_event_kind"),
        ]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.chain}#{self.seq} {self.kind}"

    @property
    def sentence(self) -> str:
        return kinds.sentence(self.kind, self.details)


class PendingEvent(models.Model):
    """An event that is committed with its act and waits for its place in a chain; deleted when it has one."""

    chain = models.CharField(max_length=64)
    kind = models.CharField(max_length=64)
    at = models.DateTimeField()
    actor = models.CharField(max_length=64)
    subject = models.CharField(max_length=96, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    details = models.JSONField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} of {self.at:%Y-%m-%d %H:%M:%S}"


class SkillAudit(models.Model):
    """Input and output of a skill call, redacted and cut, for people who may see content.

    Row `seq` of `chain` is the event of the call and holds the digest of this row. Rows from before there were such
    events have no place; one event of `system` holds the digest of them all.
    """

    chain = models.CharField(max_length=64, blank=True)
    seq = models.BigIntegerField(null=True, blank=True)
    skill_name = models.CharField(max_length=128)
    input_summary = models.CharField(max_length=200)
    output_summary = models.CharField(max_length=200)
    capability_level = models.CharField(max_length=16)
    risk_level = models.CharField(max_length=16, null=True, blank=True)  # noqa: DJ001 null = not graded, by contract
    duration_ms = models.PositiveIntegerField()
    chat_id = models.CharField(max_length=64, blank=True)
    user_id = models.BigIntegerField(null=True, blank=True)
    session_id = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(fields=["chain", "seq"], name="audit_skill_place"),
            models.Index(fields=["-created_at", "-id"], name="audit_skill_newest"),
            models.Index(fields=["skill_name", "-created_at", "-id"], name="audit_skill_name"),
            models.Index(fields=["user_id", "-created_at", "-id"], name="audit_skill_user"),
            models.Index(fields=["session_id"], name="audit_skill_session"),
        ]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.skill_name} ({self.capability_level})"


# --- Database triggers that make the tables append-only, on SQLite and PostgreSQL ---
#
# They stop the application, not the owner of the database, who can drop them; verify_audit finds edits made then.

# What keeps a new row from taking the place of another, by table.
TABLES = {"audit_auditevent": "id = NEW.id OR (chain = NEW.chain AND seq = NEW.seq)", "audit_skillaudit": "id = NEW.id"}
MESSAGE = "audit rows are append-only"

_ABORT = f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
_SQLITE = {
    "UPDATE": "BEFORE UPDATE ON {table}",
    "DELETE": "BEFORE DELETE ON {table}",
    # INSERT OR REPLACE deletes the row that is in its place, and the trigger on DELETE is not asked.
    "REPLACE": "BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE {taken})",
}
_RAISE = f"$$ BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$"
_FUNCTION = f"CREATE OR REPLACE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS {_RAISE}"
_FOR_EACH = "FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only()"
_POSTGRESQL = {verb: f"BEFORE {verb} ON {{table}} {_FOR_EACH}" for verb in ("UPDATE", "DELETE", "TRUNCATE")}
_TRIGGERS = {
    "sqlite": {verb: f"CREATE TRIGGER IF NOT EXISTS {{name}} {when} {_ABORT}" for verb, when in _SQLITE.items()},
    "postgresql": {verb: f"CREATE OR REPLACE TRIGGER {{name}} {when}" for verb, when in _POSTGRESQL.items()},
}
_BEFORE = {"sqlite": "SELECT 1", "postgresql": _FUNCTION}
_REMOVE = {"sqlite": "DROP TRIGGER IF EXISTS {name}", "postgresql": "DROP TRIGGER IF EXISTS {name} ON {table}"}


def install(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_BEFORE[connection.vendor])
        for table, verb, name in _names(connection):
            cursor.execute(_TRIGGERS[connection.vendor][verb].format(table=table, name=name, taken=TABLES[table]))


def remove(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        for table, _, name in _names(connection):
            cursor.execute(_REMOVE[connection.vendor].format(table=table, name=name))


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of triggers that should exist and do not."""
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = {str(name).lower() for (name,) in cursor.fetchall()}
    return sorted({name.lower() for _, _, name in _names(connection)} - found)


def _names(connection: BaseDatabaseWrapper) -> list[tuple[str, str, str]]:
    """Return the table, the verb and the name of each trigger."""
    return [(table, verb, f"{table}_no_{verb}") for table in TABLES for verb in _TRIGGERS[connection.vendor]]
