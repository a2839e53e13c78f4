"""A run's receipt as a page and as JSON: authorise, build, present. Also the public key, and an export as a download.

`may_read_receipt` alone decides who may read a receipt, from the receipt itself, so nothing here needs to know what a
session is. Anybody else gets the same 404 as for a session that does not exist.
"""

import re
from collections.abc import AsyncIterator, Generator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from audit import recorder, utc_now
from audit.checkpoints import KEY_REPLACED
from audit.export import TYPES, file_name
from audit.keys import public_key
from audit.kinds import actors_of, receipt_names, usernames
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.receipts import (
    NAMES,
    UnknownChain,
    build_receipt,
    label_of,
    outcome_sentence,
    spent_text,
    started_by,
    with_names,
)
from audit.rows import UnreadableRow
from audit.seals import newest_seam
from audit.verify import verify_chain

MOMENTS = frozenset({"at", "started_at", "ended_at"})
ACTORS = frozenset({"actor", "resolved_by"})
READ_ALL = "audit.view_auditevent"
# The page is text with an inline style sheet: it loads the font of this site, runs nothing and sends nothing.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; font-src 'self'; base-uri 'none'; form-action 'none'"


def may_read_receipt(user: AbstractBaseUser | AnonymousUser, receipt: Mapping[str, Any]) -> bool:
    """The owner of the session may, and whoever may read the whole audit log."""
    owner = receipt["owner_id"]
    return (owner is not None and str(owner) == str(user.pk)) or _reads_all(user)


@require_safe
@never_cache
@login_required
def receipt_page(request: HttpRequest, chain: str) -> HttpResponse:
    try:
        receipt = _receipt_for(request, chain)
    except UnreadableRow as error:
        broken = {"session_id": chain, "unreadable": str(error)}
        return _with_policy(render(request, "audit/receipt.html", broken, status=500))
    names = _names(receipt)
    context = _for_template(receipt, names)
    context |= {
        **receipt_names(receipt, request.user),
        "owner": names.get(f"user:{receipt['owner_id']}", f"user {receipt['owner_id']}"),
        "outcome": outcome_sentence(receipt, names),
        "spent": spent_text(receipt),
        "started_by": started_by(receipt, names),
        "started_within": _session_in(receipt["asked_by"] or ""),
        "started_runs": _started_runs(chain),
        "problems": verify_chain(chain).problems,
    }
    return _with_policy(render(request, "audit/receipt.html", context))


_RUN: Final = re.compile(r"[0-9a-f-]{36}")


def _session_in(actor: str) -> str:
    """Return the run that an actor is; empty for a person."""
    kind, _, chain = actor.partition(":")
    return chain if kind == "session" and _RUN.fullmatch(chain) else ""


def _started_runs(chain: str) -> list[str]:
    """Return the runs that a run has started, in their order."""
    events = AuditEvent.objects.filter(chain=chain, kind="run.handed_on").order_by("seq")
    found = (str(details.get("child_id")) for details in events.values_list("details", flat=True))
    return [run for run in found if _RUN.fullmatch(run)]


@require_safe
@never_cache
@login_required
def receipt_json(request: HttpRequest, chain: str) -> HttpResponse:
    try:
        return JsonResponse(_receipt_for(request, chain))
    except UnreadableRow as error:
        return JsonResponse({"code": "unreadable", "message": str(error)}, status=500)


def _receipt_for(request: HttpRequest, chain: str) -> dict[str, Any]:
    try:
        receipt = build_receipt(chain)
    except UnknownChain:
        raise Http404 from None
    except UnreadableRow:
        if _reads_all(request.user):
            raise
        raise Http404 from None  # an unreadable chain has no provable owner
    if not may_read_receipt(request.user, receipt):
        raise Http404
    if str(receipt["owner_id"]) != str(request.user.pk):
        _audit_view(request, chain)
    return receipt


def _audit_view(request: HttpRequest, chain: str) -> None:
    """Write an audit event: somebody other than the owner views the receipt."""
    recorder.append(
        SYSTEM_CHAIN,
        "session.viewed",
        now=utc_now(),
        actor=f"user:{request.user.pk}",
        subject=f"session:{chain}",
        details={"session_id": chain},
    )


def _reads_all(user: AbstractBaseUser | AnonymousUser) -> bool:
    return isinstance(user, PermissionsMixin) and user.has_perm(READ_ALL)


def _with_policy(response: HttpResponse) -> HttpResponse:
    response["Content-Security-Policy"] = CONTENT_POLICY
    return response


def _for_template(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """The receipt for the template: datetimes, names and labels in place of text, ids and values."""
    if isinstance(value, dict):
        return {name: _for_template(inner, names, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_for_template(inner, names) for inner in value]
    if value and key in MOMENTS:
        return datetime.fromisoformat(value)
    if key == "sentence":
        return with_names(value, names)
    return names.get(value, value) if key in ACTORS else label_of(key, value)


def _names(receipt: Mapping[str, Any]) -> dict[str, str]:
    """Names for the ids that the audit log holds."""
    known = usernames(actors_of(receipt))
    return {**NAMES, **{actor: f"{name} ({actor.replace(':', ' ')})" for actor, name in known.items()}}


# --- The public key, for whoever verifies an export ---


@require_safe
def audit_key(request: HttpRequest) -> HttpResponse:
    """Return the public key that signs checkpoints and exports, and those that it has replaced."""
    replaced = AuditEvent.objects.filter(chain=SYSTEM_CHAIN, kind=KEY_REPLACED).order_by("seq")
    former = [{"replaced_at": event.at.isoformat(), **event.details} for event in replaced]
    former = [*newest_seam(dropped=True).keys, *former]
    return JsonResponse({"algorithm": "Ed25519", "key": public_key(), "former": former})


# --- An export as a download ---

CHUNK_LINES: Final = 500


def download(
    request: HttpRequest, lines: Generator[str, None, None], *, form: str, now: datetime
) -> StreamingHttpResponse:
    """Send the lines of an export as they are made."""
    sent = _async_chunks(lines) if isinstance(request, ASGIRequest) else _chunks(lines)
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name(form, now)}"',
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",  # proxies must not buffer
    }
    return StreamingHttpResponse(sent, content_type=TYPES[form], headers=headers)


def _chunks(lines: Generator[str, None, None]) -> Generator[bytes, None, None]:
    while chunk := "".join(islice(lines, CHUNK_LINES)):
        yield chunk.encode("ascii")


async def _async_chunks(lines: Generator[str, None, None]) -> AsyncIterator[bytes]:
    """Read in one thread, whose connection ends with the response. Django would collect all of a plain iterator."""
    chunks = _chunks(lines)
    try:
        while chunk := await sync_to_async(lambda: next(chunks, b""))():
            yield chunk
    finally:
        await sync_to_async(lines.close)()


# --- URLs ---

app_name = "audit"

urlpatterns = [
    path("receipts/<str:chain>/", receipt_page, name="receipt"),
    path("receipts/<str:chain>.json", receipt_json, name="receipt-json"),
    path(".well-known/lqops-audit-key", audit_key, name="key"),
]
