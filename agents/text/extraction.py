"""Turns the bytes of a document into the text that runs read: text, Markdown, HTML, PDF and DOCX.

Nothing is kept; the same bytes always give the same text. Whatever the bytes are, the answer is a text within its
limits or `Invalid`, which says what to do. Line ends are made alike here, once, so that every offset that is kept
anywhere is an offset into the stored text.
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec

from agents.exceptions import Invalid
from agents.text.apart import read_apart
from agents.text.archives import check_archive
from agents.text.decoding import decoded
from agents.text.kinds import Kind, kind_of
from agents.text.limits import MAX_BYTES, MAX_CHARS

__all__ = ["INSTALLING", "MAX_BYTES", "MAX_CHARS", "Extracted", "extract", "plain"]

# Editable, as `make run` installed it: a copy would use another database.
INSTALLING = "run .venv/bin/pip install -e '.[docs]' in the folder of lqops and start it again"
_NEEDS = {Kind.PDF: "pypdf", Kind.DOCX: "docx"}
_LINE_END = re.compile("\r\n?")
# NUL and lone surrogates cannot be stored; they are replaced, visibly.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Extracted:
    text: str
    media_type: str


def extract(data: bytes, *, name: str = "", media_type: str = "") -> Extracted:
    if not data:
        raise Invalid("The document is empty: 0 bytes. Choose a file with content.")
    if len(data) > MAX_BYTES:
        raise Invalid(f"The document is {len(data):,} bytes long; at most {MAX_BYTES:,} are taken. Split it.")
    kind = kind_of(data, name=name, media_type=media_type)
    text = plain(_read(data, kind))
    if len(text) > MAX_CHARS:
        raise Invalid(f"The document has {len(text):,} characters of text; at most {MAX_CHARS:,} are taken. Split it.")
    if not text.strip():
        raise Invalid("The document holds no text. If it is a scan, run text recognition (OCR) on it first.")
    return Extracted(text, kind.media_type)


def plain(text: str) -> str:
    """As it is stored: one kind of line end, and nothing that a database refuses."""
    return _UNSTORABLE.sub("\ufffd", _LINE_END.sub("\n", text))


def _read(data: bytes, kind: Kind) -> str:
    needed = _NEEDS.get(kind)
    if needed is not None and find_spec(needed) is None:
        raise Invalid(
            f"Reading {kind.name} needs a library that is not installed: {INSTALLING}, or save the document as text."
        )
    if kind == Kind.DOCX:
        check_archive(data)
    if kind in {Kind.PDF, Kind.DOCX, Kind.HTML}:
        return read_apart(data, kind)
    return decoded(data)
