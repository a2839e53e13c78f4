"""Indexes documents for search by meaning, in runs of their own: guarded, booked, capped, and resumed after a crash.

The ticker starts a run for an owner whose documents lack vectors. A run sends chunks in batches until none is left; it
reads and nothing else, since it stays in the phase of intake. Batches that were stored are not sent again.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from agents.conf import clock
from agents.definitions.catalogue import embedding_model
from agents.engine.query_vectors import REASON_CHARS, fetch_query_vector
from agents.enums import Mode, TerminalReason, ToolIntent
from agents.exceptions import LqopsError, SessionHalted
from agents.guard import guarded_tool_call
from agents.guard.selftest import arm
from agents.guard.tools import BadParams
from agents.knowledge.vectors import (
    chars_missing,
    documents_missing,
    next_batch,
    query_vector,
    vector_space,
    vectors_forget_owner,
)
from agents.ledger.prices import CHARS_PER_TOKEN, estimate_embedding
from agents.models import AgentSession, Profile, agents_may_run
from agents.people.access import actor_of, record_act, require_access, require_start_permission
from agents.people.ceilings import require_within_ceilings
from agents.runner import run_claimed
from agents.sessions.fairness import slice_is_over
from agents.sessions.leases import lease_claim_now
from agents.sessions.lifecycle import session_create
from agents.text.clean import one_line
from agents.types import End, Finished, SliceOver
from audit.redaction import redact

OWNERS_AT_ONCE: Final = 20
SEARCH_CAP_USD: Final = Decimal("0.05")
SEARCH_OWNER: Final = "search"
# How long the ticker waits after a run that did not index everything; others may start one at any time.
_PAUSES: Final = {
    TerminalReason.COMPLETED: timedelta(0),
    TerminalReason.COST_CAP_REACHED: timedelta(days=1),
    TerminalReason.BUDGET_EXCEEDED: timedelta(days=1),
}
_PAUSE: Final = timedelta(hours=1)


# --- Starting ---


def indexing_due(now: datetime) -> int:
    """Start a run for each owner whose documents lack vectors, unless one is at work or has just failed."""
    space = vector_space()
    if not space:
        return 0
    lacking = documents_missing(space).order_by().values("owner_id")
    owners = User.objects.filter(agents_may_run(), pk__in=lacking).order_by("pk")
    due = [owner for owner in owners if _rested(owner.pk, now)][:OWNERS_AT_ONCE]
    try:
        for owner in due:
            index_start(owner=owner, by=None, now=now)
    except SessionHalted:
        return 0  # all work is halted
    return len(due)


def _rested(owner_id: int, now: datetime) -> bool:
    last = _runs(owner_id).first()
    if last is None:
        return True
    if last.completed_at is None or last.terminal_reason is None:
        return False
    return now >= last.completed_at + _PAUSES.get(TerminalReason(last.terminal_reason), _PAUSE)


def _runs(owner_id: int) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(owner_id=owner_id, mode=Mode.INDEX, params={}).order_by("-pk")


@transaction.atomic
def index_start(*, owner: User, by: User | None, now: datetime, max_cost_usd: Decimal | None = None) -> AgentSession:
    """Return the run that indexes the owner's documents: the one at work, or a new one."""
    require_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    require_within_ceilings(by, owner=owner, max_cost_usd=max_cost_usd)
    list(Profile.objects.filter(user_id=owner.pk).select_for_update())  # one at a time
    active = _runs(owner.pk).filter(completed_at__isnull=True).first()
    return active or session_create(
        owner=owner, mode=Mode.INDEX, now=now, max_cost_usd=max_cost_usd, asked_by=actor_of(by)
    )


@dataclass(frozen=True)
class IndexState:
    """How much of an owner's documents is indexed, and what the rest would cost."""

    model: str
    documents: int
    indexed: int
    passages_left: int
    tokens_left: int
    estimate_usd: Decimal


def index_state(owner: User) -> IndexState:
    space = vector_space()
    documents = owner.lqops_documents.filter(deleted_at__isnull=True)
    passages, chars = chars_missing(space, owner_id=owner.pk)
    return IndexState(
        model=embedding_model(),
        documents=documents.count(),
        indexed=documents.filter(indexed_as=space).count(),
        passages_left=passages,
        tokens_left=-(-chars // CHARS_PER_TOKEN),
        estimate_usd=estimate_embedding(embedding_model(), chars),
    )


@transaction.atomic
def index_forget(*, owner: User, by: User | None, now: datetime) -> int:
    """Delete the vectors of the owner's documents, so that they are indexed anew. Return how many there were."""
    require_access(by, owner_id=owner.pk, permission="agents.change_document")
    gone = vectors_forget_owner(owner.pk)
    record_act("documents.index_deleted", by=by, now=now, subject=f"user:{owner.pk}", owner_id=owner.pk, vectors=gone)
    return gone


# --- The engine ---


def run_index(session: AgentSession) -> End:
    """Embed the owner's chunks that have no vector, batch by batch."""
    if session.params:
        return Finished()  # the search that it was for is over
    started_at = clock()
    before: list[int] = []
    while True:
        space = vector_space()
        batch = next_batch(space, owner_id=session.owner_id) if space else []
        if not batch:
            return Finished()
        if batch == before:
            return Finished(TerminalReason.PROVIDER_ERROR, error="The last passages could not be stored.")
        error = _embed(session, space, batch)
        if error:
            return Finished(TerminalReason.PROVIDER_ERROR, error=error)
        before = batch
        if slice_is_over(session, started_at):
            return SliceOver()


def _embed(session: AgentSession, space: str, batch: list[int]) -> str:
    """Send one batch; return what went wrong."""
    params = {"embed": "passages", "passages": batch, "model": embedding_model()}
    place = hashlib.sha256(f"{space} {batch}".encode()).hexdigest()[:32]
    try:
        result = guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params, key=f"index:{place}")
    except BadParams:
        return ""  # they were deleted meanwhile
    return "" if result.ok else result.error or str(result.outcome)


# --- Searches of people ---


def fetch_for_person(*, query: str, by: User, now: datetime) -> str:
    """Have the vector of a person's query at hand, by a run of that person. Return why there is none, in words.

    A query that was asked before costs nothing.
    """
    space = vector_space()
    if not space:
        return "search by meaning is not set up"
    if query_vector(space, query, owner_id=by.pk) is not None:
        return ""
    try:
        require_start_permission(by)
        arm()
        session = _claim_search(by, query, now=now)
    except LqopsError as refusal:
        return one_line(str(refusal), REASON_CHARS)
    reasons: list[str] = []

    def fetch(held: AgentSession) -> Finished:
        reasons.append(fetch_query_vector(held, query, key="search"))
        return Finished()

    run_claimed(session, fetch)
    return reasons[0] if reasons else "the run of the search was stopped"


@transaction.atomic
def _claim_search(by: User, query: str, *, now: datetime) -> AgentSession:
    """Create the run of a search, held by the caller: queued and claimed in one transaction, so no worker takes it."""
    params = {"query": redact(query)}
    session = session_create(
        owner=by, mode=Mode.INDEX, now=now, max_cost_usd=SEARCH_CAP_USD, params=params, asked_by=actor_of(by)
    )
    return lease_claim_now(session, owner=SEARCH_OWNER, now=now)
