"""The first page, and the lever that stops everything. Each part is shown only to those who may see its rows."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, reason
from agents.admin.ask import AskForm, may_ask
from agents.admin.base import person
from agents.admin.display import counted, meter_bar, session_bar, visible
from agents.admin.forms import ActForm, ReasonForm
from agents.admin.looks import STATUS_LOOKS
from agents.admin.sessions import standing_words
from agents.conf import clock
from agents.ledger.boundary import halt_told
from agents.models import AgentSession
from agents.people.access import LEVER
from agents.sessions import control_room as selected
from agents.sessions.halts import AllHalted, halted_again_told, organisation_halt, organisation_release
from agents.sessions.questions import may_answer
from agents.sessions.reads import purposes


def banner(request: HttpRequest) -> dict[str, Any]:
    """What every page shows while all work is halted."""
    if not admin.site.has_permission(request):
        return {}
    halt, may_halt = selected.halt_in_force(), person(request).has_perm(LEVER)
    return {"halt": halt, "may_halt": may_halt, "halt_address": reverse("admin:halt_bar")}


@never_cache
def halt_bar(request: HttpRequest) -> TemplateResponse:
    """The banner by itself: pages that are open ask for it again and again."""
    return TemplateResponse(request, "admin/parts/halt_bar.html", banner(request))


def home_context(request: HttpRequest) -> dict[str, Any]:
    user, now = person(request), clock()
    shown: dict[str, Any] = {"now": now}
    if may_ask(request):
        shown["ask_form"] = AskForm()
    if user.has_perm("agents.view_agentsession"):
        shown["running"] = selected.sessions_running()
        shown["rows"] = _rows(shown["running"].rows)
    if user.has_perm("agents.view_approval"):
        shown["waiting"] = selected.waiting_for(user)
        known = purposes([approval.session for approval in shown["waiting"].approvals])
        shown["asked"] = [(approval, known[approval.session_id]) for approval in shown["waiting"].approvals]
        shown["questions"] = [(row, may_answer(row.session, user)) for row in shown["waiting"].questions]
        shown["may_resolve"] = user.has_perm("agents.resolve_approval")
    if user.has_perm("agents.view_budget"):
        meters = selected.meters_today(now)
        shown["meters"] = [(meter, meter_bar(meter)) for meter in meters]
    if user.has_perm("audit.view_auditevent"):
        shown["refusals"] = selected.refusals_lately()
    if user.has_perm("agents.view_trigger"):
        shown["due"] = selected.triggers_due_next()
        shown |= selected.is_new()
    return shown


def _rows(sessions: Sequence[AgentSession]) -> list[dict[str, Any]]:
    known = purposes(sessions)
    return [
        {
            "session": session,
            "purpose": known[session.pk],
            "standing": standing_words(session),
            "look": STATUS_LOOKS.get(session.status, ""),
            "bar": session_bar(session),
        }
        for session in sessions
    ]


@never_cache
def halt_everything(request: HttpRequest) -> HttpResponse:
    """Asks for a reason, then stops all work. Said again, it halts what an interrupted halt has left."""
    by = _demand_lever(request)
    form = ReasonForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        found = organisation_halt(by=by, reason=form.cleaned_data["reason"], now=clock())
        messages.warning(request, _halted_words(found))
        return HttpResponseRedirect(reverse("admin:index"))
    return _lever(request, "Halt everything", form, grave=True, explained=_what_halting_does())


def _halted_words(found: AllHalted) -> str:
    said = "All work is halted. Nothing starts until it is released."
    if found.already:
        said = visible(halted_again_told(found))
    failed = found.sessions.failed
    return f"{said} {counted(failed, 'session')} could not be told to stop; halt again." if failed else said


def _what_halting_does() -> str:
    halt = selected.halt_in_force()
    if halt is not None:
        said = "Halting it again stops only what the halt has missed, and changes neither its reason nor its author."
        return f"{visible(halt_told(halt, already=True))} {said}"
    active = selected.sessions_running().total
    return (
        f"{counted(active, 'session is', 'sessions are')} under way and will stop: no call of theirs starts any more, "
        "and no trigger fires. Calls already out end by themselves. What was halted stays halted after the release."
    )


@never_cache
def release(request: HttpRequest) -> HttpResponse:
    """Lets new work start again."""
    by = _demand_lever(request)
    form = ActForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        try:
            organisation_release(by=by, now=clock())
        except REFUSALS as error:
            messages.error(request, reason(error))
        else:
            messages.success(request, "Work may start again. Sessions that were halted stay halted.")
        return HttpResponseRedirect(reverse("admin:index"))
    explained = "New sessions may start and triggers may fire again. Sessions that were halted stay halted."
    return _lever(request, "Release", form, grave=False, explained=explained)


def _demand_lever(request: HttpRequest) -> Any:
    by = person(request)
    if not by.has_perm(LEVER):
        raise PermissionDenied
    return by


def _lever(request: HttpRequest, title: str, form: ActForm, *, grave: bool, explained: str) -> TemplateResponse:
    request.current_app = admin.site.name
    context = {
        **admin.site.each_context(request),
        "title": title,
        "form": form,
        "act": {"title": title, "grave": grave, "explained": explained},
        "back": reverse("admin:index"),
    }
    return TemplateResponse(request, "admin/act.html", context)
