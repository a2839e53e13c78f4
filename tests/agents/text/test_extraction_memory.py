"""Limits on elements, memory and documents that are read at once."""

import os
import re
import subprocess
import sys
import threading

import pytest

from agents.exceptions import Invalid
from agents.text import extraction
from agents.text.extraction import extract
from agents.text.formats import limits, tables
from tests.agents.knowledge.samples import docx_with_body, make_pdf, with_part
from tests.agents.text.files import eml_of, msg_of, odt_of, pptx_of, xlsx_of
from tests.agents.text.reading import extract_here

MB = 1_000_000
SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
ASK = """
import resource, sys
from agents.text.no_database import stand_in
stand_in()
from agents.exceptions import Invalid
from agents.text.extraction import extract
try:
    said = len(extract(sys.stdin.buffer.read(), name=sys.argv[1]).text)
except Invalid as refusal:
    said = refusal
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, said)
"""


def read_elsewhere(data, name="a.docx"):
    """What reading it came to, and how much memory the process that read it held at most."""
    command = [sys.executable, "-c", ASK, name]
    done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=120)
    held, _, said = done.stdout.decode().strip().partition(" ")
    return int(held), said


def padded(docx):
    """With so many random bytes beside it that the archive is not packed too tightly."""
    return with_part(docx, "word/media/image1.bin", os.urandom(700_000))


def test_a_small_file_of_too_many_elements_is_refused_in_little_memory():
    bomb = padded(docx_with_body("<w:p/>" * 2_000_001))
    assert len(bomb) < MB

    held, said = read_elsewhere(bomb)

    assert "more than 2,000,000 elements" in said
    assert held < 250 * MB


@pytest.mark.long
def test_the_most_elements_that_are_read_fit_into_the_memory():
    # A sixth of the greatest number keeps the test short; memory grows with the number.
    held, said = read_elsewhere(
        padded(docx_with_body("<w:p/>" * (limits.MAX_ELEMENTS // 6) + "<w:p><w:r><w:t>x</w:t></w:r></w:p>"))
    )

    assert said == "1"
    assert held < limits.MAX_MEMORY_BYTES / 4


def with_rows(rows):
    sheet = f'<worksheet xmlns="{SPREADSHEET}"><sheetData>{rows}</sheetData></worksheet>'
    return with_part(xlsx_of({"S": [["a"]]}), "xl/worksheets/sheet1.xml", sheet)


CELL = '<row r="{0}"><c r="XFD{0}"><v>1</v></c></row>'


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.csv", lambda: b"x" * 19 * MB, "field larger than"),
        ("a.csv", lambda: b"abcdefgh,ijklmnop\n" * (MB // 2), "more than 5,000,000 characters"),
        ("a.csv", lambda: b"," * 19 * MB, "more than 5,000,000 cells"),
        ("a.csv", lambda: b"a\n" * 1_048_577, "more than 1,048,576 rows"),
        ("a.xlsx", lambda: with_rows("".join(map(CELL.format, range(1, 2_000)))), "more than 5,000,000 cells"),
        ("a.xlsx", lambda: with_rows(CELL.format(999_999_999_999)), "holds no text"),
        ("a.odt", lambda: odt_of("<text:p>x</text:p>" * 3 * MB), "more than 2,000,000 elements"),
        ("a.odt", lambda: odt_of("<text:p>" + "x" * 6 * MB + "</text:p>"), "more than 5,000,000 characters"),
        ("a.odt", lambda: odt_of("<table:table><table:table-row><table:table-cell>" * 20_000), "damaged"),
        ("a.pptx", lambda: pptx_of(["<p:sp>" * 50_000 + "</p:sp>" * 50_000]), "holds no text"),
        ("a.html", lambda: b"<table><tr><td>" * 20_000, "holds no text"),
        ("a.rtf", lambda: b"{\\rtf1" + b"{" * 19 * MB, "nested more than 1,000 deep"),
        ("a.pdf", lambda: b"%PDF-1.4\n" + b"1 0 obj\n" * MB + b"%%EOF", "could not be read as PDF"),
        ("a.msg", lambda: msg_of()[:1_024] + os.urandom(10 * MB), "MSG|old Office"),
        ("a.eml", lambda: eml_of("--e\r\n\r\n" * 1_000, kind='multipart/mixed; boundary="e"', attachments=()), None),
    ],
    ids=[
        "csv field", "csv text", "csv cells", "csv rows", "wide sheet", "last row", "paragraphs", "text",
        "nested tables", "nested shapes", "html tables", "rtf groups", "pdf objects", "msg rubbish", "eml parts",
    ],
)  # fmt: skip
def test_hostile_files_are_read_or_refused_in_bounded_memory(name, data, says):
    held, said = read_elsewhere(data(), name)

    assert says is None or re.search(says, said), said
    assert held < limits.MAX_MEMORY_BYTES / 2


def test_a_table_of_too_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr(tables, "MAX_ROWS", 3)
    assert extract_here(b"a\n" * 3, name="a.csv").text.count("a") == 3
    with pytest.raises(Invalid, match="more than 3 rows"):
        extract_here(b"a\n" * 4, name="a.csv")


def test_elements_are_counted_in_every_part_whatever_it_is_called():
    bomb = padded(with_part(docx_with_body("<w:p/>"), "word/other.bin", "<a/>" * (limits.MAX_ELEMENTS + 1)))

    with pytest.raises(Invalid, match="elements"):
        extract(bomb, name="a.docx")


def test_a_document_waits_for_a_reader_for_a_bounded_time(monkeypatch):
    turns = threading.BoundedSemaphore(1)
    monkeypatch.setattr(extraction, "_slots", turns)
    monkeypatch.setattr(extraction, "MAX_WAIT_SECONDS", 0.05)
    page = make_pdf("words")

    with turns, pytest.raises(Invalid, match="Other documents have been read"):
        extract(page, name="a.pdf")

    assert extract(page, name="a.pdf").text == "words"


def test_a_document_that_cannot_be_read_frees_its_reader(monkeypatch):
    monkeypatch.setattr(extraction, "_slots", threading.BoundedSemaphore(1))
    monkeypatch.setattr(extraction, "MAX_WAIT_SECONDS", 0.05)

    for _ in range(2):
        with pytest.raises(Invalid, match="cut off"):
            extract(b"%PDF-1.4 nothing of the kind", name="a.pdf")
