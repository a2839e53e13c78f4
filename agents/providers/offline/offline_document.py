"""One document of the offline analyst, split once and indexed, so that looking up a word does not read it again."""

from bisect import bisect_left, bisect_right
from functools import cached_property

from agents.providers.offline.offline_words import STOP, meaning
from agents.providers.offline.text import Sentence, Word, split, stems_of, words_of

NEIGHBOURS = 3
FEW_WORDS = 12


class Document:
    """A text, split once and indexed: which sentence holds which word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sentences = split(text)

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def index(self) -> dict[str, list[int]]:
        """Meaning of a word → the sentences that hold it, in order; headings are found through what they head."""
        found: dict[str, list[int]] = {}
        starts = [sentence.start for sentence in self.sentences]
        for word in self.words:
            key = meaning(word.text)
            if not key:
                continue
            place = bisect_right(starts, word.start) - 1
            held = found.setdefault(key, [])
            if not held or held[-1] != place:
                held.append(place)
        return found

    @cached_property
    def context_index(self) -> dict[str, list[int]]:
        """The same for the words of a sentence's heading and lead-in."""
        found: dict[str, list[int]] = {}
        for place, sentence in enumerate(self.sentences):
            for key in self.context(sentence):
                found.setdefault(key, []).append(place)
        return found

    def context(self, sentence: Sentence) -> frozenset[str]:
        key = (sentence.heading, sentence.lead)
        if key not in self._contexts:
            self._contexts[key] = stems_of(" ".join(key))
        return self._contexts[key]

    @cached_property
    def _contexts(self) -> dict[tuple[str, str], frozenset[str]]:
        return {}

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        """All words with one space around each, and where each begins in that text."""
        places, place = [], 1
        for word in self.words:
            places.append(place)
            place += len(word.text) + 1
        return f" {' '.join(word.text for word in self.words)} ", places

    def phrase(self, phrase: str) -> tuple[int, int] | None:
        """Where the phrase first stands, whatever its case, quotes, hyphens and line breaks."""
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
        return self.sentences[bisect_right([sentence.start for sentence in self.sentences], place) - 1]

    def shown(self, sentence: Sentence) -> str:
        return self.text[sentence.start : sentence.end]

    def around(self, place: int) -> list[int]:
        """The sentences near the given one, in its block, without itself."""
        block = self.sentences[place].block
        near = range(max(0, place - NEIGHBOURS), min(len(self.sentences), place + NEIGHBOURS + 1))
        return [other for other in near if other != place and self.sentences[other].block == block]

    @cached_property
    def is_english(self) -> bool:
        """False for a text of some length in which the small words of English are rare."""
        return looks_english([word.text for word in self.words[:5_000]])


def looks_english(words: list[str]) -> bool:
    letters = [word for word in words if not word[0].isdigit()]
    held = sum(word in STOP for word in letters)
    foreign = sum(not word.isascii() for word in letters)
    if len(letters) < FEW_WORDS:
        return foreign * 2 <= len(letters)
    return held * 8 >= len(letters) and foreign * 4 <= len(letters)
