"""Every response has a request id and a content security policy, under ASGI and WSGI; long ones are compressed."""

import asyncio
import gzip
import io
import logging
import re

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory

from lqops.logs import OneLine
from lqops.web import ADMIN_POLICY, POLICY, Compress, ContentSecurityPolicy, RequestId, current_request_id

MADE = re.compile(r"[0-9a-f]{32}")

pytestmark = pytest.mark.django_db


def test_safe_request_id_is_kept():
    response = Client().get("/healthz", headers={"X-Request-ID": "proxy-7:a.b_c"})

    assert response["X-Request-ID"] == "proxy-7:a.b_c"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "a\nb", "<script>", "é"])
def test_unsafe_request_id_is_replaced(given):
    response = Client().get("/healthz", headers={"X-Request-ID": given})

    assert MADE.fullmatch(response["X-Request-ID"])


def test_two_requests_have_two_ids():
    client = Client()

    assert client.get("/healthz")["X-Request-ID"] != client.get("/healthz")["X-Request-ID"]


def test_view_and_log_lines_see_the_id_of_the_response():
    seen = []

    def view(request):
        seen.append((request.headers["X-Request-ID"], current_request_id.get()))
        return HttpResponse()

    response = RequestId(view)(RequestFactory().get("/", headers={"X-Request-ID": "not safe"}))

    assert seen == [(response["X-Request-ID"], response["X-Request-ID"])]
    assert current_request_id.get() == ""


@pytest.fixture
def lines():
    """What the log says, as the product writes it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine())
    logger = logging.getLogger("django.request")
    logger.addHandler(handler)
    yield lambda: written.getvalue().splitlines()
    logger.removeHandler(handler)


@pytest.mark.parametrize("path", ["/absent", "/api/v1/me", "/hooks/4554cdd9-0000-4000-8000-000000000000"])
def test_log_of_a_refused_request_has_the_id_of_its_response(path, lines):
    response = Client().post(path)

    assert response.status_code >= 400
    [line] = lines()
    assert f" django.request [{response['X-Request-ID']}] " in line
    assert path in line


def test_log_of_a_refused_async_request_has_its_id(lines):
    async def get():
        return await AsyncClient().get("/absent", headers={"X-Request-ID": "async-2"})

    asyncio.run(get())

    assert [" [async-2] " in line for line in lines()] == [True]


@pytest.mark.parametrize("path", ["/", "/login/", "/healthz", "/absent", "/receipts/x/", "/static/absent.css"])
def test_pages_outside_the_admin_may_not_eval(path):
    policy = Client().get(path)["Content-Security-Policy"]

    assert policy == POLICY
    assert "unsafe-eval" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy


def test_admin_pages_may_eval_but_not_run_inline_scripts():
    policy = Client().get("/admin/")["Content-Security-Policy"]

    assert policy == ADMIN_POLICY
    assert "script-src 'self' 'unsafe-eval';" in policy


def test_sign_in_page_complies_with_its_policy():
    page = Client().get("/login/").content.decode()

    assert not re.search(r"<script(?![^>]*\b(?:src=|type=\"application/json\"))[^>]*>", page), (
        "an inline script would not run"
    )
    assert not re.search(r"\son\w+=", page), "an inline handler would not run"
    assert not re.search(r'(?:src|href)="https?://', page), "nothing is loaded from elsewhere"


def test_view_keeps_a_policy_of_its_own():
    response = HttpResponse(headers={"Content-Security-Policy": "default-src 'none'"})
    request = RequestFactory().get("/")
    request.resolver_match = None

    assert ContentSecurityPolicy(lambda _: response)(request)["Content-Security-Policy"] == "default-src 'none'"


def test_async_responses_have_the_same_headers():
    async def get():
        return await AsyncClient().get("/absent", headers={"X-Request-ID": "async-1"})

    response = asyncio.run(get())

    assert response["X-Request-ID"] == "async-1"
    assert response["Content-Security-Policy"] == POLICY


# --- Compression ---


def test_page_is_compressed_for_clients_that_take_it(client):
    page = client.get("/login/", headers={"accept-encoding": "gzip, br"})
    assert (page["Content-Encoding"], "Accept-Encoding" in page["Vary"]) == ("gzip", True)
    assert b"password" in gzip.decompress(page.content)
    assert len(page.content) < len(client.get("/login/").content) / 2
    assert "Content-Encoding" not in client.get("/login/").headers


@pytest.mark.parametrize("response", [HttpResponse("short"), StreamingHttpResponse(["event: long\n"] * 1_000)])
def test_short_answers_and_streams_are_sent_as_they_are(rf, response):
    compressed = Compress(lambda _: response)(rf.get("/", headers={"accept-encoding": "gzip"}))
    assert "Content-Encoding" not in compressed.headers
