"""Money in the database: whole micro-dollars in a BIGINT, `Decimal` dollars in Python.

A DecimalField is float arithmetic inside SQLite; sums of integers are exact on every database.
"""

from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

PLACES = 6


class MicroUSDField(models.BigIntegerField):
    """An amount of US dollars, 0 or more, with up to six places. Forms take up to four."""

    description = "US dollars, exact to the micro-dollar"

    def from_db_value(self, value: Any, expression: object, connection: object) -> Decimal | None:
        return None if value is None else Decimal(int(value)).scaleb(-PLACES)

    def to_python(self, value: Any) -> Decimal | None:
        if value is None or isinstance(value, Decimal):
            return value
        if isinstance(value, float):
            raise ValidationError(f"{value!r} is a float: money is a Decimal, a whole number or text.")
        try:
            return Decimal(value)
        except (InvalidOperation, TypeError, ValueError):
            raise ValidationError(f"{value!r} is not an amount of US dollars.") from None

    def get_prep_value(self, value: Any) -> int | None:
        if hasattr(value, "resolve_expression"):
            return value  # type: ignore[no-any-return]  # an expression prepares its own operands
        amount = self.to_python(value)
        if amount is None:
            return None
        if not amount.is_finite() or amount < 0:
            raise ValueError(f"{self.name}: {amount!r} is not an amount of US dollars (finite, 0 or more).")
        micro = amount.scaleb(PLACES)
        if micro != micro.to_integral_value():
            raise ValueError(f"{self.name}: {amount!r} has more than {PLACES} places; round it up once, where it is made.")
        return int(micro)

    def formfield(self, **kwargs: Any) -> forms.Field | None:
        return forms.DecimalField(
            required=not (self.blank or self.null),
            label=kwargs.get("label"),
            help_text=kwargs.get("help_text", self.help_text),
            min_value=Decimal(0),
            max_digits=13,
            decimal_places=4,
        )

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))
