"""Judges the archive inside a DOCX: by its directory before anything in it is unpacked, then by its markup, unread.

A packed file may declare little and hold much, but no reader unpacks more of it than it declares: the declared sizes
are the bound.
"""

import io
import zipfile

from agents.exceptions import Invalid
from agents.text.limits import MAX_ELEMENTS, MAX_ENTRIES, MAX_RATIO, MAX_UNPACKED_BYTES, RATIO_FREE_BYTES

_ENTRY = b"PK\x01\x02"  # begins each entry of the directory
_PIECE = 1_048_576


def check_archive(data: bytes) -> None:
    entries = data.count(_ENTRY)  # before the directory is read: reading a huge one is work of its own
    if entries > MAX_ENTRIES:
        raise Invalid(
            f"The document's archive has {entries:,} entries; at most {MAX_ENTRIES:,} are taken. Save it anew."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeDecodeError):
        raise Invalid("The document's archive is damaged. Save it anew.") from None
    unpacked = sum(entry.file_size for entry in listed)
    if unpacked > MAX_UNPACKED_BYTES:
        raise Invalid(
            f"The document would unpack to {unpacked:,} bytes; at most {MAX_UNPACKED_BYTES:,} are taken. Split it."
        )
    if unpacked > max(RATIO_FREE_BYTES, MAX_RATIO * len(data)):
        raise Invalid(
            f"The document would unpack to {unpacked // len(data):,} times its size; at most {MAX_RATIO} times is "
            "taken. Save it anew, or as PDF."
        )


def check_markup(data: bytes) -> None:
    """Counts what opens an element, in every entry: which of them hold markup is for the document itself to say."""
    elements = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as unpacked:
                while piece := unpacked.read(_PIECE):
                    elements += piece.count(b"<") - piece.count(b"</")
                    if elements > MAX_ELEMENTS:
                        raise Invalid(
                            f"The document has more than {MAX_ELEMENTS:,} elements. Split it, or save it as PDF."
                        )
