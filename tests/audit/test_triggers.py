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
if connection.vendor == "postgresql":
    ATTEMPTS |= {
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
    verbs = ["update", "delete"] + (["truncate"] if connection.vendor == "postgresql" else [])
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
    verbs = ["delete", "truncate", "update"] if connection.vendor == "postgresql" else ["delete", "update"]
    assert models.missing(connection) == [f"{table}_no_{verb}" for table in models.TABLES for verb in verbs]
