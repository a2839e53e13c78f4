"""Fields that several resources share: money as text, ids of rows, and texts that are redacted as they come in."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import Field
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
from agents.policy.run_spec import OPTIONS, RunSpec
from agents.text.formats import MAX_BYTES
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


class RunOptionsBody(Body):
    """The options of a run, as agents/policy/run_spec.py declares them."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return super().get_fields() | {each.name: _option_field(each) for each in OPTIONS}


def _option_field(each: Field[Any]) -> serializers.Field[Any, Any, Any, Any]:
    about: dict[str, Any] = {"required": False, "help_text": each.metadata["help"]}
    if choices := each.metadata["choices"]:
        return WordField(choices=choices.choices, **about)
    is_flag = isinstance(getattr(RunSpec(), each.name), bool)
    return serializers.BooleanField(**about) if is_flag else serializers.DictField(**about)


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


# What is taken from a request body, before any field is looked at: sizes, depth, and text that every database holds.
#
# One strict reading of JSON: a name stands once in an object, numbers are finite and fit 64 bits, text has no NUL and
# no half characters. So no later layer meets a value that it cannot store.


MAX_DEPTH: Final = 50
LARGEST: Final = 2**63 - 1
FORM_OVERHEAD: Final = 64 * 1024
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class StrictJSON(parsers.BaseParser):
    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = _read(stream)
        try:
            value = json.loads(
                raw.decode("utf-8"), object_pairs_hook=_once, parse_float=_finite, parse_constant=_no_constant
            )
        except RecursionError:
            raise ParseError(f"The JSON is nested more than {MAX_DEPTH} levels deep.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON as it is taken here: {error}") from None
        _check(value)
        return value


class YamlText(parsers.BaseParser):
    """A playbook as it stands in a file: the text is handed on, and read by the service alone."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        try:
            return {"yaml": _read(stream).decode("utf-8")}
        except UnicodeDecodeError:
            raise ParseError("The body is not UTF-8 text.") from None


class Upload(parsers.MultiPartParser):
    """A form with one file. What is plainly too large is refused before it is read."""

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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers of an object that names a thing twice may see two different things."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object.")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large.")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value.")


def _check(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise ParseError(f"The JSON is nested more than {MAX_DEPTH} levels deep.")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
            else:
                _check_scalar(item)
        level, depth = inner, depth + 1


def _check_scalar(item: Any) -> None:
    if isinstance(item, str) and _UNSTORABLE.search(item):
        raise ParseError("Text with a NUL, or with half of a character, cannot be stored.")
    if isinstance(item, int) and abs(item) > LARGEST:
        raise ParseError("A number does not fit into 64 bits; send it as text.")
