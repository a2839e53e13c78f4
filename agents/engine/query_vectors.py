"""The vector of a query, fetched for a run before it searches. A search never fails for want of one."""

from typing import Final

from agents.definitions.catalogue import embedding_model
from agents.enums import ToolIntent
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    RetryLater,
    RunsAwaited,
    UnpricedModel,
)
from agents.guard import guarded_tool_call
from agents.guard.guard import can_be_paid
from agents.guard.tools import BadParams, persisting
from agents.knowledge.vectors import has_vectors, query_vector, vector_space, vectors_read
from agents.models import AgentSession
from agents.text.clean import one_line

KEY_SUFFIX: Final = ":meaning"  # appended to the key of the search
REASON_CHARS: Final = 300
_NOT_ASKED: Final[dict[type[Exception], str]] = {
    RetryLater: "the embedding model does not answer",
    ModelSuspended: "the embedding model is suspended",
    UnpricedModel: "the embedding model has no price",
    BudgetExceeded: "there is no money left for it",
    BudgetRefused: "there is no money left for it",
    CostCapReached: "there is no money left for it",
    RunsAwaited: "there is no money left for it",
    BadParams: "the query cannot be sent",
}


def fetch_query_vector(session: AgentSession, query: str, *, key: str) -> str:
    """Have the vector of a query at hand for the search at this key. Return why there is none; "" if none is wanted.

    Whatever goes wrong, the search goes by words alone. A halt or a lost lease ends the run as usual.
    """
    space = vector_space()
    if not space:
        return ""
    if not has_vectors(space, owner_id=session.owner_id):
        return "no document is indexed yet"
    if query_vector(space, query, owner_id=session.owner_id) is None and (reason := _ask(session, query, key)):
        return one_line(reason, REASON_CHARS)
    vectors_read(space, owner_id=session.owner_id)
    return ""


def _ask(session: AgentSession, query: str, key: str) -> str:
    params = {"embed": "query", "query": query, "model": embedding_model()}
    try:
        if not can_be_paid(session, ToolIntent.RETRIEVE_CHUNKS, params):
            return _NOT_ASKED[BudgetExceeded]
        with persisting(1):
            result = guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params, key=f"{key}{KEY_SUFFIX}")
    except tuple(_NOT_ASKED) as refusal:
        return next(words for kind, words in _NOT_ASKED.items() if isinstance(refusal, kind))
    return "" if result.ok else result.error or str(result.outcome)
