"""A schedule reads every document once, whatever is attached while it fires. Uses real connections."""

import threading
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction

from agents.enums import Status, TriggerKind
from agents.knowledge import documents as knowledge
from agents.knowledge.documents import document_add, document_attach
from agents.knowledge.search import documents_new_in
from agents.models import AgentSession, Attachment, Collection, Trigger
from agents.triggers.schedules import schedules_fire, schedules_replan
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
def _short_runs(monkeypatch):
    """A run takes a tenth of what it does otherwise."""
    monkeypatch.setattr("agents.knowledge.search.RUN_CHARS", 20_000)


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
    since = session.spec.since
    if not since:
        return []
    collection = Collection.objects.get(public_id=session.params["collection"])
    found = documents_new_in(
        owner_id=session.owner_id,
        collection=collection,
        after=datetime.fromisoformat(since),
        until=datetime.fromisoformat(session.params.get("until") or session.created_at.isoformat()),
    )
    return [document.pk for document in found]


def test_document_added_while_a_schedule_fires_goes_to_the_next_run(collection, monkeypatch):
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


def test_run_waits_for_an_open_attachment(collection):
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


def test_documents_attached_during_firing_are_each_read_once(collection):
    fire(START)
    documents = [make_document(collection.owner, f"text {number}") for number in range(20)]
    read = []

    def work(number):
        if number == 0:
            for minute in range(1, 11):
                read.extend(fire(START + minute * MINUTE))
        else:
            for place, document in enumerate(documents[number - 1 :: 4]):
                # Asked for before the runs that take place meanwhile, or after them.
                document_attach(document=document, collection=collection, by=None, now=START + place * MINUTE)

    in_threads(5, work)
    read.extend(fire(START + HOUR))
    assert sorted(read) == sorted(document.pk for document in documents)


def test_document_added_after_a_clock_reset_is_read_once(collection):
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


def test_query_schedule_ends_its_period_in_every_collection(collection, schedule):
    """What is attached later, by a clock that is behind or after a long upload, is the next run's."""
    other, strange = make_collection(collection.owner, "other"), make_collection(make_user(), "strange")
    Trigger.objects.update(collection=None, query="fee")
    assert schedules_fire(now=START) == 1
    for one in (collection, other, strange):
        one.refresh_from_db()
    assert (collection.read_at, other.read_at, strange.read_at) == (START, START, None)
    late = make_document(collection.owner, "The fee.", collection=other, now=START - MINUTE)
    assert Attachment.objects.get(document=late).attached_at > START


def test_waiting_documents_are_read_by_a_query_set_meanwhile(collection, schedule):
    fire(START)
    first, second = put_in(collection, 150, 150)
    assert fire(START + HOUR) == [first]
    Trigger.objects.update(query="fee")
    assert fire(START + 2 * HOUR) == [second]
    schedule.refresh_from_db()
    assert schedule.read_up_to is None


# --- More than one run can read ---


def put_in(collection, *sizes, at=START + MINUTE):
    """Documents of these lengths, in hundreds of characters, all at the same time."""
    made = [
        make_document(collection.owner, f"{number}".ljust(size * 100, "x"), collection=collection, now=at)
        for number, size in enumerate(sizes)
    ]
    return [document.pk for document in made]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ((100, 100), [[0, 1]]),
        ((100, 101, 5), [[0], [1, 2]]),
        ((150, 150, 150), [[0], [1], [2]]),
        ((300, 1, 2), [[0], [1, 2]]),
        ((1, 300, 2), [[0], [1], [2]]),
        ((300, 300), [[0], [1]]),
        ((300,), [[0]]),
    ],
)
def test_documents_beyond_one_run_go_to_the_next_runs_in_order(collection, sizes, runs):
    fire(START)
    pks = put_in(collection, *sizes)
    read = [fire(START + number * HOUR) for number in range(1, len(runs) + 2)]
    assert read == [*([pks[number] for number in one] for one in runs), []]


def test_waiting_documents_come_before_new_ones(collection, schedule):
    fire(START)
    first, second = put_in(collection, 150, 150)
    assert fire(START + HOUR) == [first]
    schedule.refresh_from_db()
    assert schedule.read_up_to < schedule.last_run_at == START + HOUR

    third = make_document(collection.owner, "new", collection=collection, now=START + HOUR + MINUTE)
    assert fire(START + 2 * HOUR) == [second, third.pk]
    schedule.refresh_from_db()
    assert (schedule.read_up_to, schedule.last_run_at) == (None, START + 2 * HOUR)


def test_waiting_documents_are_read_once_after_a_clock_reset(collection):
    fire(START)
    first, second = put_in(collection, 150, 150, at=START + HOUR)
    assert fire(START + 2 * HOUR) == [first]
    schedules_replan(now=START + 2 * MINUTE)
    assert fire(START + 3 * MINUTE) == []  # what waits came in at a time that is still to come
    assert fire(START + 3 * HOUR) == [second]
    assert fire(START + 4 * HOUR) == []


def test_refused_firing_leaves_waiting_documents(collection, schedule):
    fire(START)
    first, second = put_in(collection, 150, 150)
    assert fire(START + HOUR) == [first]
    Trigger.objects.update(max_runs_per_hour=1)
    assert schedules_fire(now=START + HOUR + MINUTE) == 0
    Trigger.objects.update(max_runs_per_hour=1_000)
    assert fire(START + 2 * HOUR) == [second]


def test_documents_of_the_same_time_stay_together(collection):
    fire(START)
    pks = put_in(collection, 150, 150)
    Attachment.objects.update(attached_at=START + MINUTE)
    assert fire(START + HOUR) == pks  # the run says what it could not read of them
    assert fire(START + 2 * HOUR) == []
