"""Money is whole micro-dollars everywhere: no column that computes in floats, no amount in a column of another kind."""

from django.apps import apps
from django.db import models

from agents.models.fields import MicroUSDField
from lqops.settings import INSTALLED_APPS

OURS = [model for model in apps.get_models() if model._meta.app_label in {"audit", "agents"}]
FIELDS = [field for model in OURS for field in model._meta.get_fields() if isinstance(field, models.Field)]


def test_our_apps_are_looked_at():
    assert {"audit", "agents"} <= set(INSTALLED_APPS)
    assert len(OURS) > 10


def test_no_column_computes_in_floats():
    assert [field for field in FIELDS if isinstance(field, models.DecimalField | models.FloatField)] == []


def test_every_amount_is_micro_dollars():
    """A name with `usd` or `cost` in it is an amount, unless it is a yes or no such as `cost_cap_reached`."""
    amounts = [field for field in FIELDS if "usd" in field.name or "cost" in field.name]

    assert len(amounts) > 10
    assert [field for field in amounts if not isinstance(field, MicroUSDField | models.BooleanField)] == []


def test_what_is_called_usd_is_micro_dollars():
    called = [field for field in FIELDS if field.name.endswith("_usd")]

    assert len(called) > 10
    assert [field for field in called if not isinstance(field, MicroUSDField)] == []
