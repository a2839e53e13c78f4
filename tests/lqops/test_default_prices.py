"""Prices that the file does not declare: from the data of genai-prices, the dearest of each model, never fetched."""

import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured
from genai_prices import types
from genai_prices.data_snapshot import DataSnapshot, get_snapshot

from agents.ledger.prices import declared_price
from lqops import default_prices as module
from lqops.default_prices import default_prices
from lqops.env import Env
from lqops.model_catalogue import configured_models, read_models_file

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
OPENAI = {"provider": "openai_compatible", "url": "https://api.openai.com/v1"}


@pytest.fixture
def known(monkeypatch):
    """`known(prices, variants)` makes the data hold one model, `m`, at http://known/v1."""

    def known(prices, *variants):
        model = types.ModelInfo(
            id="m",
            match=types.ClauseEquals(equals="m"),
            prices=prices(types),
            price_variants=[v(types) for v in variants],
        )
        provider = types.Provider(id="p", name="P", api_pattern="http://known", models=[model])
        snapshot = DataSnapshot([provider], from_auto_update=False)
        monkeypatch.setattr("genai_prices.data_snapshot.get_snapshot", lambda: snapshot)
        return lambda **entry: default_prices({"url": "http://known/v1", **entry}, "m", now=NOW)

    return known


def price(**rates):
    return lambda types: types.ModelPrice(**{f"{key}_mtok": Decimal(rate) for key, rate in rates.items()})


def test_plain_prices_are_taken_with_their_source(known):
    found = known(price(input="1.25", output="10", cache_read="0.125"))()
    assert found.pop("prices_from").startswith("genai-prices 0.")
    assert found == {"input_usd": "1.25", "output_usd": "10", "cache_read_usd": "0.125"}


def test_the_dearest_length_of_prompts_is_taken(known):
    def tiered(types):
        rising = types.TieredPrices(base=Decimal(3), tiers=[types.Tier(start=200_000, price=Decimal(6))])
        return types.ModelPrice(input_mtok=rising, output_mtok=Decimal(15))

    assert known(tiered)()["input_usd"] == "6"


def test_the_dearest_kind_of_request_is_taken(known):
    def variant(rate):
        return lambda types: types.PriceVariant(
            when={"service_tier": rate}, prices=types.ModelPrice(output_mtok=Decimal(rate))
        )

    assert known(price(input="1", output="10"), variant("20"), variant("5"))()["output_usd"] == "20"


def test_the_dearest_hour_and_what_is_to_come_count_and_what_is_past_does_not(known):
    def by_date(types):
        def since(day, rate):
            constraint = day and types.StartDateConstraint(start_date=day)
            return types.ConditionalPrice(constraint, prices=types.ModelPrice(input_mtok=rate, output_mtok=rate))

        return [since(None, Decimal(9)), since(date(2026, 10, 1), Decimal(2)), since(date(2027, 1, 1), Decimal(3))]

    found = known(by_date)()
    assert found["input_usd"] == "3"
    assert found["prices_from"].endswith("data of 2026-10-01 or later")

    def by_hour(types):
        night = types.TimeOfDateConstraint(start_time=time(0, 30, tzinfo=UTC), end_time=time(16, 30, tzinfo=UTC))
        return [
            types.ConditionalPrice(prices=types.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1))),
            types.ConditionalPrice(night, prices=types.ModelPrice(input_mtok=Decimal(4), output_mtok=Decimal(4))),
        ]

    assert known(by_hour)()["input_usd"] == "4"


def test_a_price_of_each_request_makes_a_price_unknown(known):
    def asked(types):
        return types.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1), requests_kcount=Decimal(5))

    assert known(asked)() == {}
    assert known(price(input="1"))() == {}


def test_writing_to_a_cache_is_priced_where_it_can_happen(known):
    found = known(price(input="4", output="20", cache_write="5", cache_write_1h="8"))
    assert found(provider="openai_compatible")["cache_write_usd"] == "8"
    assert "cache_write_usd" not in found(provider="anthropic")
    assert found(provider="anthropic", extra={"cache_control": {"type": "ephemeral"}})["cache_write_usd"] == "8"


def test_a_model_is_known_at_its_own_address_only(known):
    known(price(input="1", output="1"))
    assert default_prices({"url": "http://known/v1", "name": "n"}, "m", now=NOW) == {}
    assert default_prices({"url": "http://127.0.0.1/v1", "name": "m"}, "x", now=NOW) == {}
    assert default_prices({"url": "http://known/v1?key=1", "name": "m"}, "x", now=NOW)["input_usd"] == "1"


@pytest.mark.long
def test_every_model_of_the_real_data_that_has_a_price_gets_the_dearest():
    """No default is below what the package itself would charge for a request of any length, now or in a year."""
    snapshot = get_snapshot()
    provider = next(one for one in snapshot.providers if one.id == "openai")
    priced = 0
    for model in provider.models:
        found = default_prices({**OPENAI, "name": model.id}, "x", now=NOW)
        if not found:
            continue
        priced += 1
        for tokens, days in ((1_000, 0), (250_000, 0), (1_000_000, 400)):
            used = types.Usage(input_tokens=tokens, output_tokens=tokens)
            _, named = snapshot.find_provider_model(model.id, None, None, OPENAI["url"])
            charged = named.get_prices(NOW + timedelta(days=days)).calc_price(used)["total_price"]
            assert charged <= (Decimal(found["input_usd"]) + Decimal(found["output_usd"])) * tokens / 1_000_000, (
                model.id
            )
    assert priced > 10


ENTRY = '[models.a]\nprovider = "openai_compatible"\nurl = "http://known/v1"\nname = "m"\n'


def test_declared_prices_win_and_an_unknown_model_is_refused(known, tmp_path, settings):
    known(price(input="1.25", output="10"))
    path = tmp_path / "models.toml"
    path.write_text(ENTRY)
    settings.LQOPS_MODELS = configured_models(Env({"LQOPS_MODELS_FILE": str(path)})).declared
    assert (declared_price("a", None).input_usd, declared_price("a", None).output_usd) == (Decimal("1.25"), Decimal(10))
    path.write_text(f'{ENTRY}output_usd = "3"\n')
    entry = read_models_file(path).declared["a"]
    assert (entry["input_usd"], entry["output_usd"]) == ("1.25", "3")
    path.write_text(f'{ENTRY}input_usd = "2"\noutput_usd = "3"\n')
    assert "prices_from" not in read_models_file(path).declared["a"], "nothing was looked up"
    path.write_text(ENTRY.replace('"m"', '"n"'))
    with pytest.raises(ImproperlyConfigured, match=r"input_usd, output_usd is missing.*genai-prices.*does not know"):
        read_models_file(path)


def test_the_variables_take_default_prices_too(known):
    known(price(input="1.25", output="10"))
    models = configured_models(Env({"LQOPS_MODEL_URL": "http://known/v1", "LQOPS_MODEL_NAME": "m"}))
    assert models.declared["m"]["output_usd"] == "10"


def test_without_the_package_there_are_no_default_prices(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    assert default_prices(OPENAI, "gpt-5", now=NOW) == {}
    assert module.PACKAGE == "genai-prices"


def test_a_model_for_embeddings_has_no_price_of_output(known):
    price = known(lambda t: t.ModelPrice(input_mtok=Decimal("0.02")))
    assert price() == {}
    found = price(provider="openai_embeddings")
    assert (found["input_usd"], found["output_usd"]) == ("0.02", "0")
