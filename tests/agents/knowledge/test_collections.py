"""Collections: names, permissions, and what deletion means for their documents."""

from contextlib import suppress
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission

from agents.exceptions import Invalid, NotFound
from agents.knowledge.documents import (
    collection_create,
    collection_delete,
    collection_rename,
    document_attach,
    document_delete,
    document_detach,
)
from agents.knowledge.search import collection_get, collection_named, document_get
from agents.models import Attachment, Collection, Document, Trigger
from agents.triggers.triggers import trigger_create
from audit.models import AuditEvent
from tests.agents.knowledge.samples import make_collection, make_document
from tests.agents.triggers.rows import make_skill
from tests.factories import NOW, make_user
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def owner():
    return make_user()


def kinds():
    return list(AuditEvent.objects.order_by("id").values_list("kind", flat=True))


def test_created_collection_is_recorded(owner):
    collection = collection_create(owner=owner, name="  Vendor\ncontracts ", by=owner, now=NOW)

    assert (collection.name, collection.owner, collection.created_at) == ("Vendor contracts", owner, NOW)
    event = AuditEvent.objects.get()
    assert (event.kind, event.actor) == ("collection.created", f"user:{owner.pk}")
    assert event.details == {"collection_id": str(collection.public_id)}


@pytest.mark.parametrize("name", ["", "  \n", "\x00"])
def test_collection_needs_a_name(owner, name):
    with pytest.raises(Invalid, match="needs a name"):
        collection_create(owner=owner, name=name, by=owner, now=NOW)


def test_name_is_unique_per_owner(owner):
    make_collection(owner)
    make_collection(make_user())
    with pytest.raises(Invalid, match="'contracts' exists already"):
        make_collection(owner)
    other = make_collection(owner, "other")
    with pytest.raises(Invalid, match="choose another"):
        collection_rename(collection=other, name="contracts", by=owner, now=NOW)


def test_collection_is_renamed_once(owner):
    collection = make_collection(owner)
    collection_rename(collection=collection, name="leases", by=owner, now=NOW)
    collection_rename(collection=collection, name="leases", by=owner, now=NOW)

    assert Collection.objects.get().name == "leases"
    assert kinds() == ["collection.created", "collection.edited"]
    assert AuditEvent.objects.last().details["fields"] == ["name"]


def test_documents_stay_when_their_collection_is_deleted(owner):
    collection = make_collection(owner)
    document = make_document(owner, collection=collection)
    collection_delete(collection=collection, by=owner, now=LATER)

    assert Attachment.objects.get().detached_at == LATER
    assert Document.objects.get().deleted_at is None
    assert collection_named(owner_id=owner.pk, name="contracts") is None
    for gone in (
        lambda: collection_get(owner_id=owner.pk, public_id=collection.public_id),
        lambda: collection_delete(collection=collection, by=owner, now=LATER),
        lambda: collection_rename(collection=collection, name="x", by=owner, now=LATER),
        lambda: document_attach(document=document, collection=collection, by=owner, now=LATER),
        lambda: make_document(owner, "other words", collection=Collection.objects.get()),
    ):
        with pytest.raises(NotFound):
            gone()
    assert make_collection(owner).pk != collection.pk  # the name is free again
    assert kinds()[-2:] == ["collection.deleted", "collection.created"]


def counted():
    """What each collection counts, and what is in it."""
    inside = Attachment.objects.filter(detached_at__isnull=True)
    return {row.name: (row.documents, inside.filter(collection=row).count()) for row in Collection.objects.all()}


def test_collections_count_their_documents(owner):
    first, second = make_collection(owner, "first"), make_collection(owner, "second")
    one, two = make_document(owner, "one", collection=first), make_document(owner, "two", collection=first)
    document_attach(document=one, collection=first, by=owner, now=NOW)  # once more changes nothing
    document_attach(document=one, collection=second, by=owner, now=NOW)
    assert counted() == {"first": (2, 2), "second": (1, 1)}

    document_detach(document=two, collection=first, by=owner, now=LATER)
    with pytest.raises(NotFound):
        document_detach(document=two, collection=first, by=owner, now=LATER)
    assert counted() == {"first": (1, 1), "second": (1, 1)}

    document_delete(document=one, by=owner, now=LATER)
    document_attach(document=two, collection=second, by=owner, now=LATER)
    assert counted() == {"first": (0, 0), "second": (1, 1)}

    collection_delete(collection=second, by=owner, now=LATER)
    assert counted() == {"first": (0, 0), "second": (0, 0)}


def test_a_count_that_is_too_low_keeps_nobody_from_detaching(owner):
    collection = make_collection(owner)
    document = make_document(owner, collection=collection)
    Collection.objects.update(documents=0)
    document_detach(document=document, collection=collection, by=owner, now=LATER)
    assert counted() == {"contracts": (0, 0)}


@pytest.mark.django_db(transaction=True)
def test_documents_are_counted_once_however_many_people_attach_detach_and_delete_at_once(owner):
    collections = [make_collection(owner, name) for name in ("first", "second")]
    documents = [make_document(owner, f"document {number}") for number in range(4)]

    def act(number):
        document, collection = documents[number % 4], collections[number % 2]
        with suppress(NotFound):
            document_attach(document=document, collection=collection, by=owner, now=NOW)
            if number % 3:
                document_attach(document=document, collection=collections[(number + 1) % 2], by=owner, now=NOW)
            if number % 3 == 1:
                document_detach(document=document, collection=collection, by=owner, now=LATER)
            if number in {8, 11}:
                document_delete(document=document, by=owner, now=LATER)
            if number == 10:
                collection_delete(collection=collections[0], by=owner, now=LATER)

    in_threads(12, act)

    assert all(number == inside for number, inside in counted().values())
    assert counted()["first"] == (0, 0)  # it was deleted


def leave(document, collection):
    document_detach(document=document, collection=collection, by=None, now=LATER)


def delete(document, collection):
    document_delete(document=document, by=None, now=LATER)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("go", [leave, delete])
def test_documents_come_and_go_at_once(owner, go):
    """Whoever adds one and whoever removes one lock collection and audit log in one order."""
    collection = make_collection(owner)
    documents = [make_document(owner, f"document {number}", collection=collection) for number in range(40)]

    def act(number):
        for place in range(20):
            if number == 2:
                make_document(owner, f"a new one, {place}", collection=collection)
            else:
                go(documents[20 * number + place], collection)

    in_threads(3, act)

    assert counted() == {"contracts": (20, 20)}


@pytest.mark.django_db(transaction=True)
def test_documents_leave_a_collection_while_watches_of_it_are_made(owner):
    collection, skill = make_collection(owner), make_skill()
    documents = [make_document(owner, f"document {number}", collection=collection) for number in range(20)]

    def act(number):
        for place in range(20):
            if number:
                given = {"kind": "watch", "collection": collection, "skill": skill, "by": owner, "now": NOW}
                trigger_create(owner=owner, name=f"watch {place}", **given)
            else:
                leave(documents[place], collection)

    in_threads(2, act)

    assert counted() == {"contracts": (0, 0)}
    assert Trigger.objects.count() == 20


@pytest.mark.parametrize(
    ("act", "permission"),
    [
        (
            lambda collection, by: collection_rename(collection=collection, name="x", by=by, now=NOW),
            "change_collection",
        ),
        (lambda collection, by: collection_delete(collection=collection, by=by, now=NOW), "delete_collection"),
        (lambda collection, by: collection_create(owner=collection.owner, name="x", by=by, now=NOW), "add_collection"),
    ],
    ids=["rename", "delete", "create"],
)
def test_only_owner_and_permission_holders_may_act(owner, act, permission):
    collection, staff = make_collection(owner), make_user()
    with pytest.raises(NotFound):
        act(collection, staff)
    staff.user_permissions.add(Permission.objects.get(codename=permission))
    act(collection, type(staff).objects.get(pk=staff.pk))
    assert AuditEvent.objects.order_by("id").last().actor == f"user:{staff.pk}"


def test_reads_find_only_rows_of_the_owner(owner):
    collection, document = make_collection(owner), make_document(owner)
    stranger = make_user()

    assert collection_get(owner_id=owner.pk, public_id=collection.public_id) == collection
    assert document_get(owner_id=owner.pk, public_id=document.public_id) == document
    assert collection_named(owner_id=stranger.pk, name=collection.name) is None
    with pytest.raises(NotFound):
        collection_get(owner_id=stranger.pk, public_id=collection.public_id)
    with pytest.raises(NotFound):
        document_get(owner_id=stranger.pk, public_id=document.public_id)
