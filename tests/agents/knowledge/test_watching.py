"""Attaching a document fires watches once, after the commit; a failing watch does not undo it."""

from datetime import timedelta

import pytest
from django.db import transaction

from agents.enums import TriggerKind
from agents.knowledge.documents import document_attach, document_detach
from agents.models import AgentSession, Attachment
from agents.triggers import watches
from agents.triggers.watches import watches_fire
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import NOW, make_trigger, make_user

pytestmark = pytest.mark.django_db(transaction=True)
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def collection(owner):
    return make_collection(owner)


@pytest.fixture
def told(monkeypatch):
    """Who was told, in place of the watches."""
    calls = []
    monkeypatch.setattr(watches, "watches_fire", lambda **what: calls.append(what))
    return calls


def watch(owner, collection):
    return make_trigger(owner=owner, kind=TriggerKind.WATCH, collection=collection)


def test_each_watch_starts_a_session_that_names_the_document(owner, collection):
    watches = {watch(owner, collection).pk, watch(owner, collection).pk}
    watch(owner, make_collection(owner, "other"))
    document = make_document(owner, collection=collection)

    sessions = AgentSession.objects.all()
    assert {session.trigger_id for session in sessions} == watches
    assert all(session.params["document"] == str(document.public_id) for session in sessions)
    assert Attachment.objects.get().watches_fired_at == NOW


def test_watches_fire_after_the_commit(owner, collection, told):
    document = make_document(owner)
    with transaction.atomic():
        attachment = document_attach(document=document, collection=collection, by=owner, now=LATER)
        assert told == []
    assert told == [{"attachment_pk": attachment.pk, "now": LATER}]


def test_rolled_back_attachment_fires_no_watch(owner, collection, told):
    document = make_document(owner)
    with pytest.raises(RuntimeError), transaction.atomic():
        document_attach(document=document, collection=collection, by=owner, now=NOW)
        raise RuntimeError("no")
    assert told == []
    assert not Attachment.objects.exists()


def test_failing_watch_does_not_undo_the_attachment(owner, collection, monkeypatch, caplog):
    def broken(**what):
        raise RuntimeError("the watch is broken")

    monkeypatch.setattr(watches, "watches_fire", broken)
    document = make_document(owner, collection=collection)

    attachment = Attachment.objects.get()
    assert (attachment.document, attachment.watches_fired_at) == (document, None)  # the ticker tells them later
    assert "the watch is broken" in caplog.text


def test_watch_notified_twice_starts_one_session(owner, collection):
    watch(owner, collection)
    make_document(owner, collection=collection)
    watches_fire(Attachment.objects.get().pk, now=LATER)
    make_document(owner, collection=collection)  # the same bytes, which are attached already
    assert AgentSession.objects.count() == 1


def test_attaching_again_after_detaching_is_a_new_event(owner, collection):
    watch(owner, collection)
    document = make_document(owner, collection=collection)
    document_detach(document=document, collection=collection, by=owner, now=NOW)
    document_attach(document=document, collection=collection, by=owner, now=LATER)
    assert AgentSession.objects.count() == 2


def test_document_without_a_collection_fires_no_watch(owner, told):
    make_document(owner)
    assert told == []
