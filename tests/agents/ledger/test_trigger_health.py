"""How runs end counts for their trigger: failing and empty ones in a row pause it, once."""

from unittest.mock import patch

import pytest
from django.db import transaction

from agents.enums import NoticeKind, TerminalReason
from agents.ledger import trigger_health
from agents.ledger.trigger_health import trigger_note_end
from agents.models import Notification, Trigger
from agents.policy.transitions import REASON_STATUS
from tests.agents.triggers.rows import rows_of
from tests.factories import NOW, make_trigger

pytestmark = pytest.mark.django_db

R = TerminalReason


def ends(trigger, *reasons, empty=False, fault=""):
    for reason in reasons:
        trigger_note_end(trigger.pk, reason=reason, empty=empty, fault=fault, now=NOW)
    trigger.refresh_from_db()
    return trigger


@pytest.mark.parametrize("reason", sorted(set(REASON_STATUS) - {R.COMPLETED}))
def test_which_ends_count_as_failing(reason):
    trigger = ends(make_trigger(failed_in_a_row=1), reason)
    neither = {R.EXTERNAL_HALT, R.OPTED_OUT, R.IDLE_TIMEOUT, R.AGENT_SHUTDOWN}
    assert trigger.failed_in_a_row == (1 if reason in neither else 2)


def test_a_completed_run_ends_the_row_of_failing_ones():
    trigger = ends(make_trigger(failed_in_a_row=9), R.COMPLETED)
    assert (trigger.failed_in_a_row, trigger.empty_in_a_row) == (0, 0)


def test_failing_runs_in_a_row_pause_the_trigger_once():
    trigger = ends(make_trigger(pause_after=3, name="Nightly"), R.PROVIDER_ERROR, R.WORKER_LOST)
    assert trigger.paused_at is None
    ends(trigger, R.COST_CAP_REACHED, R.PROVIDER_ERROR)
    assert (trigger.paused_at, trigger.pause_reason, trigger.failed_in_a_row) == (NOW, "failing", 4)
    assert rows_of("autonomous_trigger.paused", trigger) == [
        {"trigger_id": str(trigger.public_id), "reason": "failing", "runs": 3}
    ]
    notice = Notification.objects.get()
    assert notice.kind == NoticeKind.TRIGGER_PAUSED
    assert "last 3 runs failed" in notice.body


@pytest.mark.parametrize(
    ("fault", "words"),
    [("unanswered", "the model could not be asked, or gave no answer"), ("unread", "could not be fetched")],
)
def test_completed_runs_that_could_not_look_count_as_failing_and_the_pause_says_why(fault, words):
    trigger = ends(make_trigger(pause_after=3, empty_in_a_row=2), R.WORKER_ERROR)
    ends(trigger, R.COMPLETED, R.COMPLETED, empty=True, fault=fault)
    assert (trigger.pause_reason, trigger.failed_in_a_row, trigger.empty_in_a_row) == ("failing", 3, 2)
    said = Notification.objects.get().body
    assert said.startswith("Its last 3 runs failed. In the last one ")
    assert words in said
    assert "found nothing" not in said


def test_empty_runs_in_a_row_pause_the_trigger():
    trigger = ends(make_trigger(pause_after=2), R.COMPLETED, R.COMPLETED, empty=True)
    assert (trigger.pause_reason, trigger.empty_in_a_row) == ("empty", 2)


def test_a_run_that_found_something_ends_the_row_of_empty_ones():
    trigger = ends(make_trigger(pause_after=3), R.COMPLETED, R.COMPLETED, empty=True)
    assert ends(trigger, R.COMPLETED).empty_in_a_row == 0


def test_a_halt_by_a_person_neither_counts_nor_breaks_the_row():
    trigger = ends(make_trigger(pause_after=2), R.WORKER_ERROR, R.EXTERNAL_HALT, R.OPTED_OUT)
    assert (trigger.failed_in_a_row, trigger.paused_at) == (1, None)
    assert ends(trigger, R.WORKER_ERROR).pause_reason == "failing"


def test_a_failing_run_says_nothing_about_empty_ones():
    trigger = ends(make_trigger(empty_in_a_row=2), R.WORKER_ERROR, empty=True)
    assert trigger.empty_in_a_row == 2


def test_with_zero_a_trigger_is_never_paused():
    trigger = ends(make_trigger(pause_after=0), *[R.WORKER_ERROR] * 30)
    assert (trigger.failed_in_a_row, trigger.paused_at) == (30, None)


def test_a_trigger_that_is_paused_or_deleted_is_not_paused_again():
    for fields in ({"paused_at": NOW, "pause_reason": "by_hand"}, {"deleted_at": NOW}):
        trigger = ends(make_trigger(pause_after=1, **fields), R.WORKER_ERROR)
        assert trigger.pause_reason == fields.get("pause_reason", "")
    assert not Notification.objects.exists()


def test_an_end_that_finds_the_trigger_locked_is_counted_after_the_commit(django_capture_on_commit_callbacks):
    trigger = make_trigger(pause_after=1)
    with (
        patch.object(trigger_health, "_lock_if_free", return_value=None),
        django_capture_on_commit_callbacks(execute=True) as waiting,
    ):
        assert ends(trigger, R.WORKER_ERROR).failed_in_a_row == 0
    trigger.refresh_from_db()
    assert (len(waiting), trigger.failed_in_a_row, trigger.pause_reason) == (1, 1, "failing")


@pytest.mark.django_db(transaction=True)
def test_an_end_that_cannot_be_counted_after_the_commit_breaks_nothing(caplog):
    with (
        patch.object(trigger_health, "_lock_if_free", return_value=None),
        patch.object(trigger_health, "_count_end_later", side_effect=OSError("away")),
        transaction.atomic(),
    ):
        trigger_note_end(make_trigger().pk, reason=R.WORKER_ERROR, empty=False, now=NOW)
    assert "away" in caplog.text


def test_a_trigger_that_is_gone_is_no_error(django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        trigger_note_end(0, reason=R.WORKER_ERROR, empty=False, now=NOW)
    assert not Trigger.objects.exists()
