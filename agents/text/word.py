"""The text of a DOCX as it reads with all tracked changes accepted, with its tables, content controls and notes.

The paragraphs that python-docx offers leave out insertions and content controls; a contract under negotiation is made
of them. So the elements themselves are walked.
"""

import io
from collections.abc import Iterator
from typing import Any

import docx
from docx.oxml import parse_xml
from docx.oxml.ns import qn
from lxml import etree  # type: ignore[import-untyped]

_TEXT, _PARAGRAPH, _CELL, _ROW = (qn(f"w:{name}") for name in ("t", "p", "tc", "tr"))
_SIGNS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
# Deleted, moved elsewhere, said again for older programs, or about the layout
_LEFT_OUT = {
    *(qn(f"w:{name}") for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "tblPr", "trPr", "tcPr", "sectPr")),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}
_NOTES = ("/footnotes", "/endnotes")


def docx_text(data: bytes) -> str:
    document = docx.Document(io.BytesIO(data))
    parts = [document.element.body, *_notes(document)]
    return "\n\n".join(text for part in parts if (text := _text(part)))


def _notes(document: Any) -> Iterator[Any]:
    for relation in document.part.rels.values():
        if not relation.is_external and relation.reltype.endswith(_NOTES):
            yield parse_xml(relation.target_part.blob)


def _text(root: Any) -> str:
    """Cells end in a tab, rows and paragraphs in a new line; a paragraph that ends a cell does not break its row."""
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
