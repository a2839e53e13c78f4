"""Each kind of document: its text, its tables, its pages, sheets and slides, and the subprocess that reads it."""

import datetime as dt
import io
import sys

import docx
import pypdf
import pytest

from agents.exceptions import Invalid
from agents.text import extraction
from agents.text.extraction import extract
from agents.text.formats import limits, pdf
from agents.text.formats.kinds import KINDS, Kind
from agents.text.marks import Part, join_parts, location_of
from tests.agents.knowledge.samples import W, docx_with_body, make_pdf, with_part
from tests.agents.knowledge.samples import docx_of as saved
from tests.agents.text.files import (
    IMAGE,
    SENTENCE,
    docx_of,
    eml_of,
    msg_of,
    odt_of,
    ole_of,
    one_of_each,
    pdf_of,
    pptx_of,
    rtf_of,
    slide_table,
    slide_text,
    xlsx_of,
    zip_of,
)
from tests.agents.text.reading import extract_here, read_here
from tests.table import every_row

FILES = one_of_each()
DAY = dt.datetime(2026, 3, 2)  # noqa: DTZ001 a spreadsheet knows no zones


def read(kind, data):
    """As its own process reads it, in this one."""
    return read_here(data, kind)[0]


def location(data, name, quote):
    found = extraction.answer(name.removeprefix("a."), data)
    start = found["text"].index(quote)
    return location_of(found["marks"], start, start + len(quote))


# --- All kinds ---


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FILES)
def test_every_kind_is_read(name):
    found = extract(FILES[name], name=name)

    assert SENTENCE in found.text
    assert Kind(name.removeprefix("a.").replace("txt", "text").replace("md", "markdown")).media_type == found.media_type
    assert len(FILES) == len(Kind)


@pytest.mark.parametrize("name", [name for name in FILES if name not in {"a.txt", "a.md", "a.csv", "a.eml"}])
def test_a_kind_is_told_by_its_content_without_a_name(name):
    assert extract_here(FILES[name]).media_type == extract_here(FILES[name], name=name).media_type


def test_every_kind_has_a_limit_on_its_time():
    assert set(limits.MAX_SECONDS) == set(Kind) - {Kind.TEXT, Kind.MARKDOWN}


@every_row(
    ("name", "quote", "place"),
    [
        ("a.pdf", SENTENCE, "page 2"),
        ("a.pdf", "First page", "page 1"),
        ("a.pdf", f"page.\n\n{SENTENCE}", "page 1 to page 2"),
        ("a.xlsx", SENTENCE, "sheet Terms"),
        ("a.pptx", SENTENCE, "slide 2"),
        ("a.docx", SENTENCE, ""),
        ("a.eml", SENTENCE, ""),
    ],
)
def test_a_quote_has_a_location(name, quote, place):
    assert location(FILES[name], name, quote) == place


# --- PDF ---


def test_pages_are_numbered_as_they_stand_in_the_file():
    found = extract_here(pdf_of("The first page", "", "The third"), name="a.pdf")

    assert found.text == "The first page\n\nThe third"
    assert found.marks == [(0, "page 1"), (16, "page 3")]


def test_lines_of_a_page_stay_lines():
    assert extract_here(pdf_of("one\ntwo"), name="a.pdf").text == "one\ntwo"


def test_a_pdf_may_begin_with_a_few_other_bytes_if_it_is_called_one():
    assert extract_here(b"\x01\x02" + make_pdf("words"), name="a.pdf").text == "words"


def test_a_scan_asks_for_text_recognition():
    with pytest.raises(Invalid, match=r"no text: its pages are images.*\(OCR\).*lqops does none"):
        extract_here(pdf_of("", ""), name="scan.pdf")


def test_a_scanned_page_among_others_is_named():
    mixed = extract_here(pdf_of("words", IMAGE, ""), name="a.pdf")

    assert mixed.text == "words\n\n[This page is an image and was not read: lqops does no text recognition (OCR).]"
    assert [label for _, label in mixed.marks] == ["page 1", "page 2"]
    with pytest.raises(Invalid, match="OCR"):
        extract_here(pdf_of(IMAGE), name="a.pdf")


def test_a_pdf_with_too_many_pages_is_refused(monkeypatch):
    monkeypatch.setattr(pdf, "MAX_PAGES", 2)
    with pytest.raises(Invalid, match="3 pages; at most 2"):
        read("pdf", pdf_of("a", "b", "c"))


def test_text_is_refused_while_it_is_read_once_there_is_too_much(monkeypatch):
    monkeypatch.setattr("agents.text.marks.MAX_CHARS", 10)
    monkeypatch.setattr(pypdf.PageObject, "extract_text", counted := Counted(pypdf.PageObject.extract_text))
    with pytest.raises(Invalid, match="more than 10 characters"):
        read("pdf", make_pdf("eight...", "eight...", "eight..."))
    assert counted.calls == 2


class Counted:
    """A method that counts its calls."""

    def __init__(self, method):
        self.method, self.calls = method, 0

    def __get__(self, page, owner):
        self.calls += 1
        return self.method.__get__(page, owner)


def encrypted(password, algorithm):
    writer = pypdf.PdfWriter(io.BytesIO(make_pdf("secret terms")))
    writer.encrypt(password, "owner", algorithm=algorithm)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_an_encrypted_pdf_without_a_password_is_read():
    assert extract_here(pdf_of("secret terms", password=""), name="a.pdf").text == "secret terms"


# --- Protected files ---

PROTECTED = {
    "a.pdf": pdf_of("secret terms", password="sesame"),
    "a.docx": ole_of({"EncryptedPackage": b"rubbish", "EncryptionInfo": b"more"}),
    "a.xlsx": ole_of({"EncryptedPackage": b"rubbish" * 1_000}),
    "a.odt": odt_of("<text:p>x</text:p>", manifest="<manifest:encryption-data/>"),
}


@pytest.mark.parametrize("name", PROTECTED)
def test_a_file_with_a_password_is_refused(name):
    with pytest.raises(Invalid, match=r"protected by a password\. Save it without one"):
        extract_here(PROTECTED[name], name=name)


def test_an_archive_with_a_password_is_refused():
    data = bytearray(FILES["a.docx"])
    for sign, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(sign) + flags] |= 1
    with pytest.raises(Invalid, match="protected by a password"):
        extract_here(bytes(data), name="a.docx")


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_an_encrypted_pdf_is_read_unless_it_needs_a_password(algorithm):
    assert extract_here(encrypted("", algorithm), name="a.pdf").text == "secret terms"
    with pytest.raises(Invalid, match="protected by a password"):
        extract_here(encrypted("sesame", algorithm), name="a.pdf")


@every_row("kind", ["multipart/encrypted; boundary=x", "application/pkcs7-mime; smime-type=enveloped-data"])
def test_an_encrypted_mail_is_refused(kind):
    with pytest.raises(Invalid, match="mail is encrypted"):
        extract_here(eml_of("rubbish", kind=kind), name="a.eml")


# --- Files that are not read ---


@every_row(
    ("name", "data", "says"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 20, r"an image.*OCR.*lqops does none"),
        ("a.jpg", b"\xff\xd8\xff\xe0" + bytes(range(32)) * 20, "an image"),
        ("a.zip", zip_of({"a.txt": b"x"}), "an archive. Unpack it"),
        ("a.tar.gz", b"\x1f\x8b\x08" + bytes(100), "an archive. Unpack it"),
        ("a.doc", ole_of({"WordDocument": b"x" * 5_000}), "an old Office file"),
        ("a.bin", bytes(range(32)) * 20, "not text"),
        ("a.pdf", b"just words", "called PDF, but its content is not"),
        ("a.docx", b"just words", "called DOCX, but its content is not"),
        ("a.msg", ole_of({"WordDocument": b"x" * 5_000}), "called MSG, but its content is not"),
        ("a.eml", b"just words", "called EML, but it is no mail"),
    ],
)
def test_other_files_are_refused_with_what_to_do(name, data, says):
    with pytest.raises(Invalid, match=says) as refused:
        extract_here(data, name=name)
    assert KINDS in str(refused.value) or "OCR" in str(refused.value)


# --- DOCX ---


def paragraph(text):
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def test_text_of_a_docx_with_its_tables_in_order():
    data = docx_of("Services Agreement", table=[["Item", "Price", "Unit"], ["Fee", "", "EUR"], ["Term", "", ""]])

    found = extract_here(data, name="a.docx")

    assert found.text == "Services Agreement\n| Item | Price | Unit |\n| Fee | | EUR |\n| Term |"
    assert read("docx", data) == found.text


def test_merged_cells_of_a_docx_keep_the_columns():
    document = docx.Document()
    table = document.add_table(2, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "both"
    table.cell(0, 2).text = "third"
    for column, text in enumerate(("a", "b", "c")):
        table.cell(1, column).text = text

    assert read("docx", saved(document)) == "| both | | third |\n| a | b | c |"


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
        (
            f"<w:tbl><w:tr><w:tc>{paragraph('a')}{paragraph('b')}</w:tc><w:tc><w:p/></w:tc><w:tc/></w:tr></w:tbl>",
            "a\nb",
        ),
        (
            f"<w:tbl><w:tr><w:tc>{paragraph('a|b')}{paragraph('c')}</w:tc><w:tc>{paragraph('d')}</w:tc></w:tr></w:tbl>",
            "| a\\|b c | d |",
        ),
        (f"<!-- a comment -->{paragraph('seen')}", "seen"),
        ("<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>orders</w:t></w:r><w:r><w:t>seen</w:t></w:r></w:p>", "seen"),
        ('<w:p><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>seen</w:t></w:r></w:p>', "seen"),
        ("<w:p><w:r><w:t/></w:r></w:p>" + paragraph("after an empty one"), "after an empty one"),
        (f"<w:tc>{paragraph('a cell')}</w:tc><w:tr>{paragraph('of no table')}</w:tr>", "a cell\nof no table"),
    ],
    ids=[
        "tracked", "moved", "content control", "breaks", "one column", "cells", "comment", "hidden", "not hidden",
        "empty", "no table",
    ],
)  # fmt: skip
def test_elements_of_a_docx(body, text):
    assert read("docx", docx_with_body(body)) == text


def test_a_table_that_places_others_is_no_table():
    inner = f"<w:tbl><w:tr><w:tc>{paragraph('a')}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr></w:tbl>"
    outer = f"<w:tbl><w:tr><w:tc>{inner}</w:tc><w:tc>{paragraph('beside')}</w:tc></w:tr></w:tbl>"

    assert read("docx", docx_with_body(outer)) == "| a | b |\nbeside"


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

    assert read("docx", saved(document)) == "See the note.\n\nUnless agreed otherwise."


@every_row(
    ("data", "says"),
    [
        (with_part(FILES["a.docx"], "word/document.xml", "<w:document"), "damaged"),
        (zip_of({"word/document.xml": b"<x/>"}), "does not say where its text is"),
        (zip_of({"ppt/presentation.xml": b"<x/>"}), "does not say where its text is"),
        (with_part(FILES["a.docx"], "_rels/.rels", FILES["a.docx"][:0]), "damaged"),
    ],
)
def test_a_damaged_archive_is_refused(data, says):
    with pytest.raises(Invalid, match=says):
        extract_here(data, name="a.bin")


# --- XLSX ---


def test_sheets_become_tables_under_their_names():
    data = xlsx_of(
        {"Prices": [["Item", "", "Price"], [], ["Fee", "", 100.5]], "Empty": [], "Notes": [["one"], ["two"]]}
    )

    found = extract_here(data, name="a.xlsx")

    assert found.text == "# Sheet Prices\n\n| Item | Price |\n| Fee | 100.5 |\n\n# Sheet Notes\n\none\ntwo"
    assert found.marks == [(0, "sheet Prices"), (50, "sheet Notes")]


def test_values_are_shown_as_a_reader_expects_them():
    def write(workbook, sheets):
        sheet = sheets["S"]
        sheet.write(0, 0, 0.155, workbook.add_format({"num_format": "0.0%"}))
        sheet.write(0, 1, 0.1 + 0.2)
        sheet.write(0, 2, True)
        sheet.write_datetime(0, 3, DAY, workbook.add_format({"num_format": "d mmm yyyy"}))
        sheet.write_datetime(0, 4, DAY.replace(hour=9, minute=30), workbook.add_format({"num_format": "d/m/yy hh:mm"}))
        sheet.write_formula(0, 5, "=A1*2", None, 0.31)
        sheet.write(0, 6, 1_000_000)
        sheet.merge_range("A2:C2", "merged")
        sheet.write(1, 3, "beside")

    first, second = read("xlsx", xlsx_of({"S": []}, write=write)).splitlines()[2:]

    assert first == "| 15.5% | 0.3 | TRUE | 2026-03-02 | 2026-03-02 09:30:00 | 0.31 | 1000000 |"
    assert second == "| merged | | | beside |"


def test_hidden_sheets_are_left_out():
    data = xlsx_of({"Seen": [["words", "more"]], "Orders": [["orders", "here"]]}, hidden=["Orders"])

    assert read("xlsx", data) == "# Sheet Seen\n\n| words | more |"


# --- PPTX ---


def test_slides_have_headings_notes_and_tables():
    data = pptx_of(
        [slide_text("Title", "Point"), slide_text("Orders"), slide_table(["Item", "Price"], ["Fee", "100"])],
        notes={1: "Say it slowly."},
        hidden=[2],
    )

    found = extract_here(data, name="a.pptx")

    assert found.text == (
        "# Slide 1\n\nTitle\nPoint\n\nNotes:\nSay it slowly.\n\n# Slide 3\n\n| Item | Price |\n| Fee | 100 |"
    )
    assert [label for _, label in found.marks] == ["slide 1", "slide 3"]


def test_slides_without_text_are_left_out():
    assert read("pptx", pptx_of([slide_text(), slide_text("words")])) == "# Slide 2\n\nwords"


# --- ODT ---

NOTE = (
    "<text:note><text:note-citation>1</text:note-citation>"
    "<text:note-body><text:p>Unless agreed.</text:p></text:note-body></text:note>"
)
GAP = '<table:table-cell table:number-columns-repeated="2"/>'


def odt_row(*cells):
    made = (cell if cell == GAP else f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
    return f"<table:table-row>{''.join(made)}</table:table-row>"


@every_row(
    ("body", "text"),
    [
        ("<text:p>one  <text:span>two</text:span>\n three<text:line-break/>four</text:p>", "one two three\nfour"),
        ('<text:p>a<text:tab/>b<text:s text:c="3"/>c</text:p>', "a\tb   c"),
        ("<text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:p>seen</text:p>", "seen"),
        ("<text:p>seen<office:annotation><text:p>aside</text:p></office:annotation> on</text:p>", "seen on"),
        (
            f"<text:p>Terms{NOTE} apply.</text:p>",
            "Terms (note: Unless agreed.) apply.",
        ),
        (
            f"<table:table>{odt_row('a', GAP, 'b')}{odt_row('c', 'd')}</table:table>",
            "| a | | b |\n| c | d |",
        ),
    ],
)
def test_elements_of_an_odt(body, text):
    assert read("odt", odt_of(body)) == text


# --- RTF and CSV ---


@every_row(
    ("body", "text"),
    [
        (b"caf\\'e9 \\u8364? \\{braces\\}", "caf\xe9 \u20ac {braces}"),
        (b"one\\par two\\tab three", "one\ntwo\tthree"),
        (
            b"\\trowd\\intbl a\\cell b\\cell\\row\\trowd\\intbl c\\cell\\cell\\row\\pard after",
            "| a | b |\n| c |\nafter",
        ),
        (b"{\\info{\\title hidden}}{\\pict\\bin3 }}}}seen", "seen"),
    ],
)
def test_text_of_an_rtf(body, text):
    assert read("rtf", rtf_of(body)) == text


@every_row(
    ("data", "text"),
    [
        (b"a,b\n1,2\n", "| a | b |\n| 1 | 2 |"),
        (b"a;b;c\r\n1;;3\r\n", "| a | b | c |\n| 1 | | 3 |"),
        (b"a\tb\n1\t2", "| a | b |\n| 1 | 2 |"),
        (b'name,text\nx,"two\nlines, ""quoted"""\n', '| name | text |\n| x | two lines, "quoted" |'),
        (b"sep=|\na|b\n", "| a | b |"),
        (b"only\none\n", "only\none"),
        ("caf\xe9,5 \u20ac\n".encode("cp1252"), "| caf\xe9 | 5 \u20ac |"),
    ],
)
def test_rows_of_a_csv(data, text):
    assert read("csv", data) == text


# --- Mails ---


def test_a_mail_has_headers_a_body_and_attachments():
    data = eml_of(
        "<p>See <b>the terms</b>.</p><p hidden>orders</p>",
        kind="text/html; charset=utf-8",
        headers="Cc: Max <max@example.org>\r\n",
        attachments=[("terms.pdf", pdf_of("one", SENTENCE)), ("photo.png", b"\x89PNG rubbish")],
    )

    found = extract_here(data, name="a.eml")

    assert found.text == (
        "From: Ada Lovelace <ada@example.org>\nTo: Bob <bob@example.org>, Eve <eve@example.org>\n"
        "Cc: Max <max@example.org>\nDate: Mon, 02 Mar 2026 09:30:00 +0100\nSubject: Terms for Gr\xfcn\n"
        "Attachments: terms.pdf, photo.png\n\nSee the terms.\n\n"
        f"# Attachment terms.pdf\n\none\n\n{SENTENCE}\n\n"
        "# Attachment photo.png\n\nNot read. It is an image. Run text recognition (OCR) on it first: lqops does none."
    )
    assert location(data, "a.eml", SENTENCE) == "attachment terms.pdf, page 2"
    assert location(data, "a.eml", "See the terms") == ""


def test_attachments_of_an_attached_mail_are_only_named():
    inner = eml_of("inner words", attachments=[("deep.txt", b"too deep")])
    outer = eml_of(attachments=[("inner.eml", inner)])

    text = read("eml", outer)

    assert "Attachments: deep.txt" in text
    assert "inner words" in text
    assert "too deep" not in text


def test_a_mail_that_is_attached_as_a_mail_is_read():
    inner = "Content-Type: message/rfc822\r\n\r\nSubject: Re: terms\r\nFrom: bob@example.org\r\n\r\ninner words\r\n"
    text = read("eml", eml_of(f"--e\r\n\r\nouter\r\n--e\r\n{inner}--e--", kind='multipart/mixed; boundary="e"'))

    assert "Attachments: Re: terms.eml" in text
    assert "inner words" in text


def test_few_attachments_are_read_and_all_are_counted(monkeypatch):
    monkeypatch.setattr("agents.text.formats.readers.MAX_READ_ATTACHMENTS", 1)
    monkeypatch.setattr("agents.text.formats.mail.MAX_NAMED_ATTACHMENTS", 2)
    text = read("eml", eml_of(attachments=[(f"{number}.txt", b"words %d" % number) for number in range(4)]))

    assert "Attachments: 0.txt, 1.txt and 2 more" in text
    assert "words 0" in text
    assert "words 1" not in text


def test_a_damaged_attachment_does_not_refuse_the_mail():
    text = read("eml", eml_of(attachments=[("a.docx", with_part(FILES["a.docx"], "word/document.xml", "<w"))]))

    assert SENTENCE in text
    assert text.endswith("# Attachment a.docx\n\nNot read. It is damaged.")


@every_row(
    ("data", "part"),
    [
        (b"From: ada@example.org\r\n\r\nwords", "From: ada@example.org\n\nwords"),
        (b"From: <<<@\r\nDate: nonsense\r\n\r\nwords", "Date: nonsense"),
        (eml_of("caf\xe9", kind="text/plain; charset=no-such"), "caf\xe9"),
        (b"From: a\r\nContent-Type: text/plain; charset=no-such\r\n\r\n" + b"\xfd\xfe" * 9 + b" words", " words"),
        (b"From: a\r\nContent-Type: text/plain; charset=latin-1\r\n\r\ncaf\xe9", "caf\xe9"),
        (b"From: a\r\nContent-Type: image/png\r\n\r\nwords", "From: a"),
    ],
)
def test_mails_as_they_come(data, part):
    assert part in read("eml", data)


def test_an_outlook_mail_has_headers_a_body_and_attachments():
    book = xlsx_of({"Fees": [["Fee", 100]]})
    data = msg_of(attachments=[("fees.xlsx", book), ("long.txt", b"words " * 2_000)], p0E03="Max")

    found = extract_here(data, name="a.msg")

    assert found.text.startswith(
        "From: Ada Lovelace <ada@example.org>\nTo: Bob; Eve\nCc: Max\nDate: Tue, 03 Mar 2026 17:30:00 +0000\n"
        f"Subject: Terms\nAttachments: fees.xlsx, long.txt\n\n{SENTENCE}\n\n# Attachment fees.xlsx\n\n# Sheet Fees\n"
    )
    assert location(data, "a.msg", "| Fee | 100 |") == "attachment fees.xlsx, sheet Fees"
    assert found.text.count("words") == 2_000


@every_row(
    ("mail", "part"),
    [
        ({"body": "", "html": "<p>See <b>the terms</b>.</p>"}, "See the terms."),
        ({"body": "", "p1013": "<p>older pages</p>"}, "older pages"),
        ({"p5D01": "", "p0C1F": "bob@example.org"}, "From: Ada Lovelace <bob@example.org>"),
        ({"p5D01": "", "p0C1A": ""}, "To: Bob; Eve"),
        ({"p0E04": "", "p007D": "To: Bob <bob@example.org>\r\n\r\n"}, "To: Bob <bob@example.org>"),
    ],
)
def test_outlook_mails_as_they_come(mail, part):
    assert part in read("msg", msg_of(**mail))


def test_older_outlook_mails_have_texts_in_their_code_page():
    table = bytes(32) + b"".join(
        number.to_bytes(4, "little") + bytes(4) + value.to_bytes(8, "little")
        for number, value in ((0x3FFD_0003, 1252), (0x3FDE_0003, 65_001), (0x0039_0040, 2**64 - 1))
    )
    tree = {
        "__properties_version1.0": table,
        "__substg1.0_0037001E": "Caf\xe9".encode("cp1252"),
        "__substg1.0_10130102": "<p>\u20ac 5</p>".encode(),
        "__attach_version1.0_#00000000": {"__substg1.0_3701000D": {"x": b"an attached mail"}},
    }

    assert read("msg", ole_of(tree)) == "Subject: Caf\xe9\nAttachments: unnamed\n\n\u20ac 5"


def test_an_outlook_file_without_a_mail_is_refused():
    with pytest.raises(Invalid, match="holds no mail"):
        read("msg", ole_of({"__properties_version1.0": bytes(32)}))


# --- The subprocess ---


def test_the_document_is_refused_when_its_reader_dies(monkeypatch):
    monkeypatch.setattr(extraction, "_START", "raise SystemExit(1)")
    with pytest.raises(Invalid, match="damaged, or needs more time or memory"):
        extract(make_pdf("x"))


def test_the_document_is_refused_when_its_reader_has_no_memory_left(monkeypatch):
    def grow(parts):
        raise MemoryError

    monkeypatch.setattr(extraction, "join_parts", grow)
    assert "needs more time or memory" in extraction.answer("html", b"<p>x")["refused"]


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
        ("html", b"<p>words</p>", {"text": "words", "marks": []}),
        ("pdf", make_pdf("words"), {"text": "words", "marks": [(0, "page 1")]}),
        ("pdf", PROTECTED["a.pdf"], {"refused": "It is protected by a password. Save it without one."}),
        (
            "docx",
            b"rubbish",
            {"refused": "It could not be read as DOCX: it is damaged (BadZipFile). Save it again, or as text."},
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
    assert capsys.readouterr().out == '{"text": "words", "marks": []}'
    memory = (limits.MAX_MEMORY_BYTES, limits.MAX_MEMORY_BYTES)
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
    assert capsys.readouterr().out == '{"text": "words", "marks": []}'


def test_parts_become_one_text_with_marks():
    text, marks = join_parts(
        [Part("a\r\nb\x00", "page 1"), Part(" "), Part("c", "page 1"), Part("d", "\u202e" + "x" * 200)]
    )

    assert text == "a\nb\ufffd\n\nc\n\nd"
    assert marks == [(0, "page 1"), (9, "x" * 79 + "…")]
