"""A person says what became of a call whose outcome a crash left unknown."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import Outcome, Status
from agents.exceptions import InvalidTransition, NotAllowed
from agents.models import ToolCall
from agents.people.actors import actor_of
from agents.policy.transitions import TERMINAL
from agents.sessions.approvers import PERMISSION
from agents.sessions.lifecycle import session_lock, session_wake
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact_data


class Decision(StrEnum):
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"


@transaction.atomic
def tool_call_resolve(call_pk: int, decision: Decision, *, by: User, now: datetime, result: Any = None) -> ToolCall:
    """Decides an unknown outcome; the session goes on when none is left.

    The chain of a session that is over is closed, so what is said of its calls later stands in `system`.
    """
    if not by.is_active or not by.has_perm(PERMISSION):
        raise NotAllowed(f"{by} may not decide what became of a call: the permission {PERMISSION} is missing.")
    call = ToolCall.objects.select_related("session").get(pk=call_pk)
    session = session_lock(call.session_id)
    happened = decision == Decision.HAPPENED
    decided = ToolCall.objects.filter(pk=call.pk, outcome=Outcome.UNKNOWN, resolved_at__isnull=True).update(
        outcome=Outcome.SUCCESS if happened else Outcome.WORKER_LOST,
        result=redact_data(result) if happened else None,
        resolved_at=now,
    )
    if not decided:
        raise InvalidTransition(f"Call {call.public_id} has no unknown outcome to decide on.")
    recorder.append(
        SYSTEM_CHAIN if session.status in TERMINAL else session.chain,
        "tool_call.resolved",
        now=now,
        actor=actor_of(by),
        subject=f"session:{session.public_id}",
        details={"call_id": str(call.public_id), "tool": call.intent, "decision": decision},
    )
    left = ToolCall.objects.filter(session=session, outcome=Outcome.UNKNOWN).exists()
    if not left and session.status == Status.WAITING:
        session_wake(session.pk, now=now)
    call.refresh_from_db()
    return call
