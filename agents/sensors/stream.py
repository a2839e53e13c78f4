"""Stream: server-sent events or a WebSocket, read for as long as the slice lasts.

Events are taken as they come and handed in together when several wait. Server-sent events with ids go on where the last
committed one stands. What cannot be gone on from leaves a gap, which the cursor tells of.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from agents.conf import clock, sensor_slice_lifetime
from agents.net import AsyncSafeStream, FetchFailed, Limits, UrlRefused
from agents.net.streams import CONTENT_TYPE, EventReader, ServerEvent, TooLarge
from agents.sensors.poll import read_text
from agents.sensors.sensing import Failed, Sensing

OPEN_SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 40  # of one connection; memory is bounded by the event, not by the stream
MOST_WAITING: Final = 200
MOST_WAITING_BYTES: Final = 1024 * 1024
OK: Final = 200


@dataclass(frozen=True)
class Item:
    """One event: its data, where to go on after it, and what was wrong with it instead of data.

    `name` tells it from all others; empty when the source gives its events no ids.
    """

    data: Any = None
    place: str = ""
    name: str = ""
    problem: str = ""
    size: int = 0


class Box:
    """Events that wait to be handed in. Whoever puts more into it waits: so the source has to."""

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
        """All that wait, at least one; none at all when nothing will come any more."""
        await self._filled.wait()
        items, self._items, self._bytes = self._items, [], 0
        self._room.set()
        if not self._closed:
            self._filled.clear()
        return items


class Stream(Sensing):
    async def run(self) -> None:
        wait: float | None = self.seconds_until_due()
        while wait is not None:
            await asyncio.sleep(wait)
            wait = await self._connected()

    async def _connected(self) -> float | None:
        """Reads one connection to its end; the seconds to wait before the next, None when it is all over."""
        box = Box()
        receiving = asyncio.create_task(self._receive(box))
        receiving.add_done_callback(lambda _: box.close())
        try:
            while items := await box.take():
                if not await self._told(items):
                    return None
        finally:
            receiving.cancel()
            await asyncio.wait([receiving])
        error = receiving.exception()
        if error is not None and not isinstance(error, Failed):
            raise error
        return await self.fail(str(error))

    async def _told(self, items: list[Item]) -> bool:
        data = [item.data for item in items if not item.problem]
        last = items[-1]
        named = next((item.name for item in reversed(items) if item.name), self.cursor.get("last"))
        self.cursor |= {"seen_at": clock().isoformat(), "id": last.place, "last": named if last.place else ""}
        problem = "; ".join(dict.fromkeys(item.problem for item in items if item.problem))
        return await self.tell(data, happening=last.name or self.happening(), problem=problem)

    async def _receive(self, box: Box) -> None:
        url = str(self.spec.source.url)
        reading = self._messages(url) if url.lower().startswith("ws") else self._events(url)
        try:
            async for item in reading:
                await box.put(item)
        except (UrlRefused, FetchFailed) as error:
            raise Failed(str(error)) from None
        except TimeoutError:
            raise Failed(f"nothing came for {self.spec.interval} seconds") from None
        raise Failed("the stream ended")

    @property
    def _silence(self) -> float | None:
        """How long a stream may say nothing; without an interval, for as long as it likes."""
        return self.spec.interval * self.desk.second if self.spec.interval else None

    # --- Server-sent events ---

    async def _events(self, url: str) -> AsyncIterator[Item]:
        place, again = str(self.cursor.get("id") or ""), self.cursor.get("last")
        headers = {"Accept": CONTENT_TYPE, "Cache-Control": "no-store", **({"Last-Event-ID": place} if place else {})}
        lasts = sensor_slice_lifetime().total_seconds() + OPEN_SECONDS
        opening = self.desk.client.stream(
            "GET", url, headers=headers, limits=Limits(deadline=lasts, max_bytes=MOST_BYTES, max_ratio=1000)
        )
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    answer = await held.enter_async_context(opening)
            except TimeoutError:
                raise Failed(f"there was no answer within {OPEN_SECONDS:g} seconds") from None
            _check(answer)
            if not place:
                self._note_gap()
            reader = EventReader(place)
            pieces = aiter(answer.iter_bytes())
            while True:
                async with asyncio.timeout(self._silence):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                for event in reader.feed(piece):
                    item = _item(event)
                    if not again or item.name != again:  # some begin with the last one again
                        yield item
                    again = None

    # --- WebSocket ---

    async def _messages(self, url: str) -> AsyncIterator[Item]:
        async with self.desk.client.websocket(url, open_seconds=OPEN_SECONDS) as opened:
            self._note_gap()
            while True:
                async with asyncio.timeout(self._silence):
                    message = await opened.receive()
                try:
                    text = message if isinstance(message, str) else message.decode("utf-8")
                except UnicodeDecodeError:
                    yield Item(problem="a message was not text, and was dropped")
                    continue
                yield Item(data=read_text(text), size=len(message))

    def _note_gap(self) -> None:
        """Between what was seen last and now, something may have been missed."""
        seen = self.cursor.get("seen_at")
        if seen:
            gap = {"from": seen, "to": clock().isoformat()}
            self.cursor |= {"gaps": int(self.cursor.get("gaps", 0)) + 1, "gap": gap}


def _check(answer: AsyncSafeStream) -> None:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if answer.status != OK:
        raise Failed(f"the server answered with status {answer.status}")
    if kind != CONTENT_TYPE:
        raise Failed(f"the server sends {kind[:64] or 'something without a type'}, not {CONTENT_TYPE}")


def _item(event: ServerEvent | TooLarge) -> Item:
    if isinstance(event, TooLarge):
        problem = f"an event was larger than {event.limit} bytes, and was dropped"
        return Item(place=event.id, name=_name(event, ""), problem=problem)
    return Item(data=read_text(event.data), place=event.id, name=_name(event, event.data), size=len(event.data))


def _name(event: ServerEvent | TooLarge, data: str) -> str:
    """By its own id and its data: a source that begins to count anew gives an id twice."""
    return hashlib.sha256(f"{event.id}\0{data}".encode()).hexdigest()[:32] if event.named else ""
