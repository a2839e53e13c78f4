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
MARK = ("[a-z]", "[0-9]", "[a-z]")
# Text before a placeholder must not make up another one with it. Inside a mark a digit stands second, where no kind has
# one, and the last letter begins no kind: so a mark that was cut short is never finished by the kind that follows.
LAST_LETTERS = "".join(sorted(set(ascii_lowercase) - {kind[0].lower() for kind in Kind}))
FORMS = ("", *ascii_lowercase[1:])
LONGEST = max(map(len, Kind)) + 3 + 7 + 1 + 3 + 3  # the longest spelling that is still read as a placeholder


class Token(NamedTuple):
    """One placeholder: the `form` tells spellings of one name apart, "" for the first and then b to z."""

    kind: Kind
    number: int
    form: str


def _unfinished(kind: Kind) -> str:
    """A pattern for a placeholder that the end of the text cuts off anywhere."""
    pattern = r"\Z"
    for atom in reversed([*kind[1:], BETWEEN, NUMBER, FORM, BETWEEN, *MARK[:-1]]):
        pattern = rf"(?:\Z|{atom}{pattern})"
    return f"{kind[0]}{pattern}"


PATTERN = re.compile(
    f"({'|'.join(Kind)}){BETWEEN}({NUMBER})({FORM}){BETWEEN}({''.join(MARK)})", re.IGNORECASE | re.ASCII
)
UNFINISHED = re.compile("|".join(map(_unfinished, Kind)), re.IGNORECASE | re.ASCII)


class Grammar:
    """The placeholders of one call, known by their mark."""

    __slots__ = ("_mark",)

    def __init__(self) -> None:
        self._mark = "".join(map(secrets.choice, (ascii_lowercase, digits, LAST_LETTERS)))

    def spell(self, token: Token) -> str:
        return f"{token.kind}_{token.number}{token.form}_{self._mark}"

    def found(self, text: str) -> Iterator[tuple[int, int, Token]]:
        """Everything in the text that reads as a placeholder of this call, whether it was given out or not."""
        match = PATTERN.search(text) if self._mark in text.lower() else None
        while match:
            kind, number, form, mark = match.groups()
            ours = mark.lower() == self._mark
            if ours:
                yield *match.span(), Token(Kind(kind.upper()), int(number), form.lower())
            # A stranger's mark may reach into a placeholder of ours, so the search goes on inside it.
            match = PATTERN.search(text, match.end() if ours else match.start() + 1)

    def cut(self, text: str) -> int:
        """Where a placeholder begins that the text to come may finish; the end of the text if there is none."""
        done = max((end for _, end, _ in self.found(text)), default=0)
        tail = UNFINISHED.search(text, max(done, len(text) - LONGEST))
        return tail.start() if tail else len(text)
