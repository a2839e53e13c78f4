"""/healthz: can this installation do safe work right now? For probes and for people; it tells no secret.

503 when the database cannot be read or lacks the row that every call needs. What an operator must mend (a halt, a
suspended model, a lost worker, no ticker) is a red line in a 200: restarting the web process would mend none of it.
"""

from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agents.conf import clock
from agents.guard import selftest
from agents.models import Installation
from agents.sessions.control_room import Health, health


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    try:
        return JsonResponse(_state(health(clock())))
    except DatabaseError:
        return _unfit("The database cannot be read.")
    except Installation.DoesNotExist:
        return _unfit("The installation row is missing: run manage.py migrate.")


def _unfit(why: str) -> JsonResponse:
    return JsonResponse({"ok": False, "red": [why]}, status=503)


def _state(found: Health) -> dict[str, Any]:
    return {
        "ok": True,
        "database": "ok",
        "brakes": "armed" if selftest.is_armed() else "not tested in this process",
        "halted": found.halted,
        "suspended_models": list(found.suspended),
        "oldest_lease_until": _moment(found.oldest_lease_until),
        "ticker_done_at": _moment(found.ticker_done_at),
        "queued": found.queued,
        "oldest_queued_at": _moment(found.oldest_queued_at),
        "red": list(found.red),
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
