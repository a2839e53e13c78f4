"""Limits on request bodies, before anybody is signed in: refused by their length, or cut off."""

import http.client
import json
import socket
from contextlib import suppress

import httpx
import pytest

from agents.text.formats.limits import MAX_BYTES
from agents.triggers.signing import MAX_BODY_BYTES
from lqops.web import body_limit
from tests.lqops.serving import web_process

HOOK = "/hooks/6d0f2f0a-2a4b-4a56-9a2b-0d6d0b7a9f11"
SESSIONS = "/api/v1/sessions"
PIECE = b"x" * 65_536


@pytest.fixture(scope="module")
def server(django_db_setup, django_db_blocker):
    """A real web process with lqops in it."""
    with django_db_blocker.unblock(), web_process() as served:
        yield served


def declared(server, path, length):
    """Send a Content-Length and no body, and return the response."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(length))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers), answer.read()
    connection.close()
    return found


def chunked(server, path, most):
    """Send an endless body; return how many bytes were accepted, and the response."""
    taken = 0
    response = b""
    with socket.create_connection((server.host, server.port), timeout=60) as line:
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        try:
            while taken < most:
                line.sendall(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
                taken += len(PIECE)
        except OSError:
            pass  # the server closed the connection
        with suppress(OSError):  # its response may be lost with the connection
            response = line.recv(65_536)
    return taken, response


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", [HOOK, SESSIONS, "/login/", "/admin/login/", "/api/v1/documents", "/nowhere"])
def test_body_with_a_large_content_length_is_refused_unread(server, path):
    status, headers, body = declared(server, path, body_limit(path) + 1)

    assert status == 413
    assert headers["x-request-id"]
    assert headers["connection"] == "close"
    assert str(body_limit(path)).encode() in body


@pytest.mark.parametrize("path", [HOOK, SESSIONS])
def test_refusal_has_the_format_of_api_errors(server, path):
    _, headers, body = declared(server, path, 10**15)

    error = json.loads(body)
    assert headers["content-type"] == "application/json"
    assert error.keys() == {"code", "message", "detail", "request_id"}
    assert (error["code"], error["request_id"]) == ("too_large", headers["x-request-id"])


@pytest.mark.parametrize("path", [HOOK, "/login/", SESSIONS])
def test_endless_body_is_cut_off_soon_after_its_limit(server, path):
    taken, response = chunked(server, path, most=60_000_000)

    # The buffers of the two sockets hold some megabytes more than were read.
    assert taken < body_limit(path) + 16_000_000
    assert b" 413 " in response.partition(b"\r\n")[0] or not response


def test_body_slightly_over_the_limit_reaches_its_view(server):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("POST", HOOK, body=b"x" * (MAX_BODY_BYTES + 1))
    answer = connection.getresponse()
    error = json.loads(answer.read())
    connection.close()

    assert (answer.status, error["code"]) == (413, "too_large")
    assert str(MAX_BODY_BYTES) in error["message"]


def test_server_answers_after_refusals(server):
    assert httpx.get(f"{server.address}login/").status_code == 200


def test_document_of_the_maximum_size_passes():
    assert body_limit("/api/v1/documents") > MAX_BYTES
    assert body_limit("/admin/agents/document/add/") > MAX_BYTES
    assert body_limit("/api/v1/documents/x") < MAX_BYTES
    assert body_limit("/login/") < MAX_BYTES
