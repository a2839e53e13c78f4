"""Two clusters on one database run each session once; a task that Redis lost is found again by its row."""

import pytest

from agents.enums import Status
from agents.models import AgentSession
from agents.services.firing import run_now
from audit.models import AuditEvent
from tests.flows.cluster import ended, now, running
from tests.flows.model_server import ModelServer
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_clusters_run_thirty_sessions_each_once(django_db_blocker):
    with ModelServer() as model, running(django_db_blocker, model.environment, clusters=2):
        scene = Scene()
        document = scene.attach()
        sessions = [run_now(playbook=scene.playbook, document=document, now=now(), **scene.by) for _ in range(30)]
        for session in sessions:
            assert ended(session, 90).status == Status.COMPLETED

        assert len(model.requests) == 30
        starts = AuditEvent.objects.filter(kind="autonomous_session.started")
        assert starts.count() == len(sessions) == AgentSession.objects.count()


def test_task_that_redis_lost_is_found_again(django_db_blocker, redis_url):
    environment = {"LQOPS_REDIS_URL": redis_url}
    with ModelServer() as model, running(django_db_blocker, {**model.environment, **environment}):
        scene = Scene()
        # This process enqueues into the database, where the workers, who look at Redis, never find it: the ticker must.
        lost = run_now(playbook=scene.playbook, document=scene.attach(), now=now(), **scene.by)

        assert ended(lost).status == Status.COMPLETED
