"""One reader for each web process: it reads new events once, and gives them to everybody who listens.

It reads while somebody listens and rests otherwise. A client that takes them too slowly is cut off, and comes again
with the id of the last one that it has: what is still stored is not lost. Nothing that goes wrong here reaches those
who write events.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from agents.api import sse
from agents.models import AgentEvent
from agents.people.activity import event_sentence, events_between, horizon
from agents.process_end import process_ends
from audit.redaction import redact_data

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS: Final = 0.4
REST_SECONDS: Final = 2.0  # after a database that did not answer
READ_AT_ONCE: Final = 200
MOST_WAITING: Final = 1_000  # events for one client that it has not taken yet
Found = TypeVar("Found")


def event_shown(event: AgentEvent) -> dict[str, Any]:
    """An event as the API tells it. Redacted when it was written, and again as it goes out."""
    data = dict(redact_data(event.data))
    return {
        "id": event.pk,
        "kind": event.kind,
        "agent": str(event.agent.public_id) if event.agent else None,
        "session": str(event.session.public_id) if event.session else None,
        "text": event_sentence(event.kind, data),
        "data": data,
        "created_at": event.created_at.isoformat(),
    }


def event_bytes(event: AgentEvent) -> bytes:
    return sse.event(event_shown(event), number=str(event.pk))


class Listener:
    """One client that listens: to all that its owner's agents tell, or to one agent."""

    def __init__(self, owner_id: int, agent_id: int | None = None) -> None:
        self.owner_id, self.agent_id = owner_id, agent_id
        self.is_cut = False
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()

    @property
    def has_heard_all(self) -> bool:
        """It was cut off, and has taken what it was given before."""
        return self.is_cut and not self._waiting

    def wants(self, event: AgentEvent) -> bool:
        return event.owner_id == self.owner_id and self.agent_id in (None, event.agent_id)

    def hear(self, number: int, told: bytes) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((number, told))
            self._news.set()
        else:
            self.cut()

    def cut(self) -> None:
        """It is given nothing more."""
        self.is_cut = True
        self._news.set()

    async def heard(self, seconds: float) -> list[tuple[int, bytes]]:
        """What waits, as soon as something does; nothing, if nothing comes in so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        self._news.clear()
        return taken


class Reader:
    """Everything up to `position` was given to those who listen."""

    def __init__(self) -> None:
        self.position = 0
        self._listeners: set[Listener] = set()
        self._step = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def join(self, listener: Listener) -> int:
        """The id behind which the listener hears everything; what came before is stored."""
        async with self._step:
            if not self._listeners:
                self.position = await in_thread(horizon.look)
            self._listeners.add(listener)
            if self._task is None or self._task.done():
                # Nothing of the request at hand goes with it: the reader outlives it.
                self._task = asyncio.get_running_loop().create_task(self._read(), context=Context())
            return self.position

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def _read(self) -> None:
        try:
            while self._listeners and not process_ends.is_set():
                try:
                    rest = 0.0 if await self._give() else LOOK_EVERY_SECONDS
                except DatabaseError as error:
                    logger.warning("events could not be read: %s", type(error).__name__)
                    rest = REST_SECONDS
                await asyncio.sleep(rest)
        except Exception:
            logger.exception("the reader of events failed; those who listen come again")
        finally:
            for listener in self._listeners:
                listener.cut()
            self._listeners.clear()

    async def _give(self) -> bool:
        """Whether there may be more at once."""
        async with self._step:
            owner_ids = {listener.owner_id for listener in self._listeners}
            found, self.position = await in_thread(_new_events, self.position, owner_ids)
            for event, told in found:
                for listener in self._listeners:
                    if not listener.is_cut and listener.wants(event):
                        listener.hear(event.pk, told)
            self._listeners = {listener for listener in self._listeners if not listener.is_cut}
            return len(found) == READ_AT_ONCE


def _new_events(after: int, owner_ids: Collection[int]) -> tuple[list[tuple[AgentEvent, bytes]], int]:
    """What can be handed out, ready to be sent, and how far that is."""
    until = horizon.look()
    if until <= after or not owner_ids:
        return [], until
    rows = list(events_between(after, until, owner_ids=owner_ids)[:READ_AT_ONCE])
    return [(row, event_bytes(row)) for row in rows], rows[-1].pk if len(rows) == READ_AT_ONCE else until


async def in_thread(read: Callable[..., Found], *given: Any) -> Found:
    """Reads in a thread of its own, which holds no connection afterwards."""

    def reading() -> Found:
        try:
            return read(*given)
        finally:
            close_old_connections()

    return await sync_to_async(reading, thread_sensitive=False)()


reader: Final = Reader()
