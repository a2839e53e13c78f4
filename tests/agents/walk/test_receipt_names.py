"""The page of a receipt: names beside the ids, for those who may see the things that are named."""

import pytest
from django.contrib.auth.models import Permission

from agents.models import AgentSession
from agents.people.outbox import receipt_path
from tests.agents.walk.scene import model, run
from tests.factories import make_agent, make_trigger, make_user

pytestmark = pytest.mark.django_db
NAMES = ("agent Contract clerk (no. ", "; Night watch <code>", "lease.txt <code>")


@pytest.fixture
def session(scene):
    agent = make_agent(owner=scene.owner, name="Contract clerk")
    made = scene.of_document(trigger=make_trigger(owner=scene.owner, name="Night watch"))
    AgentSession.objects.filter(pk=made.pk).update(agent=agent)
    with model():
        return run(made)


def named(client, user, session):
    client.force_login(user)
    page = client.get(receipt_path(session)).content.decode()
    assert "events intact" in page
    return [name in page for name in NAMES]


def make_auditor(*more):
    auditor = make_user()
    auditor.user_permissions.set(Permission.objects.filter(codename__in=["view_auditevent", *more]))
    return auditor


def test_the_owner_reads_the_names_of_agent_trigger_and_documents(client, session):
    assert named(client, session.owner, session) == [True, True, True]


def test_whoever_may_read_the_record_alone_reads_no_names(client, session):
    assert named(client, make_auditor(), session) == [False, False, False]
    assert named(client, make_auditor("view_agent"), session) == [True, False, False]
    assert named(client, make_auditor("view_document"), session) == [False, False, True]


def test_names_are_no_part_of_the_receipt(client, session):
    client.force_login(session.owner)
    receipt = client.get(f"/receipts/{session.chain}.json").content.decode()
    assert not any(word in receipt + str(session.result) for word in ("Contract clerk", "Night watch", "lease.txt"))


def test_a_run_that_was_deleted_has_its_receipt_without_names(client, session, admin_user):
    path = receipt_path(session)
    session.tool_calls.all().delete()
    AgentSession.objects.filter(pk=session.pk).delete()
    client.force_login(admin_user)
    answer = client.get(path)
    assert (answer.status_code, "lease.txt" in answer.content.decode()) == (200, False)
