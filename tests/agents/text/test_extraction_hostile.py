"""Hostile documents: bombs are refused before they are unpacked; any bytes give a text or Invalid."""

import inspect
import random
import struct
import sys
import tracemalloc
import zlib
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.exceptions import Invalid
from agents.text.extraction import extract
from agents.text.formats import archives
from agents.text.formats.limits import MAX_CHARS
from tests.agents.knowledge.samples import W, docx_with_body, make_pdf, pdf_file, with_part
from tests.agents.text.files import (
    eml_of,
    msg_of,
    odt_of,
    one_of_each,
    rtf_of,
    xlsx_of,
    zip_of,
)
from tests.agents.text.reading import read_here

MB = 1_000_000
FILES = one_of_each()
ARCHIVES = {"a.docx": "word/document.xml", "a.xlsx": "xl/workbook.xml", "a.pptx": "ppt/presentation.xml"}
SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


@contextmanager
def little_memory():
    """What is allocated in between stays below 50 MB; the bomb itself was made before."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 50 * MB
    finally:
        tracemalloc.stop()


def refused(data, says, name="a.docx"):
    with little_memory(), pytest.raises(Invalid, match=says):
        extract(data, name=name)


def unpacks_nothing(monkeypatch):
    monkeypatch.setattr("zipfile.ZipFile.open", lambda *args, **more: pytest.fail("something was unpacked"))
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", lambda *args: pytest.fail("a reader was started"))


# --- Archives ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_unpacks_to_too_much_is_refused(name, monkeypatch):
    parts = {ARCHIVES[name]: b"<x/>"} | {f"media/{number}.bin": bytes(16 * MB) for number in range(4)}
    bomb = zip_of(parts)
    unpacks_nothing(monkeypatch)
    refused(bomb, "would unpack to 64,000,004 bytes; at most 64,000,000", name)


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_of_too_many_entries_is_refused_before_reading(name, monkeypatch):
    bomb = zip_of({ARCHIVES[name]: b"<x/>"} | {f"{number}": b"" for number in range(3_000)})
    monkeypatch.setattr(archives.zipfile, "ZipFile", lambda *args: pytest.fail("the directory was read"))
    refused(bomb, "3,001 entries; at most 2,000", name)


def test_entries_that_share_their_bytes_are_counted_one_by_one(monkeypatch):
    """The directory of an archive may name the same packed bytes many times."""
    plain = zip_of({"word/document.xml": bytes(MB)})
    start = plain.index(b"PK\x01\x02")
    end = plain.index(b"PK\x05\x06")
    entry, times = plain[start:end], 1_000
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, times, times, len(entry) * times, start, 0)
    unpacks_nothing(monkeypatch)
    refused(plain[:start] + entry * times + tail, "would unpack to 1,000,000,000 bytes")


def test_an_entry_that_declares_less_than_it_holds_is_refused():
    document = docx_with_body("<w:p><w:r><w:t>" + "words " * 100_000 + "</w:t></w:r></w:p>")
    place = document.rindex(b"PK\x01\x02", 0, document.rindex(b"word/document.xml"))
    lying = bytearray(document)
    lying[place + 24 : place + 28] = struct.pack("<L", 10)
    with pytest.raises(Invalid, match="could not be read as DOCX"):
        extract(bytes(lying), name="a.docx")


def test_archives_inside_an_archive_are_never_opened(monkeypatch):
    bomb = zip_of({f"{number}.zip": zip_of({"a": bytes(MB)}) for number in range(20)})
    unpacks_nothing(monkeypatch)
    refused(bomb, r"an archive\. Unpack it", "a.xlsx")


def test_a_bomb_that_is_attached_to_a_mail_is_not_read():
    bomb = zip_of({"word/document.xml": b"<x/>", "a.bin": bytes(70 * MB)})

    for mail, name in ((eml_of(attachments=[("a.docx", bomb)]), "a.eml"), (msg_of(attachments=[("b", bomb)]), "a.msg")):
        assert "Not read. It would unpack to 70,000,004 bytes" in extract(mail, name=name).text


def test_an_archive_without_a_directory_is_refused():
    with pytest.raises(Invalid, match="archive is damaged"):
        extract(b"PK\x03\x04 word/document.xml", name="a.docx")


def test_a_tightly_packed_small_docx_is_read():
    blank = docx_with_body("<w:p><w:r><w:t>" + "a" * 1_500_000 + "</w:t></w:r></w:p>")
    assert len(blank) * 30 < 1_500_000
    assert len(extract(blank, name="a.docx").text) == 1_500_000


# --- Entities ---

_NESTED = "".join(f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in pairwise("abcdefghi"))
ENTITIES = f"<!DOCTYPE x [<!ENTITY a 'grown'>{_NESTED}]>"
TEXTS = f'<sst xmlns="{SPREADSHEET}" count="1" uniqueCount="1"><si><t>&i;</t></si></sst>'


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "bomb"),
    [
        ("a.docx", with_part(FILES["a.docx"], "word/document.xml", f'{ENTITIES}<w:p xmlns:w="{W}">&i;</w:p>')),
        ("a.docx", with_part(FILES["a.docx"], "_rels/.rels", f"{ENTITIES}<x>&i;</x>")),
        ("a.pptx", with_part(FILES["a.pptx"], "ppt/slides/slide1.xml", f"{ENTITIES}<x>&i;</x>")),
        ("a.odt", odt_of("<text:p>&i;</text:p>", before=ENTITIES)),
        ("a.xlsx", with_part(xlsx_of({"S": [["a"]]}), "xl/sharedStrings.xml", ENTITIES + TEXTS)),
        ("a.xlsx", with_part(FILES["a.xlsx"], "xl/worksheets/sheet1.xml", f"{ENTITIES}<x>&i;</x>")),
    ],
    ids=["text", "relations", "slide", "odt", "strings", "sheet"],
)  # fmt: skip
def test_entities_are_not_expanded(name, bomb):
    refused(bomb, "could not be read as", name)


# --- PDF ---


def page_tree(**kids):
    catalog = {1: b"<< /Type /Catalog /Pages 2 0 R >>"}
    nodes = {int(number[1:]): b"<< /Type /Pages /Kids [%s] /Count 1 >>" % text for number, text in kids.items()}
    return pdf_file({**catalog, **nodes, 99: b"<< /Type /Page /Parent 2 0 R >>"}, b"")


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "data",
    [
        page_tree(p2=b"2 0 R"),
        page_tree(p2=b"3 0 R", p3=b"2 0 R"),
        page_tree(**{f"p{number}": b"%d 0 R " % (number + 1) * 10 for number in range(2, 12)}),
        make_pdf("x").replace(b"2 0 R >>", b"1 0 R >>", 1),
    ],
    ids=["itself", "circle", "ten thousand million pages", "no pages"],
)
def test_a_pdf_whose_objects_have_no_end_is_refused(data):
    with little_memory(), pytest.raises(Invalid):
        extract(data, name="a.pdf")


def test_a_pdf_that_draws_itself_has_no_text():
    form = b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 5 0 R >> >> /Length 12 >>"
    loop = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        3: b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /XObject << /F 5 0 R >> >> >>",
        4: b"<< /Length 11 >>\nstream\n/F Do /F Do\nendstream",
        5: form + b"\nstream\n/F Do /F Do \nendstream",
    }
    with pytest.raises(Invalid):
        extract(pdf_file(loop, b""), name="a.pdf")


def test_a_pdf_whose_tables_name_each_other_ends():
    page = make_pdf("words")
    table = page.rindex(b"xref", 0, page.rindex(b"startxref"))
    with suppress(Invalid):
        assert extract(page.replace(b"/Root", b"/Prev %d /Root" % table), name="a.pdf").text == "words"


@pytest.mark.long
def test_a_pdf_that_expands_without_end_is_refused_in_its_subprocess():
    grown = zlib.compress(b" " * 100 * MB, 1)
    page = make_pdf("x")
    place = page.index(b"11 0 obj")
    stream = b"11 0 obj\n<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream\nendobj\n" % (len(grown), grown)
    bomb = page[:place] + stream + page[place:].partition(b"endobj\n")[2]
    with little_memory(), pytest.raises(Invalid):
        extract(bomb, name="a.pdf")


# --- Files that are cut off, or called what they are not ---


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx", "a.pptx", "a.odt", "a.rtf", "a.msg"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_refused(name, share, monkeypatch):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    data = FILES[name]
    with pytest.raises(Invalid, match=r"damaged|cut off|its content is not|not read"):
        extract(data[: int(share * len(data))], name=name)


@pytest.mark.parametrize("called", FILES)
def test_a_file_that_is_called_something_else_is_read_or_refused(called, monkeypatch):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    for name, data in FILES.items():
        with suppress(Invalid):
            assert extract(data, name=called).text.strip()
        if called in {"a.pdf", "a.docx", "a.msg"} and name in {"a.txt", "a.md", "a.csv"}:
            with pytest.raises(Invalid, match="but its content is not"):
                extract(data, name=called)


# --- Text and mails ---


def test_a_csv_of_one_endless_field_is_refused():
    refused(b"x" * 2 * MB, "field larger than", "a.csv")


def test_groups_of_an_rtf_that_are_nested_too_deep_are_refused():
    refused(b"{\\rtf1" + b"{" * MB, "nested more than 1,000 deep", "a.rtf")
    assert extract(rtf_of(b"{" * 500 + b"words" + b"}" * 500), name="a.rtf").text == "words"


def mail_of_nested_parts(count):
    parts = "".join(f'--e{n}\r\nContent-Type: multipart/mixed; boundary="e{n + 1}"\r\n\r\n' for n in range(count))
    return eml_of(parts, kind='multipart/mixed; boundary="e0"')


@pytest.mark.long
def test_a_mail_of_parts_without_end_is_refused():
    refused(mail_of_nested_parts(1_500), "could not be read as EML", "a.eml")


def test_a_mail_that_is_nested_deeper_than_its_parser_can_go_is_refused():
    mail, before = mail_of_nested_parts(200), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        with pytest.raises(Invalid, match="could not be read as EML"):
            read_here(mail, "eml")
    finally:
        sys.setrecursionlimit(before)


def test_a_mail_with_an_endless_header_is_refused():
    refused(b"From: " + b"<" * 2 * MB + b"\r\n\r\nx", "header of more than 50,000 characters", "a.eml")


def test_rubbish_in_an_outlook_mail_is_read_or_refused(monkeypatch):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    whole = msg_of(attachments=[("a.txt", b"words" * 2_000)])
    rng = random.Random(7)  # the same rubbish in every run
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        with suppress(Invalid):
            assert extract(bytes(data), name="a.msg").text


# --- Any bytes at all ---

SEEDS = [
    b"%PDF-1.4\n",
    b"PK\x03\x04word/document.xml",
    b"<html>",
    b"\xff\xfe",
    b"\x00\x00\xfe\xff",
    b"{\\rtf",
    b"\x1f\x8b",
    b"From: a\r\n",
    FILES["a.msg"][:600],
]
NAMES = st.sampled_from([*FILES, "", "a"])


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


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(place=st.integers(0, 50_000), junk=st.binary(min_size=1, max_size=8))
def test_a_broken_document_is_read_or_refused(monkeypatch, name, place, junk):
    monkeypatch.setattr("agents.text.extraction.read_in_subprocess", read_here)
    whole = FILES[name]
    place %= len(whole)
    with suppress(Invalid):
        found = extract(whole[:place] + junk + whole[place + len(junk) :], name=name)
        assert found.text
        assert all(0 <= start < len(found.text) for start, _ in found.marks)
