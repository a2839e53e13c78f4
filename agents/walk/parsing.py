"""Read a model's reply: tolerant of form, strict in content, bounded in time and size. Never raises.

The one JSON object with a list of findings counts, wherever it stands, but in what the model thought to itself. A reply
without one, with several that differ, or with items of which none can be used, has no structure: nobody can say what it
means. Unusable items among others are dropped and counted. Nothing in a reply picks a step of the run.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RAW_CHARS: Final = 8_000
TITLE_CHARS: Final = 300
CONTENT_CHARS: Final = 20_000
QUOTE_CHARS: Final = 8_000
LINE_CHARS: Final = 2_000
ARTIFACT_CHARS: Final = 1_000_000
MOST_LOOKED_AT: Final = 1_000  # items of one list
MOST_PLACES: Final = 64  # how many opening braces are tried
MOST_NOTES: Final = 50
FURTHEST: Final = 10**9
POSITION_CHARS: Final = 200
UNTITLED: Final = "(untitled)"
QUOTE_CUT: Final = "The quote has {chars:,} characters; the first {kept:,} are kept."
_ANSWERS: Final = {
    **dict.fromkeys(("yes", "true", "supported"), True),
    **dict.fromkeys(("no", "not", "false", "unsupported"), False),
}


@dataclass(frozen=True)
class ParsedFinding:
    title: str
    severity: str
    content: str
    document_id: str = ""
    quote: str = ""
    start: int = 0
    position: str = ""


@dataclass(frozen=True)
class ParsedPrecedent:
    pattern_kind: str
    summary: str
    same_as: str = ""


@dataclass(frozen=True)
class ParsedArtifact:
    name: str
    content: str


@dataclass(frozen=True)
class Analysis:
    """A reply as it was read.

    `seen` names what a section deals with, and is None if the reply does not say. `has_verdict` says whether the reply
    lists concerns, be it none, and all of them can be read. `dropped` counts items that were not taken over; `raw` is
    set if the reply had no structure, and `left_out` counts its characters beyond what is kept.
    """

    findings: tuple[ParsedFinding, ...] = ()
    memories: tuple[str, ...] = ()
    precedents: tuple[ParsedPrecedent, ...] = ()
    artifacts: tuple[ParsedArtifact, ...] = ()
    privilege_concerns: tuple[str, ...] = ()
    scope_concerns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[str, ...] | None = None
    has_verdict: bool = True
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
    reply = _answer_in(text)
    if reply is None:
        raw = text.strip() or "(an empty reply)"
        return Analysis(raw=raw[:RAW_CHARS], left_out=max(len(raw) - RAW_CHARS, 0), has_verdict=False)
    read: dict[str, tuple[Any, ...]] = {}
    dropped: dict[str, int] = {}
    for name, (reader, most) in ITEMS.items():
        items = _listed(reply.get(name))
        useful = dict.fromkeys(filter(None, map(reader, map(_as_object, items[:MOST_LOOKED_AT]))))
        read[name] = tuple(useful)[:most]
        if (lost := len(items) - len(read[name])) and name != "seen":
            dropped[name] = lost
    analyst = _as_object(reply.get("analyst"))
    notes = (_text(note, LINE_CHARS) for note in _listed(analyst.get("notes"))[:MOST_LOOKED_AT])
    return Analysis(
        findings=read["findings"],
        memories=read["suggested_memories"],
        precedents=read["suggested_precedents"],
        artifacts=read["artifacts"],
        privilege_concerns=read["privilege_concerns"],
        scope_concerns=read["scope_concerns"],
        notes=tuple(filter(None, notes))[:MOST_NOTES],
        seen=read["seen"] if isinstance(reply.get("seen"), list | str) else None,
        has_verdict=all(_is_readable(reply.get(name)) for name in _CONCERNS),
        dropped=dropped,
    )


def _is_readable(concerns: object) -> bool:
    """Return whether this is a list of which every item can be read. An empty text says that there is nothing."""
    return isinstance(concerns, list) and all(
        _concern(_as_object(item)) or (isinstance(item, str) and not item.strip()) for item in concerns
    )


def _answer_in(text: str) -> dict[str, Any] | None:
    """Return the one object that is an answer."""
    found = [(start, end, one) for start, end, one in _placed_objects(text) if "findings" in one]
    said = [one for start, end, one in found if not _is_thought(text, start, end)]
    if not said or any(one != said[0] for one in said):
        return None
    items = said[0]["findings"]
    listed = items if isinstance(items, list) else [items] if isinstance(items, dict) else None
    if listed is None or (listed and not any(map(_finding, map(_as_object, listed[:MOST_LOOKED_AT])))):
        return None
    return said[0]


def _is_thought(text: str, start: int, end: int) -> bool:
    """Return whether a place lies between the marks of what a model thinks; some models leave out the first."""
    opened, closed = text.rfind("<think>", 0, start), text.rfind("</think>", 0, start)
    if opened > closed:
        return True
    opens, closes = text.find("<think>", end), text.find("</think>", end)
    return closes >= 0 and (opens < 0 or closes < opens)


def parse_judgement(text: str) -> bool | None:
    """Return whether a judge says that the quote supports the claim; None if the reply does not say."""
    for found in json_objects(text):
        if "supported" in found:
            answer = found["supported"]
            return answer if isinstance(answer, bool) else _yes_or_no(_text(answer, LINE_CHARS))
    return _yes_or_no(text[:LINE_CHARS])


def _yes_or_no(text: str) -> bool | None:
    word = re.match(r"\W*(\w+)", text)
    return _ANSWERS.get(word[1].lower()) if word else None


# --- Finding the JSON ---


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, also between fences and in prose. Bounded."""
    return (found for _, _, found in _placed_objects(text))


def _placed_objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    place = -1
    for _ in range(MOST_PLACES):
        place = text.find("{", place + 1)
        if place < 0:
            return
        try:
            found, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        yield place, end, found
        place = end - 1


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= len(str(FURTHEST)) else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. One that says two things under one name cannot be read: nobody knows which is meant."""
    found = dict(pairs)
    if len(found) != len(pairs) and any(found[name] != value for name, value in pairs):
        raise ValueError("A name stands twice, with different values.")
    return found


_DECODER: Final = json.JSONDecoder(
    strict=False, parse_int=_whole, parse_constant=lambda _: None, object_pairs_hook=_distinct
)


# --- Reading the items ---


def _listed(value: object) -> list[Any]:
    """Return the items of a list; a single object or text counts as a list of one."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict | str) and value else []


def _as_object(item: object) -> dict[str, Any]:
    """Return a text as the content of an object; anything else that is no object says nothing."""
    if isinstance(item, dict):
        return item
    return {"content": item} if isinstance(item, str) else {}


def _text(value: object, limit: int) -> str:
    """Return text, or a number as text; anything else is empty."""
    if isinstance(value, str):
        return value.strip()[:limit].rstrip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value) if math.isfinite(value) else ""
    return ""


def _first(item: Mapping[str, Any], names: str, limit: int) -> str:
    """Return the first text under these names: models do not always use the one that they were asked for."""
    return next((text for name in names.split() if (text := _text(item.get(name), limit))), "")


def _finding(item: Mapping[str, Any]) -> ParsedFinding | None:
    title = _first(item, "title issue position", TITLE_CHARS)
    content = _first(item, "content description detail text", CONTENT_CHARS)
    quote = item.get("quote")
    quote = quote if isinstance(quote, str) else ""
    start = item.get("start")
    severity = _text(item.get("severity"), 32).lower() or "info"
    if (not title and not content) or "|" in severity:  # the form of the answer itself
        return None
    if len(quote) > QUOTE_CHARS:
        content = f"{content}\n\n{QUOTE_CUT.format(chars=len(quote), kept=QUOTE_CHARS)}".strip()
    return ParsedFinding(
        title=title or UNTITLED,
        severity=severity,
        content=content,
        document_id=_first(item, "document_id document", 64),
        quote=quote[:QUOTE_CHARS],  # exact: it is compared, not read
        start=int(start) if isinstance(start, int | float) and 0 <= start <= FURTHEST else 0,  # only a hint
        position=_first(item, "position issue", POSITION_CHARS),
    )


def _memory(item: Mapping[str, Any]) -> str:
    return _first(item, "content text memory note summary", LINE_CHARS)


def _precedent(item: Mapping[str, Any]) -> ParsedPrecedent | None:
    summary = _first(item, "summary content description text", LINE_CHARS)
    kind = _first(item, "pattern_kind kind", 64) or "pattern"
    return ParsedPrecedent(kind, summary, _text(item.get("same_as"), 64)) if summary else None


def _artifact(item: Mapping[str, Any]) -> ParsedArtifact | None:
    content = item.get("content")
    if not isinstance(content, str) or not content.strip():
        return None
    return ParsedArtifact(_first(item, "name title filename", 255) or "draft", content[: ARTIFACT_CHARS + 1])


def _concern(item: Mapping[str, Any]) -> str:
    return _first(item, "concern content description title text summary", LINE_CHARS)


# How the items of each list are read, and how many of them are kept.
ITEMS: Final[Mapping[str, tuple[Callable[[Mapping[str, Any]], object], int]]] = {
    "findings": (_finding, 100),
    "suggested_memories": (_memory, 20),
    "suggested_precedents": (_precedent, 20),
    "artifacts": (_artifact, 5),
    "privilege_concerns": (_concern, 50),
    "scope_concerns": (_concern, 50),
    "seen": (_concern, 1_000),
}
_CONCERNS: Final = ("privilege_concerns", "scope_concerns")
