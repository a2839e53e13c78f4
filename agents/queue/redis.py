"""Redis as broker."""

import logging
from functools import cache
from multiprocessing.connection import wait
from typing import Any, Final

from django_q.brokers.redis_broker import Redis
from django_q.conf import Conf
from redis import Redis as Client
from redis import RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from agents.queue.workers import stopping_handles

logger = logging.getLogger(__name__)

AWAY_SECONDS: Final = 0.5  # between two looks while Redis is away
ANSWER_SECONDS: Final = 5.0  # longer than it waits for a task
IDLE_SECONDS: Final = 30  # a connection that was not used for so long is tried first


@cache
def _client(url: str) -> Client:
    """Return the connections of this process: a new one for each task would take longer than the task is sent.

    One that was lost while nobody used it is noticed, and made anew. Options in the address win.
    """
    client: Client = Client.from_url(
        url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        socket_keepalive=True,
        health_check_interval=IDLE_SECONDS,
        retry=Retry(NoBackoff(), 1),
    )
    return client


class RedisBroker(Redis):  # type: ignore[misc]  # django-q ships no types
    """Goes on when Redis comes back; an error would cost django-q ten seconds."""

    @staticmethod
    def get_connection(list_key: str | None = None) -> Client:
        return _client(Conf.REDIS)

    def dequeue(self) -> list[tuple[Any, bytes]] | None:
        """Take a task. While Redis is away there is none."""
        try:
            found: list[tuple[Any, bytes]] | None = super().dequeue()
        except RedisError as error:
            logger.warning("the queue cannot be read (%s); retrying", type(error).__name__)
            self.connection.connection_pool.disconnect()  # the address may be that of another server by now
            wait(stopping_handles(), AWAY_SECONDS)
            return None
        return found
