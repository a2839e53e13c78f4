"""Tells sensors that something has changed in a folder, so that they look: one watcher for a whole slice.

A hint is no news: what has changed is found by looking. A hint that is lost costs time only, for every slice begins
with a look. Folders are watched singly, not recursively: the system's recursion would follow links out of them.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final

from watchfiles import awatch

GROUPED_MS: Final = 200
STEP_MS: Final = 50
WAIT_MS: Final = 1_000
PAUSE_SECONDS: Final = 1.0
MOST_FOLDERS: Final = 4_096

logger = logging.getLogger(__name__)
logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs how many changes, for each of them


class Hints:
    """`listen` says who is woken for which folders; `run` watches until it is cancelled."""

    def __init__(self) -> None:
        self._folders: dict[asyncio.Event, frozenset[str]] = {}
        self._fresh: set[asyncio.Event] = set()  # woken once more when they are watched: what came before gave no hint
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()

    def listen(self, woken: asyncio.Event, folders: Iterable[str]) -> None:
        wanted = frozenset(folders)
        if self._folders.get(woken) != wanted:
            self._folders[woken] = wanted
            self._fresh.add(woken)
            self._restart()

    def leave(self, woken: asyncio.Event) -> None:
        self._fresh.discard(woken)
        if self._folders.pop(woken, None):
            self._restart()

    def _restart(self) -> None:
        self._changed.set()
        self._stop.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            listeners = dict(self._folders)
            paths = sorted({folder for wanted in listeners.values() for folder in wanted})[:MOST_FOLDERS]
            if not paths:
                await self._changed.wait()
                continue
            self._stop = asyncio.Event()
            try:
                await self._watch(paths, listeners)
            except (OSError, RuntimeError) as error:  # a folder has gone, or the system has no watches left
                logger.info("folders are not watched for a moment: %s", error)
                for woken in listeners:
                    woken.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._changed.wait()

    async def _watch(self, paths: list[str], listeners: Mapping[asyncio.Event, frozenset[str]]) -> None:
        watching = awatch(
            *paths,
            watch_filter=None,
            debounce=GROUPED_MS,
            step=STEP_MS,
            rust_timeout=WAIT_MS,
            stop_event=self._stop,
            recursive=False,
            yield_on_timeout=True,
        )
        async with aclosing(watching) as groups:
            async for changed in groups:
                self._tell(changed, listeners)

    def _tell(self, changed: Iterable[tuple[object, str]], listeners: Mapping[asyncio.Event, frozenset[str]]) -> None:
        places = {place for _, path in changed for place in (path, str(Path(path).parent))}
        for woken, folders in listeners.items():
            if woken in self._fresh or not folders.isdisjoint(places):
                woken.set()
        self._fresh -= listeners.keys()
