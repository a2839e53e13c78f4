"""LQOPS_CA_FILE: every client accepts the certificates of a private authority, and none does without it."""

import asyncio
import contextlib
import os
import socketserver
import ssl
import threading

import httpcore
import httpx
import pytest
from django.core.mail import EmailMessage
from django.test import override_settings
from websockets.sync.server import serve

from agents import tls
from agents.definitions.schema import Mailbox
from agents.net import FetchFailed, SafeClient
from agents.net.mail import EmailBackend
from agents.net.streams import StreamingClient
from agents.people.senders import Message, NotSent, send_webhook
from agents.providers.transport import BoundedTransport, Timeouts
from agents.sensors.mailbox import new_messages
from agents.sensors.sensing import Failed
from tests.agents.net.authority import Authority
from tests.agents.net.world import OK, Server
from tests.agents.sensors.test_mailbox import Imap
from tests.factories import NOW


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _loopback(settings):
    settings.LQOPS_NET_ALLOW_HOSTS = ["localhost", "127.0.0.1"]
    settings.LQOPS_CA_FILE = ""


class SecureServer(Server):
    def __init__(self, behave, context):
        self.context = context
        super().__init__(behave)

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            super()._serve(self.context.wrap_socket(connection, server_side=True))
        connection.close()


@pytest.fixture
def secure(authority):
    server = SecureServer(OK, authority.server_tls)
    yield server
    server.close()


def trusted(authority):
    return override_settings(LQOPS_CA_FILE=str(authority.file))


def test_fetches_and_webhooks_take_the_authority(secure, authority):
    url = f"https://localhost:{secure.port}/"
    message = Message(id="1", type="test", title="t", text="x", link="", at=NOW)
    with pytest.raises(FetchFailed) as refused:
        SafeClient().get(url)
    with pytest.raises(NotSent, match="certificate"):
        send_webhook(message, url=url, secrets=[], now=NOW)
    assert (refused.value.reason, secure.requests) == ("tls", [])

    with trusted(authority):
        assert SafeClient().get(url).content == b"ok"
        assert "200" in send_webhook(message, url=url, secrets=[], now=NOW)
    with pytest.raises(FetchFailed):
        SafeClient().get(url)


def test_certificate_is_still_checked_for_the_name(secure, authority, settings):
    settings.LQOPS_NET_ALLOW_HOSTS = ["*.localhost"]
    with trusted(authority), pytest.raises(FetchFailed) as refused:
        SafeClient(resolve=lambda host: ["127.0.0.1"]).get(f"https://other.localhost:{secure.port}/")
    assert (refused.value.reason, secure.requests) == ("tls", [])


def test_streams_take_the_authority(authority):
    with serve(lambda connection: connection.send("one"), "127.0.0.1", 0, ssl=authority.server_tls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"wss://localhost:{server.socket.getsockname()[1]}/"

        async def first():
            async with StreamingClient() as client, client.websocket(url) as opened:
                return await opened.receive()

        with pytest.raises(FetchFailed) as refused:
            asyncio.run(first())
        assert refused.value.reason == "tls"
        with trusted(authority):
            assert asyncio.run(first()) == "one"
        server.shutdown()


def test_mailboxes_take_the_authority(authority):
    server = Imap(authority.server_tls)
    given = Mailbox(host="localhost", port=server.server_address[1], user="me", password={"$secret": "mail"})
    try:
        with pytest.raises(Failed, match="its certificate was not accepted"):
            new_messages(given, "open-sesame-7", None)
        assert server.commands == []
        with trusted(authority):
            assert new_messages(given, "open-sesame-7", None)[1] == {"validity": 7, "last": 0}
    finally:
        server.shutdown()
        server.server_close()


class Smtp(socketserver.ThreadingTCPServer):
    """Takes one mail over TLS from the first byte, or after STARTTLS."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, context, *, starts_plain):
        self.mails = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def setup(self):
                if not starts_plain:
                    self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def finish(self):
                super().finish()
                self.request.close()

            def handle(self):
                self.wfile.write(b"220 ready\r\n")
                while line := self.rfile.readline():
                    self._answer(line.strip().upper())

            def _answer(self, command):
                if command.startswith(b"EHLO"):
                    self.wfile.write(b"250-here\r\n250 STARTTLS\r\n" if starts_plain else b"250 here\r\n")
                elif command == b"STARTTLS":
                    self.wfile.write(b"220 go on\r\n")
                    self.request = context.wrap_socket(self.request, server_side=True)
                    super().setup()
                elif command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = iter(self.rfile.readline, b".\r\n")
                    server.mails.append(b"".join(lines))
                    self.wfile.write(b"250 taken\r\n")
                else:
                    self.wfile.write(b"250 ok\r\n")

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that refuses the certificate is no news."""


@pytest.mark.parametrize("starts_plain", [False, True])
def test_mail_takes_the_authority(authority, starts_plain):
    server = Smtp(authority.server_tls, starts_plain=starts_plain)

    def send():
        port = server.server_address[1]
        backend = EmailBackend(host="localhost", port=port, use_ssl=not starts_plain, use_tls=starts_plain, timeout=10)
        try:
            return EmailMessage("Hello", "Text", "a@example.org", ["b@example.org"], connection=backend).send()
        finally:
            backend.close()

    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            send()
        assert server.mails == []
        with trusted(authority):
            assert send() == 1
        assert b"Subject: Hello" in server.mails[0]
    finally:
        server.shutdown()
        server.server_close()


def test_model_servers_take_the_authority(secure, authority):
    def ask():
        with httpx.Client(transport=BoundedTransport(Timeouts()), trust_env=False) as client:
            return client.get(f"https://localhost:{secure.port}/").text

    with pytest.raises(httpcore.ConnectError, match="certificate verify failed"):
        ask()
    with trusted(authority):
        assert ask() == "ok"


def test_requests_takes_the_authority_beside_the_public_ones(secure, authority, settings, tmp_path, monkeypatch):
    """So do chat services, single sign-on and spans, which use it."""
    requests = pytest.importorskip("requests")
    monkeypatch.delenv(tls.VARIABLE, raising=False)
    settings.VAR_DIR = tmp_path
    tls.trust_in_requests()
    assert tls.VARIABLE not in os.environ
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"https://localhost:{secure.port}/", timeout=10)

    with trusted(authority):
        monkeypatch.setenv(tls.VARIABLE, "")
        tls.trust_in_requests()
    assert requests.get(f"https://localhost:{secure.port}/", timeout=10).text == "ok"
    bundle = (tmp_path / tls.BUNDLE).read_text()
    assert authority.file.read_text() in bundle
    assert bundle.count("BEGIN CERTIFICATE") > 50
    assert [path.name for path in tmp_path.iterdir()] == [tls.BUNDLE]

    monkeypatch.setenv(tls.VARIABLE, "/somewhere/else.pem")
    with trusted(authority):
        tls.trust_in_requests()
    assert os.environ[tls.VARIABLE] == "/somewhere/else.pem"
