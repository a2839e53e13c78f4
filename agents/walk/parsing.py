"""Read a model's reply: tolerant of form, strict in content, bounded in time and size. Never raises.

JSON in a fence, else the whole text, else the first JSON object in it with a known key; else the reply counts as
unstructured. Unusable items are dropped and counted. Nothing in a reply picks a step of the run.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

MOST_FINDINGS: Final = 100
MOST_MEMORIES: Final = 20
MOST_PRECEDENTS: Final = 20
MOST_CONCERNS: Final = 50
MOST_ARTIFACTS: Final = 5
MOST_NOTES: Final = 50
RAW_CHARS: Final = 8_000
TITLE_CHARS: Final = 300
CONTENT_CHARS: Final = 20_000
QUOTE_CHARS: Final = 8_000
LINE_CHARS: Final = 2_000
ARTIFACT_CHARS: Final = 1_000_000
MOST_LOOKED_AT: Final = 1_000  # items of one list
MOST_PLACES: Final = 64  # how many fences or opening braces are tried
FURTHEST: Final = 10**9
UNTITLED: Final = "(untitled)"

KEYS: Final = frozenset(
    {"findings", "suggested_memories", "suggested_precedents", "privilege_concerns", "scope_concerns", "artifacts"}
)
_ANSWERS: Final = {
    **dict.fromkeys(("yes", "true", "supported"), True),
    **dict.fromkeys(("no", "not", "false", "unsupported"), False),
}
_FENCE: Final = re.compile(r"```[^\n`]{0,40}\n?")


@dataclass(frozen=True)
class ParsedFinding:
    title: str
    severity: str
    content: str
    document_id: str = ""
    quote: str = ""
    start: int = 0


@dataclass(frozen=True)
class ParsedPrecedent:
    pattern_kind: str
    summary: str


@dataclass(frozen=True)
class ParsedArtifact:
    name: str
    content: str


@dataclass(frozen=True)
class Analysis:
    """What a reply says.

    `dropped` counts items that were not taken over; `raw` is set if the reply had no structure, and `left_out` counts
    its characters beyond what is kept.
    """

    findings: tuple[ParsedFinding, ...] = ()
    memories: tuple[str, ...] = ()
    precedents: tuple[ParsedPrecedent, ...] = ()
    artifacts: tuple[ParsedArtifact, ...] = ()
    privilege_concerns: tuple[str, ...] = ()
    scope_concerns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    raw: str = ""
    left_out: int = 0

    @property
    def is_structured(self) -> bool:
        return not self.raw

    @property
    def concerns(self) -> tuple[str, ...]:
        return self.privilege_concerns + self.scope_concerns


def parse_analysis(text: str) -> Analysis:
    told = _structured(text)
    if told is None:
        raw = text.strip() or "(an empty reply)"
        return Analysis(raw=raw[:RAW_CHARS], left_out=max(len(raw) - RAW_CHARS, 0))
    taken: dict[str, tuple[Any, ...]] = {}
    dropped: dict[str, int] = {}
    for name, read in _READERS.items():
        items = _listed(told.get(name))
        useful = list(dict.fromkeys(filter(None, map(read, items[:MOST_LOOKED_AT]))))
        taken[name] = tuple(useful[: _MOST[name]])
        if lost := len(items) - len(taken[name]):
            dropped[name] = lost
    analyst = told.get("analyst")
    notes = _listed(analyst.get("notes")) if isinstance(analyst, dict) else []
    return Analysis(
        findings=taken["findings"],
        memories=taken["suggested_memories"],
        precedents=taken["suggested_precedents"],
        artifacts=taken["artifacts"],
        privilege_concerns=taken["privilege_concerns"],
        scope_concerns=taken["scope_concerns"],
        notes=tuple(filter(None, map(_concern, notes)))[:MOST_NOTES],
        dropped=dropped,
    )


def parse_judgement(text: str) -> bool | None:
    """Return whether a judge says that the quote supports the claim; None if the reply does not say."""
    for told in json_objects(text):
        if "supported" in told:
            said = told["supported"]
            return said if isinstance(said, bool) else _yes_or_no(_text(said, LINE_CHARS))
    return _yes_or_no(text[:LINE_CHARS])


def _yes_or_no(text: str) -> bool | None:
    word = re.match(r"\W*(\w+)", text)
    return _ANSWERS.get(word[1].lower()) if word else None


# --- Finding the JSON ---


def _structured(text: str) -> dict[str, Any] | None:
    return next((told for told in json_objects(text) if KEYS & told.keys()), None)


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield JSON objects that the text may have meant, likeliest first. Bounded."""
    for candidate in (*_fenced(text), text):
        told = _decoded(candidate.strip())
        if told is not None:
            yield told
    place = -1
    for _ in range(MOST_PLACES):
        place = text.find("{", place + 1)
        if place < 0:
            return
        if found := _decoded_at(text, place):
            told, end = found
            place = end - 1
            yield told


def _fenced(text: str) -> Iterator[str]:
    """Yield what stands between one fence and the next."""
    fences = []
    for fence in _FENCE.finditer(text):
        fences.append(fence)
        if len(fences) > MOST_PLACES:
            break
    for opening, closing in pairwise(fences):
        yield text[opening.end() : closing.start()]


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= len(str(FURTHEST)) else None


_DECODER: Final = json.JSONDecoder(strict=False, parse_int=_whole, parse_constant=lambda _: None)


def _decoded(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    found = _decoded_at(text, 0)
    return found[0] if found and found[1] == len(text) else None


def _decoded_at(text: str, place: int) -> tuple[dict[str, Any], int] | None:
    """Return the object that begins at an opening brace, and where it ends."""
    try:
        return _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None


# --- Reading the items ---


def _listed(value: object) -> list[Any]:
    """Return the items of a list; a single object or text counts as a list of one."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict | str) and value else []


def _text(value: object, limit: int) -> str:
    """Return text, or a number as text; anything else is empty."""
    if isinstance(value, str):
        return value.strip()[:limit].rstrip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if math.isfinite(value) else ""
    return ""


def _first(item: Mapping[str, Any], names: Iterable[str], limit: int) -> str:
    return next((said for name in names if (said := _text(item.get(name), limit))), "")


def _finding(item: object) -> ParsedFinding | None:
    if not isinstance(item, dict):
        return None
    title = _first(item, ("title", "issue", "position"), TITLE_CHARS)
    content = _first(item, ("content", "description", "detail", "text"), CONTENT_CHARS)
    quote = item.get("quote")
    if not title and not content:
        return None
    return ParsedFinding(
        title=title or UNTITLED,
        severity=_text(item.get("severity"), 32).lower() or "info",
        content=content,
        document_id=_first(item, ("document_id", "document"), 64),
        quote=quote[:QUOTE_CHARS] if isinstance(quote, str) else "",  # exact: it is compared, not read
        start=_offset(item.get("start")),
    )


def _offset(value: object) -> int:
    """Read an offset. It is only a hint, so anything odd is 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= FURTHEST:
        return int(value)
    return 0


def _memory(item: object) -> str | None:
    if not isinstance(item, dict):
        return None
    return _first(item, ("content", "text", "memory", "note", "summary"), LINE_CHARS) or None


def _precedent(item: object) -> ParsedPrecedent | None:
    if not isinstance(item, dict):
        return None
    summary = _first(item, ("summary", "content", "description", "text"), LINE_CHARS)
    kind = _first(item, ("pattern_kind", "kind"), 64) or "pattern"
    return ParsedPrecedent(kind, summary) if summary else None


def _artifact(item: object) -> ParsedArtifact | None:
    if not isinstance(item, dict):
        return None
    content = item.get("content")
    if not isinstance(content, str) or not content.strip():
        return None
    return ParsedArtifact(_first(item, ("name", "title", "filename"), 255) or "draft", content[: ARTIFACT_CHARS + 1])


def _concern(item: object) -> str | None:
    if isinstance(item, dict):
        return _first(item, ("concern", "content", "description", "title", "text", "summary"), LINE_CHARS) or None
    return _text(item, LINE_CHARS) or None


_READERS: Final[Mapping[str, Any]] = {
    "findings": _finding,
    "suggested_memories": _memory,
    "suggested_precedents": _precedent,
    "artifacts": _artifact,
    "privilege_concerns": _concern,
    "scope_concerns": _concern,
}
_MOST: Final[Mapping[str, int]] = {
    "findings": MOST_FINDINGS,
    "suggested_memories": MOST_MEMORIES,
    "suggested_precedents": MOST_PRECEDENTS,
    "artifacts": MOST_ARTIFACTS,
    "privilege_concerns": MOST_CONCERNS,
    "scope_concerns": MOST_CONCERNS,
}
