"""Triggers are paused, resumed and deleted, and their signing secrets rotate."""

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import override_settings

from agents.enums import NoticeKind, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.ledger.trigger_health import TriggerSpend, trigger_spend
from agents.models import Notification, Trigger
from agents.triggers.triggers import (
    trigger_create,
    trigger_delete,
    trigger_edit,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    trigger_secret,
)
from tests.factories import NOW, make_session, make_trigger, make_user

from .rows import make_skill, rows_of

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def test_a_deleted_trigger_stays_as_a_row_that_nobody_can_change():
    trigger = make_trigger()
    session = make_session(trigger=trigger)
    trigger_delete(trigger=trigger, by=trigger.owner, now=LATER)

    row = Trigger.objects.get(pk=trigger.pk)
    assert row.deleted_at == LATER
    assert session.trigger == trigger
    assert rows_of("autonomous_trigger.deleted", trigger) == [{"trigger_id": str(trigger.public_id)}]
    for act in (
        lambda: trigger_edit(trigger=trigger, by=trigger.owner, now=LATER, name="new"),
        lambda: trigger_delete(trigger=trigger, by=trigger.owner, now=LATER),
        lambda: trigger_pause(trigger=trigger, by=trigger.owner, now=LATER),
        lambda: trigger_resume(trigger=trigger, by=trigger.owner, now=LATER),
    ):
        with pytest.raises(NotFound):
            act()
    assert not Trigger.objects.live().exists()


def test_a_trigger_that_is_gone_altogether_is_not_found():
    trigger = make_trigger()
    Trigger.objects.all().delete()
    with pytest.raises(NotFound):
        trigger_edit(trigger=trigger, by=None, now=LATER, name="new")


def test_pausing_twice_is_pausing_once():
    trigger = make_trigger()
    trigger_pause(trigger=trigger, by=trigger.owner, now=NOW)
    trigger_pause(trigger=trigger, by=trigger.owner, now=LATER, reason="again")
    trigger.refresh_from_db()
    assert (trigger.paused_at, trigger.pause_reason) == (NOW, "by_hand")
    assert [row["reason"] for row in rows_of("autonomous_trigger.paused")] == ["by_hand"]
    assert not Notification.objects.exists()  # whoever paused it knows


def test_the_owner_is_told_when_the_machine_pauses_a_trigger():
    trigger = make_trigger(name="Nightly")
    trigger_pause(trigger=trigger, by=None, now=NOW, reason="maintenance")
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind) == (trigger.owner, NoticeKind.TRIGGER_PAUSED)
    assert "Nightly" in notice.title


@pytest.mark.parametrize("reason", ["", "two words", "x" * 25])
def test_a_reason_is_one_word(reason):
    with pytest.raises(Invalid, match="word"):
        trigger_pause(trigger=make_trigger(), by=None, now=NOW, reason=reason)


def test_a_resumed_schedule_makes_up_for_nothing_and_starts_with_a_clean_slate():
    trigger = make_trigger(
        kind=TriggerKind.SCHEDULE,
        cron="0 6 * * *",
        skill=make_skill(),
        query="late fees",
        next_run_at=NOW - timedelta(days=3),
        paused_at=NOW - timedelta(days=3),
        pause_reason="failing",
        failed_in_a_row=10,
        empty_in_a_row=4,
    )
    trigger_resume(trigger=trigger, by=trigger.owner, now=NOW)
    trigger.refresh_from_db()
    assert (trigger.paused_at, trigger.pause_reason) == (None, "")
    assert (trigger.failed_in_a_row, trigger.empty_in_a_row) == (0, 0)
    assert trigger.next_run_at == datetime(2026, 3, 15, 6, tzinfo=UTC)
    assert len(rows_of("autonomous_trigger.resumed", trigger)) == 1
    trigger_resume(trigger=trigger, by=trigger.owner, now=LATER)
    assert len(rows_of("autonomous_trigger.resumed", trigger)) == 1


def test_a_schedule_that_cannot_be_read_is_not_resumed():
    trigger = make_trigger(kind=TriggerKind.SCHEDULE, cron="61 * * * *", paused_at=NOW, pause_reason="bad_cron")
    with pytest.raises(Invalid, match="minute"):
        trigger_resume(trigger=trigger, by=trigger.owner, now=NOW)


def test_a_secret_is_derived_from_the_trigger_the_generation_and_the_key():
    one, other = make_trigger(kind=TriggerKind.EVENT), make_trigger(kind=TriggerKind.EVENT)
    secret = trigger_secret(one)
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    with override_settings(LQOPS_WEBHOOK_KEY="k" * 40):
        elsewhere = trigger_secret(one)
    assert len({secret, trigger_secret(other), trigger_secret(one, generation=2), elsewhere}) == 4


def test_a_rotation_gives_a_new_secret_and_keeps_the_old_one_for_a_day():
    trigger = make_trigger(kind=TriggerKind.EVENT)
    old = trigger_secret(trigger)
    new = trigger_rotate_secret(trigger=trigger, by=trigger.owner, now=NOW)
    trigger.refresh_from_db()
    assert new == trigger_secret(trigger) != old
    assert old == trigger_secret(trigger, generation=1)
    assert trigger.old_secret_until == NOW + timedelta(hours=24)
    assert rows_of("autonomous_trigger.secret_rotated", trigger)[0]["generation"] == 2


def test_only_event_triggers_have_a_secret():
    watch = make_trigger(kind=TriggerKind.WATCH)
    with pytest.raises(Invalid, match="event"):
        trigger_secret(watch)
    with pytest.raises(Invalid, match="event"):
        trigger_rotate_secret(trigger=watch, by=watch.owner, now=NOW)


def test_no_secret_is_stored_or_recorded(caplog):
    owner = make_user()
    trigger = trigger_create(owner=owner, kind="event", name="t", skill=make_skill(), by=owner, now=NOW)
    secrets = [trigger_secret(trigger), trigger_rotate_secret(trigger=trigger, by=owner, now=NOW)]
    kept = str(Trigger.objects.values().get()) + str(rows_of("autonomous_trigger.secret_rotated")) + caplog.text
    assert not any(secret.removeprefix("whsec_") in kept for secret in secrets)


def test_what_a_trigger_has_cost_to_date():
    trigger = make_trigger()
    assert trigger_spend(trigger) == TriggerSpend()
    for cost in ("0.25", "0.5"):
        make_session(trigger=trigger, cost_total_usd=Decimal(cost), cost_actual_usd=Decimal("0.3"))
    make_session(cost_total_usd=Decimal(9))
    assert trigger_spend(trigger) == TriggerSpend(2, Decimal("0.8"), Decimal("0.75"), Decimal("0.6"))
