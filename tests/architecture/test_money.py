"""Money is stored as whole micro-dollars: no float or decimal columns."""

from django.apps import apps
from django.db import models

from agents.models.fields import MicroUSDField
from lqops.settings import INSTALLED_APPS

OURS = [model for model in apps.get_models() if model._meta.app_label in {"audit", "agents"}]
FIELDS = [field for model in OURS for field in model._meta.get_fields() if isinstance(field, models.Field)]


def test_models_of_both_apps_are_found():
    assert {"audit", "agents"} <= set(INSTALLED_APPS)
    assert len(OURS) > 10


def test_no_column_is_a_float_or_decimal():
    assert [field for field in FIELDS if isinstance(field, models.DecimalField | models.FloatField)] == []


def test_every_amount_is_micro_dollars():
    """A name with `usd` or `cost` in it is an amount, unless it is a flag such as `cost_cap_reached`."""
    amounts = [field for field in FIELDS if "usd" in field.name or "cost" in field.name]
    flags = [field for field in amounts if isinstance(field, models.BooleanField) and not field.name.endswith("_usd")]

    assert len(amounts) > 10
    assert [field for field in amounts if not isinstance(field, MicroUSDField) and field not in flags] == []
