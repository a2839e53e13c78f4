"""The page of the declared models: state, prices, roles, tests."""

from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from agents.admin.base import current_user, require_permission, site_page
from agents.admin.display import counted
from agents.admin.forms import REFUSALS, error_text
from agents.conf import clock
from agents.model_test import model_test
from agents.people.access import START_PERMISSION
from agents.sessions.model_facts import model_try_now, models_known

VIEW: Final = "agents.view_modelprice"
TRY: Final = "agents.change_agentsession"


@never_cache
def models_page(request: HttpRequest) -> TemplateResponse:
    """Show the models. A POST tests one, or has one that is away tried at once."""
    by = require_permission(request, VIEW)
    tested = _act(request, by) if request.method == "POST" else None
    return site_page(
        request,
        "admin/models.html",
        "Models",
        models=models_known(clock()),
        tested=tested,
        may_test=by.has_perm(START_PERMISSION),
        may_try=by.has_perm(TRY),
        may_accept=by.has_perm("agents.change_suspendedmodel"),
        may_price=by.has_perm("agents.add_modelprice") and by.has_perm("agents.change_modelprice"),
    )


def _act(request: HttpRequest, by: User) -> dict[str, Any] | None:
    """Return what a test found; nothing if it was refused, or after another act."""
    model = request.POST.get("model", "")
    is_test = request.POST.get("act") == "test"
    require_permission(request, START_PERMISSION if is_test else TRY)
    try:
        if is_test:
            return model_test(model=model, by=current_user(request), now=clock())
        waiting = model_try_now(model=model, by=by, now=clock())
    except REFUSALS as error:
        messages.error(request, error_text(error))
        return None
    if waiting:
        messages.success(request, f"The model is tried at once. {counted(waiting, 'run')} waiting for it.")
    else:
        messages.success(request, "The next call tries the model. No run waits for it: press Test to ask it now.")
    return None
