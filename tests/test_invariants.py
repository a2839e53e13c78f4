"""The checker of invariants: it finds nothing wrong with what the product wrote, and names everything else."""

import pytest
from django.db import connection, transaction

from audit import models
from tests.flows.story import Story, told
from tests.invariants import problems

pytestmark = pytest.mark.django_db

SECRET = "canary-of-the-invariants"
AGAIN = "UPDATE agents_agentsession SET completed_at = NULL, terminal_reason = NULL, halt_state = 'running', status = "
LOST = f"{AGAIN}'%s', waiting_on = '%s' WHERE mode = 'phased'"
TO_HALT = "UPDATE agents_agentsession SET halt_state = 'halt_requested' WHERE mode = 'phased'"
LETTER = "chain IN (SELECT chain FROM audit_auditevent WHERE CAST(details AS text) LIKE '%send_letter%')"

# Each row: the beginning and a part of what is to be said, and how the rows are spoilt.
BREAKS = [
    *(
        ("ledger: session", f"has {said} ", f"UPDATE agents_agentsession SET {name} = {name} + 1 WHERE mode = 'phased'")
        for said, name in (
            ("charged", "cost_total_usd"),
            ("reserved", "cost_reserved_usd"),
            ("actual", "cost_actual_usd"),
            ("held", "cost_held_usd"),
        )
    ),
    ("ledger: session", "tokens", "UPDATE agents_agentsession SET total_tokens = total_tokens + 1"),
    ("ledger: session", "open call", "UPDATE agents_toolcall SET outcome = 'started', settled_at = NULL"),
    ("ledger: budget", "has actual", "UPDATE agents_budget SET actual_usd = actual_usd + 1"),
    ("ledger: a call", "does not exist", "DELETE FROM agents_budget"),
    ("overspent: session", "", "UPDATE agents_agentsession SET max_cost_usd = 1 WHERE mode = 'phased'"),
    ("overspent: budget", "", "UPDATE agents_budget SET cap_usd = 1"),
    ("lost: session", "is running under a lease", LOST % ("running", "")),
    ("lost: session", "is queued without", f"{LOST % ('queued', '')}; DELETE FROM django_q_ormq"),
    ("lost: session", "is sleeping without", LOST % ("sleeping", "")),
    *(
        ("lost: session", f"is waiting on {on}", LOST % ("waiting", on))
        for on in ("approval", "input", "operator", "model")
    ),
    ("lost: session", "is to halt", f"{LOST % ('queued', '')}; {TO_HALT}"),
    ("ends: session", "has 0 ends", "DELETE FROM audit_auditevent WHERE kind = 'autonomous_session.completed'"),
    ("ends: session", "has 1 ends", LOST % ("queued", "")),
    ("doubled: call", "succeeded", "UPDATE agents_toolcall SET key = 'same', attempt = id"),
    ("effects: session", "0 findings of 2", "DELETE FROM agents_finding"),
    ("input:", "nothing says so", "UPDATE agents_agentsession SET terminal_reason = 'worker_lost' WHERE slot <> ''"),
    ("unguarded: call", "no verdict", "UPDATE agents_toolcall SET started_at = '2020-01-01'"),
    ("unguarded: call", "no verdict", "DELETE FROM audit_auditevent WHERE CAST(details AS text) LIKE '%\"started\"%'"),
    ("unguarded: call", "is error", "UPDATE agents_toolcall SET outcome = 'error' WHERE outcome = 'success'"),
    ("unguarded: call", "without a reservation", "UPDATE agents_toolcall SET budget_ids = '[]'"),
    ("unguarded: model", "without a call", "UPDATE agents_inferencelog SET model = 'other'"),
    ("approval:", "was used 1 times", "UPDATE agents_approval SET consumed_at = NULL"),
    ("approval:", "other arguments", "UPDATE agents_approval SET digest = 'x'"),
    ("approval:", "other arguments", "UPDATE agents_toolcall SET arguments = '{}' WHERE name = 'send_letter'"),
    ("approval:", "was used 0 times", "DELETE FROM audit_auditevent WHERE kind = 'approval.consumed'"),
    ("approval:", "without one", "DELETE FROM audit_auditevent WHERE kind = 'approval.consumed'"),
    ("audit:", "was changed", "UPDATE audit_auditevent SET actor = 'user:7' WHERE seq = 2"),
    (
        "halt: session",
        "after its halt",
        f"UPDATE audit_auditevent SET kind = 'autonomous_session.halt_requested' WHERE seq = 1 AND {LETTER}",
    ),
    ("halt: session", "as completed", "UPDATE agents_agentsession SET halt_state = 'halted'"),
    (
        "halt:",
        "while all work was halted",
        "UPDATE audit_auditevent SET kind = 'organisation.halted' WHERE id = (SELECT MIN(id) FROM audit_auditevent)",
    ),
    ("outbox:", "neither sent", "UPDATE agents_outboxmessage SET status = 'pending', created_at = '2020-01-01'"),
    ("secret:", "number 0 stands in agents_finding", f"UPDATE agents_finding SET content = '{SECRET}'"),
]


@pytest.fixture
def told_story(tmp_path, settings):
    """A story that was told to its end."""
    settings.MEDIA_ROOT = tmp_path / "media"
    with told(tmp_path / "effects") as time:
        story = Story()
        story.drive(time)
        assert story.faults() == []
        assert problems(secrets=[SECRET]) == []
        yield


def test_every_broken_invariant_is_named(told_story, some):
    for begins, holds, sql in some(BREAKS, 3):
        with transaction.atomic(), connection.cursor() as cursor:
            models.remove(connection)  # the audit log refuses changes
            for one in sql.split("; "):
                cursor.execute(one)
            found = problems(secrets=[SECRET])
            transaction.set_rollback(True)
        assert [one for one in found if one.startswith(begins) and holds in one], f"{sql}: {found}"
