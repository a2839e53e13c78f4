"""The operator's stop: of one session, of several, of all work."""

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import OperationalError

from agents.enums import HaltState, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import InvalidTransition, SessionHalted
from agents.guard import guarded_tool_call
from agents.models import AgentSession, Halt, Installation, Notification
from agents.sessions import halts
from agents.sessions.ending import session_end_unheld
from agents.sessions.halts import (
    HaltAnswer,
    already_halted_message,
    halt_all_work,
    halted_work_end,
    release_all_work,
    session_halt,
    sessions_halt,
)
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create
from audit.models import AuditEvent
from audit.rows import digest
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db


def kinds(chain):
    return list(AuditEvent.objects.filter(chain=chain).order_by("seq").values_list("kind", flat=True))


def test_a_running_session_is_asked_to_stop_once():
    session, operator = make_session(), make_user()
    assert session_halt(session.pk, by=operator, reason="it loops", now=NOW) == HaltAnswer.REQUESTED
    assert session_halt(session.pk, by=operator, reason="again", now=NOW) == HaltAnswer.ALREADY
    session.refresh_from_db()
    assert (session.status, session.halt_state) == (Status.RUNNING, HaltState.HALT_REQUESTED)
    [event] = AuditEvent.objects.filter(chain=session.chain)
    halt = Halt.objects.get()
    assert (event.kind, event.actor) == ("autonomous_session.halt_requested", f"user:{operator.pk}")
    words = digest("it loops")  # the words stay on the halt's row
    assert event.details == {"halt_id": halt.pk, "scope": "session", "reason_digest": words}
    assert (halt.reason, halt.requested_by) == ("it loops", operator)


@pytest.mark.parametrize(
    "rest",
    [
        {"status": Status.QUEUED},
        {"status": Status.SLEEPING, "next_wake_at": NOW},
        {"status": Status.WAITING, "waiting_on": WaitingOn.APPROVAL},
    ],
)
def test_a_session_that_nobody_holds_ends_at_once(rest):
    session = make_session(**rest)
    session_halt(session.pk, by=None, reason="", now=NOW)
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert session.completed_at == NOW
    assert session.result["terminal_reason"] == "external_halt"
    assert kinds(session.chain) == ["autonomous_session.halt_requested", "autonomous_session.halted"]
    assert kinds("system")[-1] == "audit.chain_closed"


def test_a_session_that_is_over_is_left_alone():
    session = make_session(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    assert session_halt(session.pk, by=None, reason="", now=NOW) == HaltAnswer.OVER
    assert not AuditEvent.objects.exists()


def test_halting_several_says_how_many():
    over = make_session(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    halted = make_session(halt_state=HaltState.HALT_REQUESTED)
    counted = sessions_halt([make_session().pk, halted.pk, over.pk], by=None, reason="", now=NOW)
    assert (counted.requested, counted.already_halted, counted.terminal) == (1, 1, 1)


def test_halting_all_work_refuses_what_is_new_and_the_ticker_halts_what_is_active():
    operator = make_user()
    sessions = [make_session() for _ in range(3)] + [make_session(status=Status.QUEUED) for _ in range(2)]
    assert halted_work_end(NOW) == 0  # nothing is halted yet
    found = halt_all_work(by=operator, reason="incident", now=NOW)
    assert (found.already, found.active) == (False, 5)
    with pytest.raises(SessionHalted):
        session_create(owner=operator, now=NOW)
    with pytest.raises(SessionHalted):
        guarded_tool_call(sessions[0], ToolIntent.EMIT_FINDING, {}, now=NOW)
    assert [halted_work_end(NOW), halted_work_end(NOW)] == [4, 0]
    states = set(AgentSession.objects.values_list("status", "halt_state"))
    assert states == {
        (Status.RUNNING, HaltState.HALTED),
        (Status.RUNNING, HaltState.HALT_REQUESTED),
        (Status.HALTED, HaltState.HALTED),
    }
    asked = AuditEvent.objects.get(chain=sessions[1].chain)
    assert (asked.details, asked.actor) == (
        {"halt_id": found.halt.pk, "scope": "organisation", "reason_digest": digest("incident")},
        f"user:{operator.pk}",
    )


def test_halting_all_work_again_changes_nothing_and_says_what_is_in_force():
    first, second = make_user(username="ada"), make_user(username="bob")
    make_session()
    before = halt_all_work(by=first, reason="incident", now=NOW)
    recorded = AuditEvent.objects.count()

    again = halt_all_work(by=second, reason="another", now=NOW + timedelta(hours=1))

    assert (again.halt, again.already, again.active) == (before.halt, True, 1)
    assert (again.halt.reason, again.halt.requested_by, again.halt.requested_at) == ("incident", first, NOW)
    assert (AuditEvent.objects.count(), Halt.objects.count()) == (recorded, 1)
    assert already_halted_message(again) == (
        f"All work is already halted by ada since {NOW:%Y-%m-%d %H:%M} UTC: incident. "
        "1 run is still ending. The halt keeps its reason."
    )


def test_halt_that_meets_another_halt_and_its_release_halts_all_the_same():
    with patch.object(halts, "_put_in_force", side_effect=[None, Halt.objects.create(scope="organisation")]) as put:
        assert not halt_all_work(by=None, reason="", now=NOW).already
    assert put.call_count == 2


def test_a_session_that_the_ticker_could_not_halt_is_halted_by_its_next_round():
    bad, good = make_session(), make_session()
    halt_all_work(by=None, reason="", actor="command", now=NOW)
    with failing_for(bad):
        assert halted_work_end(NOW) == 1
    assert halted_work_end(NOW) == 1
    for session in (bad, good):
        assert AuditEvent.objects.get(chain=session.chain).actor == "command"


def test_nothing_is_claimed_while_all_work_is_halted():
    session = make_session(status=Status.QUEUED)
    Installation.objects.update(halt=Halt.objects.create(scope="organisation"))
    assert lease_claim(session.pk, owner="w", now=NOW) is None
    session.refresh_from_db()
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)


def test_releasing_lets_new_work_start_and_says_who_did_it():
    operator = make_user()
    halt = halt_all_work(by=operator, reason="incident", now=NOW).halt
    release_all_work(by=operator, now=NOW)
    halt.refresh_from_db()
    assert (halt.released_by, halt.released_at) == (operator, NOW)
    assert session_create(owner=operator, now=NOW).status == Status.QUEUED
    system = AuditEvent.objects.filter(chain="system").order_by("seq")
    assert [(row.kind, row.actor) for row in system] == [
        ("organisation.halted", f"user:{operator.pk}"),
        ("organisation.released", f"user:{operator.pk}"),
    ]
    with pytest.raises(InvalidTransition):
        release_all_work(by=operator, now=NOW)


def failing_for(victim):
    def halt(pk, **more):
        if pk == victim.pk:
            raise OperationalError("database is locked")
        return session_halt(pk, **more)

    return patch.object(halts, "session_halt", side_effect=halt)


def test_a_session_that_cannot_be_halted_does_not_keep_the_others_running(caplog):
    bad, good = make_session(), make_session()
    with failing_for(bad):
        counted = sessions_halt([bad.pk, good.pk], by=None, reason="", now=NOW)
    assert (counted.requested, counted.failed) == (1, 1)
    assert "halt it again" in caplog.text
    good.refresh_from_db()
    assert good.halt_state == HaltState.HALT_REQUESTED


def test_release_first_halts_what_the_ticker_has_not_halted_yet():
    missed, other = make_session(), make_session(status=Status.QUEUED)
    halt_all_work(by=None, reason="incident", now=NOW)
    with patch.object(halts, "MOST", 1):
        release_all_work(by=None, now=NOW)
    for session in (missed, other):
        with pytest.raises(SessionHalted):
            guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=NOW)


def test_release_is_refused_while_a_run_cannot_be_halted():
    bad, good = make_session(), make_session()
    halt_all_work(by=None, reason="incident", now=NOW)
    with failing_for(bad), pytest.raises(InvalidTransition, match="1 runs could not be halted yet"):
        release_all_work(by=None, now=NOW)
    assert Installation.objects.get(pk=1).halt_id is not None

    release_all_work(by=None, now=NOW)
    for session in (bad, good):
        session.refresh_from_db()
        assert session.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}


def test_of_two_releases_at_once_one_is_refused_and_leaves_no_event():
    halt = halt_all_work(by=None, reason="incident", now=NOW).halt
    with patch.object(halts, "_in_force", return_value=halt):
        release_all_work(by=None, now=NOW)
        with pytest.raises(InvalidTransition, match="Somebody else"):
            release_all_work(by=None, now=NOW)
    assert AuditEvent.objects.filter(kind="organisation.released").count() == 1


# --- Who is told ---


@pytest.mark.parametrize("scope", ["session", "organisation"])
@pytest.mark.parametrize(("own", "notices"), [(True, 0), (False, 1)])
def test_nobody_gets_a_notice_of_what_they_halted_themselves(scope, own, notices):
    session = make_session(status=Status.QUEUED)
    by = session.owner if own else make_user()
    if scope == "session":
        session_halt(session.pk, by=by, reason="Enough.", now=NOW)
    else:
        halt_all_work(by=by, reason="Enough.", now=NOW)
        halted_work_end(NOW)
    session.refresh_from_db()
    assert session.status == Status.HALTED
    assert Notification.objects.filter(owner=session.owner).count() == notices


def test_run_that_a_brake_stopped_is_told_of_though_its_owner_has_halted_all_work():
    session = make_session(
        status=Status.QUEUED, halt_state=HaltState.HALTED, terminal_reason=TerminalReason.COST_CAP_REACHED
    )
    Halt.objects.create(scope="organisation", requested_by=session.owner, requested_at=NOW)
    session_end_unheld(session, TerminalReason.EXTERNAL_HALT, now=NOW, actor="system")
    assert Notification.objects.get().owner == session.owner
