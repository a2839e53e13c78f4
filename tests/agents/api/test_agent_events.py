"""Events through the API: one's own, in order, behind a cursor; and how those who listen are served."""

import asyncio
import logging
import threading
from collections import deque

import pytest
from django.db import DatabaseError

from agents.api import sse
from agents.api.sse import Listener, Reader
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


# --- the list ---


@pytest.mark.django_db
def test_events_are_listed_in_the_order_in_which_they_happened(api, person, agent):
    session = make_session(owner=person, agent=agent)
    first = emit(agent, sensor="door", field="open", key="sk-proj-1234567890abcdefghijklmnop")
    event_emit("autonomy:turn_started", session=session, now=NOW, turn=2)
    told = api.get(EVENTS).json()["results"]
    assert told[0] == {
        "id": first,
        "kind": KIND,
        "agent": str(agent.public_id),
        "session": None,
        "text": "The sensor door updated open.",
        "data": {"sensor": "door", "field": "open", "key": told[0]["data"]["key"]},
        "created_at": NOW.isoformat(),
    }
    assert "1234567890" not in told[0]["data"]["key"]
    assert (told[1]["session"], told[1]["text"]) == (str(session.public_id), "Turn 2 started.")


@pytest.mark.django_db
def test_events_are_asked_for_behind_a_cursor_page_by_page(api, agent):
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
def test_events_are_narrowed_by_agent_session_and_kind(api, person, agent):
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
def test_nobody_hears_of_anybody_else_s_agents(agent):
    emit(agent)
    for stranger in (make_user(), make_user(is_superuser=True)):
        assert ids(client_of(stranger), agent=str(agent.public_id)) == ids(client_of(stranger)) == []


@pytest.mark.django_db
@pytest.mark.parametrize("query", [{"after": "x"}, {"after": -1}, {"after": 2**63}, {"kind": "x"}, {"before": 1}])
def test_a_question_without_sense_is_refused(api, query):
    answer = api.get(EVENTS, query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert list(answer.json()["detail"]) == list(query)


@pytest.mark.django_db
def test_a_list_costs_as_many_statements_for_many_events_as_for_few(api, agent, django_assert_max_num_queries):
    for _ in range(30):
        emit(agent)
    with django_assert_max_num_queries(9):
        assert len(ids(api)) == 30


# --- listeners ---


class Event:
    def __init__(self, number, *, owner_id=1, agent_id=None):
        self.pk, self.owner_id, self.agent_id = number, owner_id, agent_id


def served(script, monkeypatch, *listeners, **sizes):
    """What listeners heard whose reader found what the script says, look by look, and who was cut off. An exception of
    the script is raised by the look."""
    looks, over = deque(script), threading.Event()

    def look(after, owner_ids):
        if not looks:
            over.set()  # what was found before has been given
            return [], after
        if isinstance(found := looks.popleft(), Exception):
            raise found
        return [(event, b"") for event in found], max([after, *(event.pk for event in found)])

    for name, value in {"LOOK_EVERY_SECONDS": 0, "REST_SECONDS": 0, **sizes}.items():
        monkeypatch.setattr(sse, name, value)
    monkeypatch.setattr(sse, "_new_events", look)
    monkeypatch.setattr(sse.horizon, "look", lambda: 0)

    async def listen():
        reader, joined = Reader(), [listener() for listener in listeners]
        for listener in joined:
            await reader.join(listener)
        async with asyncio.timeout(10):
            while not over.is_set() and not all(listener.is_cut for listener in joined):  # noqa: ASYNC110 a thread sets it
                await asyncio.sleep(0)
        for listener in joined:
            reader.leave(listener)
        heard = [[number for number, _ in await listener.heard(0)] for listener in joined]
        return heard, [listener.is_cut for listener in joined]

    return asyncio.run(listen())


def test_events_reach_those_whose_they_are(monkeypatch):
    found = [Event(1), Event(2, owner_id=2), Event(3, agent_id=7)]
    heard, cut = served([found], monkeypatch, lambda: Listener(1), lambda: Listener(1, 7), lambda: Listener(2))
    assert (heard, cut) == ([[1, 3], [3], [2]], [False] * 3)


def test_who_does_not_keep_up_is_cut_off_and_the_others_are_not(monkeypatch):
    found = [Event(number) for number in range(1, 6)] + [Event(6, owner_id=2)]
    heard, cut = served([found], monkeypatch, lambda: Listener(1), lambda: Listener(2), MOST_WAITING=3)
    assert (heard, cut) == ([[1, 2, 3], [6]], [True, False])


def test_a_database_that_is_away_for_a_moment_cuts_nobody_off(monkeypatch, caplog):
    heard, cut = served([DatabaseError("away"), [Event(1)]], monkeypatch, lambda: Listener(1))
    assert (heard, cut) == ([[1]], [False])
    assert "could not be read: DatabaseError" in caplog.text


def test_a_reader_that_fails_is_logged_and_lets_its_listeners_go(monkeypatch, caplog):
    caplog.set_level(logging.ERROR)
    _, cut = served([ZeroDivisionError()], monkeypatch, lambda: Listener(1))
    assert cut == [True]
    assert "the reader of events failed" in caplog.text
