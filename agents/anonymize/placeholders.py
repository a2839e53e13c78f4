r"""How a placeholder is written, and how it is read back: `PERSON_1_x7k` is kind, number and the mark of this call.

The mark is random, so that a placeholder of another call, or one that a model made up, is never taken for ours. Reading
is lenient, since models retype: case, `\_`, `-`, blanks and lost underscores are accepted.
"""

import re
import secrets
from collections.abc import Iterator
from string import ascii_lowercase, digits
from typing import NamedTuple

from agents.anonymize.spans import Kind

BETWEEN = r"[ \u00a0_\\\u2011-]{0,3}"
NUMBER = "[0-9]{1,7}"
FORM = "[b-z]?"
FORMS = ("", *ascii_lowercase[1:])
LONGEST = max(map(len, Kind)) + 3 + 7 + 1 + 3 + 3  # the longest spelling that is still read as a placeholder


class Token(NamedTuple):
    """One placeholder: the `form` tells spellings of one name apart, "" for the first and then b to z."""

    kind: Kind
    number: int
    form: str


class Grammar:
    """The placeholders of one call. A digit inside the mark keeps it apart from every kind and every word."""

    __slots__ = ("_mark", "_open", "_pattern")

    def __init__(self) -> None:
        self._mark = "".join(map(secrets.choice, (ascii_lowercase, digits, ascii_lowercase)))
        kinds = "|".join(Kind)
        self._pattern = re.compile(
            f"({kinds}){BETWEEN}({NUMBER})({FORM}){BETWEEN}{self._mark}", re.IGNORECASE | re.ASCII
        )
        self._open = re.compile("|".join(map(self._unfinished, Kind)), re.IGNORECASE | re.ASCII)

    def _unfinished(self, kind: Kind) -> str:
        """A pattern for a placeholder that the end of the text cuts off anywhere."""
        atoms: list[str] = [*kind, BETWEEN, NUMBER, FORM, BETWEEN, *self._mark[:-1]]
        pattern = r"\Z"
        for atom in reversed(atoms[1:]):
            pattern = rf"(?:\Z|{atom}{pattern})"
        return kind[0] + pattern

    def spell(self, token: Token) -> str:
        return f"{token.kind}_{token.number}{token.form}_{self._mark}"

    def found(self, text: str) -> Iterator[tuple[int, int, Token]]:
        """Everything in the text that reads as a placeholder of this call, whether it was given out or not."""
        if self._mark not in text.lower():
            return
        for match in self._pattern.finditer(text):
            kind, number, form = match.groups()
            yield *match.span(), Token(Kind(kind.upper()), int(number), form.lower())

    def cut(self, text: str) -> int:
        """Where a placeholder begins that the text to come may finish; the end of the text if there is none."""
        done = max((end for _, end, _ in self.found(text)), default=0)
        tail = self._open.search(text, max(done, len(text) - LONGEST))
        return tail.start() if tail else len(text)
