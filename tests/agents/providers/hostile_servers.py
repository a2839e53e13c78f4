"""Misbehaving model servers on real loopback sockets. Each plays one script to every connection."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

Script = Callable[[socket.socket, bytes], None]


class Server:
    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._workers: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self.requests: list[dict] = []
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for worker in self._workers:
            worker.join(5)

    @property
    def stopping(self) -> bool:
        return self._over.is_set()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            worker = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        with connection, contextlib.suppress(OSError):
            while not self._over.is_set():
                request = self._read(connection)
                if request is None:
                    return
                number = min(len(self.requests), len(self._scripts)) - 1
                self._scripts[number](connection, request)

    def _read(self, connection: socket.socket) -> bytes | None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65_536)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
        while len(body) < length:
            body += connection.recv(65_536)
        self.heads.append(head.decode())
        self.requests.append(json.loads(body))
        return body


def answer(status: int = 200, body: object = None, **headers: str) -> Script:
    def play(connection: socket.socket, _: bytes) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body if body is not None else reply()).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(raw)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)

    return play


def raw(*parts: bytes, close: bool = True) -> Script:
    def play(connection: socket.socket, _: bytes) -> None:
        for part in parts:
            connection.sendall(part)
        if close:
            connection.shutdown(socket.SHUT_RDWR)

    return play


def drip(head: bytes, piece: bytes, pause: float, stop: Callable[[], bool]) -> Script:
    """Sends a piece now and then, for ever."""

    def play(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        waiting = threading.Event()
        while not stop():
            connection.sendall(piece)
            waiting.wait(pause)

    return play


def reply(text: str = "fine", finish: str | None = "stop", usage: object = None, **message: object) -> dict:
    counted = {"prompt_tokens": 7, "completion_tokens": 3} if usage is None else usage
    return {
        "choices": [{"message": {"content": text, **message}, "finish_reason": finish}],
        "usage": counted,
    }


def events(*data: object, done: bool = True) -> bytes:
    lines = [f"data: {part if isinstance(part, str) else json.dumps(part)}\n\n" for part in data]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def delta(text: str | None = None, finish: str | None = None, **more: object) -> dict:
    return {
        "choices": [{"delta": {**({"content": text} if text is not None else {}), **more}, "finish_reason": finish}]
    }


def stream(*data: object, done: bool = True) -> Script:
    return raw(SSE_HEAD, events(*data, done=done))


@contextlib.contextmanager
def serving(*scripts: Script) -> Iterator[Server]:
    with Server(*scripts) as server:
        yield server
