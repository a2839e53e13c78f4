"""Reads Python literals out of a text, letter by letter as Python does, and evaluates nothing: no name has a meaning.

Strings, numbers, True, False, None, lists, tuples (as lists) and dicts with text keys. What JSON or a database cannot
keep is refused. The place only moves on and no pattern steps back, so time is linear in the length of the text.
"""

import math
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

MAX_DEPTH: Final = 32  # brackets within brackets; recursion is bounded by it
MAX_NUMBER_CHARS: Final = 1_000  # Python itself cannot print whole numbers of more than 4,300 digits
MAX_NAME_CHARS: Final = 64
SHOWN_CHARS: Final = 20
NAME_RULE: Final = f"a name has 1 to {MAX_NAME_CHARS} ASCII letters, digits and underscores and begins with no digit"
LITERALS_ONLY: Final = "literals are read, but no names, operators, calls, attributes or comprehensions"
TOO_DEEP: Final = f"brackets stand in brackets more than {MAX_DEPTH} deep; nest them less"

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")  # ASCII: Python would fold look-alike letters into these
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

_BLANK: Final = re.compile(r"[ \t\f\r\n]++")
# What Python passes over between brackets: blanks, comments, and line ends behind a backslash.
_GAP: Final = re.compile("(?:[ \t\f\r\n]++|#[^\r\n\x00\ud800-\udfff]*+|\\\\(?:\r\n?|\n))++")
_QUOTE: Final = re.compile(r"""([A-Za-z]{0,2})(\"""|'''|"|')""")
_BODY: Final = {
    "'": re.compile(r"(?:[^'\\\r\n]++|\\(?:\r\n|.))*+'", re.DOTALL),
    '"': re.compile(r'(?:[^"\\\r\n]++|\\(?:\r\n|.))*+"', re.DOTALL),
    "'''": re.compile(r"(?:[^'\\]++|\\.|'(?!''))*+'''", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]++|\\.|"(?!""))*+"""', re.DOTALL),
}
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})|N\{([A-Za-z0-9 -]{1,100})\}|(.))", re.DOTALL
)
_ESCAPED: Final[dict[str, str]] = {
    "\n": "", "\\": "\\", "'": "'", '"': '"',
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_NUMBER: Final = re.compile(r"\.?[0-9](?:[0-9A-Za-z_.]|(?<=[eE])[+-])*+")
_FRACTION: Final = re.compile(r"[.eE]")
_BASED: Final = ("0x", "0X", "0o", "0O", "0b", "0B")
_WORD: Final = re.compile(r"\w++")
_WORDS: Final[dict[str, bool | None]] = {"True": True, "False": False, "None": None}
_JSON_WORDS: Final = {"true": "True", "false": "False", "null": "None"}


class Misread(ValueError):
    """What stands at a place of the text may not stand there; the message says what may."""

    def __init__(self, place: int | None, message: str) -> None:
        super().__init__(message)
        self.place = place


class Reader:
    """A place in a text. Each method reads one thing and moves behind it."""

    def __init__(self, text: str, place: int) -> None:
        self.text = text
        self.place = place

    def misread(self, expected: str, hint: str = "") -> Misread:
        """The error for what stands here."""
        seen = self.text[self.place : self.place + SHOWN_CHARS]
        found = ascii(seen) if seen else "the end of the text"
        return Misread(self.place, f"expected {expected} but found {found}{hint and '; '}{hint}")

    def skip_blank(self) -> None:
        if blank := _BLANK.match(self.text, self.place):
            self.place = blank.end()

    def skip(self) -> None:
        if gap := _GAP.match(self.text, self.place):
            self.place = gap.end()

    def expect(self, token: str, expected: str, hint: str = "") -> None:
        if not self.text.startswith(token, self.place):
            raise self.misread(expected, hint)
        self.place += len(token)

    def name(self, expected: str) -> str:
        found = NAME.match(self.text, self.place)
        if not found:
            raise self.misread(expected, NAME_RULE)
        if len(found[0]) > MAX_NAME_CHARS:
            raise Misread(self.place, f"a name is {len(found[0])} characters long; {NAME_RULE}")
        self.place = found.end()
        return found[0]

    def arguments(self) -> dict[str, Any]:
        """`name=literal, …` up to the closing bracket, which is read too."""
        given: dict[str, Any] = {}
        for _ in self._items(")"):
            begin = self.place
            name = self.name("an argument such as limit=5")
            self.skip()
            self.expect("=", "= and a literal", "arguments are given by name, as in limit=5")
            if name in given:
                raise Misread(begin, f"the argument {name} is given twice; give it once")
            given[name] = self.value()
        return given

    def value(self, depth: int = 0) -> Any:
        """The literal that stands here. `depth` is how many brackets are open around it."""
        self.skip()
        if number := _NUMBER.match(self.text, self.place):
            return self._number(number)
        if quote := _QUOTE.match(self.text, self.place):
            return self._string(quote)
        first = self.text[self.place : self.place + 1]
        if first in {"[", "(", "{"}:
            return self._bracketed(first, depth + 1)
        return self._signed(first) if first in {"+", "-"} else self._word()

    # --- Brackets ---

    def _take(self, token: str) -> bool:
        self.skip()
        taken = self.text.startswith(token, self.place)
        self.place += len(token) if taken else 0
        return taken

    def _items(self, closing: str) -> Iterator[None]:
        """Once for each item up to the closing bracket. A comma stands between two, and may follow the last."""
        while not self._take(closing):
            yield
            if not self._take(","):
                self.expect(closing, f", or {closing}", LITERALS_ONLY)
                return

    def _bracketed(self, opening: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Misread(self.place, TOO_DEEP)
        self.place += 1
        if opening == "{":
            return self._dict(depth)
        if opening == "[":
            return [self.value(depth) for _ in self._items("]")]
        return self._tuple(depth)

    def _tuple(self, depth: int) -> Any:
        """A list; or, as in Python, the value itself if it stands alone in its brackets, without a comma."""
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
            begin = self.place
            key = self.value(depth)
            self.skip()
            self.expect(":", ": and a value", "sets are not read, use a list")
            if not isinstance(key, str):
                raise Misread(begin, "the key of a dict is not a string; put it in quotes")
            if key in entries:
                raise Misread(begin, f"the key {shown(key)} stands twice in a dict; give it once")
            entries[key] = self.value(depth)
        return entries

    # --- Single values ---

    def _string(self, quote: re.Match[str] | None) -> str:
        """A string, or several in a row: Python makes one of them."""
        pieces = []
        while quote:
            pieces.append(self._piece(quote))
            self.skip()
            quote = _QUOTE.match(self.text, self.place)
        return "".join(pieces)

    def _piece(self, opening: re.Match[str]) -> str:
        prefix, quote = opening[1].lower(), opening[2]
        if prefix not in {"", "r", "u"}:
            raise Misread(self.place, f"{opening[0]}… is no plain string; f-strings, bytes and the like are not read")
        body = _BODY[quote].match(self.text, opening.end())
        if not body:
            line = " on its line" if len(quote) == 1 else ""
            raise Misread(
                self.place,
                f"the string that begins here is not closed{line}; one of several lines is put in three quotes",
            )
        text = body[0][: -len(quote)].replace("\r\n", "\n").replace("\r", "\n")
        if "\\" in text and prefix != "r":
            text = _ESCAPE.sub(partial(_character, self.place), text)
        if bad := UNSTORABLE.search(text):
            raise Misread(self.place, unstorable(bad))
        self.place = body.end()
        return text

    def _number(self, found: re.Match[str]) -> int | float:
        number = number_of(found[0], self.place)
        self.place = found.end()
        return number

    def _signed(self, sign: str) -> int | float:
        self.place += 1
        self.skip()
        found = _NUMBER.match(self.text, self.place)
        if not found:
            raise self.misread("a number behind the sign")
        return -self._number(found) if sign == "-" else self._number(found)

    def _word(self) -> bool | None:
        found = _WORD.match(self.text, self.place)
        word = found[0] if found else ""
        if word in _WORDS:
            self.place += len(word)
            return _WORDS[word]
        meant = _JSON_WORDS.get(word, "a string in quotes, a number, True, False, None, a list, a tuple or a dict")
        raise self.misread(meant, LITERALS_ONLY)


def shown(text: str) -> str:
    """Text of a stranger as an error may show it: short, in quotes, in ASCII."""
    return ascii(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")


def unstorable(found: re.Match[str]) -> str:
    return f"a text holds U+{ord(found[0]):04X}, which cannot be kept; leave it out, or write the whole character"


def number_of(digits: str, place: int | None) -> int | float:
    """The number that ASCII digits stand for, in the notation of Python, which includes that of JSON."""
    if len(digits) > MAX_NUMBER_CHARS:
        raise Misread(
            place, f"a number is {len(digits)} characters long; at most {MAX_NUMBER_CHARS} are read, send a string"
        )
    try:
        if digits.startswith(_BASED) or not _FRACTION.search(digits):
            return int(digits, 0)
        number = float(digits)
    except ValueError:
        raise Misread(place, f"{shown(digits)} is no number; write it as in 5, -1.5 or 2e3") from None
    if not math.isfinite(number):
        raise Misread(place, f"{shown(digits)} is too large for a number with a fraction; send it as a string")
    return number


def _character(place: int, escape: re.Match[str]) -> str:
    """What an escape stands for. One that Python does not know stands for itself, backslash and all."""
    octal, code, name, other = escape.groups()
    if octal or code:
        number = int(octal, 8) if octal else int(code[1:], 16)
        if number <= sys.maxunicode:
            return chr(number)
    elif name:
        try:
            found = unicodedata.lookup(name)
        except KeyError:
            found = ""
        if len(found) == 1:  # several: a named sequence, which Python does not read in a string either
            return found
    elif other not in {"x", "u", "U", "N"}:
        return _ESCAPED.get(other, f"\\{other}")
    raise Misread(
        place, f"the string that begins here holds the broken escape {shown(escape[0])}; double its backslash"
    )
