"""Documents: added once, bytes first, with exact chunk offsets; attached, detached and deleted."""

import hashlib
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.enums import DocumentOrigin
from agents.exceptions import Invalid, NotFound, StorageFailed
from agents.knowledge import documents
from agents.knowledge.documents import document_add, document_attach, document_delete, document_detach
from agents.models import Attachment, Chunk, Document
from audit.models import AuditEvent
from tests.agents.knowledge.samples import files_under, make_collection, make_document
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)
TEXT = "Clause 1. The term is twelve months.\r\n\r\n" + "Words that fill the page. " * 300


@pytest.fixture
def owner():
    return make_user()


def allowed(*codenames):
    user = make_user()
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    return user


def kinds():
    return list(AuditEvent.objects.order_by("id").values_list("kind", flat=True))


# --- Coming in ---


def test_document_has_its_text_its_bytes_and_its_chunks(owner, media):
    data = TEXT.encode()
    document, is_new = document_add(owner=owner, name="nda.txt", data=data, by=owner, now=NOW)

    document.refresh_from_db()
    assert is_new
    assert document.text == TEXT.replace("\r\n", "\n")
    assert (document.name, document.media_type, document.origin) == ("nda.txt", "text/plain", DocumentOrigin.UPLOAD)
    assert (document.size, document.digest) == (len(data), hashlib.sha256(data).hexdigest())
    assert document.created_at == NOW
    [file] = files_under(media)
    assert file.read_bytes() == data


def holds_the_slice_invariant(document):
    chunks = list(Chunk.objects.filter(document=document).order_by("number"))
    text = Document.objects.get(pk=document.pk).text
    assert [chunk.number for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks) == text


def test_chunks_are_slices_of_the_stored_text(owner):
    document = make_document(owner, TEXT)

    assert Chunk.objects.filter(document=document).count() > 3
    holds_the_slice_invariant(document)


WRITTEN = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=200)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(WRITTEN, min_size=1, max_size=30))
def test_chunks_are_slices_whatever_the_text_is(owner, parts):
    text = "x" + ("\r\n".join(parts) + "\r") * 3

    document = make_document(owner, data=text.encode())

    assert document.text == text.replace("\r\n", "\n").replace("\r", "\n")
    holds_the_slice_invariant(document)


def test_audit_events_hold_ids_and_sizes_but_no_content(owner):
    collection = make_collection(owner)
    document = make_document(owner, "canary text", name="canary.txt", collection=collection, by=owner)

    added, attached = AuditEvent.objects.order_by("id")[1:]
    assert added.kind == "document.added"
    assert added.actor == f"user:{owner.pk}"
    assert added.subject == f"document:{document.public_id}"
    expected = {"document_id": str(document.public_id), "digest": document.digest, "size": 11, "origin": "upload"}
    assert added.details == expected
    assert attached.kind == "document.attached"
    assert attached.details == {
        "document_id": str(document.public_id),
        "collection_id": str(collection.public_id),
        "attachment_id": Attachment.objects.get().pk,
    }
    assert "canary" not in str(list(AuditEvent.objects.values()))


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("nda.pdf.txt", "nda.pdf.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\nda.txt", "nda.txt"),
        ("a\x00b\r\nc.txt", "a b c.txt"),
        ("folder/", "folder"),
        ("..", "document"),
        ("", "document"),
        ("/", "document"),
        ("password=hunter2secret.txt", None),
        ("x" * 400 + ".txt", "x" * 250 + "….txt"),
        ("\ud800.txt", ".txt"),
    ],
)
def test_names_are_cleaned(owner, given_name, name):
    found = make_document(owner, name=given_name).name
    assert len(found) <= 255
    if name is None:
        assert "hunter2" not in found
    else:
        assert found == name


# --- The same bytes ---


def test_same_bytes_return_the_existing_document(owner, media):
    first, _ = document_add(owner=owner, name="a.txt", data=b"words", by=owner, now=NOW)
    again, is_new = document_add(owner=owner, name="b.txt", data=b"words", by=owner, now=LATER)

    assert not is_new
    assert (again.pk, again.name) == (first.pk, "a.txt")
    assert (Document.objects.count(), Chunk.objects.count(), len(files_under(media))) == (1, 1, 1)
    assert kinds() == ["document.added"]


def test_known_bytes_are_attached_to_another_collection(owner):
    one, two = make_collection(owner, "one"), make_collection(owner, "two")
    make_document(owner, collection=one)
    document, is_new = document_add(
        owner=owner, name="contract.txt", data=b"The term is twelve months.", collection=two, by=owner, now=LATER
    )
    assert not is_new
    assert list(document.attachments.order_by("pk").values_list("collection", flat=True)) == [one.pk, two.pk]


def test_known_bytes_under_a_new_name_are_a_new_document_of_another_collection(owner, media):
    one, two = make_collection(owner, "one"), make_collection(owner, "two")
    first = make_document(owner, collection=one)
    renamed = make_document(owner, name="contract 2027.txt", collection=two)
    assert (renamed.name, renamed.text, renamed.digest) == ("contract 2027.txt", first.text, first.digest)
    assert renamed.pk != first.pk
    assert len(files_under(media)) == 1
    assert make_document(owner, name="third.txt", collection=two).pk == renamed.pk, "the collection has these bytes"
    assert make_document(owner, name="third.txt").pk == first.pk, "nothing is to run on it"
    document_detach(document=renamed, collection=two, by=owner, now=LATER)
    assert make_document(owner, name="fourth.txt", collection=two).name == "fourth.txt"
    assert make_document(owner, collection=make_collection(owner, "three")).pk == first.pk


def test_permission_holder_may_add_known_bytes_for_others(owner):
    collection, staff = make_collection(owner), allowed("add_document")
    make_document(owner)
    make_document(owner, collection=collection, by=staff)
    assert Attachment.objects.get().attached_by == staff


def test_same_bytes_of_two_owners_are_two_documents_and_one_file(owner, media):
    mine, theirs = make_document(owner), make_document(make_user())
    assert mine.pk != theirs.pk
    assert len(files_under(media)) == 1


def test_deleted_bytes_can_be_added_again(owner):
    first = make_document(owner)
    document_delete(document=first, by=owner, now=NOW)
    assert make_document(owner).pk != first.pk


def test_bytes_added_meanwhile_are_recognised(owner, monkeypatch):
    """The look-up before reading saw nothing; the database does."""
    first = make_document(owner)
    monkeypatch.setattr(documents, "_known", _blind_once(documents._known))
    document, is_new = document_add(
        owner=owner, name="contract.txt", data=b"The term is twelve months.", by=owner, now=LATER
    )
    assert (document.pk, is_new) == (first.pk, False)


def test_bytes_that_came_into_the_collection_meanwhile_are_recognised_under_another_name(owner, monkeypatch):
    collection = make_collection(owner)
    first = make_document(owner, collection=collection)
    monkeypatch.setattr(documents, "_known", _blind_once(documents._known))
    document, is_new = document_add(
        owner=owner, name="x.txt", data=b"The term is twelve months.", collection=collection, by=owner, now=LATER
    )
    assert (document.pk, is_new) == (first.pk, False)
    assert (Document.objects.count(), Chunk.objects.count()) == (1, 1)
    assert kinds() == ["collection.created", "document.added", "document.attached"]


def _blind_once(real):
    seen = []

    def known(*what, **more):
        seen.append(what)
        return None if len(seen) == 1 else real(*what, **more)

    return known


def test_other_integrity_errors_are_raised(owner, monkeypatch):
    make_document(owner)
    monkeypatch.setattr(documents, "_known", lambda *what, **more: None)
    with pytest.raises(Exception, match=r"(?i)unique"):
        make_document(owner)


@pytest.mark.django_db(transaction=True)
def test_concurrent_uploads_of_the_same_bytes_make_one_document(media):
    owner = make_user()
    collection = make_collection(owner)
    found, start = [], threading.Barrier(4)

    def bring():
        try:
            start.wait()
            found.append(make_document(owner, collection=collection).pk)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=bring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert (len(set(found)), Attachment.objects.count(), len(files_under(media))) == (1, 1, 1)
    assert sorted(kinds()) == ["collection.created", "document.added", "document.attached"]


# --- What leaves nothing behind ---


def test_unreadable_document_leaves_no_row_and_no_file(owner, media):
    with pytest.raises(Invalid):
        make_document(owner, data=bytes(1_000))
    assert not Document.objects.exists()
    assert files_under(media) == []
    assert kinds() == []


def test_bytes_that_cannot_be_stored_leave_no_row(owner, settings, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    settings.MEDIA_ROOT = blocked
    with pytest.raises(StorageFailed, match="make room on the disk"):
        make_document(owner)
    assert not Document.objects.exists()
    assert kinds() == []


def test_bytes_are_stored_before_rows_and_outside_a_transaction(owner, monkeypatch):
    open_blocks = len(connection.savepoint_ids)
    seen = []

    def store(data, *, digest):
        seen.append((Document.objects.count(), len(connection.savepoint_ids) - open_blocks))

    monkeypatch.setattr(documents, "bytes_store", store)
    make_document(owner)
    assert seen == [(0, 0)]


def test_collection_of_another_owner_is_not_found(owner, media):
    theirs = make_collection(make_user())
    with pytest.raises(NotFound):
        make_document(owner, collection=theirs)
    assert files_under(media) == []


# --- Attached, detached ---


def test_attaching_twice_changes_nothing(owner):
    document, collection = make_document(owner), make_collection(owner)
    first = document_attach(document=document, collection=collection, by=owner, now=NOW)
    again = document_attach(document=document, collection=collection, by=owner, now=LATER)

    assert (again.pk, again.attached_at, again.attached_by) == (first.pk, NOW, owner)
    assert kinds().count("document.attached") == 1


def test_detaching_and_attaching_again_is_a_new_row(owner):
    collection = make_collection(owner)
    document = make_document(owner, collection=collection)
    detached = document_detach(document=document, collection=collection, by=owner, now=NOW)
    again = document_attach(document=document, collection=collection, by=owner, now=LATER)

    assert detached.detached_at == NOW
    assert again.pk != detached.pk
    assert (again.attached_at, again.detached_at, again.watches_fired_at) == (LATER, None, None)
    assert kinds()[-2:] == ["document.detached", "document.attached"]


def test_attachments_of_a_collection_have_distinct_times(owner):
    collection = make_collection(owner)
    for text in ("one", "two", "three"):
        make_document(owner, text, collection=collection)
    make_document(owner, "elsewhere", collection=make_collection(owner, name="other"))
    tick = timedelta(microseconds=1)
    times = Attachment.objects.order_by("pk").values_list("attached_at", flat=True)
    assert list(times) == [NOW, NOW + tick, NOW + 2 * tick, NOW]


def test_unattached_document_cannot_be_detached(owner):
    with pytest.raises(NotFound, match="not in that collection"):
        document_detach(document=make_document(owner), collection=make_collection(owner), by=owner, now=NOW)


def test_deleted_document_is_in_no_collection_and_cannot_be_attached(owner):
    collection = make_collection(owner)
    document = make_document(owner, collection=collection)
    assert document_delete(document=document, by=owner, now=LATER).deleted_at == LATER

    assert Attachment.objects.get().detached_at == LATER
    with pytest.raises(NotFound):
        document_attach(document=document, collection=collection, by=owner, now=LATER)
    with pytest.raises(NotFound):
        document_delete(document=document, by=owner, now=LATER)
    assert kinds()[-1] == "document.deleted"


# --- Who may ---

ACTS = {
    "add": (lambda owner, document, collection, by: make_document(owner, "new", by=by), "add_document"),
    "attach": (
        lambda owner, document, collection, by: document_attach(
            document=document, collection=collection, by=by, now=NOW
        ),
        "change_document",
    ),
    "delete": (
        lambda owner, document, collection, by: document_delete(document=document, by=by, now=NOW),
        "delete_document",
    ),
}


@pytest.mark.parametrize(("act", "permission"), ACTS.values(), ids=ACTS)
def test_only_owner_and_permission_holders_may_act(owner, act, permission):
    document, collection = make_document(owner), make_collection(owner)
    before = kinds()
    for stranger in (make_user(), allowed("view_document")):
        with pytest.raises(NotFound):
            act(owner, document, collection, stranger)
    assert kinds() == before
    staff = allowed(permission)
    act(owner, document, collection, staff)
    assert AuditEvent.objects.order_by("id").last().actor == f"user:{staff.pk}"


def test_detaching_needs_the_change_permission(owner):
    collection = make_collection(owner)
    document = make_document(owner, collection=collection)
    with pytest.raises(NotFound):
        document_detach(document=document, collection=collection, by=make_user(), now=NOW)
    document_detach(document=document, collection=collection, by=allowed("change_document"), now=NOW)


def test_document_cannot_be_attached_to_another_owners_collection(owner):
    document, theirs = make_document(owner), make_collection(make_user())
    for by in (owner, allowed("change_document", "change_collection"), None):
        with pytest.raises(NotFound):
            document_attach(document=document, collection=theirs, by=by, now=NOW)
    assert not Attachment.objects.exists()
