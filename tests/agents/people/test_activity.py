"""The live feed: events are written with what they report, trimmed to the newest, and read in order without gaps."""

import logging
import threading
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from agents.enums import EventKind
from agents.models import AgentEvent
from agents.people import activity
from agents.people.activity import (
    SENTENCE_CHARS,
    Horizon,
    duration_text,
    event_emit,
    event_sentence,
    events_between,
    events_trim,
)
from tests.factories import NOW, make_agent, make_session, make_user
from tests.flows.processes import until
from tests.table import every_row


def emit(agent, kind=EventKind.SENSOR_UPDATED, **data):
    event_emit(kind, agent=agent, now=NOW, **data)
    return AgentEvent.objects.order_by("-id").values_list("id", flat=True)[0]


def make_events(agent, number, **fields):
    rows = [AgentEvent(agent=agent, owner_id=1, kind="k", created_at=NOW, **fields) for _ in range(number)]
    return [row.pk for row in AgentEvent.objects.bulk_create(rows)]


# --- written ---


@pytest.mark.django_db
def test_event_is_written_with_what_it_reports():
    agent = make_agent()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        emit(agent)
        raise ZeroDivisionError
    assert not AgentEvent.objects.exists()
    emit(agent, sensor="door")
    [event] = AgentEvent.objects.all()
    assert (event.agent, event.session, event.owner_id, event.created_at) == (agent, None, agent.owner_id, NOW)
    session = make_session(agent=agent, owner=agent.owner)
    event_emit(EventKind.ERROR, session=session, now=NOW, message="x" * 900)
    last = AgentEvent.objects.get(kind=EventKind.ERROR)
    assert (last.agent, last.session, len(last.data["message"])) == (agent, session, 500)


@pytest.mark.django_db
def test_event_needs_a_session_or_an_agent():
    with pytest.raises(ValueError, match="needs a session or an agent"):
        event_emit(EventKind.ERROR, now=NOW)


@pytest.mark.django_db
def test_failure_to_write_an_event_stops_nothing(monkeypatch, caplog):
    agent = make_agent()
    monkeypatch.setattr(activity, "redact_data", lambda data: 1 / 0)
    with transaction.atomic():
        event_emit(EventKind.ERROR, agent=agent, now=NOW)
        agent.name = "still here"
        agent.save()
    agent.refresh_from_db()
    assert agent.name == "still here"
    assert "could not be written" in caplog.text


# --- kept ---


@pytest.mark.django_db
def test_newest_events_of_each_agent_are_kept(settings, monkeypatch):
    settings.LQOPS_EVENTS_KEPT = 3
    monkeypatch.setattr(activity, "ROWS_PER_BATCH", 2)
    crowded, second, few = make_agent(), make_agent(), make_agent()
    kept = {
        who: make_events(who, number)[-3:] for who, number in ((crowded, 8), (few, 2), (second, 5), (None, 4), (few, 1))
    }
    assert events_trim() == 5 + 2 + 1
    assert set(AgentEvent.objects.exclude(agent=few).values_list("id", flat=True)) == {
        pk for who, pks in kept.items() if who != few for pk in pks
    }
    assert AgentEvent.objects.filter(agent=few).count() == 3
    assert events_trim() == 0


@pytest.mark.django_db
def test_trimming_statements_do_not_grow_with_agents(settings, django_assert_num_queries):
    settings.LQOPS_EVENTS_KEPT = 1
    for number in (2, 30):
        for agent in [make_agent() for _ in range(number)]:
            make_events(agent, 2)
        with django_assert_num_queries(2):  # which, and away with them
            assert events_trim() == number


@pytest.mark.django_db
def test_newest_thousand_events_of_any_kind_are_kept():
    agent = make_agent()
    event_emit(EventKind.TURN_STARTED, agent=agent, now=NOW)
    updates = make_events(agent, 1_000)
    AgentEvent.objects.filter(id__in=updates).update(kind=EventKind.SENSOR_UPDATED)

    assert events_trim() == 1
    assert list(AgentEvent.objects.order_by("id").values_list("id", flat=True)) == updates


@pytest.mark.django_db
def test_trimming_is_bounded_and_resumes_with_the_oldest(settings, monkeypatch):
    settings.LQOPS_EVENTS_KEPT = 1
    monkeypatch.setattr(activity, "ROWS_PER_BATCH", 2)
    monkeypatch.setattr(activity, "MAX_BATCHES", 1)
    last, first = make_agent(), make_agent()
    make_events(first, 3)
    make_events(last, 3)
    assert events_trim() == 2
    assert AgentEvent.objects.filter(agent=first).count() == 1
    assert events_trim() == 2


# --- in order ---


class Writer(threading.Thread):
    """A transaction of its own that writes one event, and ends when it is told to."""

    def __init__(self, agent, kind, *, keeps=True):
        super().__init__(daemon=True)
        self.agent, self.kind, self.keeps = agent, kind, keeps
        self.written, self.go_on = threading.Event(), threading.Event()

    def run(self):
        try:
            with transaction.atomic():
                event_emit(self.kind, agent=self.agent, now=NOW)
                self.written.set()
                self.go_on.wait(30)
                transaction.set_rollback(not self.keeps)
        finally:
            connection.close()

    def end(self):
        self.go_on.set()
        self.join()


@contextmanager
def writing(agent, kind, **how):
    writer = Writer(agent, kind, **how)
    writer.start()
    writer.written.wait(30)
    try:
        yield writer
    finally:
        writer.end()


@contextmanager
def overtaken(agent, **how):
    """A transaction that has written an event and is open, and a second one that wrote after it, and has ended if the
    database lets it."""
    with writing(agent, "first", **how) as first:
        second = Writer(agent, "second")
        second.go_on.set()
        second.start()
        if connection.vendor == "postgresql":
            until(AgentEvent.objects.filter(kind="second").exists)
        yield first
        first.end()
        second.join()


def heard(horizon, agent, after=0):
    rows = events_between(after, horizon.look(), owner_ids=[agent.owner_id])
    return [event.kind for event in rows]


@pytest.mark.django_db(transaction=True)
def test_event_that_commits_late_is_not_skipped():
    agent, horizon = make_agent(), Horizon()
    before = emit(agent, "before")
    assert heard(horizon, agent) == ["before"]
    with overtaken(agent):
        assert heard(horizon, agent, before) == heard(horizon, agent, before) == []
        assert horizon.wait() == before
    assert heard(horizon, agent, before) == ["first", "second"]


@pytest.mark.django_db(transaction=True)
def test_rolled_back_event_is_not_waited_for():
    agent, horizon = make_agent(), Horizon()
    with overtaken(agent, keeps=False):
        assert heard(horizon, agent) == []
    assert heard(horizon, agent) == ["second"]


@pytest.mark.django_db(transaction=True)
def test_endless_transaction_delays_others_only_for_a_while(monkeypatch, caplog):
    agent, horizon = make_agent(), Horizon()
    with overtaken(agent):
        assert heard(horizon, agent) == []
        monkeypatch.setattr(activity, "MAX_WAIT_SECONDS", -1)
        if connection.vendor == "postgresql":
            assert heard(horizon, agent) == ["second"]
            assert "are read although" in caplog.text
            monkeypatch.setattr(activity, "MAX_WAIT_SECONDS", 30)
            emit(agent, "third")  # and the others are not held up again
            assert heard(horizon, agent) == ["second", "third"]
    assert {"first", "second"} <= set(heard(horizon, agent))


@pytest.mark.django_db(transaction=True)
def test_single_read_waits_for_events_being_written(monkeypatch):
    monkeypatch.setattr(activity, "WAIT_SECONDS", 20)
    agent, horizon = make_agent(), Horizon()
    with overtaken(agent) as first:
        threading.Timer(0.1, first.go_on.set).start()
        rows = events_between(0, horizon.wait(), owner_ids=[agent.owner_id])
        assert [event.kind for event in rows] == (["first", "second"] if connection.vendor == "postgresql" else [])
    assert heard(horizon, agent) == ["first", "second"]


@pytest.mark.django_db
def test_horizon_follows_a_restored_database(caplog):
    caplog.set_level(logging.WARNING)
    agent, horizon = make_agent(), Horizon()
    first, second = emit(agent), emit(agent)
    assert horizon.look() == second
    AgentEvent.objects.filter(pk=second).delete()
    assert horizon.look() == first
    third = emit(agent)
    assert (horizon.look(), caplog.text) == (third, "")


@pytest.mark.django_db
def test_events_are_filtered_by_owner():
    mine, theirs = make_agent(), make_agent(owner=make_user())
    own, other = emit(mine), emit(theirs)
    assert [event.pk for event in events_between(0, other, owner_ids=[mine.owner_id])] == [own]
    assert [event.pk for event in events_between(own, other, owner_ids=[mine.owner_id, theirs.owner_id])] == [other]


# --- Sentences ---


@every_row(
    ("kind", "data", "sentence"),
    [
        ("autonomy:turn_started", {"turn": 3}, "Turn 3 started."),
        (
            "autonomy:turn_started",
            {"turn": 3, "hot_state": {"price": "31"}, "alerts": ["door", "rain"]},
            "Turn 3 started with 1 field and alerts door, rain.",
        ),
        (
            "autonomy:turn_completed",
            {"turn": 3, "yield": "sleep", "sleep_seconds": 90, "reason": "Nothing to do.", "actions": ["press"]},
            "Turn 3 completed after press: the agent sleeps for 1 min: Nothing to do.",
        ),
        ("autonomy:turn_completed", {"turn": 1, "yield": "shutdown"}, "Turn 1 completed: the agent ends its loop."),
        ("autonomy:turn_completed", {"turn": 1, "yield": ""}, "Turn 1 completed: the agent continues."),
        ("autonomy:precheck_skipped", {"turn": 2, "cause": "unchanged"}, "Turn 2 skipped: nothing has changed."),
        (
            "autonomy:guardrail_triggered",
            {"guardrail": "max_actions_per_minute", "limit": 10, "skill": None},
            "The guardrail max_actions_per_minute triggered (limit 10).",
        ),
        ("autonomy:sensor_updated", {"sensor": "door", "field": "open"}, "The sensor door updated open."),
        (
            "autonomy:sensor_error",
            {"sensor": "door", "error": "no route", "failures": 4},
            "The sensor door failed, 4 times in a row: no route.",
        ),
        (
            "autonomy:notification_pushed",
            {"name": "rain", "source": "sky", "text": "it rains", "woken": True},
            "The alert rain arrived from sky and woke the agent: it rains.",
        ),
        ("approval:requested", {"action": "send_email"}, "send_email needs approval."),
        ("approval:resolved", {"action": "send_email", "decision": "rejected"}, "send_email was denied."),
        ("approval:resolved", {"action": "send_email", "decision": "approved"}, "send_email was approved."),
        ("session:error", {"message": "it broke", "recoverable": False}, "The run failed: it broke."),
        ("session:error", {"message": "near the cap", "recoverable": True}, "Warning: near the cap."),
        ("something:else", {}, "something:else"),
    ],
)
def test_event_sentences(kind, data, sentence):
    assert event_sentence(kind, data) == sentence


@every_row("kind", [*EventKind.values])
@every_row("odd", [{}, {"turn": [1], "hot_state": 7, "alerts": "x", "actions": None, "failures": "many"}])
def test_sentence_for_data_of_any_shape(kind, odd):
    sentence = event_sentence(kind, {**odd, "reason": "x\n" * 900, "message": "y" * 900})
    assert 0 < len(sentence) <= SENTENCE_CHARS
    assert "\n" not in sentence


def test_durations_are_truncated():
    assert [duration_text(n) for n in (5, 59.9, 3599, 7300, None)] == ["5 s", "59 s", "59 min", "2 h", "a while"]
