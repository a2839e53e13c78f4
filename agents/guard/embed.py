"""retrieve_chunks with `embed`: has a model turn text into vectors, for search by meaning. Priced like a model call.

Three things are embedded: `passages` (ids of chunks of the owner, whose vectors are stored), a `query` (whose vector is
stored for the search that follows), or a `test` (nothing is stored). The result counts; it holds no vector.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from agents.definitions.catalogue import embedding_model
from agents.enums import Level, Purpose, ToolIntent
from agents.exceptions import NoAnswer, NotFound
from agents.guard.tools import BadParams, Params, Tool, label, text
from agents.knowledge.vectors import BATCH, NUMBER_BYTES, query_store, texts_of, vector_space, vectors_store
from agents.ledger.model_limits import context_tokens
from agents.ledger.prices import CHARS_PER_TOKEN
from agents.skills.skill import SkillContext
from agents.types import Capability, ModelRequest
from audit.redaction import redact

QUERY_CHARS: Final = 2_000
_CAPABILITY: Final = Capability(ToolIntent.RETRIEVE_CHUNKS, level=Level.MONITORED, side_effects=False)
Handler = Callable[[SkillContext, Params], dict[str, Any]]


def embed_tool(params: Params) -> Tool:
    """Return the tool for one call. Passages are read here once; their text never changes."""
    kinds: dict[object, Callable[[Params], tuple[list[str], Handler]]] = {
        "passages": _passages,
        "query": _query,
        "test": lambda given: ([text(given, "query")], _test),
    }
    kind = kinds.get(params["embed"]) if isinstance(params["embed"], str) else None
    if kind is None:
        raise BadParams(f"'embed' must be one of {', '.join(map(str, kinds))}, not {params['embed']!r}.")
    model = label(params, "model")
    texts, handler = kind(params)
    most = context_tokens(model) * CHARS_PER_TOKEN or None  # a server that takes less refuses the whole request
    messages = tuple({"role": "user", "content": redact(one)[:most]} for one in texts)
    request = ModelRequest(model, messages, max_tokens=0, min_tokens=0, purpose=Purpose.EMBEDDING)
    return Tool(handler, _CAPABILITY, remote=True, request=lambda _: request)


def _passages(params: Params) -> tuple[list[str], Handler]:
    wanted = params.get("passages")
    if not isinstance(wanted, list) or not 1 <= len(wanted) <= BATCH or not all(type(one) is int for one in wanted):
        raise BadParams(f"'passages' must be a list of 1 to {BATCH} ids of chunks.")
    found = texts_of(wanted)
    if not found:
        raise BadParams("there are no such passages.")
    owners = {owner for _, owner, _ in found}
    return [one for _, _, one in found], partial(_store_passages, [pk for pk, _, _ in found], owners)


def _store_passages(ids: list[int], owners: set[int], context: SkillContext, params: Params) -> dict[str, Any]:
    if owners != {context.owner_id}:
        raise NotFound("There are no such passages.")
    space = _space(params)
    vectors = dict(zip(ids, _vectors(context), strict=True))
    stored = vectors_store(space, vectors, owner_id=context.owner_id)
    return {"stored": stored, "dimensions": _dimensions(vectors[ids[0]])}


def _query(params: Params) -> tuple[list[str], Handler]:
    return [text(params, "query", limit=QUERY_CHARS)], _store_query


def _store_query(context: SkillContext, params: Params) -> dict[str, Any]:
    space = _space(params)
    [vector] = _vectors(context)
    query_store(space, text(params, "query"), vector, owner_id=context.owner_id)
    return {"stored": 1, "dimensions": _dimensions(vector)}


def _test(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    [vector] = _vectors(context)
    return {"stored": 0, "dimensions": _dimensions(vector), "text": f"a vector of {_dimensions(vector)} dimensions"}


def _space(params: Params) -> str:
    """Return the space that the model's vectors belong to; the model may have changed since the call was planned."""
    space = vector_space()
    if not space or params["model"] != embedding_model():
        raise BadParams(f"{params['model']} does not have the role of embeddings.")
    return space


def _vectors(context: SkillContext) -> tuple[bytes, ...]:
    vectors = context.infer(None).vectors
    if not vectors:
        raise NoAnswer("the model answered without a vector: it is not one for embeddings")
    return vectors


def _dimensions(vector: bytes) -> int:
    return len(vector) // NUMBER_BYTES
