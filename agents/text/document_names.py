"""What a document is called: the last part of whatever name its sender gave it, fit to be shown on one line."""

import re
from pathlib import PurePosixPath

from agents.text.plain_text import one_line
from audit.redaction import redact

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
