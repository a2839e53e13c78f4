"""Long texts of rows, each stored once: a run quotes its documents in what it fetched and in every question.

A column of these kinds keeps the digests of its long texts; the texts themselves stand in rows of SharedText, which are
written with the first row that holds them and never change. Messages are cut at the borders of their blocks, so that a
document is the same text wherever it is quoted. What was sent to a model is put together again, to the character.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from django.db import models

LONG_CHARS: Final = 1_000
KEPT: Final = 64  # texts that a process remembers
# Begins what stands for texts: a character that no text should hold. A text that begins with it is stored apart, too.
MARK: Final = "\ufdd0"
_BORDER: Final = re.compile(r"(?<=>>>\n)|(?=\n<<<)")


class SharedText(models.Model):
    """A long text by the digest of its characters. Rows are only ever added."""

    digest = models.CharField(max_length=64, primary_key=True)
    text = models.TextField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.digest


class SharedTextField(models.TextField):  # type: ignore[type-arg]
    """A text that is stored once if it is long."""

    def deconstruct(self) -> Any:
        return _as_column(super().deconstruct(), "TextField")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 Django's signature
        return _stored(super().pre_save(model_instance, add))

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        return _restored(value)


class SharedTextJSONField(models.JSONField):
    """JSON whose long texts are stored once."""

    def deconstruct(self) -> Any:
        return _as_column(super().deconstruct(), "JSONField")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 Django's signature
        return _stored(super().pre_save(model_instance, add))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return _restored(super().from_db_value(value, expression, connection))


def _as_column(parts: Any, kind: str) -> Any:
    """Describe a field to migrations as an ordinary one: its column is the same."""
    name, _, args, kwargs = parts
    return name, f"django.db.models.{kind}", args, kwargs


def _stored(value: Any) -> Any:
    """Return the value with its long texts replaced, after storing those that are new."""
    texts: dict[str, str] = {}

    def replaced(text: str) -> str:
        if len(text) < LONG_CHARS and not text.startswith(MARK):
            return text
        pieces = [piece for piece in _BORDER.split(text) if piece]
        digests = [sha256(piece.encode("utf-8", "surrogatepass")).hexdigest() for piece in pieces]
        texts.update(zip(digests, pieces, strict=True))
        return MARK + " ".join(digests)

    value = _with_texts(value, replaced)
    if texts:  # in one order, so that two who store the same texts never wait for each other
        rows = [SharedText(digest=digest, text=texts[digest]) for digest in sorted(texts)]
        SharedText.objects.bulk_create(rows, ignore_conflicts=True)
    return value


def _restored(value: Any) -> Any:
    return _with_texts(value, lambda text: _put_together(text) if text.startswith(MARK) else text)


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a value of JSON with every text changed; its names stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _with_texts(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item, change) for item in value]
    return value


def _put_together(text: str) -> str:
    return "".join(map(_text, text.removeprefix(MARK).split(" ")))


@lru_cache(KEPT)
def _text(digest: str) -> str:
    """Return the text; an error if it is gone, since nothing may go on with another one."""
    return SharedText.objects.values_list("text", flat=True).get(digest=digest)
