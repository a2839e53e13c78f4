"""A web process works on a limited number of requests at once, so its database connections are bounded."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from django.http import HttpResponse
from django.test import AsyncRequestFactory

from agents.api import sse
from agents.models import AgentSession
from lqops import web as web_process
from lqops.web import LimitedHandler
from tests.factories import make_session, make_user
from tests.lqops.listening import key_of, let_in

REQUESTS = 40


class Work:
    """Stands in for everything inside the handler: each request works until the gate opens."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.at_work = self.most = 0

    async def __call__(self, _request):
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await self.gate.wait()
        self.at_work -= 1
        return HttpResponse("done")


@pytest.fixture
def handler(settings):
    settings.LQOPS_WEB_CONNECTIONS = 3
    return LimitedHandler()


def test_requests_wait_for_a_slot_and_halts_and_probes_have_their_own(handler, monkeypatch):
    async def scenario():
        work = Work()
        monkeypatch.setattr(ASGIHandler, "get_response_async", work)
        make = AsyncRequestFactory()

        def ask(path):
            return asyncio.create_task(handler.get_response_async(make.get(path)))

        usual = [ask("/api/v1/me") for _ in range(10)]
        await asyncio.sleep(0)
        assert (work.at_work, work.most) == (3, 3)
        urgent = [ask(path) for path in ("/api/v1/halt", "/healthz")]
        await asyncio.sleep(0)
        assert work.at_work == 5
        work.gate.set()
        answers = await asyncio.gather(*usual, *urgent)
        assert [answer.status_code for answer in answers] == [200] * 12
        assert work.most == 5

    asyncio.run(scenario())


def test_request_that_waits_too_long_is_told_to_come_back(handler, monkeypatch):
    async def scenario():
        work = Work()
        monkeypatch.setattr(ASGIHandler, "get_response_async", work)
        monkeypatch.setattr(web_process, "SLOT_SECONDS", 0.01)
        make = AsyncRequestFactory()
        first = [asyncio.create_task(handler.get_response_async(make.get("/"))) for _ in range(3)]
        await asyncio.sleep(0)
        for path, kind in (("/api/v1/me", "application/json"), ("/admin/", "text/html; charset=utf-8")):
            refused = await handler.get_response_async(make.get(path))
            assert (refused.status_code, refused["Retry-After"], refused["Content-Type"]) == (503, "5", kind)
        work.gate.set()
        await asyncio.gather(*first)
        assert (await handler.get_response_async(make.get("/"))).status_code == 200

    asyncio.run(scenario())


@pytest.mark.postgres
@pytest.mark.skipif(connection.vendor != "postgresql", reason="the server counts its connections")
@pytest.mark.django_db(transaction=True)
def test_connections_of_a_process_under_load_and_streams_are_bounded(http, settings):
    owner = make_user(is_superuser=True)
    session = make_session(owner=owner)
    headers = {"Authorization": f"Bearer {key_of(owner)}"}

    def connections():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return cursor.fetchone()[0]

    def ask(_):
        return httpx.get(http.base_url.join("/api/v1/sessions"), headers=headers, timeout=60).status_code

    seen = []
    address = f"/api/v1/sessions/{session.public_id}/stream"
    with let_in(http, address, headers=headers), ThreadPoolExecutor(REQUESTS) as pool:
        answers = [pool.submit(ask, number) for number in range(REQUESTS)]
        while not all(answer.done() for answer in answers):
            seen.append(connections())
        assert {answer.result() for answer in answers} == {200}
    AgentSession.objects.all().delete()

    stand_in = 1
    most = settings.LQOPS_WEB_CONNECTIONS + 2 * web_process.RESERVED_SLOTS + sse.READERS + stand_in
    assert 2 <= max(seen) <= most < REQUESTS
