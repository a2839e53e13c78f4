"""A web process whose database is away: 503, with a wait, to probes, programs and people. It starts all the same."""

import http.client
import json
import os
import socket

import pytest
from django.db import connection

from agents.management.supervisor import Supervisor, Web, open_socket

COOKIE = f"sessionid={'a' * 32}"


@pytest.fixture
def web(monkeypatch):
    """A web process whose database refuses connections."""
    pytest.importorskip("psycopg")
    with open_socket("127.0.0.1", 0) as closed:
        port = closed.getsockname()[1]
    address = f"postgresql://nobody@127.0.0.1:{port}/lqops"
    monkeypatch.setenv("LQOPS_TEST_DATABASE_URL", address)
    monkeypatch.setenv("LQOPS_DATABASE_URL", address)
    with open_socket("127.0.0.1", 0) as listening:
        served = Web(listening)
        with Supervisor([served], say=lambda _: None):
            served.wait_until_it_answers()
            yield served


def ask(web, method, path, cookie=""):
    connection = http.client.HTTPConnection(web.host, web.port, timeout=30)
    connection.request(method, path, b"{}" if method == "POST" else None, {"Cookie": cookie} if cookie else {})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def test_everything_answers_503_while_the_database_is_away(web):
    for method, path in [
        ("POST", "/hooks/4554cdd9-0000-4000-8000-000000000000"),
        ("GET", "/api/v1/me"),
    ]:
        response, body = ask(web, method, path, cookie=COOKIE)
        assert (response.status, json.loads(body)["code"]) == (503, "unavailable"), path
        assert response.getheader("Retry-After") == "5", path
        assert json.loads(body)["request_id"] == response.getheader("X-Request-ID"), path

    response, body = ask(web, "GET", "/admin/", cookie=COOKIE)
    assert (response.status, response.getheader("Retry-After")) == (503, "5")
    assert "The database did not answer in time." in body

    response, body = ask(web, "GET", "/readyz")
    assert (response.status, json.loads(body)) == (
        503,
        {"ok": False, "checks": {"database": "does not answer", "migrations": "not checked"}},
    )
    assert ask(web, "GET", "/healthz")[0].status == 503


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no line")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
@pytest.mark.django_db
def test_line_that_is_cut_without_a_word_is_given_up_soon():
    connection.ensure_connection()
    with socket.socket(fileno=os.dup(connection.connection.fileno())) as line:
        options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        found = [line.getsockopt(socket.IPPROTO_TCP, option) for option in options]
    assert found == [30_000, 30, 10]
