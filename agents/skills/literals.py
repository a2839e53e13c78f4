"""Reads Python literals out of a text, without evaluating anything.

Accepts strings, numbers, True, False, None, lists, tuples (as lists) and dicts with string keys, with the meaning they
have in Python; a single string with escapes is read by ast.literal_eval. Refuses values that JSON or a database cannot
store. The position only moves forward and no pattern backtracks, so time is linear in the length of the text, which is
not true of ast.parse for long lists.
"""

import ast
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from audit.repetition import possessive

MAX_DEPTH: Final = 32  # of nested brackets, which bounds the recursion
MAX_NUMBER_CHARS: Final = 1_000  # Python cannot print integers of more than 4,300 digits
MAX_NAME_CHARS: Final = 64
EXCERPT_CHARS: Final = 20
NAME_RULE: Final = (
    f"a name has 1 to {MAX_NAME_CHARS} ASCII letters, digits and underscores and does not start with a digit"
)
LITERALS_ONLY: Final = "only literals are allowed: no names, operators, calls, attributes or comprehensions"
TOO_DEEP: Final = f"brackets are nested more than {MAX_DEPTH} deep; nest them less"

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")  # ASCII only: Python would fold look-alike letters into these
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

_BLANK: Final = re.compile(r"[ \t\f\r\n]++")
# What Python skips between brackets: blanks, comments, and line ends after a backslash.
_GAP: Final = re.compile(possessive("[ \t\f\r\n]++|#[^\r\n\x00\ud800-\udfff]*+|\\\\(?:\r\n?|\n)", "+"))
_QUOTE: Final = re.compile(r"""([A-Za-z]{0,2})(\"""|'''|"|')""")
_BODY: Final = {
    "'": re.compile(possessive(r"[^'\\\r\n]++|\\(?:\r\n|.)") + "'", re.DOTALL),
    '"': re.compile(possessive(r'[^"\\\r\n]++|\\(?:\r\n|.)') + '"', re.DOTALL),
    "'''": re.compile(possessive(r"[^'\\]++|\\.|'(?!'')") + "'''", re.DOTALL),
    '"""': re.compile(possessive(r'[^"\\]++|\\.|"(?!"")') + '"""', re.DOTALL),
}
_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-7]{1,3})|[\\'\"abfnrtvxuUN\n]|(?P<unknown>.))", re.DOTALL)
_NUMBER: Final = re.compile(r"\.?[0-9]" + possessive(r"[0-9A-Za-z_.]|(?<=[eE])[+-]"))
_FRACTION: Final = re.compile(r"[.eE]")
_BASED: Final = ("0x", "0X", "0o", "0O", "0b", "0B")
_WORD: Final = re.compile(r"\w++")
_WORDS: Final[dict[str, bool | None]] = {"True": True, "False": False, "None": None}
_JSON_WORDS: Final = {"true": "True", "false": "False", "null": "None"}


class LiteralError(ValueError):
    """The text at a position is not allowed there; the message says what is."""

    def __init__(self, position: int | None, message: str) -> None:
        super().__init__(message)
        self.position = position


class Reader:
    """A position in a text. Each method reads one item and moves past it."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position

    def error(self, expected: str, hint: str = "") -> LiteralError:
        """Return the error for the text at this position."""
        rest = self.text[self.position : self.position + EXCERPT_CHARS]
        found = ascii(rest) if rest else "the end of the text"
        return LiteralError(self.position, f"expected {expected} but found {found}{hint and '; '}{hint}")

    def skip_blank(self) -> None:
        if blank := _BLANK.match(self.text, self.position):
            self.position = blank.end()

    def skip(self) -> None:
        if gap := _GAP.match(self.text, self.position):
            self.position = gap.end()

    def expect(self, token: str, expected: str, hint: str = "") -> None:
        if not self.text.startswith(token, self.position):
            raise self.error(expected, hint)
        self.position += len(token)

    def name(self, expected: str) -> str:
        found = NAME.match(self.text, self.position)
        if not found:
            raise self.error(expected, NAME_RULE)
        if len(found[0]) > MAX_NAME_CHARS:
            raise LiteralError(self.position, f"a name is {len(found[0])} characters long; {NAME_RULE}")
        self.position = found.end()
        return found[0]

    def arguments(self) -> dict[str, Any]:
        """Read `name=literal, …` up to and including the closing bracket."""
        given: dict[str, Any] = {}
        for _ in self._items(")"):
            start = self.position
            name = self.name("an argument such as limit=5")
            self.skip()
            self.expect("=", "= and a literal", "arguments are given by name, as in limit=5")
            if name in given:
                raise LiteralError(start, f"the argument {name} is given twice; give it once")
            given[name] = self.value()
        return given

    def value(self, depth: int = 0) -> Any:
        """Read a literal. `depth` is the number of open brackets around it."""
        self.skip()
        if number := _NUMBER.match(self.text, self.position):
            return self._number(number)
        if quote := _QUOTE.match(self.text, self.position):
            return self._string(quote)
        first = self.text[self.position : self.position + 1]
        if first in {"[", "(", "{"}:
            return self._bracketed(first, depth + 1)
        return self._signed(first) if first in {"+", "-"} else self._word()

    # --- Brackets ---

    def _take(self, token: str) -> bool:
        self.skip()
        taken = self.text.startswith(token, self.position)
        self.position += len(token) if taken else 0
        return taken

    def _items(self, closing: str) -> Iterator[None]:
        """Yield once per item up to the closing bracket. Commas separate items; one may follow the last."""
        while not self._take(closing):
            yield
            if not self._take(","):
                self.expect(closing, f", or {closing}", LITERALS_ONLY)
                return

    def _bracketed(self, opening: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise LiteralError(self.position, TOO_DEEP)
        self.position += 1
        if opening == "{":
            return self._dict(depth)
        if opening == "[":
            return [self.value(depth) for _ in self._items("]")]
        return self._tuple(depth)

    def _tuple(self, depth: int) -> Any:
        """Read a tuple as a list; as in Python, a single value without a comma is just that value."""
        if self._take(")"):
            return []
        first = self.value(depth)
        if self._take(")"):
            return first
        self.expect(",", ", or )", LITERALS_ONLY)
        return [first, *(self.value(depth) for _ in self._items(")"))]

    def _dict(self, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in self._items("}"):
            start = self.position
            key = self.value(depth)
            self.skip()
            self.expect(":", ": and a value", "sets are not allowed, use a list")
            if not isinstance(key, str):
                raise LiteralError(start, "the key of a dict is not a string; put it in quotes")
            if key in entries:
                raise LiteralError(start, f"the key {excerpt(key)} occurs twice in a dict; give it once")
            entries[key] = self.value(depth)
        return entries

    # --- Single values ---

    def _string(self, quote: re.Match[str] | None) -> str:
        """Read a string. As in Python, adjacent strings are joined."""
        pieces = []
        while quote:
            pieces.append(self._piece(quote))
            self.skip()
            quote = _QUOTE.match(self.text, self.position)
        return "".join(pieces)

    def _piece(self, opening: re.Match[str]) -> str:
        prefix, quote = opening[1].lower(), opening[2]
        if prefix not in {"", "r", "u"}:
            raise LiteralError(
                self.position, f"{opening[0]}… is not a plain string; f-strings and bytes are not allowed"
            )
        body = _BODY[quote].match(self.text, opening.end())
        if not body:
            where = " on its line" if len(quote) == 1 else ""
            raise LiteralError(
                self.position,
                f"the string that starts here is not closed{where}; use three quotes for several lines",
            )
        text = body[0][: -len(quote)].replace("\r\n", "\n").replace("\r", "\n")
        if "\\" in text and prefix != "r" and not UNSTORABLE.search(text):
            text = _unescaped(self.position, f"{quote}{text}{quote}")
        if bad := UNSTORABLE.search(text):
            raise LiteralError(self.position, unstorable_error(bad))
        self.position = body.end()
        return text

    def _number(self, found: re.Match[str]) -> int | float:
        number = number_of(found[0], self.position)
        self.position = found.end()
        return number

    def _signed(self, sign: str) -> int | float:
        self.position += 1
        self.skip()
        found = _NUMBER.match(self.text, self.position)
        if not found:
            raise self.error("a number after the sign")
        return -self._number(found) if sign == "-" else self._number(found)

    def _word(self) -> bool | None:
        found = _WORD.match(self.text, self.position)
        word = found[0] if found else ""
        if word in _WORDS:
            self.position += len(word)
            return _WORDS[word]
        expected = _JSON_WORDS.get(word, "a string in quotes, a number, True, False, None, a list, a tuple or a dict")
        raise self.error(expected, LITERALS_ONLY)


def excerpt(text: str) -> str:
    """Return untrusted text as an error may show it: short, quoted, in ASCII."""
    return ascii(text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}...")


def unstorable_error(found: re.Match[str]) -> str:
    return f"a string contains U+{ord(found[0]):04X}, which cannot be stored; remove it or write the whole character"


def number_of(digits: str, position: int | None) -> int | float:
    """Return the number written in ASCII digits, in Python's notation, which includes JSON's."""
    if len(digits) > MAX_NUMBER_CHARS:
        raise LiteralError(
            position, f"a number is {len(digits)} characters long; the limit is {MAX_NUMBER_CHARS}, send a string"
        )
    try:
        if digits.startswith(_BASED) or not _FRACTION.search(digits):
            return int(digits, 0)
        number = float(digits)
    except ValueError:
        raise LiteralError(position, f"{excerpt(digits)} is not a number; write 5, -1.5 or 2e3") from None
    if not math.isfinite(number):
        raise LiteralError(position, f"{excerpt(digits)} is too large for a float; send it as a string")
    return number


def _unescaped(position: int, quoted: str) -> str:
    """Return the value of a quoted string with escapes, as Python reads it."""
    try:
        return str(ast.literal_eval(_ESCAPE.sub(_modern, quoted)))
    except SyntaxError as error:
        reason = str(error.msg).rpartition(": ")[2]
        raise LiteralError(
            position, f"the string that starts here contains an invalid escape ({reason}); double its backslash"
        ) from None


def _modern(escape: re.Match[str]) -> str:
    """Rewrite escapes that newer versions of Python warn about: octal ones, and unknown ones, which mean themselves."""
    if escape["octal"]:
        return f"\\u{int(escape['octal'], 8):04x}"
    return f"\\{escape[0]}" if escape["unknown"] else escape[0]
