"""Redaction of text that arrives in pieces: a credential cut at any offset is still masked.

Owns what is held back: the unfinished line, a line whose value may follow on the next, an open key block. At most LIMIT
characters are held. Must not emit a character that a later piece could make part of a credential.
"""

import re

from audit.redaction.redactor import find_spans, redact

LIMIT = 65_536
# Held at the end of an endless line: longer than any format.
TAIL = 8_192
CONTEXT = 256
_OPEN_LINE = re.compile(
    r"(?:pass|pwd|secret|token|key|auth|cred|cookie|login|machine)[^\n]{0,64}\n\s*\Z"
    r"|[=:|>\\,][ \t\"'\[({]{0,8}\r?\n\s*\Z",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"-----BEGIN|Private-Lines:")


class StreamRedactor:
    """Feed pieces, write what comes back, and close at the end."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """The text that is settled by now, redacted."""
        self._held += chunk
        if len(self._held) > LIMIT:
            return self._forced()
        return self._released(self._settled()) if "\n" in chunk else ""

    def close(self) -> str:
        """The rest, redacted."""
        return self._released(len(self._held))

    def _released(self, end: int) -> str:
        settled, self._held = self._held[:end], self._held[end:]
        return redact(settled)

    def _settled(self) -> int:
        """The end of the last line that stands on its own."""
        end = self._held.rfind("\n") + 1
        blocks = [found.start() for found in _BLOCK.finditer(self._held, 0, end)]
        if blocks and self._held.find("-----END", blocks[-1], end) < 0:
            end = self._held.rfind("\n", 0, blocks[-1]) + 1
        return 0 if _OPEN_LINE.search(self._held, max(0, end - 256), end) else end

    def _forced(self) -> str:
        """Too much is held: give out all but the tail, cutting between credentials."""
        target = len(self._held) - TAIL
        end = max(self._held.rfind("\n", 0, target), self._held.rfind(" ", 0, target)) + 1 or target
        before = 0
        for span in find_spans(self._held):
            # A value is known by what stands before it: the cut leaves it its name.
            begin = max(before, span.start - CONTEXT)
            if begin < end < span.end:
                still_open = span.end == len(self._held)
                end = begin if begin or still_open else span.end
                if still_open:
                    # The value goes on: its beginning stands for it, what was read of the rest is dropped.
                    self._held = self._held[: span.start + TAIL]
            before = span.end
        return self._released(end)
