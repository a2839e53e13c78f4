"""A slice: up to 250 sensors in one event loop for most of a minute; then they are released and handed out again.

The event loop waits for sources and never for the database. One thread reads and writes rows: results in batches, a few
transactions a second, and every second what the slice still holds and whether it was halted. A slice that cannot renew
its lease ends before anybody else may take its sensors.
"""

import asyncio
import logging
import os
import platform
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from time import monotonic
from typing import Any, Final, TypeVar

from django.db import DatabaseError, close_old_connections, connections

from agents.conf import clock, lease_lifetime, lease_renewal_seconds, sensor_slice_lifetime
from agents.definitions.schema import SensorSpec
from agents.enums import SensorKind
from agents.loop.pacing import next_day
from agents.models import AgentSession
from agents.net.streams import StreamingClient
from agents.policy.destinations import Destination
from agents.sensors.database import Query
from agents.sensors.feed import Feed
from agents.sensors.mailbox import Mailbox
from agents.sensors.poll import Poll
from agents.sensors.rows import (
    DAY,
    MOST_HELD,
    Failure,
    LeasedSensor,
    LeaseState,
    Reading,
    day_of,
    lease_state,
    leases_renew,
    sensor_session_is_needed,
    sensors_drop,
    sensors_lease,
    sensors_release,
)
from agents.sensors.sensing import Failed, FileChangeWatcher, Sensing, SensorServices, secret_user
from agents.sensors.signals import SensorCalls
from agents.sensors.stream import Stream
from agents.sensors.tail import Tail
from agents.sensors.validation import runnable
from agents.sensors.watch import Watch
from agents.sensors.writes import sensor_spawn, sensors_write
from agents.skills.handles import secrets_resolve
from agents.types import Asleep, End, Finished
from audit.redaction import redact_exception

LONGEST: Final = 240.0  # the queue ends a task after 300 seconds
CHECK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 0.2
MOST_WRITTEN: Final = 25  # in one transaction: other writers wait for it, on SQLite all of them
GRACE_SECONDS: Final = 1.5
CALLS_AT_ONCE: Final = 16
FETCHES_AT_ONCE: Final = 64
QUERIES_AT_ONCE: Final = 4  # each in a process of its own
SCANS_AT_ONCE: Final = 4
# By the key of the source; a stream reads a url, too.
KINDS: Final[dict[str, type[Sensing]]] = {
    "url": Poll,
    "tool": Poll,
    "items": Feed,
    "query": Query,
    "imap": Mailbox,
    "path": Watch,
    "tail": Tail,
}
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

# Shared with the workers: makes their slices finish early, where a worker would be let finish its minute. Made at the
# first import, before workers are forked. Without a lock: a worker that is killed cannot leave it locked.
_stop_requested = get_context("fork").RawValue("b", 0)


def request_stop() -> None:
    """Make the slices of all workers end early."""
    _stop_requested.value = 1


def asked_to_stop() -> bool:
    return bool(_stop_requested.value)


def sensing_class(spec: SensorSpec) -> type[Sensing]:
    return Stream if spec.type == SensorKind.STREAM else KINDS[spec.source.key]


def run_sensor_session(session: AgentSession) -> End:
    """The engine of sensor sessions outside of slices: end when the day or the loop is over."""
    now = clock()
    needed = session.params[DAY] == day_of(now) and sensor_session_is_needed(session)
    return Asleep(next_day(now)) if needed else Finished()


def run_slice(shard: int, *, seconds: float | None = None, over: Callable[[], bool] = asked_to_stop) -> int:
    """Run sensors until the time is up or `over` says so; return how many there were at the start."""
    if over():
        return 0
    duration = min(sensor_slice_lifetime().total_seconds() if seconds is None else seconds, LONGEST)
    return asyncio.run(Slice(shard, duration=duration, over=over).run())


class Slice:
    def __init__(self, shard: int, *, duration: float, over: Callable[[], bool]) -> None:
        self.owner = f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"[-96:]
        self._shard = shard
        self._duration = duration
        self._over = over
        self._rows = ThreadPoolExecutor(1, thread_name_prefix="sensor-rows")
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="sensor-call")
        self._files = ThreadPoolExecutor(SCANS_AT_ONCE, thread_name_prefix="sensor-file")
        self._running: dict[int, tuple[Sensing, asyncio.Task[None]]] = {}
        self._results: list[tuple[Reading | Failure, asyncio.Future[bool]]] = []
        self._to_spawn: list[LeasedSensor] = []
        self._leases = LeaseState({}, {})
        self._renewed_at = self._checked_at = monotonic()

    async def run(self) -> int:
        try:
            held = await self._in_rows(self._lease)
            self._to_spawn = [one for one in held if any("spawns" in state for state in one.row.signals.values())]
            if held:
                await self._run_sensors(held)
            return len(held)
        finally:
            self._rows.submit(connections.close_all)
            for pool in (self._rows, self._threads, self._files):
                pool.shutdown(wait=False)

    async def _run_sensors(self, held: list[LeasedSensor]) -> None:
        watcher = FileChangeWatcher()
        watching = asyncio.create_task(watcher.run())
        calls = SensorCalls(self.owner, self._threads)
        async with StreamingClient() as client:
            services = SensorServices(
                hand_in=self._hand_in,
                loop_of=lambda agent_id: self._leases.loops.get(agent_id, 0),
                calls=calls,
                resolve=self._resolve,
                client=client,
                fetches=asyncio.Semaphore(FETCHES_AT_ONCE),
                queries=asyncio.Semaphore(QUERIES_AT_ONCE),
                files=self._files,
                threads=self._threads,
                watcher=watcher,
            )
            try:
                self._leases = await self._in_rows(partial(self._read_leases, renew=True))
                self._start(held, services)
                await self._write_until_over(services)
            finally:
                watching.cancel()
                await self._end(calls)

    async def _write_until_over(self, services: SensorServices) -> None:
        """Write results until the time is up, a stop is requested, no sensor is left or the lease may be lost."""
        end = monotonic() + self._duration
        while monotonic() < end and not self._over():
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self._write()
                if monotonic() - self._checked_at >= CHECK_SECONDS:
                    await self._check_leases()
                    self._start(await self._in_rows(self._lease), services)
                    if not self._running:
                        return
            except DatabaseError:
                logger.warning("sensors: the database is unavailable; results are written later", exc_info=True)
            if monotonic() - self._renewed_at > lease_lifetime().total_seconds():
                logger.warning("sensors: the lease could not be renewed; the slice ends")
                return

    async def _end(self, calls: SensorCalls) -> None:
        """Stop all sensors, write their results, put sessions to rest, and release the sensors."""
        try:
            await self._finish_looks()
            await self._write()
            await calls.rest(GRACE_SECONDS)
            await self._in_rows(lambda: sensors_release(owner=self.owner, shard=self._shard, now=clock()))
        except DatabaseError:
            logger.warning("sensors: they could not be released; their lease runs out", exc_info=True)

    async def _finish_looks(self) -> None:
        """Give running looks a moment to end: the next slice would have to repeat them."""
        end = monotonic() + GRACE_SECONDS
        while tasks := [task for _, task in self._running.values()]:
            late = monotonic() > end
            for sensing, task in self._running.values():
                if (late or not sensing.busy) and not task.cancelling():  # once: it may be closing its connection
                    task.cancel()
            await asyncio.wait(tasks, timeout=WRITE_SECONDS / 4)
            await self._write()

    # --- Sensors ---

    def _start(self, held: list[LeasedSensor], services: SensorServices) -> None:
        for one in held:
            sensing = sensing_class(one.spec)(one, services)
            task = asyncio.create_task(_keep_working(sensing))
            self._running[one.row.pk] = sensing, task
            task.add_done_callback(partial(self._forget, one.row.pk))

    def _forget(self, pk: int, task: asyncio.Task[None]) -> None:
        if pk in self._running and self._running[pk][1] is task:
            del self._running[pk]

    async def _check_leases(self) -> None:
        """Stop sensors that the slice has lost or that may not go on; renew the lease of the rest in time."""
        self._checked_at = monotonic()
        renew = self._checked_at - self._renewed_at >= lease_renewal_seconds()
        self._leases = await self._in_rows(partial(self._read_leases, renew=renew))
        if renew:
            self._renewed_at = self._checked_at
        lost = [pk for pk, (sensing, _) in self._running.items() if not self._leases.holds(sensing.held)]
        for pk in lost:
            self._running.pop(pk)[1].cancel()
        if idle := self._leases.fencing.keys() - self._running.keys():
            await self._in_rows(lambda: sensors_drop(owner=self.owner, pks=idle, now=clock()))

    async def _hand_in(self, result: Reading | Failure) -> bool:
        """Wait until a result is written. False: the slice has lost the sensor."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._results.append((result, written))
        return await written

    async def _write(self) -> None:
        while self._results or self._to_spawn:
            await self._in_rows(self._spawn)
            batch = self._results[:MOST_WRITTEN]
            self._results = self._results[MOST_WRITTEN:]
            try:
                lost = await self._in_rows(partial(sensors_write, [result for result, _ in batch]))
            except BaseException:
                self._results = batch + self._results  # to be tried again
                raise
            for result, written in batch:
                held = result.held.row.pk not in lost
                if held and isinstance(result, Reading) and any(one.signal.spawn for one in result.fired):
                    self._to_spawn.append(result.held)
                if not written.done():
                    written.set_result(held)

    async def _resolve(
        self, held: LeasedSensor, given: Mapping[str, Any], destination: Destination
    ) -> Mapping[str, Any]:
        """Put secrets in the place of handles; each use is on record once a day. Failed without a database."""
        user = secret_user(held, sensor=held.row)
        resolve = partial(secrets_resolve, given, tuple(given), destinations=[destination], user=user)
        try:
            return await self._in_rows(lambda: resolve(now=clock()))
        except DatabaseError:
            raise Failed("the database is unavailable") from None

    # --- In the thread of rows ---

    async def _in_rows(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._rows, _with_fresh_connection, work)

    def _lease(self) -> list[LeasedSensor]:
        """Lease sensors that nobody holds, while there is room."""
        room = MOST_HELD - len(self._leases.fencing)
        return runnable(sensors_lease(owner=self.owner, now=clock(), limit=room) if room > 0 else [])

    def _read_leases(self, *, renew: bool) -> LeaseState:
        if renew:
            leases_renew(owner=self.owner, now=clock())
        return lease_state(owner=self.owner)

    def _spawn(self) -> None:
        """Spawn runs. A database error keeps the rest for the next time."""
        while self._to_spawn:
            held = self._to_spawn[0]
            try:
                sensor_spawn(held, now=clock())
            except DatabaseError:
                raise
            except Exception:
                logger.exception("sensor %s could not spawn a run; the next slice tries again", held.row.pk)
            self._to_spawn.pop(0)


async def _keep_working(sensing: Sensing) -> None:
    """Run a sensor; whatever it raises is a failure of its own, and it is started again after a wait."""
    wait: float | None = 0.0
    while wait is not None:
        await asyncio.sleep(wait)
        wait = None
        try:
            await sensing.work()
        except Exception as error:
            logger.exception("sensor %s failed", sensing.held.row.pk)
            wait = await sensing.fail(redact_exception(error))


def _with_fresh_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    except DatabaseError:
        connections.close_all()
        raise
