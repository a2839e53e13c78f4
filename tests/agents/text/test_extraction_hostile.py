"""Hostile documents: bombs are refused before they are unpacked; any bytes give a text or Invalid."""

import struct
import time
import tracemalloc
import zlib
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.exceptions import Invalid
from agents.text import extraction, formats
from agents.text.extraction import extract
from agents.text.formats import MAX_CHARS
from tests.agents.knowledge.samples import W, docx_of, docx_with_body, make_pdf, with_part, zip_of

docx = pytest.importorskip("docx")
pytest.importorskip("pypdf")

MB = 1_000_000


@contextmanager
def little_memory():
    """What is allocated in between stays below 50 MB; the bomb itself was made before."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 50 * MB
    finally:
        tracemalloc.stop()


def refused_fast(data, says, name="a.docx"):
    started = time.process_time()
    with little_memory(), pytest.raises(Invalid, match=says):
        extract(data, name=name)
    assert time.process_time() - started < 1


def unpacks_nothing(monkeypatch):
    monkeypatch.setattr("zipfile.ZipFile.open", lambda *args, **more: pytest.fail("something was unpacked"))
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", lambda *args: pytest.fail("a reader was started"))


def test_a_docx_that_unpacks_to_too_much_is_refused(monkeypatch):
    parts = {"word/document.xml": b"<x/>"} | {f"word/{number}.bin": bytes(16 * MB) for number in range(4)}
    bomb = zip_of(parts)
    unpacks_nothing(monkeypatch)
    refused_fast(bomb, "would unpack to 64,000,004 bytes; at most 64,000,000")


def test_a_docx_of_too_many_entries_is_refused_before_reading(monkeypatch):
    bomb = zip_of({"word/document.xml": b"<x/>"} | {f"{number}": b"" for number in range(3_000)})
    monkeypatch.setattr(formats.zipfile, "ZipFile", lambda *args: pytest.fail("the directory was read"))
    refused_fast(bomb, "3,001 entries; at most 2,000")


def test_entries_that_share_their_bytes_are_counted_one_by_one(monkeypatch):
    """The directory of an archive may name the same packed bytes many times."""
    plain = zip_of({"word/document.xml": bytes(MB)})
    start = plain.index(b"PK\x01\x02")
    end = plain.index(b"PK\x05\x06")
    entry, times = plain[start:end], 1_000
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, times, times, len(entry) * times, start, 0)
    unpacks_nothing(monkeypatch)
    refused_fast(plain[:start] + entry * times + tail, "would unpack to 1,000,000,000 bytes")


def test_an_entry_that_declares_less_than_it_holds_is_refused():
    document = docx_with_body("<w:p><w:r><w:t>" + "words " * 100_000 + "</w:t></w:r></w:p>")
    place = document.rindex(b"PK\x01\x02", 0, document.rindex(b"word/document.xml"))
    lying = bytearray(document)
    lying[place + 24 : place + 28] = struct.pack("<L", 10)
    with pytest.raises(Invalid, match="could not be read as DOCX"):
        extract(bytes(lying), name="a.docx")


def test_an_archive_that_is_no_docx_is_refused_unopened(monkeypatch):
    bomb = zip_of({"xl/workbook.xml": bytes(10 * MB)})
    unpacks_nothing(monkeypatch)
    refused_fast(bomb, "an archive, not a DOCX", name="a.xlsx")


def test_an_archive_without_a_directory_is_refused():
    with pytest.raises(Invalid, match="archive is damaged"):
        extract(b"PK\x03\x04 word/document.xml", name="a.docx")


def test_a_tightly_packed_small_docx_is_read():
    blank = docx_with_body("<w:p><w:r><w:t>" + "a" * 1_500_000 + "</w:t></w:r></w:p>")
    assert len(blank) * 30 < 1_500_000
    assert len(extract(blank, name="a.docx").text) == 1_500_000


def test_entities_of_a_docx_are_not_expanded():
    entities = '<!DOCTYPE w [<!ENTITY a "grown"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    body = "<w:body><w:p><w:r><w:t>words &b;</w:t></w:r></w:p></w:body>"
    content = f'{entities}<w:document xmlns:w="{W}">{body}</w:document>'
    bomb = with_part(docx_of(docx.Document()), "word/document.xml", content)

    assert extract(bomb, name="a.docx").text == "words"


def test_a_pdf_that_expands_without_end_is_refused_in_its_subprocess():
    grown = zlib.compress(b" " * 100 * MB, 1)
    page = make_pdf("x")
    place = page.index(b"11 0 obj")
    stream = b"11 0 obj\n<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream\nendobj\n" % (len(grown), grown)
    bomb = page[:place] + stream + page[place:].partition(b"endobj\n")[2]
    with little_memory(), pytest.raises(Invalid):
        extract(bomb, name="a.pdf")


# --- Any bytes at all ---

SEEDS = [
    b"%PDF-1.4\n",
    b"PK\x03\x04word/document.xml",
    b"<html>",
    b"\xff\xfe",
    b"\x00\x00\xfe\xff",
    b"{\\rtf",
    b"\x1f\x8b",
]
NAMES = st.sampled_from(["a.txt", "a.md", "a.html", "a.pdf", "a.docx", "", "a"])


def read_here(data, kind):
    """As the reader's process answers, without the process: many more examples in the same time."""
    answer = extraction.answer(kind, data)
    if "refused" in answer:
        raise Invalid(answer["refused"])
    return answer["text"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.sampled_from([b"", *SEEDS]), rest=st.binary(max_size=2_000), name=NAMES)
@example(start=b"<html>", rest=b"<![x[", name="a.html")
@example(start=b"PK\x05\x06", rest=bytes(18) + b"word/document", name="a.docx")
def test_any_bytes_are_read_or_refused(monkeypatch, start, rest, name):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    try:
        text = extract(start + rest, name=name).text
    except Invalid:
        pass
    else:
        assert text.strip()
        assert len(text) <= MAX_CHARS
        assert "\r" not in text
        assert "\x00" not in text
        text.encode()  # no lone surrogate


@pytest.mark.parametrize("whole", [make_pdf("one", "two"), docx_with_body("<w:p><w:r><w:t>words</w:t></w:r></w:p>")])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 5_000), junk=st.binary(min_size=1, max_size=8))
def test_a_broken_document_is_read_or_refused(monkeypatch, whole, place, junk):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    place %= len(whole)
    with suppress(Invalid):
        assert extract(whole[:place] + junk + whole[place + len(junk) :]).text
