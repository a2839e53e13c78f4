"""Tables of the audit log. Plain ids and no foreign keys: events outlive the rows they name.

Events and skill audits refuse UPDATE, DELETE and TRUNCATE by database triggers, below. Only audit/recorder.py writes
rows. The one exception: rows that a recorded seal covers may be dropped, after they were archived (audit/segments.py).
"""

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

from audit import kinds

SYSTEM_CHAIN = "system"


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    def of_kind(self, *wanted: str) -> "AuditEventQuerySet":
        """Return the events of these kinds, found by their index. It has no calls, of which all pages are full."""
        found = self.filter(kind__in=wanted) if len(wanted) > 1 else self.filter(kind=wanted[0])
        return found if kinds.TOOL_CALL in wanted else found.exclude(kind=kinds.TOOL_CALL)


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

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "seq"], name="audit_event_chain_seq")]
        # Most events are those of calls. Without them in it, an index costs a call nothing.
        indexes = [
            models.Index(fields=["at"], condition=~models.Q(kind=kinds.TOOL_CALL), name="audit_event_time"),
            models.Index(fields=["kind", "-id"], condition=~models.Q(kind=kinds.TOOL_CALL), name="audit_event_of_kind"),
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


# --- What was archived ---


class Seal(models.Model):
    """One archived segment of the audit log: the signed statement of what it holds and in which files.

    Row `event_seq` of `system` is the event that names it. Rows are only added.
    """

    number = models.PositiveBigIntegerField(primary_key=True)
    statement = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical statement.")
    event_seq = models.BigIntegerField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"seal {self.number}"


class SealedChain(models.Model):
    """Rows of one chain in a segment, first and last included: all of a run's chain, or a range of `system`."""

    seal = models.ForeignKey(Seal, models.PROTECT, related_name="chains")
    chain = models.CharField(max_length=64)
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    first_hash = models.CharField(max_length=64)
    last_hash = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "first_seq"], name="audit_sealed_chain_once")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.chain} {self.first_seq} to {self.last_seq}"


class DroppedSegment(models.Model):
    """The rows of a sealed segment were dropped, in the transaction that wrote this row."""

    seal = models.OneToOneField(Seal, models.PROTECT, related_name="dropped")
    events = models.PositiveBigIntegerField()
    at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"segment {self.seal_id}, dropped {self.at:%Y-%m-%d}"


# --- Database triggers that make the tables append-only, on SQLite and PostgreSQL ---
#
# They stop the application, not the owner of the database, who can drop them; verify_audit finds edits made then.

#
# A row may be deleted only if a seal covers it that is recorded in `system`. PostgreSQL also wants the transaction to
# say which seal it drops (SEAL_SETTING): a statement that says nothing is refused even if it meets no row.

# What keeps a new row from taking the place of another, by table.
TABLES = {
    "audit_auditevent": "id = NEW.id OR (chain = NEW.chain AND seq = NEW.seq)",
    "audit_skillaudit": "id = NEW.id",
    "audit_seal": "number = NEW.number",
    "audit_sealedchain": "id = NEW.id OR (chain = NEW.chain AND first_seq = NEW.first_seq)",
    "audit_droppedsegment": "id = NEW.id OR seal_id = NEW.seal_id",
}
DROPPABLE = frozenset({"audit_auditevent", "audit_skillaudit"})
MESSAGE = "audit rows are append-only"
SEAL_SETTING = "lqops.dropped_seal"

# Whether a recorded seal covers a row of events or skill audits.
_COVERED = """EXISTS (SELECT 1 FROM audit_sealedchain r JOIN audit_seal s ON s.number = r.seal_id
    JOIN audit_auditevent e ON e.chain = 'system' AND e.seq = s.event_seq AND e.kind = 'audit.sealed'
    WHERE r.chain = {row}.chain AND {row}.seq BETWEEN r.first_seq AND r.last_seq{more})"""

_ABORT = f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
_SQLITE = {
    "UPDATE": f"BEFORE UPDATE ON {{table}} {_ABORT}",
    "DELETE": f"BEFORE DELETE ON {{table}} {_ABORT}",
    # INSERT OR REPLACE deletes the row that is in its place, and the trigger on DELETE is not asked.
    "REPLACE": f"BEFORE INSERT ON {{table}} WHEN EXISTS (SELECT 1 FROM {{table}} WHERE {{taken}}) {_ABORT}",  # noqa: S608 our tables
}
_RAISE = f"RAISE EXCEPTION '{MESSAGE}';"
_SAID = f"current_setting('{SEAL_SETTING}', true)"
_OF_SEAL = _COVERED.format(row="gone", more=f" AND r.seal_id::text = {_SAID}")
_UNCOVERED = f"SELECT 1 FROM gone WHERE NOT {_OF_SEAL}"  # noqa: S608 our tables
_FUNCTION = "CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
_FUNCTIONS = (
    _FUNCTION.format(name="audit_append_only", body=_RAISE),
    _FUNCTION.format(
        name="audit_only_sealed",
        body=f"IF coalesce({_SAID}, '') = '' OR EXISTS ({_UNCOVERED}) THEN {_RAISE} END IF; RETURN NULL;",
    ),
)
_FOR_EACH = "FOR EACH STATEMENT EXECUTE FUNCTION"
_POSTGRESQL = {
    verb: f"BEFORE {verb} ON {{table}} {_FOR_EACH} audit_append_only()" for verb in ("UPDATE", "DELETE", "TRUNCATE")
}
_TRIGGERS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}
_DROPPABLE = {
    "sqlite": f"BEFORE DELETE ON {{table}} WHEN NOT {_COVERED.format(row='OLD', more='')} {_ABORT}",
    "postgresql": f"AFTER DELETE ON {{table}} REFERENCING OLD TABLE AS gone {_FOR_EACH} audit_only_sealed()",
}
_CREATE = {"sqlite": "CREATE TRIGGER IF NOT EXISTS {name}", "postgresql": "CREATE OR REPLACE TRIGGER {name}"}
_REMOVE = {"sqlite": "DROP TRIGGER IF EXISTS {name}", "postgresql": "DROP TRIGGER IF EXISTS {name} ON {table}"}


def install(connection: BaseDatabaseWrapper) -> None:
    """Create the triggers on the tables that exist: older migrations call this before there are seals."""
    vendor = connection.vendor
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
        droppable = DROPPABLE if "audit_sealedchain" in existing else frozenset()
        for function in _FUNCTIONS if vendor == "postgresql" else ():
            cursor.execute(function)
        for table, verb, name in _names(connection):
            if table in existing:
                when = _DROPPABLE[vendor] if verb == "DELETE" and table in droppable else _TRIGGERS[vendor][verb]
                text = f"{_CREATE[vendor]} {when}".format(table=table, name=name, taken=TABLES[table])
                cursor.execute(text)


def remove(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
        for table, _, name in _names(connection):
            if table in existing:
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
