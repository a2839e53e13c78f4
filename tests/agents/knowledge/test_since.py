"""A schedule reads every document once, whatever is being attached while it fires, with real connections."""

import threading
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction

from agents.enums import Status, TriggerKind
from agents.models import AgentSession, Attachment, Collection
from agents.selectors.knowledge import documents_new_in
from agents.services import knowledge
from agents.services.firing import schedules_fire
from agents.services.knowledge import document_add, document_attach
from agents.services.schedules import schedules_replan
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import NOW, make_trigger, make_user
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

START = NOW.replace(second=0)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def collection():
    return make_collection(make_user())


@pytest.fixture(autouse=True)
def schedule(collection):
    return make_trigger(
        owner=collection.owner,
        kind=TriggerKind.SCHEDULE,
        cron="* * * * *",
        zone="UTC",
        collection=collection,
        next_run_at=START,
        max_runs_per_hour=1_000,
    )


def fire(now):
    """Fires the schedule, ends its run at once, and says what the run was to read."""
    assert schedules_fire(now=now) == 1
    session = AgentSession.objects.latest("pk")
    AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=now)
    since = session.params["since"]
    if since is None:
        return []
    collection = Collection.objects.get(public_id=session.params["collection"])
    found = documents_new_in(
        owner_id=session.owner_id,
        collection=collection,
        after=datetime.fromisoformat(since),
        until=session.created_at,
    )
    return [document.pk for document in found]


def test_a_document_that_was_being_read_when_the_schedule_fired_is_the_next_run_s(collection, monkeypatch):
    assert fire(START) == []
    real = knowledge.extract

    def slow(*given, **more):
        assert fire(START + HOUR) == []  # meanwhile
        return real(*given, **more)

    monkeypatch.setattr(knowledge, "extract", slow)
    document, _ = document_add(
        owner=collection.owner,
        name="a.txt",
        data=b"late",
        by=None,
        now=START + HOUR - MINUTE,
        collection=collection,
    )
    assert fire(START + 2 * HOUR) == [document.pk]
    assert fire(START + 3 * HOUR) == []


def test_a_run_waits_for_what_is_being_attached(collection):
    fire(START)
    document = make_document(collection.owner)
    attached, go_on = threading.Event(), threading.Event()
    read = []

    def attaching():
        with transaction.atomic():
            document_attach(document=document, collection=collection, by=None, now=START + MINUTE)
            attached.set()
            go_on.wait(60)
        connection.close()

    def firing():
        attached.wait(60)
        read.append(fire(START + HOUR))
        connection.close()

    threads = [threading.Thread(target=work) for work in (attaching, firing)]
    for thread in threads:
        thread.start()
    threads[1].join(0.3)
    assert (read, threads[1].is_alive()) == ([], True)
    go_on.set()
    for thread in threads:
        thread.join()
    assert read == [[document.pk]]
    assert fire(START + 2 * HOUR) == []


def test_documents_attached_by_many_while_the_schedule_fires_are_each_read_once(collection):
    fire(START)
    documents = [make_document(collection.owner, f"text {number}") for number in range(40)]
    read = []

    def work(number):
        if number == 0:
            for minute in range(1, 21):
                read.extend(fire(START + minute * MINUTE))
        else:
            for place, document in enumerate(documents[number - 1 :: 4]):
                # Asked for before the runs that take place meanwhile, or after them.
                document_attach(document=document, collection=collection, by=None, now=START + place * MINUTE)

    in_threads(5, work)
    read.extend(fire(START + HOUR))
    assert sorted(read) == sorted(document.pk for document in documents)


def test_what_comes_in_after_the_clock_was_set_back_is_read_once(collection):
    fire(START)
    ahead = make_document(collection.owner, "ahead")
    document_attach(document=ahead, collection=collection, by=None, now=START + HOUR)
    assert fire(START + HOUR + MINUTE) == [ahead.pk]

    back = make_document(collection.owner, "back")
    document_attach(document=back, collection=collection, by=None, now=START + 2 * MINUTE)
    assert Attachment.objects.get(document=back).attached_at > START + HOUR + MINUTE
    schedules_replan(now=START + 2 * MINUTE)
    assert fire(START + 3 * MINUTE) == []
    assert fire(START + 2 * HOUR) == [back.pk]
    assert fire(START + 3 * HOUR) == []
