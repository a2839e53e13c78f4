"""A task that Redis lost is found again by its row."""

import pytest

from agents.enums import Status
from tests.factories import start_run
from tests.flows.cluster import ended, now, running
from tests.flows.model_server import ModelServer
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)


def test_task_that_redis_lost_is_found_again(django_db_blocker, redis_url):
    environment = {"LQOPS_REDIS_URL": redis_url, "LQOPS_WORKERS": "1"}
    with ModelServer() as model, running(django_db_blocker, {**model.environment, **environment}):
        scene = Scene()
        # This process enqueues into the database, where the workers, who look at Redis, never find it: the ticker must.
        lost = start_run(playbook=scene.playbook, document=scene.attach(), now=now(), **scene.by)

        assert ended(lost).status == Status.COMPLETED
