"""Triggers under real concurrency, on SQLite and on PostgreSQL: every slot spawns once, and nobody waits for ever."""

from datetime import timedelta
from itertools import chain

import pytest

from agents.enums import Status, TerminalReason, TriggerKind
from agents.models import AgentSession, Attachment, InboundEvent, Trigger
from agents.policy.run_spec import RunSpec
from agents.sessions.ending import session_finish
from agents.triggers.firing import Fired, trigger_fire
from agents.triggers.triggers import trigger_edit
from audit.models import AuditEvent
from audit.verify import verify_log
from tests.agents.triggers.messages import make_hook, receive, signed
from tests.agents.triggers.rows import attach, make_collection, make_skill
from tests.factories import NOW, make_session, make_trigger, make_user
from tests.flows.processes import Worker, in_threads

pytestmark = pytest.mark.django_db(transaction=True)


def race(function, **arguments):
    """Two processes that begin at the same moment; what each of them says."""
    workers = [Worker(function, **arguments, now=NOW) for _ in range(2)]
    for worker in workers:
        worker.wait_for("ready")
    for worker in workers:
        worker.tell("go")
    return [worker.result(timeout=600) for worker in workers]


def two_processes_fire(schedules):
    owner, week_ago = make_user(), NOW - timedelta(days=7)
    Trigger.objects.bulk_create(
        Trigger(owner=owner, kind=TriggerKind.SCHEDULE, name=str(n), cron="* * * * *", next_run_at=week_ago)
        for n in range(schedules)
    )
    spawned = race("fire_schedules")
    print(f"{schedules} schedules were fired by two processes: {spawned}")

    assert sum(spawned) == AgentSession.objects.count() == schedules
    assert AgentSession.objects.values("trigger").distinct().count() == schedules
    assert AuditEvent.objects.filter(kind="autonomous_trigger.fired").count() == schedules
    assert AuditEvent.objects.filter(kind="autonomous_schedule.skipped").count() == schedules
    assert not Trigger.objects.filter(next_run_at__lte=NOW).exists()
    assert verify_log().problems == []


def test_two_processes_fire_fifty_schedules_once_each_after_a_week_of_downtime():
    two_processes_fire(50)


@pytest.mark.stress
def test_two_processes_fire_a_thousand_schedules_once_each():
    two_processes_fire(1_000)


def test_two_processes_that_tell_of_the_same_attachments_spawn_one_session_per_watch():
    collection = make_collection()
    for _ in range(3):
        make_trigger(owner=collection.owner, kind=TriggerKind.WATCH, collection=collection)
    pks = [attach(collection).pk for _ in range(10)]
    spawned = race("tell_watches", attachment_pks=pks)

    assert sum(spawned) == AgentSession.objects.count() == 30
    assert AuditEvent.objects.filter(kind="autonomous_trigger.fired").count() == 30
    assert not Attachment.objects.filter(watches_fired_at__isnull=True).exists()


def test_fifty_deliveries_of_one_message_at_once_are_one_run_and_fifty_equal_answers():
    trigger = make_hook()
    headers = signed(trigger)
    answers = in_threads(50, lambda _: receive(trigger, headers))

    assert len(set(answers)) == 1
    assert (answers[0].status, answers[0].session_id) == (200, AgentSession.objects.get().public_id)
    assert InboundEvent.objects.count() == 1
    assert AuditEvent.objects.filter(kind="autonomous_event.received").count() == 1


def test_the_hourly_limit_holds_when_all_ask_at_once():
    trigger = make_hook(max_runs_per_hour=7)
    messages = [signed(trigger, webhook_id=f"msg_{n}") for n in range(40)]
    answers = in_threads(10, lambda n: [receive(trigger, headers).status for headers in messages[4 * n : 4 * n + 4]])

    statuses = list(chain.from_iterable(answers))
    assert statuses.count(200) == AgentSession.objects.count() == 7
    assert statuses.count(429) == 33
    trigger.refresh_from_db()
    assert trigger.pause_reason == "storm"
    assert AuditEvent.objects.filter(kind="autonomous_trigger.paused").count() == 1


def test_one_slot_fired_by_many_at_once_is_fired_once():
    trigger = make_trigger(max_runs_per_hour=100)

    def fire(_):
        return [trigger_fire(trigger=trigger, slot=f"slot:{n}", inputs=RunSpec(), now=NOW) for n in range(10)]

    answers = list(chain.from_iterable(in_threads(8, fire)))
    assert all(isinstance(answer, Fired) for answer in answers)
    assert sum(answer.first for answer in answers) == AgentSession.objects.count() == 10


def test_runs_that_end_while_their_trigger_fires_and_is_edited_keep_nobody_waiting_for_ever():
    trigger = make_trigger(max_runs_per_hour=1_000, pause_after=0, skill=make_skill())
    running = [make_session(owner=trigger.owner, trigger=trigger) for _ in range(30)]

    def work(number):
        for n in range(10):
            if number < 3:
                session_finish(running[10 * number + n], TerminalReason.WORKER_ERROR, now=NOW)
            elif number < 6:
                trigger_fire(trigger=trigger, slot=f"slot:{number}:{n}", inputs=RunSpec(), now=NOW)
            else:
                trigger_edit(trigger=trigger, by=None, now=NOW, name=f"name {number} {n}")

    in_threads(7, work)
    trigger.refresh_from_db()
    assert trigger.failed_in_a_row == 30
    assert AgentSession.objects.filter(status=Status.QUEUED).count() == 30
    assert verify_log().problems == []
