"""What models cost, as declared in rows and settings, and the models that may not be called for now."""

import logging
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from agents.exceptions import UnpricedModel
from agents.models import ModelPrice, SuspendedModel, ToolCall
from agents.policy.costs import NotMoney, checked_price, usd
from agents.types import Price
from audit import recorder
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)

PRICE_COLUMNS = ("model", "input_usd", "output_usd", "overhead_tokens")


def price_of(model: str) -> Price:
    """The price that a call of the model is judged by now."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(PRICE_COLUMNS)} FROM ({longest_prefix_sql()}) p", [model])  # noqa: S608
        rows = cursor.fetchall()
    return declared_price(model, rows[0] if rows else None)


def longest_prefix_sql() -> str:
    """A sub-select, with one parameter, of the declared row whose name is the longest beginning of a model's."""
    return (
        f"SELECT {', '.join(PRICE_COLUMNS)} FROM {ModelPrice._meta.db_table} "  # noqa: S608
        "WHERE substr(%s, 1, length(model)) = model ORDER BY length(model) DESC LIMIT 1"
    )


def declared_price(model: str, row: Sequence[Any] | None) -> Price:
    """The row's price, or that of a setting with a longer name. None declared, or not an amount: the model is refused,
    because an unknown cost cannot be bounded."""
    declared = [name for name in settings.LQOPS_MODELS if model.startswith(name)]
    longest = max(declared, key=len, default="")
    try:
        if row is not None and row[0] is not None and len(row[0]) >= len(longest):
            _, input_usd, output_usd, overhead = row
            rates = (Decimal(input_usd).scaleb(-6), Decimal(output_usd).scaleb(-6))
            return checked_price(Price(model, *rates, overhead))
        if longest:
            return _price_from_settings(model, settings.LQOPS_MODELS[longest])
    except NotMoney as error:
        logger.error("the declared price of %s cannot be used, so it is refused: %s", model, error)  # noqa: TRY400
        raise UnpricedModel(model) from error
    raise UnpricedModel(model)


def _price_from_settings(model: str, declared: dict[str, str]) -> Price:
    try:
        rates = usd(Decimal(str(declared["input_usd"]))), usd(Decimal(str(declared["output_usd"])))
        overhead = int(declared.get("overhead_tokens", 1_024))
    except (KeyError, InvalidOperation, TypeError, ValueError) as error:
        raise NotMoney(f"LQOPS_MODELS: the price of {model!r} needs input_usd and output_usd as amounts.") from error
    return checked_price(Price(model, *rates, overhead))


@transaction.atomic
def price_set(
    *, model: str, input_usd: Decimal, output_usd: Decimal, actor: str, now: datetime, overhead_tokens: int = 1_024
) -> ModelPrice:
    """Declares what the models whose names begin like this cost from now on, rounded up to the micro-dollar."""
    if not model:
        raise ValueError("A price needs a model's name or the beginning of one; without, it would price every model.")
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
    """Stops a model that cost more than its bound, for every session, until an operator accepts it."""
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
    """Lets a suspended model be called again. False when it was not suspended."""
    deleted, _ = SuspendedModel.objects.filter(model=model).delete()
    if deleted:
        recorder.append(SYSTEM_CHAIN, "model.accepted", now=now, actor=actor, details={"model": model})
    return bool(deleted)
