"""A small audit log to test on, and helpers that tamper with it."""

from datetime import UTC, datetime, timedelta

from django.db import connection

from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append, close_chain
from audit.rows import event_hash
from audit.skill_audits import skill_call

NOW = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
RUN = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def call(chain, outcome, *, second=0.0, call_id="call-1", **details):
    return append(
        chain,
        "autonomous_session.tool_call",
        now=later(second),
        details={"tool": "run_skill", "call_id": call_id, "outcome": outcome, **details},
    )


def start(chain, *, owner_id=7, cap="5.00", **details):
    return append(
        chain,
        "autonomous_session.started",
        now=NOW,
        actor=f"user:{owner_id}",
        subject=f"session:{chain}",
        request_id="req-1",
        details={"mode": "phased", "owner_id": owner_id, "max_cost_usd": cap, **details},
    )


def record_session(chain=RUN, *, calls=2, closed=True):
    """A whole session: start, a phase, two rows per call, the end; and a birth and an end in `system`."""
    start(chain)
    append(chain, "autonomous_session.phase_transition", now=later(1), details={"to_phase": "intake"})
    for number in range(calls):
        call(chain, "started", second=2 + number, call_id=f"call-{number}", cost_usd="0.010000")
        call(
            chain, "success", second=2.5 + number, call_id=f"call-{number}", cost_usd="0.010000", actual_usd="0.008000"
        )
    append(chain, "autonomous_session.completed", now=later(60), details={"reason": "completed"})
    if closed:
        close_chain(chain, now=later(60))


def record_skill_call(*, session_id=None, now=NOW, **facts):
    """The event of a skill call, and its row if calls of its level have one."""
    audited = skill_call(session_id=session_id, now=now, **facts)
    details = {"tool": "run_skill", "name": facts["skill_name"], "outcome": "success"}
    chain = str(session_id or SYSTEM_CHAIN)
    append(chain, "autonomous_session.tool_call", now=now, details=details, skill_call=audited)
    return audited


def row(chain, seq) -> AuditEvent:
    return AuditEvent.objects.get(chain=chain, seq=seq)


def edit(chain, seq, /, **columns) -> None:
    assert AuditEvent.objects.filter(chain=chain, seq=seq).update(**columns) == 1


def remove(**where) -> None:
    assert AuditEvent.objects.filter(**where).delete()[0]


def hash_again(chain, seq) -> None:
    """What a careful forger does after an edit."""
    edited = row(chain, seq)
    names = ("chain", "seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash")
    edit(chain, seq, hash=event_hash(**{name: getattr(edited, name) for name in names}))


def hash_chain_again(chain) -> None:
    """What the owner of the database can do: number and link the whole chain afresh."""
    before = "0" * 64
    rows = list(AuditEvent.objects.filter(chain=chain).order_by("seq"))
    for seq, found in enumerate(rows, 1):
        AuditEvent.objects.filter(pk=found.pk).update(seq=seq, prev_hash=before)
        hash_again(chain, seq)
        before = row(chain, seq).hash


def sql(statement, *params) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
