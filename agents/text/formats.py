"""The text of HTML, PDF and DOCX documents, and the limits on how much of a document is read.

Each limit is checked before the work that it bounds. The parsers run in the subprocess of extraction.py; this module
must not import anything that needs settings.
"""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from agents.exceptions import Invalid

# --- Limits ---

MAX_BYTES = 20_000_000
MAX_CHARS = 5_000_000

MAX_PAGES = 2_000

# The archive inside a DOCX, as its directory declares it.
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 64_000_000
# An element takes far more memory than its few bytes of markup.
MAX_ELEMENTS = 2_000_000

# The subprocess.
MAX_SECONDS = {"html": 10, "docx": 30, "pdf": 60}
MAX_MEMORY_BYTES = 600_000_000
# How many run at once for one process of lqops, and how long the next one waits.
MAX_READERS = 2
MAX_WAIT_SECONDS = 60


# --- HTML ---


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


def html_text(page: str) -> str:
    """Return the text that a reader of the page would see: no scripts, no styles, nothing hidden.

    Hidden text is a way to give orders to a model.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[tuple[str, bool]] = []  # tag, and whether it hides its content
        self._counted: Counter[str] = Counter()  # open tags, so that an end tag without a start costs no search
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
            self._write(data)
            return
        line = _SPACE.sub(" ", data)
        self._write(line.lstrip(" ") if self._ends_in_space else line)

    def _pop(self) -> str:
        tag, hides = self._open.pop()
        self._counted[tag] -= 1
        self._hiding -= hides
        return tag

    def _break(self, tag: str) -> None:
        if self._hiding:
            return
        if tag == "br":
            self._write("\n")
        elif tag in _SPACED:
            self._write("\n\n")
        elif tag in _BLOCKS and self._out and not self._out[-1].endswith("\n"):
            self._write("\n")
        elif tag in _CELLS and not self._ends_in_space:
            self._write("\t")

    def _write(self, piece: str) -> None:
        if piece:
            self._out.append(piece)
            self._ends_in_space = piece[-1] in " \t\n"


def _is_hidden(attrs: list[tuple[str, str | None]]) -> bool:
    given = dict(attrs)
    return "hidden" in given or _HIDING_STYLE.search(given.get("style") or "") is not None


# --- PDF ---


_PASSWORD = "The PDF is protected by a password. Save it without one."  # noqa: S105 a sentence about one


def pdf_text(data: bytes) -> str:
    """Return the text page by page, with an empty line between pages."""
    from pypdf import PdfReader  # optional, like python-docx below

    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Invalid(_PASSWORD)
    pages = len(reader.pages)
    if pages > MAX_PAGES:
        raise Invalid(f"The PDF has {pages:,} pages; at most {MAX_PAGES:,} are read. Split it.")
    texts, chars = [], 0
    for page in reader.pages:
        texts.append(page.extract_text().strip())
        chars += len(texts[-1])
        if chars > MAX_CHARS:
            raise Invalid(f"The PDF has more than {MAX_CHARS:,} characters of text, the most that is read. Split it.")
    return "\n\n".join(text for text in texts if text)


# --- DOCX ---


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TEXT = f"{_W}t"
_PARAGRAPH = f"{_W}p"
_CELL = f"{_W}tc"
_ROW = f"{_W}tr"
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Deleted, moved elsewhere, repeated for older programs, or about the layout.
_LEFT_OUT = {
    *(f"{_W}{name}" for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "tblPr", "trPr", "tcPr", "sectPr")),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}
_NOTES = ("/footnotes", "/endnotes")


def docx_text(data: bytes) -> str:
    """Return the text with all tracked changes accepted, with tables, content controls and notes.

    The elements themselves are walked: python-docx's paragraphs leave out insertions and content controls, which
    contracts under negotiation consist of.
    """
    import docx

    _check_markup(data)
    document = docx.Document(io.BytesIO(data))
    parts = [document.element.body, *_notes(document)]
    return "\n\n".join(text for part in parts if (text := _text(part)))


def _notes(document: Any) -> Iterator[Any]:
    from docx.oxml import parse_xml

    for relation in document.part.rels.values():
        if not relation.is_external and relation.reltype.endswith(_NOTES):
            yield parse_xml(relation.target_part.blob)


def _text(root: Any) -> str:
    """Cells end in a tab, rows and paragraphs in a line break; a paragraph that ends a cell does not."""
    from lxml import etree  # type: ignore[import-untyped]

    out: list[str] = []
    walk = etree.iterwalk(root, events=("start", "end"))  # holds one element at a time, however many there are
    for event, element in walk:
        if event == "end":
            _end_element(element, out)
        elif element.tag in _LEFT_OUT:
            walk.skip_subtree()
        elif piece := element.text if element.tag == _TEXT else _SIGNS.get(element.tag):
            out.append(piece)
    lines = (line.rstrip() for line in "".join(out).split("\n"))
    return "\n".join(lines).strip()


def _end_element(element: Any, out: list[str]) -> None:
    if element.tag == _PARAGRAPH:
        is_in_cell = element.getparent() is not None and element.getparent().tag == _CELL
        out.append(" " if is_in_cell else "\n")
    elif element.tag == _CELL:
        if out and out[-1] == " ":
            out.pop()
        out.append("\t")
    elif element.tag == _ROW:
        out.append("\n")


_ENTRY = b"PK\x01\x02"  # begins each entry of the directory
_PIECE = 1_048_576


def check_archive(data: bytes) -> None:
    """Check the archive inside a DOCX by its directory, before anything is unpacked.

    No reader unpacks more of a file than it declares, so the declared sizes are the bound.
    """
    entries = data.count(_ENTRY)  # before the directory is read, since reading a huge one takes time
    if entries > MAX_ENTRIES:
        raise Invalid(
            f"The document's archive has {entries:,} entries; at most {MAX_ENTRIES:,} are read. Save it again."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeDecodeError):
        raise Invalid("The document's archive is damaged. Save it again.") from None
    unpacked = sum(entry.file_size for entry in listed)
    if unpacked > MAX_UNPACKED_BYTES:
        raise Invalid(
            f"The document would unpack to {unpacked:,} bytes; at most {MAX_UNPACKED_BYTES:,} are read. Split it."
        )


def _check_markup(data: bytes) -> None:
    """Count the elements in every entry: only the document itself says which of them hold markup."""
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
