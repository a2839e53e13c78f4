"""What a reply has cost, tested before anything that it asks for is run: a run without a budget acts no more."""

from django.db import transaction

from agents.conf import clock
from agents.enums import Outcome, ToolIntent
from agents.exceptions import BudgetExceeded
from agents.guard.refusals import refuse_call
from agents.models import AgentSession
from agents.sessions.lifecycle import held


def demand_budget(session: AgentSession) -> None:
    """Raises, as the guard would at the next question; on record, what is refused are the skills of the last answer."""
    spent = _spent(AgentSession.objects.get(pk=session.pk))
    if spent is None:
        return
    detail = f"dimension:{spent.dimension}"
    with transaction.atomic():
        phase = held(session).current_phase
        refuse_call(session, ToolIntent.RUN_SKILL, phase, Outcome.DENIED, now=clock(), detail=detail, budget="session")
    raise spent


def _spent(row: AgentSession) -> BudgetExceeded | None:
    """Tokens first, then money. What costs nothing does not reach a cap of 0."""
    if row.token_budget and row.total_tokens >= row.token_budget:
        return _exceeded("tokens", f"{row.total_tokens} of {row.token_budget} tokens")
    if row.max_cost_usd and row.cost_actual_usd >= row.max_cost_usd:
        return _exceeded("cost", f"{row.cost_actual_usd} of {row.max_cost_usd} USD")
    return None


def _exceeded(dimension: str, spent: str) -> BudgetExceeded:
    return BudgetExceeded(
        dimension, f"The session's budget is used up: {spent}. What the last answer asks for is not run."
    )
