"""Sentences and headings of a document, each with its exact place, and an index of the words they hold.

Every pattern passes over a run of marks once, so that reading takes time in proportion to the text.
"""

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

from agents.providers.offline.words import STOP, Word, looks_english, meaning, meanings_of, words_of

LONGEST_SENTENCE = 1_500
HEADING_CHARS = 300
_HEADING_WORDS = 8
_RUN_IN_WORDS = 4
_SHORT_LINE = 45
_CONTEXT_SHARE = 0.8

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_ITEM = re.compile(
    r"\s*(?:[-*+\u2022\u2023\u25e6\u2013\u2014|>]+\s|\(?\d{1,3}(?:\.\d{1,3})*[.)]\s|\d{1,3}(?:\.\d{1,3})+\s"
    r"|\(?[a-zA-Z]{1,4}\)\s|#{1,6}\s|(?:Article|Section|Clause|ARTICLE|SECTION|CLAUSE)\s+[\dIVX]+\b)"
)
_ANSWER = re.compile(
    r"\s*(?:(?:A|Ans|Answer|Response|Reply)\s*[:.]|(?:Yes|No|None|Not|Partially|N/A)\b)", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)|[\u3002\uff01\uff1f]++")
_SHORTENED = """
    e.g i.e eg ie etc inc ltd co corp mr mrs ms dr prof art sec cl para paras vs approx st fig al dept
    incl jr sr plc llc u.s u.k p pp cf ca resp max min ref tel ext v viz bros ave jan feb mar apr jun jul aug
    sep sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_LAST_WORD = re.compile(r"[\w.]+$")
_GOES_ON = re.compile(r"\s+[a-z]")
_LINE_START = re.compile(r"(?:^|[\r\n])[ \t]*$")
_NOT_IN_HEADINGS = STOP - {"and", "of", "for", "the", "to", "on", "by", "in", "use", "a", "an"}
_CLOSING = ".!?;,:\u3002"


class Sentence(NamedTuple):
    """A sentence with its place, and the heading and lead-in (`The Supplier shall:`) that it stands under."""

    start: int
    end: int
    heading: str = ""
    lead: str = ""
    is_heading: bool = False


def split_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, in order, without the blank space around them."""
    found: list[Sentence] = []
    heading = lead = ""
    for start, end in _blocks(text):
        block = text[start:end]
        item = _ITEM.match(block)
        spans = _spans(text, start, end)
        if _is_heading(block, item):
            heading, lead = block[:HEADING_CHARS], ""
            found += [Sentence(*span, is_heading=True) for span in spans]
            continue
        lead = lead if item else ""
        own = heading
        for number, span in enumerate(spans):
            run_in = number + 1 < len(spans) and _is_run_in_heading(text, span, spans[number + 1])
            own = text[slice(*span)] if run_in else own
            found.append(Sentence(*span, own, lead, is_heading=run_in))
        if block.endswith(":"):
            lead = text[slice(*spans[-1])]
    if all(sentence.is_heading for sentence in found):  # short lines without anything below them are the text itself
        found = [sentence._replace(is_heading=False) for sentence in found]
    return _join_answers(text, found)


def _blocks(text: str) -> list[tuple[int, int]]:
    """Paragraphs, list items, headings and short lines; lines of wrapped text stay together."""
    found: list[tuple[int, int]] = []
    last = ""  # the line before, empty after a blank one
    for line in _LINE.finditer(text):
        content = line[0].strip()
        if content:
            start = line.start() + len(line[0]) - len(line[0].lstrip())
            goes_on = bool(last) and not _starts_block(last, line[0])
            begin = found.pop()[0] if goes_on else start
            found.append((begin, start + len(content)))
        last = content
    return found


def _starts_block(last: str, line: str) -> bool:
    if last[-1] in ",(-" or line.lstrip()[0].islower() or last.rpartition(" ")[2] in STOP:
        return False
    if _ITEM.match(line) or last.endswith((":", "?")) or last.startswith("|"):
        return True
    return len(last) < _SHORT_LINE and last[-1] not in _CLOSING


def _is_heading(block: str, item: re.Match[str] | None) -> bool:
    if block[0] in "#|":
        return block[0] == "#"
    if _word_count(block) > _HEADING_WORDS or block[-1] in _CLOSING or "\n" in block or ":" in block:
        return False
    bare = (block[item.end() :] if item else block).lstrip(" \t.:*_-\u2013\u2014")
    return bare[:1].isupper() and not any(char.isdigit() for char in bare) and not _is_statement(bare)


def _is_run_in_heading(text: str, span: tuple[int, int], after: tuple[int, int]) -> bool:
    """Return True for a heading at the start of a line that goes on: "7. Termination. Either party …"."""
    start = text[slice(*span)]
    if not 0 < _word_count(start) <= _RUN_IN_WORDS or start[-1] != "." or "\n" in text[span[1] : after[0]]:
        return False
    begins_line = _LINE_START.search(text, max(0, span[0] - 9), span[0]) is not None
    return begins_line and not _is_statement(start)


def _is_statement(text: str) -> bool:
    return any(word.text in _NOT_IN_HEADINGS for word in words_of(text))


def _word_count(text: str) -> int:
    return sum(1 for word in text.split(maxsplit=2 * _HEADING_WORDS) if any(map(str.isalpha, word)))


def _spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans between the marks that end a sentence. A row of a table is one sentence."""
    found: list[tuple[int, int]] = []
    begin = start
    marks = () if text[start] == "|" else _SENTENCE_END.finditer(text, start, end)
    for mark in marks:
        if _ends_sentence(text, begin, mark):
            found += _pieces(text, begin, mark.end())
            begin = mark.end()
    return [*found, *_pieces(text, begin, end)]


def _ends_sentence(text: str, begin: int, mark: re.Match[str]) -> bool:
    if mark[0][0] != ".":
        return True
    before = _LAST_WORD.search(text, max(begin, mark.start() - 24), mark.start())
    word = before[0].lower() if before else ""
    if (len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS or _GOES_ON.match(text, mark.end()):
        return False
    return not (before and before.start() <= begin + 1 and word.replace(".", "").isdigit())


def _pieces(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The span without the blank space around it; a very long one is cut at blank space."""
    found = []
    while start < end:
        cut = end
        if end - start > LONGEST_SENTENCE:
            cut = max(text.rfind(char, start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE) for char in " \n\t")
            cut = cut if cut > 0 else start + LONGEST_SENTENCE
        piece = text[start:cut]
        if piece.strip():
            found.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
        start = cut
    return found


def _join_answers(text: str, sentences: list[Sentence]) -> list[Sentence]:
    """Read a question and the answer right after it as one statement."""
    joined: list[Sentence] = []
    for sentence in sentences:
        last = joined[-1] if joined else None
        if (
            last
            and text[last.end - 1] == "?"
            and text.count("\n", last.end, sentence.start) <= 2  # noqa: PLR2004
            and _ANSWER.match(text, sentence.start)
        ):
            joined[-1] = Sentence(last.start, sentence.end, last.heading, last.lead)
        else:
            joined.append(sentence)
    return joined


class Document:
    """A text, split once and indexed: which sentence holds which word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sentences = split_sentences(text)
        self._starts = [sentence.start for sentence in self.sentences]

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def is_english(self) -> bool:
        return looks_english(word.text for word in self.words[:5_000])

    @cached_property
    def index(self) -> dict[str, dict[int, float]]:
        """Meaning of a word → the sentences that hold it, with the share that it counts for there.

        Words of a sentence's heading and lead-in count for less than its own.
        """
        found: dict[str, dict[int, float]] = {}
        for word in self.words:
            if key := meaning(word.text):
                found.setdefault(key, {})[bisect_right(self._starts, word.start) - 1] = 1.0
        contexts: dict[tuple[str, str], frozenset[str]] = {}
        for number, sentence in enumerate(self.sentences):
            context = (sentence.heading, sentence.lead)
            if context not in contexts:
                contexts[context] = meanings_of(" ".join(context))
            for key in contexts[context]:
                found.setdefault(key, {}).setdefault(number, _CONTEXT_SHARE)
        return found

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        """All words with one space around each, and where each begins in that text."""
        places, place = [], 1
        for word in self.words:
            places.append(place)
            place += len(word.text) + 1
        return f" {' '.join(word.text for word in self.words)} ", places

    def phrase(self, phrase: str) -> tuple[int, int] | None:
        """Return the first place of a phrase, whatever its case, quotes, hyphens and line breaks."""
        wanted = " ".join(word.text for word in words_of(phrase))
        if not wanted:
            place = self.text.find(phrase.strip())
            return (place, place + len(phrase.strip())) if phrase.strip() and place >= 0 else None
        joined, places = self._joined
        place = joined.find(f" {wanted} ")
        if place < 0:
            return None
        first = bisect_left(places, place + 1)
        return self.words[first].start, self.words[first + wanted.count(" ")].end

    def sentence_at(self, place: int) -> Sentence:
        return self.sentences[bisect_right(self._starts, place) - 1]

    def sentence_text(self, number: int) -> str:
        """The sentence with its lead-in, which belongs to what it says."""
        sentence = self.sentences[number]
        text = self.text[sentence.start : sentence.end]
        return f"{sentence.lead} {text}" if sentence.lead else text
