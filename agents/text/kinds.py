"""What a document is: by its first bytes where they tell, else by what its sender says of it."""

from enum import StrEnum
from pathlib import PurePosixPath

from agents.exceptions import Invalid

_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


class Kind(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    Kind.TEXT: "text/plain",
    Kind.MARKDOWN: "text/markdown",
    Kind.HTML: "text/html",
    Kind.PDF: "application/pdf",
    Kind.DOCX: _WORD,
}
_SAID = {
    **{kind.media_type: kind for kind in Kind},
    "application/xhtml+xml": Kind.HTML,
    "text/x-markdown": Kind.MARKDOWN,
}
_SUFFIXES = {
    ".txt": Kind.TEXT,
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".pdf": Kind.PDF,
    ".docx": Kind.DOCX,
}
# What would pass for text, or says by its first bytes that it is something else
_REFUSED = {
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office file",
    b"{\\rtf": "RTF",
    b"\x1f\x8b": "a gzip archive",
    b"\x7fELF": "a program",
}
_PDF = b"%PDF-"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_HTML_STARTS = (b"<!doctype html", b"<html")
_HEAD = 1_024


def kind_of(data: bytes, *, name: str, media_type: str) -> Kind:
    """PDF and DOCX show in their bytes, whatever the name is; a name that promises one of them has to keep it."""
    for start, what in _REFUSED.items():
        if data.startswith(start):
            raise Invalid(f"The document is {what}, which is not read. Save it as PDF, DOCX, HTML or text.")
    said, head = _said(name, media_type), data[:_HEAD]
    if head.lstrip().startswith(_PDF) or (said == Kind.PDF and _PDF in head):  # a text may speak of %PDF- too
        return Kind.PDF
    if data.startswith(_ZIP):
        if b"word/document" in data:
            return Kind.DOCX
        raise Invalid("The document is an archive, and no DOCX. Add the files in it one by one.")
    if said in {Kind.PDF, Kind.DOCX}:
        raise Invalid(f"The document is called {said.name} and is none: its first bytes say so. Save it anew.")
    looks_like_html = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML_STARTS)
    return said or (Kind.HTML if looks_like_html else Kind.TEXT)


def _said(name: str, media_type: str) -> Kind | None:
    """The name is more to the point than the media type: senders that know nothing say text/plain."""
    by_name = _SUFFIXES.get(PurePosixPath(name).suffix.lower())
    return by_name or _SAID.get(media_type.partition(";")[0].strip().lower())
