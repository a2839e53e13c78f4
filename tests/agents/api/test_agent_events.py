"""Activity through the API: the user's own events in order, with a cursor, and the reads of a stream."""

import math
from unittest.mock import Mock

import pytest
from django.db import DatabaseError

from agents.api import sse, streams
from agents.api.streams import ActivityStream, SharedPosition
from agents.models import AgentEvent
from agents.people.activity import event_emit
from tests.factories import NOW, make_agent, make_session, make_user

from .conftest import client_of

EVENTS = "/api/v1/events"
KIND = "autonomy:sensor_updated"


@pytest.fixture
def agent(person):
    return make_agent(owner=person)


def emit(agent, kind=KIND, **data):
    event_emit(kind, agent=agent, now=NOW, **data)
    return AgentEvent.objects.order_by("-id").values_list("id", flat=True)[0]


def ids(api, **query):
    answer = api.get(EVENTS, query)
    assert answer.status_code == 200, answer.content
    return [event["id"] for event in answer.json()["results"]]


# --- The list ---


@pytest.mark.django_db
def test_events_are_listed_in_order(api, person, agent):
    session = make_session(owner=person, agent=agent)
    first = emit(agent, sensor="door", field="open", key="sk-proj-1234567890abcdefghijklmnop")
    event_emit("autonomy:turn_started", session=session, now=NOW, turn=2)
    events = api.get(EVENTS).json()["results"]
    assert events[0] == {
        "id": first,
        "kind": KIND,
        "agent": str(agent.public_id),
        "session": None,
        "text": "The sensor door updated open.",
        "data": {"sensor": "door", "field": "open", "key": events[0]["data"]["key"]},
        "created_at": NOW.isoformat().replace("+00:00", "Z"),
    }
    assert "1234567890" not in events[0]["data"]["key"]
    assert (events[1]["session"], events[1]["text"]) == (str(session.public_id), "Turn 2 started.")


@pytest.mark.django_db
def test_events_are_paged_with_a_cursor(api, agent):
    sent = [emit(agent) for _ in range(5)]
    assert ids(api, after=sent[1]) == sent[2:]
    assert ids(api, after=0) == sent
    assert ids(api, after=sent[-1]) == []
    page = api.get(EVENTS, {"page_size": 2, "after": sent[0]}).json()
    assert ([event["id"] for event in page["results"]], page["count"]) == (sent[1:3], 4)
    AgentEvent.objects.filter(pk__in=sent[:2]).delete()  # what is forgotten meanwhile moves nothing
    page = api.get(page["next"]).json()
    assert ([event["id"] for event in page["results"]], page["next"]) == (sent[3:], None)


@pytest.mark.django_db
def test_events_are_filtered_by_agent_session_and_kind(api, person, agent):
    other, session = make_agent(owner=person), make_session(owner=person)
    one, two = emit(agent), emit(other)
    event_emit("session:error", session=session, now=NOW, message="x")
    three = emit(agent, "autonomy:sensor_error")
    error = AgentEvent.objects.get(session=session).pk
    assert ids(api, agent=str(agent.public_id)) == [one, three]
    assert ids(api, session=str(session.public_id)) == [error]
    assert ids(api, kind=["session:error", "autonomy:sensor_error"]) == [error, three]
    assert ids(api, agent=str(other.public_id), kind=KIND) == [two]


@pytest.mark.django_db
def test_events_of_other_users_are_not_listed(agent):
    emit(agent)
    for stranger in (make_user(), make_user(is_superuser=True)):
        assert ids(client_of(stranger), agent=str(agent.public_id)) == ids(client_of(stranger)) == []


@pytest.mark.django_db
@pytest.mark.parametrize("query", [{"after": "x"}, {"after": -1}, {"after": 2**63}, {"kind": "x"}, {"before": 1}])
def test_invalid_query_is_refused(api, query):
    answer = api.get(EVENTS, query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert list(answer.json()["detail"]) == list(query)


@pytest.mark.django_db
def test_statement_count_does_not_grow_with_events(api, agent, django_assert_max_num_queries):
    for _ in range(30):
        emit(agent)
    with django_assert_max_num_queries(9):
        assert len(ids(api)) == 30


# --- The stream ---


@pytest.mark.django_db
def test_backlog_is_read_without_pauses_until_its_end(person, agent, monkeypatch):
    monkeypatch.setattr(streams, "READ_LIMIT", 2)
    stream = ActivityStream(person.pk, agent=None, after=0)
    sent = [emit(agent) for _ in range(4)]
    assert stream.read().count(b"data: ") == 2
    assert stream.pause() == 0
    assert stream.read().count(b"data: ") == 2
    assert (stream.after, stream.pause()) == (sent[-1], sse.POLL_SECONDS)


@pytest.mark.django_db
def test_event_that_is_noticed_while_a_stream_decides_is_sent(person, agent, monkeypatch):
    """A reader's thread may refresh the position at any moment: it is replaced as a whole."""
    position = SharedPosition()
    monkeypatch.setattr(streams, "_position", position)
    emit(agent)
    position.refresh()
    stream = ActivityStream(person.pk, agent=None, after=position.now.until)
    position.is_due()  # another stream refreshes it
    position.now = position.now._replace(newest=Overtaken(position.refresh))
    sent = emit(agent)

    assert not stream.may_have_news()
    assert stream.after < sent
    assert stream.may_have_news()
    assert f"id: {sent}\n" in stream.read().decode()


class Overtaken(dict):
    """Does something else at the moment when it is read."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def get(self, key, default=None):
        self.act()
        return super().get(key, default)


@pytest.mark.django_db
def test_activity_of_others_is_passed_over_without_a_read_or_a_spin(person, agent, monkeypatch):
    position = SharedPosition()
    monkeypatch.setattr(streams, "_position", position)
    monkeypatch.setattr(streams, "READ_LIMIT", 2)
    own = [emit(agent) for _ in range(2)]
    theirs = emit(make_agent())
    stream = ActivityStream(person.pk, agent=None, after=0)

    assert stream.may_have_news()
    assert stream.read().count(b"data: ") == 2
    assert (stream.after, stream.pause()) == (own[-1], 0)
    stream.read()
    assert (stream.after, stream.pause()) == (theirs, sse.POLL_SECONDS)
    theirs = emit(make_agent())
    position.refresh()
    position._due_at = math.inf
    assert not stream.may_have_news()
    assert (stream.after, stream.pause()) == (theirs, sse.POLL_SECONDS)


@pytest.mark.django_db
@pytest.mark.parametrize("most", [0, 10_000])
def test_very_many_new_events_and_restored_databases_leave_it_to_each_stream(person, agent, monkeypatch, most):
    position = SharedPosition()
    monkeypatch.setattr(streams, "MOST_NEW", most)
    emit(agent)
    position.refresh()
    first = position.now
    last = emit(agent)
    position.refresh()
    assert position.now == (last if not most else first.since, last, {} if not most else {person.pk: last})
    monkeypatch.setattr(streams.horizon, "look", lambda: 1)
    position.refresh()
    assert position.now == (1, 1, {})


def test_reads_of_all_streams_take_turns(monkeypatch):
    monkeypatch.setattr(sse, "_next_read_at", 0.0)
    waits = [sse._turn(100.0) for _ in range(4)]
    assert waits == pytest.approx([place / sse.READS_PER_SECOND for place in range(4)])
    assert sse._turn(200.0) == 0


@pytest.mark.django_db
def test_database_outage_is_logged_and_loses_nothing(person, agent, monkeypatch, caplog):
    monkeypatch.setattr(sse, "close_old_connections", lambda: None)
    stream = ActivityStream(person.pk, agent=None, after=0)
    sent = emit(agent)
    with monkeypatch.context() as patched:
        patched.setattr(streams.horizon, "look", Mock(side_effect=DatabaseError("away")))
        assert stream._read() == b""
    assert "could not be read: DatabaseError" in caplog.text
    assert f"id: {sent}\n" in stream._read().decode()
