"""Text and Markdown: encodings, line ends, limits, and files that are not text."""

import pytest

from agents.exceptions import Invalid
from agents.text.extraction import extract
from agents.text.formats.limits import MAX_BYTES, MAX_CHARS
from tests.agents.text.reading import extract_here
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
        (b"a price of 5 \x81 and more words", "a price of 5 \ufffd and more words"),
    ],
    ids=[
        "utf-8",
        "utf-8 repaired before",
        "utf-8 with mark",
        "utf-16 le",
        "utf-16 be",
        "utf-32 le",
        "utf-32 be",
        "cp1252",
        "utf-8 with a slip",
        "marked utf-8 with a slip",
        "cp1252 with a slip",
    ],
)
def test_encodings_are_recognised(data, text):
    assert extract(data, name="a.txt").text == text


def test_line_ends_are_made_alike():
    assert extract(b"one\r\ntwo\rthree\nfour\r\n\r\nfive").text == "one\ntwo\nthree\nfour\n\nfive"


def test_unstorable_characters_are_replaced_visibly():
    assert extract(b"a\x00b").text == "a\ufffdb"
    assert extract(b"\xff\xfea\x00\x00\x00b\x00").text == "a\ufffdb"


def test_lone_surrogate_in_utf_16_is_refused():
    with pytest.raises(Invalid, match="marked as utf-16, but byte"):
        extract(b"\xff\xfea\x00\x00\xd8")


@every_row(
    ("name", "media_type", "found"),
    [
        ("notes.md", "", "text/markdown"),
        ("NOTES.MARKDOWN", "", "text/markdown"),
        ("notes", "text/markdown; charset=utf-8", "text/markdown"),
        ("notes.txt", "text/markdown", "text/plain"),
        ("table.csv", "text/plain", "text/csv"),
        ("", "", "text/plain"),
    ],
)
def test_media_type_is_that_of_the_kind_that_was_read(name, media_type, found):
    assert extract_here(b"# Heading", name=name, media_type=media_type).media_type == found


@every_row(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b" \n\t ", "holds no text"),
        (b"x" * (MAX_BYTES + 1), "longer than 20,000,000 bytes"),
        (b"x" * (MAX_CHARS + 1), "more than 5,000,000 characters"),
        (bytes(range(32)) * 20, "control codes"),
        (bytes(range(128, 256)) * 3, "nor text in a Western encoding"),
        ("Договор поставки".encode("cp1251"), "nor text in a Western encoding"),
        (b"caf\xe9 \x00 words and more words", "nor text in a Western encoding"),
        (b"\xff\xfea", "marked as utf-16, but byte"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 100, "an old Office file"),
    ],
)
def test_document_that_is_not_text_is_refused_with_advice(data, says):
    with pytest.raises(Invalid, match=says) as refused:
        extract(data, name="a.txt")
    assert any(word in str(refused.value) for word in ("Save", "Split", "Choose", "run"))


def test_text_that_mentions_the_pdf_mark_is_text():
    text = "A PDF begins with %PDF-1.7."
    assert extract(text.encode(), name="notes.md").text == text


def test_text_of_the_greatest_length_is_read():
    assert len(extract(b"x" * MAX_CHARS).text) == MAX_CHARS
