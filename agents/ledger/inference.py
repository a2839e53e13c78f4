"""The log of model calls, success or failure; rolling estimates are made from it."""

from datetime import datetime
from decimal import Decimal
from typing import Protocol

from agents.enums import Outcome, Purpose
from agents.models import InferenceLog, ToolCall
from agents.types import Usage


class Attempted(Protocol):
    """One request to a provider, as the log needs it."""

    @property
    def number(self) -> int: ...
    @property
    def provider(self) -> str: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def refused(self) -> bool: ...
    @property
    def latency_ms(self) -> int: ...
    @property
    def request_id(self) -> str: ...
    @property
    def outcome(self) -> Outcome: ...


def inference_record(
    call: ToolCall, attempt: Attempted, *, purpose: Purpose, booked: Decimal, now: datetime
) -> InferenceLog:
    """`cost_estimate` stays empty when nothing was reported: a guess must not calibrate later estimates."""
    usage = attempt.usage or Usage(0, 0)
    return InferenceLog.objects.create(
        session=call.session,
        provider=attempt.provider,
        model=call.model,
        purpose=purpose,
        attempt=attempt.number,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        approved_usd=call.approved_usd,
        cost_estimate=booked if attempt.usage is not None else None,
        latency_ms=attempt.latency_ms,
        request_id=attempt.request_id,
        refused=attempt.refused,
        outcome=attempt.outcome,
        created_at=now,
    )
