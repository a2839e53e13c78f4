"""The only door to the queue. It carries the name of a task and one id; what is due, and for whom, stands in our rows.

With the database as broker a task joins the transaction that asks for it. With Redis it is sent after the commit.
"""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import models, transaction
from django.db.models import Count, Min
from django_q.brokers import get_broker
from django_q.models import OrmQ
from django_q.tasks import async_task


class TaskName(models.TextChoices):
    """What a worker can be asked to do; each is a function of agents.tasks."""

    RUN_SESSION = "run_session"


def enqueue(task: TaskName, row_pk: int) -> None:
    if "orm" in settings.Q_CLUSTER:
        _send(task, row_pk)
    else:
        transaction.on_commit(lambda: _send(task, row_pk), robust=True)


def _send(task: TaskName, row_pk: int) -> None:
    async_task(f"agents.tasks.{task}", row_pk, task_name=f"{task}:{row_pk}", save=False)


@dataclass(frozen=True)
class Waiting:
    """Tasks that no worker has taken. Redis does not say how long they have waited."""

    count: int
    oldest_at: datetime | None = None


def waiting(now: datetime) -> Waiting:
    if "orm" not in settings.Q_CLUSTER:
        return Waiting(get_broker().queue_size())
    free = OrmQ.objects.filter(key=settings.Q_CLUSTER["name"], lock__lte=now)
    found = free.aggregate(count=Count("pk"), oldest=Min("lock"))
    return Waiting(found["count"], found["oldest"])
