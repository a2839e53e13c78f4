"""retrieve_chunks: what a run reads of its owner's documents. Costs nothing and changes nothing.

Four ways: one `document` (a watch); a whole `collection`; a `collection` with `since` (what was added after that time,
up to `until` if given); a `query`: the best passages of a `collection` or of all documents, of what is new `since` a
time or of all. Search ranks them: by words, and by meaning if the vector of the query is at hand; `words_only` says why
it is not, for the summary. Everything is read as the session's owner.

The result has a `summary` of ids, counts and offsets, apart from the text. With `places` there is no text: the run
reads documents of any length by itself, section by section. Without, whole documents are taken in order while they fit
into `limit_chars`. A document that is too long by itself gets the room that is left: it is cut after its last chunk
that fits, `cut_id` names it, and `cut_chars` says how much is missing. The others are counted and named.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from agents.guard.tools import BadParams, public_id, text
from agents.knowledge.search import (
    RUN_CHARS,
    Hit,
    SizedDocument,
    collection_get,
    document_get,
    documents_in,
    documents_new_in,
    documents_read,
    last_chunk_end_within,
    search_chunks,
)
from agents.models import Document
from agents.skills.skill import SkillContext

MOST_CHARS = 1_000_000
PLACES_CHARS = 50_000_000  # of all documents of one run
PASSAGES = 500  # of one query
_GIVEN = {
    "document": {"document"},
    "query": {"query", "collection", "since", "until", "words_only"},
    "collection": {"collection", "since", "until"},
}


@dataclass(frozen=True)
class _Passage:
    """A slice of a document: `document.text[start:end]`."""

    document: Document
    start: int
    end: int


@dataclass(frozen=True)
class _Found:
    mode: str
    passages: Sequence[_Passage]
    left_out: Sequence[UUID] = ()
    search: Mapping[str, Any] = field(default_factory=dict)  # how a query was searched


def retrieve_chunks(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in params.items() if value is not None}
    places = given.pop("places", False) is True
    limit = PLACES_CHARS if places else _limit(given.pop("limit_chars", RUN_CHARS))
    way = next((way for way in _GIVEN if way in given), None)
    if way is None:
        raise BadParams("one of 'document', 'collection' or 'query' is needed.")
    if unknown := given.keys() - _GIVEN[way]:
        raise BadParams(f"{way!r} does not go with {', '.join(sorted(map(repr, unknown)))}.")
    ways = {"document": _by_document, "collection": _by_collection, "query": _by_query}
    return _answer(ways[way](context.owner_id, given, limit), with_text=not places)


# --- The four ways ---


def _by_document(owner_id: int, given: Mapping[str, Any], limit: int) -> _Found:
    document = document_get(owner_id=owner_id, public_id=public_id(given, "document"))
    return _Found("document", [_beginning(document, limit)])


def _by_collection(owner_id: int, given: Mapping[str, Any], limit: int) -> _Found:
    collection = collection_get(owner_id=owner_id, public_id=public_id(given, "collection"))
    after, until = _period(given)
    if after is not None:
        listed = documents_new_in(owner_id=owner_id, collection=collection, after=after, until=until)
        return _whole("since", owner_id, listed, limit)
    return _whole("collection", owner_id, documents_in(owner_id=owner_id, collection=collection), limit)


def _whole(mode: str, owner_id: int, listed: Sequence[SizedDocument], limit: int) -> _Found:
    """Read the texts of documents that fit, and of the first that never would."""
    long = next((sized.pk for sized in listed if sized.chars > limit), None)
    taken, room = set(), limit
    for sized in listed:
        if sized.chars <= room:
            taken.add(sized.pk)
            room -= sized.chars
    if long is not None and room:
        taken.add(long)
    documents = documents_read(owner_id=owner_id, pks=[sized.pk for sized in listed if sized.pk in taken])
    passages = [_beginning(document, room if document.pk == long else limit) for document in documents]
    return _Found(mode, passages, [sized.public_id for sized in listed if sized.pk not in taken])


def _beginning(document: Document, limit: int) -> _Passage:
    """Return the document as far as it fits: up to the end of a chunk, if one fits."""
    chars = len(document.text)
    if chars > limit:
        chars = last_chunk_end_within(document=document, chars=limit) or limit
    return _Passage(document, 0, chars)


def _by_query(owner_id: int, given: Mapping[str, Any], limit: int) -> _Found:
    collections = None
    if "collection" in given:
        collections = [collection_get(owner_id=owner_id, public_id=public_id(given, "collection")).pk]
    after, until = _period(given)
    hits = search_chunks(
        owner_id=owner_id,
        query=text(given, "query"),
        collection_ids=collections,
        limit=PASSAGES,
        after=after,
        until=until,
    )
    taken: list[Hit] = []
    for hit in hits:
        if sum(other.end - other.start for other in taken) + hit.end - hit.start <= limit:
            taken.append(hit)
    read = {hit.document_id for hit in taken}
    missing = dict.fromkeys(hit.document_public_id for hit in hits if hit.document_id not in read)
    search: dict[str, Any] = {}
    if words_only := text(given, "words_only", "", limit=300):
        search["words_only"] = words_only
    elif (found_by := Counter(hit.found_by for hit in taken)).keys() - {"words"}:
        search["found_by"] = dict(found_by)
    return _Found("query", _joined(owner_id, taken), list(missing), search)


def _joined(owner_id: int, hits: Sequence[Hit]) -> list[_Passage]:
    """Order by best hit; within a document join neighbouring passages in text order."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for hit in hits:
        spans.setdefault(hit.document_id, []).append((hit.start, hit.end))
    passages: list[_Passage] = []
    for document in documents_read(owner_id=owner_id, pks=list(spans)):
        for start, end in sorted(spans[document.pk]):
            before = passages[-1] if passages else None
            if before is not None and before.document is document and before.end == start:
                passages[-1] = _Passage(document, before.start, end)
            else:
                passages.append(_Passage(document, start, end))
    return passages


# --- Parameters and result ---


def _limit(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_CHARS:
        raise BadParams(f"'limit_chars' must be a whole number from 1 to {MOST_CHARS}, not {value!r}.")
    return value


def _period(given: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return since and until; an end needs a beginning."""
    if "until" in given and "since" not in given:
        raise BadParams("'until' goes with 'since'.")
    return _time(given, "since") if "since" in given else None, _time(given, "until") if "until" in given else None


def _time(given: Mapping[str, Any], name: str) -> datetime:
    value = text(given, name, limit=64)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadParams(f"{name!r} must be a time such as 2026-03-14T09:00:00+00:00, not {value!r}.") from None
    raise BadParams(f"{name!r} needs a time zone, such as 2026-03-14T09:00:00+00:00; {value!r} has none.")


def _answer(found: _Found, *, with_text: bool) -> dict[str, Any]:
    passages = found.passages
    # The passage that does not reach the end of its document. Passages of a query are never cut.
    shortened = (one for one in passages if one.end < len(one.document.text) and found.mode != "query")
    cut = next(shortened, None)
    places = [
        {"document_id": str(passage.document.public_id), "start": passage.start, "end": passage.end}
        for passage in passages
    ]
    summary = {
        "mode": found.mode,
        "documents": len({passage.document.pk for passage in passages}),
        "chunks": len(passages),
        "chars": sum(passage.end - passage.start for passage in passages),
        "left_out": len(found.left_out),
        "left_out_ids": [str(public_id) for public_id in found.left_out],
        "cut_id": str(cut.document.public_id) if cut else None,
        "cut_chars": len(cut.document.text) - cut.end if cut else 0,
        "passages": places,
        **found.search,
    }
    chunks = [
        {**place, "name": passage.document.name, **({"text": _text(passage)} if with_text else {})}
        for place, passage in zip(places, passages, strict=True)
    ]
    return {"summary": summary, "chunks": chunks}


def _text(passage: _Passage) -> str:
    return passage.document.text[passage.start : passage.end]
