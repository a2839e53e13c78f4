"""emit_finding: writes down what the run found, and says of its quote only what was checked here.

The caller names a document, a quote and where it stands. The quote counts as verified when the document is the owner's
and holds these very characters at that place; nobody's word is taken for it.
"""

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Substr

from agents.enums import QuoteCheck
from agents.guard.context import CallContext
from agents.guard.params import text
from agents.models import Document, Finding
from agents.text.chunks import is_checkable

LONGEST_QUOTE = 10_000
MOST = 2_147_483_647  # what a PositiveIntegerField holds


def emit_finding(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    finding = Finding.objects.create(
        session_id=context.session_pk,
        severity=text(params, "severity", "info", limit=32),
        title=text(params, "title", "(untitled)", limit=300) or "(untitled)",
        content=text(params, "content", ""),
        created_at=context.now,
        **_cited(context, params),
        **_judged(params),
    )
    return {"finding_id": str(finding.public_id), "quote_check": finding.quote_check}


def _cited(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    """The document and the quote, with its place if it stands there. An unknown document is left out."""
    quote = text(params, "quote", "", limit=LONGEST_QUOTE)
    start = _count(params.get("quote_start"))
    document_id, said = _look_up(context, text(params, "document", ""), start, len(quote))
    cited: dict[str, Any] = {"document_id": document_id, "quote": quote}
    if quote and start is not None and said == quote and is_checkable(quote):
        end = start + len(quote)
        return {**cited, "quote_start": start, "quote_end": end, "quote_check": QuoteCheck.VERIFIED}
    return {**cited, "quote_check": QuoteCheck.UNVERIFIED if quote else ""}


def _look_up(context: CallContext, named: str, start: int | None, length: int) -> tuple[int | None, str]:
    """The owner's document of that id, and what it says at the place. Only that slice leaves the database."""
    try:
        public_id = uuid.UUID(named)
    except ValueError:
        return None, ""
    rows = Document.objects.filter(public_id=public_id, owner_id=context.owner_id, deleted_at__isnull=True)
    said = Substr("text", (start or 0) + 1, max(length, 1), output_field=TextField())
    found = rows.annotate(said=said).values_list("pk", "said").first()
    return found or (None, "")


def _judged(params: Mapping[str, Any]) -> dict[str, int]:
    """How many judges answered, and how many of them say that the quote supports the finding."""
    agreed, asked = _count(params.get("judges_for")), _count(params.get("judges_asked"))
    if agreed is None or not asked or agreed > asked:
        return {}
    return {"judges_for": agreed, "judges_asked": asked}


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST - LONGEST_QUOTE:
        return value
    return None
