"""The text of an HTML page that a reader of the page would see: no scripts, no styles, nothing that is hidden.

Text that is hidden from people and shown to a model is a way to give it orders; it is left out.
"""

import re
from collections import Counter
from html.parser import HTMLParser

_SILENT = {"canvas", "iframe", "noscript", "object", "script", "style", "svg", "template", "title"}
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "legend", "li", "main", "nav", "ol",
    "p", "pre", "section", "summary", "table", "tr", "ul",
}  # fmt: skip
_SPACED = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "table", "ul", "ol", "dl"}
_CELLS = {"td", "th"}
# End tags that authors leave out: what opens on the left ends what stands on the right.
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


def visible_text(page: str) -> str:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[tuple[str, bool]] = []  # tag, and whether it hides what is in it
        self._counted: Counter[str] = Counter()  # so that an end tag without a start costs no search
        self._hiding = 0
        self._ends_in_space = True

    def text(self) -> str:
        return _GAP.sub("\n\n", _SPACE_AT_LINE_END.sub("\n", "".join(self._out))).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        while self._open and self._open[-1][0] in _ENDS.get(tag, ()):
            self._pop()
        self._break(tag)
        if tag in _VOID:
            return
        hides = tag in _SILENT or _is_hidden(attrs)
        self._open.append((tag, hides))
        self._counted[tag] += 1
        self._hiding += hides

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<div/>` opens a div in HTML, as it does in a browser; what is void anyway ends itself."""
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
            self._say(data)
            return
        line = _SPACE.sub(" ", data)
        self._say(line.lstrip(" ") if self._ends_in_space else line)

    def _pop(self) -> str:
        tag, hides = self._open.pop()
        self._counted[tag] -= 1
        self._hiding -= hides
        return tag

    def _break(self, tag: str) -> None:
        if self._hiding:
            return
        if tag == "br":
            self._say("\n")
        elif tag in _SPACED:
            self._say("\n\n")
        elif tag in _BLOCKS:
            self._say("" if self._at_line_start() else "\n")
        elif tag in _CELLS and not self._ends_in_space:
            self._say("\t")

    def _at_line_start(self) -> bool:
        return not self._out or self._out[-1].endswith("\n")

    def _say(self, piece: str) -> None:
        if piece:
            self._out.append(piece)
            self._ends_in_space = piece[-1] in " \t\n"


def _is_hidden(attrs: list[tuple[str, str | None]]) -> bool:
    given = dict(attrs)
    return "hidden" in given or _HIDING_STYLE.search(given.get("style") or "") is not None
