"""With either broker: tasks that it lost are sent again, and a backlog keeps no other owner and no chat waiting."""

import pytest
from django.db import transaction
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from agents.ask.chats import chat_send
from agents.enums import Status
from agents.models import AgentSession
from agents.queue import Queue, TaskName, enqueue
from tests.factories import start_run
from tests.flows.cluster import ended, now, running
from tests.flows.model_server import ModelServer
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)
BACKLOG = 5


@pytest.mark.parametrize(
    "broker", [pytest.param("orm", marks=pytest.mark.long), pytest.param("redis", marks=pytest.mark.redis)]
)
def test_backlog_of_one_owner_keeps_no_other_owner_and_no_chat_waiting(django_db_blocker, request, broker):
    """This process enqueues into the database: workers who look at Redis find nothing there, and the ticker must."""
    environment = {"LQOPS_WORKERS": "1"}
    if broker == "redis":
        environment["LQOPS_REDIS_URL"] = request.getfixturevalue("redis_url")
    with ModelServer() as model, running(django_db_blocker, {**model.environment, **environment}):
        busy, calm = Scene(), Scene()
        with transaction.atomic():  # all of them wait before the first is taken
            backlog = [start(busy) for _ in range(BACKLOG)]
            other = start(calm)
            chat = chat_send(owner=calm.owner, text="how are you?", by=calm.owner, now=now())
        assert {ended(run).status for run in (*backlog, other)} == {Status.COMPLETED}
        ended(chat)

        order = list(AgentSession.objects.order_by("started_at").values_list("pk", flat=True))
        assert order[0] == chat.pk
        assert other.pk in order[1:3]
        assert [pk for pk in order if pk in {run.pk for run in backlog}] == [run.pk for run in backlog]


def start(scene):
    return start_run(playbook=scene.playbook, document=scene.attach(), now=now(), **scene.by)


@pytest.fixture
def redis_broker(redis_url, settings, monkeypatch):
    """The broker of an installation with Redis, in this process."""
    settings.Q_CLUSTER = {"redis": redis_url}
    monkeypatch.setattr(Conf, "BROKER_CLASS", "agents.queue.redis.RedisBroker")
    monkeypatch.setattr(Conf, "REDIS", redis_url)
    return get_broker(Queue.MAIN.value)


@pytest.mark.redis
def test_tasks_are_sent_to_redis_by_the_connections_of_the_process(redis_broker):
    enqueue(TaskName.RUN_SESSION, 7)
    assert get_broker(Queue.SENSORS.value).connection is redis_broker.connection
    assert taken(redis_broker) == (7,)


@pytest.mark.redis
def test_redis_that_closes_its_connections_costs_no_task(redis_broker):
    client = redis_broker.connection
    client.client_kill_filter(_id=client.client_id(), skipme=False)
    enqueue(TaskName.RUN_SESSION, 7)
    client.client_kill_filter(_id=client.client_id(), skipme=False)
    assert taken(redis_broker) == (7,)


@pytest.mark.redis
def test_redis_that_is_away_has_no_task_and_is_looked_at_again_soon(redis_broker, monkeypatch, caplog):
    monkeypatch.setattr("agents.queue.redis.AWAY_SECONDS", 0.01)
    enqueue(TaskName.RUN_SESSION, 7)
    with monkeypatch.context() as away:
        away.setattr(Conf, "REDIS", "redis://127.0.0.1:1/0")
        assert get_broker(Queue.MAIN.value).dequeue() is None
    assert "the queue cannot be read (ConnectionError)" in caplog.text
    assert taken(redis_broker) == (7,)


def taken(broker):
    [[_, task]] = broker.dequeue()
    return SignedPackage.loads(task)["args"]
