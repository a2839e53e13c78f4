"""HTML: the text that a reader of the page would see."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

from agents.text.formats.decoding import decode
from agents.text.formats.tables import MAX_SPAN, TextWriter
from agents.text.marks import Part

_SILENT = {"canvas", "iframe", "noscript", "object", "script", "style", "svg", "template", "title"}
_VOID_TAGS = "area base br col embed hr img input link meta param source track wbr"
_BLOCK_TAGS = """
    address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
    header hr legend li main nav ol p pre section summary table tr ul
"""
_VOID = frozenset(_VOID_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_SPACED = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "table", "ul", "ol", "dl"}
_CELLS = {"td", "th"}
# End tags that authors leave out: the tag on the left closes those on the right.
_ENDS = {
    **{block: {"p"} for block in _BLOCKS},
    "li": {"li", "p"},
    "dt": {"dt", "dd", "p"},
    "dd": {"dt", "dd", "p"},
    "tr": {"tr", "td", "th", "p"},
    "td": {"td", "th", "p"},
    "th": {"td", "th", "p"},
}
_HIDING_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:opacity|font-size)\s*:\s*0(?![.\d]*[1-9])",
    re.IGNORECASE,
)
_SPACE = re.compile(r"[ \t\n\r\f]+")
_SPACE_AT_LINE_END = re.compile(r"[ \t]+\n")
_GAP = re.compile(r"\n{3,}")
_SPACES = " \t\n"
_OPENERS: dict[str, Callable[[TextWriter], None]] = {
    "table": TextWriter.open_table,
    "tr": TextWriter.open_row,
    **dict.fromkeys(_CELLS, TextWriter.open_cell),
}


def html_parts(data: bytes) -> Iterator[Part]:
    yield Part(html_text(decode(data)))


def html_text(page: str) -> str:
    """Return the text that a reader of the page would see: no scripts, no styles, nothing hidden.

    Hidden text is a way to give orders to a model.
    """
    reader = _Reader()
    # After the last ">" no tag ends, and what looks like one is text. The parser would look for its end from each "<".
    end = page.rfind(">") + 1
    reader.feed(page[:end] + page[end:].replace("<", "&lt;"))
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._writer = TextWriter()
        self._open: list[tuple[str, bool, int]] = []  # tag, whether it hides its content, columns of a cell
        self._counted: Counter[str] = Counter()  # open tags, so that an end tag without a start costs no search
        self._hiding = 0

    def text(self) -> str:
        while self._open:
            self._pop()
        return _GAP.sub("\n\n", _SPACE_AT_LINE_END.sub("\n", self._writer.text())).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        while self._open and self._open[-1][0] in _ENDS.get(tag, ()):
            self._pop()
        self._break(tag)
        if tag in _VOID:
            return
        hides = tag in _SILENT or _is_hidden(attrs)
        self._open.append((tag, hides, _columns(attrs) if tag in _CELLS else 1))
        self._counted[tag] += 1
        self._hiding += hides
        if tag in _OPENERS:
            _OPENERS[tag](self._writer)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<div/>` opens a div, as it does in a browser."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._counted[tag]:
            while self._pop() != tag:
                pass
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._hiding:
            return
        if self._counted["pre"]:
            self._writer.write(data)
            return
        line = _SPACE.sub(" ", data)
        self._writer.write(line.lstrip(" ") if self._writer.last in _SPACES else line)

    def _pop(self) -> str:
        tag, hides, columns = self._open.pop()
        self._counted[tag] -= 1
        self._hiding -= hides
        if tag in _CELLS:
            self._writer.close_cell(columns)
        elif tag == "table":
            self._writer.close_table()
        return tag

    def _break(self, tag: str) -> None:
        if self._hiding:
            return
        if tag == "br":
            self._writer.write("\n")
        elif tag in _SPACED:
            self._writer.write("\n\n")
        elif tag in _BLOCKS and self._writer.last != "\n":
            self._writer.write("\n")


def _columns(attrs: list[tuple[str, str | None]]) -> int:
    given = dict(attrs).get("colspan") or ""
    return min(int(given[:9]), MAX_SPAN) if given.isdecimal() else 1


def _is_hidden(attrs: list[tuple[str, str | None]]) -> bool:
    given = dict(attrs)
    return "hidden" in given or _HIDING_STYLE.search(given.get("style") or "") is not None
