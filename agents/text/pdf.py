"""The text of a PDF, page by page. Pages are set apart by an empty line."""

import io

from pypdf import PdfReader

from agents.exceptions import Invalid
from agents.text.limits import MAX_CHARS, MAX_PAGES

_PASSWORD = "The PDF is protected by a password. Save it without one."  # noqa: S105 a sentence about one


def pdf_text(data: bytes) -> str:
    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise Invalid(_PASSWORD)
    pages = len(reader.pages)
    if pages > MAX_PAGES:
        raise Invalid(f"The PDF has {pages:,} pages; at most {MAX_PAGES:,} are taken. Split it.")
    texts, chars = [], 0
    for page in reader.pages:
        texts.append(page.extract_text().strip())
        chars += len(texts[-1])
        if chars > MAX_CHARS:
            raise Invalid(f"The PDF has more than {MAX_CHARS:,} characters of text, which is the most taken. Split it.")
    return "\n\n".join(text for text in texts if text)
