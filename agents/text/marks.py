"""Marks: which page, sheet or slide a stretch of a document's text comes from. Pure.

A reader returns parts with labels. Their texts are joined to one, and each label becomes a mark: the offset in the text
from which it holds. Marks are stored with the document, as lists of two, in order.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agents.exceptions import Invalid
from agents.text.formats.limits import MAX_CHARS

LABEL_CHARS = 80
LOCATION_CHARS = 2 * LABEL_CHARS + len(" to ")
_BETWEEN = "\n\n"
_LINE_END = re.compile("\r\n?")
# NUL and lone surrogates cannot be stored; they are replaced, visibly.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Mark = tuple[int, str]


class Part(NamedTuple):
    """A piece of a document's text. `label` names its place ("page 7"); empty where the format has none."""

    text: str
    label: str = ""


def normalise_text(text: str) -> str:
    """Return the text as it is stored: one kind of line end, and no character that a database refuses."""
    return _UNSTORABLE.sub("\ufffd", _LINE_END.sub("\n", text))


def join_parts(parts: Iterable[Part]) -> tuple[str, list[Mark]]:
    """Return the whole text, with an empty line between parts, and its marks. Parts without text are left out."""
    texts: list[str] = []
    marks: list[Mark] = []
    chars = 0
    for part in parts:
        text = normalise_text(part.text).strip()
        if not text:
            continue
        label = label_of(part.label)
        if not marks or marks[-1][1] != label:
            marks.append((chars, label))
        texts.append(text)
        chars += len(text) + len(_BETWEEN)
        if chars > MAX_CHARS + len(_BETWEEN):
            raise Invalid(too_long())
    return _BETWEEN.join(texts), marks if any(label for _, label in marks) else []


def label_of(text: str) -> str:
    """Return a label on one line, at most 80 characters long, without characters that people do not see."""
    line = "".join(filter(str.isprintable, " ".join(text.split())))
    return line if len(line) <= LABEL_CHARS else line[: LABEL_CHARS - 1] + "…"


def too_long() -> str:
    return f"It has more than {MAX_CHARS:,} characters of text, the most that is read. Split it."


def location_of(marks: Sequence[Sequence[Any]], start: int, end: int) -> str:
    """Return the label of a stretch of text; of one that spans several, the first and the last of them."""
    first, last = (_label_at(marks, place) for place in (start, max(start, end - 1)))
    return " to ".join(dict.fromkeys(filter(None, (first, last))))


def _label_at(marks: Sequence[Sequence[Any]], place: int) -> str:
    number = bisect_right(marks, place, key=lambda mark: mark[0])
    return str(marks[number - 1][1]) if number else ""
