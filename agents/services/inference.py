"""The log of model calls, success or failure; rolling estimates are made from it."""

from datetime import datetime
from typing import Protocol

from agents.enums import Outcome
from agents.models import InferenceLog, ToolCall
from agents.types import ModelRequest, Usage


class Metered(Protocol):
    request: ModelRequest | None
    usage: Usage | None
    provider: str
    latency_ms: int
    refused: bool


def inference_record(call: ToolCall, meter: Metered, *, now: datetime) -> InferenceLog:
    """`cost_estimate` stays empty when nothing was reported: a guess must not calibrate later estimates."""
    usage = meter.usage or Usage(0, 0)
    assert meter.request is not None  # noqa: S101 only a call with a request is metered
    return InferenceLog.objects.create(
        session=call.session,
        provider=meter.provider,
        model=call.model,
        purpose=meter.request.purpose,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        approved_usd=call.approved_usd,
        cost_estimate=call.actual_usd if meter.usage is not None else None,
        latency_ms=meter.latency_ms,
        refused=meter.refused,
        outcome=Outcome(call.outcome),
        created_at=now,
    )
