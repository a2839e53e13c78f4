"""Runs that are over, with calls, a transcript, a skill audit and audit events, long ago."""

from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest

from agents.enums import Status
from agents.models import Message, StreamPart, ToolCall
from agents.retention.prune import prune
from audit.recorder import close_chain
from tests.audit.samples import NOW, later, record_session, record_skill_call
from tests.factories import make_session

AGE = timedelta(days=90)
TODAY = NOW + timedelta(days=100)
BEFORE = TODAY - AGE
LONG = "The lessee pays the rent. " * 100


def ended_run(owner, *, at=NOW, **fields):
    over = {"terminal_reason": "completed", "run_result": "ok", "mode": "phased", "cost_total_usd": Decimal("0.02")}
    times = {"started_at": at - timedelta(minutes=1), "completed_at": at, "created_at": at}
    session = make_session(Status.COMPLETED, owner=owner, **{**over, **times, **fields})
    record_session(session.chain, closed=False)
    record_skill_call(
        session_id=session.public_id, skill_name="send", arguments={}, output="sent", capability_level="CONTROLLED",
        risk_level=None, duration_ms=1,
    )  # fmt: skip
    close_chain(session.chain, now=later(60))
    add_call(session, key="analysis", arguments={"text": LONG}, result={"answer": f"{LONG}{session.pk}"})
    Message.objects.create(session=session, seq=1, role="user", content=LONG, created_at=at)
    StreamPart.objects.create(session=session, text="The", created_at=at)
    return session


def add_call(session, **fields):
    times = {"started_at": NOW, "settled_at": NOW}
    digests = {"digest": "0" * 64, "asked_digest": "0" * 64}
    common = {"intent": "run_skill", "phase": "analysis", "fencing": 1, "outcome": "success", "arguments": {}}
    return ToolCall.objects.create(session=session, **{**common, **times, **digests, **fields})


def pruned(folder, **options):
    given = {"before": BEFORE, "folder": folder, "by": None, "unnamed": "command", "now": TODAY}
    return prune(**{**given, **options})


class Killed(BaseException):
    """In place of the end of a process."""


def killed(folder, before, **options):
    """A pruning by a process that is killed before it calls this function for the first time."""
    with patch(before, side_effect=Killed), pytest.raises(Killed):
        pruned(folder, **options)
