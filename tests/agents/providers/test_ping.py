"""A model server is asked for free whether it is there: by GET, through the transport of model requests."""

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.providers import ping
from agents.providers.ping import has_server, is_there
from agents.providers.transport import Timeouts

MODEL = "m"


@contextmanager
def serving(status):
    """A server that answers every GET with this status, or with nothing at all; gives its URL and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            if status is not None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_):
            """Nothing: the tests ask what they want to know."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def declare(settings):
    """`declare(url, …)` declares the model at that address."""

    def declared(url, provider="openai_compatible", **more):
        settings.LQOPS_MODELS = {MODEL: {"provider": provider, "url": url, **more}}

    return declared


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


@pytest.mark.parametrize(
    ("status", "there"),
    [(200, True), (401, True), (404, True), (408, False), (425, False), (429, False), (500, False), (503, False)],
)
def test_server_is_there_if_it_answers_for_itself(declare, status, there):
    with serving(status) as (url, _):
        declare(url)
        assert is_there(MODEL) is there


@pytest.mark.parametrize(
    ("provider", "header"),
    [("openai_compatible", ("Authorization", "Bearer k-42")), ("anthropic", ("x-api-key", "k-42"))],
)
def test_list_of_models_is_asked_for_and_nothing_is_sent(declare, monkeypatch, provider, header):
    monkeypatch.setenv("SECRET_OF_M", "k-42")
    with serving(200) as (url, asked):
        declare(url, provider, key_env="SECRET_OF_M")
        assert is_there(MODEL)
    [(path, headers)] = asked
    assert path == "/v1/models"
    assert header in headers.items()
    assert "Content-Length" not in headers


def test_server_that_refuses_is_not_there(declare):
    declare(free_address())
    assert not is_there(MODEL)


def test_server_that_closes_the_connection_is_not_there(declare):
    with serving(None) as (url, _):
        declare(url)
        assert not is_there(MODEL)


def test_server_that_says_nothing_is_not_there(declare, monkeypatch):
    monkeypatch.setattr(ping, "TIMEOUTS", Timeouts(connect=0.2, first_token=0.2, between_tokens=0.2, total=0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        declare(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        assert not is_there(MODEL)


def test_address_set_in_the_admin_passes_the_gate(declare):
    with serving(200) as (url, asked):
        declare(url, gated=True)
        assert not is_there(MODEL)
    assert asked == []


def test_broken_proxy_is_no_error(declare, monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    declare("http://models.example.org/v1")
    assert not is_there(MODEL)


def test_models_without_a_server_are_not_asked(settings):
    settings.LQOPS_MODELS = {"a": {"provider": "offline"}, "b": {"provider": "openai_embeddings", "url": "http://x/v1"}}
    assert [has_server(model) for model in ("a", "b", "unknown")] == [False, True, False]
