"""Very many open streams of one web process: every one gets what is for it, and requests are still answered."""

import asyncio
import json
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from django.db import connection

from agents.people.activity import event_emit
from tests.factories import NOW, make_agent, make_user
from tests.lqops.listening import key_of

pytestmark = pytest.mark.django_db(transaction=True)

PER_USER = 2  # as many as tests.lqops.hasty allows
PATIENCE = 120


class Listener:
    """A client of the stream, without anything that would cost more than the stream itself."""

    def __init__(self, address, key):
        self.place, self.key = urlsplit(address), key

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(self.place.hostname, self.place.port)
        asked = f"GET /api/v1/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n\r\n"
        self.writer.write(asked.encode())
        assert b" 200 " in await self.reader.readline()
        await self.reader.readuntil(b"retry: ")

    async def next_event(self):
        while not (line := await self.reader.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        return json.loads(line.removeprefix(b"data: "))

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


async def all_of(coroutines, side_by_side=50):
    """Their results, with so many at work at a time."""
    free = asyncio.Semaphore(side_by_side)

    async def one(coroutine):
        async with free:
            return await coroutine

    return await asyncio.gather(*(one(coroutine) for coroutine in coroutines))


def emit(agents):
    """In a thread, whose connection is its own."""
    with closing(connection):
        for agent in agents:
            event_emit("autonomy:sensor_updated", agent=agent, now=NOW, sensor="door", field=str(agent.pk))


@pytest.mark.parametrize(
    "streams", [20, pytest.param(100, marks=pytest.mark.long), pytest.param(1_000, marks=pytest.mark.stress)]
)
def test_every_stream_of_very_many_gets_the_events_of_its_user(web, http, streams):
    agents = [make_agent(owner=make_user()) for _ in range(streams // PER_USER)]
    keys = [key_of(agent.owner) for agent in agents]
    listeners = [Listener(web.address, key) for key in keys for _ in range(PER_USER)]
    took = {}

    async def listen():
        await all_of(listener.open() for listener in listeners)
        started = time.monotonic()
        await asyncio.to_thread(emit, agents)
        written = time.monotonic()
        heard = await all_of((listener.next_event() for listener in listeners), side_by_side=streams)
        took["until all have heard"] = time.monotonic() - written
        took["to write them"] = written - started
        answered = time.monotonic()
        assert (await asyncio.to_thread(http.get, "/readyz")).status_code == 200
        took["a request"] = time.monotonic() - answered
        await all_of(listener.close() for listener in listeners)
        return heard

    heard = asyncio.run(asyncio.wait_for(listen(), PATIENCE))

    print({name: round(seconds, 2) for name, seconds in took.items()})
    assert [event["data"]["field"] for event in heard] == [str(agent.pk) for agent in agents for _ in range(PER_USER)]
