"""Marked blocks: the only way in which untrusted text enters a prompt, and the reader of such blocks.

A block is `<<<kind nonce name="value">>>`, a line break, the text, a line break, `<<<end nonce>>>`. The text cannot
close its block or open another: in every run of three or more `<` (or of a character that Unicode counts as one) each
is shown as U+2039. So is the first of a tag that would call a skill, unless the text is what the owner wants done: a
model that repeats a document repeats no call. One character replaces one, so offsets into the text do not change.
"""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.conf import settings

END = "end"
WANTED = frozenset({"goal", "instructions", "playbook", "skill"})  # these may show calls of skills
SHOWN_AS = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NONCE = re.compile(r"[0-9A-Za-z]{8,64}")
# U+FE64 and U+FF1C become `<` when a text is normalised later, so they count as one here.
_LESS = "[<\N{SMALL LESS-THAN SIGN}\N{FULLWIDTH LESS-THAN SIGN}]"
_OPENERS = re.compile(rf"{_LESS}{{3,}}")
_OPENERS_AND_CALLS = re.compile(rf"{_OPENERS.pattern}|{_LESS}(?=/?(?:skill|parallel)>)", re.IGNORECASE)
_HEADER = re.compile(
    rf"<<<({_NAME.pattern}) ({_NONCE.pattern})((?: {_NAME.pattern}=\"[^\"<>\n]*\")*)>>>\n",
)
_ATTRIBUTE = re.compile(rf" ({_NAME.pattern})=\"([^\"<>\n]*)\"")
_ESCAPE = re.compile(r"&#x([0-9a-f]{1,6});")


@dataclass(frozen=True)
class Part:
    """One text for a prompt, and the kind of its block."""

    kind: str
    text: str
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Block:
    """One marked block; `message[start:end]` is `text`. A truncated one has no end and holds all that follows."""

    kind: str
    attributes: Mapping[str, str]
    text: str
    start: int
    end: int
    nonce: str
    truncated: bool = False


def render_block(kind: str, text: str, *, nonce: str, **attributes: str) -> str:
    """Render a text as a block. The nonce belongs to one request: 8 to 64 unpredictable letters and digits."""
    if not _NAME.fullmatch(kind) or kind == END:
        raise ValueError(f"{kind!r} is not a kind of block: use lower-case letters, digits and _, and not {END!r}.")
    if not _NONCE.fullmatch(nonce):
        raise ValueError(f"{nonce!r} is not a nonce: use 8 to 64 letters and digits.")
    for name in attributes:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not an attribute name: use lower-case letters, digits and _.")
    marks = "".join(f' {name}="{_escaped(value)}"' for name, value in attributes.items())
    return f"<<<{kind} {nonce}{marks}>>>\n{neutralised(text, calls=kind in WANTED)}\n<<<{END} {nonce}>>>"


def neutralised(text: str, *, calls: bool = False) -> str:
    """Replace whatever could start a delimiter or, unless `calls` are allowed, a call; the length stays the same."""
    return (_OPENERS if calls else _OPENERS_AND_CALLS).sub(lambda run: SHOWN_AS * len(run[0]), text)


def parse_blocks(text: str) -> list[Block]:
    """Return the blocks of a message, in order. The inside of a block is text, whatever it looks like."""
    found: list[Block] = []
    place = 0
    while header := _HEADER.search(text, place):
        kind, nonce, marks = header.groups()
        if kind == END:
            place = header.end()
            continue
        end = text.find(f"\n<<<{END} {nonce}>>>", header.end())
        truncated = end < 0
        end = len(text) if truncated else end
        attributes = {name: _unescaped(value) for name, value in _ATTRIBUTE.findall(marks)}
        found.append(Block(kind, attributes, text[header.end() : end], header.end(), end, nonce, truncated))
        place = end
    return found


def _escaped(value: str) -> str:
    return "".join(f"&#x{ord(char):x};" if _is_special(char) else char for char in value)


def _is_special(char: str) -> bool:
    """Return True for what could end the attribute, and for control characters and line separators."""
    return char in '&"<>' or unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}


def _unescaped(value: str) -> str:
    """Decode escapes; a number beyond Unicode, in a value written by hand, stays as it is."""
    return _ESCAPE.sub(lambda found: chr(code) if (code := int(found[1], 16)) < 0x110000 else found[0], value)  # noqa: PLR2004


# --- Nonces ---


# Letters only: digits in a row can pass for a telephone number, which the anonymiser would hide, breaking the block.
_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


def nonce_of(session_id: object, what: str) -> str:
    """Return the nonce of one place in a run: always the same, and unpredictable for anybody else."""
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, f"{session_id}:{what}".encode(), hashlib.sha256).hexdigest()[:32].translate(_LETTERS)
