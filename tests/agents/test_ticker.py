"""The ticker: what is due is done, by one process at a time, and one failing duty keeps no other from being done."""

import io
import json
import logging
import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from agents import ticker
from agents.enums import Status
from agents.models import Lease
from agents.ticker import DUTIES, LEASE, Duty, Ticker
from tests.factories import NOW, make_session
from tests.flows.processes import until

SECOND = timedelta(seconds=1)


def counting(name="count", every=timedelta(0)):
    seen = []
    return seen, Duty(name, every, lambda now: seen.append(now) or len(seen))


@pytest.mark.django_db
def test_every_duty_runs_on_an_empty_installation():
    assert Ticker().tick(NOW) in ({}, {"write a checkpoint": 1})


@pytest.mark.django_db
def test_duty_is_done_again_only_after_its_interval():
    seen, duty = counting(every=10 * SECOND)
    ticking = Ticker((duty,))

    for seconds in (0, 9, 10, 11):
        ticking.tick(NOW + seconds * SECOND)

    assert seen == [NOW, NOW + 10 * SECOND]


@pytest.mark.django_db
def test_failing_duty_is_logged_and_the_others_are_done(caplog):
    seen, duty = counting()
    with caplog.at_level(logging.ERROR):
        done = Ticker((Duty("break", timedelta(0), lambda now: 1 // 0), duty)).tick(NOW)

    assert done == {"break": -1, "count": 1}
    assert seen == [NOW]
    assert "could not break" in caplog.text


@pytest.mark.django_db
def test_second_ticker_stands_by_until_the_first_is_not_heard_of():
    _, duty = counting()
    first, second = Ticker((duty,)), Ticker((duty,))
    second.owner = "elsewhere:1"

    assert first.tick(NOW) == {"count": 1}
    assert second.tick(NOW + SECOND) is None
    assert second.tick(NOW + LEASE) == {"count": 2}
    assert first.tick(NOW + LEASE + SECOND) is None
    assert Lease.objects.get(name="ticker").done_at == NOW + LEASE


@pytest.mark.django_db(transaction=True)
def test_runs_until_it_is_told_to_stop_and_leaves_the_duty_to_the_next():
    seen, duty = counting()
    over = threading.Event()

    def run():
        try:
            Ticker((duty,)).run(over, every=0.01)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(seen) > 2)
    over.set()
    thread.join()

    assert Ticker((duty,)).tick(NOW) is not None


@pytest.mark.django_db
def test_tick_that_fails_as_a_whole_is_followed_by_another(monkeypatch, caplog):
    over = threading.Event()
    tries = []

    def broken(*_, **__):
        tries.append(1)
        if len(tries) == 2:
            over.set()
        raise RuntimeError("the database is away")

    monkeypatch.setattr(ticker, "duty_take", broken)
    monkeypatch.setattr(ticker.connection, "close", lambda: None)
    monkeypatch.setattr(ticker, "close_old_connections", lambda: None)
    Ticker(()).run(over, every=0)

    assert len(tries) == 2
    assert "a tick failed" in caplog.text


@pytest.mark.django_db
def test_tick_once_says_what_was_done(monkeypatch):
    make_session(Status.SLEEPING, next_wake_at=NOW)
    out = io.StringIO()

    call_command("tick", "--once", "--json", stdout=out)

    said = json.loads(out.getvalue())
    assert said["ticked"] is True
    assert said["done"]["wake sleepers"] == 1
    again = io.StringIO()
    call_command("tick", "--once", stdout=again)
    assert "wake sleepers" not in again.getvalue()


@pytest.mark.django_db
def test_tick_once_leaves_it_to_the_one_who_holds_the_duty():
    from agents.conf import clock

    holder = Ticker(())
    holder.owner = "elsewhere:1"
    holder.tick(clock())
    out = io.StringIO()

    call_command("tick", "--once", stdout=out)

    assert "Another process holds the duty" in out.getvalue()


@pytest.mark.django_db
def test_tick_once_fails_when_a_duty_fails(monkeypatch):
    monkeypatch.setattr(
        "agents.management.commands.tick.Ticker", lambda: Ticker((Duty("x", LEASE, lambda now: 1 // 0),))
    )

    with pytest.raises(SystemExit):
        call_command("tick", "--once", stdout=io.StringIO())


def test_duties_have_names_of_their_own():
    assert len({duty.name for duty in DUTIES}) == len(DUTIES)
