"""Stream sensors: server-sent events or a WebSocket, read for as long as the slice lasts.

Events that arrive while a result is being written are handed in together. Server-sent events with ids resume after the
last one that was committed. A source that cannot be resumed leaves a gap, which the cursor records.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final

from agents.conf import clock, sensor_slice_lifetime
from agents.net import AsyncSafeStream, FetchFailed, Limits, UrlRefused
from agents.net.streams import CONTENT_TYPE, MAX_EVENT_BYTES, EventReader, ServerSentEvent
from agents.sensors.poll import read_text
from agents.sensors.rows import safe_text
from agents.sensors.sensing import Failed, Sensing, SourceRequest

OPEN_SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 40  # of one connection; memory is bounded by the event, not by the stream
MOST_WAITING: Final = 200
MOST_WAITING_BYTES: Final = 1024 * 1024
OK: Final = 200


@dataclass(frozen=True)
class Item:
    """One event. `resume_id` is where to resume after it; `problem` replaces data that could not be read.

    `name` identifies the event; empty when the source gives its events no ids.
    """

    data: Any = None
    resume_id: str = ""
    name: str = ""
    problem: str = ""
    size: int = 0


class EventBuffer:
    """Events to hand in. `put` waits while it is full, and so does the source."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    async def put(self, item: Item) -> None:
        await self._room.wait()
        self._items.append(item)
        self._bytes += item.size
        if len(self._items) >= MOST_WAITING or self._bytes >= MOST_WAITING_BYTES:
            self._room.clear()
        self._filled.set()

    def close(self) -> None:
        self._closed = True
        self._filled.set()

    async def take(self) -> list[Item]:
        """Return all events, at least one; none when the stream has ended."""
        await self._filled.wait()
        items = self._items
        self._items = []
        self._bytes = 0
        self._room.set()
        if not self._closed:
            self._filled.clear()
        return items


class Stream(Sensing):
    async def run(self) -> None:
        wait: float | None = self.seconds_until_due()
        while wait is not None:
            await asyncio.sleep(wait)
            wait = await self._read_connection()

    async def sample(self) -> list[Any]:
        """Return the first event that comes."""
        items = self._open(await self.request())
        try:
            async with asyncio.timeout(OPEN_SECONDS), aclosing(items):
                return [(await anext(items)).data]
        except (UrlRefused, FetchFailed) as error:
            raise Failed(str(error)) from None
        except StopAsyncIteration:
            raise Failed("the stream ended") from None
        except TimeoutError:
            raise Failed(f"no event came within {OPEN_SECONDS:g} seconds") from None

    def _open(self, asked: SourceRequest) -> AsyncGenerator[Item]:
        read = self._websocket_messages if asked.url.lower().startswith("ws") else self._server_events
        return read(asked)

    async def _read_connection(self) -> float | None:
        """Read one connection to its end; return the seconds to wait, None when the sensor is lost."""
        events = EventBuffer()
        receiving = asyncio.create_task(self._receive(events))
        receiving.add_done_callback(lambda _: events.close())
        try:
            while items := await events.take():
                if not await self._hand_in(items):
                    return None
        finally:
            receiving.cancel()
            await asyncio.wait([receiving])
        error = receiving.exception()
        if error is not None and not isinstance(error, Failed):
            raise error
        return await self.fail(str(error))

    async def _hand_in(self, items: list[Item]) -> bool:
        data = [item.data for item in items if not item.problem]
        last = items[-1]
        name = next((item.name for item in reversed(items) if item.name), self.cursor.get("last"))
        self.cursor |= {"seen_at": clock().isoformat(), "id": last.resume_id, "last": name if last.resume_id else ""}
        problem = "; ".join(dict.fromkeys(item.problem for item in items if item.problem))
        return await self.hand_in_reading(data, occurrence=last.name or self.occurrence(), problem=problem)

    async def _receive(self, events: EventBuffer) -> None:
        items = self._open(await self.request())
        try:
            async with aclosing(items):  # also when it is cancelled while the buffer is full
                async for item in items:
                    await events.put(item)
        except (UrlRefused, FetchFailed) as error:
            raise Failed(str(error)) from None
        except TimeoutError:
            raise Failed(f"the stream was silent for {self.spec.interval} seconds") from None
        raise Failed("the stream ended")

    # --- Server-sent events ---

    async def _server_events(self, asked: SourceRequest) -> AsyncGenerator[Item]:
        resume_id = str(self.cursor.get("id") or "")
        repeated = self.cursor.get("last")  # some sources send the last event again
        headers = asked.headers | {"Accept": CONTENT_TYPE, "Cache-Control": "no-store"}
        if resume_id:
            headers["Last-Event-ID"] = resume_id
        deadline = sensor_slice_lifetime().total_seconds() + OPEN_SECONDS
        limits = Limits(deadline=deadline, max_bytes=MOST_BYTES, max_ratio=1000)
        opening = self.services.client.stream(
            "GET", asked.url, headers=headers, secret=asked.secret, stays=asked.stays, limits=limits
        )
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    answer = await stack.enter_async_context(opening)
            except TimeoutError:
                raise Failed(f"no answer within {OPEN_SECONDS:g} seconds") from None
            _check(answer)
            if not resume_id:
                self._record_gap()
            reader = EventReader(resume_id)
            pieces = aiter(answer.iter_bytes())
            while True:
                async with asyncio.timeout(self.spec.interval):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                for event in reader.feed(piece):
                    item = _item(event)
                    if not repeated or item.name != repeated:
                        yield item
                    repeated = None

    # --- WebSocket ---

    async def _websocket_messages(self, asked: SourceRequest) -> AsyncGenerator[Item]:
        client = self.services.client
        async with client.websocket(asked.url, headers=asked.headers, open_seconds=OPEN_SECONDS) as opened:
            self._record_gap()
            while True:
                async with asyncio.timeout(self.spec.interval):
                    message = await opened.receive()
                try:
                    text = message if isinstance(message, str) else message.decode("utf-8")
                except UnicodeDecodeError:
                    yield Item(problem="a message was not text, and was dropped")
                    continue
                yield Item(data=read_text(text), size=len(message))

    def _record_gap(self) -> None:
        """Record that events since the last one may have been missed."""
        seen = self.cursor.get("seen_at")
        if seen:
            gap = {"from": seen, "to": clock().isoformat()}
            self.cursor |= {"gaps": int(self.cursor.get("gaps", 0)) + 1, "gap": gap}


def _check(answer: AsyncSafeStream) -> None:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if answer.status != OK:
        raise Failed(f"the server answered with status {answer.status}")
    if kind != CONTENT_TYPE:
        raise Failed(f"the server sends {kind[:64] or 'no content type'}, not {CONTENT_TYPE}")


def _item(event: ServerSentEvent) -> Item:
    """Return the event, named by its id and data: a source that restarts its count uses ids again."""
    name = hashlib.sha256(f"{event.id}\0{event.data or ''}".encode()).hexdigest()[:32] if event.named else ""
    resume_id = event.id if safe_text(event.id) == event.id else ""  # it is stored, and may repeat a secret
    if event.data is None:
        problem = f"an event was larger than {MAX_EVENT_BYTES} bytes, and was dropped"
        return Item(resume_id=resume_id, name=name, problem=problem)
    return Item(data=read_text(event.data), resume_id=resume_id, name=name, size=len(event.data))
