"""A mail server on loopback: it takes mail, refuses it, or says nothing at all."""

import contextlib
import email
import socketserver
import threading
from collections.abc import Iterator
from email import policy


class _Talk(socketserver.StreamRequestHandler):
    def handle(self):
        if self.server.silent:
            self.server.over.wait(30)
            return
        self._say("220 sink")
        for line in self.rfile:
            verb = line[:4].upper().strip()
            if verb == b"DATA":
                self._say("354 go on")
                self._take()
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            elif verb == b"RCPT" and self.server.refuses:
                self._say("550 no such person")
            else:
                self._say("250 fine")

    def _take(self):
        lines = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line)
        self.server.taken.append(email.message_from_bytes(b"".join(lines), policy=policy.default))
        self._say("250 taken")

    def _say(self, line):
        with contextlib.suppress(OSError):  # the other side may have hung up
            self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *, silent=False, refuses=False):
        super().__init__(("127.0.0.1", 0), _Talk)
        self.silent, self.refuses = silent, refuses
        self.taken = []
        self.over = threading.Event()


@contextlib.contextmanager
def mail_server(settings, **manner) -> Iterator[MailServer]:
    """The server, with the settings that name it."""
    server = MailServer(**manner)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    name_server(settings, server.server_address[1], patience=0.3 if server.silent else 60)
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def name_server(settings, port, patience=60):
    settings.EMAIL_BACKEND = "agents.net.mail.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.EMAIL_TIMEOUT = patience
