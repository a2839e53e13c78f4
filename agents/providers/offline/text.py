"""Words, sentences and headings as the offline analyst reads them, each with its exact place in the text.

Normalisation works word by word, so every normalised word keeps the offsets of the characters that it came from.
"""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from agents.providers.offline.offline_words import STOP, meaning

LONGEST_SENTENCE = 1_500
HEADING_WORDS = 8
HEADING_CHARS = 300
LEAD_WORDS = 4
SHORT_LINE = 45

_LETTERS = r"[^\W\d_]"
_INVISIBLE = "\u00ad\u200b-\u200d\u2060"
_MARKS = _INVISIBLE + "\u0300-\u036f"
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"  # scripts without spaces: each character is a word
    r"|\d+(?:[.,]\d+)*"
    rf"|(?:\b[Nn][Oo][Nn][-\u2010\u2011][ \t]*(?:\r?\n[ \t]*)?)?{_LETTERS}+"
    rf"(?:(?:[{_MARKS}]+|-[ \t]*\r?\n[ \t]*(?=[a-z])){_LETTERS}*)*(?:['\u2019]{_LETTERS}+)?"
)
_DROPPED = re.compile(rf"[{_INVISIBLE}]|[-\u2010\u2011]\s*")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_ITEM = re.compile(
    r"\s*(?:[-*+\u2022\u2023\u25e6\u2013\u2014|>]+\s|\(?\d{1,3}(?:\.\d{1,3})*[.)]\s|\d{1,3}(?:\.\d{1,3})+\s|\(?[a-zA-Z]{1,4}\)\s|#{1,6}\s"
    r"|(?:Article|Section|Clause|ARTICLE|SECTION|CLAUSE)\s+[\dIVX]+\b)"
)
_LABELLED = re.compile(r"\s*[^\s.:;!?][^.:;!?\n]{0,40}[:?]\s")
_ANSWER = re.compile(
    r"\s*(?:(?:A|Ans|Answer|Response|Reply)\s*[:.]|(?:Yes|No|None|Not|Partially|N/A)\b)", re.IGNORECASE
)
# A run of marks is looked at from its first one only: from each of them, a line of dots would take time by its square.
_STOP_MARK = re.compile(r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)|[\u3002\uff01\uff1f]++")
_SHORTENED = """
    e.g i.e eg ie etc inc ltd co corp mr mrs ms dr prof art sec cl para paras vs approx st fig al dept
    incl jr sr plc llc u.s u.k p pp cf ca resp max min ref tel ext v viz bros ave jan feb mar apr jun jul aug
    sep sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_LAST_WORD = re.compile(r"[\w.]+$")
_FIGURE_NEXT = re.compile(r"\s*\d")
_GOES_ON = re.compile(r"\s+[a-z]")
_LINE_START = re.compile(r"(?:^|[\r\n])[ \t]*$")
_VERBAL = STOP - {"and", "of", "for", "the", "to", "on", "by", "in", "use", "a", "an"}  # what no heading holds
_CLOSING = ".!?;,:\u3002"


class Sentence(NamedTuple):
    """A sentence with its place, the words of its heading and lead-in, and the block (paragraph) it stands in."""

    start: int
    end: int
    block: int
    heading: str = ""
    lead: str = ""
    is_heading: bool = False


class Word(NamedTuple):
    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    return [Word(normal(found[0]), found.start(), found.end()) for found in WORD.finditer(text)]


@lru_cache(maxsize=65_536)
def normal(word: str) -> str:
    """Small letters, without possessives, ligatures, soft hyphens, invisible characters and line-break hyphens."""
    word = word.casefold()
    if word.isascii() and word.isalnum():
        return word
    word = unicodedata.normalize("NFKC", _DROPPED.sub("", word)).replace("\u2019", "'")
    return word.removesuffix("'s") or word


def stems_of(text: str) -> frozenset[str]:
    return frozenset(found for match in WORD.finditer(text) if (found := meaning(normal(match[0]))))


def split(text: str) -> list[Sentence]:
    """The sentences of a text, in order, without the blank space around them."""
    found: list[Sentence] = []
    heading = lead = ""
    for number, (start, end) in enumerate(_blocks(text)):
        block = text[start:end]
        item = _ITEM.match(block)
        spans = list(_sentences(text, start, end))
        if _is_heading(block, item):
            heading, lead = block[:HEADING_CHARS], ""
            found += [Sentence(*span, number, is_heading=True) for span in spans]
            continue
        lead = lead if item else ""
        own = heading
        for span, after in zip(spans, [*spans[1:], None], strict=True):
            run_in = after is not None and _is_run_in(text, span, after)
            own = text[slice(*span)] if run_in else own
            found.append(Sentence(*span, number, own, lead, is_heading=run_in))
        if block.endswith(":"):
            lead = text[slice(*spans[-1])]
    if all(sentence.is_heading for sentence in found):  # short lines that head nothing are what the text has to say
        found = [sentence._replace(is_heading=False) for sentence in found]
    return _with_answers(text, found)


def _is_run_in(text: str, span: tuple[int, int], after: tuple[int, int]) -> bool:
    """True for a heading at the start of a line that goes on: "7. Termination. Either party …"."""
    start = text[slice(*span)]
    if not 0 < _word_count(start) <= LEAD_WORDS or start[-1] != "." or "\n" in text[span[1] : after[0]]:
        return False
    begins_line = span[0] == 0 or (
        text[span[0] - 1] in " \t\r\n" and _LINE_START.search(text, max(0, span[0] - 9), span[0])
    )
    return bool(begins_line) and not any(word.text in _VERBAL for word in words_of(start))


def _with_answers(text: str, sentences: list[Sentence]) -> list[Sentence]:
    """A question and the answer right after it are one statement."""
    merged: list[Sentence] = []
    for sentence in sentences:
        last = merged[-1] if merged else None
        asked = last is not None and text[last.end - 1] == "?" and text.count("\n", last.end, sentence.start) <= 2  # noqa: PLR2004
        if last and asked and _ANSWER.match(text, sentence.start):
            merged[-1] = Sentence(last.start, sentence.end, last.block, last.heading, last.lead)
        else:
            merged.append(sentence)
    return merged


def _blocks(text: str) -> list[tuple[int, int]]:
    """Paragraphs, list items, numbered clauses, headings and labelled lines; lines of wrapped text stay together."""
    found: list[tuple[int, int]] = []
    open_at, last = -1, ""
    end = 0
    for line in _LINE.finditer(text):
        shown = line[0].strip()
        if not shown:
            if open_at >= 0:
                found.append((open_at, end))
            open_at = -1
            continue
        begin = line.start() + len(line[0]) - len(line[0].lstrip())
        if open_at >= 0 and _starts_anew(last, line[0]):
            found.append((open_at, end))
            open_at = -1
        open_at = begin if open_at < 0 else open_at
        end, last = begin + len(shown), shown
    return found  # the last line is always the empty one at the very end, so nothing is left open


def _starts_anew(last: str, line: str) -> bool:
    if last[-1] in ",(-" or line.lstrip()[0].islower() or last.rpartition(" ")[2] in STOP:
        return False
    short = len(last) < SHORT_LINE and not last.endswith(tuple(_CLOSING))
    return bool(_ITEM.match(line) or _LABELLED.match(line) or last.endswith((":", "?")) or last.startswith("|")) or (
        short or (bool(_LABELLED.match(last + " ")) and len(last) < 2 * SHORT_LINE)
    )


def _is_heading(block: str, item: re.Match[str] | None) -> bool:
    if block[0] in "#|":
        return block[0] == "#"
    if _word_count(block) > HEADING_WORDS or block[-1] in _CLOSING or "\n" in block or ":" in block:
        return False
    bare = (block[item.end() :] if item else block).lstrip(" \t.:*_-\u2013\u2014")
    verbal = any(char.isdigit() for char in bare) or any(word.text in _VERBAL for word in words_of(bare))
    return bool(bare) and not verbal and bare[0].isupper()


def _word_count(text: str) -> int:
    return sum(1 for word in text.split(maxsplit=2 * HEADING_WORDS) if any(map(str.isalpha, word)))


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans between full stops that end a sentence; a very long one is cut at blank space."""
    found: list[tuple[int, int]] = []
    begin = start
    stops = () if text[start] == "|" else _STOP_MARK.finditer(text, start, end)  # a row of a table is one statement
    for mark in stops:
        if _ends_sentence(text, begin, mark):
            found.append((begin, mark.end()))
            begin = mark.end()
    found.append((begin, end))
    pieces = (piece for span in found for piece in _cut(text, *span))
    return [(first, last) for first, last in (_stripped(text, *piece) for piece in pieces) if first < last]


def _ends_sentence(text: str, begin: int, mark: re.Match[str]) -> bool:
    if mark[0][0] != ".":
        return True
    before = _LAST_WORD.search(text, max(begin, mark.start() - 24), mark.start())
    word = before[0].lower() if before else ""
    if (len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS or _GOES_ON.match(text, mark.end()):
        return False
    if word in {"no", "nos"} and _FIGURE_NEXT.match(text, mark.end()):
        return False
    return not (before and before.start() <= begin + 1 and word.replace(".", "").isdigit())


def _cut(text: str, start: int, end: int) -> list[tuple[int, int]]:
    pieces = []
    while end - start > LONGEST_SENTENCE:
        space = max(text.rfind(char, start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE) for char in " \n\t")
        middle = space if space > 0 else start + LONGEST_SENTENCE
        pieces.append((start, middle))
        start = middle
    return [*pieces, (start, end)]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))
