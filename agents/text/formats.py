"""The text of an HTML page that a reader of the page would see: no scripts, no styles, nothing that is hidden.

Text that is hidden from people and shown to a model is a way to give it orders; it is left out.
"""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from agents.exceptions import Invalid

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


# --- How much of a document is taken. Each limit is checked before the work that it bounds ---


MAX_BYTES = 20_000_000
MAX_CHARS = 5_000_000

# PDF
MAX_PAGES = 2_000

# The archive inside a DOCX, by what its directory declares
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 64_000_000
# An element takes far more memory than the few bytes that it is written in.
MAX_ELEMENTS = 2_000_000
MAX_RATIO = 100
# Small files may be packed as tightly as they like: blank forms are.
RATIO_FREE_BYTES = 2_000_000

# The process that reads what has a structure
MAX_SECONDS = {"html": 10, "docx": 30, "pdf": 60}
MAX_MEMORY_BYTES = 600_000_000
# How many of them run at once for one process of lqops, and how long the next one waits for its turn
MAX_READERS = 2
MAX_WAIT_SECONDS = 60


# Judges the archive inside a DOCX: by its directory before anything in it is unpacked, then by its markup, unread.
#
# A packed file may declare little and hold much, but no reader unpacks more of it than it declares: the declared
# sizes are the bound.


_ENTRY = b"PK\x01\x02"  # begins each entry of the directory
_PIECE = 1_048_576


def check_archive(data: bytes) -> None:
    entries = data.count(_ENTRY)  # before the directory is read: reading a huge one is work of its own
    if entries > MAX_ENTRIES:
        raise Invalid(
            f"The document's archive has {entries:,} entries; at most {MAX_ENTRIES:,} are taken. Save it anew."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeDecodeError):
        raise Invalid("The document's archive is damaged. Save it anew.") from None
    unpacked = sum(entry.file_size for entry in listed)
    if unpacked > MAX_UNPACKED_BYTES:
        raise Invalid(
            f"The document would unpack to {unpacked:,} bytes; at most {MAX_UNPACKED_BYTES:,} are taken. Split it."
        )
    if unpacked > max(RATIO_FREE_BYTES, MAX_RATIO * len(data)):
        raise Invalid(
            f"The document would unpack to {unpacked // len(data):,} times its size; at most {MAX_RATIO} times is "
            "taken. Save it anew, or as PDF."
        )


def check_markup(data: bytes) -> None:
    """Counts what opens an element, in every entry: which of them hold markup is for the document itself to say."""
    elements = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as unpacked:
                while piece := unpacked.read(_PIECE):
                    elements += piece.count(b"<") - piece.count(b"</")
                    if elements > MAX_ELEMENTS:
                        raise Invalid(
                            f"The document has more than {MAX_ELEMENTS:,} elements. Split it, or save it as PDF."
                        )


# --- The text of a PDF, page by page. Pages are set apart by an empty line ---


_PASSWORD = "The PDF is protected by a password. Save it without one."  # noqa: S105 a sentence about one


def pdf_text(data: bytes) -> str:
    from pypdf import PdfReader  # an extra, like python-docx below

    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Invalid(_PASSWORD)
    pages = len(reader.pages)
    if pages > MAX_PAGES:
        raise Invalid(f"The PDF has {pages:,} pages; at most {MAX_PAGES:,} are taken. Split it.")
    texts, chars = [], 0
    for page in reader.pages:
        texts.append(page.extract_text().strip())
        chars += len(texts[-1])
        if chars > MAX_CHARS:
            raise Invalid(f"The PDF has more than {MAX_CHARS:,} characters of text, which is the most taken. Split it.")
    return "\n\n".join(text for text in texts if text)


# The text of a DOCX as it reads with all tracked changes accepted, with its tables, content controls and notes.
#
# The paragraphs that python-docx offers leave out insertions and content controls; a contract under negotiation is
# made of them. So the elements themselves are walked.


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TEXT, _PARAGRAPH, _CELL, _ROW = (f"{_W}{name}" for name in ("t", "p", "tc", "tr"))
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Deleted, moved elsewhere, said again for older programs, or about the layout
_LEFT_OUT = {
    *(f"{_W}{name}" for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "tblPr", "trPr", "tcPr", "sectPr")),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}
_NOTES = ("/footnotes", "/endnotes")


def docx_text(data: bytes) -> str:
    import docx

    document = docx.Document(io.BytesIO(data))
    parts = [document.element.body, *_notes(document)]
    return "\n\n".join(text for part in parts if (text := _text(part)))


def _notes(document: Any) -> Iterator[Any]:
    from docx.oxml import parse_xml

    for relation in document.part.rels.values():
        if not relation.is_external and relation.reltype.endswith(_NOTES):
            yield parse_xml(relation.target_part.blob)


def _text(root: Any) -> str:
    """Cells end in a tab, rows and paragraphs in a new line; a paragraph that ends a cell does not break its row."""
    from lxml import etree  # type: ignore[import-untyped]

    out: list[str] = []
    walk = etree.iterwalk(root, events=("start", "end"))  # holds one element at a time, however many there are
    for event, element in walk:
        if event == "end":
            _leave(element, out)
        elif element.tag in _LEFT_OUT:
            walk.skip_subtree()
        else:
            out.extend(_own(element))
    lines = (line.rstrip() for line in "".join(out).split("\n"))
    return "\n".join(lines).strip()


def _own(element: Any) -> list[str]:
    if element.tag == _TEXT and element.text:
        return [element.text]
    sign = _SIGNS.get(element.tag)
    return [sign] if sign else []


def _leave(element: Any, out: list[str]) -> None:
    if element.tag == _PARAGRAPH:
        is_in_cell = element.getparent() is not None and element.getparent().tag == _CELL
        out.append(" " if is_in_cell else "\n")
    elif element.tag == _CELL:
        if out and out[-1] == " ":
            out.pop()
        out.append("\t")
    elif element.tag == _ROW:
        out.append("\n")
