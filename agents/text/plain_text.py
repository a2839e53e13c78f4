"""Text that is shown, mailed or put into a prompt as one line: nothing in it can break the line or turn it around."""

import unicodedata

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
