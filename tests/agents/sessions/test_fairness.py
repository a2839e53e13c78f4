"""The order in which waiting runs are taken: urgent first, then owners and triggers in turn, then first come."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.conf import clock, lease_lifetime
from agents.enums import Mode, Status, Urgency, WaitingOn
from agents.exceptions import JournalMismatch
from agents.models import AgentSession
from agents.sessions import leases
from agents.sessions.fairness import next_run, slice_is_over, urgent_waits
from agents.sessions.halts import halt_all_work
from agents.sessions.leases import lease_next
from agents.sessions.lifecycle import session_create, session_wake
from tests.factories import NOW, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


def waiting(trigger=None, *, owner=None, count=1, at=NOW, **more):
    owner = owner or trigger.owner
    rows = [make_session(Status.QUEUED, owner=owner, trigger=trigger, enqueued_at=at, **more) for _ in range(count)]
    return rows if count > 1 else rows[0]


def served(count):
    """What one worker takes, one after the other; each run ends at once."""
    taken = []
    for number in range(count):
        now = NOW + (number + 1) * SECOND
        session = lease_next(owner="worker", now=now)
        if session is None:
            break
        AgentSession.objects.filter(pk=session.pk).update(
            status=Status.COMPLETED, terminal_reason="completed", completed_at=now
        )
        taken.append(session)
    return taken


def test_event_of_another_owner_and_a_chat_start_next_behind_a_backlog():
    flood = make_trigger()
    backlog = waiting(flood, count=40)
    before = served(2)
    other = waiting(make_trigger(), at=NOW + 2 * SECOND)
    chat = session_create(owner=flood.owner, mode=Mode.CHAT, now=NOW + 3 * SECOND)

    assert before == backlog[:2]
    assert served(4) == [chat, other, *backlog[2:4]]


def test_owners_and_their_triggers_take_turns():
    busy, calm = make_user(), make_user()
    a, b = make_trigger(owner=busy), make_trigger(owner=busy)
    of_a, of_b, by_hand = waiting(a, count=3), waiting(b, count=2), waiting(owner=busy, count=2)
    of_calm = waiting(make_trigger(owner=calm), count=3)

    taken = served(20)

    owners = [session.owner_id for session in taken]
    assert owners[:6] in ([busy.pk, calm.pk] * 3, [calm.pk, busy.pk] * 3)
    lanes = [session.trigger_id for session in taken if session.owner_id == busy.pk]
    assert (set(lanes[:3]), set(lanes[3:6]), lanes[6:]) == ({a.pk, b.pk, None}, {a.pk, b.pk, None}, [a.pk])
    for lane in (of_a, of_b, by_hand, of_calm):
        assert [session for session in taken if session in lane] == lane, "first come, first served"


def test_turns_taken_before_the_clock_was_set_back_do_not_count():
    ahead, behind = make_trigger(), make_trigger()
    make_session(Status.SLEEPING, owner=ahead.owner, trigger=ahead, claimed_at=clock() + timedelta(hours=1))
    make_session(Status.SLEEPING, owner=behind.owner, trigger=behind, claimed_at=clock() - timedelta(hours=1))
    waiting(behind)
    of_ahead = waiting(ahead)
    assert next_run(NOW) == of_ahead.pk, "served an hour from now is not served"


def test_run_that_rested_goes_behind_those_of_its_trigger_that_wait_longer():
    trigger = make_trigger()
    rested = waiting(trigger, at=NOW + SECOND)
    earlier = waiting(trigger)
    assert served(2) == [earlier, rested]


@pytest.mark.parametrize(
    ("waited_for", "mode", "urgency"),
    [
        (WaitingOn.APPROVAL, Mode.PHASED, Urgency.URGENT),
        (WaitingOn.INPUT, Mode.LOOP, Urgency.URGENT),
        (WaitingOn.OPERATOR, Mode.PHASED, Urgency.URGENT),
        (WaitingOn.MODEL, Mode.PHASED, Urgency.BATCH),
        (WaitingOn.MODEL, Mode.CHAT, Urgency.URGENT),
        (None, Mode.LOOP, Urgency.BATCH),
    ],
)
def test_run_that_a_person_answered_is_urgent(waited_for, mode, urgency):
    status = Status.WAITING if waited_for else Status.SLEEPING
    session = make_session(status, mode=mode, waiting_on=waited_for or "", urgency=Urgency.URGENT)
    session_wake(session.pk, now=NOW)
    session.refresh_from_db()
    assert session.urgency == urgency


def test_lost_runs_are_taken_over_before_everything_that_waits():
    chat = session_create(owner=make_user(), mode=Mode.CHAT, now=NOW)
    second = make_session(Status.RUNNING, lease_until=NOW - SECOND)
    first = make_session(Status.RUNNING, lease_until=NOW - 2 * SECOND)
    make_session(Status.RUNNING, lease_until=NOW + 60 * SECOND)
    assert served(3) == [first, second, chat]


def test_place_for_urgent_runs_takes_no_other():
    waiting(owner=make_user())
    lost = make_session(Status.RUNNING, lease_until=NOW - SECOND)
    assert next_run(NOW) == lost.pk
    assert not urgent_waits()
    assert lease_next(owner="worker", now=NOW, only_urgent=True) is None

    chat = session_create(owner=make_user(), mode=Mode.CHAT, now=NOW)
    assert urgent_waits()
    assert lease_next(owner="worker", now=NOW, only_urgent=True) == chat
    assert lease_next(owner="worker", now=NOW, only_urgent=True) is None
    assert not urgent_waits()


def test_owner_without_room_is_passed_over_but_for_urgent_runs(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 1
    full = make_trigger()
    held = make_session(Status.RUNNING, owner=full.owner, lease_until=NOW + 60 * SECOND)
    waiting(full)
    other = waiting(make_trigger(), at=NOW + SECOND)
    chat = session_create(owner=full.owner, mode=Mode.CHAT, now=NOW + 2 * SECOND)
    assert served(5) == [chat, other]

    AgentSession.objects.filter(pk=held.pk).update(status=Status.SLEEPING)
    assert len(served(5)) == 1


def test_worker_that_finds_its_run_taken_takes_the_next():
    trigger = make_trigger()
    first, second = waiting(trigger, count=2)
    gone = make_session(Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    with patch.object(leases, "next_run", side_effect=[gone.pk, second.pk]):
        assert lease_next(owner="w", now=NOW) == second
    with patch.object(leases, "next_run", return_value=gone.pk) as asked:
        assert lease_next(owner="w", now=NOW) is None
    assert asked.call_count == leases.CLAIM_TRIES
    assert next_run(NOW) == first.pk


def test_run_that_cannot_be_claimed_keeps_no_other_waiting(caplog):
    broken, lost = waiting(make_trigger()), make_session(Status.RUNNING, lease_until=NOW - SECOND)
    AgentSession.objects.filter(pk=broken.pk).update(urgency=Urgency.URGENT)
    good = waiting(make_trigger(), at=NOW + SECOND)

    def claim(pk, **more):
        if pk in {broken.pk, lost.pk}:
            raise JournalMismatch("its journal cannot be read")
        return really(pk, **more)

    really = leases._claim
    with patch.object(leases, "_claim", side_effect=claim):
        assert lease_next(owner="w", now=NOW + SECOND) == good
    assert caplog.text.count("could not be claimed") == 2
    assert next_run(NOW + SECOND) == broken.pk, "it is tried again"
    assert next_run(NOW + SECOND + lease_lifetime()) in {lost.pk, good.pk}


@pytest.mark.parametrize(
    ("seconds", "urgency", "others", "over"),
    [
        (61, Urgency.BATCH, "nobody", True),
        (59, Urgency.BATCH, "nobody", False),
        (6, Urgency.BATCH, "chat", True),
        (4, Urgency.BATCH, "chat", False),
        (6, Urgency.URGENT, "chat", False),
        (6, Urgency.BATCH, "lost", True),
        (6, Urgency.BATCH, "event of another owner", False),
        (6, Urgency.BATCH, "event of another owner, and a second run of this one", True),
        (6, Urgency.BATCH, "a second run of this one", False),
    ],
)
def test_run_gives_up_its_worker_early_when_others_need_it_more(settings, seconds, urgency, others, over):
    settings.LQOPS_SLICE_SECONDS = 60
    started = clock() - seconds * SECOND
    session = make_session(urgency=urgency, lease_until=clock() + 10 * SECOND)
    if others == "chat":
        session_create(owner=make_user(), mode=Mode.CHAT, now=NOW)
    if others == "lost":
        make_session(lease_until=clock() - SECOND)
    if "another owner" in others:
        waiting(make_trigger())
    if "second run" in others:
        make_session(owner=session.owner, lease_until=clock() + 10 * SECOND)
        waiting(make_trigger(owner=session.owner))
    assert slice_is_over(session, started) == over


def test_worker_ends_what_waits_while_all_work_is_halted():
    waiting(make_trigger(), count=3)
    halt_all_work(by=None, reason="incident", now=NOW)
    assert lease_next(owner="w", now=NOW) is None
    assert set(AgentSession.objects.values_list("status", flat=True)) == {Status.HALTED}
