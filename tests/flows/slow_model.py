"""A model behind a real HTTP server on loopback that says one word a second and notices when it is left alone."""

import json
import re
import select
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.flows.model_server import documents_of

NAME = "slow-model"
WORD_SECONDS = 1.0
AT_ONCE = "To be answered at once."  # a document that says so gets its analysis in one piece
MARK = re.compile(r"halts-[a-z]+-[a-z]{12}")  # every run writes its own into what the model is asked


class SlowReply:
    """One reply that the server sends word by word, and what it saw of whoever asked. Times are of time.monotonic."""

    def __init__(self):
        self.asked_at = time.monotonic()
        self.last_byte_at = 0.0  # the last time that a word could be sent
        self.left_at = 0.0  # when the connection was found closed; no word could be sent after it
        self.left = threading.Event()


class SlowModel:
    """`with SlowModel() as model:` serves. Replies are kept by the mark of the run that asked."""

    def __init__(self):
        self._replies = {}
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for_word(self, mark, seconds):
        """Wait until a run has got the first word of a slow reply; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_begun(mark), seconds)

    def replies(self, mark):
        """The slow replies to a run."""
        with self._changed:
            return list(self._replies.get(mark, []))

    def _has_begun(self, mark):
        return any(reply.last_byte_at for reply in self._replies.get(mark, []))

    def _handler(self):
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                """A reading for sensors."""
                _send(self, "application/json", b'{"n": 1}')

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)
                mark = MARK.search(body.decode())[0]
                if any(AT_ONCE in text for text in documents_of(request)):
                    _send(self, "application/json", _whole(_analysis(mark)))
                else:
                    model._talk(self, mark)

            def log_message(self, *_):
                """Nothing: the tests ask what they want to know."""

        return Handler

    def _talk(self, handler, mark):
        """Say a word a second until whoever listens is gone, which is noticed between two words as well."""
        reply = SlowReply()
        with self._changed:
            self._replies.setdefault(mark, []).append(reply)
        word = json.dumps({"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]})
        try:
            handler.close_connection = True
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.end_headers()
            while not self._over.is_set():
                handler.connection.sendall(f"data: {word}\n\n".encode())
                with self._changed:
                    reply.last_byte_at = time.monotonic()
                    self._changed.notify_all()
                if _is_closed(handler.connection, WORD_SECONDS):
                    break
        except OSError:
            pass
        if not self._over.is_set():
            reply.left_at = time.monotonic()
            reply.left.set()


def _is_closed(connection, seconds):
    """Return True as soon as the other side closes, False if it has not done so after the given time."""
    readable, _, _ = select.select([connection], [], [], seconds)
    return bool(readable) and not connection.recv(1)


def _send(handler, kind, body):
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _whole(answer):
    message = {"role": "assistant", "content": json.dumps(answer)}
    return json.dumps(
        {
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 20},
        }
    ).encode()


def _analysis(mark):
    """One finding that quotes the document, so that a judge is asked about it; its title tells whose it is."""
    finding = {"severity": "warn", "title": mark, "content": "It is short.", "quote": AT_ONCE}
    return {
        "findings": [finding],
        "suggested_memories": [],
        "suggested_precedents": [],
        "privilege_concerns": [],
        "scope_concerns": [],
    }
