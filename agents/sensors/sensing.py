"""The base of the three kinds of sensors: look at a source, have the signals scored, hand in the result.

Each sensor is one task in the event loop of a slice and never touches the database: the slice writes what it hands in,
and the sensor waits for that. So a source is read no faster than its readings can be written. Beside its looks, a
sensor retries the signals that could not be scored before.
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
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlencode

from watchfiles import awatch

from agents.conf import clock
from agents.models import Sensor
from agents.net.streams import StreamingClient
from agents.net.urls import UrlRefused
from agents.policy.destinations import Destination
from agents.policy.schedule import backoff
from agents.sensors.conditions import ConditionSignals
from agents.sensors.rows import Failure, LeasedSensor, Reading
from agents.sensors.signals import GuardedCalls, SignalScoring
from agents.skills.handles import SecretNotBound, SecretUser, destination_of
from agents.skills.skill import BadHandle, has_handle

logger = logging.getLogger(__name__)


# --- Wakes watch sensors when something changes in their folders: one watcher for a whole slice ---
#
# A wake-up only says "look again"; the sensor finds what changed by scanning. A lost one costs time only, because
# every slice begins with a scan. Folders are watched one by one: the system's recursion would follow links out of
# them.


DEBOUNCE_MS: Final = 200
STEP_MS: Final = 50
TIMEOUT_MS: Final = 1_000
PAUSE_SECONDS: Final = 1.0  # after an error
MOST_FOLDERS: Final = 4_096
logging.getLogger("watchfiles.main").setLevel(logging.WARNING)  # it logs every change

Listeners = Mapping[asyncio.Event, frozenset[str]]


class FileChangeWatcher:
    """`listen` registers an event for folders; `run` sets it on changes, until it is cancelled."""

    def __init__(self) -> None:
        self._folders: dict[asyncio.Event, frozenset[str]] = {}
        self._unwatched: set[asyncio.Event] = set()  # set once their folders are watched: changes may have been missed
        self._restart = asyncio.Event()

    def listen(self, event: asyncio.Event, folders: Iterable[str]) -> None:
        wanted = frozenset(folders)
        if self._folders.get(event) != wanted:
            self._folders[event] = wanted
            self._unwatched.add(event)
            self._restart.set()

    def leave(self, event: asyncio.Event) -> None:
        self._unwatched.discard(event)
        if self._folders.pop(event, None):
            self._restart.set()

    async def run(self) -> None:
        while True:
            self._restart = asyncio.Event()
            listeners = dict(self._folders)
            try:
                await self._watch(listeners)
            except (OSError, RuntimeError) as error:  # a folder has gone, or the system has no watches left
                logger.info("folders cannot be watched, retrying: %s", error)
                for event in listeners:
                    event.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._restart.wait()

    async def _watch(self, listeners: Listeners) -> None:
        """Wake listeners until their folders change."""
        paths = sorted({folder for folders in listeners.values() for folder in folders})[:MOST_FOLDERS]
        if not paths:
            await self._restart.wait()
            return
        changes = awatch(
            *paths,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=TIMEOUT_MS,
            stop_event=self._restart,
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


LONGEST_INTERVAL: Final = 300.0
RETRY_CHECK_SECONDS: Final = 1.0  # between two checks for signals that are due


class Failed(Exception):
    """A look failed; the text tells a person why."""


class Resolve(Protocol):
    """Puts secrets in the place of handles, for one destination (`secrets_resolve`)."""

    async def __call__(
        self, held: LeasedSensor, given: Mapping[str, Any], destination: Destination
    ) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class SourceRequest:
    """Where a sensor looks: the address with its parameters, and the headers, of which some hold secrets.

    `stays`: the address holds a secret, so no redirect leads elsewhere.
    """

    url: str
    headers: dict[str, str]
    secret: frozenset[str]
    stays: bool


@dataclass(frozen=True)
class SensorServices:
    """Services that a slice provides to its sensors."""

    hand_in: Callable[[Reading | Failure], Awaitable[bool]]
    loop_of: Callable[[int], int]
    calls: GuardedCalls
    resolve: Resolve
    client: StreamingClient
    fetches: asyncio.Semaphore
    queries: asyncio.Semaphore
    files: Executor
    threads: Executor  # for sources that are waited for: databases, mail servers
    watcher: FileChangeWatcher


class Sensing:
    """One sensor at work. Subclasses implement `run`."""

    pause: ClassVar[float] = 1.0  # seconds after the first failure, for sensors without an interval

    def __init__(self, held: LeasedSensor, services: SensorServices) -> None:
        self.held = held
        self.spec = held.spec
        self.services = services
        self.cursor: dict[str, Any] = dict(held.row.cursor)
        self.scoring = SignalScoring(held, services.calls)
        self.conditions = ConditionSignals(held)
        self.failures = held.row.failures
        self.busy = 0
        self._looks = 0
        self._result_lock = asyncio.Lock()

    async def work(self) -> None:
        """Run until it is cancelled or the slice loses the sensor."""
        self.conditions.start(self.loop_pk)
        retries = asyncio.create_task(self._retry_signals())
        try:
            await self.run()
        finally:
            retries.cancel()
            await asyncio.wait([retries])
            if not retries.cancelled() and (error := retries.exception()):
                logger.error("sensor %s: signals could not be retried", self.held.row.pk, exc_info=error)

    async def run(self) -> None:
        raise NotImplementedError

    async def sample(self) -> list[Any]:
        """Read the source once, for a trial; Failed if that is not possible. Nothing is kept."""
        raise NotImplementedError

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark the sensor busy: a slice that ends waits for it, up to its grace period."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    @asynccontextmanager
    async def _one_result(self) -> AsyncIterator[None]:
        with self.working():
            async with self._result_lock:
                yield

    @property
    def loop_pk(self) -> int:
        return self.services.loop_of(self.held.row.agent_id)

    @property
    def interval(self) -> float:
        return float(self.spec.interval or self.pause)

    def occurrence(self, source_id: str = "") -> str:
        """Return a name for what is about to be scored: from the source's own id, or a new one."""
        if source_id:
            return hashlib.sha256(source_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._looks += 1
        return f"{self.held.row.fencing}.{self._looks}"

    def seconds_until_due(self) -> float:
        """Return the seconds until the first look in this slice, never longer than the back-off."""
        if self.held.row.next_due_at is None:
            return 0.0
        left = (self.held.row.next_due_at - clock()).total_seconds()
        return min(max(left, 0.0), self._backoff())

    def _backoff(self) -> float:
        """Return the seconds to wait after the failures so far: never less than the interval."""
        return backoff(self.failures, first=self.interval, longest=LONGEST_INTERVAL)

    # --- Requests with secrets ---

    async def request(self) -> SourceRequest:
        """Return the request for the source, with the secrets themselves: for the client only."""
        source = self.spec.source
        address = str(source.address).partition("#")[0]
        given = {"params": source.params, "headers": source.headers}
        resolved = await self.with_secrets(given, lambda: destination_of(address))
        if params := {name: _parameter(value) for name, value in resolved["params"].items()}:
            address = f"{address}{'&' if '?' in address else '?'}{urlencode(params)}"
        secret = frozenset(name for name, value in source.headers.items() if has_handle(value))
        headers = {name: str(value) for name, value in resolved["headers"].items()}
        return SourceRequest(address, headers, secret, stays=has_handle(source.params))

    async def with_secrets(self, given: Mapping[str, Any], destination: Callable[[], Destination]) -> Mapping[str, Any]:
        """Return the given values with secrets in place of their handles; Failed if they may not go there."""
        if not has_handle(given):
            return given
        try:
            return await self.services.resolve(self.held, given, destination())
        except (BadHandle, SecretNotBound, UrlRefused) as error:
            raise Failed(str(error)) from None

    # --- Results ---

    async def hand_in_reading(
        self,
        items: Sequence[Any],
        *,
        occurrence: str = "",
        to_score: Sequence[Any] | None = None,
        mark: str = "",
        unchanged: bool = False,
        problem: str = "",
        due: float | None = None,
    ) -> bool:
        """Have a reading scored and written. False: the slice has lost the sensor.

        The signals score `to_score`, by default the items. A source that shows all it has each time gives a `mark`: a
        reading with the mark of the last is not scored again. `due` is the next look, on the monotonic clock.
        """
        async with self._one_result():
            if added := items if to_score is None else to_score:
                self.scoring.add(added, occurrence, mark)
            judged = self.conditions.judge(added, occurrence or self.occurrence())
            fired, problems = await self.scoring.score_due(self.loop_pk)
            self.failures = 0
            reading = Reading(
                self.held,
                clock(),
                items=tuple(items),
                unchanged=unchanged,
                cursor=dict(self.cursor),
                signals=self._signals(),
                fired=(*judged, *fired),
                problem="; ".join(filter(None, [problem, *problems])),
                faults=self._faults(),
                notice=self.scoring.notice(),
                next_due_at=None if due is None else _at(due - monotonic()),
            )
            return await self.services.hand_in(reading)

    async def _retry_signals(self) -> None:
        held = True
        while held:
            await asyncio.sleep(RETRY_CHECK_SECONDS)
            if (self.scoring.is_due() or self.conditions.is_due()) and not self._result_lock.locked():
                held = await self._hand_in_late_scores()

    async def _hand_in_late_scores(self) -> bool:
        """Hand in scores of data that were handed in before, and what time alone has changed."""
        async with self._one_result():
            judged = self.conditions.judge_time(self.occurrence())
            fired, problems = await self.scoring.score_due(self.loop_pk)
            reading = Reading(
                self.held,
                clock(),
                items=self.late_items(),
                late=True,
                signals=self._signals(),
                fired=(*judged, *fired),
                problem="; ".join(problems),
                faults=self._faults(),
                failing=self.failures > 0,
                notice=self.scoring.notice(),
            )
            return await self.services.hand_in(reading)

    def _signals(self) -> dict[str, Any]:
        return {**self.scoring.state(), **self.conditions.state()}

    def _faults(self) -> tuple[str, ...]:
        return (*self.scoring.faults(), *self.conditions.faults())

    def has_last_reading(self) -> bool:
        """Tell whether every signal was given the last reading."""
        return self.scoring.has_last_reading() and self.conditions.has_last_reading()

    def late_items(self) -> tuple[Any, ...]:
        """Return what a gated field gets when its signal fires late, if not the scored data."""
        return ()

    async def fail(self, problem: str) -> float | None:
        """Hand in a failure; return the seconds to wait, or None when the slice has lost the sensor."""
        self.failures += 1
        wait = self._backoff()
        held = await self.services.hand_in(
            Failure(
                held=self.held,
                at=clock(),
                problem=problem,
                failures=self.failures,
                wait_seconds=wait,
                cursor=dict(self.cursor),
                next_due_at=_at(wait),
            )
        )
        return wait if held else None


def secret_user(held: LeasedSensor, *, sensor: Sensor | None = None, **details: Any) -> SecretUser:
    """Return the user of a secret, for the audit log."""
    return SecretUser({"agent_id": str(held.row.agent.public_id), "sensor": held.spec.name, **details}, sensor)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(seconds: float) -> datetime:
    return clock() + timedelta(seconds=max(seconds, 0))
