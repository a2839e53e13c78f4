"""Notes on a run's row: made once, by its holder alone; and a run that waits for money that others hold."""

from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import transaction

from agents.conf import clock
from agents.enums import BudgetScope, RunResult, Status
from agents.exceptions import LeaseLost
from agents.models import AgentSession, Budget
from agents.sessions.lifecycle import session_wake
from agents.sessions.transcripts import (
    Inputs,
    note_inputs,
    result_notes,
    session_note_judges,
    session_note_new,
    session_note_wait,
)
from agents.walk import analysis
from audit.models import AuditEvent
from tests.agents.walk.scene import model, run
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "note",
    [
        lambda held: note_inputs(held, Inputs(), now=NOW),
        lambda held: session_note_judges(held, citations=1, judges=["a"], now=NOW),
        session_note_wait,
        lambda held: session_note_new(held, result_notes(RunResult.EMPTY, "", empty=True)),
    ],
    ids=["inputs", "judges", "wait", "result"],
)
def test_only_the_holder_writes(note):
    held = make_session()
    AgentSession.objects.update(fencing=held.fencing + 1)
    with pytest.raises(LeaseLost), transaction.atomic():
        note(held)
    assert AgentSession.objects.get().metadata == {}
    assert not AuditEvent.objects.exists()


def inputs_noted():
    return [row.details["memories"] for row in AuditEvent.objects.filter(kind="session.inputs").order_by("seq")]


def test_inputs_are_said_once_and_again_only_if_they_are_others():
    held = make_session()
    for memories in [(), (), ("m1",), ("m1",)]:
        note_inputs(held, Inputs(context_version=3, memory_ids=memories), now=NOW)
    assert inputs_noted() == [0, 1]
    assert AgentSession.objects.get().context_version == 3


def test_inputs_take_the_place_of_those_before_and_leave_other_notes():
    held = make_session(metadata={"waits": 2})
    note_inputs(held, Inputs(precedent_ids=("p1",), memory_ids=("m1",)), now=NOW, reading={"room": 1, "names": ["A"]})
    note_inputs(held, Inputs(memory_ids=("m2",)), now=NOW, reading={"room": 2})
    noted = {"waits": 2, "inputs": {"memories": 1, "memory_ids": ["m2"]}, "reading": {"room": 2}}
    assert held.metadata == AgentSession.objects.get().metadata == noted


def test_judges_are_chosen_once():
    held = make_session()
    assert session_note_judges(held, citations=1, judges=["a", "b"], now=NOW) == ("a", "b")
    assert session_note_judges(held, citations=99, judges=["c"], now=NOW) == ("a", "b")


def test_other_notes_stay():
    held = make_session(metadata={"phase_entered": "analysis"})
    session_note_wait(held)
    for _ in range(2):
        session_note_new(held, result_notes(RunResult.OK, "All is well.", empty=False))
    noted = {"result": "ok", "reason": "All is well.", "empty": False}
    assert AgentSession.objects.get().metadata == {"phase_entered": "analysis", "waits": 1, **noted}


def hold_the_budget(amount):
    """Other calls in flight hold all but nothing of what the installation may spend today."""
    Budget.objects.update_or_create(
        scope=BudgetScope.INSTALLATION,
        subject_id=0,
        day=clock().date(),
        defaults={"cap_usd": Decimal(20), "held_usd": Decimal(amount)},
    )


def test_a_run_sleeps_while_its_money_is_held_and_then_asks(scene):
    hold_the_budget("19.999")
    with model() as asked:
        session = run(scene.of_document())
        assert (session.status, asked.requests) == (Status.SLEEPING, [])
        assert session.next_wake_at - clock() <= timedelta(seconds=30)
        Budget.objects.update(held_usd=Decimal(0))
        session_wake(session.pk, now=clock())
        run(session)
    assert (session.status, len(asked.requests), session.findings.count()) == (Status.COMPLETED, 1, 3)


def test_a_run_does_not_wait_for_ever(scene):
    hold_the_budget("19.999")
    with model() as asked, patch.object(analysis, "MOST_WAITS", 2):
        session = run(scene.of_document())
        for _ in range(2):
            assert session.status == Status.SLEEPING
            session_wake(session.pk, now=clock())
            run(session)
    assert (session.status, asked.requests) == (Status.COMPLETED, [])
    [finding] = session.findings.all()
    assert (finding.severity, finding.title) == ("warn", "Analysis failed: nothing was produced")
    assert "held by calls in flight" in finding.content
