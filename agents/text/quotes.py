"""Verification of quotes: where a quote stands in a document, as a model writes it. Pure: text in, offsets out.

A quote is looked for character by character. If it does not stand there so, it is compared by its skeleton: letters,
digits and marks without the gaps between them, and then gap by gap. So line breaks, page breaks, soft hyphens, words
hyphenated at the end of a line, and the shapes of quotation marks, dashes and ligatures make no difference; letters,
figures, case and the order of words do. Time is linear in the text; nothing is compared by likeness.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from audit.redaction import contains_marker

SHORTEST_QUOTE: Final = 4
LONGEST_QUOTE: Final = 10_000  # characters of the document that a quote may stand for
# A quote with an ellipsis: each part is this long at least, and this much at most is left out between two of them.
SHORTEST_PART: Final = 10
LEFT_OUT_CHARS: Final = 300
MOST_PARTS: Final = 4
MOST_PLACES: Final = 25  # in each direction from the hint; places with the same letters and other gaps

_HYPHENS: Final = "-\u2010"
_DASHES: Final = _HYPHENS + "\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_SOFT_HYPHEN: Final = "\u00ad"
_INVISIBLE: Final = (
    _SOFT_HYPHEN + "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_BREAKS: Final = frozenset("\n\r\f\v\x85\u2028\u2029")
_MARKS: Final = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"  # accents that follow their letter
_GUILLEMETS: Final = frozenset("\u00ab\u00bb\u2039\u203a")  # in French with a space inside
_SAME: Final = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u02bc\u00b4`\uff07", "'"),
    "\u2026": "...",
    **{chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)},  # ligatures
}
_QUOTATION: Final = frozenset("\"'") | {mark for mark, plain in _SAME.items() if plain in {'"', "'"}}
_IN_GAPS: Final = rf"\s{re.escape(_DASHES + _INVISIBLE)}"
_PART: Final = re.compile(
    rf"(?P<gap>[{_IN_GAPS}]+)"
    rf"|(?P<marked>[^{_IN_GAPS}{_MARKS}][{_MARKS}]+)"
    rf"|(?P<plain>[^{_IN_GAPS}{_MARKS}{re.escape(''.join(_SAME))}]+(?![{_MARKS}]))"
    r"|(?P<odd>.)",
    re.DOTALL,
)
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")  # scripts that are written without spaces
_SPACES: Final = re.compile(r"\s+")
_DASH_RUN: Final = re.compile(f"[{re.escape(_DASHES)}]+")
_NO_INVISIBLE: Final = str.maketrans("", "", _INVISIBLE)
_ELLIPSIS: Final = re.compile(r"[\[(]?(?:\.{3,4}|\u2026|\. \. \.)[\])]?")
_LEADS: Final = frozenset({"", "-", "- "})
_TRAILS: Final = frozenset({"", "-", " -"})

Span = tuple[int, int]


def is_verifiable_quote(quote: str) -> bool:
    """Return False for a quote that is too short to prove anything or that holds a masked secret."""
    return len(quote.strip()) >= SHORTEST_QUOTE and not contains_marker(quote)


def find_quote(quote: str, source: str, hint_start: int = 0) -> Span | None:
    """Return where in the source the quote stands; None if it does not."""
    return QuotableText(source).find(quote, hint_start)


class QuotableText:
    """A text in which quotes are looked for. What they are compared with is made once, when it is needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _skeleton(self) -> "_Skeleton":
        return _skeleton_of(self.text)

    def find(self, quote: str, hint_start: int = 0) -> Span | None:
        """Return the slice of the text that the quote stands for: of several places, the nearest to the hint.

        A model may set marks around a quote and leave out a part of it with an ellipsis. The slice of such a quote has
        no marks around it, and includes what was left out.
        """
        if not is_verifiable_quote(quote):
            return None
        hint = min(max(hint_start, 0), len(self.text))
        found = self._exact(quote, hint)
        for wanted in (quote, _without_marks(quote)):
            found = found or self._alike([wanted], hint) or self._alike(_ELLIPSIS.split(wanted), hint)
        return found if found and found[1] - found[0] <= LONGEST_QUOTE else None

    @cached_property
    def _finder(self) -> "_Finder":
        return _Finder(self.text)

    def _exact(self, quote: str, hint: int) -> Span | None:
        found = [
            next((place for place in places if not _cuts_number(self.text, place, place + len(quote))), None)
            for places in (self._finder.forward(quote, hint), self._finder.backward(quote, hint))
        ]
        start = min((place for place in found if place is not None), key=lambda place: abs(place - hint), default=None)
        return None if start is None else (start, start + len(quote))

    def _alike(self, parts: list[str], hint: int) -> Span | None:
        """Return the slice from the first part to the last, if all stand there in order and near each other."""
        wanted = [part for part in map(_skeleton_of, parts) if part.letters]
        least = SHORTEST_QUOTE if len(wanted) == 1 else SHORTEST_PART
        if not 1 <= len(wanted) <= MOST_PARTS or any(len(part.letters) < least for part in wanted):
            return None
        first, *others = wanted
        found = [
            span
            for places in self._skeleton.places(first.letters, hint)
            if (span := next((whole for place in places if (whole := self._whole(place, first, others))), None))
        ]
        return min(found, key=lambda span: abs(span[0] - hint), default=None)

    def _whole(self, place: int, first: "_Skeleton", others: "list[_Skeleton]") -> Span | None:
        span = self._skeleton.span(place, first)
        for part in others:
            if span is None:
                return None
            following = self._skeleton.following(span[1], part)
            span = (span[0], following) if following is not None else None
        return span if span and not _cuts_number(self.text, *span) else None


def _cuts_number(text: str, start: int, end: int) -> bool:
    """Return whether a slice begins or ends inside a number: $1,000 is no quote of $1,000,000."""
    before, after = text[max(start - 2, 0) : start], text[end : end + 2]
    begins = text[start].isdigit() and (before[-1:].isdigit() or _is_inner(before[-1:], before[:-1]))
    return begins or (text[end - 1].isdigit() and (after[:1].isdigit() or _is_inner(after[:1], after[1:])))


def _is_inner(mark: str, beyond: str) -> bool:
    return mark in {".", ","} and beyond.isdigit()


class _Finder:
    """Finds places of a text inside another, from a place on, in linear time.

    `str.rfind` takes the product of both lengths at worst, so what stands before a place is found in the text reversed.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _reversed(self) -> str:
        return self._text[::-1]

    def forward(self, wanted: str, start: int, end: int | None = None) -> Iterator[int]:
        for _ in range(MOST_PLACES):
            place = self._text.find(wanted, start, end)
            if place < 0:
                return
            yield place
            start = place + 1

    def backward(self, wanted: str, start: int) -> Iterator[int]:
        """Return places before `start`, the nearest first."""
        offset, backwards = len(self._text) - len(wanted), wanted[::-1]
        place = max(offset - start, -1)
        for _ in range(MOST_PLACES):
            place = self._reversed.find(backwards, place + 1)
            if place < 0:
                return
            yield offset - place


class _Gap(NamedTuple):
    """What stands between two characters of a skeleton: its form, and the forms in which it may be quoted."""

    form: str
    allowed: frozenset[str]


_NO_GAP: Final = _Gap("", frozenset({""}))
_ONE_SPACE: Final = _Gap(" ", frozenset({" "}))


@dataclass(frozen=True)
class _Skeleton:
    """The letters of a text, where each stands in it, and the gaps before them, by their place among the letters.

    `wide` holds the ends of letters that are not one character of the text.
    """

    text: str
    letters: str
    starts: "array[int]"
    wide: dict[int, int]
    gap_places: list[int]
    gaps: dict[int, _Gap]

    def places(self, letters: str, hint: int) -> tuple[Iterator[int], Iterator[int]]:
        """Return where these letters stand, from the hint on and, in the other direction, before it."""
        at = bisect_left(self.starts, hint)
        return self._finder.forward(letters, at), self._finder.backward(letters, at)

    @cached_property
    def _finder(self) -> _Finder:
        return _Finder(self.letters)

    def following(self, end: int, part: "_Skeleton") -> int | None:
        """Return where a part ends that begins not far behind `end`."""
        start = bisect_left(self.starts, end)
        limit = bisect_right(self.starts, end + LEFT_OUT_CHARS) - 1 + len(part.letters)
        spans = (self.span(place, part) for place in self._finder.forward(part.letters, start, limit))
        return next((span[1] for span in spans if span), None)

    def span(self, place: int, quote: "_Skeleton") -> Span | None:
        """Return the slice of the text at a place where the letters of the quote stand, if the gaps agree, too."""
        end = place + len(quote.letters)
        if not self._is_whole(place) or not self._is_whole(end) or not self._gaps_agree(place, end, quote):
            return None
        lead = quote.gap(0).form.lstrip()
        trail = quote.gap(len(quote.letters)).form.rstrip()
        if lead not in _LEADS or trail not in _TRAILS:
            return None
        if not self.gap(place).form.endswith(lead) or not self.gap(end).form.startswith(trail):
            return None
        start, stop = self.starts[place], self._end(end - 1)
        if lead:
            before = self.text[self._end(place - 1) if place else 0 : start]
            start -= len(before) - len(before.rstrip().rstrip(_DASHES))
        if trail:
            after = self.text[stop : self.starts[end] if end < len(self.starts) else len(self.text)]
            stop += len(after) - len(after.lstrip().lstrip(_DASHES))
        return start, stop

    def gap(self, place: int) -> _Gap:
        return self.gaps.get(place, _NO_GAP)

    def _end(self, place: int) -> int:
        return self.wide.get(place, self.starts[place] + 1)

    def _is_whole(self, place: int) -> bool:
        """Return False inside a character that is several letters here, such as a ligature."""
        return not 0 < place < len(self.starts) or self.starts[place] != self.starts[place - 1]

    def _gaps_agree(self, place: int, end: int, quote: "_Skeleton") -> bool:
        inside = self.gap_places[bisect_right(self.gap_places, place) : bisect_left(self.gap_places, end)]
        if not all(quote.gap(at - place).form in self.gaps[at].allowed for at in inside):
            return False
        quoted = quote.gap_places[bisect_right(quote.gap_places, 0) : bisect_left(quote.gap_places, end - place)]
        return all(place + at in self.gaps for at in quoted)


def _skeleton_of(text: str) -> _Skeleton:
    letters: list[str] = []
    starts = array("L")
    wide: dict[int, int] = {}
    gaps: dict[int, _Gap] = {}
    for part in _PART.finditer(text):
        start, end = part.span()
        if part.lastgroup == "gap":
            gap = _gap(part[0], text[start - 1 : start], text[end : end + 1])
            if gap is not _NO_GAP:
                gaps[len(starts)] = gap
        elif part.lastgroup == "plain":
            letters.append(part[0])
            starts.extend(range(start, end))
        else:
            plain = _SAME.get(part[0]) or unicodedata.normalize("NFC", part[0])
            letters.append(plain)
            wide.update(dict.fromkeys(range(len(starts), len(starts) + len(plain)), end))
            starts.extend([start] * len(plain))
    return _Skeleton(text, "".join(letters), starts, wide, list(gaps), gaps)


def _gap(raw: str, before: str, after: str) -> _Gap:
    """Return what stands between two letters: a break of a line, a space that may be left out, or just what it is."""
    if raw in {" ", "\n"} and before.isascii() and after.isascii():
        return _ONE_SPACE
    form = _DASH_RUN.sub("-", _SPACES.sub(" ", raw.translate(_NO_INVISIBLE)))
    if form == " " and _may_be_unspaced(before, after):
        return _Gap(form, frozenset({form, ""}))
    broken = raw.lstrip(_DASHES + _INVISIBLE)
    head = raw[: len(raw) - len(broken)]
    if not set(_DASHES + _SOFT_HYPHEN).isdisjoint(head) and _is_line_end(broken):
        can_be_joined = before.isalpha() and after.isalpha() and not head.strip(_HYPHENS + _INVISIBLE)
        return _Gap(form, frozenset({form, "-", "- ", ""} if can_be_joined else {form, "-"}))
    return _Gap(form, frozenset({form})) if form else _NO_GAP


def _is_line_end(raw: str) -> bool:
    return raw.translate(_NO_INVISIBLE).isspace() and not _BREAKS.isdisjoint(raw)


def _may_be_unspaced(before: str, after: str) -> bool:
    """Return True beside a guillemet, and between characters of scripts that are written without spaces."""
    if _UNSPACED.match(before) and _UNSPACED.match(after):
        return True
    return not _GUILLEMETS.isdisjoint(before + after)


def _without_marks(quote: str) -> str:
    """Return the quote without the quotation marks around it."""
    inner = quote.strip()
    return inner[1:-1] if inner and inner[0] in _QUOTATION and inner[-1] in _QUOTATION else inner
