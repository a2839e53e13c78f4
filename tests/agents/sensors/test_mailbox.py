"""Mailbox sensors: new messages by UID, read-only, over TLS with the certificate checked."""

import socketserver
import ssl
import threading
from time import monotonic, process_time

import pytest

from agents.definitions.schema import Mailbox as Source
from agents.sensors import mailbox
from agents.sensors.mailbox import new_messages
from agents.sensors.sensing import Failed
from tests.agents.net.test_tls import certificate  # noqa: F401 a fixture
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.flows.processes import until
from tests.table import every_row

MESSAGE = (
    b"From: Ann <ann@example.org>\r\nTo: me@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= %d\r\n"
    b"Message-ID: <%d@example.org>\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nHello %d\r\n"
)


class Imap(socketserver.ThreadingTCPServer):
    """Speaks as much IMAP as the sensor needs, and keeps the commands that it was sent."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, tls):
        self.messages, self.validity, self.commands, self.literal = {}, 7, [], None
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def setup(self):
                self.request = tls.wrap_socket(self.request, server_side=True)
                super().setup()

            def finish(self):
                super().finish()
                self.request.close()

            def handle(self):
                self.wfile.write(b"* OK ready\r\n")
                while line := self.rfile.readline().strip():
                    tag, _, command = line.partition(b" ")
                    server.commands.append(command.decode())
                    self.wfile.write(server.answer(command.upper()) + tag + server.ending(command.upper()))

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that refuses the certificate is no news."""

    def ending(self, command):
        return b" NO [AUTHENTICATIONFAILED] denied\r\n" if b"WRONG" in command else b" OK done\r\n"

    def answer(self, command):
        if command.startswith(b"CAPABILITY"):
            return b"* CAPABILITY IMAP4rev1\r\n"
        if command.startswith(b"EXAMINE"):
            following = max(self.messages, default=0) + 1
            counted = f"* {len(self.messages)} EXISTS\r\n* OK [UIDVALIDITY {self.validity}] ok\r\n"
            return f"{counted}* OK [UIDNEXT {following}] ok\r\n".encode()
        if command.startswith(b"UID SEARCH"):
            after = int(command.split()[-1].split(b":")[0])
            found = [uid for uid in self.messages if uid >= after] or list(self.messages)[-1:]  # as n:* does
            return f"* SEARCH {' '.join(map(str, found))}\r\n".encode()
        if command.startswith(b"UID FETCH"):
            uid = int(command.split()[2])
            data = self.messages[uid]
            size = self.literal or len(data)
            return f"* 1 FETCH (UID {uid} BODY[]<0> {{{size}}}\r\n".encode() + data + b")\r\n"
        return b""


@pytest.fixture
def server(certificate, monkeypatch, settings):  # noqa: F811
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem")
    monkeypatch.setattr(mailbox, "public_tls", lambda: trusting)
    monkeypatch.setattr("agents.net.urls.system_resolve", lambda host: ["127.0.0.1"])
    settings.LQOPS_SECRETS = {"mail": "open-sesame-7"}
    settings.LQOPS_SECRET_HOSTS = {"mail": ["site.example.com"]}
    server = Imap(tls)
    yield server
    server.shutdown()
    server.server_close()


def source(server, **given):
    host, port = "site.example.com", server.server_address[1]
    return Source(**{"host": host, "port": port, "user": "me", "password": {"$secret": "mail"}, **given})


def deliver(server, *uids):
    server.messages |= {uid: MESSAGE % (uid, uid, uid) for uid in uids}


def test_messages_after_the_first_look_are_new(server):
    deliver(server, 1, 2)
    found, uids, _ = new_messages(source(server), "open-sesame-7", None)
    assert (found, uids) == ([], {"validity": 7, "last": 2})
    assert new_messages(source(server), "open-sesame-7", uids)[0] == [], "2:* names the last one again"
    deliver(server, 3, 5)
    found, uids, _ = new_messages(source(server), "open-sesame-7", uids)

    assert [(one["uid"], one["subject"], one["text"]) for one in found] == [
        (3, "Grüße 3", "Hello 3"),
        (5, "Grüße 5", "Hello 5"),
    ]
    assert (found[0]["from"], found[0]["id"], uids["last"]) == ("Ann <ann@example.org>", "<3@example.org>", 5)
    assert not [command for command in server.commands if command.split()[0] in {"SELECT", "STORE"}]
    assert all("PEEK" in command for command in server.commands if "FETCH" in command)


def whole(start, piece, end=b"\r\n\r\nx"):
    """A message as long as one that is read."""
    return start + piece * ((mailbox.MESSAGE_BYTES - len(start) - len(end)) // len(piece)) + end


PARTS = b"Content-Type: multipart/mixed; boundary=a\r\n\r\n"
HOSTILE = {
    "addresses": whole(b"To: ", b"a "),
    "quotes": whole(b"To: ", b'"" '),
    "comments": whole(b"To: ", b"("),
    "parameters": whole(b"Content-Type: text/plain; ", b"a*0=b;"),
    "names of files": whole(PARTS + b"--a\r\nContent-Disposition: attachment; ", b"a=b;"),
    "parts": whole(PARTS, b"--a\r\n\r\nx\r\n"),
    "parts in parts": whole(b"", b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n"),
    "parts after returns": whole(PARTS, b"--a\r\rx\r"),
    "tags": whole(b"Content-Type: text/html\r\n\r\n", b"<a "),
    "remarks": whole(b"Content-Type: text/html\r\n\r\n", b"<!--"),
}


@every_row("hostile", list(HOSTILE))
def test_no_message_takes_long_to_read_or_stops_those_after_it(server, hostile):
    """The worst took more than a minute, and some stopped the sensor at every look."""
    server.messages.clear()
    server.messages[3] = HOSTILE[hostile]
    deliver(server, 4)
    started = process_time()
    found, uids, problem = new_messages(source(server), "open-sesame-7", {"validity": 7, "last": 2})
    assert process_time() - started < 8
    assert ([one["uid"] for one in found], uids["last"], problem) == ([3, 4], 4, "")
    assert found[1]["text"] == "Hello 4"
    assert set(found[0]) == set(found[1])


def test_damaged_message_is_said_to_be_unreadable(server):
    server.messages[3] = HOSTILE["parameters"]
    [found], _, _ = new_messages(source(server), "open-sesame-7", {"validity": 7, "last": 2})
    assert found["text"] == mailbox.UNREADABLE


def test_server_that_answers_without_end_is_left(server, monkeypatch):
    monkeypatch.setattr(mailbox, "MOST_BYTES", 100_000)
    sent = []
    answer = server.answer

    def endless(command):
        sent.append(b"* OK still here\r\n" * 10_000)
        return answer(command) + sent[-1]

    server.answer = endless
    with pytest.raises(Failed, match=r"the mail server sends more than was asked for|cannot be reached"):
        new_messages(source(server), "open-sesame-7", None)
    assert sent


@every_row("answers", [0, 1, 2])
def test_server_that_answers_slowly_is_left(server, answers):
    """Its whole time is limited, below that of one wait: a byte now and then would keep each wait short."""
    given = []
    answer = server.answer

    def slow(command):
        given.append(command)
        if len(given) > answers:
            over.wait(30)
        return answer(command)

    over = threading.Event()
    server.answer = slow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mailbox, "MOST_SECONDS", 0.5)
        started = monotonic()
        try:
            with pytest.raises(Failed, match=r"cannot be reached|the connection to the mail server broke|refuses"):
                new_messages(source(server), "open-sesame-7", None)
            assert monotonic() - started < mailbox.OPERATION_SECONDS / 2
        finally:
            over.set()
            server.answer = answer
    assert len(given) == answers + 1


def test_many_messages_come_in_several_looks(server, monkeypatch):
    monkeypatch.setattr(mailbox, "MOST_MESSAGES", 2)
    deliver(server, 1, 2, 3)
    found, uids, _ = new_messages(source(server), "open-sesame-7", {"validity": 7, "last": 0})
    assert ([one["uid"] for one in found], uids["last"]) == ([1, 2], 2)


def test_new_numbering_is_reported_and_nothing_is_repeated(server):
    deliver(server, 1, 2)
    found, uids, problem = new_messages(source(server), "open-sesame-7", {"validity": 6, "last": 0})
    assert (found, uids) == ([], {"validity": 7, "last": 2})
    assert "numbered its messages anew" in problem


def test_server_that_refuses_or_sends_too_much_is_a_failure(server):
    with pytest.raises(Failed, match=r"refuses: .*denied") as failed:
        new_messages(source(server), "wrong-password", None)
    assert "wrong-password" not in str(failed.value)
    deliver(server, 1)
    server.literal = 10**9
    with pytest.raises(Failed, match="more than was asked for"):
        new_messages(source(server), "open-sesame-7", {"validity": 7, "last": 0})


def test_certificate_of_another_host_is_refused(server):
    with pytest.raises(Failed, match="certificate was not accepted"):
        new_messages(source(server, host="other.example.com"), "open-sesame-7", None)
    assert server.commands == []


def test_private_host_is_refused(server, settings):
    settings.LQOPS_NET_ALLOW_NETWORKS = []
    with pytest.raises(Failed, match="not public"):
        new_messages(source(server), "open-sesame-7", None)
    with pytest.raises(Failed, match="inside a private network"):
        new_messages(source(server, host="mail.local"), "open-sesame-7", None)


@pytest.mark.django_db(transaction=True)
def test_new_message_alerts_once(server):
    deliver(server, 1)
    given = source(server).model_dump(mode="json")
    signal = {"name": "mail", "when": {"path": "from", "matches": "ann@"}}
    scene = Scene(poll(imap=given, updates=["mails"], signals=[signal]), fields={"mails": {"type": "array"}})
    with running_slice(time_scale=0.1):
        until(lambda: scene.sensor().read_at)
        deliver(server, 2)
        until(scene.alerts)
    with running_slice(time_scale=0.1):
        before = len(server.commands)
        until(lambda: len(server.commands) > before + 12)

    assert len(scene.alerts()) == 1
    assert [one["uid"] for one in scene.value("mails")] == [2]
    assert "open-sesame" not in str(scene.sensor().__dict__)
