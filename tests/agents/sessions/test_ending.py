"""What the owner is told of a run that was halted or failed."""

import pytest

from agents.enums import Mode, Status, TerminalReason
from agents.models import Finding, Installation, Notification
from agents.people.outbox import receipt_path
from agents.sessions import ending
from agents.sessions.ending import session_finish
from agents.sessions.halts import halt_all_work, release_all_work
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        (TerminalReason.COST_CAP_REACHED, "Run halted: "),
        (TerminalReason.WORKER_ERROR, "Run failed: "),
    ],
)
def test_a_run_that_was_stopped_is_told_in_counts_with_the_way_to_its_receipt(reason, title):
    session = make_session()
    for severity in ("warn", "critical", "warn", "canary-severity"):
        Finding.objects.create(session=session, severity=severity, title="canary-title", content="canary-content")
    session_finish(session, reason, now=NOW, error="canary-error")
    notice = Notification.objects.get(session=session, kind="run_stopped")
    assert notice.title.startswith(title)
    assert notice.body.splitlines() == [
        "Result: partial.",
        "Findings: 1 critical, 2 warn, 1 other.",
        "Calls: 0. Spent: $0.00.",
        f"Receipt: {receipt_path(session)}",
    ]
    assert "canary" not in notice.title + notice.body


def test_a_run_that_was_stopped_before_it_found_anything_says_so():
    session = make_session()
    session_finish(session, TerminalReason.REFUSED, now=NOW)
    assert Notification.objects.get().body.startswith("Result: failed.\nFindings: none.\n")


def test_a_loop_that_was_stopped_speaks_of_no_findings():
    session = make_session(mode=Mode.LOOP)
    session_finish(session, TerminalReason.WORKER_ERROR, now=NOW)
    assert Notification.objects.get().body.startswith("Result: failed.\nCalls: 0.")


def test_a_halt_of_ones_own_is_not_told_when_it_was_lifted_before_the_run_saw_it():
    session = make_session(created_at=NOW)
    halt_all_work(by=session.owner, reason="enough", now=NOW)
    release_all_work(by=session.owner, now=NOW)
    session_finish(session, TerminalReason.EXTERNAL_HALT, now=NOW)
    assert not Notification.objects.exists()


def test_a_run_that_completed_is_not_told_of_twice():
    session = session_finish(make_session(), TerminalReason.COMPLETED, now=NOW)
    assert (session.status, Notification.objects.count()) == (Status.COMPLETED, 0)


def test_a_run_that_all_work_was_halted_under_while_it_was_ending_ends_as_halted(monkeypatch):
    rows = Installation.objects
    looks = iter([rows.none(), rows.all(), rows.all()])  # not when it begins to end, and when all is written
    monkeypatch.setattr(ending, "_halts_of_all_work", lambda _: next(looks))
    ended = session_finish(make_session(), TerminalReason.COMPLETED, now=NOW)
    assert (ended.status, ended.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
