"""The ticker: due duties run in one process at a time, and a failing one stops no other."""

import io
import json
import logging
import os
import signal
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
import time_machine
from django.core.management import call_command
from django.db import OperationalError, connection

from agents import ticker
from agents.conf import clock
from agents.enums import NoticeKind, OutboxStatus, Status, TriggerKind
from agents.models import AgentSession, Lease, OutboxMessage, Trigger
from agents.people.notifications import notification_create
from agents.people.outbox import CLAIMED_FOR
from agents.process_end import SignalEvent
from agents.ticker import (
    DUTIES,
    EVERYTHING_SECONDS,
    LEASE,
    QUIET_SECONDS,
    Duty,
    Ticker,
    acquire,
    mark,
    only_own_writes_between,
    renew,
)
from tests.agents.admin.rows import make_approval
from tests.agents.ask.rows import make_question
from tests.agents.people.mail_server import mail_server
from tests.factories import NOW, make_session, make_trigger, make_user
from tests.flows.processes import PATIENCE, until

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def counting(name="count", every=0):
    seen = []
    return seen, Duty(name, every, lambda now: seen.append(now) or len(seen))


@pytest.mark.django_db
def test_every_duty_runs_on_an_empty_installation():
    assert Ticker().tick(NOW) in ({}, {"write a checkpoint": 1})


@pytest.mark.django_db
def test_duty_runs_again_after_its_interval():
    seen, duty = counting(every=10)
    passed = [0.0]
    ticking = Ticker((duty,), monotonic=lambda: passed[0])

    for passed[0] in (0.0, 9.0, 10.0, 11.0):
        ticking.tick(NOW + passed[0] * SECOND)

    assert seen == [NOW, NOW + 10 * SECOND]


# --- Nobody writes anything ---


EVERYTHING = ["by writes", "by rows", "by clock"]


class Quiet:
    """A ticker whose duties have nothing to do, and its stopwatch."""

    def __init__(self, found=0, due_at=NOW, every=0, rest=0):
        self.passed, self.done, self.found, self.due_at = 0.0, [], found, due_at
        duties = (
            Duty("by writes", every, lambda now: self.do("by writes"), by_writes=True),
            Duty("by rows", 0, lambda now: self.do("by rows")),
            Duty("by clock", 0, lambda now: self.do("by clock"), next_due=lambda now: self.due_at),
            *([Duty("rests", QUIET_SECONDS, lambda now: self.do("rests"), rest=rest)] if rest else []),
        )
        self.ticker = Ticker(duties, monotonic=lambda: self.passed)
        self.tick()
        self.tick()  # the first has written the lease's row

    def do(self, name):
        self.done.append(name)
        return self.found

    def tick(self, later=0.5):
        self.passed += later
        self.done.clear()
        self.ticker.tick(NOW + self.passed * SECOND)
        return list(self.done)


def written_elsewhere():
    """Another process has written something."""

    def write():
        with closing(connection):
            Lease.objects.create(name=uuid4().hex[:8])  # a test may try again

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()


@pytest.fixture
def alone_on_the_server():
    """On PostgreSQL everybody who writes to any database of the server is seen, so that a test tries more than once."""

    def tries(attempt):
        return any(attempt() for _ in range(1 if connection.vendor == "sqlite" else 50))

    return tries


@pytest.mark.django_db(transaction=True)
def test_while_nobody_writes_only_what_comes_due_by_the_clock_is_looked_for(alone_on_the_server):
    assert alone_on_the_server(lambda: Quiet().tick() == ["by clock"])


@pytest.mark.django_db(transaction=True)
def test_while_nobody_writes_nothing_is_looked_for_before_it_is_due(alone_on_the_server):
    def attempt(due_at, *expected):
        quiet = Quiet(due_at=due_at)  # it has ticked twice
        return tuple(quiet.tick(1) for _ in expected) == expected

    assert alone_on_the_server(lambda: attempt(NOW + 3 * SECOND, [], ["by clock"]))
    assert alone_on_the_server(lambda: attempt(None, [], []))


@pytest.mark.django_db(transaction=True)
def test_duty_that_did_something_by_the_clock_makes_everything_be_looked_for():
    quiet = Quiet()
    quiet.found = 1
    quiet.tick()

    assert quiet.tick() == EVERYTHING


@pytest.fixture
def keeps_connection(monkeypatch):
    """As a ticker of the supervisor does."""
    monkeypatch.setattr(ticker, "close_old_connections", lambda: None)


class Paces(SignalEvent):
    """Stands for the wait between two ticks: time passes, and the pauses are kept."""

    def __init__(self, travelling, most=4):
        super().__init__()
        self.pauses, self.passed, self._travelling, self._most = [], 0.0, travelling, most

    def wait(self, seconds):
        self.pauses.append(round(seconds, 3))
        self.passed += seconds
        self._travelling.shift(seconds)
        if len(self.pauses) == self._most:
            self.set()
        return False


def paces(*duties, most=4):
    """Run a ticker with these duties for so many pauses. Return the pauses."""
    with time_machine.travel(NOW, tick=False) as travelling:
        over = Paces(travelling, most)
        Ticker(duties, monotonic=lambda: over.passed).run(over, every=0.5)
    return over.pauses


def due_in(*seconds, every=0):
    """A duty that is due at these times, and finds something to do then. Return it and when it did."""
    left, done = [NOW + one * SECOND for one in seconds], []

    def do(now):
        due = [one for one in left if one <= now]
        left[:] = [one for one in left if one > now]
        done.extend((now - NOW).total_seconds() for _ in due)
        return len(due)

    return Duty("by clock", every, do, next_due=lambda now: min(left, default=None)), done


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db
def test_what_comes_due_between_two_ticks_is_done_at_its_time():
    duty, done = due_in(0.2, 0.7)
    assert paces(duty) == [0.2, 0.3, 0.2, 0.3]
    assert done == [0.2, 0.7]


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db
def test_between_two_ticks_only_what_has_a_time_is_looked_for():
    duty, _ = due_in(0.2)
    seen, other = counting()
    assert paces(duty, other, most=3) == [0.2, 0.3, 0.5]
    assert [(now - NOW).total_seconds() for now in seen] == [0, 0.5]


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db
def test_many_times_at_once_are_not_looked_at_one_by_one():
    duty, done = due_in(*(0.2 + 0.001 * count for count in range(60)))
    assert paces(duty, most=3) == [0.2, 0.05, 0.05]
    assert len(done) == 51


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db
def test_time_that_has_come_is_left_to_the_next_tick():
    """As when a session waits for a worker: something is due all the time."""
    waiting = Duty("wait", 0, lambda now: 0, next_due=lambda now: now)
    assert paces(waiting, most=2) == [0.5, 0.5]


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db
def test_ticker_without_the_lease_keeps_to_its_ticks():
    duty, done = due_in(0.2)
    acquire("ticker", owner="elsewhere:1", lifetime=LEASE, now=NOW)
    assert paces(duty, most=2) == [0.5, 0.5]
    assert done == []


@pytest.mark.usefixtures("keeps_connection")
@pytest.mark.django_db(transaction=True)
def test_earlier_time_that_somebody_writes_is_noticed_at_the_next_tick():
    times = [NOW + HOUR]
    done = []
    duty = Duty("by clock", 0, lambda now: done.append(now) or 0, next_due=lambda now: times[0])
    with time_machine.travel(NOW, tick=False) as travelling:
        over = Paces(travelling, most=4)
        waited = over.wait

        def wait(seconds):
            if len(over.pauses) == 1:
                times[0] = NOW + 1.2 * SECOND
                written_elsewhere()
            return waited(seconds)

        over.wait = wait
        Ticker((duty,), monotonic=lambda: over.passed).run(over, every=0.5)
    assert over.pauses == [0.5, 0.5, 0.2, 0.3]
    assert NOW + 1.2 * SECOND in done


@pytest.mark.django_db(transaction=True)
def test_whoever_writes_is_noticed_at_the_next_tick():
    quiet = Quiet()
    written_elsewhere()
    assert quiet.tick() == EVERYTHING


@pytest.mark.django_db(transaction=True)
def test_while_nobody_writes_the_rest_is_looked_for_after_some_seconds(alone_on_the_server):
    def attempt(due_at, *expected):
        quiet = Quiet(due_at=due_at)
        return (quiet.tick(QUIET_SECONDS - 1), quiet.tick(1)) == expected

    assert alone_on_the_server(lambda: attempt(None, [], ["by rows"]))
    assert alone_on_the_server(lambda: attempt(NOW, ["by clock"], ["by rows", "by clock"]))


@pytest.mark.django_db(transaction=True)
def test_time_that_has_come_is_asked_for_again(alone_on_the_server):
    def attempt():
        quiet = Quiet(due_at=NOW)
        quiet.due_at = None  # as when its duty has put it off
        return (quiet.tick(QUIET_SECONDS), quiet.tick()) == (["by rows", "by clock"], [])

    assert alone_on_the_server(attempt)


@pytest.mark.django_db(transaction=True)
def test_everything_is_looked_for_after_a_minute_all_the_same(alone_on_the_server):
    def attempt():
        quiet = Quiet(due_at=None)
        return (quiet.tick(QUIET_SECONDS), quiet.tick(EVERYTHING_SECONDS - QUIET_SECONDS)) == (["by rows"], EVERYTHING)

    assert alone_on_the_server(attempt)


@pytest.mark.django_db(transaction=True)
def test_write_during_a_look_by_the_clock_is_noticed_at_the_next_tick():
    quiet = Quiet(due_at=None)
    done = quiet.do
    quiet.do = lambda name: written_elsewhere() or done(name)
    quiet.tick(QUIET_SECONDS)
    quiet.do = done
    assert quiet.tick() == EVERYTHING


@pytest.mark.django_db(transaction=True)
def test_write_while_the_lease_is_renewed_is_noticed_at_once(monkeypatch):
    quiet = Quiet(due_at=None)

    def write_and_renew(*given, **named):
        written_elsewhere()
        return renew(*given, **named)

    monkeypatch.setattr(ticker, "renew", write_and_renew)
    assert quiet.tick(QUIET_SECONDS) == EVERYTHING


@pytest.mark.django_db(transaction=True)
def test_duty_that_may_rest_is_looked_for_later_while_nobody_writes(alone_on_the_server):
    def attempt():
        quiet = Quiet(due_at=None, rest=2 * QUIET_SECONDS)
        looks = [quiet.tick(QUIET_SECONDS) for _ in range(4)]
        return looks == [["by rows"], ["by rows"], ["by rows", "rests"], ["by rows"]]

    assert alone_on_the_server(attempt)


@pytest.mark.django_db(transaction=True)
def test_duty_that_may_rest_is_looked_for_at_its_interval_after_a_write(alone_on_the_server):
    def attempt():
        quiet = Quiet(due_at=None, rest=100)
        written_elsewhere()
        looks = [quiet.tick(), quiet.tick(QUIET_SECONDS), quiet.tick(QUIET_SECONDS)]
        return looks == [EVERYTHING, ["by rows", "rests"], ["by rows"]]

    assert alone_on_the_server(attempt)


@pytest.mark.django_db(transaction=True)
def test_duty_that_may_rest_is_looked_for_at_its_interval_after_what_the_ticker_did(alone_on_the_server):
    def attempt():
        quiet = Quiet(rest=100)
        quiet.found = 1
        quiet.tick()
        quiet.found = 0
        looks = [quiet.tick(), quiet.tick(QUIET_SECONDS)]
        return "rests" not in looks[0] and "rests" in looks[1]

    assert alone_on_the_server(attempt)


@pytest.mark.django_db(transaction=True)
def test_duty_whose_interval_was_not_over_is_looked_for_before_it_rests():
    quiet = Quiet(due_at=None, every=2)
    written_elsewhere()
    assert [quiet.tick(), quiet.tick(), quiet.tick()] == [["by rows", "by clock"], ["by rows", "by clock"], EVERYTHING]


@pytest.mark.django_db
def test_duties_that_rest_until_their_time_know_of_it():
    """No duty is due before the time that the ticker waits for."""
    by_name = {duty.name: duty for duty in DUTIES}
    approval, question = make_approval(expires_at=NOW), make_question(expires_at=NOW)
    assert (by_name["expire approvals"].next_due(NOW), by_name["expire questions"].next_due(NOW)) == (NOW, NOW)
    assert by_name["expire approvals"].do(NOW) == by_name["expire questions"].do(NOW) == 1
    for row in (approval, question):
        row.refresh_from_db()
    assert by_name["expire approvals"].next_due(NOW) is by_name["expire questions"].next_due(NOW) is None


@pytest.mark.django_db(transaction=True)
def test_ticker_that_had_something_to_do_looks_for_everything_again():
    assert Quiet(found=1).tick() == EVERYTHING


@pytest.mark.django_db(transaction=True)
def test_new_connection_knows_nothing_of_who_wrote_before():
    quiet = Quiet()
    connection.close()
    written_elsewhere()
    assert quiet.tick() == EVERYTHING


@pytest.mark.django_db(transaction=True)
def test_ticker_that_lost_its_lease_meanwhile_is_not_quiet(monkeypatch):
    monkeypatch.setattr(ticker, "record_done", lambda *_, **__: False)
    assert Quiet().tick() == EVERYTHING


@pytest.mark.django_db
def test_inside_of_a_transaction_nothing_is_quiet():
    assert mark() is None
    assert Quiet().tick() == EVERYTHING


@pytest.mark.parametrize(
    ("before", "after", "is_ours"),
    [
        (("a", 7), ("a", 7), True),
        (("a", 7), ("a", 8), False),
        (("a", 7), ("b", 7), False),
        ((None, "10:10:"), (None, "11:11:"), True),
        ((None, "10:10:"), (None, "10:10:"), False),
        ((None, "10:10:"), (None, "12:12:"), False),
        ((None, "10:11:10"), (None, "10:12:10"), True),
        ((None, "10:11:10"), (None, "12:12:"), False),
        ((None, "10:10:"), (None, "10:11:10"), False),
        (None, (None, "11:11:"), False),
        ((None, "10:10:"), None, False),
        (None, None, False),
    ],
)
def test_write_of_somebody_else_between_two_marks_is_noticed(before, after, is_ours):
    assert only_own_writes_between(before, after) is is_ours


def test_of_two_own_writes_both_are_expected():
    assert only_own_writes_between((None, "10:10:"), (None, "12:12:"), 2)
    assert not only_own_writes_between((None, "10:10:"), (None, "11:11:"), 2)


@pytest.mark.django_db(transaction=True)
def test_report_of_the_host_does_not_wake_the_ticker(alone_on_the_server):
    [report] = (duty for duty in DUTIES if duty.name == "report this host")

    def attempt():
        quiet = Quiet(due_at=None)
        reported = replace(report, do=lambda now: quiet.do("report") + report.do(now))
        quiet.ticker._duties = (*quiet.ticker._duties, reported)
        return (quiet.tick(QUIET_SECONDS), quiet.tick()) == (["by rows", "report"], [])

    assert alone_on_the_server(attempt)


# --- The clock is set ---


@pytest.mark.django_db
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_intervals_do_not_depend_on_the_wall_clock(step):
    seen, duty = counting(every=10)
    passed = [0.0]
    ticking = Ticker((duty,), monotonic=lambda: passed[0])

    for passed[0] in (0.0, 5.0, 10.0):
        ticking.tick(NOW + passed[0] * SECOND + (step if passed[0] else 0 * SECOND))

    assert seen == [NOW, NOW + 10 * SECOND + step]


@pytest.mark.sampled(1)
@pytest.mark.django_db
@pytest.mark.parametrize("left", [False, True])
def test_schedule_fires_once_a_minute_after_a_clock_change(left):
    start = NOW.replace(second=0)
    schedule = make_trigger(
        kind=TriggerKind.SCHEDULE, cron="* * * * *", zone="UTC", next_run_at=start + MINUTE, max_runs_per_hour=1_000
    )
    ticking = Ticker(tuple(duty for duty in DUTIES if duty.name == "fire schedules"))

    def pass_by(begin, minutes):
        for half in range(1, 2 * minutes + 1):
            ticking.tick(begin + half * MINUTE / 2)
            AgentSession.objects.filter(status=Status.QUEUED).update(
                status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW
            )

    pass_by(start, 5)
    pass_by(start + 15 * MINUTE, 2)  # ten minutes ahead for two minutes
    if left:
        ticking.leave()  # whoever takes over next finds no lease, only when the duty was done
        ticking.owner = "elsewhere:1"
    pass_by(start + 7 * MINUTE, 15)

    slots = [int(slot.removeprefix("cron:")) for slot in schedule.sessions.values_list("slot", flat=True)]
    minutes = sorted((slot - int(start.timestamp())) // 60 for slot in slots)
    assert minutes == [*range(1, 6), *range(8, 23)], "each minute that came, but the two that had not come when it was"
    assert len(set(slots)) == len(slots)


@pytest.mark.django_db
def test_lease_acquired_by_a_clock_ahead_is_free():
    _, duty = counting()
    first, second = Ticker((duty,)), Ticker((duty,))
    second.owner = "elsewhere:1"
    first.tick(NOW + HOUR)

    assert second.tick(NOW) == {"count": 2}
    assert first.tick(NOW + SECOND) is None


@pytest.mark.django_db
def test_invalid_schedule_does_not_stop_replanning():
    poison = make_trigger(kind=TriggerKind.SCHEDULE, cron="61 * * * *", next_run_at=NOW + 2 * HOUR)
    good = make_trigger(kind=TriggerKind.SCHEDULE, cron="0 * * * *", next_run_at=NOW + 2 * HOUR)
    ticking = Ticker(())
    ticking.tick(NOW + HOUR)

    assert ticking.tick(NOW) == {}
    assert Trigger.objects.get(pk=good.pk).next_run_at < NOW + HOUR + SECOND
    assert Trigger.objects.get(pk=poison.pk).next_run_at == NOW + 2 * HOUR


# --- Copies by e-mail ---


def write_copies(number):
    owner = make_user(email="ada@example.org")
    for _ in range(number):
        notification_create(owner_id=owner.pk, kind=NoticeKind.AGENT, title="Done", body="", now=NOW)


@pytest.mark.django_db(transaction=True)
def test_copies_are_sent_once_in_a_thread(settings):
    with mail_server(settings) as server:
        write_copies(3)
        ticking = Ticker(())
        assert ticking.tick(NOW) == {"send copies": 3}
        ticking.leave()
        assert Ticker(()).tick(NOW) == {}
    assert len(server.taken) == 3
    assert {copy.status for copy in OutboxMessage.objects.all()} == {OutboxStatus.SENT}


@pytest.mark.django_db(transaction=True)
def test_hanging_mail_server_delays_no_tick(settings):
    passed = [0.0]
    with mail_server(settings, silent=True) as server:
        settings.EMAIL_TIMEOUT = 30
        write_copies(2)
        seen, duty = counting()
        ticking = Ticker((duty,), monotonic=lambda: passed[0])
        for passed[0] in range(5):
            ticking.tick(NOW + passed[0] * SECOND)
        assert len(seen) == 5
        assert min(OutboxMessage.objects.values_list("attempts", flat=True)) == 0, "one after the other"
        ticking._mailer.stop()
        server.over.set()  # it hangs up
        ticking.leave()
    until(lambda: not ticking._mailer._thread.is_alive())
    assert sorted(OutboxMessage.objects.values_list("attempts", flat=True)) == [0, 1]
    assert not OutboxMessage.objects.filter(status=OutboxStatus.FAILED).exists()


@pytest.mark.django_db(transaction=True)
def test_failed_copies_are_retried(settings, monkeypatch, caplog):
    with mail_server(settings) as server:
        write_copies(1)
        with monkeypatch.context() as patch:
            patch.setattr(ticker, "copy_send", lambda pk, now: 1 // 0)
            broken = Ticker(())
            broken.tick(NOW)
            broken.leave()
        assert "it is retried" in caplog.text
        sound = Ticker(())
        with time_machine.travel(clock() + CLAIMED_FOR):
            sound.tick(clock())
            sound.leave()
    assert len(server.taken) == 1


@pytest.mark.django_db
def test_failing_duty_is_logged_and_the_others_run(caplog):
    seen, duty = counting()
    with caplog.at_level(logging.ERROR):
        done = Ticker((Duty("break", 0, lambda now: 1 // 0), duty)).tick(NOW)

    assert done == {"break": -1, "count": 1}
    assert seen == [NOW]
    assert "could not break" in caplog.text


@pytest.mark.django_db
def test_second_ticker_waits_until_the_lease_expires():
    _, duty = counting()
    first, second = Ticker((duty,)), Ticker((duty,))
    second.owner = "elsewhere:1"

    assert first.tick(NOW) == {"count": 1}
    assert second.tick(NOW + SECOND) is None
    assert second.tick(NOW + LEASE) == {"count": 2}
    assert first.tick(NOW + LEASE + SECOND) is None
    assert Lease.objects.get(name="ticker").done_at == NOW + LEASE


@pytest.mark.django_db(transaction=True)
def test_stopped_ticker_releases_the_lease():
    seen, duty = counting()
    over = SignalEvent()

    def run():
        try:
            Ticker((duty,)).run(over, every=0.01)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: len(seen) > 2)
    over.set()
    thread.join(PATIENCE)

    assert Ticker((duty,)).tick(NOW) is not None


def test_signal_during_a_wait_is_handled():
    over, stopped, heard = SignalEvent(), SignalEvent(), []
    before = signal.signal(signal.SIGUSR1, lambda *_: (heard.append(1), stopped.set()))

    def knock():
        while not over.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)

    knocking = threading.Thread(target=knock)
    knocking.start()
    try:
        while len(heard) < 50:
            stopped.wait(0.001)
    finally:
        over.set()
        knocking.join(PATIENCE)
        signal.signal(signal.SIGUSR1, before)
    assert stopped.wait(0)


@pytest.mark.django_db
@pytest.mark.parametrize(("error", "told"), [(RuntimeError, 2), (OperationalError, 1)])
def test_failed_tick_is_followed_by_another_and_an_outage_is_told_in_full_once(monkeypatch, caplog, error, told):
    over = SignalEvent()
    tries = []

    def broken(*_, **__):
        tries.append(1)
        if len(tries) == 2:
            over.set()
        raise error("the database is away")

    monkeypatch.setattr(ticker, "acquire", broken)
    monkeypatch.setattr(ticker.connection, "close", lambda: None)
    monkeypatch.setattr(ticker, "close_old_connections", lambda: None)
    Ticker(()).run(over, every=0)

    assert len(tries) == 2
    assert caplog.text.count(f"a tick failed ({error.__name__})") == 2
    assert caplog.text.count("Traceback") == told


@pytest.mark.django_db
def test_tick_once_prints_what_was_done(monkeypatch):
    make_session(Status.SLEEPING, next_wake_at=NOW)
    out = io.StringIO()

    call_command("tick", "--once", "--json", stdout=out)

    facts = json.loads(out.getvalue())
    assert facts["ticked"] is True
    assert facts["done"]["wake sleepers"] == 1
    again = io.StringIO()
    call_command("tick", "--once", stdout=again)
    assert "wake sleepers" not in again.getvalue()


@pytest.mark.django_db
def test_tick_once_respects_the_lease():
    from agents.conf import clock

    holder = Ticker(())
    holder.owner = "elsewhere:1"
    holder.tick(clock())
    out = io.StringIO()

    call_command("tick", "--once", stdout=out)

    assert "Another process holds the lease" in out.getvalue()


@pytest.mark.django_db
def test_tick_once_fails_when_a_duty_fails(monkeypatch):
    monkeypatch.setattr("agents.management.commands.tick.Ticker", lambda: Ticker((Duty("x", 10, lambda now: 1 // 0),)))

    with pytest.raises(SystemExit):
        call_command("tick", "--once", stdout=io.StringIO())


def test_duty_names_are_unique():
    assert len({duty.name for duty in DUTIES}) == len(DUTIES)
