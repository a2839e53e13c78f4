"""A connection pooler before the PostgreSQL of the tests, as small as one can be: each client's transactions, or all it
does, run in any session of the server that is free, the one given back last first.
"""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from itertools import count

import psycopg
from django.db import connection

_NO_ENCRYPTION = {80877103, 80877104}  # asked for TLS and for GSSAPI
_PARAMETERS = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "DateStyle")
_CLIENT_NUMBERS = count(1_000_000_000)  # as its process numbers, which no session of the server has


class Pool(Enum):
    FORGETS = "each transaction has a session, which knows nothing of the client's statements"
    KEEPS = "each transaction has a session, in which the client's statements are prepared as well"
    SESSION = "each client has a session for itself"


class Pooler:
    """Serves clients with `size` sessions. `kind` and `most_clients` may be changed while it serves."""

    def __init__(self, kind: Pool, listener: socket.socket, servers: list[socket.socket], told: list[bytes]) -> None:
        self.kind = kind
        self.most_clients = 100
        self.port = listener.getsockname()[1]
        self.clients_ever = 0
        self._clients = 0
        self._listener = listener
        self._told = b"".join(told)
        self._free = [_Session(server) for server in servers]
        self._change = threading.Condition()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=self._serve_client, args=(_Line(client),), daemon=True).start()

    def _serve_client(self, client: "_Line") -> None:
        with client.socket:
            try:
                if self._greet(client):
                    self._relay(client)
            except OSError:
                pass  # the client is gone

    def _greet(self, client: "_Line") -> bool:
        while (request := client.take_startup()) in _NO_ENCRYPTION:
            client.socket.sendall(b"N")
        assert request >> 16 == 3, "another version of the protocol"
        with self._change:
            self.clients_ever += 1
            if self._clients >= self.most_clients:
                client.socket.sendall(_message(b"E", b"SFATAL\0VFATAL\0C53300\0Mno more connections allowed\0\0"))
                return False
            self._clients += 1
        number = _message(b"K", struct.pack("!II", next(_CLIENT_NUMBERS), 0))
        client.socket.sendall(_message(b"R", bytes(4)) + self._told + number + _message(b"Z", b"I"))
        return True

    def _relay(self, client: "_Line") -> None:
        statements: dict[bytes, bytes] = {}
        session = None
        try:
            while messages := client.take_request():
                session = session or self._take()
                is_over = session.answer(messages, client, statements if self.kind is Pool.KEEPS else {})
                if is_over and self.kind is not Pool.SESSION:
                    session = self._give_back(session)
        finally:
            if session is not None:
                session.answer([_message(b"Q", b"ROLLBACK\0")], None, {})
                self._give_back(session)
            with self._change:
                self._clients -= 1

    def _take(self) -> "_Session":
        with self._change:
            self._change.wait_for(lambda: self._free)
            return self._free.pop()

    def _give_back(self, session: "_Session") -> None:
        with self._change:
            self._free.append(session)
            self._change.notify()


class _Session:
    """A session of the server: the driver has signed in, and from then on we speak on its line."""

    def __init__(self, line: socket.socket) -> None:
        line.setblocking(True)
        self._line = _Line(line)
        self._known: set[bytes] = set()

    def answer(self, messages: list[bytes], client: "_Line | None", statements: dict[bytes, bytes]) -> bool:
        """Pass a request on, and its answer back. Return whether the transaction is over."""
        added = 0
        for message in messages:
            if message[:1] == b"P" and (name := message[5:].split(b"\0")[0]):
                statements[name] = message
                self._known.add(name)
            if message[:1] == b"B" and (name := message[5:].split(b"\0")[1]) in statements.keys() - self._known:
                self._line.socket.sendall(statements[name])
                self._known.add(name)
                added += 1
            self._line.socket.sendall(message)
        while True:
            message = self._line.take_message()
            if added and message[:1] == b"1":  # ParseComplete, which the client does not wait for
                added -= 1
            elif client is not None:
                client.socket.sendall(message)
            if message[:1] == b"Z":
                return message[5:] == b"I"


class _Line:
    def __init__(self, line: socket.socket) -> None:
        self.socket = line

    def take_startup(self) -> int:
        (length,) = struct.unpack("!I", self._take(4))
        (code,) = struct.unpack("!I", self._take(length - 4)[:4])
        return int(code)

    def take_message(self) -> bytes:
        head = self._take(5)
        (length,) = struct.unpack("!I", head[1:])
        return head + self._take(length - 4)

    def take_request(self) -> list[bytes]:
        """Return the messages up to the one that asks for an answer; none if the client takes its leave."""
        messages = [self.take_message()]
        while messages[-1][:1] not in {b"Q", b"S", b"X"}:
            messages.append(self.take_message())
        return [] if messages[-1][:1] == b"X" else messages

    def _take(self, number: int) -> bytes:
        found = b""
        while len(found) < number:
            piece = self.socket.recv(number - len(found))
            if not piece:
                raise ConnectionError
            found += piece
        return found


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!I", len(content) + 4) + content


@contextmanager
def connected_through(kind: Pool, size: int = 2) -> Iterator[Pooler]:
    """Connect Django through a pooler to the database of the tests."""
    settings = connection.settings_dict
    there = {"host": settings["HOST"], "port": settings["PORT"], "user": settings["USER"]}
    there |= {"password": settings["PASSWORD"], "dbname": settings["NAME"], "sslmode": "disable"}
    given = {name: value for name, value in there.items() if value}
    with ExitStack() as stack:
        servers = [stack.enter_context(psycopg.connect(**given, autocommit=True)) for _ in range(size)]
        lines = [stack.enter_context(socket.socket(fileno=os.dup(server.fileno()))) for server in servers]
        known = [(name, servers[0].info.parameter_status(name)) for name in _PARAMETERS]
        told = [_message(b"S", f"{name}\0{value}\0".encode()) for name, value in known]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        pooler = Pooler(kind, listener, lines, told)
        threading.Thread(target=pooler.serve, daemon=True).start()
        before = dict(settings)
        connection.close()
        settings.update(HOST="127.0.0.1", PORT=str(pooler.port))
        try:
            yield pooler
        finally:
            connection.close()
            settings.clear()
            settings.update(before)
