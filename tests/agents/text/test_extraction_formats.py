"""PDF and DOCX: their text, missing libraries, and the subprocess that reads them."""

import io
import sys

import pytest

from agents.exceptions import Invalid
from agents.text import extraction, formats
from agents.text.extraction import extract
from tests.agents.knowledge.samples import W, docx_of, docx_with_body, make_pdf, with_part
from tests.table import every_row

docx = pytest.importorskip("docx")
pypdf = pytest.importorskip("pypdf")

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def paragraph(text):
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


# --- PDF ---


def test_text_of_a_pdf_page_by_page():
    found = extract(make_pdf("The first page", "", "The third"), name="scan.bin")

    assert found.text == "The first page\n\nThe third"
    assert found.media_type == "application/pdf"


def test_a_pdf_may_begin_with_a_few_other_bytes_if_it_is_called_one():
    assert extract(b"\x01\x02" + make_pdf("words"), name="a.pdf").text == "words"


def test_a_pdf_without_text_asks_for_text_recognition():
    with pytest.raises(Invalid, match="OCR"):
        extract(make_pdf(""), name="scan.pdf")


def test_a_pdf_with_too_many_pages_is_refused(monkeypatch):

    monkeypatch.setattr(formats, "MAX_PAGES", 2)
    with pytest.raises(Invalid, match="3 pages; at most 2"):
        formats.pdf_text(make_pdf("a", "b", "c"))


def test_a_pdf_with_too_much_text_is_refused_while_it_is_read(monkeypatch):

    monkeypatch.setattr(formats, "MAX_CHARS", 10)
    with pytest.raises(Invalid, match="more than 10 characters"):
        formats.pdf_text(make_pdf("eight...", "eight..."))


def encrypted(password):
    writer = pypdf.PdfWriter(io.BytesIO(make_pdf("secret terms")))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_pdf_behind_a_password_is_refused():
    with pytest.raises(Invalid, match="password"):
        extract(encrypted("sesame"), name="a.pdf")


def test_a_pdf_with_an_empty_password_is_read():
    assert extract(encrypted(""), name="a.pdf").text == "secret terms"


# --- DOCX ---


def read_docx(data):
    """As its own process reads it, in this one."""
    return extraction.answer("docx", data)["text"]


def test_text_of_a_docx_with_its_tables_in_order():
    document = docx.Document()
    document.add_heading("Services Agreement")
    table = document.add_table(2, 2)
    for place, text in {(0, 0): "Fee", (0, 1): "100", (1, 0): "Term"}.items():
        table.cell(*place).text = text
    document.add_paragraph("After the table\tand a tab")

    found = extract(docx_of(document), name="a.docx")

    assert found.text == "Services Agreement\nFee\t100\nTerm\nAfter the table\tand a tab"
    assert found.media_type == WORD
    assert read_docx(docx_of(document)) == found.text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "<w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
            "inserted",
        ),
        ("<w:p><w:moveFrom><w:r><w:t>old place</w:t></w:r></w:moveFrom><w:r><w:t>stays</w:t></w:r></w:p>", "stays"),
        (
            f"<w:sdt><w:sdtPr><w:alias/></w:sdtPr><w:sdtContent>{paragraph('controlled')}</w:sdtContent></w:sdt>",
            "controlled",
        ),
        (
            "<w:p><w:r><w:t>one</w:t><w:br/><w:t>two</w:t><w:cr/><w:t>non</w:t><w:noBreakHyphen/><w:t>stop</w:t></w:r></w:p>",
            "one\ntwo\nnon-stop",
        ),
        (f"<w:tbl><w:tr><w:tc>{paragraph('a')}{paragraph('b')}</w:tc><w:tc><w:p/></w:tc><w:tc/></w:tr></w:tbl>", "a b"),
        (f"<!-- a comment -->{paragraph('seen')}", "seen"),
        ("<w:p><w:r><w:t/></w:r></w:p>" + paragraph("after an empty one"), "after an empty one"),
    ],
    ids=["tracked", "moved", "content control", "breaks", "cells", "comment", "empty"],
)
def test_tracked_changes_of_a_docx_are_accepted(body, text):
    assert read_docx(docx_with_body(body)) == text


def test_the_notes_of_a_docx_come_after_its_text():
    document = docx.Document()
    document.add_paragraph("See the note.")
    part = docx.opc.part.Part(
        docx.opc.packuri.PackURI("/word/footnotes.xml"),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml",
        f'<w:footnotes xmlns:w="{W}">{paragraph("Unless agreed otherwise.")}</w:footnotes>'.encode(),
        document.part.package,
    )
    document.part.relate_to(part, "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes")
    document.part.rels.get_or_add_ext_rel("http://example.org/footnotes", "http://example.org/")

    assert read_docx(docx_of(document)) == "See the note.\n\nUnless agreed otherwise."


def test_a_damaged_docx_is_refused():
    data = with_part(docx_of(docx.Document()), "word/document.xml", "<w:document")
    with pytest.raises(Invalid, match="could not be read as DOCX"):
        extract(data, name="a.docx")


# --- Both ---


@pytest.mark.parametrize(("data", "named"), [(make_pdf("x"), "PDF"), (docx_with_body(paragraph("x")), "DOCX")])
def test_a_missing_library_is_named_with_the_way_to_install_it(data, named, monkeypatch):
    monkeypatch.setattr(extraction, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=rf"{named} needs a library .*pip install -e '\.\[docs\]'"):
        extract(data)


def test_text_needs_no_library(monkeypatch):
    monkeypatch.setattr(extraction, "find_spec", lambda name: None)
    assert extract(b"words").text == "words"
    assert extract(b"<p>words</p>", name="a.html").text == "words"


def test_the_document_is_refused_when_its_reader_dies(monkeypatch):
    monkeypatch.setattr(extraction, "_START", "raise MemoryError")
    with pytest.raises(Invalid, match="damaged, or needs more time or memory"):
        extract(make_pdf("x"))


def test_the_reader_sees_no_secret_of_the_environment(monkeypatch):
    monkeypatch.setenv("LQOPS_SECRET_KEY", "sesame")
    real, seen = extraction.subprocess.run, []

    def run(*args, **more):
        seen.append(more["env"])
        return real(*args, **more)

    monkeypatch.setattr(extraction.subprocess, "run", run)

    assert extract(b"<p>x</p>", name="a.html").text == "x"
    assert [set(env) for env in seen] == [{"PYTHONPATH", "PATH"}]


@every_row(
    ("kind", "data", "answer"),
    [
        ("html", b"<p>words</p>", {"text": "words"}),
        ("pdf", make_pdf("words"), {"text": "words"}),
        ("docx", docx_with_body(paragraph("words")), {"text": "words"}),
        ("pdf", encrypted("sesame"), {"refused": "The PDF is protected by a password. Save it without one."}),
        (
            "docx",
            b"rubbish",
            {"refused": "The document could not be read as DOCX (BadZipFile). Save it again, or as text."},
        ),
    ],
)
def test_the_reader_answers_with_text_or_a_refusal(kind, data, answer):
    assert extraction.answer(kind, data) == answer


def test_the_reader_sets_its_limits_before_it_reads(monkeypatch, capsys):
    order = []
    monkeypatch.setattr(extraction.resource, "setrlimit", lambda limit, most: order.append((limit, most)))
    monkeypatch.setattr(sys, "argv", ["reader", "html"])
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO(b"<p>words</p>")}))
    extraction.main()
    assert capsys.readouterr().out == '{"text": "words"}'
    memory = (formats.MAX_MEMORY_BYTES, formats.MAX_MEMORY_BYTES)
    assert (extraction.resource.RLIMIT_AS, memory) in order
    seconds = extraction.MAX_SECONDS["html"]
    assert (extraction.resource.RLIMIT_CPU, (seconds, seconds)) in order


def test_a_document_is_read_on_a_system_without_some_limit(monkeypatch, capsys):
    def refuse(limit, most):
        raise ValueError("not supported")

    monkeypatch.setattr(extraction.resource, "setrlimit", refuse)
    monkeypatch.setattr(sys, "argv", ["reader", "html"])
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO(b"words")}))
    extraction.main()
    assert capsys.readouterr().out == '{"text": "words"}'
