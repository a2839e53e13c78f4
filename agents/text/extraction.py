"""Turns the bytes of a document into text: plain text, Markdown, HTML, PDF and DOCX.

The same bytes always give the same text. Whatever the bytes are, the result is a text within its limits or `Invalid`,
which says what to do. Line ends are made alike here, once, so that every stored offset is an offset into the stored
text. PDF, DOCX and HTML are read in a subprocess; that part must not import anything that needs settings.
"""

import codecs
import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from agents.exceptions import Invalid
from agents.text.formats import (
    MAX_BYTES,
    MAX_CHARS,
    MAX_MEMORY_BYTES,
    MAX_READERS,
    MAX_SECONDS,
    MAX_WAIT_SECONDS,
    check_archive,
    docx_text,
    html_text,
    pdf_text,
)

# --- Kinds of documents ---


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
_BY_MEDIA_TYPE = {
    **{kind.media_type: kind for kind in Kind},
    "application/xhtml+xml": Kind.HTML,
    "text/x-markdown": Kind.MARKDOWN,
}
_BY_SUFFIX = {
    ".txt": Kind.TEXT,
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".pdf": Kind.PDF,
    ".docx": Kind.DOCX,
}
# First bytes of formats that are not read, though they may pass for text
_REFUSED = {
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office file",
    b"{\\rtf": "RTF",
}
_PDF = b"%PDF-"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_HTML_STARTS = (b"<!doctype html", b"<html")
_HEAD = 1_024


def kind_of(data: bytes, *, name: str, media_type: str) -> Kind:
    """Tell the kind by the first bytes where they show it, else by the name and the media type.

    A document that is called PDF or DOCX and is none is refused.
    """
    for start, what in _REFUSED.items():
        if data.startswith(start):
            raise Invalid(f"The document is {what}, which is not read. Save it as PDF, DOCX, HTML or text.")
    declared = _declared_kind(name, media_type)
    head = data[:_HEAD]
    if head.lstrip().startswith(_PDF) or (declared == Kind.PDF and _PDF in head):  # a text may mention %PDF- too
        return Kind.PDF
    if data.startswith(_ZIP):
        if b"word/document" in data:
            return Kind.DOCX
        raise Invalid("The document is an archive, not a DOCX. Add its files one by one.")
    if declared in {Kind.PDF, Kind.DOCX}:
        raise Invalid(f"The document is called {declared.name}, but its content is not. Save it again.")
    looks_like_html = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML_STARTS)
    return declared or (Kind.HTML if looks_like_html else Kind.TEXT)


def _declared_kind(name: str, media_type: str) -> Kind | None:
    """The name counts for more than the media type: many senders declare everything as text/plain."""
    by_name = _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())
    return by_name or _BY_MEDIA_TYPE.get(media_type.partition(";")[0].strip().lower())


# --- Extracting ---

# Editable, as `make run` installs it: a copy would use another database.
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
        raise Invalid(f"The document is {len(data):,} bytes long; at most {MAX_BYTES:,} are read. Split it.")
    kind = kind_of(data, name=name, media_type=media_type)
    text = normalise_text(_read(data, kind))
    if len(text) > MAX_CHARS:
        raise Invalid(f"The document has {len(text):,} characters of text; at most {MAX_CHARS:,} are read. Split it.")
    if not text.strip():
        raise Invalid("The document holds no text. If it is a scan, run text recognition (OCR) on it first.")
    return Extracted(text, kind.media_type)


def normalise_text(text: str) -> str:
    """Return the text as it is stored: one kind of line end, and no character that a database refuses."""
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
        return read_in_subprocess(data, kind)
    return decode(data)


# --- Decoding ---


# The longer marks first: UTF-32 begins like UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Everything below a space but tab, line feed, vertical tab, form feed, carriage return and escape.
_CONTROLS = re.compile(b"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HIGH = re.compile(b"[\x80-\xff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
# A few control characters are tolerated; one in fifty means that it is not text.
FREE_CONTROLS = 4
CONTROLS_IN = 50
# Western text in a one-byte encoding has few letters beyond ASCII; more of them means another encoding.
HIGH_PERCENT = 30
_ADVICE = "Save it as UTF-8 text, or as PDF, DOCX or HTML."


def decode(data: bytes) -> str:
    """Decode by the byte order mark, else as UTF-8, else as Windows-1252; refuse what is not text.

    A few bytes that the encoding does not know are shown as U+FFFD.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError as error:
                message = f"The document is marked as {encoding}, but byte {error.start} is not valid. {_ADVICE}"
                raise Invalid(message) from None
    controls = len(_CONTROLS.findall(data))
    if controls > FREE_CONTROLS + len(data) // CONTROLS_IN:
        raise Invalid(f"The document is not text: {controls:,} of its {len(data):,} bytes are control codes. {_ADVICE}")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    text = data.decode("utf-8-sig", "replace")
    if 2 * text.count("\ufffd") <= len(_BEYOND_ASCII.findall(text)):  # the good letters outnumber the bad bytes
        return text
    if len(_HIGH.findall(data)) * 100 > HIGH_PERCENT * len(data) or b"\x00" in data:
        raise Invalid(f"The document is neither UTF-8 text nor text in a Western encoding. {_ADVICE}")
    return data.decode("cp1252", "replace")


# --- The subprocess ---
#
# The parsers of PDF, DOCX and HTML were written for documents, not for attacks: some bytes make them loop, recurse or
# grow without end, and no check beforehand finds them all. A process can be ended; a thread cannot. It gets the bytes
# and nothing else: no settings, no secrets of the environment. Few run at once, so that memory stays bounded.


_ROOT = Path(__file__).resolve().parents[2]
_START = "from agents.text.extraction import main; main()"
_slots = threading.BoundedSemaphore(MAX_READERS)


def read_in_subprocess(data: bytes, kind: Kind) -> str:
    if not _slots.acquire(timeout=MAX_WAIT_SECONDS):
        raise Invalid(f"Other documents have been read for {MAX_WAIT_SECONDS} seconds. Add this one again later.")
    try:
        return _run_reader(data, kind)
    finally:
        _slots.release()


def _run_reader(data: bytes, kind: Kind) -> str:
    seconds = MAX_SECONDS[kind]
    search_path = os.pathsep.join([str(_ROOT), *(place for place in sys.path if place)])
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter and module; the bytes go in as input
            [sys.executable, "-P", "-B", "-c", _START, kind],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": search_path, "PATH": os.defpath},
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"Reading the document as {kind.name} took longer than {seconds} seconds. Split it, or save it as text."
        ) from None
    if done.returncode != 0:
        raise Invalid(
            f"The document could not be read as {kind.name}: it is damaged, or needs more time or memory than it is "
            "given. Save it again, or as text."
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    return str(answer["text"])


_READERS: Mapping[str, Callable[[bytes], str]] = {
    Kind.HTML: lambda data: html_text(decode(data)),
    Kind.PDF: pdf_text,
    Kind.DOCX: docx_text,
}


def answer(kind: str, data: bytes) -> dict[str, str]:
    """Return the JSON object that the subprocess writes."""
    try:
        return {"text": _READERS[kind](data)}
    except Invalid as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # noqa: BLE001 whatever a parser raises, the document is at fault
        name = type(error).__name__
        return {"refused": f"The document could not be read as {kind.upper()} ({name}). Save it again, or as text."}


def _limit_process(kind: str) -> None:
    """Set limits that the operating system enforces, whatever a parser does."""
    limits = {
        resource.RLIMIT_CPU: MAX_SECONDS[kind],
        resource.RLIMIT_AS: MAX_MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,  # it writes no file
    }
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # a system without this limit has the others, and the timeout
            resource.setrlimit(limit, (most, most))


def main() -> None:
    """Run in the subprocess: read bytes from standard input, write one JSON object."""
    kind = sys.argv[1]
    _limit_process(kind)
    found = answer(kind, sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(found))
