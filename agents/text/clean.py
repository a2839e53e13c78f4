"""Makes any value that a model or a tool produced fit for JSON and for both databases.

NUL and lone surrogates break PostgreSQL and UTF-8; NaN is not JSON. They are replaced, visibly, where text comes in, so
that the digest, the journal, the approver and the handler all see the same.
"""

import math
import re
import unicodedata
from pathlib import PurePosixPath
from typing import Any

from audit.redaction import redact

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_DEPTH = 100


def storable(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep.")
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(str(name)): storable(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# Text that is shown, mailed or put into a prompt as one line: nothing in it can break the line or turn it around.


ELLIPSIS = "…"
_BREAKS = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, halves of pairs, line and paragraph separators
_UNSEEN = "Cf"  # direction marks, joiners, tags: nobody sees them, and a model reads them


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters, without line breaks, control characters and invisible ones."""
    shown = "".join(_shown(char) for char in text)
    line = " ".join(shown.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + ELLIPSIS


def _shown(char: str) -> str:
    category = unicodedata.category(char)
    if category in _BREAKS:
        return " "
    return "" if category == _UNSEEN else char


# What a document is called: the last part of whatever name its sender gave it, fit to be shown on one line.


NAME_CHARS = 255
UNNAMED = "document"
_SUFFIX_CHARS = 16
_FOLDERS = re.compile(r"[/\\]+")


def document_name(given: str, *, suffix: str = "") -> str:
    """At most 255 characters, no folders, no control characters; a long name keeps its suffix. `suffix` is added when
    the name does not have it."""
    parts = [part for part in _FOLDERS.split(one_line(given, 10 * NAME_CHARS)) if part.strip(" .")]
    name = one_line(redact(parts[-1]), 10 * NAME_CHARS) if parts else UNNAMED
    if suffix and not name.lower().endswith(suffix):
        name += suffix
    if len(name) <= NAME_CHARS:
        return name
    kept = PurePosixPath(name).suffix[:_SUFFIX_CHARS]
    return one_line(name.removesuffix(kept), NAME_CHARS - len(kept)) + kept
