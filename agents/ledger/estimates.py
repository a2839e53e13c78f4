"""What a call will probably cost: rolling averages per model and purpose, and the ensemble's pre-flight.

The estimate is what R4 approves and what is billed. Averages are kept for five minutes in the process.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import DatabaseError
from django.db.models import QuerySet

from agents.conf import clock, message_judge_cap
from agents.enums import Purpose, ToolIntent
from agents.models import InferenceLog
from agents.policy.costs import COLD_START_USD, ensemble_projection, mean_usd
from agents.types import ZERO
from audit import recorder
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)

INFERENCE_INTENTS = frozenset({ToolIntent.RUN_SKILL, ToolIntent.RUN_PLAYBOOK})
ROWS = 100
LEAST_ROWS = 5
WINDOW = timedelta(days=30)
KEPT = timedelta(seconds=300)

_kept: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
_lock = threading.Lock()


def estimate_tool_cost(intent: ToolIntent, params: Mapping[str, Any], *, now: datetime | None = None) -> Decimal:
    """0 for everything that asks no model, without a query."""
    if intent not in INFERENCE_INTENTS or "model" not in params:
        return ZERO
    purpose = Purpose(params.get("purpose", Purpose.AUTONOMOUS_EXECUTOR))
    return estimate_model_call(str(params["model"]), purpose, now=now or clock())


def estimate_model_call(model: str, purpose: Purpose, *, now: datetime) -> Decimal:
    """Same model and purpose, else same model, else the cold-start default."""
    with _lock:
        made_at, kept = _kept.get((model, purpose), (None, ZERO))
    if made_at is not None and made_at <= now < made_at + KEPT:
        return kept
    try:
        rows = InferenceLog.objects.filter(model=model, cost_estimate__isnull=False, created_at__gt=now - WINDOW)
        average = _average(rows.filter(purpose=purpose))
        if average is None:  # an average of 0 is an average
            average = _average(rows)
    except DatabaseError as error:
        logger.warning("costs of %s cannot be read (%s); the cold-start default is used", model, type(error).__name__)
        return COLD_START_USD
    estimate = COLD_START_USD if average is None else average
    with _lock:
        _kept[model, purpose] = (now, estimate)
    return estimate


def invalidate_estimates() -> None:
    with _lock:
        _kept.clear()


def _average(rows: QuerySet[InferenceLog]) -> Decimal | None:
    costs = list(rows.order_by("-created_at", "-id").values_list("cost_estimate", flat=True)[:ROWS])
    if len(costs) < LEAST_ROWS:
        return None
    return mean_usd(sum((cost for cost in costs if cost is not None), ZERO), len(costs))


def judges_within_budget(
    *, citations: int, judges: Sequence[str], now: datetime, cap: Decimal | None = None, chain: str = SYSTEM_CHAIN
) -> tuple[str, ...]:
    """The judges that may verify a message: all of them, or only the first when all would pass the message's cap.

    A fallback is recorded; it never fails the message.
    """
    limit = message_judge_cap() if cap is None else cap
    estimates = [estimate_model_call(judge, Purpose.JUDGE, now=now) for judge in judges]
    projected = ensemble_projection(citations, estimates)
    if len(judges) <= 1 or projected <= limit:
        return tuple(judges)
    details = {
        "judges": len(judges),
        "citations": citations,
        "projected_usd": str(projected),
        "cap_usd": str(limit),
        "judge": judges[0],
    }
    recorder.append(chain, "citation_ensemble.fallback", now=now, details=details)
    return (judges[0],)
