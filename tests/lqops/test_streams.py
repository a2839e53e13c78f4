"""Streams of the text of runs from a real web process: in order, resumable, and ended once."""

import json
from contextlib import contextmanager

import pytest
from django.test import Client

from agents.conf import clock
from agents.models import AgentSession
from agents.sessions.halts import session_halt
from tests.agents.ask.rows import make_chat, make_part, open_chat
from tests.factories import NOW, make_user
from tests.lqops.listening import coming, key_of, let_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner():
    return make_user()


def address_of(session):
    return f"/api/v1/sessions/{session.public_id}/stream"


@pytest.fixture
def listen(http, owner):
    """`listen(session, …)`: an open stream of the owner's; what it says is read from its lines."""
    headers = {"Authorization": f"Bearer {key_of(owner)}", "Accept": "text/event-stream"}

    @contextmanager
    def begin(session, *, heard="", within=60, **query):
        given = headers | ({"Last-Event-ID": heard} if heard else {})
        with let_in(http, address_of(session), within=within, headers=given, params=query) as answer:
            yield answer

    return begin


def events(answer):
    return list(coming(answer.iter_lines()))


def text_of(found):
    return "".join(data["text"] for name, _, data in found if name == "text")


def ends(found):
    return [data for name, _, data in found if name == "finished"]


def complete(session):
    AgentSession.objects.filter(pk=session.pk).update(
        status="completed", terminal_reason="completed", completed_at=NOW, waiting_on=""
    )


def test_text_arrives_while_it_is_written_and_ends_once(listen, owner):
    session = open_chat(owner)
    make_part(session, "Half past\n\nevent: finished\n")
    with listen(session) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        stream = coming(answer.iter_lines())
        heard = [next(stream), next(stream)]
        assert text_of(heard) == "Half past\n\nevent: finished\n"
        last = make_part(session, "nine.")
        complete(session)
        heard += stream

    assert text_of(heard) == "Half past\n\nevent: finished\nnine."
    assert ends(heard) == [{"status": "completed", "reason": "completed"}]
    assert (heard[-1][0], heard[-1][1]) == ("finished", f"{last.pk}.end")
    assert ("status", "", {"status": "running", "waiting_on": ""}) in heard


@pytest.mark.parametrize("end", ["failed", "halted", "over before"])
def test_stream_ends_once_however_the_run_ends(listen, owner, end):
    session = make_chat(owner) if end == "over before" else open_chat(owner, status="queued")
    with listen(session) as answer:
        if end == "failed":
            failed = {"status": "failed", "terminal_reason": "provider_error", "completed_at": NOW}
            AgentSession.objects.filter(pk=session.pk).update(**failed)
        elif end == "halted":
            session_halt(session.pk, by=owner, reason="", now=clock())
        found = events(answer)

    status = {"over before": "completed"}.get(end, end)
    assert [data["status"] for data in ends(found)] == [status]
    assert found[-1][0] == "finished"


def test_stream_resumes_after_the_last_event(listen, owner):
    session = make_chat(owner)
    first, second = make_part(session, "one "), make_part(session, "two")
    for resumed in ({"heard": str(first.pk)}, {"after": first.pk}):
        with listen(session, **resumed) as answer:
            found = events(answer)
        assert (text_of(found), len(ends(found))) == ("two", 1)
    with listen(session, heard=f"{second.pk}.end") as answer:
        assert (answer.status_code, answer.read()) == (204, b"")


def test_quiet_stream_sends_keep_alives(listen, owner):
    with listen(open_chat(owner, status="waiting", waiting_on="input")) as answer:
        assert ": still here" in answer.iter_lines()


def test_connection_ends_in_time_and_the_run_continues(short_lived, listen, owner):
    session = open_chat(owner, status="waiting", waiting_on="input")
    part = make_part(session, "Wait")
    with listen(session) as answer:
        lines = list(answer.iter_lines())
    assert "event: finished" not in lines
    complete(session)
    with listen(session, heard=str(part.pk)) as answer:
        found = events(answer)
    assert (text_of(found), len(ends(found))) == ("", 1)


def test_places_are_limited_and_freed_on_disconnect(listen, owner):
    session = open_chat(owner)
    with listen(session) as first, listen(session) as second:
        assert (first.status_code, second.status_code) == (200, 200)
        with listen(session, within=0) as third:
            assert (third.status_code, json.loads(third.read())["code"]) == (429, "throttled")
            assert int(third.headers["Retry-After"]) >= 1
    with listen(session) as answer:
        assert answer.status_code == 200


def test_only_the_owner_can_listen(http, owner):
    session = open_chat(owner)

    def asked(secret="", method="GET", **query):
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        answer = http.request(method, address_of(session), headers=headers, params=query)
        return answer.status_code, answer.json()["code"]

    assert asked() == (401, "not_authenticated")
    assert asked(key_of(make_user(is_superuser=True))) == (404, "not_found")
    assert asked(key_of(owner, "write")) == (403, "scope_missing")
    assert asked(key_of(owner), "POST") == (405, "method_not_allowed")
    assert asked(key_of(owner), after="x") == (422, "invalid")


def test_signed_in_browser_can_listen(http, owner):
    session, browser = make_chat(owner), Client()
    browser.force_login(owner)
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    with let_in(http, address_of(session), headers={"Cookie": cookie}) as answer:
        assert (answer.status_code, len(ends(events(answer)))) == (200, 1)
