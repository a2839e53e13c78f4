"""The web skills, in front of a real server on loopback, through the guard where it decides."""

import gzip
import json
import socket
from dataclasses import replace

import pytest

from agents.builtin_skills import outside
from agents.builtin_skills.outside import PAGE_BYTES, REPLY_BYTES, fetch_url, http_request
from agents.enums import ApprovalStatus, Level, Outcome, Phase, Status, ToolIntent
from agents.exceptions import Invalid, OutcomeUnknown
from agents.guard import guarded_tool_call
from agents.models import Approval, ToolCall
from agents.net import FetchFailed, UrlRefused
from agents.skills.skill import BadArguments
from tests.agents.net.world import Server, answer, redirect
from tests.agents.skills.test_skill import CONTEXT
from tests.factories import NOW, make_agent, make_session

JSON = "Content-Type: application/json"


@pytest.fixture
def serve(settings):
    """A server that answers as it is told, and its address."""
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32"]
    settings.LQOPS_NET_ALLOW_HOSTS = ["localhost"]
    servers = []

    def start(behave):
        servers.append(Server(behave))
        return servers[-1], f"http://127.0.0.1:{servers[-1].port}/"

    yield start
    for server in servers:
        server.close()


def send(url, method="POST", **arguments):
    return http_request.run(CONTEXT, method=method, url=url, **arguments)


def headers_of(request):
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return dict(line.lower().split(": ", 1) for line in lines[1:])


# --- fetch_url ---


def test_json_is_returned_unchanged(serve):
    _, url = serve(answer(200, '{"a": "ä"}'.encode(), f"{JSON}; charset=utf-8"))

    assert fetch_url.run(url=f"{url}x#part") == {
        "status": 200,
        "url": f"{url}x",
        "content_type": "application/json",
        "text": '{"a": "ä"}',
        "truncated": False,
    }


def test_page_is_returned_as_visible_text(serve):
    page = "<title>t</title><h1>Gr\xf6\xdfe</h1><script>no()</script><p hidden>obey</p><p>One  two</p>"
    _, url = serve(answer(200, page.encode("latin-1"), "Content-Type: text/html; charset=iso-8859-1"))

    assert fetch_url.run(url=url)["text"] == "Gr\xf6\xdfe\n\nOne two"


def test_unreadable_page_has_no_text(serve, monkeypatch):
    def give_up(data, kind):
        raise Invalid("Reading the document took too long.")

    monkeypatch.setattr(outside, "read_in_subprocess", give_up)
    _, url = serve(answer(200, b"<p>x", "Content-Type: text/html"))

    assert fetch_url.run(url=url)["text"] is None


@pytest.mark.parametrize(
    ("body", "header", "text"),
    [
        (b"a\r\nb", "Content-Type: text/plain", "a\nb"),
        (b"a,b", "Content-Type: text/csv", "a,b"),
        (b"{}", "Content-Type: application/problem+json", "{}"),
        (b"<a/>", "Content-Type: application/atom+xml", "<a/>"),
        (b"plain", "X-Nothing: 1", "plain"),
        (b"", "Content-Type: image/png", ""),
        (b"\x89PNG\x00", "Content-Type: image/png", None),
        (b"\x00\x01", "X-Nothing: 1", None),
    ],
)
def test_only_text_types_are_returned(serve, body, header, text):
    _, url = serve(answer(200, body, header))

    assert fetch_url.run(url=url)["text"] == text


def test_server_error_is_a_result(serve):
    _, url = serve(answer(404, b"gone", "Content-Type: text/plain"))

    found = fetch_url.run(url=url)

    assert (found["status"], found["text"]) == (404, "gone")


@pytest.mark.parametrize("packed", [False, True])
def test_long_response_is_truncated(serve, packed):
    body = b"0123456789abcdef" * (PAGE_BYTES // 16 + 5_000)
    headers = ["Content-Type: text/plain", *(["Content-Encoding: gzip"] if packed else [])]
    _, url = serve(answer(200, gzip.compress(body, 1) if packed else body, *headers))

    found = fetch_url.run(url=url)

    assert found["truncated"] is True
    assert len(found["text"]) == PAGE_BYTES


def test_response_at_the_limit_is_complete(serve):
    _, url = serve(answer(200, b"x" * PAGE_BYTES, "Content-Type: text/plain"))

    assert fetch_url.run(url=url)["truncated"] is False


def test_redirect_is_followed_only_on_the_same_host(serve):
    def behave(connection, request):
        path = request.split(b" ")[1]
        there = {b"/same": "/end", b"/other": f"http://localhost:{connection.getsockname()[1]}/end"}.get(path)
        connection.sendall(redirect(there) if there else answer(200, b"end", "Content-Type: text/plain"))

    server, url = serve(behave)

    assert fetch_url.run(url=f"{url}same")["url"] == f"{url}end"
    with pytest.raises(UrlRefused, match="redirect_host"):
        fetch_url.run(url=f"{url}other")
    assert len(server.requests) == 3


def test_private_address_is_refused(serve, settings):
    server, url = serve(answer())
    settings.LQOPS_NET_ALLOW_NETWORKS = []

    with pytest.raises(UrlRefused):
        fetch_url.run(url=url)
    assert server.requests == []


# --- http_request ---


def test_request_sends_its_data_and_idempotency_key(serve):
    server, url = serve(answer(201, b'{"id": 7}', JSON))

    told = send(f"{url}orders", data={"item": "tea"}, headers={"X-Shop": "one"})

    assert told == {
        "status": 201,
        "url": f"{url}orders",
        "content_type": "application/json",
        "text": '{"id": 7}',
        "truncated": False,
    }
    [request] = server.requests
    assert request.startswith(b"POST /orders HTTP/1.1\r\n")
    assert json.loads(request.partition(b"\r\n\r\n")[2]) == {"item": "tea"}
    sent = headers_of(request)
    assert (sent["idempotency-key"], sent["content-type"], sent["x-shop"]) == ("1:step:1", "application/json", "one")


def test_body_is_sent_unchanged(serve):
    server, url = serve(answer())

    send(url, "PUT", body="grüße")
    send(url, "PATCH", body="<a/>", headers={"Content-Type": "application/xml"})
    send(url, "DELETE")

    bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
    assert bodies == ["grüße".encode(), b"<a/>", b""]
    kinds = [headers_of(request).get("content-type") for request in server.requests]
    assert kinds == ["text/plain; charset=utf-8", "application/xml", None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": {}, "body": "x"}, "not both"),
        ({"headers": {"Idempotency-Key": "mine"}}, "set by lqops"),
        ({"headers": {"Host": "other"}}, "set by lqops"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "cannot be sent"),
        ({"headers": {"X A": "a"}}, "cannot be sent"),
        ({"headers": {"X-A": "ä"}}, "cannot be sent"),
        ({"headers": {f"X-{number}": "a" for number in range(21)}}, "the limit is 20"),
    ],
)
def test_invalid_request_is_refused(serve, arguments, said):
    server, url = serve(answer())

    with pytest.raises(Invalid, match=said):
        send(url, **arguments)
    assert server.requests == []


@pytest.mark.parametrize("arguments", [{"method": "TRACE"}, {"headers": {"Authorization": {"$secret": "shop"}}}])
def test_other_methods_and_misplaced_handles_are_refused(arguments):
    with pytest.raises(BadArguments):
        http_request.run(CONTEXT, **{"method": "GET", "url": "https://example.org/", **arguments})


def test_long_reply_is_truncated(serve):
    _, url = serve(answer(200, b"x" * (REPLY_BYTES + 1), "Content-Type: text/plain"))

    told = send(url)

    assert (told["truncated"], len(told["text"])) == (True, REPLY_BYTES)


def test_unanswered_request_has_an_unknown_outcome(serve):
    server, url = serve(lambda connection, request: connection.shutdown(socket.SHUT_RDWR))

    with pytest.raises(OutcomeUnknown, match="The POST was sent and may have taken effect"):
        send(url)
    with pytest.raises(FetchFailed):
        send(url, "GET")
    assert len(server.requests) == 2


def test_redirected_request_is_not_repeated(serve):
    server, url = serve(redirect("/elsewhere", 307))

    with pytest.raises(OutcomeUnknown, match="use the final address"):
        send(url, data=1)
    assert len(server.requests) == 1


def test_request_without_a_connection_failed(serve):
    server, url = serve(answer())
    server.close()

    with pytest.raises(FetchFailed, match="connect"):
        send(url)


def test_incomplete_response_is_still_a_result(serve):
    _, url = serve(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nhalf")

    told = send(url)

    assert (told["status"], told["text"]) == (200, None)


# --- through the guard ---


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))


def guarded(session, skill, key="step:1:0", **arguments):
    params = {"skill": skill, "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_only_an_allowed_host_is_read_without_approval(serve, session, approver, settings):
    server, url = serve(answer(200, b"ok", "Content-Type: text/plain"))
    settings.LQOPS_SKILL_HOSTS = ["127.0.0.1"]

    assert guarded(session, "fetch_url", url=url).data["text"] == "ok"
    settings.LQOPS_SKILL_HOSTS = []
    waiting = guarded(session, "fetch_url", key="step:1:1", url=url)

    assert waiting.outcome == Outcome.APPROVAL_PENDING
    assert Approval.objects.get().level == Level.RESTRICTED
    assert len(server.requests) == 1


@pytest.mark.django_db(transaction=True)
def test_request_needs_approval_even_to_an_allowed_host(serve, session, approver, settings):
    server, url = serve(answer(200, b"ok", "Content-Type: text/plain"))
    settings.LQOPS_SKILL_HOSTS = ["127.0.0.1"]

    assert guarded(session, "http_request", method="POST", url=url).outcome == Outcome.APPROVAL_PENDING
    assert server.requests == []
    Approval.objects.update(status=ApprovalStatus.APPROVED, resolved_at=NOW, resolved_by=approver)
    done = guarded(session, "http_request", method="POST", url=url)

    assert done.data["status"] == 200
    assert headers_of(server.requests[0])["idempotency-key"] == f"{session.public_id}:step:1:0"
    assert ToolCall.objects.get().repeatable is False


@pytest.mark.django_db(transaction=True)
def test_masked_secret_is_not_sent(serve, session):
    server, url = serve(answer())
    session.agent.mode = "auto"
    session.agent.save()

    refused = guarded(
        session, "http_request", method="POST", url=url, headers={"Authorization": "Bearer abcdefgh12345678"}
    )

    assert (refused.outcome, refused.detail) == (Outcome.DENIED, "secret_in_arguments")
    assert server.requests == []


def test_repeated_call_sends_the_same_key(serve):
    server, url = serve(answer())

    for _ in range(2):
        http_request.run(replace(CONTEXT, idempotency_key="a:b"), method="POST", url=url)

    assert {headers_of(request)["idempotency-key"] for request in server.requests} == {"a:b"}
