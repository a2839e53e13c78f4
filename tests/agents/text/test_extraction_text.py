"""Text and Markdown: encodings, line ends, limits, and what is no text at all."""

import pytest

from agents.exceptions import Invalid
from agents.text.extraction import extract
from agents.text.formats import MAX_BYTES, MAX_CHARS
from tests.table import every_row

GREETING = "Grüße, 世界 🙂"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (GREETING.encode(), GREETING),
        ("a \ufffd b".encode(), "a \ufffd b"),
        (b"\xef\xbb\xbf" + GREETING.encode(), GREETING),
        (b"\xff\xfe" + GREETING.encode("utf-16-le"), GREETING),
        (b"\xfe\xff" + GREETING.encode("utf-16-be"), GREETING),
        (b"\xff\xfe\x00\x00" + GREETING.encode("utf-32-le"), GREETING),
        (b"\x00\x00\xfe\xff" + GREETING.encode("utf-32-be"), GREETING),
        ("the caf\xe9 owes 5 \u20ac".encode("cp1252"), "the caf\xe9 owes 5 \u20ac"),
        ("Gr\xfc\xdfe aus K\xf6ln".encode() + b" \xff here", "Gr\xfc\xdfe aus K\xf6ln \ufffd here"),
        (b"\xef\xbb\xbf" + "K\xf6ln".encode() + b"\xff", "K\xf6ln\ufffd"),
        (b"a price of 5 \x81 and more words", "a price of 5 \x81 and more words"),
    ],
    ids=[
        "utf-8",
        "utf-8 mended before",
        "utf-8 with mark",
        "utf-16 le",
        "utf-16 be",
        "utf-32 le",
        "utf-32 be",
        "cp1252",
        "utf-8 with a slip",
        "marked utf-8 with a slip",
        "latin-1",
    ],
)
def test_encodings_are_told_apart(data, text):
    assert extract(data, name="a.txt").text == text


def test_line_ends_are_made_alike():
    assert extract(b"one\r\ntwo\rthree\nfour\r\n\r\nfive").text == "one\ntwo\nthree\nfour\n\nfive"


def test_what_cannot_be_stored_is_replaced_visibly():
    assert extract(b"a\x00b").text == "a\ufffdb"
    assert extract(b"\xff\xfea\x00\x00\x00b\x00").text == "a\ufffdb"


def test_a_half_of_a_pair_is_refused_or_replaced_but_never_stored():
    with pytest.raises(Invalid, match="utf-16-le and is not"):
        extract(b"\xff\xfea\x00\x00\xd8")


@every_row(
    ("name", "media_type", "found"),
    [
        ("notes.md", "", "text/markdown"),
        ("NOTES.MARKDOWN", "", "text/markdown"),
        ("notes", "text/markdown; charset=utf-8", "text/markdown"),
        ("notes.txt", "text/markdown", "text/plain"),
        ("table.csv", "text/csv", "text/plain"),
        ("", "", "text/plain"),
    ],
)
def test_the_media_type_is_that_of_what_was_read(name, media_type, found):
    assert extract(b"# Heading", name=name, media_type=media_type).media_type == found


@every_row(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b" \n\t ", "holds no text"),
        (b"x" * (MAX_BYTES + 1), "at most 20,000,000 are taken"),
        (b"x" * (MAX_CHARS + 1), "at most 5,000,000 are taken"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 20, "control codes"),
        (bytes(range(128, 256)) * 3, "nor in a Western code"),
        ("Договор поставки".encode("cp1251"), "nor in a Western code"),
        (b"caf\xe9 \x00 words and more words", "nor in a Western code"),
        (b"\xff\xfea", "says that it is utf-16-le and is not"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 100, "an old Office file"),
        (b"{\\rtf1\\ansi hello}", "RTF"),
        (b"\x1f\x8b\x08" + b"x" * 20, "a gzip archive"),
        (b"\x7fELF" + b"x" * 20, "a program"),
    ],
)
def test_what_is_no_text_is_refused_with_advice(data, says):
    with pytest.raises(Invalid, match=says) as refused:
        extract(data, name="a.txt")
    assert any(word in str(refused.value) for word in ("Save", "Split", "Choose", "run"))


@pytest.mark.parametrize("name", ["a.pdf", "a.docx"])
def test_a_name_that_promises_a_format_has_to_keep_it(name):
    with pytest.raises(Invalid, match="first bytes say so"):
        extract(b"just words", name=name)


def test_a_text_may_speak_of_pdf_files():
    text = "A PDF begins with %PDF-1.7."
    assert extract(text.encode(), name="notes.md").text == text


def test_the_longest_text_is_taken():
    assert len(extract(b"x" * MAX_CHARS).text) == MAX_CHARS
