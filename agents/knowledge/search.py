"""Search over one owner's chunks, by words and by meaning, and reads of collections and documents.

Any text is a query: it is split into words, a chunk with any of them matches, the best match comes first. Nothing in a
query is an operator. Of very many matches the newest with all of the words are compared, with half of them, and with
any; which these are is said in scope.py.
SQLite lists chunks with all of the words first, then those with half of them, then those with any, each by BM25 over
what is compared. PostgreSQL ranks all of them by ts_rank, which prefers several of the words to one word often, then by
ts_rank_cd, which prefers words close together. If the vector of the query is at hand (vectors.py), the chunks nearest
to it are found, too, and the two orders become one. Every read is by owner: what is somebody else's is not found.
"""

import re
from collections.abc import Collection as Collected
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Max
from django.db.models.functions import Length

from agents.enums import DocumentOrigin
from agents.exceptions import NotFound
from agents.knowledge import words_postgresql, words_sqlite
from agents.knowledge.scope import GAP, OWNED, SNIPPET_WORDS, Scope
from agents.knowledge.vectors import nearest, query_vector, vector_space
from agents.models import Attachment, Chunk, Collection, Document
from agents.text.wording import FILLERS

MAX_WORDS = 32
MAX_WORD_CHARS = 100
NEAREST: Final = 30  # chunks that are found by meaning: every chunk is near to some degree
RANK_OFFSET: Final = 60  # the usual constant of reciprocal rank fusion

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
# Separated by spaces, brackets and quotation marks: a date, an amount or an address is one word.
_PIECE = re.compile(r"[^\s()\[\]{}<>\"\u201c\u201d\u201e\u00ab\u00bb|;=*^!?~\\]+")
_HAS_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class Hit:
    """A matching chunk. `rank` comes from its places in the orders by words and by meaning, and falls down the list.

    Ranks of two searches do not compare. `found_by` is words, meaning, or both.
    """

    chunk_id: int
    document_id: int
    document_public_id: UUID
    name: str
    start: int
    end: int
    snippet: str
    rank: float
    found_by: str = "words"


_IDS = f"""
SELECT chunk.id FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
WHERE {OWNED} {{within}}
"""  # noqa: S608 made of constants; what people enter is passed as parameters


def search_chunks(
    *,
    owner_id: int,
    query: str,
    collection_ids: Sequence[int] | None = None,
    limit: int = 20,
    after: datetime | None = None,
    until: datetime | None = None,
) -> list[Hit]:
    """Return the owner's matching chunks, best first. `collection_ids`: only documents in one of them now.

    `after`, `until`: only documents that people attached to one of them, or to any, in this period.
    """
    words = _words(query)
    if not words or limit < 1 or (collection_ids is not None and not collection_ids):
        return []
    scope = _scope(owner_id, collection_ids or (), after, until)
    space = vector_space()
    vector = query_vector(space, query, owner_id=owner_id) if space else None
    if vector is None:
        return _by_words(scope, words, limit)
    among = _inside(scope) if scope.which else None
    near = nearest(space, vector, owner_id=owner_id, limit=NEAREST, among=among)
    return _fused(_by_words(scope, words, max(limit, NEAREST)), near, owner_id)[:limit]


def _by_words(scope: Scope, words: Sequence[str], limit: int) -> list[Hit]:
    index = words_postgresql if connection.vendor == "postgresql" else words_sqlite
    found = index.find(scope, words, limit)
    return [_hit(row, rank=_reciprocal(place)) for place, row in enumerate(found, 1)]


def _inside(scope: Scope) -> list[int]:
    """Return the ids of the chunks that a search may find."""
    with connection.cursor() as cursor:
        cursor.execute(_IDS.format(within=scope.within), scope.parameters)
        return [pk for (pk,) in cursor.fetchall()]


def _fused(hits: Sequence[Hit], near: Sequence[int], owner_id: int) -> list[Hit]:
    """Make one order of two, by reciprocal ranks: what both have comes first, then what either has high up."""
    by_words = {hit.chunk_id: hit for hit in hits}
    found = by_words | _hits(set(near) - by_words.keys(), owner_id)
    ranks = [{pk: place for place, pk in enumerate(order, 1)} for order in (list(by_words), near)]
    fused = [
        replace(
            hit,
            rank=sum(_reciprocal(order[pk]) for order in ranks if pk in order),
            found_by="both" if pk in by_words and pk in ranks[1] else hit.found_by,
        )
        for pk, hit in found.items()
    ]
    return sorted(fused, key=lambda hit: -hit.rank)


def _reciprocal(place: int) -> float:
    return 1 / (RANK_OFFSET + place)


def _hits(chunks: Collected[int], owner_id: int) -> dict[int, Hit]:
    """Return chunks that no word found, with their first words for a snippet."""
    rows = Chunk.objects.filter(pk__in=chunks, document__owner_id=owner_id, document__deleted_at__isnull=True)
    columns = ("pk", "document_id", "document__public_id", "document__name", "start", "end", "text")
    return {
        row[0]: replace(_hit((*row[:-1], _beginning(row[-1])), rank=0.0), found_by="meaning")
        for row in rows.values_list(*columns)
    }


def _beginning(text: str) -> str:
    words = text.split()
    return " ".join(words[:SNIPPET_WORDS]) + (GAP.rstrip() if len(words) > SNIPPET_WORDS else "")


def _scope(owner_id: int, ids: Sequence[int], after: datetime | None, until: datetime | None) -> Scope:
    time = connection.ops.adapt_datetimefield_value
    conditions: dict[str, list[Any]] = {}
    if ids:
        conditions[f"collection.id IN ({', '.join(['%s'] * len(ids))})"] = list(ids)
    if after is not None:
        conditions["attachment.attached_at > %s"] = [time(after)]
        conditions["document.origin = %s"] = [DocumentOrigin.UPLOAD.value]
    if until is not None:
        conditions["attachment.attached_at <= %s"] = [time(until)]
    return Scope(owner_id, " AND ".join(conditions), tuple(chain.from_iterable(conditions.values())))


def _hit(row: tuple[Any, ...], *, rank: float) -> Hit:
    chunk_id, document_id, public_id, name, start, end, snippet = row
    line = " ".join(snippet.split())
    return Hit(chunk_id, document_id, UUID(str(public_id)), name, start, end, line, rank)


def _words(query: str) -> list[str]:
    pieces = (piece[:MAX_WORD_CHARS] for piece in _PIECE.findall(_UNSENDABLE.sub(" ", query)))
    words = {piece.casefold(): piece for piece in pieces if _HAS_LETTER_OR_DIGIT.search(piece)}
    # In a question fillers only add noise. A query of nothing else is searched as it is.
    useful = [word for plain, word in words.items() if plain not in FILLERS]
    return (useful or list(words.values()))[:MAX_WORDS]


# --- Collections and documents ---

RUN_CHARS: Final = 200_000  # characters of documents that one run reads
_SAME_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class SizedDocument:
    """A document without its text: its length, and when it was attached to the collection."""

    pk: int
    public_id: UUID
    chars: int
    attached_at: datetime


def collection_get(*, owner_id: int, public_id: UUID) -> Collection:
    found = Collection.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"There is no collection {public_id}.")
    return found


def collection_named(*, owner_id: int, name: str) -> Collection | None:
    return Collection.objects.filter(name=name, owner_id=owner_id, deleted_at__isnull=True).first()


def document_get(*, owner_id: int, public_id: UUID) -> Document:
    found = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"There is no document {public_id}.")
    return found


def documents_in(*, owner_id: int, collection: Collection, **which: object) -> list[SizedDocument]:
    """Return the documents in the collection, in the order in which they were attached."""
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
    return [
        SizedDocument(*row) for row in found.values_list("document_id", "document__public_id", "chars", "attached_at")
    ]


def documents_new_in(
    *, owner_id: int, collection: Collection, after: datetime, until: datetime | None = None
) -> list[SizedDocument]:
    """Return what people attached after one time and, if given, up to another; no artifacts of runs.

    Adjacent periods share no document: the later one begins after the time at which the earlier one ends.
    """
    bounds = {"attached_at__gt": after} | ({"attached_at__lte": until} if until else {})
    uploads = {"document__origin": DocumentOrigin.UPLOAD, **bounds}
    return documents_in(owner_id=owner_id, collection=collection, **uploads)


def readable_until(listed: Sequence[SizedDocument]) -> datetime | None:
    """Return the time up to which one run can read, if it cannot read all: as many as fit, at least one.

    Documents of the same time stay together; otherwise the later ones would never be read.
    """
    room = RUN_CHARS
    for number, sized in enumerate(listed):
        if sized.chars > room and number:
            return max(listed[0].attached_at, sized.attached_at - timedelta.resolution)
        room -= sized.chars
    return None


def free_time(*, collection: Collection, at: datetime) -> datetime:
    """Return the first free time from `at` on, so that a period can end between any two documents."""
    near = {"attached_at__gte": at, "attached_at__lt": at + _SAME_MOMENT}
    last = Attachment.objects.filter(collection=collection, **near).aggregate(last=Max("attached_at"))["last"]
    return last + timedelta.resolution if last else at


def documents_read(*, owner_id: int, pks: list[int]) -> list[Document]:
    """Return the documents with their text, in the order of the ids."""
    found = Document.objects.filter(owner_id=owner_id, deleted_at__isnull=True).in_bulk(pks)
    return [found[pk] for pk in pks if pk in found]


def last_chunk_end_within(*, document: Document, chars: int) -> int:
    """Return the end of the last chunk that lies within the first `chars` characters; 0 if none does."""
    ends = Chunk.objects.filter(document_id=document.pk, end__lte=chars).order_by("-end").values_list("end", flat=True)
    return ends.first() or 0
