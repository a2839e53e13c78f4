"""Turns the bytes of a document into the text that runs read: text, Markdown, HTML, PDF and DOCX.

Nothing is kept; the same bytes always give the same text. Whatever the bytes are, the answer is a text within its
limits or `Invalid`, which says what to do. Line ends are made alike here, once, so that every offset that is kept
anywhere is an offset into the stored text.
"""

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
from types import MappingProxyType

from agents.exceptions import Invalid
from agents.text.formats import (
    MAX_BYTES,
    MAX_CHARS,
    MAX_MEMORY_BYTES,
    MAX_READERS,
    MAX_SECONDS,
    MAX_WAIT_SECONDS,
    check_archive,
)

# Bytes that claim to be text, as text: by their byte order mark, else UTF-8, else the Windows code page of the West.
#
# What is no text in any of these is refused: stored rubbish would be searched, quoted and paid for.


_UTF8_MARK = b"\xef\xbb\xbf"
# The longer marks first: UTF-32 begins like UTF-16.
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# Everything below a space but tab, line feed, vertical tab, form feed, carriage return and escape
_CONTROLS = re.compile(b"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HIGH = re.compile(b"[\x80-\xff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_BROKEN = "\ufffd"
# A stray control character or two is a slip; one in fifty is no text.
FREE_CONTROLS = 4
CONTROLS_IN = 50
# Western text in a one-byte code has few letters beyond ASCII; more of them is another code, and would be garbled.
HIGH_PERCENT = 30
_ADVICE = "Save it as UTF-8 text, or as PDF, DOCX or HTML."


def decoded(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], encoding)
    _refuse_binary(data)
    data = data.removeprefix(_UTF8_MARK)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _mended(data) or _western(data)


def _mended(data: bytes) -> str:
    """UTF-8 with a few bad bytes, which are shown as such; nothing if there are more of them than of good letters."""
    text = data.decode("utf-8", "replace")
    broken = text.count(_BROKEN)
    return text if broken <= len(_BEYOND_ASCII.findall(text)) - broken else ""


def _strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Invalid(f"The document says that it is {encoding} and is not, at byte {error.start}. {_ADVICE}") from None


def _refuse_binary(data: bytes) -> None:
    controls = len(_CONTROLS.findall(data))
    if controls > FREE_CONTROLS + len(data) // CONTROLS_IN:
        raise Invalid(f"The document is no text: {controls:,} of its {len(data):,} bytes are control codes. {_ADVICE}")


def _western(data: bytes) -> str:
    high = len(_HIGH.findall(data))
    if high * 100 > HIGH_PERCENT * len(data) or b"\x00" in data:
        raise Invalid(f"The document is no text in UTF-8, nor in a Western code. {_ADVICE}")
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # has a meaning for every byte


# --- What a document is: by its first bytes where they tell, else by what its sender says of it ---


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


# --- Reads what has a structure in a process of its own, with a bound on time and memory ---
#
# The parsers of PDF, DOCX and HTML were written for documents, not for attacks: some bytes make them loop, recurse or
# grow without end, and no check beforehand sees them all. A process can be ended; a thread cannot. It is given the
# bytes and nothing else: no settings, no secrets of the environment. Few of them run at once, so that many documents
# together take no more memory than a few.


_ROOT = Path(__file__).resolve().parents[2]
_START = "from agents.text.extraction import main; main()"
_turns = threading.BoundedSemaphore(MAX_READERS)


def read_apart(data: bytes, kind: Kind) -> str:
    if not _turns.acquire(timeout=MAX_WAIT_SECONDS):
        raise Invalid(f"Other documents are being read, for {MAX_WAIT_SECONDS} seconds now. Add this one again later.")
    try:
        return _read_in_process(data, kind)
    finally:
        _turns.release()


def _read_in_process(data: bytes, kind: Kind) -> str:
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
            "given. Save it anew, or as text."
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    return str(answer["text"])


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


# --- The process that reads one document: bytes come in, one JSON object goes out ---
#
# agents/text/extraction.py starts it. It must not import anything that needs settings.


def _html(data: bytes) -> str:
    from agents.text.formats import visible_text  # each reader pays for its own libraries only

    return visible_text(decoded(data))


def _pdf(data: bytes) -> str:
    from agents.text.formats import pdf_text

    return pdf_text(data)


def _docx(data: bytes) -> str:
    from agents.text.formats import check_markup, docx_text

    check_markup(data)
    return docx_text(data)


_READERS: Mapping[str, Callable[[bytes], str]] = MappingProxyType(
    {Kind.HTML: _html, Kind.PDF: _pdf, Kind.DOCX: _docx},
)


def answer(kind: str, data: bytes) -> dict[str, str]:
    try:
        return {"text": _READERS[kind](data)}
    except Invalid as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # noqa: BLE001 whatever a parser raises, the document is what is wrong
        named = type(error).__name__
        return {"refused": f"The document could not be read as {kind.upper()} ({named}). Save it anew, or as text."}


def _bound(kind: str) -> None:
    """Limits that the system holds even when a parser is beyond listening."""
    limits = {
        resource.RLIMIT_CPU: MAX_SECONDS[kind],
        resource.RLIMIT_AS: MAX_MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,  # it has nothing to write to a file
    }
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # a system that does not know this one has the others, and the time limit
            resource.setrlimit(limit, (most, most))


def main() -> None:
    kind = sys.argv[1]
    _bound(kind)
    found = answer(kind, sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(found))
