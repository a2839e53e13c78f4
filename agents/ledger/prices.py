"""Prices of models, declared in rows and settings; suspended models; estimates."""

import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import QuerySet

from agents.conf import clock
from agents.definitions.catalogue import models_in_force
from agents.enums import Purpose, ToolIntent
from agents.exceptions import UnpricedModel
from agents.ledger.outages import waiting_go_on
from agents.models import InferenceLog, ModelPrice, SuspendedModel, ToolCall
from agents.policy.costs import COLD_START_USD, NotMoney, checked_price, cost_of, usd
from agents.types import ZERO, Price, Usage
from audit import recorder
from audit.kinds import LABEL
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)


CACHE_PRICES = ("cache_write_usd", "cache_read_usd")
PRICE_COLUMNS = ("model", "input_usd", "output_usd", "overhead_tokens")


def longest_prefix_sql() -> str:
    """Return a sub-select, with one parameter, of the price row with the longest matching model prefix."""
    return (
        f"SELECT {', '.join(PRICE_COLUMNS)} FROM {ModelPrice._meta.db_table} "  # noqa: S608
        "WHERE substr(%s, 1, length(model)) = model ORDER BY length(model) DESC LIMIT 1"
    )


def price_now(model: str) -> Price:
    """Return the price that the next call of the model would have."""
    with connection.cursor() as cursor:
        cursor.execute(longest_prefix_sql(), [model])
        return declared_price(model, cursor.fetchone())


def declared_price(model: str, row: Sequence[Any] | None) -> Price:
    """Return the row's price, or a setting's with a longer prefix.

    A model without a valid price is refused: an unknown cost cannot be bounded.
    """
    declared = models_in_force().declared
    given = row and tuple(row), declared
    judged = _judged.get(model)
    if judged is None or judged[0] != given:
        judged = given, _declared_price(model, row, declared)
        if len(_judged) >= MOST_JUDGED:
            _judged.clear()
        _judged[model] = judged
    return judged[1]


MOST_JUDGED: Final = 256
_judged: dict[str, tuple[tuple[Any, Any], Price]] = {}  # by model, what its price was last judged by, and the price


def _declared_price(model: str, row: Sequence[Any] | None, declared: Mapping[str, Any]) -> Price:
    longest = max((name for name in declared if model.startswith(name)), key=len, default="")
    try:
        if row is not None and row[0] is not None and len(row[0]) >= len(longest):
            _, input_usd, output_usd, overhead = row
            rates = (Decimal(input_usd).scaleb(-6), Decimal(output_usd).scaleb(-6))
            return checked_price(Price(model, *rates, overhead))
        if longest:
            return _price_from_settings(model, declared[longest])
    except NotMoney as error:
        logger.error("the declared price of %s cannot be used, so it is refused: %s", model, error)  # noqa: TRY400
        raise UnpricedModel(model) from error
    raise UnpricedModel(model)


def _price_from_settings(model: str, declared: Mapping[str, Any]) -> Price:
    try:
        rates = usd(Decimal(str(declared["input_usd"]))), usd(Decimal(str(declared["output_usd"])))
        overhead = int(declared.get("overhead_tokens", 1_024))
        cached = {key: usd(Decimal(str(declared[key]))) for key in CACHE_PRICES if key in declared}
    except (KeyError, InvalidOperation, TypeError, ValueError):
        raise NotMoney(f"the price of {model!r} needs input_usd and output_usd as amounts.") from None
    return checked_price(Price(model, *rates, overhead, **cached))


@transaction.atomic
def price_set(
    *, model: str, input_usd: Decimal, output_usd: Decimal, actor: str, now: datetime, overhead_tokens: int = 1_024
) -> ModelPrice:
    """Declare the price of models with this prefix, rounded up to the micro-dollar."""
    if not model:
        raise ValueError("A price needs a model's name or the beginning of one; without, it would price every model.")
    if LABEL.fullmatch(model) is None:
        raise ValueError("model: use letters, digits and . _ : / @ + - only, at most 128 characters.")
    price = checked_price(Price(model, usd(input_usd), usd(output_usd), overhead_tokens))
    row, _ = ModelPrice.objects.update_or_create(
        model=model,
        defaults={"input_usd": price.input_usd, "output_usd": price.output_usd, "overhead_tokens": overhead_tokens},
    )
    details = {
        "model": model,
        "input_usd": str(row.input_usd),
        "output_usd": str(row.output_usd),
        "overhead_tokens": overhead_tokens,
    }
    recorder.append(SYSTEM_CHAIN, "model_price.set", now=now, actor=actor, details=details)
    return row


def model_suspend(call: ToolCall, *, actual_usd: Decimal, now: datetime) -> None:
    """Suspend a model that cost more than its bound, for every session, until an operator accepts it."""
    row = SuspendedModel(model=call.model, bound_usd=call.held_usd, actual_usd=actual_usd, suspended_at=now)
    SuspendedModel.objects.bulk_create([row], ignore_conflicts=True)
    details = {
        "model": call.model,
        "bound_usd": str(call.held_usd),
        "actual_usd": str(actual_usd),
        "call_id": str(call.public_id),
    }
    recorder.append(call.session.chain, "model.suspended", now=now, details=details)


@transaction.atomic
def model_accept(*, model: str, actor: str, now: datetime) -> bool:
    """Accept a suspended model again. Return False if it was not suspended."""
    deleted, _ = SuspendedModel.objects.filter(model=model).delete()
    if deleted:
        waiting_go_on(model, now=now)
        recorder.append(SYSTEM_CHAIN, "model.accepted", now=now, actor=actor, details={"model": model})
    return bool(deleted)


# --- Estimates: rolling averages per model and purpose ---
#
# The estimate is what R4 approves and what is charged. Averages are cached for five minutes in the process.


INFERENCE_INTENTS = frozenset({ToolIntent.RUN_SKILL, ToolIntent.RUN_PLAYBOOK, ToolIntent.RETRIEVE_CHUNKS})
CHARS_PER_TOKEN = 4
ROWS = 100
LEAST_ROWS = 5
WINDOW = timedelta(days=30)
KEPT = timedelta(seconds=300)

_kept: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
_lock = threading.Lock()


def estimate_tool_cost(intent: ToolIntent, params: Mapping[str, Any], *, now: datetime | None = None) -> Decimal:
    """Estimate a call's cost; 0, without a query, for everything that asks no model."""
    if intent not in INFERENCE_INTENTS or "model" not in params:
        return ZERO
    purpose = Purpose(params.get("purpose", Purpose.AUTONOMOUS_EXECUTOR))
    if purpose == Purpose.EMBEDDING:
        return estimate_embedding(str(params["model"]), int(params["chars"]))
    return estimate_model_call(str(params["model"]), purpose, now=now or clock())


def estimate_embedding(model: str, chars: int) -> Decimal:
    """Estimate by length: a query is much cheaper than a batch of passages, and there is no answer to guess."""
    with connection.cursor() as cursor:
        cursor.execute(longest_prefix_sql(), [model])
        row = cursor.fetchone()
    try:
        price = declared_price(model, row)
    except UnpricedModel:  # the call itself is refused
        return COLD_START_USD
    return cost_of(price, Usage(-(-chars // CHARS_PER_TOKEN), 0))


def estimate_model_call(model: str, purpose: Purpose, *, now: datetime) -> Decimal:
    """Estimate by model and purpose, else by model, else the cold-start default."""
    with _lock:
        made_at, kept = _kept.get((model, purpose), (None, ZERO))
    if made_at is not None and made_at <= now < made_at + KEPT:
        return kept
    try:
        rows = InferenceLog.objects.filter(model=model, cost_estimate__isnull=False, created_at__gt=now - WINDOW)
        average = _average(rows.filter(purpose=purpose))
        if average is None:  # an average of 0 is a value
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
    return usd(sum((cost for cost in costs if cost is not None), ZERO) / len(costs))


def judges_within_budget(
    *, citations: int, judges: Sequence[str], now: datetime, cap: Decimal | None = None, chain: str = SYSTEM_CHAIN
) -> tuple[str, ...]:
    """Return the judges that may verify a message: all, or only the first if all would pass its cap.

    A fallback is recorded; it never fails the message.
    """
    limit = Decimal(settings.LQOPS_MESSAGE_JUDGE_CAP_USD) if cap is None else cap
    estimates = [estimate_model_call(judge, Purpose.JUDGE, now=now) for judge in judges]
    projected = usd(citations * sum(estimates, ZERO))  # every judge looks at every citation
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
