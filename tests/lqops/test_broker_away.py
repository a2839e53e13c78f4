"""A broker that does not answer: what was committed stays, and nobody is taken for stuck."""

from unittest.mock import patch

import pytest
from django.db import transaction

from agents.management import supervisor
from agents.management.supervisor import Progress
from agents.models import AgentSession
from agents.queue import TaskName, enqueue
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
