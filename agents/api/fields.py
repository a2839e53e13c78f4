"""Serializer fields, serializer base classes and strict parsers of request bodies.

Nothing here reads a row of another user, and no parser lets through a value that the database cannot store.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import IO, Any, Final, NoReturn
from uuid import UUID

from django.conf import settings
from django.db import models
from rest_framework import parsers, serializers
from rest_framework.exceptions import ParseError
from rest_framework.fields import empty

from agents.api.errors import TooLarge
from agents.exceptions import NotFound
from agents.models.fields import PLACES, MicroUSDField
from agents.policy.costs import MOST_USD
from agents.text.formats.limits import MAX_BYTES
from audit.redaction import redact, redact_data
from audit.rows import unique_names

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
            self.fail("text")  # an empty text is neither an amount nor null
        return super().validate_empty_values(data)

    def to_internal_value(self, data: Any) -> Decimal:
        if isinstance(data, bool) or not isinstance(data, str | int):
            self.fail("text")
        return super().to_internal_value(data)


class WordField(serializers.ChoiceField):
    """One of a few words; the error lists them."""

    default_error_messages = {"invalid_choice": '"{input}" is unknown. Known: {known}.'}

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
    """Text without secrets, both as it comes in and as it goes out."""

    def to_internal_value(self, data: Any) -> str:
        return redact(super().to_internal_value(data))

    def to_representation(self, value: Any) -> str:
        return redact(super().to_representation(value))


class RedactedDictField(serializers.DictField):
    """A stored object without secrets."""

    def to_representation(self, value: Any) -> dict[str, Any]:
        return dict(redact_data(value))


class NoteField(RedactedField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": NOTE_CHARS, "required": False, "allow_blank": True, "default": "", **kwargs})


class TextsField(serializers.ListField):
    """Texts, as a tuple."""

    def __init__(self, *, max_chars: int, **kwargs: Any) -> None:
        super().__init__(child=serializers.CharField(max_length=max_chars), **kwargs)

    def to_internal_value(self, data: Any) -> tuple[str, ...]:  # type: ignore[override]  # what services take
        return tuple(super().to_internal_value(data))


class OwnedRowField(serializers.UUIDField):
    """The id of one of the user's rows, or of a shared row. Another user's row is not found."""

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
        if has_field(self.model, "deleted_at"):
            wanted["deleted_at"] = None  # type: ignore[assignment]  # a filter for NULL
        row = models.QuerySet(self.model).filter(**wanted).first()
        if row is None:
            raise NotFound(f"There is no {self.model._meta.verbose_name} {data}.")
        return row


class Body(serializers.Serializer[Any]):
    """A request body, or query parameters.

    Unknown names are refused: a misspelt cap would otherwise be no cap. So are values of another type: a number is not
    taken for text, nor 0 for false.
    """

    def run_validation(self, data: Any = empty) -> Any:
        if isinstance(data, Mapping):
            if unknown := set(data) - set(self.fields):
                message = f"Unknown. Known: {', '.join(self.fields)}."
                raise serializers.ValidationError({str(name): [message] for name in unknown})
            wrong = {name: [why] for name, value in data.items() if (why := _type_error(self.fields[name], value))}
            if wrong:
                raise serializers.ValidationError(wrong)
        return super().run_validation(data)


def _type_error(field: Any, value: Any) -> str:
    if isinstance(field, serializers.BooleanField) and not isinstance(value, bool | None):
        return "Send true or false."
    if isinstance(field, serializers.CharField | serializers.UUIDField) and not isinstance(value, str | None):
        return "Send text."
    return ""


class RowSerializer(serializers.ModelSerializer[Any]):
    """A row of a model, read-only: the fields named in Meta, `id` being the public id."""

    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, MicroUSDField: UsdField}
    id = serializers.UUIDField(source="public_id", read_only=True)

    def get_extra_kwargs(self) -> dict[str, Any]:
        extra = super().get_extra_kwargs()
        named = getattr(self.Meta, "fields", ())
        return {**extra, **{name: {**extra.get(name, {}), "read_only": True, **self._blank(name)} for name in named}}

    def _blank(self, name: str) -> dict[str, bool]:
        """Declare that a word may be empty, which the framework forgets of what is only read."""
        model: type[models.Model] = self.Meta.model
        column = next((field for field in model._meta.fields if field.name == name), None)
        may_be_empty = column is not None and column.choices and column.blank and not column.null
        return {"allow_blank": True} if may_be_empty else {}


def ref(name: str) -> serializers.UUIDField:
    """The public id of a related row, or null."""
    return serializers.UUIDField(source=f"{name}.public_id", read_only=True, allow_null=True)


def has_field(model: type[models.Model], name: str) -> bool:
    return any(field.name == name for field in model._meta.fields)


# --- Parsers ---
#
# JSON is read strictly: each name once in an object, finite numbers of 64 bits, no NUL and no lone surrogate in text.


MAX_DEPTH: Final = 50
TOO_DEEP: Final = f"The JSON is nested more than {MAX_DEPTH} levels deep."
LARGEST_INTEGER: Final = 2**63 - 1
FORM_OVERHEAD: Final = 64 * 1024
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class StrictJSONParser(parsers.BaseParser):
    media_type = "application/json"

    def parse(self, stream: IO[Any], *_: Any, **__: Any) -> Any:
        raw = _read(stream)
        try:
            value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique_names)
            _check(value)
        except RecursionError:
            raise ParseError(TOO_DEEP) from None
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}") from None
        return value


class YamlParser(parsers.BaseParser):
    """A YAML file as text in `field`; the service parses it."""

    media_type = "application/yaml"
    field = "yaml"

    def parse(self, stream: IO[Any], *_: Any, **__: Any) -> dict[str, str]:
        try:
            return {self.field: _read(stream).decode("utf-8")}
        except UnicodeDecodeError:
            raise ParseError("The body is not UTF-8 text.") from None


class UploadParser(parsers.MultiPartParser):
    """A form with one file. A form that is too large is refused before it is read."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        request = (parser_context or {})["request"]
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BYTES + FORM_OVERHEAD:
            raise TooLarge(MAX_BYTES)
        return super().parse(stream, media_type, parser_context)


def _read(stream: IO[Any]) -> bytes:
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    raw: bytes = stream.read(limit + 1)
    if len(raw) > limit:
        raise TooLarge(limit)
    return raw


def _check(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ParseError(TOO_DEEP)
    if isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, str) and _UNSTORABLE.search(value):
        raise ParseError("Text with a NUL character or a lone surrogate cannot be stored.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ParseError("A number is too large, or not a number.")
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ParseError("A number does not fit into 64 bits. Send it as text.")
