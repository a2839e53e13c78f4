"""What a trigger's run was to read counts as read only when a run has read it; what failed comes again."""

from datetime import timedelta

import pytest

from agents.enums import InputState, NoticeKind, Status, TerminalReason
from agents.exceptions import InvalidTransition, NotFound
from agents.ledger.inputs import PAUSES
from agents.models import AgentSession, Notification, Trigger, UnreadInput
from agents.sessions.ending import session_finish
from agents.sessions.leases import lease_claim
from agents.triggers import inputs
from agents.triggers.firing import Fired, session_restart, trigger_fire
from agents.triggers.inputs import input_dismiss, input_retry, inputs_fire
from agents.triggers.watches import watches_fire
from tests.factories import NOW, RunSpec, make_session, make_trigger, make_user

from .rows import attach, halt_all, make_collection, make_skill, make_watch, release_all, rows_of

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
LATER = NOW + DAY


@pytest.fixture
def watch():
    return make_watch(make_collection(), name="Leases", max_runs_per_hour=100, skill=make_skill())


def arrive(watch):
    """A document arrives: the run that is to read it."""
    [fired] = watches_fire(attach(watch.collection).pk, now=NOW)
    return fired.session


def end(session, reason=TerminalReason.COMPLETED, *, now=NOW, fault="", **more):
    """A worker takes the run and ends it."""
    held = lease_claim(session.pk, owner="worker", now=now)
    if fault:
        AgentSession.objects.filter(pk=session.pk).update(metadata={"fault": fault})
    return session_finish(held, reason, now=now, **more)


def newest(watch):
    return watch.sessions.order_by("pk").last()


def test_what_was_read_leaves_no_row(watch):
    end(arrive(watch))
    assert not UnreadInput.objects.exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        (TerminalReason.PROVIDER_ERROR, ""),
        (TerminalReason.WORKER_ERROR, ""),
        (TerminalReason.WORKER_LOST, ""),
        (TerminalReason.COMPLETED, "unanswered"),
        (TerminalReason.COMPLETED, "unread"),
    ],
)
def test_what_a_run_failed_to_read_is_read_by_another_run_with_the_same_inputs(watch, reason, fault):
    first = arrive(watch)
    end(first, reason, fault=fault)
    unread = UnreadInput.objects.get()
    assert (unread.state, unread.session, unread.tries) == (InputState.RETRYING, first, 1)
    assert (unread.reason, unread.due_at) == (fault or reason, NOW + PAUSES[0])

    assert inputs_fire(now=NOW + PAUSES[0] - MINUTE / 2) == 0, "not yet due"
    assert inputs_fire(now=NOW + PAUSES[0]) == 1
    assert inputs_fire(now=LATER) == 0, "a run is reading it"
    second = newest(watch)
    assert (second.restarted_from, second.params, second.trigger_kind) == (first, first.params, "watch")
    unread.refresh_from_db()
    assert (unread.state, unread.session, unread.due_at) == (InputState.QUEUED, second, None)

    end(second)
    assert not UnreadInput.objects.exists()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "reason", sorted(set(TerminalReason) - {"completed", "provider_error", "worker_error", "worker_lost"})
)
def test_what_another_run_would_not_read_either_is_given_up_at_once(watch, reason):
    end(arrive(watch), TerminalReason(reason))
    unread = UnreadInput.objects.get()
    assert (unread.state, unread.due_at, unread.tries) == (InputState.GIVEN_UP, None, 1)
    assert inputs_fire(now=LATER) == 0
    [recorded] = rows_of("input.given_up", watch)
    assert (recorded["reason"], recorded["session_id"]) == (reason, str(unread.session.public_id))


def test_an_answer_that_was_cut_off_and_cannot_be_read_is_given_up_at_once(watch):
    end(arrive(watch), fault="cut_off")
    assert UnreadInput.objects.get().state == InputState.GIVEN_UP


def test_a_day_s_budget_that_is_used_up_puts_the_input_off_until_it_resets(watch):
    resets_at = NOW + 5 * HOUR
    end(arrive(watch), TerminalReason.BUDGET_EXCEEDED, retry_at=resets_at)
    assert UnreadInput.objects.get().due_at == resets_at
    assert inputs_fire(now=resets_at) == 1


def test_after_its_tries_an_input_is_given_up_and_the_owner_hears_of_the_first_run_and_of_the_last(watch, settings):
    settings.LQOPS_INPUT_TRIES = 4
    session, now = arrive(watch), NOW
    for pause in PAUSES[:3]:
        end(session, TerminalReason.PROVIDER_ERROR, now=now)
        now += pause
        assert inputs_fire(now=now) == 1
        session = newest(watch)
    end(session, TerminalReason.PROVIDER_ERROR, now=now)
    unread = UnreadInput.objects.get()
    assert (unread.state, unread.tries, watch.sessions.count()) == (InputState.GIVEN_UP, 4, 4)
    first, last = Notification.objects.order_by("pk")
    assert (first.kind, "is read again at 2026-03-14 09:27 UTC" in first.body) == (NoticeKind.RUN_STOPPED, True)
    assert (last.kind, last.title.startswith("Given up after 4 runs: ")) == (NoticeKind.INPUT_GIVEN_UP, True)
    assert "Retry it, or dismiss it, under Unread inputs." in last.body


def test_one_poisonous_document_does_not_pause_the_trigger_by_being_tried_again(watch):
    Trigger.objects.update(pause_after=2)
    end(arrive(watch), TerminalReason.WORKER_ERROR)
    inputs_fire(now=LATER)
    end(newest(watch), TerminalReason.WORKER_ERROR, now=LATER)
    watch.refresh_from_db()
    assert (watch.failed_in_a_row, watch.paused_at) == (1, None)


def test_runs_by_hand_leave_no_unread_input(watch):
    session = make_session(trigger=watch, owner=watch.owner)
    session_finish(session, TerminalReason.WORKER_ERROR, now=NOW)
    assert not UnreadInput.objects.exists()


def test_what_is_due_waits_while_its_trigger_rests_or_all_work_is_halted(watch):
    end(arrive(watch), TerminalReason.WORKER_ERROR)
    halt_all()
    assert inputs_fire(now=LATER) == 0
    release_all()
    Trigger.objects.update(paused_at=NOW)
    assert inputs_fire(now=LATER) == 0
    Trigger.objects.update(paused_at=None, max_runs_per_hour=1)
    assert inputs_fire(now=NOW + 2 * MINUTE) == 1, "further runs need no room in the hour"


def test_further_runs_take_no_room_from_what_arrives(watch):
    Trigger.objects.update(max_runs_per_hour=2)
    end(arrive(watch), TerminalReason.WORKER_ERROR)
    inputs_fire(now=NOW + 2 * MINUTE)
    assert isinstance(watches_fire(attach(watch.collection).pk, now=NOW + 2 * MINUTE)[0], Fired)


def test_what_a_deleted_trigger_left_is_dismissed_with_it(watch):
    end(arrive(watch), TerminalReason.WORKER_ERROR)
    Trigger.objects.update(deleted_at=NOW)
    assert inputs_fire(now=LATER) == 0
    unread = UnreadInput.objects.get()
    assert unread.state == InputState.DISMISSED
    with pytest.raises(InvalidTransition, match="trigger was deleted"):
        input_retry(unread_input=unread, by=watch.owner, now=LATER)


def test_an_input_whose_firing_fails_stops_no_other(watch, monkeypatch, caplog):
    first, second = arrive(watch), arrive(watch)
    end(first, TerminalReason.WORKER_ERROR)
    end(second, TerminalReason.WORKER_ERROR)
    fire = inputs.trigger_fire

    def failing(**given):
        if given["restarted_from"] == first:
            raise RuntimeError("broken")
        return fire(**given)

    monkeypatch.setattr(inputs, "trigger_fire", failing)
    assert inputs_fire(now=LATER) == 1
    assert "could not be read again" in caplog.text
    assert UnreadInput.objects.get(session=first).due_at == LATER + MINUTE


def test_a_schedule_reads_again_only_what_its_failed_run_was_to_read():
    trigger = make_trigger(kind="schedule", cron="0 6 * * *")
    since = (NOW - DAY).isoformat()
    fired = trigger_fire(trigger=trigger, slot="cron:1", inputs=RunSpec(since=since), now=NOW)
    assert isinstance(fired, Fired)
    end(fired.session, TerminalReason.WORKER_ERROR)
    inputs_fire(now=LATER)
    assert newest(trigger).params == {"since": since, "until": NOW.isoformat()}


def test_a_person_retries_what_was_given_up_and_the_tries_count_anew(watch):
    end(arrive(watch), TerminalReason.COST_CAP_REACHED)
    unread = UnreadInput.objects.get()
    with pytest.raises(NotFound):
        input_retry(unread_input=unread, by=make_user(), now=LATER)
    input_retry(unread_input=unread, by=watch.owner, now=LATER)
    unread.refresh_from_db()
    assert (unread.state, unread.due_at, unread.tries) == (InputState.RETRYING, LATER, 0)
    assert rows_of("input.retried", watch)
    assert inputs_fire(now=LATER) == 1
    unread.refresh_from_db()
    with pytest.raises(InvalidTransition, match="A run is reading it now"):
        input_retry(unread_input=unread, by=watch.owner, now=LATER)
    end(newest(watch), now=LATER)
    with pytest.raises(InvalidTransition, match="has read it"):
        input_dismiss(unread_input=unread, by=watch.owner, now=LATER)


def test_a_dismissed_input_is_left_alone_until_it_is_retried(watch):
    end(arrive(watch), TerminalReason.WORKER_ERROR)
    unread = UnreadInput.objects.get()
    input_dismiss(unread_input=unread, by=watch.owner, now=NOW)
    assert inputs_fire(now=LATER) == 0
    assert rows_of("input.dismissed", watch)
    input_retry(unread_input=unread, by=watch.owner, now=LATER)
    assert inputs_fire(now=LATER) == 1


def test_running_the_failed_run_again_by_hand_reads_its_input(watch):
    end(arrive(watch), TerminalReason.COST_CAP_REACHED)
    failed = newest(watch)
    again = session_restart(session=failed, by=watch.owner, now=LATER)
    unread = UnreadInput.objects.get()
    assert (unread.state, unread.session) == (InputState.QUEUED, again)
    again = end(again, TerminalReason.COST_CAP_REACHED, now=LATER)
    unread.refresh_from_db()
    assert (unread.state, unread.tries, unread.session) == (InputState.GIVEN_UP, 2, again)
    end(session_restart(session=again, by=watch.owner, now=LATER), now=LATER)
    assert not UnreadInput.objects.exists()
    assert AgentSession.objects.filter(status=Status.COMPLETED).count() == 1
