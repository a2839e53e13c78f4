"""What is taken from a request body, before any field is looked at: sizes, depth, and text that every database holds.

One strict reading of JSON: a name stands once in an object, numbers are finite and fit 64 bits, text has no NUL and no
half characters. So no later layer meets a value that it cannot store.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import IO, Any, Final, NoReturn

from django.conf import settings
from rest_framework import parsers
from rest_framework.exceptions import ParseError

from agents.api.errors import TooLarge
from agents.text.formats import MAX_BYTES

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
