"""Feed sensors: new items of RSS, Atom and JSON feeds, each once.

The feed is fetched through the URL gate and parsed from its text alone: nothing that it names is fetched. Entities are
refused, so that no small feed becomes a large one; so is XML that is damaged or nested too deeply.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any, Final
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler

import feedparser
from defusedxml import DefusedXmlException
from defusedxml.sax import parseString

from agents.net import SafeResponse
from agents.sensors.poll import UNCHANGED, ItemPoll
from agents.sensors.sensing import Failed
from agents.text.formats.html import html_text

MOST_ITEMS: Final = 500
MOST_DEPTH: Final = 50
MOST_ELEMENTS: Final = 50_000
MOST_ATTRIBUTES: Final = 100  # of an element: the time that they take grows with their square
TEXT_CHARS: Final = 4_000
TITLE_CHARS: Final = 500
# The parser looks for an address in a name, from every letter of it on.
NAME_CHARS: Final = 2_000
_NAMES: Final = frozenset(
    ["author", "contributor", "creator", "managingeditor", "name", "owner", "publisher", "webmaster"]
)
# Declared in the headers, so that the parser does not guess another encoding than the text was checked in.
_AS_UTF8: Final = {"content-type": "application/xml; charset=utf-8"}
_ENCODING: Final = re.compile(rb"\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})")

Listed = list[tuple[str, dict[str, Any]]]


class Feed(ItemPoll):
    async def look(self) -> tuple[Any, str]:
        answer = await self.fetch_answer()
        if answer is None:
            return UNCHANGED, ""
        running_loop = asyncio.get_running_loop()
        return await running_loop.run_in_executor(self.services.files, read_feed, answer), ""


def read_feed(answer: SafeResponse) -> Listed:
    """Return the items of a feed with their ids, oldest first; Failed if it is none."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    text = answer.text(_declared_encoding(answer.content)).lstrip("\ufeff \t\r\n")
    items = _json_items(text) if kind.endswith("json") or text[:1] in {"{", "["} else _xml_items(text)
    return list(items)[:MOST_ITEMS][::-1]


def _declared_encoding(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    found = _ENCODING.match(content)
    return found[1].decode("ascii") if found else ""


# --- XML ---


class _Shape(ContentHandler):
    """Refuses XML of a shape for which the parser of feeds is slow: hours for a megabyte of attributes."""

    depth = 0
    elements = 0
    name_depth = 0  # of the outermost element that holds a name
    name_chars = 0

    def startElement(self, name: str, attrs: Any) -> None:  # noqa: N802 its interface
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise SAXException("it is nested too deeply")
        self.elements += 1
        if self.elements > MOST_ELEMENTS or len(attrs) > MOST_ATTRIBUTES:
            raise SAXException("it has too many elements, or attributes of one")
        if not self.name_depth and name.rpartition(":")[2].lower() in _NAMES:
            self.name_depth, self.name_chars = self.depth, 0

    def endElement(self, name: str) -> None:  # noqa: N802 its interface
        if self.depth == self.name_depth:
            self.name_depth = 0
        self.depth -= 1

    def characters(self, content: str) -> None:
        self.name_chars += len(content)
        if self.name_depth and self.name_chars > NAME_CHARS:
            raise SAXException("a name in it is too long")


def _xml_items(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    data = text.encode("utf-8", "replace")
    try:
        parseString(_declared_as_utf8(data), _Shape(), forbid_entities=True, forbid_external=True)
    except DefusedXmlException:
        raise Failed("the feed declares entities, or refers to files outside of it: it is not read") from None
    except SAXParseException as error:
        raise Failed(f"the feed is not well-formed XML, at line {error.getLineNumber()}") from None
    except SAXException as error:
        raise Failed(f"the feed cannot be read: {error.getMessage()}") from None
    found = feedparser.parse(data, response_headers=_AS_UTF8, sanitize_html=False, resolve_relative_uris=False)
    if not found.version:
        raise Failed("this is no RSS, Atom or JSON feed")
    for entry in found.entries[:MOST_ITEMS]:
        content = (entry.get("content") or [{}])[0].get("value") or entry.get("summary") or ""
        item = {
            "id": str(entry.get("id") or ""),
            "title": _plain(entry.get("title"), TITLE_CHARS),
            "link": str(entry.get("link") or ""),
            "published": str(entry.get("published") or entry.get("updated") or ""),
            "author": str(entry.get("author") or ""),
            "text": _plain(content, TEXT_CHARS),
        }
        yield _named(item)


def _declared_as_utf8(data: bytes) -> bytes:
    """Replace the declaration: the text has been decoded already, whatever it says about its encoding."""
    if data.startswith(b"<?xml"):
        data = data.partition(b"?>")[2]
    return b'<?xml version="1.0" encoding="utf-8"?>' + data.lstrip()


def _plain(value: Any, most: int) -> str:
    text = str(value or "")[: 4 * most]
    return (html_text(text) if "<" in text or "&" in text else text).strip()[:most]


# --- JSON ---


def _json_items(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a JSON feed, or of a list of objects."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Failed("the feed is not JSON, or is nested too deeply") from None
    items = data.get("items") if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise Failed("this is no JSON feed: it has no list of items")
    for item in items[:MOST_ITEMS]:
        if isinstance(item, dict):
            yield _named(item)


def _named(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an item with what tells it from others: its id, its link, or all of it."""
    name = item.get("id") or item.get("link") or item.get("url") or json.dumps(item, sort_keys=True, default=str)
    return str(name), {key: value for key, value in item.items() if value not in ("", None)}
