"""With either broker: tasks that it lost are sent again, and a backlog keeps no other owner and no chat waiting."""

import pytest
from django.db import transaction

from agents.ask.chats import chat_send
from agents.enums import Status
from agents.models import AgentSession
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
