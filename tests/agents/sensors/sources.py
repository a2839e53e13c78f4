"""Sources on loopback with scripted behaviour: HTTP, server-sent events, WebSockets. Real sockets and threads."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from websockets.sync.server import serve


class Web:
    """Answers with what `answer(request)` returns: a body, or (status, headers, body). Keeps its requests."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.times = []
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                source.times.append(time.monotonic())
                source.asked.append({name.lower(): value for name, value in self.headers.items()})
                given = source.answer(self) if callable(source.answer) else source.answer
                if given is None:
                    return
                status, headers, body = given if isinstance(given, tuple) else (200, {}, given)
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if status != 304:
                    self.wfile.write(body)

            def handle(self):
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, *_):
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Events(Web):
    """Server-sent events, numbered from 1; sends those after the id that it is asked for, then what `then` does.

    `lines(number)` is the data of an event; `most` of them are sent, one every `pause` seconds, `each` per connection.
    One that forgets begins with the first each time.
    """

    def __init__(self, lines=str, *, most=10**9, pause=0.05, each=10**9, ids=True, then=None, forgets=False):
        self.lines, self.most, self.pause, self.each, self.ids, self.then = lines, most, pause, each, ids, then
        self.forgets = forgets
        self.from_ids = []
        self.over = threading.Event()
        super().__init__(self._stream)

    def _stream(self, request):
        start = 0 if self.forgets else int(request.headers.get("Last-Event-ID") or 0)
        self.from_ids.append(start)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        for number in range(start + 1, min(start + self.each, self.most) + 1):
            if self.over.wait(self.pause):
                return
            place = f"id: {number}\n" if self.ids else ""
            request.wfile.write(f"{place}data: {self.lines(number)}\n\n".encode())
            request.wfile.flush()
        if self.then:
            self.then(request)
        elif start + self.each >= self.most:
            self.over.wait(60)

    def close(self):
        self.over.set()
        super().close()


class Script(Web):
    """Server-sent events, byte for byte: the n-th connection gets the n-th list of pieces, one every `pause` seconds.

    The next one goes out earlier when `next_please` is released. The last connection stays open; any other ends.
    """

    def __init__(self, *connections, pause=0.3):
        self.connections, self.pause = connections, pause
        self.over, self.next_please = threading.Event(), threading.Semaphore(0)
        super().__init__(self._stream)

    def _stream(self, request):
        number = len(self.asked)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        for piece in self.connections[min(number, len(self.connections)) - 1]:
            request.wfile.write(piece)
            request.wfile.flush()
            self.next_please.acquire(timeout=self.pause)
            if self.over.is_set():
                return
        if number >= len(self.connections):
            self.over.wait(60)

    def close(self):
        self.over.set()
        self.next_please.release()
        super().close()


class Socket:
    """A WebSocket server; `behave(connection, number)` says what happens to the n-th connection, from 1."""

    def __init__(self, behave):
        self.connections = 0
        self.times = []

        def handle(connection):
            self.connections += 1
            self.times.append(time.monotonic())
            with contextlib.suppress(Exception):
                behave(connection, self.connections)

        self._server = serve(handle, "127.0.0.1", 0, close_timeout=0.2)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}/"

    def close(self):
        self._server.shutdown()
