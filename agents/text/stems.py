"""English words without their endings, as the tokenizer `porter` of FTS5 cuts them (M. F. Porter, 1980)."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SHORTEST: Final = 3
LONGEST: Final = 64
_REPEATED: Final = re.compile(r"(.)\1+")
_SECOND: Final = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "logi": "log", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
}  # fmt: skip
_THIRD: Final = {
    "icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
}  # fmt: skip
_FOURTH: Final = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return the stem of a word in small letters."""
    if not SHORTEST <= len(word) <= LONGEST:
        return word
    word = _without_past(_without_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = f"{word[:-1]}i"
    for endings in (_SECOND, _THIRD):
        ending = _ending(word, endings)
        if ending and _measure(word[: -len(ending)]) > 0:
            word = word[: -len(ending)] + endings[ending]
    ending = _ending(word, _FOURTH)
    left = word.removesuffix(ending)
    if ending and _measure(left) > 1 and (ending != "ion" or left.endswith(("s", "t"))):
        word = left
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _is_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _without_plural(word: str) -> str:
    if _ending(word, ("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_past(word: str) -> str:
    if _ending(word, ("eed",)):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = _ending(word, ("ed", "ing"))
    left = word.removesuffix(ending)
    if not ending or not _has_vowel(left):
        return word
    if left.endswith(("at", "bl", "iz")):
        return f"{left}e"
    if left[-1:] == left[-2:-1] and _shape(left)[-1] == "c" and left[-1] not in "lsz":
        return left[:-1]
    return f"{left}e" if _measure(left) == 1 and _is_short(left) else left


def _ending(word: str, endings: Iterable[str]) -> str:
    """Return the longest of these that the word ends with and is longer than."""
    return max((one for one in endings if word.endswith(one) and len(word) > len(one)), key=len, default="")


def _shape(word: str) -> str:
    """Return the word as consonants (c) and vowels (v)."""
    shape = ""
    for letter in word:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape.endswith("c")) else "c"
    return shape


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _measure(word: str) -> int:
    """Return how many times consonants follow vowels."""
    return _REPEATED.sub(r"\1", _shape(word)).count("vc")


def _is_short(word: str) -> bool:
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"
