"""What the span of a guarded call says: ids, labels, token counts and cost, named as in the GenAI conventions."""

from contextlib import AbstractContextManager

from agents.enums import Outcome, ToolIntent
from agents.guard.calls import Call
from agents.ledger.journal import Attempt
from agents.tracing import FAILED, OUTCOME, Attributes, makes_spans, working_on
from agents.types import ToolResult


def traced(call: Call) -> AbstractContextManager[Attributes]:
    """Mark the block as work on an open call."""
    row, run = call.journal, call.session.chain
    if not makes_spans():
        return working_on("", run=run, call=row.call_id, attributes={})
    operation = "execute_tool"
    if row.model and row.name == row.intent:
        operation = "embeddings" if row.intent == ToolIntent.RETRIEVE_CHUNKS else "chat"
    subject = row.name if operation == "execute_tool" else row.model
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.tool.name": row.name if operation == "execute_tool" else "",
        "gen_ai.tool.call.id": row.call_id,
        "gen_ai.request.model": row.model,
        "gen_ai.request.max_tokens": row.max_tokens or None,
        "lqops.intent": row.intent,
        "lqops.phase": row.phase,
    }
    return working_on(f"{operation} {subject}", run=run, call=row.call_id, attributes=attributes)


def outcome_attributes(result: ToolResult, attempt: Attempt | None) -> Attributes:
    """Return what is known when the handler has ended."""
    found: Attributes = {OUTCOME: str(result.outcome), "lqops.cost_usd": float(result.cost_usd)}
    if result.outcome != Outcome.SUCCESS:
        found[FAILED] = result.detail or str(result.outcome)
    if attempt is not None:
        found["gen_ai.provider.name"] = attempt.provider
        found["lqops.attempts"] = attempt.number
        if attempt.usage is not None:
            found["gen_ai.usage.input_tokens"] = attempt.usage.input_tokens
            found["gen_ai.usage.output_tokens"] = attempt.usage.output_tokens
            if attempt.usage.reasoning_tokens:
                found["lqops.usage.reasoning_tokens"] = attempt.usage.reasoning_tokens
    return found
