"""Bytes that claim to be text, as text: by their byte order mark, else UTF-8, else the Windows code page of the West.

What is no text in any of these is refused: stored rubbish would be searched, quoted and paid for.
"""

import re

from agents.exceptions import Invalid

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
