"""Money arithmetic: exact decimals, rounded up once, and the worst case of a model call. Pure.

A bound holds for every server that honours `max_tokens` and its declared prices. So input is counted in bytes, not in
guessed tokens: a token is at least one byte of what was sent.
"""

import json
import unicodedata
from decimal import ROUND_CEILING, Decimal

from agents.types import Ledger, ModelRequest, Price, Usage

MICRO = Decimal("0.000001")
MILLION = Decimal(1_000_000)
COLD_START_USD = Decimal("0.005")
TOKENS_PER_MESSAGE = 16
WARN_FRACTION = Decimal("0.8")
MOST_USD = Decimal((2**63 - 1) // 10**6)  # the most that a BIGINT of micro-dollars holds


class NotMoney(ValueError):
    """The amount is not a finite number of dollars, 0 or more, that the database can hold."""


def usd(value: Decimal) -> Decimal:
    """Round up to whole micro-dollars; refuse NaN, infinities, negative and absurd amounts."""
    if not value.is_finite() or not 0 <= value <= MOST_USD:
        raise NotMoney(f"{value!r} is not an amount of US dollars: it must be a number from 0 to {MOST_USD}.")
    return value.quantize(MICRO, rounding=ROUND_CEILING)


def checked_price(price: Price) -> Price:
    """Return the price if its rates are amounts and the overhead is a count; else refuse it."""
    for rate in (price.input_usd, price.output_usd, price.cache_write_usd, price.cache_read_usd):
        usd(rate or Decimal(0))
    if price.overhead_tokens < 0:
        raise NotMoney(f"prompt overhead of {price.model!r} is {price.overhead_tokens}: it must be 0 or more.")
    return price


def cost_of(price: Price, usage: Usage) -> Decimal:
    """Return what the tokens cost. Counts of a cache beyond the input, which cannot be, are left out."""
    written = min(usage.cache_write_tokens, usage.input_tokens)
    read = min(usage.cache_read_tokens, usage.input_tokens - written)
    total = (
        (usage.input_tokens - written - read) * price.input_usd
        + written * _rate(price.cache_write_usd, price)
        + read * _rate(price.cache_read_usd, price)
        + usage.output_tokens * price.output_usd
    )
    return usd(total / MILLION)


def _rate(declared: Decimal | None, price: Price) -> Decimal:
    return price.input_usd if declared is None else declared


def dearest_input(price: Price) -> Decimal:
    """Return the highest rate that a token of input can cost."""
    return max(price.input_usd, *(_rate(rate, price) for rate in (price.cache_write_usd, price.cache_read_usd)))


def input_bound(request: ModelRequest, price: Price) -> int:
    """Return the most input tokens that the request can be counted as."""
    parts = {"messages": request.messages, "tools": request.tools, "schema": request.response_schema}
    text = json.dumps(parts, ensure_ascii=False)
    size = max(len(form.encode("utf-8", "surrogatepass")) for form in (text, unicodedata.normalize("NFKC", text)))
    return size + TOKENS_PER_MESSAGE * len(request.messages) + price.overhead_tokens


def worst_case(price: Price, input_tokens: int, max_tokens: int) -> Decimal:
    return usd((input_tokens * dearest_input(price) + max_tokens * price.output_usd) / MILLION)


def affordable_tokens(room: Decimal, *, price: Price, input_tokens: int, wanted: int) -> int:
    """Return the most output tokens, up to `wanted`, whose worst case fits into `room`; negative if none."""
    left = room * MILLION - input_tokens * dearest_input(price)
    if left < 0:
        return -1
    if wanted * price.output_usd <= left:
        return wanted
    return int(left // price.output_usd)


def passes_warning(ledger: Ledger, estimate: Decimal) -> bool:
    """Return whether this call first brings the budget to 80 % of its cap."""
    return bool(ledger.cap) and not ledger.warned and ledger.approved + estimate >= WARN_FRACTION * (ledger.cap or 0)
