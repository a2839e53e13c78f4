"""One firing: one session for one slot, or a reason; and what a storm of firings comes to."""

from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import IntegrityError, transaction

from agents.enums import EventOutcome, NoticeKind, Status, TerminalReason, TriggerKind
from agents.exceptions import NotAllowed, SessionHalted
from agents.models import AgentSession, InboundEvent, Notification, Profile, Trigger
from agents.policy.run_spec import RunSpec
from agents.triggers import firing
from agents.triggers.firing import Fired, Reason, Refused, trigger_fire
from agents.triggers.triggers import trigger_edit, trigger_resume
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_project, make_session, make_trigger, make_user

from .rows import halt_all, make_collection, make_playbook, make_skill, reasons_of, rows_of

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def fire(trigger, slot="slot:1", now=NOW, **more):
    return trigger_fire(trigger=trigger, slot=slot, inputs=RunSpec(**more.pop("inputs", {})), now=now, **more)


def fire_many(trigger, number, now=NOW, start=0):
    return [fire(trigger, f"slot:{start + n}", now=now) for n in range(number)]


def test_a_firing_spawns_a_queued_session_with_what_the_trigger_goes_by():
    owner = make_user()
    playbook, skill = make_playbook(owner), make_skill()
    trigger = make_trigger(
        owner=owner,
        kind=TriggerKind.EVENT,
        agent=make_agent(owner=owner),
        project=make_project(owner),
        playbook=playbook,
        skill=skill,
        collection=make_collection(owner),
        query="liability",
        review_flagged=True,
        max_cost_usd=Decimal("0.25"),
    )
    fired = fire(trigger, inputs={"document": "d-1"})

    session = AgentSession.objects.get()
    assert fired == Fired(session, first=True)
    assert (session.status, session.slot, session.depth, session.created_at) == (Status.QUEUED, "slot:1", 0, NOW)
    assert (session.owner, session.agent, session.project) == (owner, trigger.agent, trigger.project)
    assert (session.trigger_kind, session.trigger_ref) == ("event", str(trigger.public_id))
    assert session.max_cost_usd == Decimal("0.25")
    assert session.params == {
        "playbook": str(playbook.public_id),
        "skill": skill.name,
        "query": "liability",
        "review_flagged": True,
        "document": "d-1",
    }
    assert rows_of("autonomous_trigger.fired", trigger) == [
        {
            "trigger_id": str(trigger.public_id),
            "session_id": str(session.public_id),
            "slot": "slot:1",
            "kind": "event",
            "depth": 0,
        }
    ]


def test_without_a_cap_of_its_own_a_run_gets_the_default_and_zero_stays_zero():
    assert fire(make_trigger()).session.max_cost_usd == 5
    assert fire(make_trigger(max_cost_usd=Decimal(0))).session.max_cost_usd == 0


def test_a_cap_is_copied_when_the_run_is_spawned():
    trigger = make_trigger(max_cost_usd=Decimal("0.25"), skill=make_skill())
    before = fire(trigger).session
    trigger_edit(trigger=trigger, by=None, now=NOW, max_cost_usd=Decimal(1))
    assert fire(trigger, "slot:2").session.max_cost_usd == 1
    before.refresh_from_db()
    assert before.max_cost_usd == Decimal("0.25")


def test_a_slot_is_answered_once_also_when_the_trigger_may_not_fire_any_more():
    trigger = make_trigger()
    first = fire(trigger).session
    Trigger.objects.update(enabled=False, deleted_at=NOW)
    assert fire(trigger, now=NOW + MINUTE) == Fired(first, first=False)
    assert AgentSession.objects.count() == len(rows_of("autonomous_trigger.fired")) == 1
    assert reasons_of(trigger) == []


def test_the_same_slot_of_another_trigger_is_another_firing():
    assert fire(make_trigger()).session != fire(make_trigger()).session


def test_the_database_itself_refuses_a_second_session_for_a_slot():
    trigger = make_trigger()
    make_session(trigger=trigger, slot="slot:1")
    with pytest.raises(IntegrityError), transaction.atomic():
        make_session(trigger=trigger, slot="slot:1")
    make_session(trigger=trigger, slot="")
    make_session(trigger=trigger, slot="")


def test_a_firing_without_a_slot_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="slot"):
        fire(make_trigger(), slot="")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deleted_at": NOW}, Reason.DELETED),
        ({"enabled": False}, Reason.DISABLED),
        ({"paused_at": NOW, "pause_reason": "by_hand"}, Reason.PAUSED),
    ],
)
def test_a_trigger_out_of_use_is_refused_and_the_record_says_why(fields, reason):
    trigger = make_trigger(**fields)
    assert fire(trigger) == Refused(reason)
    assert not AgentSession.objects.exists()
    assert rows_of("autonomous_trigger.refused", trigger) == [
        {"trigger_id": str(trigger.public_id), "reason": reason, "slot": "slot:1", "depth": 0}
    ]


def test_a_trigger_whose_agent_is_switched_off_is_refused():
    trigger = make_trigger(agent=make_agent(enabled=False))
    assert fire(trigger) == Refused(Reason.DISABLED)


def test_a_trigger_of_an_owner_who_has_not_opted_in_is_refused():
    out, never = make_trigger(owner=make_user(opted_in=False)), make_trigger()
    Profile.objects.filter(user=never.owner).delete()
    assert fire(out) == fire(never) == Refused(Reason.OPTED_OUT)
    assert reasons_of(out) == ["opted_out"]


def test_while_all_work_is_halted_a_firing_is_refused():
    halt_all()
    trigger = make_trigger()
    assert fire(trigger) == Refused(Reason.HALTED, retry_after=60)
    assert reasons_of(trigger) == ["halted"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(NotAllowed("no"), Reason.OPTED_OUT), (SessionHalted(TerminalReason.EXTERNAL_HALT), Reason.HALTED)],
)
def test_who_opts_out_or_halts_at_the_last_moment_is_heard(error, reason):
    trigger = make_trigger()
    with patch.object(firing, "session_create", side_effect=error):
        assert fire(trigger).reason == reason
    assert reasons_of(trigger) == [reason]


def test_a_trigger_that_is_gone_altogether_is_refused():
    trigger = make_trigger()
    Trigger.objects.all().delete()
    assert fire(trigger) == Refused(Reason.DELETED)


def test_a_trigger_that_leads_to_itself_stops_at_depth_3():
    trigger = make_trigger()
    session, depths = None, []
    for number in range(10):
        answer = fire(trigger, f"slot:{number}", parent=session)
        if isinstance(answer, Refused):
            break
        session = answer.session
        depths.append(session.depth)
    assert depths == [0, 1, 2, 3]
    assert answer == Refused(Reason.DEPTH)
    assert rows_of("autonomous_trigger.refused", trigger)[0]["depth"] == 4


# --- Rate and fuse ---


def test_runs_beyond_the_hourly_limit_are_refused_until_there_is_room():
    trigger = make_trigger(max_runs_per_hour=2)
    fire(trigger, "a", now=NOW - 50 * MINUTE)
    fire(trigger, "b", now=NOW)
    assert fire(trigger, "c", now=NOW) == Refused(Reason.RATE, retry_after=600)
    assert isinstance(fire(trigger, "c", now=NOW + 10 * MINUTE), Fired)


def test_a_trigger_that_may_never_run_is_refused_and_not_an_error():
    assert fire(make_trigger(max_runs_per_hour=0)) == Refused(Reason.RATE, retry_after=3600)


def test_three_times_the_limit_in_refusals_blows_the_fuse_once():
    trigger = make_trigger(max_runs_per_hour=2, name="Echo")
    fire_many(trigger, 2)
    before = fire_many(trigger, 6, start=2)
    after = fire_many(trigger, 20, start=8)

    trigger.refresh_from_db()
    assert {answer.reason for answer in before} == {Reason.RATE}
    assert set(after) == {Refused(Reason.STORM, retry_after=3600)}
    assert (trigger.paused_at, trigger.pause_reason) == (NOW, "storm")
    assert AgentSession.objects.count() == 2
    assert reasons_of(trigger) == ["rate"] * 6
    assert [row["reason"] for row in rows_of("autonomous_trigger.paused")] == ["storm"]
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind) == (trigger.owner, NoticeKind.TRIGGER_PAUSED)
    assert "Echo" in notice.title


def test_refusals_of_earlier_hours_do_not_count_for_the_fuse():
    trigger = make_trigger(max_runs_per_hour=1)
    for hours in range(5):
        now = NOW + hours * timedelta(hours=2)
        fire_many(trigger, 3, now=now, start=10 * hours)
    trigger.refresh_from_db()
    assert trigger.paused_at is None
    assert reasons_of(trigger) == ["rate"] * 10


def test_a_resumed_trigger_starts_with_a_new_fuse():
    trigger = make_trigger(max_runs_per_hour=1, skill=make_skill())
    fire_many(trigger, 4)
    trigger_resume(trigger=trigger, by=trigger.owner, now=NOW + MINUTE)
    answers = fire_many(trigger, 3, now=NOW + 2 * MINUTE, start=4)
    assert [answer.reason for answer in answers] == [Reason.RATE] * 3
    assert fire(trigger, "last", now=NOW + 2 * MINUTE).reason == Reason.STORM


def test_the_fuse_of_an_event_trigger_counts_refused_events_and_the_record_one_row_a_minute():
    trigger = make_trigger(kind=TriggerKind.EVENT, max_runs_per_hour=2)
    fire_many(trigger, 2)
    for number in range(5):
        fire(trigger, f"more:{number}", now=NOW + number * MINUTE / 4)
        InboundEvent.objects.create(
            owner=trigger.owner, trigger=trigger, outcome=EventOutcome.REFUSED, received_at=NOW + number * MINUTE / 4
        )
    trigger.refresh_from_db()
    assert trigger.paused_at is None
    assert reasons_of(trigger) == ["rate", "rate"]
    assert fire(trigger, "last", now=NOW + 2 * MINUTE).reason == Reason.RATE
    trigger.refresh_from_db()
    assert trigger.pause_reason == "storm"


def test_a_refusal_that_is_repeated_is_recorded_once_a_minute():
    trigger = make_trigger(enabled=False)
    fire_many(trigger, 50)
    fire(trigger, now=NOW + 2 * MINUTE)
    assert reasons_of(trigger) == ["disabled", "disabled"]


def test_a_firing_that_can_wait_has_refused_nothing():
    trigger = make_trigger(max_runs_per_hour=1)
    fire(trigger)
    for number in range(20):
        assert fire(trigger, f"more:{number}", can_wait=True).reason == Reason.RATE
    trigger.refresh_from_db()
    assert trigger.paused_at is None
    assert reasons_of(trigger) == []


def test_a_storm_of_firings_leaves_a_bounded_queue_and_a_bounded_record():
    trigger = make_trigger(max_runs_per_hour=10)
    reasons = [getattr(answer, "reason", None) for answer in fire_many(trigger, 50)]
    assert reasons.count(None) == AgentSession.objects.count() == 10
    assert AuditEvent.objects.count() == 10 + 30 + 1  # fired, refused, paused
    assert reasons.count(Reason.STORM) == 50 - 10 - 30
