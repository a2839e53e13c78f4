"""The documentation that ships with lqops, by section: found by words, read in the admin and by the console."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from django.utils.text import slugify

_HEADING: Final = re.compile(r"^#{1,4} +(.+?)\s*$", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z0-9_]{2,}")
_TITLE_WEIGHT: Final = 4
SHORTEST_PLURAL: Final = 4
_NAME: Final = re.compile(r"[a-z0-9-]{1,60}")


@dataclass(frozen=True)
class Section:
    page: str
    title: str
    text: str

    @property
    def anchor(self) -> str:
        return slugify(self.title)


@cache
def sections(folder: Path) -> tuple[Section, ...]:
    """Return the sections of all pages of a folder, in order."""
    return tuple(section for path in sorted(folder.glob("*.md")) for section in _split(path))


def page(folder: Path, name: str) -> tuple[Section, ...]:
    """Return the sections of one page; none if there is no such page."""
    return tuple(one for one in sections(folder) if one.page == name) if _NAME.fullmatch(name) else ()


def find_sections(folder: Path, words: str, *, limit: int) -> list[Section]:
    """Return the sections that hold most of the words, best first. A word in the title or page name counts more."""
    known = sections(folder)
    wanted = {word: _rarity(word, folder) for word in {singular(word) for word in _WORD.findall(words.lower())}}
    scored = [(_score(section, wanted), -place, section) for place, section in enumerate(known)]
    return [section for score, _, section in sorted(scored, key=lambda one: one[:2], reverse=True)[:limit] if score]


def _split(path: Path) -> list[Section]:
    text = path.read_text(encoding="utf-8")
    heads = list(_HEADING.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [
        Section(path.stem, head[1].strip("`"), text[head.end() : end].strip())
        for head, end in zip(heads, ends, strict=True)
    ]


def _score(section: Section, wanted: Mapping[str, float]) -> float:
    """Weigh each word by where it stands and how rare it is; a long section does not win by its length."""
    title, text = _words_of(section)
    return sum(rarity * (_TITLE_WEIGHT * (word in title) + (word in text)) for word, rarity in wanted.items())


@cache
def _words_of(section: Section) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of a section's title and page, and of its text."""
    title = _WORD.findall(f"{section.page} {section.title}".lower())
    return frozenset(map(singular, title)), frozenset(map(singular, _WORD.findall(section.text.lower())))


@cache
def _rarity(word: str, folder: Path) -> float:
    known = sections(folder)
    holding = sum(word in _words_of(section)[1] for section in known)
    return math.log((1 + len(known)) / (1 + holding))


def singular(word: str) -> str:
    """Fold the plural: `webhooks` finds `webhook`, `addresses` finds `address`."""
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) >= SHORTEST_PLURAL and word.endswith("s") and not word.endswith("ss") else word
