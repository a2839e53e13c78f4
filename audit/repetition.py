"""Regular expressions that repeat a group and give nothing back.

Python 3.11.0 to 3.11.4 miss matches of `(?:…)*+`. There an atomic group matches the same, but remembers every
repetition until it ends: up to a hundred bytes for each character of a text.
"""

import sys

MISSES = sys.version_info < (3, 11, 5)


def possessive(group: str, times: str = "*") -> str:
    """Return the pattern of a group that is repeated as often as possible: `*`, `+` or `{2,5}` times."""
    return f"(?>(?:{group}){times})" if MISSES else f"(?:{group}){times}+"
