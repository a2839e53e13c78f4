"""Servers that never finish, send too much or send nonsense: each fetch ends in time with a reason."""

import contextlib
import socket
import struct
import time

import pytest

from agents.net import FetchFailed, Limits
from tests.agents.net.world import FIRST, OK, STALLED, Server, answer, hang

SITE = "http://site.example.com/"
SOON = Limits(deadline=0.5)
HEAD = b"HTTP/1.1 200 OK\r\n"


def dripping(start, drop=b"x"):
    """One byte at a time, faster than any single wait would notice."""

    def behave(connection, request):
        connection.sendall(start)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(drop)
                time.sleep(0.05)

    return behave


def endless(start, block):
    def behave(connection, request):
        connection.sendall(start)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(block)

    return behave


def failure(fetch, url=SITE, **options):
    with pytest.raises(FetchFailed) as failed:
        fetch(url, **options)
    return failed.value.reason


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "behave",
    [
        hang,
        dripping(b""),
        dripping(HEAD + b"X-A: "),
        dripping(HEAD + b"Content-Length: 1000\r\n\r\n"),
        dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;"),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["silent", "status", "headers", "body", "chunks", "chunk-extension", "interim"],
)
def test_slow_response_ends_at_the_deadline(fetch, world, behave):
    world.serve("site.example.com", behave)
    began = time.monotonic()

    assert failure(fetch, limits=SOON) == "deadline"
    assert 0.4 < time.monotonic() - began < STALLED


def test_redirects_share_one_deadline(fetch, world):
    def slow_redirect(connection, request):
        time.sleep(0.2)
        connection.sendall(b"HTTP/1.1 302 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")

    world.serve("site.example.com", slow_redirect)
    began = time.monotonic()

    assert failure(fetch, limits=SOON) == "deadline"
    assert time.monotonic() - began < STALLED


def test_server_that_does_not_read_ends_at_the_deadline(fetch, world):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.names["site.example.com"] = ["93.184.216.34"]
        began = time.monotonic()
        settings = {"reroute": lambda address, port: ("127.0.0.1", listener.getsockname()[1])}

        assert failure(fetch, method="POST", content=b"x" * 50_000_000, client=settings, limits=SOON) == "deadline"
        assert time.monotonic() - began < STALLED


def test_slow_lookup_ends_at_the_deadline(fetch):
    began = time.monotonic()

    assert failure(fetch, client={"resolve": hang}, limits=SOON) == "deadline"
    assert time.monotonic() - began < STALLED


def test_deadline_of_zero_fails_before_the_lookup(fetch, world):
    assert failure(fetch, limits=Limits(deadline=0)) == "deadline"
    assert world.asked == []


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (endless(HEAD, b"X-A: b\r\n"), "headers"),
        (endless(HEAD + b"X-A: ", b"x" * 1000), "headers"),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "headers"),
        (endless(HEAD + b"\r\n", b"x" * 65536), "too_large"),
        (endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n"), "too_large"),
        (HEAD + b"".join(b"X-%d: b\r\n" % n for n in range(201)) + b"\r\n", "headers"),
        (HEAD + b"".join(b"X-%d: %s\r\n" % (n, b"b" * 1000) for n in range(70)) + b"\r\n", "headers"),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", "too_large"),
    ],
    ids=["headers", "header", "interim", "body", "chunks", "header-count", "header-size", "declared"],
)
def test_oversized_response_is_not_read(fetch, world, behave, reason):
    world.serve("site.example.com", behave)
    began = time.monotonic()

    assert failure(fetch, limits=Limits(max_bytes=1_000_000)) == reason
    assert time.monotonic() - began < STALLED


def test_body_at_the_limit_is_read_and_one_byte_more_is_not(fetch, world):
    world.serve("site.example.com", HEAD + b"\r\n" + b"x" * 1000)

    assert len(fetch(SITE, limits=Limits(max_bytes=1000)).content) == 1000
    assert failure(fetch, limits=Limits(max_bytes=999)) == "too_large"


def reset(connection, request):
    connection.sendall(HEAD + b"Content-Length: 100\r\n\r\nhalf")
    time.sleep(0.05)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    ("behave", "reasons"),
    [
        (b"", {"protocol"}),
        (b"garbage\r\n\r\n", {"protocol"}),
        (b"\x16\x03\x01\x00\x05hello", {"protocol"}),
        (b"SSH-2.0-OpenSSH_9\r\n", {"protocol"}),
        (b"HTTP/1.1 200", {"protocol"}),
        (b"HTTP/1.1 99999 X\r\n\r\n", {"protocol"}),
        (b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n\r\n", {"protocol"}),
        (HEAD + b"Content-Length: 100\r\n\r\nhalf", {"protocol"}),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", {"protocol"}),
        (HEAD + b"Content-Length: -1\r\n\r\nabc", {"protocol"}),
        (HEAD + b"Content-Length: 1x\r\n\r\nabc", {"protocol"}),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", {"protocol"}),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", {"protocol"}),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\nab", {"protocol"}),
        (reset, {"connection", "protocol"}),
    ],
)
def test_invalid_or_incomplete_response_fails(fetch, world, behave, reasons):
    world.serve("site.example.com", behave)

    assert failure(fetch) in reasons


def test_bytes_beyond_the_declared_length_are_ignored(fetch, world):
    world.serve("site.example.com", OK + b"more that nobody asked for")

    assert fetch(SITE).content == b"ok"


def test_unrequested_protocol_switch_has_no_content(fetch, world):
    world.serve("site.example.com", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw")

    with contextlib.suppress(FetchFailed):
        assert fetch(SITE).content == b""


class Hasty(Server):
    """Answers as soon as it has seen the head, and hangs up on whatever else is coming."""

    def _request(self, connection):
        return connection.recv(100)


def test_server_that_hangs_up_on_the_body_is_read_or_fails(fetch, world):
    world.names["site.example.com"] = [FIRST]
    world.servers[FIRST, 80] = Hasty(answer(413, b"no"))

    try:
        outcome = fetch(SITE, "POST", content=b"x" * 50_000_000).status
    except FetchFailed as failed:
        outcome = failed.reason

    assert outcome in {413, "connection", "protocol"}


def test_failure_does_not_quote_the_request(fetch, world):
    world.serve("site.example.com", b"garbage\r\n\r\n")

    with pytest.raises(FetchFailed) as failed:
        fetch(f"{SITE}?token=hunter2", headers={"Authorization": "hunter2"})

    assert "hunter2" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__ is True
