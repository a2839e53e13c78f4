"""Reads of collections and documents, always as their owner: what is somebody else's is not there."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Max
from django.db.models.functions import Length

from agents.enums import DocumentOrigin
from agents.exceptions import NotFound
from agents.models import Attachment, Chunk, Collection, Document

RUN_CHARS: Final = 200_000  # of documents, in one run
_SAME_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Sized:
    """A document, the length of its text, which was not read, and when it came into the collection."""

    pk: int
    public_id: UUID
    chars: int
    attached_at: datetime


def collection_of(*, owner_id: int, public_id: UUID) -> Collection:
    found = Collection.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"There is no collection {public_id}.")
    return found


def collection_named(*, owner_id: int, name: str) -> Collection | None:
    return Collection.objects.filter(name=name, owner_id=owner_id, deleted_at__isnull=True).first()


def document_of(*, owner_id: int, public_id: UUID) -> Document:
    found = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"There is no document {public_id}.")
    return found


def documents_in(*, owner_id: int, collection: Collection) -> list[Sized]:
    """Everything that is in the collection now, in the order in which it came in."""
    return _in_order(owner_id, collection)


def documents_new_in(
    *, owner_id: int, collection: Collection, after: datetime, until: datetime | None = None
) -> list[Sized]:
    """What people put into the collection after one time and, if there is another, up to it. No run's own writing.

    Periods that meet share no document: the later one begins after the time at which the earlier one ends.
    """
    bounds = {"attached_at__gt": after} | ({"attached_at__lte": until} if until else {})
    return _in_order(owner_id, collection, document__origin=DocumentOrigin.UPLOAD, **bounds)


def fitting_until(listed: Sequence[Sized]) -> datetime | None:
    """Up to when one run can read, if it cannot read all of them: as many as fit, in order, and one at least.

    Documents of one moment are not torn apart, or the later ones would be read by nobody.
    """
    room = RUN_CHARS
    for number, sized in enumerate(listed):
        if sized.chars > room and number:
            return max(listed[0].attached_at, sized.attached_at - timedelta.resolution)
        room -= sized.chars
    return None


def free_moment(*, collection: Collection, at: datetime) -> datetime:
    """The time, or the first after those of the same moment, so that a period can end between any two documents."""
    near = {"attached_at__gte": at, "attached_at__lt": at + _SAME_MOMENT}
    last = Attachment.objects.filter(collection=collection, **near).aggregate(last=Max("attached_at"))["last"]
    return last + timedelta.resolution if last else at


def _in_order(owner_id: int, collection: Collection, **which: object) -> list[Sized]:
    rows = Attachment.objects.filter(
        collection_id=collection.pk,
        collection__owner_id=owner_id,
        collection__deleted_at__isnull=True,
        document__owner_id=owner_id,
        document__deleted_at__isnull=True,
        detached_at__isnull=True,
        **which,
    )
    found = rows.order_by("attached_at", "pk").annotate(chars=Length("document__text"))
    return [Sized(*row) for row in found.values_list("document_id", "document__public_id", "chars", "attached_at")]


def documents_read(*, owner_id: int, pks: list[int]) -> list[Document]:
    """The documents with their text, in the order of the ids."""
    found = Document.objects.filter(owner_id=owner_id, deleted_at__isnull=True).in_bulk(pks)
    return [found[pk] for pk in pks if pk in found]


def last_chunk_end_within(*, document: Document, chars: int) -> int:
    """Where the last chunk ends that lies wholly within the first `chars` characters; 0 if none does."""
    ends = Chunk.objects.filter(document_id=document.pk, end__lte=chars).order_by("-end").values_list("end", flat=True)
    return ends.first() or 0
