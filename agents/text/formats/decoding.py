"""Bytes to text: by the byte order mark, else as UTF-8, else as Windows-1252; what is not text is refused."""

import codecs
import re
from contextlib import suppress

from agents.exceptions import Invalid
from agents.text.formats.kinds import SAVE_AS

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


def decode(data: bytes) -> str:
    """Decode by the byte order mark, else as UTF-8, else as Windows-1252; refuse what is not text.

    A few bytes that the encoding does not know are shown as U+FFFD.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError as error:
                message = f"It is marked as {encoding}, but byte {error.start} is not valid. {SAVE_AS}"
                raise Invalid(message) from None
    controls = len(_CONTROLS.findall(data))
    if controls > FREE_CONTROLS + len(data) // CONTROLS_IN:
        raise Invalid(f"It is not text: {controls:,} of its {len(data):,} bytes are control codes. {SAVE_AS}")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    text = data.decode("utf-8-sig", "replace")
    if 2 * text.count("\ufffd") <= len(_BEYOND_ASCII.findall(text)):  # the good letters outnumber the bad bytes
        return text
    if len(_HIGH.findall(data)) * 100 > HIGH_PERCENT * len(data) or b"\x00" in data:
        raise Invalid(f"It is neither UTF-8 text nor text in a Western encoding. {SAVE_AS}")
    return data.decode("cp1252", "replace")
