"""Events are found by an index, and calls, which are most of them, are in none but that of their chain."""

import pytest
from django.db import connection

from audit.kinds import TOOL_CALL
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append
from tests.factories import NOW

pytestmark = pytest.mark.django_db

HALTED, RELEASED = "organisation.halted", "organisation.released"


MANY_EVENTS = """
    INSERT INTO audit_auditevent (chain, seq, kind, at, actor, subject, request_id, details, prev_hash, hash)
    SELECT 'made', n, 'kind ' || n, now() + n * interval '1 s', 'system', '', '', '{}', '', ''
    FROM generate_series(1, 2000) n
"""


def plan(rows):
    """Return how the database reads the rows. PostgreSQL decides by what the table holds."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(MANY_EVENTS)
            cursor.execute("ANALYZE audit_auditevent")
    return rows.explain()


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (lambda: AuditEvent.objects.of_kind(HALTED), "audit_event_of_kind"),
        (lambda: AuditEvent.objects.of_kind(HALTED, RELEASED), "audit_event_of_kind"),
        (lambda: AuditEvent.objects.filter(at__in=[NOW]).exclude(kind=TOOL_CALL), "audit_event_time"),
    ],
    ids=["one kind", "two kinds", "time"],
)
def test_events_are_found_by_an_index(rows, index):
    assert index in plan(rows())


def test_newest_calls_are_found_without_an_index_of_kinds():
    assert "audit_event_of_kind" not in plan(AuditEvent.objects.of_kind(TOOL_CALL).order_by("-id")[:5])


def test_kinds_are_asked_for_alone_or_together():
    for kind in (HALTED, RELEASED):
        append(SYSTEM_CHAIN, kind, now=NOW)
    append("c" * 32, TOOL_CALL, now=NOW, details={"tool": "notify", "outcome": "success"})

    assert {event.kind for event in AuditEvent.objects.of_kind(HALTED)} == {HALTED}
    assert {event.kind for event in AuditEvent.objects.of_kind(TOOL_CALL)} == {TOOL_CALL}
    assert {event.kind for event in AuditEvent.objects.of_kind(HALTED, TOOL_CALL)} == {HALTED, TOOL_CALL}
