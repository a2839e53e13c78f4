"""Loops that failed start again: after a pause, with the rest of their cap, a limited number of times."""

from datetime import timedelta
from decimal import Decimal

import pytest

from agents.conf import clock
from agents.enums import NoticeKind, Status, TerminalReason
from agents.loop.reads import loop_current
from agents.models import AgentSession, Notification
from agents.providers.scripted import Step
from agents.roster.agents import agent_stop
from agents.roster.loops import loop_next_start, loops_revive
from agents.sessions.halts import halt_all_work, release_all_work, session_halt
from tests.agents.conftest import script
from tests.agents.loop.conftest import Driven
from tests.agents.loop.scripted_replies import GO_ON, SHUT_DOWN, sleeps
from tests.factories import make_user

pytestmark = pytest.mark.django_db

REFUSED = Step("No.", stop_reason="refusal")


@pytest.fixture(autouse=True)
def _few_errors(monkeypatch):
    """The second failed turn ends a loop, not the fifth, as in test_guardrails.py."""
    monkeypatch.setattr("agents.loop.pacing.MOST_ERRORS", 2)


def autonomy(said=""):
    return f"max_cost_usd: 0.05\nautonomy: {{enabled: true{said}}}"


def fail(loop):
    """Let its turns fail until it ends."""
    with script(REFUSED):
        loop.for_(hours=1)
    assert loop.row.terminal_reason == TerminalReason.REFUSED
    return loop.row


def revived(agent, time, seconds):
    time.shift(timedelta(seconds=seconds))
    loops_revive(clock())
    current = loop_current(agent.pk)
    return Driven(current, time) if current else None


def test_failed_loop_starts_again_with_the_rest_of_its_cap_and_its_alerts(agent, drive, time):
    watcher = agent(autonomy())
    loop = drive(watcher)
    with script(GO_ON, REFUSED):
        loop.task()
        loop.alert("price_drop", "31")
        loop.for_(hours=1)
    spent = loop.row.cost_total_usd
    assert spent > 0
    assert revived(watcher, time, 9) is None
    again = revived(watcher, time, 1)
    assert again.row.restarted_from_id == loop.row.pk
    assert again.row.max_cost_usd == Decimal("0.05") - spent
    assert [alert.name for alert in again.row.alerts.all()] == ["price_drop"]
    with script(sleeps(60)):
        assert again.task() == Status.SLEEPING


def test_owner_reads_when_it_starts_again_and_when_it_does_not(agent, drive, time):
    watcher = agent(autonomy(", max_restarts: 1"))
    loop = drive(watcher)
    fail(loop)
    again = revived(watcher, time, 10)
    fail(again)
    first, second = Notification.objects.filter(kind=NoticeKind.RUN_STOPPED).order_by("pk")
    assert "It starts again at" in first.body
    assert "It does not start again by itself." in second.body
    assert loop_next_start(watcher) is None
    assert revived(watcher, time, 86_400) is None


@pytest.mark.sampled(1)
@pytest.mark.parametrize("said", [", restart: never", ", max_restarts: 0"])
def test_loop_that_is_not_to_restart_stays_ended(agent, drive, time, said):
    watcher = agent(autonomy(said))
    fail(drive(watcher))
    assert revived(watcher, time, 86_400) is None


def test_failed_loop_that_is_renewed_daily_starts_with_the_next_day_and_a_full_cap(agent, drive, time):
    watcher = agent(autonomy(", restart: never, renew: daily"))
    fail(drive(watcher))
    assert revived(watcher, time, 3_600) is None
    again = revived(watcher, time, 86_400)
    assert again.row.max_cost_usd == Decimal("0.05")


def test_idle_loop_restarts_always_only(agent, drive, time):
    def idle(said):
        watcher = agent(autonomy(said))
        loop = drive(watcher)
        AgentSession.objects.filter(pk=loop.session.pk).update(metadata={"loop": {"idle_ms": 10**9}})
        loop.task()
        assert loop.row.terminal_reason == TerminalReason.IDLE_TIMEOUT
        return watcher

    one, other = idle(", restart: always"), idle(", restart: on-failure")
    assert (loop_next_start(one) is not None, loop_next_start(other)) == (True, None)


def test_ends_that_somebody_wanted_restart_nothing(agent, drive, time):
    operator = make_user(is_superuser=True)
    always = autonomy(", restart: always, renew: daily")
    shut, halted, stopped, all_halted = (drive(agent(always)) for _ in range(4))
    with script(SHUT_DOWN):
        shut.task()
    session_halt(halted.session.pk, by=operator, reason="enough", now=clock())
    agent_stop(agent=stopped.row.agent, by=operator, now=clock())
    halt_all_work(by=operator, reason="stop", now=clock())
    assert not loops_revive(clock() + timedelta(days=2))
    session_halt(all_halted.session.pk, by=operator, reason="enough", now=clock())
    release_all_work(by=operator, now=clock())
    assert not loops_revive(clock() + timedelta(days=2))
