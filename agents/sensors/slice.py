"""A slice: up to 250 sensors in one event loop for most of a minute, then they are given back and handed out anew.

The loop waits for sources; it never waits for the database. One thread reads and writes rows: results in batches, a few
transactions a second; every second it looks what is still ours, and whether anybody has halted it. A slice whose lease
cannot be renewed stops by itself before anybody else may take its sensors.
"""

import asyncio
import logging
import os
import platform
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from time import monotonic
from typing import Any, Final, TypeVar

from django.db import DatabaseError, close_old_connections, connections

from agents.conf import clock, heartbeat_seconds, lease_lifetime, sensor_slice_lifetime
from agents.enums import SensorKind
from agents.models import AgentSession
from agents.net.streams import StreamingClient
from agents.sensors.poll import Poll
from agents.sensors.rows import (
    DAY,
    MOST_HELD,
    Failure,
    Held,
    Reading,
    Standing,
    day_of,
    end_of_day,
    is_needed,
    sensor_sessions_renew,
    sensors_adopt,
    sensors_drop,
    sensors_lease,
    sensors_release,
    sensors_renew,
    sensors_standing,
)
from agents.sensors.sensing import Desk, Hints, Sensing
from agents.sensors.signals import Asking
from agents.sensors.stream import Stream
from agents.sensors.validation import fitting
from agents.sensors.watch import Watch
from agents.sensors.writes import sensor_spawn, sensors_write
from agents.types import Asleep, End, Finished
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)


# --- The engine of sensor sessions outside of slices: one whose day is over, or whose loop has stopped, ends ---


def sensor_day(session: AgentSession) -> End:
    now = clock()
    return Asleep(end_of_day(now)) if session.params[DAY] == day_of(now) and is_needed(session) else Finished()


# --- Asked to stop: one bit that the process which starts the workers shares with them ---
#
# A slice takes a worker for most of a minute, and workers are let finish what they do; this makes slices finish
# early. It is shared memory without a lock: a worker that is killed cannot leave it locked behind.


# Made when the module is first imported, which must be before the workers are forked.
_asked = get_context("fork").RawValue("b", 0)


def ask_to_stop() -> None:
    _asked.value = 1


def asked_to_stop() -> bool:
    return bool(_asked.value)


Result = TypeVar("Result")

LONGEST: Final = 240.0  # the queue ends a task after 300 seconds
LOOK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 0.2
MOST_WRITTEN: Final = 25  # in one transaction: others wait for it, on SQLite all of them
GRACE_SECONDS: Final = 1.5
CALLS_AT_ONCE: Final = 16
FETCHES_AT_ONCE: Final = 64
SCANS_AT_ONCE: Final = 4
KINDS: Final[dict[str, type[Sensing]]] = {
    SensorKind.POLL: Poll,
    SensorKind.WATCH: Watch,
    SensorKind.STREAM: Stream,
}


def run_slice(
    shard: int, *, seconds: float | None = None, second: float = 1.0, over: Callable[[], bool] = asked_to_stop
) -> int:
    """Minds sensors until its time is over, or `over` says so; returns how many it had."""
    if over():
        return 0
    lasts = min(sensor_slice_lifetime().total_seconds() if seconds is None else seconds, LONGEST)
    return asyncio.run(Slice(shard, lasts=lasts, second=second, over=over).run())


class Slice:
    def __init__(self, shard: int, *, lasts: float, second: float, over: Callable[[], bool]) -> None:
        self.owner = f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"[-96:]
        self._shard, self._lasts, self._second, self._over = shard, lasts, second, over
        self._rows = ThreadPoolExecutor(1, thread_name_prefix="sensor-rows")
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="sensor-call")
        self._files = ThreadPoolExecutor(SCANS_AT_ONCE, thread_name_prefix="sensor-file")
        self._at_work: dict[int, tuple[Sensing, asyncio.Task[None]]] = {}
        self._waiting: list[tuple[Reading | Failure, asyncio.Future[bool]]] = []
        self._spawning: list[Held] = []
        self._standing = Standing({}, {})
        self._renewed = self._looked = monotonic()

    async def run(self) -> int:
        try:
            held = await self._in_rows(partial(_leased, self.owner, self._standing))
            self._spawning = [one for one in held if any("spawns" in state for state in one.signals.values())]
            if held:
                await self._mind(held)
            return len(held)
        finally:
            self._rows.submit(connections.close_all)
            for pool in (self._rows, self._threads, self._files):
                pool.shutdown(wait=False)

    async def _mind(self, held: list[Held]) -> None:
        hints = Hints()
        watching = asyncio.create_task(hints.run())
        asking = Asking(self.owner, self._threads)
        async with StreamingClient() as client:
            desk = Desk(
                hand_in=self._hand_in,
                loop_of=self._loop_of,
                asking=asking,
                client=client,
                fetches=asyncio.Semaphore(FETCHES_AT_ONCE),
                files=self._files,
                hints=hints,
                second=self._second,
            )
            try:
                self._standing = await self._in_rows(partial(_stood, self.owner, renew=True))
                self._begin(held, desk)
                await self._go_on(desk)
            finally:
                watching.cancel()
                await self._end(asking)

    async def _go_on(self, desk: Desk) -> None:
        """Until the time is over, somebody asks for the end, nothing is left to mind, or the lease may be lost."""
        end = monotonic() + self._lasts
        while monotonic() < end and not self._over():
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self._write()
                if monotonic() - self._looked >= LOOK_SECONDS:
                    await self._look()
                    self._begin(await self._in_rows(partial(_leased, self.owner, self._standing)), desk)
                    if not self._at_work:
                        return
            except DatabaseError:
                logger.warning("sensors: the database is away; what was read is kept and written later", exc_info=True)
            if monotonic() - self._renewed > lease_lifetime().total_seconds():
                logger.warning("sensors: the lease could not be renewed; the slice ends")
                return

    async def _end(self, asking: Asking) -> None:
        """Nothing looks any more; what was found is written, sessions rest, and the sensors are given back."""
        try:
            await self._finish_looks()
            await self._write()
            await asking.rest(GRACE_SECONDS)
            await self._in_rows(lambda: sensors_release(owner=self.owner, shard=self._shard, now=clock()))
        except DatabaseError:
            logger.warning("sensors: they could not be given back; their lease runs out", exc_info=True)

    async def _finish_looks(self) -> None:
        """Looks that are under way have a moment to end: cut off, they would be made again by the next slice."""
        end = monotonic() + GRACE_SECONDS
        while tasks := [task for _, task in self._at_work.values()]:
            late = monotonic() > end
            for sensing, task in self._at_work.values():
                if late or not sensing.busy:
                    task.cancel()
            await asyncio.wait(tasks, timeout=WRITE_SECONDS / 4)
            await self._write()

    # --- Sensors at work ---

    def _begin(self, held: list[Held], desk: Desk) -> None:
        for one in held:
            sensing = KINDS[one.spec.type](one, desk)
            task = asyncio.create_task(self._kept_at_work(sensing))
            self._at_work[one.pk] = sensing, task
            task.add_done_callback(partial(self._left, one.pk))

    async def _kept_at_work(self, sensing: Sensing) -> None:
        """Whatever a sensor raises is a failure of its own: it waits, and is begun again."""
        wait: float | None = 0.0
        while wait is not None:
            await asyncio.sleep(wait)
            wait = None
            try:
                await sensing.work()
            except Exception as error:
                logger.exception("sensor %s failed", sensing.held.pk)
                wait = await sensing.fail(redact_exception(error))

    def _left(self, pk: int, task: asyncio.Task[None]) -> None:
        if pk in self._at_work and self._at_work[pk][1] is task:
            del self._at_work[pk]

    def _loop_of(self, agent_id: int) -> int:
        return self._standing.loops.get(agent_id, 0)

    async def _look(self) -> None:
        """What is still ours, and may go on. What is not, stops now; the lease of the rest is renewed in time."""
        self._looked = monotonic()
        renew = self._looked - self._renewed >= heartbeat_seconds()
        self._standing = await self._in_rows(partial(_stood, self.owner, renew=renew))
        if renew:
            self._renewed = self._looked
        gone = [pk for pk, (sensing, _) in self._at_work.items() if not self._standing.holds(sensing.held)]
        for pk in gone:
            self._at_work.pop(pk)[1].cancel()
        if idle := self._standing.fencing.keys() - self._at_work.keys():
            await self._in_rows(lambda: sensors_drop(owner=self.owner, pks=idle, now=clock()))

    # --- Rows ---

    async def _hand_in(self, result: Reading | Failure) -> bool:
        """Waits until it is written. False when the sensor is not ours any more."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, written))
        return await written

    async def _write(self) -> None:
        while self._waiting or self._spawning:
            await self._in_rows(partial(_spawned, self._spawning))
            batch, self._waiting = self._waiting[:MOST_WRITTEN], self._waiting[MOST_WRITTEN:]
            try:
                lost = await self._in_rows(partial(_written, [result for result, _ in batch]))
            except BaseException:
                self._waiting = batch + self._waiting  # to be tried again
                raise
            for result, written in batch:
                mine = result.held.pk not in lost
                if mine and isinstance(result, Reading) and any(fired.spawn for fired in result.fired):
                    self._spawning.append(result.held)
                if not written.done():
                    written.set_result(mine)

    async def _in_rows(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._rows, partial(_fresh, work))


def _fresh(work: Callable[[], Any]) -> Any:
    close_old_connections()
    try:
        return work()
    except DatabaseError:
        connections.close_all()
        raise


def _leased(owner: str, standing: Standing) -> list[Held]:
    """Sensors that were added to the agents at hand, and, while there is room, any that nobody holds."""
    added = sensors_adopt(owner=owner, agent_ids=standing.loops, now=clock()) if standing.loops else []
    room = MOST_HELD - len(standing.fencing) - len(added)
    return fitting([*added, *(sensors_lease(owner=owner, now=clock(), limit=room) if room > 0 else [])])


def _stood(owner: str, *, renew: bool) -> Standing:
    if renew:
        sensors_renew(owner=owner, now=clock())
        sensor_sessions_renew(owner=owner, now=clock())
    return sensors_standing(owner=owner)


def _written(results: list[Reading | Failure]) -> set[int]:
    return {result.held.pk for result in sensors_write(results)} if results else set()


def _spawned(held: list[Held]) -> None:
    """Takes them off the list one by one. What the database keeps from being done is done first the next time."""
    while held:
        try:
            sensor_spawn(held[0], now=clock())
        except DatabaseError:
            raise
        except Exception:
            logger.exception("sensor %s could not spawn a run; the next slice tries again", held[0].pk)
        held.pop(0)
