"""Skill audits are held by the events of their calls: a change, a removal or an addition is found."""

from importlib import import_module
from uuid import UUID

import pytest
from django.apps import apps
from django.db import connection

from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.skill_audits import skill_call
from audit.verify import verify_log
from tests.audit.samples import NOW, RUN, edit, later, record_session, record_skill_call, row, sql

pytestmark = pytest.mark.django_db
FACTS = {"skill_name": "send", "capability_level": "RESTRICTED", "risk_level": "low", "duration_ms": 5, "user_id": 7}


@pytest.fixture
def calls(unguarded):
    """Two calls of a run and one of none."""
    record_session(RUN, closed=False)
    for number in range(2):
        record_skill_call(session_id=UUID(RUN), arguments={"n": number}, output="ok", chat_id=RUN, **FACTS)
    record_skill_call(arguments={}, output=None, **FACTS)
    assert verify_log().verified


def found():
    return [str(problem) for problem in verify_log().problems]


def test_row_stands_at_the_place_of_its_event(calls):
    audited = SkillAudit.objects.order_by("pk").first()
    event = row(RUN, audited.seq)
    assert (audited.chain, event.details["name"], len(event.details["skill_audit"])) == (RUN, "send", 64)
    assert SkillAudit.objects.order_by("pk").last().chain == SYSTEM_CHAIN


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("skill_name", "other"),
        ("input_summary", "{}"),
        ("output_summary", "no"),
        ("capability_level", "CONTROLLED"),
        ("risk_level", None),
        ("duration_ms", 6),
        ("chat_id", ""),
        ("user_id", 8),
        ("session_id", None),
        ("created_at", later(1)),
    ],
)
def test_edit_of_any_column_is_found(calls, column, value):
    first = SkillAudit.objects.order_by("pk").first()
    SkillAudit.objects.filter(pk=first.pk).update(**{column: value})
    assert found() == [f"chain {RUN}, row {first.seq}: its skill audit (id {first.pk}) was changed or added"]


def test_row_written_over_on_sqlite_is_found(calls):
    """INSERT OR REPLACE, by the owner of the database, who has dropped the triggers."""
    first = SkillAudit.objects.order_by("pk").first()
    first.delete()
    SkillAudit.objects.create(pk=first.pk, chain=first.chain, seq=first.seq, created_at=NOW, **FACTS)
    assert "was changed or added" in found()[0]


def test_removed_row_is_found(calls):
    first = SkillAudit.objects.order_by("pk").first()
    SkillAudit.objects.filter(pk=first.pk).delete()
    assert found() == [f"chain {RUN}, row {first.seq}: its skill audit was removed"]


def test_added_row_is_found(calls):
    SkillAudit.objects.create(chain=RUN, seq=1, created_at=NOW, **FACTS)
    SkillAudit.objects.create(chain="nowhere", seq=1, created_at=NOW, **FACTS)
    assert [problem.split(":")[0] for problem in found()] == [f"chain {RUN}, row 1", "chain nowhere, row 1"]


def test_copy_of_a_row_is_found(calls):
    first = SkillAudit.objects.order_by("pk").first()
    first.pk = None
    first.save()
    assert found() == [f"chain {RUN}, row {first.seq}: it has a second skill audit (id {first.pk})"]


def test_row_without_a_place_is_found(calls):
    SkillAudit.objects.create(created_at=NOW, **FACTS)
    assert "without an event of their own" in found()[0]


if connection.vendor == "sqlite":  # PostgreSQL takes no such value

    @pytest.mark.parametrize(
        ("column", "value"), [("created_at", "yesterday"), ("session_id", "nobody"), ("created_at", 7)]
    )
    def test_unreadable_row_is_found(calls, column, value):
        sql(f"UPDATE audit_skillaudit SET {column} = %s WHERE seq = 8", value)
        assert "was changed or added" in found()[0]


def test_event_with_unreadable_details_is_found(calls):
    first = SkillAudit.objects.order_by("pk").first()
    edit(RUN, first.seq, details=[])
    assert f"row {first.seq}" in found()[0]


def test_safe_call_has_an_event_and_no_row():
    assert skill_call(arguments={}, output="", now=NOW, **{**FACTS, "capability_level": "SAFE"}) is None
    assert record_skill_call(arguments={}, output="", **{**FACTS, "capability_level": "MONITORED"}) is None
    assert "skill_audit" not in AuditEvent.objects.get().details


# --- Rows from before they were chained ---


@pytest.fixture
def sealed(unguarded):
    for _ in range(3):
        SkillAudit.objects.create(created_at=NOW, **FACTS)
    migration = import_module("audit.migrations.0005_skill_audit_chain")
    migration.seal(apps, None)
    assert verify_log().verified


def test_older_rows_are_sealed_by_the_migration(sealed):
    event = AuditEvent.objects.get()
    assert (event.kind, event.details["rows"]) == ("audit.skill_audits_sealed", 3)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda: SkillAudit.objects.filter(pk=SkillAudit.objects.first().pk).update(output_summary="x"),
        lambda: SkillAudit.objects.filter(pk=SkillAudit.objects.first().pk).delete(),
        lambda: SkillAudit.objects.all().delete(),
        lambda: SkillAudit.objects.create(created_at=NOW, **FACTS),
        lambda: edit(SYSTEM_CHAIN, 1, details={"rows": 3}),
        lambda: edit(SYSTEM_CHAIN, 1, details=[]),
    ],
)
def test_tampering_with_older_rows_is_found(sealed, tamper):
    tamper()
    assert not verify_log().verified


def test_nothing_is_sealed_where_there_is_nothing():
    import_module("audit.migrations.0005_skill_audit_chain").seal(apps, None)
    assert not AuditEvent.objects.exists()
