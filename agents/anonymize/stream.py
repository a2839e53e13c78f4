r"""Restores a reply that comes in pieces, cut anywhere. What may be the beginning of a placeholder is held back.

At most one placeholder is held (`LONGEST` characters), and in JSON one unfinished escape (5 characters) besides.
"""

import json
import re

from agents.anonymize.vault import Secretive, Vault

ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[\s\S])")
OPEN_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*+(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
NEEDS_ESCAPE = '"\\'


def in_json(original: str) -> str:
    """A restored value as it must stand inside a JSON string."""
    return json.dumps(original, ensure_ascii=False)[1:-1]


def _plain(match: re.Match[str]) -> str:
    r"""Printable ASCII needs no escape (`\u005f` is `_`), and a placeholder is made of nothing else."""
    char = chr(int(match[1], 16)) if match[1] else ""
    return char if char.isascii() and char.isprintable() and char not in NEEDS_ESCAPE else match[0]


class RestoringStream(Secretive):
    """`feed` gives what is certain, `close` the rest. As JSON, restored values are escaped to fit in their strings."""

    __slots__ = ("_as_json", "_closed", "_escape", "_held", "_vault")

    def __init__(self, vault: Vault, *, as_json: bool = False) -> None:
        self._vault = vault
        self._as_json = as_json
        self._closed = False
        self._held = ""
        self._escape = ""

    def __repr__(self) -> str:
        return f"<RestoringStream: {len(self._held) + len(self._escape)} characters held>"

    def feed(self, chunk: str) -> str:
        if self._closed:
            raise ValueError("This stream is closed: take a new one for each reply.")
        self._held += self._read(chunk) if self._as_json else chunk
        cut = self._vault.grammar.cut(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._restored(ready)

    def close(self) -> str:
        rest, self._held, self._escape = self._held + self._escape, "", ""
        self._closed = True
        return self._restored(rest)

    def _read(self, fragment: str) -> str:
        text = self._escape + fragment
        unfinished = OPEN_ESCAPE.search(text)
        end = unfinished.start(1) if unfinished else len(text)
        self._escape = text[end:]
        return ESCAPE.sub(_plain, text[:end])

    def _restored(self, text: str) -> str:
        return self._vault.restored(text, in_json if self._as_json else str)
