"""Wakes watch sensors when something changes in their folders: one watcher for a whole slice.

A wake-up only says "look again"; the sensor finds what changed by scanning. A lost one costs time only, because every
slice begins with a scan. Folders are watched one by one: the system's recursion would follow links out of them.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

from watchfiles import awatch

DEBOUNCE_MS: Final = 200
STEP_MS: Final = 50
TIMEOUT_MS: Final = 1_000
PAUSE_SECONDS: Final = 1.0  # after an error
MOST_FOLDERS: Final = 4_096

logger = logging.getLogger(__name__)
logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs every change

Listeners = Mapping[asyncio.Event, frozenset[str]]


class FileChangeWatcher:
    """`listen` registers an event for folders; `run` sets it on changes, until it is cancelled."""

    def __init__(self) -> None:
        self._folders: dict[asyncio.Event, frozenset[str]] = {}
        self._unwatched: set[asyncio.Event] = set()  # set once their folders are watched: changes may have been missed
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()

    def listen(self, event: asyncio.Event, folders: Iterable[str]) -> None:
        wanted = frozenset(folders)
        if self._folders.get(event) != wanted:
            self._folders[event] = wanted
            self._unwatched.add(event)
            self._restart()

    def leave(self, event: asyncio.Event) -> None:
        self._unwatched.discard(event)
        if self._folders.pop(event, None):
            self._restart()

    def _restart(self) -> None:
        self._changed.set()
        self._stop.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            listeners = dict(self._folders)
            paths = sorted({folder for folders in listeners.values() for folder in folders})[:MOST_FOLDERS]
            if not paths:
                await self._changed.wait()
                continue
            self._stop = asyncio.Event()
            try:
                await self._watch(paths, listeners)
            except (OSError, RuntimeError) as error:  # a folder has gone, or the system has no watches left
                logger.info("folders cannot be watched, retrying: %s", error)
                for event in listeners:
                    event.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._changed.wait()

    async def _watch(self, paths: list[str], listeners: Listeners) -> None:
        changes = awatch(
            *paths,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=TIMEOUT_MS,
            stop_event=self._stop,
            recursive=False,
            yield_on_timeout=True,
        )
        async with aclosing(changes) as groups:
            async for group in groups:
                self._wake([path for _, path in group], listeners)

    def _wake(self, changed: list[str], listeners: Listeners) -> None:
        places = {place for path in changed for place in (path, str(Path(path).parent))}
        for event, folders in listeners.items():
            if event in self._unwatched or not folders.isdisjoint(places):
                event.set()
        self._unwatched -= listeners.keys()
