"""WebSockets: the URL gate applies, and so do limits on size and time."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time

import pytest
from websockets.sync.server import serve

from agents.net import FetchFailed, UrlRefused
from agents.net.streams import StreamingClient
from tests.agents.net.test_tls import certificate, trusting  # noqa: F401 fixtures
from tests.agents.net.world import FIRST, SECOND, STALLED, Recorder, Server, hang, leave_and_cancel, redirect

FEED = "ws://feed.example.com/prices?of=x"


class Feed:
    """A WebSocket server on loopback; `behave(connection)` says what happens."""

    def __init__(self, behave, **settings):
        self._server = serve(behave, "127.0.0.1", 0, **settings)
        self.port = self._server.socket.getsockname()[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()


@pytest.fixture
def feed(world):
    def open_at(behave, address=FIRST, port=80, **settings):
        world.names.setdefault("feed.example.com", [address])
        server = world.servers[address, port] = Feed(behave, **settings)
        return server

    return open_at


def listen(world, url=FEED, *, count=1, client=None, **options):
    async def all_of_it():
        settings = {"resolve": world.resolve, "reroute": world.reroute, **(client or {})}
        async with StreamingClient(**settings) as door, door.websocket(url, **options) as opened:
            return [await opened.receive() for _ in range(count)]

    return asyncio.run(all_of_it())


def say(*messages):
    def behave(connection):
        for message in messages:
            connection.send(message)
        with contextlib.suppress(Exception):
            connection.recv()

    return behave


def reason(refused):
    return refused.value.reason


def test_messages_come_from_the_checked_address(world, feed):
    seen = []

    def behave(connection):
        seen.append((connection.request.path, connection.request.headers["Host"]))
        say("one", b"two")(connection)

    feed(behave)

    assert listen(world, count=2) == ["one", b"two"]
    assert world.dialled == [(FIRST, 80)]
    assert seen == [("/prices?of=x", "feed.example.com")]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://feed.example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("ws://127.0.0.1/", "address"),
        ("ws://169.254.169.254/latest", "address"),
        ("ws://localhost/", "host_local"),
        ("ws://user:word@feed.example.com/", "credentials"),
        ("wss://feed.example.com:6379/", "port"),
    ],
)
def test_private_addresses_and_other_schemes_are_refused(world, url, why):
    with pytest.raises(UrlRefused) as refused:
        listen(world, url)

    assert reason(refused) == why
    assert world.dialled == []


def test_name_with_a_private_address_is_refused(world):
    world.names["feed.example.com"] = ["10.0.0.7"]
    with pytest.raises(UrlRefused) as refused:
        listen(world)

    assert reason(refused) == "address"


def test_operator_can_allow_a_host(world, feed, settings):
    server = feed(say("hello"))
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.0/8"]

    assert listen(world, f"ws://127.0.0.1:{server.port}/", client={"reroute": None}) == ["hello"]


def test_redirect_is_not_followed(world):
    world.serve("feed.example.com", redirect("ws://169.254.169.254/"))
    with pytest.raises(FetchFailed) as failed:
        listen(world)

    assert reason(failed) == "protocol"
    assert world.dialled == [(FIRST, 80)]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", b"garbage\r\n\r\n", b""])
def test_response_that_is_no_handshake_fails(world, answer):
    world.serve("feed.example.com", answer)
    with pytest.raises(FetchFailed) as failed:
        listen(world)

    assert reason(failed) in {"protocol", "connection"}


def test_connection_reset_during_the_handshake_fails(world, monkeypatch):
    def reset(connection, request):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    world.serve("feed.example.com", reset)
    with pytest.raises(FetchFailed) as failed:
        listen(world)

    assert reason(failed) in {"protocol", "connection"}


def test_next_address_is_tried_after_a_failure(world, feed):
    feed(say("hello"))
    world.names["feed.example.com"] = [SECOND, FIRST]
    world.serve("feed.example.com", b"", SECOND).refuse()

    assert listen(world) == ["hello"]
    assert world.dialled == [(SECOND, 80), (FIRST, 80)]


def test_unreachable_host_fails(world):
    world.serve("feed.example.com", b"").refuse()
    with pytest.raises(FetchFailed) as failed:
        listen(world)

    assert reason(failed) == "connect"


def test_unanswered_handshake_ends_in_time(world):
    world.serve("feed.example.com", hang)
    began = time.monotonic()
    with pytest.raises(FetchFailed) as failed:
        listen(world, open_seconds=0.3)

    assert reason(failed) == "deadline"
    assert time.monotonic() - began < STALLED


def test_hanging_lookup_ends_in_time(world):
    with pytest.raises(FetchFailed) as failed:
        listen(world, client={"resolve": hang}, open_seconds=0.2)

    assert reason(failed) == "deadline"


def test_unanswered_connection_ends_in_time(world, monkeypatch):
    world.serve("feed.example.com", b"")

    async def wait(*_):
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", wait)
    with pytest.raises(FetchFailed) as failed:
        listen(world, open_seconds=0.2)

    assert reason(failed) == "deadline"


def test_connecting_can_be_cancelled(world, monkeypatch):
    world.serve("feed.example.com", b"")

    async def hang(*_):
        await asyncio.sleep(60)

    async def cut_short():
        client = StreamingClient(resolve=world.resolve, reroute=world.reroute)
        async with asyncio.timeout(0.3), client as door, door.websocket(FEED):
            pass

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", hang)
    with pytest.raises(TimeoutError):
        asyncio.run(cut_short())


@pytest.mark.parametrize("steps", range(6))
def test_websocket_is_closed_even_if_its_reader_is_cancelled_while_closing_it(world, feed, monkeypatch, steps):
    feed(say("one"))
    connect = Recorder()
    monkeypatch.setattr("agents.net.streams.connect_socket", connect)

    @contextlib.asynccontextmanager
    async def websocket():
        client = StreamingClient(resolve=world.resolve, reroute=world.reroute)
        async with client, client.websocket(FEED) as opened:
            await opened.receive()
            yield

    leave_and_cancel(websocket, steps)

    assert connect.all_closed()


def test_oversized_message_fails(world, feed):
    feed(say("fits", "x" * 10_000_000))
    with pytest.raises(FetchFailed) as failed:
        listen(world, count=2)

    assert reason(failed) == "too_large"


def test_disconnect_of_the_peer_fails(world, feed):
    feed(lambda connection: connection.send("last"))
    with pytest.raises(FetchFailed) as failed:
        listen(world, count=2)

    assert reason(failed) == "connection"


def test_certificate_is_checked_for_the_name(world, feed, certificate, trusting):  # noqa: F811
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    world.names["site.example.com"] = world.names["feed.example.com"] = [FIRST]
    feed(say("safe"), port=443, ssl=context)

    assert listen(world, "wss://site.example.com/", client=trusting) == ["safe"]
    for url, settings in (("wss://feed.example.com/", trusting), ("wss://site.example.com/", {})):
        with pytest.raises(FetchFailed) as failed:
            listen(world, url, client=settings)
        assert reason(failed) == "tls"


def test_server_without_tls_fails(world):
    world.names["feed.example.com"] = [FIRST]
    server = world.servers[FIRST, 443] = Server(b"")
    server._request = lambda connection: connection.recv(1)  # and then it hangs up, in the middle of the handshake
    with pytest.raises(FetchFailed) as failed:
        listen(world, "wss://feed.example.com/", open_seconds=60)

    assert reason(failed) == "connection"
