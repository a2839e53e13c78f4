"""Plain fetches: the request that is sent, and the response."""

import asyncio
import contextlib
import json
import threading

import httpx
import pytest

from agents.net import AsyncSafeClient, FetchFailed, SafeClient, SafeResponse
from tests.agents.net.world import FIRST, OK, STALLED, Recorder, answer, leave_and_cancel
from tests.table import every_row

SITE = "http://site.example.com/"


def head_of(request):
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return lines[0], dict(line.lower().split(": ", 1) for line in lines[1:])


def test_response_is_plain_data(fetch, world):
    world.serve("site.example.com", answer(200, b'{"a": "\xc3\xa4"}', "Content-Type: application/json"))

    found = fetch("http://Site.Example.com/x#part")

    assert (found.status, found.url) == (200, "http://site.example.com/x")
    assert found.headers["CONTENT-TYPE"] == "application/json"
    assert found.json() == {"a": "ä"}
    assert found.text() == '{"a": "ä"}'


def test_request_headers_of_the_client_win(fetch, world):
    server = world.serve("site.example.com", OK, port=8080)

    fetch("http://site.example.com:8080/a%20b?c=d", headers={"Host": "other", "Accept-Encoding": "br", "X-One": "1"})

    line, headers = head_of(server.requests[0])
    assert line == "GET /a%20b?c=d HTTP/1.1"
    assert headers == {
        "host": "site.example.com:8080",
        "user-agent": "lqops",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "connection": "close",
        "x-one": "1",
    }


def test_json_and_content_are_sent(fetch, world):
    server = world.serve("site.example.com", OK)

    fetch(f"{SITE};b?a=1#top", "post", json={"k": "ü"})
    fetch(SITE, "PUT", content="text", headers={"content-type": "text/plain"})
    fetch(SITE, "POST")

    first, second, third = server.requests
    assert first.startswith(b"POST /;b?a=1 HTTP/1.1\r\n")
    assert json.loads(first.partition(b"\r\n\r\n")[2]) == {"k": "ü"}
    assert head_of(first)[1]["content-type"] == "application/json"
    assert second.startswith(b"PUT / ")
    assert second.endswith(b"\r\n\r\ntext")
    assert head_of(third)[1]["content-length"] == "0"


@pytest.mark.parametrize(
    ("method", "status", "raw"),
    [
        ("HEAD", 200, b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nContent-Encoding: br\r\n\r\n"),
        ("GET", 204, b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", 304, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99999999\r\n\r\n"),
        ("GET", 200, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Encoding: gzip\r\n\r\n"),
        ("GET", 302, b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
        ("GET", 500, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_response_without_a_body_is_read(fetch, world, method, status, raw):
    world.serve("site.example.com", raw)

    found = fetch(SITE, method)

    assert (found.status, found.content) == (status, b"")


def test_interim_responses_are_skipped(fetch, world):
    world.serve("site.example.com", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK)

    assert fetch(SITE).content == b"ok"


def test_response_may_end_with_the_connection(fetch, world):
    world.serve("site.example.com", b"HTTP/1.1 200 OK\r\n\r\nto the end")

    assert fetch(SITE).content == b"to the end"


def test_each_request_opens_a_connection_and_keeps_no_cookie(world):
    server = world.serve("site.example.com", answer(200, b"ok", "Set-Cookie: a=1; Path=/"))

    client = SafeClient(resolve=world.resolve, reroute=world.reroute)
    client.get(SITE)
    client.get(SITE)

    assert world.asked == ["site.example.com"] * 2
    assert world.dialled == [(FIRST, 80)] * 2
    assert all(b"cookie" not in request.lower() for request in server.requests)


@pytest.mark.parametrize(
    "options", [{"headers": {"X-A": "b\r\nX-C: d"}}, {"headers": {"X-A": "ü\u1234"}}, {"headers": {"bad name": "x"}}]
)
def test_invalid_request_is_not_sent(fetch, world, options):
    server = world.serve("site.example.com", OK)

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE, **options)

    assert failed.value.reason == "request"
    assert server.requests in ([], [b"\r\n\r\n"])


def test_stream_yields_the_body_as_it_arrives(world):
    def slowly(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for word in (b"one ", b"two"):
            connection.sendall(word)

    world.serve("site.example.com", slowly)
    settings = {"resolve": world.resolve, "reroute": world.reroute}

    with SafeClient(**settings).stream("GET", SITE) as live:
        assert (live.status, live.url) == (200, SITE)
        assert b"".join(live.iter_bytes()) == b"one two"

    async def read_later():
        async with AsyncSafeClient(**settings) as client, client.stream("GET", SITE) as live:
            assert live.headers["content-type"] == "text/event-stream"
            return b"".join([piece async for piece in live.iter_bytes()])

    assert asyncio.run(read_later()) == b"one two"


def test_stream_left_early_is_closed(world):
    world.serve("site.example.com", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    client = SafeClient(resolve=world.resolve, reroute=world.reroute)
    with pytest.raises(KeyError), client.stream("GET", SITE) as live:
        assert next(live.iter_bytes()) == b"half"
        raise KeyError


@pytest.mark.parametrize("steps", range(6))
def test_stream_is_closed_even_if_its_reader_is_cancelled_while_closing_it(world, monkeypatch, steps):
    world.serve("site.example.com", OK)
    connect = Recorder()
    monkeypatch.setattr("agents.net.client.connect", connect)

    @contextlib.asynccontextmanager
    async def stream():
        client = AsyncSafeClient(resolve=world.resolve, reroute=world.reroute)
        async with client, client.stream("GET", SITE) as live:
            await live.read()
            yield

    leave_and_cancel(stream, steps)

    assert connect.all_closed()


def test_threads_share_one_blocking_client_beside_a_running_loop(world):
    world.serve("site.example.com", OK)
    client = SafeClient(resolve=world.resolve, reroute=world.reroute)

    async def fetch_in_threads():
        return await asyncio.gather(*(asyncio.to_thread(client.get, SITE) for _ in range(8)))

    assert [found.content for found in asyncio.run(fetch_in_threads())] == [b"ok"] * 8


def test_get_sends_a_get_request(world):
    server = world.serve("site.example.com", OK)
    settings = {"resolve": world.resolve, "reroute": world.reroute}

    async def get_later():
        async with AsyncSafeClient(**settings) as client:
            return await client.get(SITE)

    assert SafeClient(**settings).get(SITE).text() == "ok"
    assert asyncio.run(get_later()).text() == "ok"
    assert [request.split()[0] for request in server.requests] == [b"GET", b"GET"]


def test_many_fetches_run_concurrently_in_one_loop(world):
    everybody = threading.Barrier(50)

    def wait_for_all(connection, request):
        everybody.wait(STALLED)
        connection.sendall(answer(200, request.split()[1]))

    world.serve("site.example.com", wait_for_all)

    async def all_of_them():
        async with AsyncSafeClient(resolve=world.resolve, reroute=world.reroute) as client:
            return await asyncio.gather(*(client.get(f"{SITE}{n}") for n in range(50)))

    assert [found.content for found in asyncio.run(all_of_them())] == [b"/%d" % n for n in range(50)]


@every_row(
    ("content_type", "content", "text"),
    [
        ("", "ä".encode(), "ä"),
        ("text/html; charset=ISO-8859-1", b"\xe4", "ä"),
        ('text/html; charset="utf-16"', "ä".encode("utf-16"), "ä"),
        ("text/html; charset=nonsense", "ä".encode(), "ä"),
        ("text/html; charset=punycode", b"mnchen-3ya", "mnchen-3ya"),
        ("text/html; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/html; charset=rot13", b"abc", "abc"),
        ("text/html", b"\xff", "\ufffd"),
    ],
)
def test_text_is_decoded_by_its_charset_or_as_utf8(content_type, content, text):
    assert SafeResponse(200, httpx.Headers({"content-type": content_type}), content, SITE).text() == text


@every_row("content", [b"", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b"9" * 10_000])
def test_invalid_or_deeply_nested_json_fails(content):
    with pytest.raises(FetchFailed) as failed:
        SafeResponse(200, httpx.Headers(), content, SITE).json()

    assert failed.value.reason == "json"
