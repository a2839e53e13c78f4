"""Prices of models that the file does not price: from the data of the package genai-prices (extra `prices`).

The data comes with the package and nothing is fetched, so it is as old as the package. Who serves a model is told by
its address alone: a model of the same name elsewhere has no known price. Of several prices of a model, by the length of
a prompt, by tier or by date, the dearest one is taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final

PACKAGE: Final = "genai-prices"
_QUARTERS: Final = 96  # of a day: some prices depend on the hour
# Which keys of the data make up a price of ours. What else a model charges, such as web searches, is never asked for.
_RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "input_usd": ("input_mtok",),
    "output_usd": ("output_mtok", "output_reasoning_mtok", "output_citation_mtok"),
    "cache_write_usd": ("cache_write_mtok", "cache_write_1h_mtok"),
    "cache_read_usd": ("cache_read_mtok",),
}
_PER_REQUEST: Final = "requests_kcount"


def default_prices(entry: Mapping[str, Any], name: str, *, now: datetime) -> dict[str, str]:
    """Return the known prices of a declared model with their source (`prices_from`); nothing if there are none."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return {}
    snapshot = get_snapshot()
    url = str(entry.get("url", "")).partition("?")[0]
    try:
        _, model = snapshot.find_provider_model(entry.get("name", name), None, None, url)
    except LookupError:
        return {}
    dated = _dates(snapshot.providers)
    rates = [prices.__dict__ for prices in _prices(model, dated, now)]
    if any(_dearest([prices], (_PER_REQUEST,)) for prices in rates):
        return {}  # it costs more than its tokens
    found = {key: rate for key, names in _RATES.items() if (rate := _dearest(rates, names)) is not None}
    if entry.get("provider") == "openai_embeddings":
        found.setdefault("output_usd", Decimal(0))
    if not {"input_usd", "output_usd"} <= found.keys():
        return {}
    if entry.get("provider") == "anthropic" and "cache_control" not in entry.get("extra", {}):
        found.pop("cache_write_usd", None)  # this protocol writes to a cache only when it is asked to
    newest = max((day for day in dated if day <= now.date()), default=None)
    until = f", data of {newest} or later" if newest else ""
    return {key: str(rate) for key, rate in found.items()} | {"prices_from": f"{PACKAGE} {version(PACKAGE)}{until}"}


def _prices(model: Any, dated: Iterable[date], now: datetime) -> Iterator[Any]:
    """The prices of a model from now on: at any hour, after any date that is known, and for any kind of request."""
    midnight = datetime.combine(now.date(), time(), UTC)
    days = [midnight, *(datetime.combine(day, time(), UTC) for day in dated if day > now.date())]
    for day in days:
        yield from (model.get_prices(day + timedelta(minutes=15 * quarter)) for quarter in range(_QUARTERS))
    yield from (variant.prices for variant in model.price_variants or ())


def _dates(providers: Iterable[Any]) -> list[date]:
    """The days from which on a price of any model applies."""
    found = set()
    for model in (model for provider in providers for model in provider.models):
        parts = [*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ())]
        found |= {day for part in parts if (day := getattr(part.constraint, "start_date", None))}
    return sorted(found)


def _dearest(prices: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Decimal | None:
    given = [price[name] for price in prices for name in names if price.get(name) is not None]
    return max((rate for price in given for rate in _tiers(price)), default=None)


def _tiers(price: Any) -> Iterator[Decimal]:
    """A price is an amount, or one for each length of a prompt."""
    if isinstance(price, Decimal):
        yield price
    else:
        yield price.base
        yield from (tier.price for tier in price.tiers)
