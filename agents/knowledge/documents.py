"""Collections and documents: the only writer of both, of the chunks, and of what is attached where.

Reading a document and writing its bytes come first, outside of any transaction; then its rows, in one. A document that
was attached sends `document_attached` after the commit; what receivers make of it never undoes the attachment.
"""

import contextlib
import hashlib
import os
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.dispatch import Signal

from agents.enums import DocumentOrigin
from agents.exceptions import Invalid, NotFound, StorageFailed
from agents.knowledge.search import free_moment
from agents.models import AgentSession, Attachment, Chunk, Collection, Document
from agents.people.access import actor_of, demand_access
from agents.text.chunks import chunk_spans
from agents.text.clean import document_name, one_line
from agents.text.extraction import Kind, extract, plain
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

# The bytes of documents on disk, under their digest. A file that is there is whole, and is never written again.
#
# Bytes go to disk before any row speaks of them: a row without its bytes cannot come about, a file without a row can,
# and does no harm.


_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def bytes_place(digest: str) -> Path:
    return Path(settings.MEDIA_ROOT) / digest[:2] / digest[2:4] / digest


def bytes_store(data: bytes, *, digest: str) -> Path:
    """On disk when this returns, also after a power cut. Raises StorageFailed."""
    place = bytes_place(digest)
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
    """A new name is on disk only when its folder is, and a new folder only when the one above it is."""
    for folder in list(place.parents)[:3]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Sent after the commit with `attachment_pk` and `now`. agents.apps connects the watches.
document_attached = Signal()

COLLECTION_NAME_CHARS = 120
_CHUNKS_AT_ONCE = 500
_NO_COLLECTION = "There is no such collection."
_NO_DOCUMENT = "There is no such document."


# --- Collections ---


@transaction.atomic
def collection_create(*, owner: User, name: str, by: User | None, now: datetime) -> Collection:
    demand_access(by, owner_id=owner.pk, permission="agents.add_collection")
    collection = Collection(owner=owner, name=_collection_name(name), created_at=now)
    _save_named(collection)
    _record(collection, "collection.created", actor=actor_of(by), now=now)
    return collection


@transaction.atomic
def collection_rename(*, collection: Collection, name: str, by: User | None, now: datetime) -> Collection:
    demand_access(by, owner_id=collection.owner_id, permission="agents.change_collection")
    row = _lock_collection(collection.pk, owner_id=collection.owner_id)
    wanted = _collection_name(name)
    if wanted != row.name:
        row.name = wanted
        _save_named(row)
        _record(row, "collection.edited", actor=actor_of(by), now=now, fields=["name"])
    return row


@transaction.atomic
def collection_delete(*, collection: Collection, by: User | None, now: datetime) -> Collection:
    """The collection is gone for people, watches and runs. Its documents stay, in no collection or in others."""
    demand_access(by, owner_id=collection.owner_id, permission="agents.delete_collection")
    row = _lock_collection(collection.pk, owner_id=collection.owner_id)
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    Attachment.objects.filter(collection=row, detached_at__isnull=True).update(detached_at=now)
    _record(row, "collection.deleted", actor=actor_of(by), now=now)
    return row


def _collection_name(value: str) -> str:
    name = one_line(redact(value), COLLECTION_NAME_CHARS)
    if not name:
        raise Invalid("A collection needs a name.")
    return name


def _save_named(collection: Collection) -> None:
    try:
        with transaction.atomic():
            collection.save()
    except IntegrityError:
        raise Invalid(f"There is a collection named {collection.name!r} already: choose another name.") from None


# --- Documents ---


@dataclass(frozen=True)
class _Draft:
    """A document that has been read and whose bytes are on disk; it has no rows yet."""

    owner_id: int
    name: str
    media_type: str
    digest: str
    size: int
    text: str
    origin: DocumentOrigin = DocumentOrigin.UPLOAD
    session: AgentSession | None = None


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
    """The document, and whether it is new. Bytes that the owner has already are the document that is there, as it is.

    With a collection it is attached, too, unless it is in it. Raises Invalid for what cannot be read, StorageFailed for
    bytes that cannot be kept; neither leaves a row.
    """
    demand_access(by, owner_id=owner.pk, permission="agents.add_document")
    if collection is not None and (collection.owner_id != owner.pk or collection.deleted_at is not None):
        raise NotFound(_NO_COLLECTION)
    digest = hashlib.sha256(data).hexdigest()
    known = _known(owner.pk, digest, DocumentOrigin.UPLOAD)
    if known is not None:
        if collection is not None:
            with transaction.atomic():
                _attach(known, collection, by=by, actor=actor_of(by), now=now)
        return known, False
    shown = document_name(name)
    extracted = extract(data, name=shown, media_type=media_type)
    bytes_store(data, digest=digest)
    draft = _Draft(owner.pk, shown, extracted.media_type, digest, len(data), extracted.text)
    return _place(draft, collection, by=by, actor=actor_of(by), now=now)


def artifact_add(
    *, session: AgentSession, collection: Collection, name: str, content: str, now: datetime
) -> tuple[Document, bool]:
    """What a run wrote, as a document of its owner's in the collection. The same text again is the same document.

    The caller has read the collection as one of the session's owner. No watch is told of it, now or later.
    """
    text = plain(content)
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    actor = f"session:{session.public_id}"
    known = _known(session.owner_id, digest, DocumentOrigin.ARTIFACT)
    if known is not None:
        with transaction.atomic():
            _attach(known, collection, by=None, actor=actor, now=now)
        return known, False
    bytes_store(data, digest=digest)
    draft = _Draft(
        session.owner_id,
        document_name(name, suffix=".md"),
        Kind.MARKDOWN.media_type,
        digest,
        len(data),
        text,
        DocumentOrigin.ARTIFACT,
        session,
    )
    return _place(draft, collection, by=None, actor=actor, now=now)


@transaction.atomic
def document_attach(*, document: Document, collection: Collection, by: User | None, now: datetime) -> Attachment:
    """The document in the collection; one that is in it already stays as it is, and no watch hears of it again."""
    demand_access(by, owner_id=document.owner_id, permission="agents.change_document")
    return _attach(document, collection, by=by, actor=actor_of(by), now=now)


@transaction.atomic
def document_detach(*, document: Document, collection: Collection, by: User | None, now: datetime) -> Attachment:
    demand_access(by, owner_id=document.owner_id, permission="agents.change_document")
    row = _lock_document(document.pk)
    attachment = Attachment.objects.filter(document=row, collection=collection, detached_at__isnull=True).first()
    if attachment is None:
        raise NotFound("The document is not in that collection.")
    attachment.detached_at = now
    attachment.save(update_fields=["detached_at"])
    details = {"collection_id": str(collection.public_id)}
    _record(row, "document.detached", actor=actor_of(by), now=now, **details)
    return attachment


@transaction.atomic
def document_delete(*, document: Document, by: User | None, now: datetime) -> Document:
    """The document is gone for people, search and runs. Findings that quote it stay."""
    demand_access(by, owner_id=document.owner_id, permission="agents.delete_document")
    row = _lock_document(document.pk)
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    Attachment.objects.filter(document=row, detached_at__isnull=True).update(detached_at=now)
    _record(row, "document.deleted", actor=actor_of(by), now=now)
    return row


# --- Rows ---


def _known(owner_id: int, digest: str, origin: DocumentOrigin) -> Document | None:
    return Document.objects.filter(owner_id=owner_id, digest=digest, origin=origin, deleted_at__isnull=True).first()


@transaction.atomic
def _place(
    draft: _Draft, collection: Collection | None, *, by: User | None, actor: str, now: datetime
) -> tuple[Document, bool]:
    document, is_new = _create(draft, actor=actor, now=now)
    if collection is not None:
        _attach(document, collection, by=by, actor=actor, now=now)
    return document, is_new


def _create(draft: _Draft, *, actor: str, now: datetime) -> tuple[Document, bool]:
    fields = {
        "owner_id": draft.owner_id,
        "name": draft.name,
        "media_type": draft.media_type,
        "digest": draft.digest,
        "size": draft.size,
        "text": draft.text,
        "origin": draft.origin,
        "session": draft.session,
    }
    try:
        with transaction.atomic():
            document = Document.objects.create(**fields, created_at=now)
    except IntegrityError:
        known = _known(draft.owner_id, draft.digest, draft.origin)
        if known is None:
            raise
        return known, False  # somebody brought in the same bytes meanwhile
    chunks = [
        Chunk(document=document, number=number, start=start, end=end, text=draft.text[start:end])
        for number, (start, end) in enumerate(chunk_spans(draft.text), 1)
    ]
    Chunk.objects.bulk_create(chunks, batch_size=_CHUNKS_AT_ONCE)
    details = {"digest": draft.digest, "size": draft.size, "origin": draft.origin}
    if draft.session is not None:
        details["session_id"] = str(draft.session.public_id)
    _record(document, "document.added", actor=actor, now=now, **details)
    return document, True


def _attach(document: Document, collection: Collection, *, by: User | None, actor: str, now: datetime) -> Attachment:
    row = _lock_document(document.pk)
    target = _lock_collection(collection.pk, owner_id=row.owner_id)
    attached = Attachment.objects.filter(document=row, collection=target, detached_at__isnull=True).first()
    if attached is not None:
        return attached
    # A run that woke others, or itself, with what it wrote would never end.
    is_silent = row.origin == DocumentOrigin.ARTIFACT
    # Later than what a schedule has read, however long reading this document took. Whoever sets `read_at` waits for us.
    at = now if target.read_at is None else max(now, target.read_at + timedelta.resolution)
    fields = {"attached_at": free_moment(collection=target, at=at), "watches_fired_at": now if is_silent else None}
    attachment = Attachment.objects.create(document=row, collection=target, attached_by=by, **fields)
    details = {"collection_id": str(target.public_id), "attachment_id": attachment.pk}
    _record(row, "document.attached", actor=actor, now=now, **details)
    if not is_silent:
        sent = {"attachment_pk": attachment.pk, "now": now}
        transaction.on_commit(lambda: document_attached.send_robust(sender=Attachment, **sent))
    return attachment


def _lock_document(pk: int) -> Document:
    """The document's row without its text, locked until the transaction ends. SQLite's transaction is the lock."""
    rows = Document.objects.select_for_update(no_key=True).defer("text")
    row = rows.filter(pk=pk, deleted_at__isnull=True).first()
    if row is None:
        raise NotFound(_NO_DOCUMENT)
    return row


def _lock_collection(pk: int, *, owner_id: int) -> Collection:
    rows = Collection.objects.select_for_update(no_key=True)
    row = rows.filter(pk=pk, owner_id=owner_id, deleted_at__isnull=True).first()
    if row is None:
        raise NotFound(_NO_COLLECTION)
    return row


def _record(row: Collection | Document, kind: str, *, actor: str, now: datetime, **details: Any) -> None:
    what = "collection" if isinstance(row, Collection) else "document"
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor,
        subject=f"{what}:{row.public_id}",
        details={f"{what}_id": str(row.public_id), **details},
    )
