"""Search over one owner's chunks, by words and by meaning, and reads of collections and documents.

Any text is a query: it is split into words, a chunk with any of them matches, the best match comes first. Of very many
matches the newest with all of the words are compared, with half of them, and with any, MOST_RANKED of each. Nothing in
a query is an operator.
SQLite lists chunks with all of the words first, then those with half of them, then those with any, each by bm25.
PostgreSQL ranks all of them by ts_rank, which prefers several of the words to one word often, then by ts_rank_cd, which
prefers words close together. If the vector of the query is at hand (vectors.py), the chunks nearest to it are
found, too, and the two orders become one. Every read is by owner: what is somebody else's is not found.
"""

import re
from collections.abc import Collection as Collected
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, combinations, islice
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Max
from django.db.models.functions import Length

from agents.enums import DocumentOrigin
from agents.exceptions import NotFound
from agents.knowledge.vectors import nearest, query_vector, vector_space
from agents.models import Attachment, Chunk, Collection, Document
from agents.text.wording import FILLERS

MAX_WORDS = 32
MAX_WORD_CHARS = 100
SNIPPET_WORDS = 32
MOST_RANKED = 1_000  # chunks of each part: a search takes as long in a million chunks as in these
MOST_JOINED = 6  # words of which chunks with half of them are looked for
NEAREST: Final = 30  # chunks that are found by meaning: every chunk is near to some degree
RANK_OFFSET: Final = 60  # the usual constant of reciprocal rank fusion
_GAP = " … "

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


_COLUMNS = 'chunk.id, chunk.document_id, document.public_id, document.name, chunk.start, chunk."end"'
_OWNED = "document.owner_id = %s AND document.deleted_at IS NULL"
_ATTACHED = """AND EXISTS (
    SELECT 1 FROM agents_attachment AS attachment
    JOIN agents_collection AS collection ON collection.id = attachment.collection_id
    WHERE attachment.document_id = document.id AND attachment.detached_at IS NULL
      AND collection.deleted_at IS NULL AND collection.owner_id = document.owner_id
      AND {which}
)"""
# Each part ranks the newest matches. FTS5 ranks the rows of a range, not those of a list, so a part begins at a row.
_MATCHED = f"""
FROM chunk_fts
JOIN agents_chunk AS chunk ON chunk.id = chunk_fts.rowid
JOIN agents_document AS document ON document.id = chunk.document_id
WHERE chunk_fts MATCH %s AND {_OWNED} {{within}}
"""
# bm25 adds up all phrases of a query, and a part with half of the words has each word in several groups: its scores
# compare within a part alone, so the part comes before the fit.
_SQLITE = f"""
SELECT *, {{part}} AS part FROM (
    SELECT {_COLUMNS}, snippet(chunk_fts, 0, '', '', '{_GAP}', {SNIPPET_WORDS}) AS snippet, -bm25(chunk_fts) AS fit
    {_MATCHED} AND chunk_fts.rowid > ifnull((
        SELECT chunk_fts.rowid {_MATCHED} ORDER BY chunk_fts.rowid DESC LIMIT 1 OFFSET %s
    ), 0)
    ORDER BY fit DESC, chunk.id
    LIMIT %s
)
"""  # noqa: S608 made of constants; what people enter is passed as parameters
_HEADLINE = f'StartSel="", StopSel="", MaxFragments=1, MaxWords={SNIPPET_WORDS}, MinWords=16'
# The query is a constant, so that the planner can weigh the index. Snippets are made only for the rows returned.
_POSTGRESQL_PART = f"""(
    SELECT id, document_id, public_id, name, start, "end", text,
        ts_rank(words, {{any}}) AS fit, ts_rank_cd(words, {{any}}) AS near
    FROM (
        SELECT {_COLUMNS}, chunk.text, chunk.words
        FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
        WHERE chunk.words @@ ({{query}}) AND {_OWNED} {{within}}
        ORDER BY chunk.id DESC
        LIMIT %s
    ) AS newest
    ORDER BY fit DESC, near DESC, id
    LIMIT %s
)"""  # noqa: S608 made of constants, as above
_POSTGRESQL = f"""
WITH best AS ({{parts}})
SELECT id, document_id, public_id, name, start, "end", ts_headline('english', text, {{any}}, '{_HEADLINE}')
FROM best ORDER BY fit DESC, near DESC, id
"""  # noqa: S608 made of constants, as above


_IDS = f"""
SELECT chunk.id FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
WHERE {_OWNED} {{within}}
"""  # noqa: S608 made of constants, as above


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
    within = _attached(collection_ids or (), after, until)
    space = vector_space()
    vector = query_vector(space, query, owner_id=owner_id) if space else None
    if vector is None:
        return _by_words(owner_id, words, within, limit)
    among = _inside(owner_id, within) if within[0] else None
    near = nearest(space, vector, owner_id=owner_id, limit=NEAREST, among=among)
    return _fused(_by_words(owner_id, words, within, max(limit, NEAREST)), near, owner_id)[:limit]


def _by_words(owner_id: int, words: Sequence[str], attached: tuple[str, list[Any]], limit: int) -> list[Hit]:
    """Return the best of the newest chunks with all of the words, with half of them and with any of them."""
    within, values = attached
    compose = _for_postgresql if connection.vendor == "postgresql" else _for_sqlite
    sql, parameters = compose(words, _parts(words), within, [owner_id, *values], limit)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found: dict[int, tuple[Any, ...]] = {}
        for row in cursor.fetchall():
            found.setdefault(row[0], row)  # a chunk of several parts stands where it is found first
    return [_hit(row, rank=_reciprocal(place)) for place, row in enumerate(islice(found.values(), limit), 1)]


def _parts(words: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Return groups of words for each part: a chunk matches a part if it has all words of one of its groups.

    Longer words are rarer: of many words the longest are those of which half are looked for.
    """
    longest = sorted(words, key=len, reverse=True)[:MOST_JOINED]
    everything = [tuple(words)] if len(words) > 1 else []
    half = [*combinations(longest, (len(longest) + 1) // 2)] if len(words) > 2 else []  # noqa: PLR2004 half of two is any
    parts: list[list[tuple[str, ...]]] = [everything, half, [(word,) for word in words]]
    return [groups for groups in parts if groups]


def _for_postgresql(
    words: Sequence[str], parts: Sequence[Sequence[tuple[str, ...]]], within: str, among: list[Any], limit: int
) -> tuple[str, list[Any]]:
    any_word = _tsquery([(word,) for word in words])
    composed, parameters = [], []
    for groups in parts:
        composed.append(_POSTGRESQL_PART.format(query=_tsquery(groups), any=any_word, within=within))
        parameters += [*words, *words, *chain(*groups), *among, MOST_RANKED, limit]
    return _POSTGRESQL.format(parts=" UNION ALL ".join(composed), any=any_word), [*parameters, *words]


def _tsquery(groups: Sequence[Sequence[str]]) -> str:
    word = "plainto_tsquery('english', %s)"
    return " || ".join(f"({' && '.join([word] * len(group))})" for group in groups)


def _for_sqlite(
    words: Sequence[str], parts: Sequence[Sequence[tuple[str, ...]]], within: str, among: list[Any], limit: int
) -> tuple[str, list[Any]]:
    parameters: list[Any] = []
    for groups in parts:
        matched = [" OR ".join(f"({' AND '.join(map(_quoted, group))})" for group in groups), *among]
        parameters += [*matched, *matched, MOST_RANKED, limit]
    composed = " UNION ALL ".join(_SQLITE.format(part=number, within=within) for number in range(len(parts)))
    return f"{composed} ORDER BY part, fit DESC, id", parameters


def _quoted(word: str) -> str:
    return f'"{word.replace(chr(34), chr(34) * 2)}"'


def _inside(owner_id: int, attached: tuple[str, list[Any]]) -> list[int]:
    """Return the ids of the chunks that a search may find."""
    within, values = attached
    with connection.cursor() as cursor:
        cursor.execute(_IDS.format(within=within), [owner_id, *values])
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
    return " ".join(words[:SNIPPET_WORDS]) + (_GAP.rstrip() if len(words) > SNIPPET_WORDS else "")


def _attached(ids: Sequence[int], after: datetime | None, until: datetime | None) -> tuple[str, list[Any]]:
    """Return the SQL condition on where and when the document was attached, and its parameters."""
    time = connection.ops.adapt_datetimefield_value
    conditions: dict[str, list[Any]] = {}
    if ids:
        conditions[f"collection.id IN ({', '.join(['%s'] * len(ids))})"] = list(ids)
    if after is not None:
        conditions["attachment.attached_at > %s"] = [time(after)]
        conditions["document.origin = %s"] = [DocumentOrigin.UPLOAD.value]
    if until is not None:
        conditions["attachment.attached_at <= %s"] = [time(until)]
    which = _ATTACHED.format(which=" AND ".join(conditions)) if conditions else ""
    return which, [value for values in conditions.values() for value in values]


def _hit(row: tuple[Any, ...], *, rank: float) -> Hit:
    chunk_id, document_id, public_id, name, start, end, snippet, *_order = row
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
