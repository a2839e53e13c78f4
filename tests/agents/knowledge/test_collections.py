"""Collections: names, permissions, and what deletion means for their documents."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission

from agents.exceptions import Invalid, NotFound
from agents.knowledge.documents import collection_create, collection_delete, collection_rename, document_attach
from agents.knowledge.search import collection_get, collection_named, document_get
from agents.models import Attachment, Collection, Document
from audit.models import AuditEvent
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import NOW, make_user

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
