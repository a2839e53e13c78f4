"""Cleans values and texts where they come in: JSON values, text on one line, and names of documents.

Whatever a database, JSON or a line cannot hold is replaced visibly and once, so that the digest, the journal, the
approver and the handler all see the same.
"""

import math
import re
import unicodedata
from pathlib import PurePosixPath
from typing import Any

from audit.redaction import redact
from audit.redaction.redactor import DEPTH

_AS_THEY_ARE = {int, bool, type(None)}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_DEPTH = DEPTH  # redaction cuts what is nested deeper


def json_safe(value: Any, depth: int = 0) -> Any:
    """Make a value fit for JSON and both databases: NUL, lone surrogates and NaN are replaced."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if type(value) in _AS_THEY_ARE:
        return value
    if depth >= MAX_DEPTH and isinstance(value, dict | list | tuple):
        raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep.")
    if isinstance(value, dict):
        return {json_safe(str(name)): json_safe(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# --- Text on one line ---


ELLIPSIS = "…"
_BREAKS = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line and paragraph separators
_INVISIBLE = "Cf"  # direction marks, joiners, tags: people do not see them, and a model reads them


def one_line(text: str, limit: int) -> str:
    """Return at most `limit` characters, without line breaks, control characters and invisible ones."""
    line = " ".join("".join(map(_visible, text)).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + ELLIPSIS


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category in _BREAKS:
        return " "
    return "" if category == _INVISIBLE else char


# --- Names of documents ---


NAME_CHARS = 255
UNNAMED = "document"
_SUFFIX_CHARS = 16
_FOLDERS = re.compile(r"[/\\]+")


def document_name(given: str, *, suffix: str = "") -> str:
    """Return the last part of a given name on one line, at most 255 characters.

    A long name keeps its suffix. `suffix` is added when the name does not have it.
    """
    parts = [part for part in _FOLDERS.split(one_line(given, 10 * NAME_CHARS)) if part.strip(" .")]
    name = one_line(redact(parts[-1]), 10 * NAME_CHARS) if parts else UNNAMED
    if suffix and not name.lower().endswith(suffix):
        name += suffix
    if len(name) <= NAME_CHARS:
        return name
    kept = PurePosixPath(name).suffix[:_SUFFIX_CHARS]
    return one_line(name.removesuffix(kept), NAME_CHARS - len(kept)) + kept
