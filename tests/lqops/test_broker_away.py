"""A broker that does not answer: what was committed stays, and nobody is taken for stuck."""

import os
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from django.db import transaction

from agents.conf import clock
from agents.management import supervisor
from agents.management.supervisor import Progress
from agents.models import AgentSession
from agents.queue import TaskName, enqueue, sending
from agents.sessions.control_room import health
from tests.factories import make_session


class BrokerAway(Exception):
    """As the client of a broker raises, which knows neither Django's errors nor the system's."""


@pytest.mark.django_db(transaction=True)
def test_a_commit_stands_when_the_broker_does_not_take_the_task(settings):
    settings.Q_CLUSTER = {"redis": "redis://127.0.0.1:1/0"}
    with patch("agents.queue.sending.async_task", side_effect=BrokerAway) as sent, transaction.atomic():
        session = make_session()
        enqueue(TaskName.RUN_SESSION, session.pk)
    assert sent.call_count == 1
    assert AgentSession.objects.filter(pk=session.pk).exists()


@pytest.mark.django_db
def test_supervisor_goes_on_when_the_queue_cannot_be_read(settings):
    settings.Q_CLUSTER = {"redis": "redis://127.0.0.1"}
    with patch.object(supervisor, "queue_length", side_effect=BrokerAway) as read:
        assert Progress().check() == ""
    assert read.call_count == 1


@pytest.fixture
def redis(settings, monkeypatch):
    """`redis(url)` makes that Redis the broker; nothing is known of it yet."""
    from agents.queue.redis import _client

    def use(url):
        settings.Q_CLUSTER = {"redis": url}
        monkeypatch.setattr(sending, "_broker", sending._Broker())
        monkeypatch.setattr(sending, "get_broker", lambda _: SimpleNamespace(connection=_client(url)))

    return use


@pytest.mark.redis
@pytest.mark.django_db
def test_redis_that_does_not_answer_is_red_and_figures_are_served_without_its_tasks(redis, settings, client):
    settings.LQOPS_METRICS_TOKEN = "a token of the test"
    redis("redis://127.0.0.1:1/0")
    assert "Redis does not answer (ConnectionError)" in " ".join(health(clock()).red)
    answer = client.get("/metrics", headers={"Authorization": "Bearer a token of the test"})
    assert answer.status_code == 200
    assert b"lqops_problems" in answer.content
    assert b"lqops_queue_tasks{" not in answer.content


@pytest.mark.redis
@pytest.mark.django_db
def test_redis_that_answers_is_no_fault(redis):
    redis(os.environ.get("LQOPS_TEST_REDIS_URL", "redis://127.0.0.1:6379/0"))
    assert sending.broker_fault() == ""


@pytest.mark.redis
def test_answer_of_the_broker_is_kept_for_some_seconds(redis):
    """A probe a second, and a server that hangs: each of them would wait for it."""
    redis("redis://127.0.0.1:1/0")
    assert sending.broker_fault() == "ConnectionError"
    with patch.object(sending, "get_broker", side_effect=AssertionError):
        assert sending.broker_fault() == "ConnectionError"
