"""Opting out: nothing new starts, loops end as `opted_out`, and results stay readable."""

import json
import threading
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, transaction

from agents.accounts import OPTED_OUT, email_copies_set, profile_set
from agents.enums import HaltState, Mode, Status, TerminalReason, ToolIntent, TriggerKind, WaitingOn
from agents.exceptions import NotAllowed
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Halt, Trigger
from agents.runner import run_session
from agents.sessions import halts
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from agents.types import Asleep, Finished
from audit.models import AuditEvent
from audit.receipts import build_receipt, outcome_sentence
from tests.factories import NOW, make_session, make_trigger, make_user
from tests.flows.processes import in_threads

from .rows import allowed, told

pytestmark = pytest.mark.django_db


def opt_out(user, **more):
    return profile_set(user=user, opted_in=False, by=user, now=NOW, **more)


def ended(session):
    session.refresh_from_db()
    return session.status, session.terminal_reason


LEFT = (Status.RUNNING, None)
OUT = (Status.HALTED, TerminalReason.OPTED_OUT)


@pytest.mark.parametrize(
    "rest",
    [
        {"status": Status.QUEUED},
        {"status": Status.SLEEPING, "next_wake_at": NOW},
        {"status": Status.WAITING, "waiting_on": WaitingOn.APPROVAL},
    ],
)
def test_idle_loop_ends_at_once(rest):
    loop = make_session(mode=Mode.LOOP, **rest)
    opt_out(loop.owner)
    assert ended(loop) == OUT
    assert loop.result == build_receipt(loop.chain)
    assert outcome_sentence(loop.result) == "Halted: the owner does not allow unattended runs."


def test_other_runs_and_loops_of_others_continue():
    owner = make_user()
    phased, queued = make_session(owner=owner), make_session(Status.QUEUED, owner=owner)
    theirs = make_session(mode=Mode.LOOP)
    opt_out(owner)
    assert (ended(phased), ended(queued), ended(theirs)) == (LEFT, (Status.QUEUED, None), LEFT)
    assert not Halt.objects.exists()


def test_halt_all_halts_every_run():
    owner = make_user()
    phased, loop = make_session(Status.QUEUED, owner=owner), make_session(Status.QUEUED, owner=owner, mode=Mode.LOOP)
    held = make_session(owner=owner)
    opt_out(owner, halt_all=True)
    assert (ended(phased), ended(loop)) == (OUT, OUT)
    held.refresh_from_db()
    assert held.halt_state == HaltState.HALT_REQUESTED
    assert set(Halt.objects.values_list("reason", "requested_by")) == {(OPTED_OUT, owner.pk)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("boundary", ["call", "rest"])
def test_running_loop_ends_at_its_next_boundary(boundary):
    loop = make_session(Status.QUEUED, mode=Mode.LOOP)

    def engine(held):
        guarded_tool_call(held, ToolIntent.EMIT_FINDING, {})
        opt_out(held.owner)
        assert ended(loop) == (Status.RUNNING, TerminalReason.OPTED_OUT)
        if boundary == "call":
            guarded_tool_call(held, ToolIntent.EMIT_FINDING, {})
        return Asleep(NOW)

    assert run_session(loop.pk, engine, owner="worker:1")
    assert ended(loop) == OUT
    kinds = list(AuditEvent.objects.filter(chain=loop.chain).order_by("seq").values_list("kind", flat=True))
    assert kinds[-2:] == ["autonomous_session.halt_requested", "autonomous_session.halted"]
    assert loop.result["terminal_reason"] == "opted_out"


def test_loop_of_a_lost_worker_ends_when_taken_over():
    loop = make_session(mode=Mode.LOOP, lease_until=NOW)
    opt_out(loop.owner)
    assert lease_claim(loop.pk, owner="worker:2", now=NOW) is None
    assert ended(loop) == OUT


@pytest.mark.django_db(transaction=True)
def test_run_that_finishes_after_the_halt_was_requested_is_halted():
    run = make_session(Status.QUEUED)

    def engine(held):
        opt_out(held.owner, halt_all=True)
        return Finished()

    run_session(run.pk, engine, owner="worker:1")
    assert ended(run) == (Status.HALTED, TerminalReason.OPTED_OUT)


def test_earlier_halt_of_an_operator_keeps_its_reason():
    loop = make_session(mode=Mode.LOOP)
    halts.session_halt(loop.pk, by=None, reason="", now=NOW)
    opt_out(loop.owner)
    loop.refresh_from_db()
    assert (loop.halt_state, loop.terminal_reason) == (HaltState.HALT_REQUESTED, None)


def test_nothing_starts_and_no_schedule_is_due():
    owner = make_user()
    make_trigger(owner=owner, kind=TriggerKind.SCHEDULE, cron="* * * * *", next_run_at=NOW)
    assert Trigger.objects.due(NOW).count() == 1
    opt_out(owner)
    assert not Trigger.objects.due(NOW).exists()
    with pytest.raises(NotAllowed, match="opted in"):
        session_create(owner=owner, now=NOW)


def test_user_without_profile_has_not_opted_in():
    owner = make_user()
    owner.lqops_profile.delete()
    with pytest.raises(NotAllowed):
        session_create(owner=owner, now=NOW)


def test_opting_out_again_halts_what_was_left():
    loop = make_session(Status.QUEUED, mode=Mode.LOOP)
    with patch.object(halts, "session_halt", side_effect=OperationalError("database is locked")):
        assert not opt_out(loop.owner).opted_in
    assert ended(loop) == (Status.QUEUED, None)
    opt_out(loop.owner)
    assert ended(loop) == OUT


def test_change_is_recorded_and_refused_for_others():
    user, staff, stranger = make_user(opted_in=False), allowed("change_profile"), make_user()
    for act in (profile_set, email_copies_set):
        switch = {"opted_in": True} if act is profile_set else {"enabled": True}
        with pytest.raises(NotAllowed, match="change_profile"):
            act(user=user, by=stranger, now=NOW, **switch)
    profile_set(user=user, opted_in=True, by=staff, now=NOW)
    opt_out(user)
    assert told("people.") == [
        ("people.opted_in", f"user:{staff.pk}", {"user_id": user.pk}),
        ("people.opted_out", f"user:{user.pk}", {"user_id": user.pk}),
    ]


@pytest.mark.django_db(transaction=True)
def test_no_loop_starts_while_its_owner_opts_out():
    """Opting out waits for a spawn that has seen the yes, and then finds what it has spawned."""
    owner, spawned, out = make_user(), threading.Event(), threading.Event()

    def spawn():
        with transaction.atomic():
            session_create(owner=owner, now=NOW, mode=Mode.LOOP)
            spawned.set()
            assert not out.wait(0.5), "opting out did not wait"

    def leave():
        assert spawned.wait(60)
        opt_out(owner)
        out.set()

    in_threads(2, lambda number: (spawn, leave)[number]())
    assert ended(AgentSession.objects.get()) == OUT


# --- The command ---


def test_command_ends_loops_and_with_halt_all_every_run(capsys):
    user = make_user(username="bob")
    phased, loop = make_session(Status.QUEUED, owner=user), make_session(Status.QUEUED, owner=user, mode=Mode.LOOP)
    call_command("opt_in", "bob", "--out")
    assert (ended(phased), ended(loop)) == ((Status.QUEUED, None), OUT)
    call_command("opt_in", "bob", "--out", "--halt-all", "--json")
    assert ended(phased) == OUT
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"user": "bob", "opted_in": False}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--halt-all"], "needs --out"), (["--user", "eve"], "eve may not change the profile of bob")],
)
def test_command_explains_invalid_arguments(arguments, says):
    make_user(username="bob")
    make_user(username="eve")
    with pytest.raises(CommandError, match=says):
        call_command("opt_in", "bob", *arguments)


def test_planned_heartbeat_ends_with_the_loops():
    owner = make_user()
    beat = make_session(Status.SLEEPING, owner=owner, mode=Mode.HEARTBEAT, next_wake_at=NOW)

    profile_set(user=owner, opted_in=False, by=owner, now=NOW)

    beat.refresh_from_db()
    assert (beat.status, beat.terminal_reason) == OUT
