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
    """Input and output of a skill call, redacted and cut, for people who may see content."""

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
    """Return the names of triggers that should exist and do not."""
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
