"""DOCX, PPTX, ODT and XLSX: archives of XML. The first three are read as streams, without a tree in memory."""

import datetime as dt
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.exceptions import Invalid
from agents.text.formats.archives import Attributes, Package
from agents.text.formats.kinds import PASSWORD
from agents.text.formats.limits import MAX_ROWS
from agents.text.formats.tables import MAX_SPAN, TextWriter, bounded_rows, table_text
from agents.text.marks import Part

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_T = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_O = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SPACES = re.compile(r"[ \t\r\n]+")
_SPACE_AT_LINE_END = re.compile(r"[ \t]+\n")
_GAP = re.compile(r"\n{3,}")


def _named(namespace: str, names: str) -> frozenset[str]:
    return frozenset(f"{namespace}{name}" for name in names.split())


@dataclass(frozen=True)
class Markup:
    """Which elements of a kind of XML hold text, end a paragraph, make a table, or are left out with all inside."""

    text: frozenset[str]
    paragraphs: frozenset[str]
    signs: Mapping[str, str]
    table: str
    row: str
    cells: frozenset[str]
    left_out: frozenset[str]
    span: tuple[str, str] = ("", "")  # the element inside a cell, or the cell itself, and its attribute
    ends: Mapping[str, str] = field(default_factory=dict)  # what is written at the end of an element
    repeated: str = ""  # the attribute of a cell that stands for several equal ones
    hidden: tuple[str, str] = ("", "")  # the element that hides the run that holds it, and the run


_DOCX = Markup(
    text=_named(_W, "t"),
    paragraphs=_named(_W, "p"),
    signs={f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"},
    table=f"{_W}tbl",
    row=f"{_W}tr",
    cells=_named(_W, "tc"),
    # Deleted, moved elsewhere, about the layout, or repeated for older programs.
    left_out=_named(_W, "del moveFrom pPr sdtPr tblPr trPr sectPr") | {_FALLBACK},
    span=(f"{_W}gridSpan", f"{_W}val"),
    hidden=(f"{_W}vanish", f"{_W}r"),
)
_PPTX = Markup(
    text=_named(_A, "t"),
    paragraphs=_named(_A, "p"),
    signs={f"{_A}br": "\n", f"{_A}tab": "\t"},
    table=f"{_A}tbl",
    row=f"{_A}tr",
    cells=_named(_A, "tc"),
    left_out=_named(_A, "fld pPr") | {_FALLBACK},  # fields are page numbers and dates
)
_ODT = Markup(
    text=_named(_T, "p h"),  # with everything inside
    paragraphs=_named(_T, "p h"),
    signs={f"{_T}tab": "\t", f"{_T}line-break": "\n", f"{_T}s": " ", f"{_T}note": " (note: "},
    ends={f"{_T}note": ")"},
    table=f"{_TABLE}table",
    row=f"{_TABLE}table-row",
    cells=_named(_TABLE, "table-cell covered-table-cell"),
    left_out=_named(_T, "tracked-changes note-citation sequence-decls") | _named(_O, "annotation forms"),
    repeated=f"{_TABLE}number-columns-repeated",
)


class _Reader:
    """A parser target that writes the text of one part."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._writer = TextWriter()
        self._in_text = 0
        self._left_out = 0  # depth inside of what is left out
        self._spans: list[int] = []  # of the open cells
        self._is_hidden = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        markup = self._markup
        if self._left_out or tag in markup.left_out:
            self._left_out += 1
        elif tag in markup.text:
            self._in_text += 1
        elif tag == markup.table:
            self._writer.open_table()
        elif tag == markup.row:
            self._writer.open_row()
        elif tag in markup.cells:
            self._writer.open_cell()
            self._spans.append(_count(attributes.get(markup.repeated)))
        elif sign := markup.signs.get(tag):
            self._write(sign * _count(attributes.get(f"{_T}c")))
        elif tag == markup.span[0] and self._spans:
            self._spans[-1] = _count(attributes.get(markup.span[1]))
        elif tag == markup.hidden[0] and attributes.get(f"{_W}val") not in {"0", "false"}:
            self._is_hidden = True

    def end(self, tag: str) -> None:
        markup = self._markup
        if self._left_out:
            self._left_out -= 1
            return
        if tag in markup.text:
            self._in_text -= 1
        if tag in markup.paragraphs:
            self._writer.write("" if self._in_text else "\n")  # a note stands inside its paragraph
        elif tag == markup.table:
            self._writer.close_table()
        elif tag in markup.cells:
            self._writer.close_cell(self._spans.pop())
        elif tag == markup.hidden[1]:
            self._is_hidden = False
        else:
            self._write(markup.ends.get(tag, ""))

    def data(self, text: str) -> None:
        if self._in_text and not self._left_out:
            self._write(text if self._markup is not _ODT else _SPACES.sub(" ", text))

    def close(self) -> str:
        text = _SPACE_AT_LINE_END.sub("\n", self._writer.text())
        return _GAP.sub("\n\n", text).strip()

    def _write(self, text: str) -> None:
        if not self._is_hidden:
            self._writer.write(text)


def _count(value: str | None) -> int:
    return min(int(value), MAX_SPAN) if value and value.isdecimal() and int(value[:9]) > 0 else 1


# --- DOCX ---

_NOTES = ("/footnotes", "/endnotes")


def docx_parts(data: bytes) -> Iterator[Part]:
    """Return the text with all tracked changes accepted, with tables, content controls and notes."""
    package = Package(data)
    main = package.main_part()
    notes = [relation.target for relation in package.relations(main) if relation.kind.endswith(_NOTES)]
    for name in [main, *notes]:
        yield Part(package.parse(name, _Reader(_DOCX)))


# --- PPTX ---


def pptx_parts(data: bytes) -> Iterator[Part]:
    """Return the slides in their order, each with its notes. Hidden slides are left out."""
    package = Package(data)
    main = package.main_part()
    slides = {relation.id: relation.target for relation in package.relations(main)}
    listed = package.parse(main, Attributes(f"{_P}sldId"))
    for number, attributes in enumerate(listed, 1):
        name = slides.get(attributes.get(f"{_R}id", ""))
        if name is None or _is_hidden_slide(package, name):
            continue
        texts = list(filter(None, [package.parse(name, _Reader(_PPTX)), *_slide_notes(package, name)]))
        if texts:
            yield Part("\n\n".join([f"# Slide {number}", *texts]), f"slide {number}")


def _slide_notes(package: Package, name: str) -> Iterator[str]:
    for relation in package.relations(name):
        if relation.kind.endswith("/notesSlide") and (notes := package.parse(relation.target, _Reader(_PPTX))):
            yield f"Notes:\n{notes}"


def _is_hidden_slide(package: Package, name: str) -> bool:
    return any(one.get("show") in {"0", "false"} for one in package.parse(name, Attributes(f"{_P}sld")))


# --- ODT ---

_MANIFEST = "META-INF/manifest.xml"
_CONTENT = "content.xml"


def odt_parts(data: bytes) -> Iterator[Part]:
    """Return the text with all tracked changes accepted, with tables and notes."""
    package = Package(data)
    if b"encryption-data" in package.read(_MANIFEST):
        raise Invalid(PASSWORD)
    yield Part(package.parse(_CONTENT, _Reader(_ODT)))


# --- XLSX ---

_FIGURES = ".15g"  # what a spreadsheet shows at most


def xlsx_parts(data: bytes) -> Iterator[Part]:
    """Return the sheets with the values that were last computed. Hidden sheets are left out."""
    import openpyxl

    Package(data)  # counts its elements
    with warnings.catch_warnings():  # of features that are not read
        warnings.simplefilter("ignore")
        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        for sheet in workbook.worksheets:
            sheet.reset_dimensions()  # a sheet may declare any size
            rows = bounded_rows(_cells(row) for row in sheet.iter_rows(max_row=MAX_ROWS))
            text = table_text(list(rows)) if sheet.sheet_state == "visible" else ""
            if text:
                yield Part(f"# Sheet {sheet.title}\n\n{text}", f"sheet {sheet.title}")


def _cells(row: tuple[Any, ...]) -> list[str]:
    texts = [_cell_text(cell) for cell in row]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _cell_text(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return f"{100 * value:.10g}%" if "%" in (cell.number_format or "") else f"{value:{_FIGURES}}"
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(" ", "seconds")
    return str(value).strip()
