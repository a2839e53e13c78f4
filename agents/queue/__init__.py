"""The task queues. The only importer of django-q.

A task is the name of a function and one id; our own rows say what is due. Sensors have a queue and workers of their
own, because one of their slices uses a worker for most of a minute.
"""

from agents.queue.cluster import run_cluster
from agents.queue.sending import (
    Queue,
    QueueLength,
    TaskName,
    broker_fault,
    count_tasks,
    enqueue,
    failed_tasks,
    in_open_transaction,
    load_tasks,
    may_have_tasks,
    prepare_tasks,
    queue_length,
)
from agents.queue.workers import let_worker_go_on, work_beside_others, worker_retire

__all__ = [
    "Queue",
    "QueueLength",
    "TaskName",
    "broker_fault",
    "count_tasks",
    "enqueue",
    "failed_tasks",
    "in_open_transaction",
    "let_worker_go_on",
    "load_tasks",
    "may_have_tasks",
    "prepare_tasks",
    "queue_length",
    "run_cluster",
    "work_beside_others",
    "worker_retire",
]
