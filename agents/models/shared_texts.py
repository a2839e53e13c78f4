"""Long texts of rows, each stored once: a run quotes its documents in what it fetched and in every question.

A column of these kinds keeps the digests of its long texts; the texts themselves stand in rows of SharedText, which are
written with the first row that holds them and never change. Messages are cut at the borders of their blocks, so that a
document is the same text wherever it is quoted. What was sent to a model is put together again, to the character.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

from django.db import connection, models
from django.db.models.functions import Now

from agents.conf import clock

LONG_CHARS: Final = 1_000
KEPT: Final = 64  # texts that a process remembers
# Begins what stands for texts: a character that no text should hold. A text that begins with it is stored apart, too.
MARK: Final = "\ufdd0"
_MARK_IN_JSON: Final = json.dumps(MARK)[1:-1]
_HEADER: Final = re.compile(r"<<<[a-z0-9_]+ [A-Za-z0-9]{8,64}(?: [^\n]{0,1000})?>>>\n")
_FOOTER: Final = re.compile(r"\n<<<end [A-Za-z0-9]{8,64}>>>")
MOST_PIECES: Final = 50  # a text with more borders is not cut: whoever sends a document may write as many as they like
AT_ONCE: Final = 500  # texts that one query reads
NOTED_AGAIN: Final = timedelta(days=1)  # after which a use of a text is noted again


class SharedText(models.Model):
    """A long text by the digest of its characters. It never changes, and is deleted once no row names it any more.

    `used_at` is at most a day before the time when a row that names it was last written.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    text = models.TextField()
    used_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["used_at"], name="shared_text_used")]

    def __str__(self) -> str:
        return self.digest


class SharedTextField(models.TextField):  # type: ignore[type-arg]
    """A text that is stored once if it is long."""

    def deconstruct(self) -> Any:
        return _as_column(super().deconstruct(), "TextField")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 Django's signature
        return stored(super().pre_save(model_instance, add))

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        return _restored(value)


class SharedTextJSONField(models.JSONField):
    """JSON whose long texts are stored once."""

    def deconstruct(self) -> Any:
        return _as_column(super().deconstruct(), "JSONField")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 Django's signature
        return stored(super().pre_save(model_instance, add))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return _restored(super().from_db_value(value, expression, connection))


def _as_column(parts: Any, kind: str) -> Any:
    """Describe a field to migrations as an ordinary one: its column is the same."""
    name, _, args, kwargs = parts
    return name, f"django.db.models.{kind}", args, kwargs


def stored_json(value: Any, text: str) -> str:
    """Return the JSON of a value as its column holds it; `text` is the value as ASCII JSON, or empty."""
    if text and len(text) < LONG_CHARS and _MARK_IN_JSON not in text:
        return text  # none of its texts is a long one
    return json.dumps(stored(value))


def stored(value: Any) -> Any:
    """Return the value with its long texts replaced, after storing those that are new."""
    value, texts = _apart(value)
    _store({digest: text for digest, text in texts.items() if digest not in _stored_just_now.get()})
    return value


def _apart(value: Any) -> tuple[Any, dict[str, str]]:
    """Return the value with its long texts replaced, and these by their digests."""
    texts: dict[str, str] = {}

    def replaced(text: str) -> str:
        if len(text) < LONG_CHARS and not text.startswith(MARK):
            return text
        pieces = _pieces(text)
        digests = [sha256(piece.encode("utf-8", "surrogatepass")).hexdigest() for piece in pieces]
        texts.update(zip(digests, pieces, strict=True))
        return MARK + " ".join(digests)

    return _with_texts(value, replaced), texts


_stored_just_now: ContextVar[frozenset[str]] = ContextVar("stored_just_now", default=frozenset())


def store_texts(value: Any) -> frozenset[str]:
    """Store the long texts of a value that is written next, in the caller's transaction; return their digests."""
    _, texts = _apart(value)
    _store(texts)
    return frozenset(texts)


@contextmanager
def texts_stored(digests: frozenset[str]) -> Iterator[None]:
    """Store these texts no second time within: the caller has just committed them."""
    token = _stored_just_now.set(digests)
    try:
        yield
    finally:
        _stored_just_now.reset(token)


def _store(texts: dict[str, str]) -> None:
    """Write the texts that are new, and note the use of those that were last noted more than a day ago.

    In one order, so that two who store the same texts never block each other. One that `prune` deletes before its use
    is noted is written again.
    """
    now = clock()
    digests = sorted(texts)
    while some := digests[:AT_ONCE]:
        digests = digests[AT_ONCE:]
        if _insert([(digest, texts[digest]) for digest in some], now) < len(some):
            digests += _note_use(some, now)


def _insert(rows: Sequence[tuple[str, str]], now: datetime) -> int:
    """Write those that are not there by one statement; return how many."""
    at = connection.ops.adapt_datetimefield_value(now)
    marks = ", ".join(["(%s, %s, %s)"] * len(rows))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {SharedText._meta.db_table} (digest, text, used_at) VALUES {marks} ON CONFLICT DO NOTHING",  # noqa: S608 our own table
            [value for row in rows for value in (*row, at)],
        )
        return int(cursor.rowcount)


def _note_use(digests: Sequence[str], now: datetime) -> list[str]:
    """Note that texts are used; return those that are gone."""
    used = dict(SharedText.objects.filter(digest__in=digests).values_list("digest", "used_at"))
    for digest in digests:
        is_old = digest in used and used[digest] < now - NOTED_AGAIN
        if is_old and not SharedText.objects.filter(digest=digest).update(used_at=now):
            del used[digest]
    return [digest for digest in digests if digest not in used]


def _pieces(text: str) -> list[str]:
    """Cut a text at the borders of its blocks."""
    borders = {border.end() for border in _HEADER.finditer(text)}
    borders |= {border.start() for border in _FOOTER.finditer(text)}
    if len(borders) >= MOST_PIECES:
        return [text]
    places = sorted(borders | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


def _restored(value: Any) -> Any:
    digests: dict[str, None] = {}

    def noted(text: str) -> str:
        if text.startswith(MARK):
            digests.update(dict.fromkeys(_digests(text)))
        return text

    _with_texts(value, noted)
    if not digests:
        return value
    texts = _read(digests)
    return _with_texts(
        value, lambda text: "".join(texts[one] for one in _digests(text)) if text.startswith(MARK) else text
    )


def _digests(text: str) -> list[str]:
    return text.removeprefix(MARK).split(" ")


_NAMED: Final = re.compile(rf"(?:{MARK}|\\ufdd0)([0-9a-f]{{64}}(?: [0-9a-f]{{64}})*)")


def named_texts(column: str | None) -> Iterator[str]:
    """Yield the digests that a column names, as the database holds it: text, or JSON with or without escapes."""
    for found in _NAMED.finditer(column or ""):
        yield from found[1].split(" ")


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a value of JSON with every text changed; its names stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _with_texts(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_texts(item, change) for item in value]
    return value


_kept: dict[str, str] = {}
_lock = threading.Lock()


def _read(digests: Iterable[str]) -> dict[str, str]:
    """Return the texts, of which the last ones are remembered. An error if one is gone: no other may take its place."""
    with _lock:
        found = {digest: _kept[digest] for digest in digests if digest in _kept}
    missing = [digest for digest in digests if digest not in found]
    for start in range(0, len(missing), AT_ONCE):
        rows = SharedText.objects.filter(digest__in=missing[start : start + AT_ONCE])
        found |= dict(rows.values_list("digest", "text"))
    if gone := [digest for digest in digests if digest not in found]:
        raise SharedText.DoesNotExist(f"{len(gone)} long texts of a row are gone, among them {gone[0]}.")
    with _lock:
        _kept.update(found)
        while len(_kept) > KEPT:
            del _kept[next(iter(_kept))]
    return found
