"""Judges key names: does a name such as `dbPassword`, `X-Api-Key` or `token_budget` denote a credential?

Owns the splitting of names and what their words add up to. Must not look at values.
"""

import re
from enum import IntEnum
from functools import lru_cache

from audit.redaction.words import (
    ABOUT_WORDS,
    COUNTED_WORDS,
    FILLER_WORDS,
    KEY_QUALIFIERS,
    PASSWORD_WORDS,
    PLAIN_KEYS,
    TOKEN_WORDS,
    WEAK_WORDS,
)


class Strength(IntEnum):
    """How much a name says about its value: from nothing to `this is a password`."""

    NONE = 0
    WEAK = 1  # the value must look random
    TOKEN = 2  # the value must look like a token
    PASSWORD = 3  # any value that is not a word of prose or code


_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passcode", "pwd")
_TOKEN_ENDS = ("secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "authorization")


def name_words(name: str) -> list[str]:
    """The lower-case words of a name in any of the usual spellings."""
    return [word.lower() for word in _SPLIT.findall(name)]


def _word_strength(word: str) -> Strength:
    if word in PASSWORD_WORDS or word.endswith(_PASSWORD_ENDS):
        return Strength.PASSWORD
    if word in TOKEN_WORDS or word.endswith(_TOKEN_ENDS):
        return Strength.TOKEN
    return Strength.WEAK if word in WEAK_WORDS else Strength.NONE


def _key_strength(words: list[str]) -> Strength:
    """A name whose last word is `key`: the word before it decides."""
    before = words[-2:-1]
    if not before or before[0] in PLAIN_KEYS:
        return Strength.NONE
    if before[0] in KEY_QUALIFIERS:
        return Strength.TOKEN
    return max(Strength.WEAK, *map(_word_strength, words[:-1]))


@lru_cache(maxsize=4096)
def name_strength(name: str) -> Strength:
    """How far `name` denotes a credential."""
    words = [word for word in name_words(name[-96:]) if not word.isdigit()]
    while words and words[-1] in FILLER_WORDS:
        words.pop()
    # `$secret` names a handle, and a secret passed by handle is not in the text.
    if not words or "$" in name or (words[-1] in ABOUT_WORDS and not _hashed_password(words)):
        return Strength.NONE
    if words[-1] == "key":
        return _key_strength(words)
    strength = max(map(_word_strength, words))
    if strength is Strength.TOKEN and _word_strength(words[-1]) is Strength.NONE:
        # `token-color`, `secret_santa_group`: the last word says what it is.
        return Strength.WEAK
    if strength is Strength.TOKEN and COUNTED_WORDS.intersection(words[:-1]):
        return Strength.NONE
    return strength


def _hashed_password(words: list[str]) -> bool:
    return words[-1] in ("hash", "hashed") and bool(PASSWORD_WORDS.intersection(words))
