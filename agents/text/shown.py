"""Text as a person has to see it before a decision: every character shows, and look-alike letters are marked.

An invisible character stands there by its number, as in `⟨U+202E⟩`. A letter of a host, an address or a name that reads
like another one is followed by its number. Nothing is left out, so the text can be read back.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from confusable_homoglyphs import categories
from confusable_homoglyphs.utils import load

_PLAIN: Final = frozenset("\n\t ")
# Characters that show nothing, or move what is shown, although Unicode calls them letters, marks or symbols; and the
# bracket that stands around numbers.
_BLANK: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f\ufffc\U0001d159\U00016fe4⟨")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
_SELECTORS: Final = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F))
_FROM_RIGHT: Final = frozenset({"R", "AL"})
_WORD: Final = re.compile(r"([^\s\"'<>(){}\[\],;]+)")
_ADDRESS: Final = re.compile(r"\w[.\uff0e\u3002\uff61]\w|@|//|xn--", re.IGNORECASE)
_ENCODED: Final = re.compile(r"\bxn--[a-z0-9-]+", re.IGNORECASE)
# Letters and lines that read like a hyphen, where plain letters stand on both sides of them.
_LIKE_HYPHENS: Final = re.compile(
    r"(?<=[a-z0-9])[\u1173\u2014\u2015\u2500\u2501\u2f00\u30fc\u3161\u31d0\u4e00\ua7f7](?=[a-z0-9])", re.IGNORECASE
)
# Names of arguments that hold hosts, addresses and names.
_NAMING: Final = re.compile(
    r"(?:^|_)(?:name|user|account|payee|beneficiary|customer|vendor|sender|receiver|person|company|ur[il]s?|hosts?|hostname|domain|webhook|addresse?s?|to|cc|bcc|recipients?|iban|e?mail"
    r"|endpoint|path|file)(?:_|$)",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-])", re.ASCII | re.IGNORECASE)
# What is read as the same in many typefaces, in lower case: a capital i is a small L.
_READ_ALIKE: Final = (("i", "l"), ("1", "l"), ("0", "o"), ("5", "s"), ("rn", "m"), ("vv", "w"), ("cl", "d"))
MOST_WARNINGS: Final = 20
DEEPEST: Final = 12
NAMED: Final = 3
WORD_CHARS: Final = 80
LABEL_CHARS: Final = 63  # of one part of a name on the internet


@dataclass(frozen=True)
class Shown:
    """A value in full, and what a reader could overlook in it."""

    text: str
    warnings: tuple[str, ...]


def shown(value: Any, known_hosts: Iterable[str] = ()) -> Shown:
    """Return JSON for reading: one key a line, sorted, with everything spelled out that could be overlooked.

    A host that reads like one of the known ones, or like another in the value, is warned of.
    """
    warnings: dict[str, None] = dict.fromkeys(_hosts_alike(hosts_in(value), known_hosts))
    spelled = _spelled(value, "", warnings)
    text = json.dumps(spelled, indent=2, sort_keys=True, ensure_ascii=False, default=str)
    told = list(warnings)
    if len(told) > MOST_WARNINGS:
        told[MOST_WARNINGS:] = [f"And {len(told) - MOST_WARNINGS} more; each letter is marked in the text."]
    return Shown(text, tuple(told))


@dataclass(frozen=True)
class Field:
    """One named value of a call: a text, another plain value, or the fields in it. Each character of it shows.

    A text keeps its line breaks and tabs; a name has none, so that it stands on one line.
    """

    name: str
    kind: str  # text, number, true or false, null, object, list or JSON
    text: str = ""
    inner: tuple["Field", ...] = ()


def fields(value: Mapping[str, Any], depth: int = 0) -> tuple[Field, ...]:
    """Return the values by name, sorted, with everything spelled out that could be overlooked.

    What is nested deeper than a person follows, or a page can be built, is given as JSON.
    """
    return tuple(_field(_name(str(key)), str(key), value[key], depth) for key in sorted(value))


def _field(label: str, name: str, value: Any, depth: int) -> Field:
    if isinstance(value, Mapping | list | tuple) and depth >= DEEPEST:
        return Field(label, "JSON", shown(value).text)
    if isinstance(value, Mapping):
        return Field(label, "object", inner=fields(value, depth + 1))
    if isinstance(value, list | tuple):
        inner = (_field(str(place), name, item, depth + 1) for place, item in enumerate(value, start=1))
        return Field(label, "list", inner=tuple(inner))
    if isinstance(value, str):
        return Field(label, "text", _spelled_text(value, name, {}))
    kind = "null" if value is None else "true or false" if isinstance(value, bool) else "number"
    return Field(label, kind, json.dumps(value, default=str))


def _name(text: str) -> str:
    return "".join(_number(char) if char in "\n\t" else char for char in _spelled_text(text, "", {}))


def field_lines(found: Iterable[Field], indent: str = "") -> Iterator[str]:
    """Yield the fields line by line, for comparing: texts by their own lines, under their names."""
    for field in found:
        first, *more = field.text.split("\n")
        yield f"{indent}{field.name}: {first}".rstrip() if not more else f"{indent}{field.name}:"
        yield from (f"{indent}  {line}" for line in ([first, *more] if more else ()))
        yield from field_lines(field.inner, f"{indent}  ")


def visible(text: str) -> str:
    """Return the text with every character that is invisible or changes the reading direction spelled out."""
    if text.isascii() and text.isprintable():
        return text
    spelled = {char: _number(char) if _is_unseen(char) else char for char in set(text)}
    return "".join(map(spelled.__getitem__, text))


def _spelled(value: Any, name: str, warnings: dict[str, None]) -> Any:
    if isinstance(value, Mapping):
        return {
            _spelled_text(str(key), "", warnings): _spelled(item, str(key), warnings) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_spelled(item, name, warnings) for item in value]
    return _spelled_text(value, name, warnings) if isinstance(value, str) else value


def name_shown(text: str) -> str:
    """Return the name of somebody with the number of each letter that reads like another, and of those unseen."""
    return _spelled_text(text, "name", {})


def _spelled_text(text: str, name: str, warnings: dict[str, None]) -> str:
    for encoded in _ENCODED.findall(text):
        warnings[f"{encoded} is shown by browsers as {_decoded(encoded)}."] = None
    if text.isascii():
        return visible(text)
    warnings.update(dict.fromkeys(_overlooked(text)))
    is_naming = bool(_NAMING.search(name))
    between_and_words = _WORD.split(text)
    marked = {word: _marked(word, warnings, is_naming=is_naming) for word in dict.fromkeys(between_and_words[1::2])}
    return "".join(marked[part] if number % 2 else visible(part) for number, part in enumerate(between_and_words))


def _marked(word: str, warnings: dict[str, None], *, is_naming: bool) -> str:
    """Mark the letters of a word that read like plain ones, where somebody could be misled by them."""
    alike = {char: like for char in sorted(set(word)) if not char.isascii() and (like := _reads_like(char))}
    alike |= dict.fromkeys(_LIKE_HYPHENS.findall(word), "-")
    if not alike or not (is_naming or _ADDRESS.search(word) or _is_mixed(word)):
        return visible(word)
    letters = ", ".join(f"{char} is {unicodedata.name(char, 'unnamed')}" for char in list(alike)[:NAMED])
    spelled = {char: f"{char}{_number(char)}" if char in alike else visible(char) for char in set(word)}
    seen = word[:WORD_CHARS]
    marked, reading = ("".join(map(one.__getitem__, seen)) for one in (spelled, {**spelled, **alike}))
    warnings[f"{marked} reads like {reading}, but {letters}."] = None
    return "".join(map(spelled.__getitem__, word))


def _overlooked(text: str) -> Iterator[str]:
    if unseen := sorted(char for char in set(text) if _is_unseen(char) and char != "⟨"):
        others = " and others" if len(unseen) > NAMED else ""
        yield f"There are invisible characters: {', '.join(map(_named, unseen[:NAMED]))}{others}."
    if any(unicodedata.bidirectional(char) in _FROM_RIGHT for char in set(text)):
        yield "Some letters are read from right to left: they may stand on the screen in another order."


def hosts_in(value: Any) -> list[str]:
    """Return the hosts that the texts of a value name, in addresses and alone, as they are written."""
    if isinstance(value, Mapping):
        return [host for key, item in value.items() for host in (*hosts_in(str(key)), *hosts_in(item))]
    if isinstance(value, list | tuple):
        return [host for item in value for host in hosts_in(item)]
    return list(dict.fromkeys(_HOST.findall(value))) if isinstance(value, str) else []


def _hosts_alike(found: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each host that is written like another one: paypaI.com with a capital i, rnicrosoft.com.

    Names are compared with those above them, so that login.paypaI.com reads like paypal.com.
    """
    found = list(found)
    names = {name for host in (*known, *found) for name in _names_of(host)}
    by_skeleton: dict[str, list[str]] = {}
    for name in sorted(names):
        by_skeleton.setdefault(_skeleton(name), []).append(name)
    for host in dict.fromkeys(found):
        for name in _names_of(host):
            others = [other for other in by_skeleton[_skeleton(name)] if other != name]
            if others:
                yield f"{host} reads like {others[0]}, but is another host: {name}."
                break


def _names_of(host: str) -> list[str]:
    """Return the host and the names above it of at least two parts, in lower case, the shortest first."""
    labels = host.lower().rstrip(".").split(".")
    return [".".join(labels[at:]) for at in range(len(labels) - 2, -1, -1)]


def _skeleton(name: str) -> str:
    """Return the name with letters and digits that read alike made the same."""
    for written, read in _READ_ALIKE:
        name = name.replace(written, read)
    return name


def _is_mixed(word: str) -> bool:
    """Return whether letters of several scripts stand in one word."""
    return len({categories.alias(char) for char in set(word)} - {"COMMON", "INHERITED"}) > 1


def _plain_look_alikes() -> dict[str, str]:
    """Read which characters can be taken for plain ones. The whole table would take seven megabytes."""
    table = {
        char: next((one["c"] for one in alike if one["c"].isascii() and one["c"].isprintable()), "")
        for char, alike in load("confusables.json").items()
    }
    return {char: plain for char, plain in table.items() if plain}


_PLAIN_LOOK_ALIKES: Final = _plain_look_alikes()


@lru_cache(maxsize=4_096)
def _reads_like(char: str) -> str:
    """Return the plain character that this one can be taken for, if any."""
    folded = unicodedata.normalize("NFKC", char)
    return folded if folded.isascii() else _PLAIN_LOOK_ALIKES.get(char, "")


@lru_cache(maxsize=4_096)
def _is_unseen(char: str) -> bool:
    if char in _PLAIN:
        return False
    return (
        char in _BLANK
        or unicodedata.category(char) in _UNSEEN
        or any(low <= ord(char) <= high for low, high in _SELECTORS)
    )


def _number(char: str) -> str:
    return f"⟨U+{ord(char):04X}⟩"


def _named(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".strip()


def _decoded(encoded: str) -> str:
    if len(encoded) > LABEL_CHARS:
        return "nothing: it is too long for a name"
    try:
        return visible(encoded[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return "nothing: it cannot be decoded"
