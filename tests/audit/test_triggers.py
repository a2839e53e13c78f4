import sqlite3

import pytest
from django.db import DatabaseError, connection, transaction

from audit import models
from audit.models import AuditEvent, SkillAudit
from tests.audit.samples import NOW, RUN, record_session, record_skill_call, row, sql

pytestmark = pytest.mark.django_db


def audited_call():
    return record_skill_call(
        skill_name="send",
        arguments={},
        output="",
        capability_level="CONTROLLED",
        risk_level=None,
        duration_ms=1,
        now=NOW,
    )


def save_event():
    event = row(RUN, 1)
    event.actor = "user:8"
    event.save()


def bulk_update_events():
    event = row(RUN, 1)
    event.actor = "user:8"
    AuditEvent.objects.bulk_update([event], ["actor"])


def save_skill_call():
    found = SkillAudit.objects.get()
    found.skill_name = "other"
    found.save()


ATTEMPTS = {
    "save": save_event,
    "delete": lambda: row(RUN, 1).delete(),
    "queryset update": lambda: AuditEvent.objects.update(actor="user:8"),
    "queryset delete": lambda: AuditEvent.objects.all().delete(),
    "raw delete": lambda: AuditEvent.objects.all()._raw_delete("default"),
    "bulk_update": bulk_update_events,
    "upsert": lambda: AuditEvent.objects.bulk_create(
        [row(RUN, 1)], update_conflicts=True, unique_fields=["chain", "seq"], update_fields=["actor"]
    ),
    "sql update": lambda: sql("UPDATE audit_auditevent SET actor = 'user:8' WHERE seq = 1"),
    "sql delete": lambda: sql("DELETE FROM audit_auditevent WHERE seq = 1"),
    "skill save": save_skill_call,
    "skill delete": lambda: SkillAudit.objects.get().delete(),
    "skill update": lambda: SkillAudit.objects.update(skill_name="other"),
    "skill sql delete": lambda: sql("DELETE FROM audit_skillaudit"),
}
EVENT = "chain, seq, kind, at, actor, subject, request_id, details, prev_hash, hash"
SKILL = "skill_name, input_summary, output_summary, capability_level, duration_ms, chat_id, chain, seq, created_at"
if connection.vendor == "sqlite":
    OVER = "INSERT OR REPLACE INTO audit_auditevent"
    ATTEMPTS |= {
        "replace by id": lambda: sql(f"{OVER} (id, {EVENT}) SELECT id, {EVENT} FROM audit_auditevent WHERE seq = 1"),
        "replace by number": lambda: sql(f"{OVER} ({EVENT}) SELECT {EVENT} FROM audit_auditevent WHERE seq = 1"),
        "replace by rowid": lambda: sql(
            f"{OVER} (rowid, {EVENT}) SELECT rowid, 'x', 1, {EVENT[12:]} FROM audit_auditevent WHERE seq = 1"
        ),
        "replace into": lambda: sql(
            f"REPLACE INTO audit_auditevent ({EVENT}) SELECT {EVENT} FROM audit_auditevent WHERE seq = 1"
        ),
        "update or replace": lambda: sql("UPDATE OR REPLACE audit_auditevent SET seq = 1 WHERE seq = 2"),
        "upsert in sql": lambda: sql(
            f"INSERT INTO audit_auditevent ({EVENT}) SELECT {EVENT} FROM audit_auditevent WHERE seq = 1 "
            "ON CONFLICT (chain, seq) DO UPDATE SET actor = 'user:8'"
        ),
        "skill replace": lambda: sql(
            f"INSERT OR REPLACE INTO audit_skillaudit (id, {SKILL}) SELECT id, {SKILL} FROM audit_skillaudit"
        ),
    }
if connection.vendor == "postgresql":
    ATTEMPTS |= {
        "upsert in sql": lambda: sql(
            f"INSERT INTO audit_auditevent ({EVENT}) SELECT {EVENT} FROM audit_auditevent WHERE seq = 1 "
            "ON CONFLICT (chain, seq) DO UPDATE SET actor = 'user:8'"
        ),
        "upsert by id": lambda: sql(
            f"INSERT INTO audit_skillaudit (id, {SKILL}) OVERRIDING SYSTEM VALUE SELECT id, {SKILL} "
            "FROM audit_skillaudit ON CONFLICT (id) DO UPDATE SET skill_name = 'other'"
        ),
        "merge that updates": lambda: sql(
            "MERGE INTO audit_auditevent USING (SELECT 1 AS seq) s ON audit_auditevent.seq = s.seq "
            "WHEN MATCHED THEN UPDATE SET actor = 'user:8'"
        ),
        "merge that deletes": lambda: sql(
            "MERGE INTO audit_skillaudit USING (SELECT 1) s ON TRUE WHEN MATCHED THEN DELETE"
        ),
        "delete in a query": lambda: sql("WITH gone AS (DELETE FROM audit_auditevent RETURNING id) SELECT 1 FROM gone"),
        "truncate": lambda: sql("TRUNCATE audit_auditevent"),
        "truncate cascade": lambda: sql("TRUNCATE audit_skillaudit CASCADE"),
        "statement that meets no row": lambda: sql("DELETE FROM audit_auditevent WHERE seq = -1"),
    }


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_rows_cannot_be_changed_or_deleted(attempt):
    record_session()
    audited_call()
    before = list(AuditEvent.objects.order_by("id").values()), list(SkillAudit.objects.values())
    with pytest.raises(DatabaseError, match=models.MESSAGE), transaction.atomic():
        attempt()
    assert (list(AuditEvent.objects.order_by("id").values()), list(SkillAudit.objects.values())) == before


def test_triggers_exist_during_tests():
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'audit_%%'",
        "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'audit_%%'",
    }[connection.vendor]
    verbs = ["update", "delete", "truncate" if connection.vendor == "postgresql" else "replace"]
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = {name.lower() for (name,) in cursor.fetchall()}
    assert found == {f"{table}_no_{verb}" for table in models.TABLES for verb in verbs}


@pytest.mark.django_db(transaction=True)
def test_triggers_exist_in_transactional_tests():
    record_session()
    with pytest.raises(DatabaseError, match=models.MESSAGE):
        AuditEvent.objects.update(actor="user:8")


def test_installing_twice_is_harmless():
    models.install(connection)
    record_session()
    with pytest.raises(DatabaseError, match=models.MESSAGE), transaction.atomic():
        AuditEvent.objects.update(actor="user:8")


def test_rows_can_be_edited_after_the_triggers_are_removed(unguarded):
    record_session()
    assert AuditEvent.objects.filter(seq=1, chain=RUN).update(actor="user:8") == 1


def test_missing_triggers_are_named(db):
    assert models.missing(connection) == []
    models.remove(connection)
    verbs = ["delete", "truncate" if connection.vendor == "postgresql" else "replace", "update"]
    assert models.missing(connection) == sorted(f"{table}_no_{verb}" for table in models.TABLES for verb in verbs)


if connection.vendor == "sqlite":  # PostgreSQL has no INSERT OR REPLACE

    @pytest.mark.django_db(transaction=True)
    def test_replace_through_a_connection_of_its_own_is_refused():
        """The trigger itself holds, whatever the connection is set to."""
        record_session()
        audited_call()
        other = sqlite3.connect(connection.settings_dict["NAME"])
        try:
            with pytest.raises(sqlite3.IntegrityError, match=models.MESSAGE):
                other.execute(
                    f"INSERT OR REPLACE INTO audit_skillaudit (id, {SKILL}) SELECT id, {SKILL} FROM audit_skillaudit"
                )
        finally:
            other.close()
