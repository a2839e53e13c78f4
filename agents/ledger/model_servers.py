"""The form in which each model's server takes requests: as declared, else as found out, else the usual one.

A server that objects to a part of a request is asked in another form (agents.providers); the form that it
took is remembered with the call that found it, for the endpoint that the model has in the catalogue.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from agents.definitions.catalogue import declaration_of
from agents.ledger.journal import Attempt
from agents.models import ModelServer
from agents.types import FORM_PARTS, WIRE_FORMS, WireForm

Declared = Mapping[str, Any]


def form_of(model: str) -> WireForm:
    """Return the form for the next request. Models in this process take the usual one."""
    declared = declaration_of(model)
    parts = FORM_PARTS.get(declared.get("provider", ""), ())
    if not parts:
        return WireForm()
    row = found_for(model, declared)
    found = row.form if row else {}
    return WireForm(**{part: declared.get(part) or found.get(part, WIRE_FORMS[part][0]) for part in parts})


def found_for(model: str, declared: Declared) -> ModelServer | None:
    """Return what was found out about the model where it is served now."""
    return ModelServer.objects.filter(model=model, endpoint=_endpoint(model, declared)).first()


def form_note(model: str, attempt: Attempt, *, now: datetime) -> None:
    """Remember what an answered attempt shows of the server, if that is new."""
    if attempt.form is None:
        return
    declared = declaration_of(model)
    usual = asdict(WireForm())
    found = {
        "endpoint": _endpoint(model, declared),
        "form": {
            part: value for part, value in asdict(attempt.form).items() if part not in declared and value != usual[part]
        },
        "streams": attempt.streamed,
        "reports_usage": attempt.usage is not None,
    }
    if not ModelServer.objects.filter(model=model, **found).exists():
        ModelServer.objects.update_or_create(model=model, defaults={**found, "found_at": now})


def form_forget(model: str) -> None:
    ModelServer.objects.filter(model=model).delete()


def _endpoint(model: str, declared: Declared) -> str:
    """Return a digest: an address can hold what is not for everybody's eyes."""
    return hashlib.sha256(f"{declared.get('url')}\n{declared.get('name', model)}".encode()).hexdigest()


def known_of(model: str) -> dict[str, Any] | None:
    """Return the form of requests, part by part with its source, and what was found out; None without a server."""
    declared = declaration_of(model)
    parts = FORM_PARTS.get(declared.get("provider", ""), ())
    if not parts:
        return None
    row = found_for(model, declared)
    found = row.form if row else {}
    sources = {part: "declared" if part in declared else "found" if part in found else "usual" for part in parts}
    form = asdict(form_of(model))
    return {
        "form": {part: {"value": form[part], "source": source} for part, source in sources.items()},
        "streams": row.streams if row else None,
        "reports_usage": row.reports_usage if row else None,
        "found_at": row.found_at if row else None,
    }
