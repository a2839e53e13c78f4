"""Tasks: the names of functions and ids of rows, sent to a queue. With the database as broker a task joins the
transaction that enqueues it. With Redis it is sent after the commit.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Final

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, models, transaction
from django.db.models import Count, Min
from django_q.brokers import get_broker
from django_q.models import OrmQ, Task
from django_q.tasks import async_task

from agents.conf import clock
from agents.database_clock import shared

TASKS: Final = "agents.tasks"
BROKER_KEPT_SECONDS: Final = 5.0


class TaskName(models.TextChoices):
    """Functions of agents.tasks that a worker can run."""

    RUN_SESSION = "run_session"
    SENSOR_SLICE = "sensor_slice"


class Queue(models.TextChoices):
    MAIN = "lqops"
    SENSORS = "sensors"


_QUEUES = {TaskName.RUN_SESSION: Queue.MAIN, TaskName.SENSOR_SLICE: Queue.SENSORS}


def enqueue(task: TaskName, row_pk: int) -> None:
    def send() -> None:
        name = f"{task}:{row_pk}"
        async_task(f"{TASKS}.{task}", row_pk, task_name=name, save=False, cluster=_QUEUES[task].value)

    if "orm" in settings.Q_CLUSTER:
        send()
    else:
        transaction.on_commit(send, robust=True)


def failed_tasks(before: datetime) -> models.QuerySet[Any]:
    """Return the tasks that failed before this time; those that succeed are not saved."""
    rows: models.QuerySet[Any] = Task.objects.filter(stopped__lt=before)
    return rows


@dataclass(frozen=True)
class QueueLength:
    """Tasks that no worker has taken. Redis does not know how long they have waited."""

    count: int
    oldest_at: datetime | None = None


def queue_length(now: datetime, queue: Queue = Queue.MAIN) -> QueueLength:
    if "orm" not in settings.Q_CLUSTER:
        return QueueLength(get_broker(queue.value).queue_size())
    free = OrmQ.objects.filter(key=queue.value, lock__lte=now)
    found = free.aggregate(count=Count("pk"), oldest=Min("lock"))
    return QueueLength(found["count"], found["oldest"])


def broker_fault() -> str:
    """Return why the broker cannot be used; empty if it answers, and with the database as broker.

    The answer is kept for some seconds, so that pages and probes do not wait for a server that hangs one by one.
    """
    if "orm" in settings.Q_CLUSTER:
        return ""
    from redis import RedisError  # it is not installed with the embedded default

    if time.monotonic() >= _broker.asked_at + BROKER_KEPT_SECONDS:
        try:
            get_broker(Queue.MAIN.value).connection.ping()
            _broker.fault = ""
        except RedisError as error:
            _broker.fault = type(error).__name__
        _broker.asked_at = time.monotonic()
    return _broker.fault


class _Broker:
    """What was last seen of the broker."""

    asked_at = float("-inf")
    fault = ""


_broker = _Broker()


def may_have_tasks() -> bool:
    """Return whether the main queue holds a task, taken or not; also where only the queue itself could tell."""
    return "orm" not in settings.Q_CLUSTER or OrmQ.objects.filter(key=Queue.MAIN.value).exists()


def count_tasks(*, most: int) -> int:
    """Count the tasks of the main queue that no worker has taken, up to a number."""
    if "orm" not in settings.Q_CLUSTER:
        return min(queue_length(clock()).count, most)
    return int(OrmQ.objects.filter(key=Queue.MAIN.value, lock__lte=shared(clock()))[:most].count())


def load_tasks() -> None:
    """Import what tasks need, once, before workers are forked."""
    import_module(TASKS)


def prepare_tasks() -> None:
    """Do once, before forking, what every worker would do before its first task."""
    import_module(TASKS).prepare()


def in_open_transaction() -> bool:
    """True inside a transaction. The wrapper of a test case does not count, as for atomic(durable=True)."""
    blocks = connections[DEFAULT_DB_ALIAS].atomic_blocks
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)
