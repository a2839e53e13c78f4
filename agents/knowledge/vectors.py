"""Vectors of chunks and queries: stored, compared and forgotten. Every read is by owner.

Vectors are rows of their own and are compared by numpy, all of an owner's at once; so both databases do the same. A
process keeps the matrices that it has read, up to MOST_BYTES, and reads only what is new. Without numpy (extra
`semantic`) or a model with the role `embeddings` there is no vector space, and full text is all there is.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Collection as Some
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from django.db import transaction
from django.db.models import F, QuerySet, Sum

from agents.definitions.catalogue import declaration_of, embedding_model
from agents.exceptions import Invalid
from agents.models import Chunk, ChunkVector, Document, QueryVector
from audit.redaction import redact

MOST_BYTES: Final = 256 * 1024 * 1024  # of the matrices that a process keeps
MOST_QUERIES: Final = 1_000  # of each owner
BATCH: Final = 64  # chunks in one request
_ROWS: Final = 4_096  # read at once
NUMBER_BYTES: Final = 4


@cache
def has_numpy() -> bool:
    return find_spec("numpy") is not None


def vector_space() -> str:
    """Return the space in which vectors compare now: model, name at its server and request fields. Empty: none."""
    model = embedding_model()
    if not model or not has_numpy():
        return ""
    declared = declaration_of(model)
    facts = json.dumps([declared.get("name", model), declared.get("extra", {})], sort_keys=True)
    return f"{model}#{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


# --- Which documents have vectors ---


def has_vectors(space: str, *, owner_id: int) -> bool:
    return ChunkVector.objects.filter(owner_id=owner_id, space=space).exists()


def documents_missing(space: str) -> QuerySet[Document]:
    """Return the documents of all owners that are not indexed in the space, without their text."""
    return Document.objects.filter(deleted_at__isnull=True).exclude(indexed_as=space).defer("text", "marks")


def chunks_missing(space: str, **which: Any) -> QuerySet[Chunk]:
    """Return the chunks without a vector in the space, in order."""
    rows = Chunk.objects.filter(document__deleted_at__isnull=True, **which).exclude(document__indexed_as=space)
    return rows.exclude(vectors__space=space).order_by("pk")


def chars_missing(space: str, *, owner_id: int) -> tuple[int, int]:
    """Return how many chunks of the owner have no vector yet, and their characters."""
    rows = chunks_missing(space, document__owner_id=owner_id).order_by()
    return rows.count(), rows.aggregate(chars=Sum(F("end") - F("start")))["chars"] or 0


def next_batch(space: str, *, owner_id: int) -> list[int]:
    """Return the next chunks of the owner to be indexed; none when all are. Notes documents that lack nothing."""
    while True:
        documents = documents_missing(space).filter(owner_id=owner_id).order_by("pk")
        wanted = list(documents.values_list("pk", flat=True)[:BATCH])
        found = list(chunks_missing(space, document_id__in=wanted).values_list("pk", "document_id")[:BATCH])
        if len(found) < BATCH:
            whole = set(wanted) - {document for _, document in found}
            Document.objects.filter(pk__in=whole).update(indexed_as=space)
        if found or not wanted:
            return [pk for pk, _ in found]


def texts_of(chunks: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return id, owner and text of chunks whose document is not deleted, in order."""
    rows = Chunk.objects.filter(pk__in=chunks, document__deleted_at__isnull=True).order_by("pk")
    return list(rows.values_list("pk", "document__owner_id", "text"))


# --- Writing ---


@transaction.atomic
def vectors_store(space: str, vectors: Mapping[int, bytes], *, owner_id: int) -> int:
    """Store the vectors of chunks of the owner, and note documents that lack none. Return how many were stored.

    Nothing is stored for a document that was deleted meanwhile. Those of other spaces go.
    """
    owned = {"document__owner_id": owner_id, "document__deleted_at__isnull": True}
    chunks = dict(Chunk.objects.filter(pk__in=vectors, **owned).values_list("pk", "document_id"))
    locked = Document.objects.filter(pk__in=set(chunks.values()), deleted_at__isnull=True).order_by("pk")
    documents = set(locked.select_for_update(no_key=True).values_list("pk", flat=True))
    wanted = [pk for pk, document in chunks.items() if document in documents]
    require_dimensions(space, [vectors[pk] for pk in wanted], owner_id=owner_id)
    rows = [ChunkVector(chunk_id=pk, owner_id=owner_id, space=space, vector=vectors[pk]) for pk in wanted]
    ChunkVector.objects.bulk_create(rows, ignore_conflicts=True)
    ChunkVector.objects.filter(chunk_id__in=wanted).exclude(space=space).delete()
    lacking = chunks_missing(space, document_id__in=documents).order_by().values_list("document_id", flat=True)
    Document.objects.filter(pk__in=documents - set(lacking)).update(indexed_as=space)
    return len(rows)


def require_dimensions(space: str, vectors: Some[bytes], *, owner_id: int) -> None:
    """Refuse vectors of another length than those that the owner has in the space: they do not compare."""
    first = ChunkVector.objects.filter(owner_id=owner_id, space=space).values_list("vector", flat=True).first()
    known = len(first) if first is not None else max(map(len, vectors), default=0)
    for vector in vectors:
        if len(vector) != known:
            raise Invalid(
                f"The embedding model sent {len(vector) // NUMBER_BYTES} dimensions; the documents are indexed with "
                f"{known // NUMBER_BYTES}. Declare it under another name to index them anew."
            )


def vectors_forget(document: Document) -> None:
    """Delete the vectors of a document."""
    ChunkVector.objects.filter(chunk__document=document).delete()
    Document.objects.filter(pk=document.pk).update(indexed_as="")


def vectors_forget_owner(owner_id: int) -> int:
    """Delete the vectors of all documents of an owner; return how many there were."""
    Document.objects.filter(owner_id=owner_id).update(indexed_as="")
    gone, _ = ChunkVector.objects.filter(owner_id=owner_id).delete()
    return gone


@transaction.atomic
def query_store(space: str, query: str, vector: bytes, *, owner_id: int) -> None:
    """Store the vector of a query; of each owner only the newest are kept."""
    require_dimensions(space, [vector], owner_id=owner_id)
    row = QueryVector(owner_id=owner_id, space=space, digest=_digest(query), vector=vector)
    QueryVector.objects.bulk_create([row], ignore_conflicts=True)
    own = QueryVector.objects.filter(owner_id=owner_id).order_by("-pk")
    oldest = own.values_list("pk", flat=True)[MOST_QUERIES - 1 : MOST_QUERIES].first()
    if oldest is not None:
        own.filter(pk__lt=oldest).delete()


def query_vector(space: str, query: str, *, owner_id: int) -> bytes | None:
    """Return the vector of a query that the owner has asked before."""
    rows = QueryVector.objects.filter(owner_id=owner_id, space=space, digest=_digest(query))
    found = rows.values_list("vector", flat=True).first()
    return None if found is None else bytes(found)


def _digest(query: str) -> str:
    return hashlib.sha256(" ".join(redact(query).split()).encode("utf-8", "replace")).hexdigest()


# --- The nearest chunks ---


@dataclass(frozen=True)
class Matrix:
    """Vectors of one owner in one space: ids of chunks, and a row for each. `last` is the highest id of the rows."""

    last: int
    ids: Any
    rows: Any


_kept: OrderedDict[tuple[int, str], Matrix] = OrderedDict()
_lock = threading.Lock()


def nearest(
    space: str, vector: bytes, *, owner_id: int, limit: int, among: QuerySet[Any] | Some[int] | None = None
) -> list[int]:
    """Return the chunks nearest to the vector, the nearest first; `among`: only of these."""
    import numpy as np

    query = np.frombuffer(vector, "<f4")
    allowed = None if among is None else np.fromiter(among, np.int64)
    best: list[tuple[float, int]] = []
    for part in _parts(space, owner_id=owner_id):
        ids, rows = part.ids, part.rows
        if rows.shape[1] != len(query):
            return []
        scores = rows @ query
        if allowed is not None:
            inside = np.isin(ids, allowed)
            ids, scores = ids[inside], scores[inside]
        if len(ids) > limit:
            top = np.argpartition(-scores, limit - 1)[:limit]
            ids, scores = ids[top], scores[top]
        best += zip((-scores).tolist(), ids.tolist(), strict=True)
    return [pk for _, pk in sorted(best)[:limit]]


def vectors_read(space: str, *, owner_id: int) -> None:
    """Read the owner's vectors ahead, outside of the transaction in which they are compared."""
    next(iter(_parts(space, owner_id=owner_id)), None)


def _parts(space: str, *, owner_id: int) -> Iterator[Matrix]:
    """Return the owner's vectors: as one matrix that is kept or, if that would be too large, in parts."""
    rows = ChunkVector.objects.filter(owner_id=owner_id, space=space).order_by("pk")
    first = rows.values_list("vector", flat=True).first()
    if first is None:
        return
    count = rows.count()
    if count * len(first) > MOST_BYTES:
        yield from _read(rows, after=0)
        return
    with _lock:
        matrix = _whole((owner_id, space), rows, count)
    if matrix is not None:
        yield matrix


def _whole(key: tuple[int, str], rows: QuerySet[ChunkVector], count: int) -> Matrix | None:
    """Return the kept matrix with what is new; read all of it again if some of it is gone."""
    import numpy as np

    kept = _kept.pop(key, None)
    parts = [*([kept] if kept else []), *_read(rows, after=kept.last if kept else 0)]
    if kept and sum(len(part.ids) for part in parts) != count:
        parts = list(_read(rows, after=0))
    if not parts:
        return None
    if len(parts) == 1:
        [matrix] = parts
    else:
        ids, vectors = (np.concatenate(arrays) for arrays in ([one.ids for one in parts], [one.rows for one in parts]))
        matrix = Matrix(parts[-1].last, ids, vectors)
    _kept[key] = matrix
    while sum(one.rows.nbytes for one in _kept.values()) > MOST_BYTES and len(_kept) > 1:
        _kept.popitem(last=False)
    return matrix


def _read(rows: QuerySet[ChunkVector], *, after: int) -> Iterator[Matrix]:
    import numpy as np

    while found := list(rows.filter(pk__gt=after).values_list("pk", "chunk_id", "vector")[:_ROWS]):
        after = found[-1][0]
        ids = np.fromiter((chunk for _, chunk, _ in found), np.int64, len(found))
        vectors = np.frombuffer(b"".join(vector for _, _, vector in found), "<f4").reshape(len(found), -1)
        yield Matrix(after, ids, vectors)
