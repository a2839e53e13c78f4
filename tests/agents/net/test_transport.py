"""A given transport replaces the connection: it gets the request after the same checks."""

import asyncio
import time

import httpx
import pytest

from agents.net import AsyncSafeClient, FetchFailed, Limits, SafeClient, UrlRefused
from tests.agents.net.hostile import PUBLIC


def test_transport_gets_the_checked_request_and_is_limited(fetch):
    seen = []

    def handler(request):
        seen.append((str(request.url), request.headers["host"]))
        return httpx.Response(200, content=b"x" * 100)

    settings = {"transport": httpx.MockTransport(handler), "resolve": lambda host: [PUBLIC]}

    assert fetch("HTTP://Site.Example.com/a", client=settings).content == b"x" * 100
    with pytest.raises(FetchFailed):
        fetch("http://site.example.com/", client=settings, limits=Limits(max_bytes=99))
    assert seen[0] == ("http://site.example.com/a", "site.example.com")


def test_transport_is_not_called_for_a_refused_url(fetch):
    def handler(request):
        pytest.fail("it was called")

    with pytest.raises(UrlRefused):
        fetch("http://127.0.0.1/", client={"transport": httpx.MockTransport(handler)})


def test_redirects_of_a_transport_are_checked(fetch):
    def handler(request):
        return httpx.Response(302, headers={"Location": "http://169.254.169.254/"})

    with pytest.raises(UrlRefused):
        fetch("http://1.1.1.1/", client={"transport": httpx.MockTransport(handler)})


def test_get_sends_a_get_request():
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=request.method))

    async def get_later():
        async with AsyncSafeClient(transport=transport) as client:
            return await client.get("http://1.1.1.1/")

    assert SafeClient(transport=transport).get("http://1.1.1.1/").text() == "GET"
    assert asyncio.run(get_later()).text() == "GET"


def test_hanging_transport_ends_at_the_deadline():
    async def handler(request):
        await asyncio.sleep(60)

    async def get_later():
        async with AsyncSafeClient(transport=httpx.MockTransport(handler), limits=Limits(deadline=0.2)) as client:
            await client.get("http://1.1.1.1/")

    began = time.monotonic()

    with pytest.raises(FetchFailed, match="deadline"):
        asyncio.run(get_later())
    assert time.monotonic() - began < 30


def test_many_fetches_run_concurrently_in_one_loop():
    everybody = asyncio.Barrier(50)

    async def handler(request):
        await everybody.wait()
        return httpx.Response(200, content=request.url.path.encode())

    async def all_of_them():
        async with AsyncSafeClient(transport=httpx.MockTransport(handler), resolve=lambda host: [PUBLIC]) as client:
            return await asyncio.gather(*(client.get(f"http://site.example.com/{n}") for n in range(50)))

    assert [found.content for found in asyncio.run(all_of_them())] == [b"/%d" % n for n in range(50)]
