"""Collections and documents: the only writer of both, of their chunks, and of what is attached where.

Reading a document and writing its bytes come first, outside of any transaction; then its rows, in one. Attaching a
document sends `document_attached` after the commit; a failing receiver never undoes the attachment.
"""

import contextlib
import hashlib
import os
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, models, transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Greatest
from django.dispatch import Signal

from agents.enums import DocumentOrigin
from agents.exceptions import Invalid, NotFound, StorageFailed
from agents.knowledge.search import free_time
from agents.knowledge.vectors import vectors_forget
from agents.models import AgentSession, Attachment, Chunk, Collection, Document, Playbook
from agents.people.access import SYSTEM, actor_of, record_act, require_access
from agents.text.chunks import chunk_spans
from agents.text.clean import document_name, one_line
from agents.text.extraction import extract
from agents.text.formats.kinds import Kind
from agents.text.marks import normalise_text
from audit.redaction import redact

# Sent after the commit with `attachment_pk` and `now`. agents.apps connects the watches.
document_attached = Signal()
Row = TypeVar("Row", bound=models.Model)

COLLECTION_NAME_CHARS = 120
_CHUNKS_AT_ONCE = 500
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


# --- Locks and audit events that playbooks and projects share ---


def lock_row(rows: models.QuerySet[Row], name: str) -> Row:
    """Return the row, locked until the transaction ends. On SQLite the transaction is the lock."""
    row = rows.select_for_update(no_key=True).first()
    if row is None:
        raise NotFound(f"There is no such {name}.")
    return row


def save_named(row: Collection | Playbook) -> None:
    """Save a row whose name is unique among its owner's."""
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        name = f"{row._meta.verbose_name} named {row.name!r}"
        raise Invalid(f"A {name} exists already: edit that one, or choose another name.") from None


def record_change(
    row: Any, kind: str, *, now: datetime, by: User | None = None, actor: str = SYSTEM, what: str = "", **details: Any
) -> None:
    """Append an audit event about a row; `what` names the row where that is not the name of its model."""
    name, key = what or row._meta.model_name, str(row.public_id)
    record_act(kind, by=by, now=now, unnamed=actor, subject=f"{name}:{key}", **{f"{name}_id": key}, **details)


# --- Collections ---


@transaction.atomic
def collection_create(*, owner: User, name: str, by: User | None, now: datetime) -> Collection:
    """Create a collection; its name is unique among the owner's."""
    require_access(by, owner_id=owner.pk, permission="agents.add_collection")
    collection = Collection(owner=owner, name=_collection_name(name), created_at=now)
    save_named(collection)
    record_change(collection, "collection.created", by=by, now=now)
    return collection


@transaction.atomic
def collection_rename(*, collection: Collection, name: str, by: User | None, now: datetime) -> Collection:
    """Rename a collection; the same name again changes nothing."""
    require_access(by, owner_id=collection.owner_id, permission="agents.change_collection")
    row = _lock_collection(collection.pk, owner_id=collection.owner_id)
    wanted = _collection_name(name)
    if wanted != row.name:
        row.name = wanted
        save_named(row)
        record_change(row, "collection.edited", by=by, now=now, fields=["name"])
    return row


@transaction.atomic
def collection_delete(*, collection: Collection, by: User | None, now: datetime) -> Collection:
    """Delete a collection for people, watches and runs. Its documents stay."""
    require_access(by, owner_id=collection.owner_id, permission="agents.delete_collection")
    row = _lock_collection(collection.pk, owner_id=collection.owner_id)
    row.deleted_at, row.documents = now, 0
    row.save(update_fields=["deleted_at", "documents"])
    Attachment.objects.filter(collection=row, detached_at__isnull=True).update(detached_at=now)
    record_change(row, "collection.deleted", by=by, now=now)
    return row


def _collection_name(value: str) -> str:
    name = one_line(redact(value), COLLECTION_NAME_CHARS)
    if not name:
        raise Invalid("A collection needs a name.")
    return name


def _lock_collection(pk: int, *, owner_id: int) -> Collection:
    return lock_row(Collection.objects.filter(pk=pk, owner_id=owner_id, deleted_at__isnull=True), "collection")


# --- Documents ---
#
# Everybody locks in this order: the document, its collections by id, and by its event the audit log.


def document_add(
    *,
    owner: User,
    name: str,
    data: bytes,
    by: User | None,
    now: datetime,
    media_type: str = "",
    collection: Collection | None = None,
) -> tuple[Document, bool]:
    """Add a document, and attach it to the collection if one is given; return it and whether it is new.

    Bytes that the collection has return its document, under whatever name; without a collection, those that the owner
    has. Elsewhere the same bytes under a new name are a new document: its runs speak of it by that name. Raises Invalid
    for what cannot be read, StorageFailed for bytes that cannot be stored; neither leaves a row.
    """
    require_access(by, owner_id=owner.pk, permission="agents.add_document")
    if collection is not None and (collection.owner_id != owner.pk or collection.deleted_at is not None):
        raise NotFound("There is no such collection.")
    digest = hashlib.sha256(data).hexdigest()
    name = document_name(name)
    document = _known(owner.pk, digest, DocumentOrigin.UPLOAD, name=name, collection=collection)
    if document is None:
        extracted = extract(data, name=name, media_type=media_type)
        bytes_store(data, digest=digest)
        document = Document(
            owner_id=owner.pk,
            name=name,
            media_type=extracted.media_type,
            digest=digest,
            size=len(data),
            text=extracted.text,
            marks=extracted.marks,
            origin=DocumentOrigin.UPLOAD,
            created_at=now,
        )
    try:
        return _save(document, collection, by=by, actor=actor_of(by), now=now)
    except _CameMeanwhile as same:
        return same.document, False


class _CameMeanwhile(Exception):
    """Another process put the same bytes into the collection under another name; this document is undone."""

    def __init__(self, document: Document) -> None:
        super().__init__(str(document))
        self.document = document


def artifact_add(
    *, session: AgentSession, collection: Collection, name: str, content: str, now: datetime
) -> tuple[Document, bool]:
    """Add what a run wrote to the collection, as a document of its owner. The same text is the same document.

    The caller has read the collection as the session's owner. No watch is notified, now or later.
    """
    text = normalise_text(content)
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    bytes_store(data, digest=digest)
    document = Document(
        owner_id=session.owner_id,
        name=document_name(name, suffix=".md"),
        media_type=Kind.MARKDOWN.media_type,
        digest=digest,
        size=len(data),
        text=text,
        origin=DocumentOrigin.ARTIFACT,
        session=session,
        created_at=now,
    )
    return _save(document, collection, by=None, actor=f"session:{session.public_id}", now=now)


@transaction.atomic
def document_attach(*, document: Document, collection: Collection, by: User | None, now: datetime) -> Attachment:
    """Attach a document to a collection; one that is attached already stays as it is, and no watch is notified."""
    require_access(by, owner_id=document.owner_id, permission="agents.change_document")
    return _attach(document, collection, by=by, actor=actor_of(by), now=now)


@transaction.atomic
def document_detach(*, document: Document, collection: Collection, by: User | None, now: datetime) -> Attachment:
    """Remove a document from a collection."""
    require_access(by, owner_id=document.owner_id, permission="agents.change_document")
    row = _lock_document(document.pk)
    attachment = Attachment.objects.filter(document=row, collection=collection, detached_at__isnull=True).first()
    if attachment is None or not _detach(row, collection.pk, now=now):
        raise NotFound("The document is not in that collection.")
    attachment.detached_at = now
    record_change(row, "document.detached", by=by, now=now, collection_id=str(collection.public_id))
    return attachment


@transaction.atomic
def document_delete(*, document: Document, by: User | None, now: datetime) -> Document:
    """Delete a document for people, search and runs. Findings that quote it stay."""
    require_access(by, owner_id=document.owner_id, permission="agents.delete_document")
    row = _lock_document(document.pk)
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    inside = Attachment.objects.filter(document=row, detached_at__isnull=True).order_by("collection_id")
    for collection_id in list(inside.values_list("collection_id", flat=True)):
        _detach(row, collection_id, now=now)
    vectors_forget(row)
    record_change(row, "document.deleted", by=by, now=now)
    return row


def _known(owner_id: int, digest: str, origin: str, *, name: str, collection: Collection | None) -> Document | None:
    """Return the document of these bytes: the one in the collection, else the one of this name.

    Without a collection any of them; what a run wrote is one document, whatever its name.
    """
    same = _same_bytes(owner_id, digest, origin)
    if collection is None or origin == DocumentOrigin.ARTIFACT:
        return same.order_by("pk").first()
    return _inside(same, collection) or same.filter(name=name).first()


def _same_bytes(owner_id: int, digest: str, origin: str) -> QuerySet[Document]:
    return Document.objects.filter(owner_id=owner_id, digest=digest, origin=origin, deleted_at__isnull=True)


def _inside(documents: QuerySet[Document], collection: Collection) -> Document | None:
    inside = Attachment.objects.filter(document=OuterRef("pk"), collection=collection, detached_at__isnull=True)
    return documents.filter(Exists(inside)).order_by("pk").first()


@transaction.atomic
def _save(
    document: Document, collection: Collection | None, *, by: User | None, actor: str, now: datetime
) -> tuple[Document, bool]:
    """Write the document if it is new, and attach it; return it and whether it is new."""
    is_new = document.pk is None
    if is_new:
        try:
            with transaction.atomic():
                document.save(force_insert=True)
        except IntegrityError:  # the owner has these bytes already
            known = _known(
                document.owner_id, document.digest, document.origin, name=document.name, collection=collection
            )
            if known is None:
                raise
            document, is_new = known, False
    if is_new:
        _write_chunks(document)
        details: dict[str, Any] = {"digest": document.digest, "size": document.size, "origin": document.origin}
        if document.session is not None:
            details["session_id"] = str(document.session.public_id)
        if collection is not None:
            _lock_collection(collection.pk, owner_id=document.owner_id)
            if (
                same := _inside(_same_bytes(document.owner_id, document.digest, document.origin), collection)
            ) is not None:
                raise _CameMeanwhile(same)
        record_change(document, "document.added", actor=actor, now=now, **details)
    if collection is not None:
        _attach(document, collection, by=by, actor=actor, now=now)
    return document, is_new


def _write_chunks(document: Document) -> None:
    chunks = [
        Chunk(document=document, number=number, start=start, end=end, text=document.text[start:end])
        for number, (start, end) in enumerate(chunk_spans(document.text), 1)
    ]
    Chunk.objects.bulk_create(chunks, batch_size=_CHUNKS_AT_ONCE)


def _attach(document: Document, collection: Collection, *, by: User | None, actor: str, now: datetime) -> Attachment:
    row = _lock_document(document.pk)
    target = _lock_collection(collection.pk, owner_id=row.owner_id)
    attached = Attachment.objects.filter(document=row, collection=target, detached_at__isnull=True).first()
    if attached is not None:
        return attached
    # A run that started others, or itself, with what it wrote would never end.
    is_silent = row.origin == DocumentOrigin.ARTIFACT
    # Later than what a schedule has read, however long reading this document took. Whoever sets `read_at` waits for us.
    at = now if target.read_at is None else max(now, target.read_at + timedelta.resolution)
    attachment = Attachment.objects.create(
        document=row,
        collection=target,
        attached_by=by,
        attached_at=free_time(collection=target, at=at),
        watches_fired_at=now if is_silent else None,
    )
    Collection.objects.filter(pk=target.pk).update(documents=F("documents") + 1)
    attached_to = str(target.public_id)
    record_change(
        row, "document.attached", actor=actor, now=now, collection_id=attached_to, attachment_id=attachment.pk
    )
    if not is_silent:
        sent = {"attachment_pk": attachment.pk, "now": now}
        transaction.on_commit(lambda: document_attached.send_robust(sender=Attachment, **sent))
    return attachment


def _detach(document: Document, collection_id: int, *, now: datetime) -> bool:
    """Remove a document from a collection. False: the collection was deleted meanwhile, and all its documents with it.

    The caller holds the document.
    """
    Collection.objects.select_for_update(no_key=True).filter(pk=collection_id).first()
    inside = Attachment.objects.filter(document=document, collection_id=collection_id, detached_at__isnull=True)
    is_done = bool(inside.update(detached_at=now))
    if is_done:
        Collection.objects.filter(pk=collection_id).update(documents=Greatest(F("documents") - 1, 0))
    return is_done


def _lock_document(pk: int) -> Document:
    return lock_row(Document.objects.filter(pk=pk, deleted_at__isnull=True).defer("text"), "document")


# --- Bytes on disk, named by their digest ---
#
# A file that exists is complete, and is never written again. Bytes go to disk before any row names them: a row without
# its bytes cannot exist, a file without a row can and does no harm.


def bytes_path(digest: str) -> Path:
    """Return the path of the file for a digest."""
    return Path(settings.MEDIA_ROOT) / digest[:2] / digest[2:4] / digest


def bytes_store(data: bytes, *, digest: str) -> Path:
    """Write the bytes so that they survive a power cut. Raises StorageFailed."""
    place = bytes_path(digest)
    try:
        if place.exists() and place.stat().st_size == len(data):
            return place
        place.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _write(place, data)
    except OSError as error:
        raise StorageFailed(
            f"The document could not be stored ({error.strerror or type(error).__name__}): make room on the disk, or "
            "make the media folder writable, and add it again."
        ) from error
    return place


def _write(place: Path, data: bytes) -> None:
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        _sync_folders(place)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _sync_folders(place: Path) -> None:
    """Sync the new name and up to two new folders: a name is on disk only when the folder that holds it is."""
    for folder in list(place.parents)[:3]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
