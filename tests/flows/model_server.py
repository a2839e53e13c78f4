"""A model behind a real HTTP server on loopback: answers what it is told to, counts, and can be held up or broken."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agents.text.blocks import parse_blocks

NAME = "flow-model"


def documents_of(request):
    """The texts of the documents that the model was shown."""
    texts = (message["content"] for message in request["messages"])
    return [block.text for text in texts for block in parse_blocks(text) if block.kind == "document"]


def structured(request):
    """Two findings, a memory and a precedent; the first finding quotes the beginning of the first document."""
    quote = "".join(documents_of(request)[:1])[:40]
    findings = [
        {"severity": "warn", "title": "Liability is not capped", "content": "Clause 4.", "quote": quote},
        {"severity": "info", "title": "Renews by itself", "content": "Clause 9.", "quote": "words that nobody wrote"},
    ]
    return {
        "findings": findings,
        "suggested_memories": [{"content": "This supplier renews by itself."}],
        "suggested_precedents": [{"pattern_kind": "clause", "summary": "uncapped liability"}],
        "privilege_concerns": [],
        "scope_concerns": [],
    }


class ModelServer:
    """`with ModelServer() as model:` serves; `answer`, `status`, `prompt_tokens` and `free` say how from then on."""

    def __init__(self):
        self.requests = []
        self.answer = structured
        self.status = 200
        self.prompt_tokens = 50
        self.free = threading.Event()
        self.free.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.free.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self):
        """What a process needs to ask this model."""
        return {
            "LQOPS_MODEL_URL": f"http://127.0.0.1:{self._server.server_port}/v1",
            "LQOPS_MODEL_NAME": NAME,
            "LQOPS_MODEL_KEY": "",
            "LQOPS_MODEL_INPUT_USD": "0.01",
            "LQOPS_MODEL_OUTPUT_USD": "0.01",
        }

    def reset(self):
        self.answer, self.status, self.prompt_tokens = structured, 200, 50
        self.requests.clear()
        self.free.set()

    def asked_about(self, word):
        """The requests that were shown a document with this word in it."""
        return [request for request in self.requests if any(word in text for text in documents_of(request))]

    def _handler(self):
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.requests.append(request)
                model.free.wait(60)
                kind, body = _streamed(model, request) if request.get("stream") else _whole(model, request)
                with contextlib.suppress(OSError):  # whoever asked may have been killed meanwhile
                    self.send_response(model.status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                """Nothing: the tests ask what they want to know."""

        return Handler


def _whole(model, request):
    return "application/json", json.dumps(_reply(model, request)).encode()


def _streamed(model, request):
    """The same answer as a server sends it piece by piece: the text, why it ends, and what it took."""
    reply = _reply(model, request)
    [choice] = reply["choices"]
    said = {"delta": choice["message"], "finish_reason": None}
    end = {"delta": {}, "finish_reason": choice["finish_reason"]}
    chunks = [{"choices": [{"index": 0, **one}]} for one in (said, end)] + [{"choices": [], "usage": reply["usage"]}]
    lines = [*(json.dumps({"id": "chat-1", "model": NAME, **chunk}) for chunk in chunks), "[DONE]"]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode()


def _reply(model, request):
    answer = model.answer(request)
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "model": NAME,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": model.prompt_tokens,
            "completion_tokens": 20,
            "total_tokens": model.prompt_tokens + 20,
        },
    }
