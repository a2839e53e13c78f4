"""PDF, page by page."""

import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from agents.exceptions import Invalid
from agents.text.formats.kinds import OCR, PASSWORD
from agents.text.formats.limits import MAX_PAGES
from agents.text.marks import Part

_TAIL = 2_048
_SCANNED = "[This page is an image and was not read: lqops does no text recognition (OCR).]"
_NO_TEXT = f"The PDF holds no text: its pages are images, as of a scan. {OCR}"


def pdf_parts(data: bytes) -> Iterator[Part]:
    from pypdf import PdfReader

    if b"%%EOF" not in data.rstrip(b"\x00\t\r\n ")[-_TAIL:]:
        raise Invalid("The PDF is cut off: its end is missing. Copy or save it again.")
    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Invalid(PASSWORD)
    pages = len(reader.pages)
    if pages > MAX_PAGES:
        raise Invalid(f"The PDF has {pages:,} pages; at most {MAX_PAGES:,} are read. Split it.")
    has_text = False
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text().strip()
        has_text = has_text or bool(text)
        yield Part(text or (_SCANNED if _holds_image(page) else ""), f"page {number}")
    if not has_text:
        raise Invalid(_NO_TEXT)


def _holds_image(page: Any) -> bool:
    """Return whether the page draws an image. The names are looked at, not the images."""
    with suppress(Exception):  # whatever is odd about its resources, its text was read
        drawn = page["/Resources"]["/XObject"].values()
        return any(one.get_object().get("/Subtype") == "/Image" for one in drawn)
    return False
