"""Findings of runs, and whether their quotes stand in the documents they cite."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import TextField
from django.db.models.functions import Substr

from agents.enums import QuoteCheck
from agents.models import Document, Finding
from agents.text.marks import location_of
from agents.text.quotes import QuotableText, is_verifiable_quote

MOST: Final = 2_147_483_647  # what a PositiveIntegerField holds
UNTITLED: Final = "(untitled)"


def finding_add(
    *,
    owner_id: int,
    session_pk: int,
    title: str,
    now: datetime,
    severity: str = "info",
    content: str = "",
    document: str = "",
    quote: str = "",
    quote_start: int | None = None,
    **judged: int,
) -> Finding:
    """Store a finding. Its quote is verified if the owner's document holds exactly it at `quote_start`."""
    return Finding.objects.create(
        session_id=session_pk,
        severity=severity,
        title=title or UNTITLED,
        content=content,
        created_at=now,
        **_cited(owner_id, document, quote, quote_start),
        **judged,
    )


def quote_place(*, owner_id: int, document: str, quote: str) -> tuple[str, int | None]:
    """Return the quote as the owner's document has it, and its offset; else as it was given, and None."""
    public_id = _uuid(document)
    if public_id is None or not quote:
        return quote, None
    rows = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True)
    text = rows.values_list("text", flat=True).first() or ""
    place = QuotableText(text).find(quote)
    return (text[slice(*place)], place[0]) if place else (quote, None)


def _cited(owner_id: int, document: str, quote: str, start: int | None) -> dict[str, Any]:
    """Return the document and the quote, with its offset if it stands there. An unknown document is left out."""
    document_id, found, marks = _look_up(owner_id, document, start, len(quote))
    cited: dict[str, Any] = {"document_id": document_id, "quote": quote}
    if quote and start is not None and found == quote and is_verifiable_quote(quote):
        end = start + len(quote)
        place = {"quote_start": start, "quote_end": end, "location": location_of(marks, start, end)}
        return {**cited, **place, "quote_check": QuoteCheck.VERIFIED}
    return {**cited, "quote_check": QuoteCheck.UNVERIFIED if quote else ""}


def _look_up(owner_id: int, named: str, start: int | None, length: int) -> tuple[int | None, str, list[Any]]:
    """Return the owner's document, its text at that place, and its marks. Only that slice leaves the database."""
    public_id = _uuid(named)
    if public_id is None:
        return None, "", []
    rows = Document.objects.filter(public_id=public_id, owner_id=owner_id, deleted_at__isnull=True)
    part = Substr("text", (start or 0) + 1, max(length, 1), output_field=TextField())
    found = rows.annotate(part=part).values_list("pk", "part", "marks").first()
    return found or (None, "", [])


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
