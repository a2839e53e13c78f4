"""Users without the permission to start sessions cannot start one through any route."""

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from agents.accounts import roles_sync
from agents.conf import clock
from agents.models import AgentSession
from agents.triggers.watches import watches_fire_unfired
from tests.factories import make_trigger, make_user

from .conftest import client_of
from .test_audit_trail import ACTS, CHANGING, public, sent, staged
from .world import make_world

pytestmark = pytest.mark.django_db
# Acts that are refused to such a user. The table of all acts is in test_audit_trail.py.
STARTED = {
    *(f"agent:{act}" for act in ("start", "restart", "resume", "define", "import_yaml", "try_sensors")),
    *(
        "chat:create",
        "document:create",
        "document:attach",
        "event:create",
        "model-test:post",
        "run-now:post",
        "session:restart",
        "session:resume",
    ),
    *(f"trigger:{act}" for act in ("create", "partial_update", "resume", "rotate_secret", "run", "set_cap", "caps")),
    "unread-input:retry",
}


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_no_route_starts_a_session_without_permission(role, django_capture_on_commit_callbacks, some):
    roles_sync(apps=apps, using="default")
    world = make_world(make_user())
    world.owner.groups.add(Group.objects.get(name=role))
    watched = {"playbook": world.rows["playbook"], "collection": world.rows["collection"]}
    make_trigger(owner=world.owner, kind="watch", **watched)
    refused = set()
    acts = some(ACTS, 8, start=["viewer", "approver"].index(role))
    for name in acts:
        with staged(name, world) as by_api:
            before = AgentSession.objects.count()
            with django_capture_on_commit_callbacks(execute=True):
                answer = sent(by_api)
            assert answer.status_code != 500, (name, answer.content)
            if answer.status_code == 403 and "agents.add_agentsession" in answer.json()["message"]:
                refused.add(name)
            watches_fire_unfired(now=clock())
            assert AgentSession.objects.count() == before, name
    assert refused == STARTED & set(acts)


def test_attaching_to_an_unwatched_collection_is_allowed():
    world = make_world(make_user())
    answer = client_of(world.owner).post(
        CHANGING["document:attach"].address(world), {"collection": public(world.rows["collection"])}, format="json"
    )
    assert answer.status_code == 200
