"""A sensor at work: what its kinds have in common. It looks, has its signals judged, and hands in what it found.

Beside its looks it sees to what was left: signals that could not be judged when there was something to judge.

Each runs as one task of a slice's event loop and never touches the database itself: what it hands in is written by the
slice, and it waits for that. So there is at most one result of a sensor under way, and a source that is faster than the
database is read no faster than it can be written.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from watchfiles import awatch

from agents.conf import clock
from agents.net.streams import StreamingClient
from agents.sensors.rows import Failure, Held, Reading
from agents.sensors.signals import Asking, Judging, is_to_be_told, wait_after

logger = logging.getLogger(__name__)


# --- Tells sensors that something has changed in a folder, so that they look: one watcher for a whole slice ---
#
# A hint is no news: what has changed is found by looking. A hint that is lost costs time only, for every slice begins
# with a look. Folders are watched singly, not recursively: the system's recursion would follow links out of them.


GROUPED_MS: Final = 200
STEP_MS: Final = 50
WAIT_MS: Final = 1_000
PAUSE_SECONDS: Final = 1.0
MOST_FOLDERS: Final = 4_096
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


REST_SECONDS: Final = 1.0  # between two looks at what was left


class Failed(Exception):
    """A look came to nothing; the text says why, to a person."""


@dataclass(frozen=True)
class Desk:
    """What a slice has for its sensors. `second` is how long a second of their waits is; tests make it shorter."""

    hand_in: Callable[[Reading | Failure], Awaitable[bool]]
    loop_of: Callable[[int], int]
    asking: Asking
    client: StreamingClient
    fetches: asyncio.Semaphore
    files: Executor
    hints: Hints
    second: float = 1.0


class Sensing:
    """Subclasses say in `run` when to look, and at what."""

    pause: ClassVar[float] = 1.0  # seconds after the first failure, for those without an interval

    def __init__(self, held: Held, desk: Desk) -> None:
        self.held = held
        self.spec = held.spec
        self.desk = desk
        self.cursor: dict[str, Any] = dict(held.cursor)
        self.judging = Judging(held, desk.asking, desk.second)
        self.failures = held.failures
        self.busy = 0
        self._looks = 0
        self._turn = asyncio.Lock()  # one result at a time

    @contextmanager
    def at_it(self) -> Iterator[None]:
        """Inside, it is in the middle of something: a slice that ends lets it finish, for a moment."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    @asynccontextmanager
    async def _at_its_turn(self) -> AsyncIterator[None]:
        with self.at_it():
            async with self._turn:
                yield

    async def work(self) -> None:
        """Looks, and sees to what was left, until it is cancelled or the sensor is not ours any more."""
        beside = asyncio.create_task(self._see_to_what_was_left())
        try:
            await self.run()
        finally:
            beside.cancel()
            await asyncio.wait([beside])
            if not beside.cancelled() and (error := beside.exception()):
                logger.error("sensor %s: nothing saw to what was left", self.held.pk, exc_info=error)

    async def run(self) -> None:
        raise NotImplementedError

    @property
    def loop_pk(self) -> int:
        return self.desk.loop_of(self.held.agent_id)

    def happening(self, what: str = "") -> str:
        """A name for what is about to be judged: of its own, or that of what the source has named."""
        if what:
            return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._looks += 1
        return f"{self.held.fencing}.{self._looks}"

    def seconds_until_due(self) -> float:
        """By the clock when the slice took it; from then on by one that nobody can set. Never longer than a backoff."""
        if self.held.next_due_at is None:
            return 0.0
        left = (self.held.next_due_at - clock()).total_seconds()
        return min(max(left, 0.0), wait_after(max(self.failures, 1), self.interval) * self.desk.second)

    @property
    def interval(self) -> float:
        return float(self.spec.interval or self.pause)

    def due_at(self, seconds: float) -> datetime:
        return clock() + timedelta(seconds=max(seconds, 0))

    # --- What came of a look ---

    async def tell(
        self,
        items: Sequence[Any],
        *,
        happening: str = "",
        judged: Sequence[Any] | None = None,
        mark: str = "",
        same: bool = False,
        problem: str = "",
        due: float | None = None,
    ) -> bool:
        """Hands a reading in. `judged` is what the signals look at, if not the data itself. False: not ours any more.

        `mark` tells the readings of a source apart that shows all it has each time: one that is like the last is not
        judged again. `due` is when the next look is, on the clock of this process.
        """
        async with self._at_its_turn():
            if looked_at := items if judged is None else judged:
                self.judging.take(looked_at, happening, mark)
            fired, problems = await self.judging.judge(self.loop_pk)
            self.failures = 0
            return await self.desk.hand_in(
                Reading(
                    held=self.held,
                    at=clock(),
                    items=tuple(items),
                    same=same,
                    cursor=dict(self.cursor),
                    signals=self.judging.state(),
                    fired=tuple(fired),
                    problem="; ".join([*filter(None, [problem]), *problems]),
                    next_due_at=None if due is None else self.due_at(due - monotonic()),
                )
            )

    async def _see_to_what_was_left(self) -> None:
        mine = True
        while mine:
            await asyncio.sleep(REST_SECONDS * self.desk.second)
            if self.judging.is_due() and not self._turn.locked():
                mine = await self._tell_late()

    async def _tell_late(self) -> bool:
        """Hands in what signals say now of data that was handed in before."""
        async with self._at_its_turn():
            fired, problems = await self.judging.judge(self.loop_pk)
            return await self.desk.hand_in(
                Reading(
                    held=self.held,
                    at=clock(),
                    items=self.all_there_is(),
                    late=True,
                    signals=self.judging.state(),
                    fired=tuple(fired),
                    problem="; ".join(problems),
                )
            )

    def all_there_is(self) -> tuple[Any, ...]:
        """What a field gets whose signal fires late, if that is not just what was judged."""
        return ()

    async def fail(self, problem: str) -> float | None:
        """Hands a failure in; the seconds to wait before the next look, or None when the sensor is not ours any more.

        The wait is in real seconds.
        """
        self.failures += 1
        wait = wait_after(self.failures, self.interval)
        real = wait * self.desk.second
        mine = await self.desk.hand_in(
            Failure(
                held=self.held,
                at=clock(),
                problem=problem,
                failures=self.failures,
                wait_seconds=wait,
                tell=is_to_be_told(self.failures),
                cursor=dict(self.cursor),
                next_due_at=self.due_at(real),
            )
        )
        return real if mine else None
