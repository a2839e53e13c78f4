"""The activity stream from a real web process: in order, resumable, for the owner alone."""

import json
import socket
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise

import pytest
from django.db import connection
from django.test import Client

from agents.models import AgentEvent
from agents.people.activity import event_emit
from tests.agents.people.test_activity import overtaken
from tests.factories import NOW, make_agent, make_session, make_user
from tests.flows.processes import until
from tests.lqops.listening import coming, key_of, let_in

pytestmark = pytest.mark.django_db(transaction=True)
KIND = "autonomy:sensor_updated"
ADDRESS = "/api/v1/events/stream"


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def agent(owner):
    return make_agent(owner=owner)


@pytest.fixture
def listen(http, owner):
    """`listen(…)`: the lines of an open stream of the owner, after its opening."""
    key = key_of(owner)

    @contextmanager
    def begin(*, heard="", key=key, **query):
        headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
        given = headers | ({"Last-Event-ID": str(heard)} if heard else {})
        with let_in(http, ADDRESS, headers=given, params=query) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert answer.headers["Cache-Control"] == "no-store"
            said = answer.iter_lines()
            assert next(said) == "retry: 1000"
            yield said

    return begin


def emit(agent, field="open", kind=KIND):
    event_emit(kind, agent=agent, now=NOW, sensor="door", field=field)
    return AgentEvent.objects.order_by("-id").values_list("id", flat=True)[0]


def ids(lines, number=None):
    """The data of the next events, or of all until the end."""
    return [int(heard) for _, heard, _ in islice(coming(lines), number)]


def test_events_arrive_as_they_happen(listen, owner, agent):
    emit(agent)
    session = make_session(owner=owner, agent=agent)
    with listen() as lines:
        first = emit(agent, "light")
        event_emit("autonomy:turn_started", session=session, now=NOW, turn=7)
        stream = coming(lines)
        assert next(stream) == (
            "",
            str(first),
            {
                "id": first,
                "kind": KIND,
                "agent": str(agent.public_id),
                "session": None,
                "text": "The sensor door updated light.",
                "data": {"sensor": "door", "field": "light"},
                "created_at": NOW.isoformat().replace("+00:00", "Z"),
            },
        )
        assert next(stream)[2]["session"] == str(session.public_id)


def test_stream_resumes_after_the_last_event(listen, agent):
    sent = [emit(agent) for _ in range(25)]  # more than are read at once
    for begun, expected in (({"after": 0}, sent), ({"after": sent[3]}, sent[4:]), ({"heard": sent[22]}, sent[23:])):
        with listen(**begun) as lines:
            assert ids(lines, len(expected)) == expected
    with listen(after=0, heard=sent[-1]) as lines:
        sent.append(emit(agent))
        assert ids(lines, 1) == sent[-1:]


def test_client_ahead_of_a_restored_database_gets_new_events(listen, agent):
    last = emit(agent)
    for ahead in ({"heard": last + 1_000}, {"after": last + 1_000}):
        with listen(**ahead) as lines:
            assert next(lines) == f"id: {last}"
            last = emit(agent)
            assert ids(lines, 1) == [last]


def test_invalid_last_event_id_is_refused(http, owner):
    headers = {"Authorization": f"Bearer {key_of(owner)}", "Last-Event-ID": "rubbish"}
    assert http.get(ADDRESS, headers=headers).status_code == 400


def test_opening_has_the_id_to_resume_from(listen, agent):
    """The opening and every keep-alive carry an id, so that a client can always resume."""
    last = emit(agent)
    with listen() as lines:
        assert next(lines) == f"id: {last}"
        theirs = emit(make_agent())
        until(lambda: f"id: {theirs}" == next(lines))


def test_stream_of_one_agent_has_only_its_events(listen, owner, agent):
    other = make_agent(owner=owner)
    emit(other), emit(agent, "one")
    with listen(agent=str(agent.public_id), after=0) as lines:
        stream = coming(lines)
        heard = [next(stream)]
        emit(other), emit(agent, "two")
        heard.append(next(stream))
    assert [data["data"]["field"] for _, _, data in heard] == ["one", "two"]


def test_late_committed_event_is_not_skipped(listen, agent):
    with listen() as lines:
        with overtaken(agent):
            if connection.vendor == "postgresql":  # the stream is at work, and holds the second one back
                assert AgentEvent.objects.filter(kind="second").exists()
                assert next(line for line in lines if line.startswith((":", "data"))) == ": still here"
        kinds = [data["kind"] for _, _, data in islice(coming(lines), 2)]
    assert kinds == ["first", "second"]


def test_client_behind_by_many_events_gets_all(listen, owner, agent):
    with listen() as lines:
        rows = [AgentEvent(agent=agent, owner_id=owner.pk, kind=KIND, created_at=NOW) for _ in range(60)]
        sent = [row.pk for row in AgentEvent.objects.bulk_create(rows)]
        assert ids(lines, len(sent)) == sent


def test_listeners_get_their_own_events_only(listen, agent):
    stranger = make_agent()
    with listen() as mine, listen(key=key_of(stranger.owner)) as other, listen() as again:
        sent = [emit(agent), emit(agent)]
        foreign = emit(stranger)
        last = emit(agent)
        assert (ids(mine, 3), ids(again, 3), ids(other, 1)) == ([*sent, last], [*sent, last], [foreign])


def test_stalled_client_frees_its_place(short_lived, web, http, owner, agent):
    much = {"text": "word " * 70_000}
    AgentEvent.objects.bulk_create(AgentEvent(agent=agent, owner_id=owner.pk, kind=KIND, data=much) for _ in range(20))
    key = {"Authorization": f"Bearer {key_of(owner)}"}
    response = f"GET {ADDRESS}?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key['Authorization']}\r\n\r\n"

    def status():
        with http.stream("GET", ADDRESS, headers=key) as answer:
            return answer.status_code

    def all_places_are_taken():
        for _ in range(2):
            client = stuck.enter_context(socket.create_connection((web.host, web.port)))
            client.sendall(response.encode())
            assert client.recv(9) == b"HTTP/1.1 "
        return status() == 429

    with ExitStack() as stuck:
        until(all_places_are_taken)
        until(lambda: status() == 200)


def test_only_own_agents_can_be_streamed(http, owner):
    theirs = make_agent()

    def response(secret="", method="GET", **query):
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        answer = http.request(method, ADDRESS, headers=headers, params=query)
        return answer.status_code, answer.json()["code"]

    key = key_of(owner)
    assert response() == (401, "not_authenticated")
    assert response(key, agent=str(theirs.public_id)) == (404, "not_found")
    assert response(key_of(owner, "write")) == (403, "scope_missing")
    assert response(key, "POST") == (405, "method_not_allowed")
    for nonsense in ({"after": "x"}, {"after": -1}, {"after": 2**63}, {"agent": "x"}, {"kind": KIND}):
        assert response(key, **nonsense) == (422, "invalid")


def test_browser_session_gets_the_stream(short_lived, http, owner, agent):
    browser, sent = Client(), emit(agent)
    browser.force_login(owner)
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    with let_in(http, ADDRESS, params={"after": 0}, headers={"Cookie": cookie}) as answer:
        lines = list(answer.iter_lines())
    assert [json.loads(line[6:])["id"] for line in lines if line.startswith("data: ")] == [sent]
    numbers = [int(line[4:]) for line in lines if line.startswith("id: ")]
    assert all(one <= two for one, two in pairwise(numbers))
