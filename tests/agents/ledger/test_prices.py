"""What models cost, and the models that may not be called."""

import logging
from decimal import Decimal

import pytest
from django.db import connection

from agents.exceptions import UnpricedModel
from agents.ledger import prices
from agents.ledger.prices import (
    PRICE_COLUMNS,
    declared_price,
    longest_prefix_sql,
    model_accept,
    model_suspend,
    price_set,
)
from agents.models import ModelPrice, SuspendedModel, ToolCall
from agents.policy.costs import NotMoney
from agents.types import Price
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.factories import NOW, make_price, make_session
from tests.table import every_row

pytestmark = pytest.mark.django_db

USD = Decimal


def price_of(model):
    """The price that a call of the model is judged by now."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(PRICE_COLUMNS)} FROM ({longest_prefix_sql()}) p", [model])
        return declared_price(model, next(iter(cursor.fetchall()), None))


def rates(model):
    price = price_of(model)
    return price.input_usd, price.output_usd, price.overhead_tokens


# --- rows ---


def test_the_longest_beginning_of_the_name_decides():
    make_price("gpt", input_usd="1", output_usd="2")
    make_price("gpt-5", input_usd="3", output_usd="4")
    make_price("gpt-5-mini-2026", input_usd="5", output_usd="6")
    assert rates("gpt-5-mini") == (3, 4, 0)
    assert rates("gpt-5-mini-2026-03") == (5, 6, 0)
    assert rates("gpt-5") == (3, 4, 0)
    assert rates("gpt-4") == (1, 2, 0)


def test_a_price_carries_the_name_of_the_model_that_is_called():
    make_price("gpt", input_usd="0.15", output_usd="0.6", overhead_tokens=99)
    assert price_of("gpt-5") == Price("gpt-5", USD("0.15"), USD("0.6"), 99)


def test_prices_of_very_many_models_are_not_all_remembered(monkeypatch):
    monkeypatch.setattr(prices, "MOST_JUDGED", 2)
    monkeypatch.setattr(prices, "_judged", {})
    make_price("gpt", input_usd="1", output_usd="2")
    for number in range(5):
        assert rates(f"gpt-{number}") == rates(f"gpt-{number}") == (1, 2, 0)
        assert len(prices._judged) <= 2


def test_a_changed_price_is_judged_anew():
    price = make_price("gpt", input_usd="1", output_usd="2")
    assert rates("gpt-5") == (1, 2, 0)
    price.input_usd = USD(3)
    price.save()
    assert rates("gpt-5") == (3, 2, 0)


@pytest.mark.parametrize("model", ["gp", "GPT", "a-gpt", "", "gp%", "g_t"])
def test_a_name_that_begins_otherwise_is_not_priced(model):
    make_price("gpt")
    with pytest.raises(UnpricedModel, match=f"model {model!r}"):
        price_of(model)


@pytest.mark.parametrize("pattern", ["gp%", "g_t", "gpt*"])
def test_a_name_is_not_a_pattern(pattern):
    make_price(pattern)
    with pytest.raises(UnpricedModel):
        price_of("gpt-5")


def test_names_in_other_scripts_are_measured_in_characters():
    make_price("\u043c\u043e\u0434\u0435\u043b\u044c", input_usd="7")
    make_price("\u6a21\u578b", input_usd="8")
    assert rates("\u043c\u043e\u0434\u0435\u043b\u044c-2")[0] == 7
    assert rates("\u6a21\u578b\u4e8c")[0] == 8


def test_a_price_of_zero_is_a_price():
    make_price("local", input_usd="0", output_usd="0")
    assert rates("local-7b") == (0, 0, 0)


@pytest.mark.parametrize("column", ["input_usd", "output_usd"])
def test_a_row_that_is_not_a_price_prices_nothing(column, caplog):
    make_price("m")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE agents_modelprice SET {column} = -1")
    with caplog.at_level(logging.ERROR), pytest.raises(UnpricedModel) as refused:
        price_of("m")
    assert isinstance(refused.value.__cause__, NotMoney)
    assert len(caplog.records) == 1


# --- settings ---


def test_without_a_row_the_setting_decides(settings):
    settings.LQOPS_MODELS = {
        "qwen": {"input_usd": "1", "output_usd": "2"},
        "qwen-3": {"input_usd": "3", "output_usd": "4", "overhead_tokens": "7"},
    }
    assert rates("qwen-2") == (1, 2, 1_024)
    assert rates("qwen-3-8b") == (3, 4, 7)


def test_a_row_decides_over_a_setting_with_the_same_name(settings):
    settings.LQOPS_MODELS = {"qwen": {"input_usd": "1", "output_usd": "1"}}
    make_price("qwen", input_usd="9", output_usd="9")
    assert rates("qwen-3") == (9, 9, 0)


def test_a_setting_with_a_longer_name_decides_over_a_row(settings):
    settings.LQOPS_MODELS = {"qwen-3": {"input_usd": "1", "output_usd": "1"}}
    make_price("qwen", input_usd="9", output_usd="9")
    assert rates("qwen-3")[0] == 1
    assert rates("qwen-2")[0] == 9


def test_rates_in_settings_are_rounded_up_like_those_in_rows(settings):
    settings.LQOPS_MODELS = {"m": {"input_usd": "0.0000001", "output_usd": 0.1}}
    assert rates("m")[:2] == (USD("0.000001"), USD("0.1"))


def test_a_setting_may_price_the_cache_and_a_row_does_not(settings):
    settings.LQOPS_MODELS = {
        "m": {"input_usd": "4", "output_usd": "20", "cache_write_usd": "5", "cache_read_usd": "0.4"}
    }
    assert (price_of("m").cache_write_usd, price_of("m").cache_read_usd) == (5, USD("0.4"))
    make_price("m", input_usd="9", output_usd="9")
    assert (price_of("m").cache_write_usd, price_of("m").cache_read_usd) == (None, None)


def test_a_setting_with_an_empty_name_prices_nothing(settings):
    settings.LQOPS_MODELS = {"": {"input_usd": "0", "output_usd": "0"}}
    with pytest.raises(UnpricedModel):
        price_of("m")


GOOD = {"input_usd": "1", "output_usd": "1"}


@pytest.mark.parametrize(
    "rubbish",
    [
        {},
        None,
        "1",
        7,
        {"input_usd": "1"},
        {"output_usd": "1"},
        {**GOOD, "input_usd": "-1"},
        {**GOOD, "output_usd": "-0.000001"},
        {**GOOD, "input_usd": "NaN"},
        {**GOOD, "output_usd": "Infinity"},
        {**GOOD, "input_usd": "1E+99"},
        {**GOOD, "input_usd": "free"},
        {**GOOD, "output_usd": ""},
        {**GOOD, "output_usd": None},
        {**GOOD, "overhead_tokens": "-1"},
        {**GOOD, "overhead_tokens": "few"},
        {**GOOD, "overhead_tokens": None},
        {**GOOD, "cache_read_usd": "-1"},
        {**GOOD, "cache_write_usd": "free"},
    ],
)
def test_rubbish_in_settings_is_refused_never_free(settings, caplog, rubbish):
    settings.LQOPS_MODELS = {"m": rubbish}
    with caplog.at_level(logging.ERROR), pytest.raises(UnpricedModel):
        price_of("m-1")
    assert "m-1" in caplog.text


@pytest.mark.parametrize("row", [None, (None, None, None, None)])
def test_no_row_is_no_price(row):
    with pytest.raises(UnpricedModel):
        declared_price("m", row)


# --- declaring ---


def test_declaring_a_price_writes_the_row_and_the_record():
    price = {"model": "m", "input_usd": USD(3), "output_usd": USD("15.0000001"), "overhead_tokens": 5}
    assert price_set(**price, actor="user:7", now=NOW) == ModelPrice.objects.get(model="m")
    assert rates("m") == (3, USD("15.000001"), 5)
    event = AuditEvent.objects.get(kind="model_price.set")
    assert (event.chain, event.actor, event.at) == (SYSTEM_CHAIN, "user:7", NOW)
    assert event.details == {
        "model": "m",
        "input_usd": "3.000000",
        "output_usd": "15.000001",
        "overhead_tokens": 5,
    }


def test_declaring_it_again_changes_it_for_the_very_next_call():
    for rate in (3, 4):
        price_set(model="m", input_usd=USD(rate), output_usd=USD(rate), actor="user:7", now=NOW)
    assert rates("m") == (4, 4, 1_024)
    assert ModelPrice.objects.count() == 1
    assert AuditEvent.objects.filter(kind="model_price.set").count() == 2


@every_row(
    "rubbish",
    [
        {"input_usd": USD("-1")},
        {"output_usd": USD("NaN")},
        {"output_usd": USD("Infinity")},
        {"input_usd": USD("1E+20")},
        {"overhead_tokens": -1},
        {"model": ""},
    ],
)
def test_rubbish_is_not_declared(rubbish):
    price = {"model": "m", "input_usd": USD(1), "output_usd": USD(1), "actor": "user:7", "now": NOW, **rubbish}
    with pytest.raises(ValueError, match=r"."):
        price_set(**price)
    assert not ModelPrice.objects.exists()
    assert not AuditEvent.objects.exists()


# --- suspending ---


def overrun(session):
    return ToolCall(session=session, model="m-1", held_usd=USD("0.01"))


def test_a_model_that_passed_its_bound_is_suspended_with_both_amounts():
    session = make_session()
    call = overrun(session)
    model_suspend(call, actual_usd=USD("0.07"), now=NOW)
    row = SuspendedModel.objects.get()
    assert (row.model, row.bound_usd, row.actual_usd, row.suspended_at) == ("m-1", USD("0.01"), USD("0.07"), NOW)
    event = AuditEvent.objects.get(kind="model.suspended")
    assert event.chain == session.chain
    assert event.details == {
        "model": "m-1",
        "bound_usd": "0.01",
        "actual_usd": "0.07",
        "call_id": str(call.public_id),
    }


def test_a_second_overrun_keeps_the_first_and_is_recorded_too():
    session = make_session()
    model_suspend(overrun(session), actual_usd=USD("0.07"), now=NOW)
    model_suspend(overrun(session), actual_usd=USD("0.09"), now=NOW)
    assert SuspendedModel.objects.get().actual_usd == USD("0.07")
    assert AuditEvent.objects.filter(kind="model.suspended").count() == 2


def test_an_operator_accepts_a_model_once():
    model_suspend(overrun(make_session()), actual_usd=USD("0.07"), now=NOW)
    assert model_accept(model="m-1", actor="user:7", now=NOW) is True
    assert model_accept(model="m-1", actor="user:7", now=NOW) is False
    assert not SuspendedModel.objects.exists()
    event = AuditEvent.objects.get(kind="model.accepted")
    assert (event.chain, event.actor, event.details) == (SYSTEM_CHAIN, "user:7", {"model": "m-1"})


def test_accepting_one_model_leaves_the_others_suspended():
    model_suspend(overrun(make_session()), actual_usd=USD("0.07"), now=NOW)
    assert model_accept(model="m", actor="user:7", now=NOW) is False
    assert SuspendedModel.objects.filter(model="m-1").exists()
