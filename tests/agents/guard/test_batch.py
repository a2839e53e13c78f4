"""Calls whose whole effect is rows, made together: the rows and events are those of single calls, or nothing is."""

from unittest.mock import Mock

import pytest
from django.db import DataError, IntegrityError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from agents.enums import HaltState, Level, Outcome, Phase, ToolIntent
from agents.exceptions import LeaseLost, SessionHalted, SessionPaused, ToolFailed, ToolNotGranted
from agents.guard import guard, guarded_batch, guarded_tool_call
from agents.guard.calls import plan_call
from agents.guard.intents import emit_finding, override
from agents.guard.tools import Tool
from agents.knowledge import findings
from agents.knowledge.documents import document_add
from agents.ledger import journal
from agents.models import AgentSession, Finding, Installation, ToolCall
from agents.sessions.halts import halt_all_work
from agents.types import Capability
from audit.models import AuditEvent
from audit.recorder import append
from audit.verify import verify_chain
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db
KEYS = ["finding:0", "finding:1", "finding:2"]


@pytest.fixture
def session():
    made = make_session(current_phase=Phase.DRAFTING)
    append(made.chain, "autonomous_session.started", now=NOW)
    return made


def planned(session, keys=KEYS, **params):
    return [plan_call(session, ToolIntent.EMIT_FINDING, {"title": key, **params}, key=key, now=NOW) for key in keys]


def events(session):
    rows = AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.tool_call").order_by("seq")
    return [(row.details.get("call_id"), row.details["outcome"]) for row in rows]


def titles(session):
    return list(Finding.objects.filter(session=session).order_by("pk").values_list("title", flat=True))


def calls(session):
    return list(ToolCall.objects.filter(session=session).order_by("pk").values_list("key", "outcome"))


@pytest.fixture
def alone(monkeypatch):
    """The keys of the calls that were made one by one."""
    made = []

    def do(call):
        made.append(call.key)
        return real(call)

    real = guard._do
    monkeypatch.setattr(guard, "_do", do)
    return made


def test_calls_are_written_together_and_all_begun_before_the_first_effect(session, alone):
    results = guarded_batch(planned(session))
    assert alone == []
    assert [result.outcome for result in results] == [Outcome.SUCCESS] * 3
    assert titles(session) == KEYS
    assert calls(session) == [(key, Outcome.SUCCESS) for key in KEYS]
    ids = [result.call_id for result in results]
    assert events(session) == [(one, "started") for one in ids] + [(one, "success") for one in ids]
    assert verify_chain(session.chain).problems == []


def test_rows_are_those_of_single_calls(session):
    guarded_batch(planned(session))
    other = make_session(current_phase=Phase.DRAFTING, owner=session.owner)
    append(other.chain, "autonomous_session.started", now=NOW)
    for key in KEYS:
        guarded_tool_call(other, ToolIntent.EMIT_FINDING, {"title": key}, key=key, now=NOW)
    own = {"id", "public_id", "session_id", "digest", "asked_digest", "result"}
    rows = [
        [{name: row[name] for name in row if name not in own} for row in one.tool_calls.order_by("pk").values()]
        for one in (session, other)
    ]
    assert rows[0] == rows[1]
    session.refresh_from_db()
    assert session.last_activity_at == NOW


def test_number_of_statements_does_not_grow_with_the_calls(session):
    few = make_session(current_phase=Phase.DRAFTING)
    append(few.chain, "autonomous_session.started", now=NOW)
    counted = {}
    for one, keys in ((few, KEYS), (session, [f"finding:{number}" for number in range(20)])):
        with CaptureQueriesContext(connection) as seen:
            guarded_batch(planned(one, keys))
        counted[len(keys)] = len(seen)
    assert counted[3] == counted[20]


def test_quotes_of_one_document_are_checked_alike_alone_and_together(session):
    document, _ = document_add(
        name="lease.txt", data=b"Rent is due on Monday. Keys stay.", owner=session.owner, by=session.owner, now=NOW
    )
    told = [("Rent is due on Monday", 0), ("due on Monday. Keys", 8), ("Rent is due on Monday", 5), ("", None)]
    quoted = [
        {"title": f"{number}", "document": str(document.public_id), "quote": quote, "quote_start": start}
        for number, (quote, start) in enumerate(told)
    ]
    alone = [guarded_tool_call(session, ToolIntent.EMIT_FINDING, one, now=NOW) for one in quoted]
    together = guarded_batch(
        [plan_call(session, ToolIntent.EMIT_FINDING, one, key=f"f:{one['title']}", now=NOW) for one in quoted]
    )
    checks = [[one.data["quote_check"] for one in results] for results in (alone, together)]
    assert checks[0] == checks[1] == ["verified", "verified", "unverified", ""]
    columns = ("title", "document_id", "quote", "quote_start", "quote_end", "location", "quote_check", "created_at")
    rows = list(Finding.objects.filter(session=session).order_by("pk").values_list(*columns))
    assert rows[:4] == rows[4:]


@pytest.mark.parametrize("fault", [DataError, IntegrityError, ValueError])
def test_calls_whose_rows_cannot_be_written_together_are_made_one_by_one(session, alone, monkeypatch, fault):
    monkeypatch.setattr(findings.Finding.objects, "bulk_create", Mock(side_effect=fault))
    results = guarded_batch(planned(session))
    assert alone == KEYS
    assert [result.ok for result in results] == [True] * 3
    assert titles(session) == KEYS
    assert verify_chain(session.chain).problems == []


def test_replayed_calls_are_not_made_twice(session, alone):
    first = guarded_batch(planned(session))
    again = guarded_batch(planned(session))
    assert alone == KEYS
    assert [one.replayed for one in again] == [True] * 3
    assert [one.data for one in again] == [one.data for one in first]
    assert titles(session) == KEYS


def test_one_that_fails_has_its_own_end_and_the_others_theirs(session, alone):
    def act(context, params):
        made = emit_finding(context, params)
        if params["title"] == KEYS[1]:
            raise ToolFailed("no room")
        return made

    with override({ToolIntent.EMIT_FINDING: Tool(act, Capability("emit_finding", level=Level.SAFE))}):
        results = guarded_batch(planned(session))
    assert alone == KEYS
    assert [result.ok for result in results] == [True, False, True]
    assert titles(session) == [KEYS[0], KEYS[2]]
    assert verify_chain(session.chain).problems == []


def test_paused_session_is_put_aside_before_anything_is_written(session):
    AgentSession.objects.filter(pk=session.pk).update(paused_at=NOW)
    with pytest.raises(SessionPaused):
        guarded_batch(planned(session))
    assert (titles(session), calls(session), events(session)) == ([], [], [])


@pytest.mark.parametrize("state", [HaltState.HALT_REQUESTED, HaltState.HALTED])
def test_halted_session_does_nothing(session, state):
    AgentSession.objects.filter(pk=session.pk).update(halt_state=state)
    with pytest.raises(SessionHalted):
        guarded_batch(planned(session))
    assert (titles(session), calls(session)) == ([], [])


def test_phase_that_does_not_grant_it_is_recorded(session):
    AgentSession.objects.filter(pk=session.pk).update(current_phase=Phase.INTAKE)
    session.refresh_from_db()
    with pytest.raises(ToolNotGranted):
        guarded_batch(planned(session))
    assert titles(session) == []


def test_phase_that_moved_since_is_judged_by_the_row(session):
    AgentSession.objects.filter(pk=session.pk).update(current_phase=Phase.INTAKE)
    with pytest.raises(ToolNotGranted):
        guarded_batch(planned(session))
    assert titles(session) == []


def test_worker_that_lost_the_session_writes_nothing(session):
    AgentSession.objects.filter(pk=session.pk).update(fencing=session.fencing + 1)
    with pytest.raises(LeaseLost):
        guarded_batch(planned(session))
    assert (titles(session), calls(session), events(session)) == ([], [], [])


def test_halt_of_all_work_that_overtakes_them_leaves_nothing_of_them(session, monkeypatch):
    """On PostgreSQL it waits for no one, so it can come between the verdict and the last write."""
    real = guard._acted

    def act(call):
        if call.key == KEYS[2]:
            halt_all_work(by=make_user(is_superuser=True), reason="", now=NOW)
        return real(call)

    monkeypatch.setattr(guard, "_acted", act)
    monkeypatch.setattr(guard, "_do", lambda call: call.key)
    assert guarded_batch(planned(session)) == KEYS
    assert (titles(session), calls(session), events(session)) == ([], [], [])
    assert Installation.objects.get().halt_id is None  # made in the same transaction here, so undone with it


@pytest.mark.parametrize("which", [0, 1])
def test_other_writer_of_the_chain_who_is_faster_undoes_them(session, alone, monkeypatch, which):
    real, seen = journal.recorder.append_all, []

    def taken(*given, **more):
        seen.append(given)
        return None if len(seen) == which + 1 else real(*given, **more)

    monkeypatch.setattr(journal.recorder, "append_all", taken)
    results = guarded_batch(planned(session))
    assert alone == KEYS
    assert [result.ok for result in results] == [True] * 3
    assert titles(session) == KEYS


def test_first_event_of_a_chain_is_written_by_the_steps(alone):
    bare = make_session(current_phase=Phase.DRAFTING)
    guarded_batch(planned(bare))
    assert alone == KEYS
    assert titles(bare) == KEYS


@pytest.mark.parametrize("keys", [[], KEYS[:1]])
def test_none_or_one_is_made_as_a_single_call(session, alone, keys):
    assert len(guarded_batch(planned(session, keys))) == len(keys)
    assert alone == keys


def test_call_that_a_person_is_asked_for_is_decided_by_the_steps(session, alone):
    AgentSession.objects.filter(pk=session.pk).update(current_phase=Phase.DELIVERY)
    session.refresh_from_db()
    told = [plan_call(session, ToolIntent.NOTIFY, {"title": key}, key=key, now=NOW, risk="high") for key in KEYS]
    results = guarded_batch(told)
    assert alone == KEYS
    assert not any(result.ok for result in results)


def in_the_way(state):
    error = OperationalError("two of them waited for each other")
    error.__cause__ = type("DriverError", (Exception,), {"sqlstate": state})()
    return error


@pytest.mark.parametrize("state", ["40P01", "40001"])
def test_deadlock_undoes_them_and_they_are_made_one_by_one(session, alone, monkeypatch, state):
    real, seen = guard._acted, []

    def act(call):
        seen.append(call.key)
        if len(seen) == 2:
            raise in_the_way(state)
        return real(call)

    monkeypatch.setattr(guard, "_acted", act)
    assert [result.ok for result in guarded_batch(planned(session))] == [True] * 3
    assert alone == KEYS
    assert titles(session) == KEYS


def test_other_error_of_the_database_leaves_the_run_to_be_taken_over(session, monkeypatch):
    def act(_):
        raise in_the_way("57P01")

    monkeypatch.setattr(guard, "_acted", act)
    with pytest.raises(OperationalError):
        guarded_batch(planned(session))
    assert (titles(session), calls(session), events(session)) == ([], [], [])


def test_calls_of_two_runs_or_at_one_place_are_not_made_together(session, alone):
    other = make_session(current_phase=Phase.DRAFTING)
    append(other.chain, "autonomous_session.started", now=NOW)
    guarded_batch([*planned(session, KEYS[:1]), *planned(other, KEYS[:1])])
    assert (titles(session), titles(other)) == (KEYS[:1], KEYS[:1])
    again = guarded_batch(planned(other, [KEYS[1], KEYS[1]]))
    assert [one.replayed for one in again] == [False, True]
    assert alone == [KEYS[0], KEYS[0], KEYS[1], KEYS[1]]
