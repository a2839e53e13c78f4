"""Looks at rows: each by somebody other than the owner is on record, once; a page that refreshes itself is one look."""

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest

from agents.conf import clock
from agents.people.access import belonging, row_view

LASTS: Final = timedelta(minutes=30)
SIGNER: Final = TimestampSigner(salt="lqops.look")


def look(request: HttpRequest, by: User, *rows: Any) -> None:
    """Called wherever a page, or a download, shows what rows hold; several parts of one run are one look."""
    fresh = [row for row in rows if row is not None and not _is_same(request, row, by)]
    for row in {_name(belonging(row)[0] or row): row for row in fresh}.values():
        row_view(row=row, by=by, now=clock())


def look_token(by: User, *rows: Any) -> str:
    """Shows that this person's look at these rows is on record."""
    return SIGNER.sign(" ".join([f"by:{by.pk}", *map(_name, rows)]))


def _is_same(request: HttpRequest, row: Any, by: User) -> bool:
    try:
        known = SIGNER.unsign(request.GET.get("look", ""), max_age=LASTS).split()
    except BadSignature:
        return False
    return known[0] == f"by:{by.pk}" and _name(row) in known


def _name(row: Any) -> str:
    return f"{row._meta.label_lower}:{row.pk}"
