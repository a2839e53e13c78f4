"""Money in the database: whole micro-dollars in a BIGINT, `Decimal` dollars in Python.

A DecimalField is float arithmetic inside SQLite; sums of integers are exact on every database.
"""

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

from agents.policy.costs import MICRO, MOST_USD

PLACES = 6
FORM_PLACES = 4
SHOWN_PLACES = 2

if TYPE_CHECKING:
    _Stored = models.DecimalField  # what the type checker sees: Decimal in and out
else:
    _Stored = models.BigIntegerField


class USDFormField(forms.DecimalField):
    """Shows an amount without the zeros beyond its cents, and takes one without those beyond the fourth place."""

    def prepare_value(self, value: Any) -> Any:
        return _trimmed(value, SHOWN_PLACES) if isinstance(value, Decimal) else value

    def to_python(self, value: Any) -> Decimal | None:  # type: ignore[override]
        amount = super().to_python(value)
        return None if amount is None else _trimmed(amount, FORM_PLACES)


def _trimmed(amount: Decimal, places: int) -> Decimal:
    sign, digits, exponent = amount.as_tuple()
    if not isinstance(exponent, int):
        return amount  # NaN or infinite: the form refuses it
    if not any(digits):
        return Decimal(0)
    while exponent < -places and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    return Decimal((sign, digits, exponent))


class MicroUSDField(_Stored):  # type: ignore[type-arg]
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
        if not amount.is_finite() or not 0 <= amount <= MOST_USD:
            raise ValueError(f"{self.name}: {amount!r} is not an amount of US dollars (finite, 0 or more).")
        rounded = amount.quantize(MICRO)
        if rounded != amount:
            raise ValueError(f"{self.name}: {amount!r} has more than {PLACES} places; round it up where it is made.")
        return int(rounded.scaleb(PLACES))

    def validate(self, value: Any, model_instance: models.Model | None) -> None:
        super().validate(value, model_instance)
        try:
            self.get_prep_value(value)
        except ValueError as error:
            raise ValidationError(str(error)) from None

    def formfield(self, **kwargs: Any) -> forms.Field | None:
        limits = {"min_value": Decimal(0), "max_digits": 13, "decimal_places": FORM_PLACES}
        return models.Field.formfield(self, **{"form_class": USDFormField, **limits, **kwargs})
