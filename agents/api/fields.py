"""Fields that several resources share: money as text, ids of rows, and texts that are redacted as they come in."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn
from uuid import UUID

from django.db import models
from rest_framework import serializers
from rest_framework.fields import empty

from agents.exceptions import NotFound
from agents.models.fields import PLACES, MicroUSDField
from agents.policy.costs import MOST_USD
from audit.redaction import redact

LARGEST_COUNT: Final = 2**31 - 1
NOTE_CHARS: Final = 2_000


class UsdField(serializers.DecimalField):
    """US dollars as text, such as "0.250000": a JSON number would pass through a float."""

    default_error_messages = {"text": 'Send an amount as text, such as "0.25".'}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            max_digits=19,
            decimal_places=PLACES,
            min_value=Decimal(0),
            max_value=MOST_USD,
            coerce_to_string=True,
            **kwargs,
        )

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        if isinstance(data, str) and not data.strip():
            self.fail("text")  # no amount, and not null: that has to be said
        return super().validate_empty_values(data)

    def to_internal_value(self, data: Any) -> Decimal:
        if isinstance(data, bool) or not isinstance(data, str | int):
            self.fail("text")
        return super().to_internal_value(data)


class WordField(serializers.ChoiceField):
    """One of a few words; a refusal names them."""

    default_error_messages = {"invalid_choice": '"{input}" is not known here; known are: {known}.'}

    def fail(self, key: str, **kwargs: Any) -> NoReturn:
        super().fail(key, known=", ".join(str(word) for word in self.choices), **kwargs)


class CountField(serializers.IntegerField):
    """A whole number that fits its column."""

    def __init__(self, *, min_value: int = 0, max_value: int = LARGEST_COUNT, **kwargs: Any) -> None:
        super().__init__(min_value=min_value, max_value=max_value, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class RedactedField(serializers.CharField):
    """Words of a person that others may read."""

    def to_internal_value(self, data: Any) -> str:
        return redact(super().to_internal_value(data))


class NoteField(RedactedField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": NOTE_CHARS, "required": False, "allow_blank": True, "default": "", **kwargs})


class OwnRow(serializers.UUIDField):
    """The id of a row of the person who asks. Anybody else's is not found, like one that does not exist."""

    def __init__(self, model: type[models.Model], *, shared: bool = False, **kwargs: Any) -> None:
        self.model = model
        self.shared = shared
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        wanted = {"public_id": UUID(str(super().to_internal_value(data)))}
        if not self.shared:
            wanted["owner_id"] = self.context["request"].user.pk
        if any(field.name == "deleted_at" for field in self.model._meta.fields):
            wanted["deleted_at"] = None  # type: ignore[assignment]  # a filter for NULL
        row = models.QuerySet(self.model).filter(**wanted).first()
        if row is None:
            raise NotFound(f"There is no {self.model._meta.verbose_name} {data}.")
        return row


class Body(serializers.Serializer[Any]):
    """What a request may say. A name that is not known is refused: a misspelt cap would otherwise be no cap. So is a
    value of another kind: nothing is made of a number that stands for a text, or of a 0 that stands for false."""

    def run_validation(self, data: Any = empty) -> Any:
        if isinstance(data, Mapping):
            if unknown := set(data) - set(self.fields):
                told = f"Not known here; known are: {', '.join(self.fields)}."
                raise serializers.ValidationError({str(name): [told] for name in unknown})
            if odd := {name: [why] for name, value in data.items() if (why := _oddity(self.fields[name], value))}:
                raise serializers.ValidationError(odd)
        return super().run_validation(data)


def _oddity(field: Any, value: Any) -> str:
    if isinstance(field, serializers.BooleanField) and not isinstance(value, bool | None):
        return "Send true or false."
    if isinstance(field, serializers.CharField | serializers.UUIDField) and not isinstance(value, str | None):
        return "Send text."
    return ""


class Shown(serializers.ModelSerializer[Any]):
    """A row as it is shown: only the fields that are named, all read-only, `id` being the public id."""

    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, MicroUSDField: UsdField}
    id = serializers.UUIDField(source="public_id", read_only=True)

    def get_extra_kwargs(self) -> dict[str, Any]:
        extra = super().get_extra_kwargs()
        named = getattr(self.Meta, "fields", ())
        return {**extra, **{name: {**extra.get(name, {}), "read_only": True} for name in named}}


def ref(name: str) -> serializers.UUIDField:
    """The public id of a related row, or null."""
    return serializers.UUIDField(source=f"{name}.public_id", read_only=True, allow_null=True)
