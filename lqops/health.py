"""/healthz: can this installation do safe work right now? For probes and for people; it tells no secret.

503 when the database cannot be read or lacks the row that every call needs. What an operator must mend (a halt, a
suspended model, a lost worker) is a red line in a 200: restarting the web process would mend none of it.
"""

from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.db.models import Min
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agents import selftest
from agents.conf import clock
from agents.enums import Status
from agents.models import AgentSession, Installation, SuspendedModel


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    try:
        return JsonResponse(_state(Installation.objects.get(pk=1), clock()))
    except DatabaseError:
        return _unfit("The database cannot be read.")
    except Installation.DoesNotExist:
        return _unfit("The installation row is missing: run manage.py migrate.")


def _unfit(why: str) -> JsonResponse:
    return JsonResponse({"ok": False, "red": [why]}, status=503)


def _state(installation: Installation, now: datetime) -> dict[str, Any]:
    halted = installation.halt_id is not None
    suspended = list(SuspendedModel.objects.order_by("model").values_list("model", flat=True))
    running = AgentSession.objects.filter(status=Status.RUNNING)
    oldest: datetime | None = running.aggregate(oldest=Min("lease_until"))["oldest"]
    red = [f"Model {model} is suspended: it billed more than its bound." for model in suspended]
    if halted:
        red.append("All work is halted.")
    if oldest is not None and oldest <= now:
        red.append("A worker has not been heard of for a whole lease.")
    return {
        "ok": True,
        "database": "ok",
        "brakes": "armed" if selftest.is_armed() else "not tested in this process",
        "halted": halted,
        "suspended_models": suspended,
        "oldest_lease_until": oldest.isoformat() if oldest else None,
        "red": red,
    }
