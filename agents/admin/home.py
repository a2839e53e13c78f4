"""The first page, and the lever that stops everything. Each part is shown only to those who may see its rows."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, ActForm, ReasonForm, reason
from agents.admin.ask import AskForm, may_ask
from agents.admin.base import person
from agents.admin.display import STATUS_LOOKS, counted, meter_bar, session_bar, visible
from agents.admin.sessions import standing_words
from agents.conf import clock
from agents.doctor import diagnose
from agents.enums import ApprovalStatus, QuestionStatus
from agents.guard import selftest
from agents.guard.selftest import Check
from agents.ledger.boundary import halt_told
from agents.models import AgentSession, Approval, Notification, Question
from agents.people.access import LEVER
from agents.sessions import control_room
from agents.sessions.control_room import health
from agents.sessions.halts import AllHalted, halted_again_told, organisation_halt, organisation_release
from agents.sessions.questions import may_answer
from agents.sessions.reads import purposes
from agents.skills.registry import skills_left_out


def banner(request: HttpRequest) -> dict[str, Any]:
    """What every page shows while all work is halted."""
    if not admin.site.has_permission(request):
        return {}
    halt, may_halt = control_room.halt_in_force(), person(request).has_perm(LEVER)
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
        shown["running"] = control_room.sessions_running()
        shown["rows"] = _rows(shown["running"].rows)
    if user.has_perm("agents.view_approval"):
        shown["waiting"] = control_room.waiting_for(user)
        known = purposes([approval.session for approval in shown["waiting"].approvals])
        shown["asked"] = [(approval, known[approval.session_id]) for approval in shown["waiting"].approvals]
        shown["questions"] = [(row, may_answer(row.session, user)) for row in shown["waiting"].questions]
        shown["may_resolve"] = user.has_perm("agents.resolve_approval")
    if user.has_perm("agents.view_budget"):
        meters = control_room.meters_today(now)
        shown["meters"] = [(meter, meter_bar(meter)) for meter in meters]
    if user.has_perm("audit.view_auditevent"):
        shown["refusals"] = control_room.refusals_lately()
    if user.has_perm("agents.view_trigger"):
        shown["due"] = control_room.triggers_due_next()
        shown |= control_room.is_new()
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
    halt = control_room.halt_in_force()
    if halt is not None:
        said = "Halting it again stops only what the halt has missed, and changes neither its reason nor its author."
        return f"{visible(halt_told(halt, already=True))} {said}"
    active = control_room.sessions_running().total
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


# --- The health page: whether the parts of the installation are at work, and the brakes tested on demand ---


VIEW = "agents.view_agentsession"
TEST = "agents.change_agentsession"
PACKAGES = ("lqops", "django", "django-q2", "django-unfold", "djangorestframework")


@never_cache
def health_page(request: HttpRequest) -> TemplateResponse:
    """A POST tests every brake against the real guard, in a transaction that is thrown away."""
    by = person(request)
    if not by.has_perm(VIEW) or (request.method == "POST" and not by.has_perm(TEST)):
        raise PermissionDenied
    checks = _test() if request.method == "POST" else []
    request.current_app = admin.site.name
    found = health(clock())
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": "Health",
        "health": found,
        "red": [*found.red, *skills_left_out()],
        "brakes": brakes(),
        "checks": checks,
        "may_test": by.has_perm(TEST),
        "versions": versions(),
    }
    return TemplateResponse(request, "admin/health.html", context)


@dataclass
class _Tested:
    """The last test that this process was asked for: when, and how many checks did not hold."""

    at: datetime | None = None
    failed: int = 0


_TESTED: Final = _Tested()


def _test() -> list[Check]:
    checks = diagnose()
    _TESTED.at, _TESTED.failed = clock(), sum(not check.ok for check in checks)
    return checks


def brakes() -> tuple[str, str]:
    """What is known of the brakes in this process, and how it looks."""
    if _TESTED.at is None:
        armed = selftest.is_armed()
        return ("good", "tested when this process began") if armed else ("", "not tested in this process")
    when = f"{_TESTED.at:%d %b %H:%M:%S} UTC"
    if _TESTED.failed:
        return "bad", f"tested {when}: {counted(_TESTED.failed, 'check does', 'checks do')} not hold"
    return "good", f"tested in this process {when}: all hold"


def versions() -> dict[str, str]:
    return {
        **{name: _version(name) for name in PACKAGES},
        "Python": platform.python_version(),
        "database": f"{connection.vendor} {'.'.join(map(str, connection.get_database_version()))}",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


# The sidebar: every page in the order in which an operator works. A page that a person may not open is not shown.


COUNTED = 99

# title, icon, page, permission; a section may have a heading
_SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "",
        (
            ("Home", "home", "index", ""),
            ("Approvals", "approval", "agents_approval_changelist", "agents.view_approval"),
            ("Questions", "contact_support", "agents_question_changelist", "agents.view_question"),
            ("Chats", "chat", "chats", "agents.view_agentsession"),
            ("Sessions", "play_circle", "agents_agentsession_changelist", "agents.view_agentsession"),
            ("Triggers", "bolt", "agents_trigger_changelist", "agents.view_trigger"),
        ),
    ),
    (
        "Knowledge",
        (
            ("Collections", "folder", "agents_collection_changelist", "agents.view_collection"),
            ("Documents", "description", "agents_document_changelist", "agents.view_document"),
            ("Playbooks", "rule", "agents_playbook_changelist", "agents.view_playbook"),
            ("Skills", "school", "agents_promptskill_changelist", "agents.view_promptskill"),
        ),
    ),
    (
        "Results",
        (
            ("Findings", "search_insights", "agents_finding_changelist", "agents.view_finding"),
            ("Precedents", "repeat", "agents_precedent_changelist", "agents.view_precedent"),
            ("Proposals", "add_task", "agents_contextproposal_changelist", "agents.view_contextproposal"),
            ("Memories", "psychology", "agents_memory_changelist", "agents.view_memory"),
            ("Notices", "notifications", "agents_notification_changelist", "agents.view_notification"),
        ),
    ),
    (
        "Set-up",
        (
            ("Projects", "workspaces", "agents_project_changelist", "agents.view_project"),
            ("Agents", "smart_toy", "agents_agent_changelist", "agents.view_agent"),
            ("Callable skills", "build", "agents_skillsetting_changelist", "agents.view_skillsetting"),
            ("Events received", "webhook", "agents_inboundevent_changelist", "agents.view_inboundevent"),
        ),
    ),
    (
        "Money",
        (
            ("Spending and caps", "savings", "agents_budget_changelist", "agents.view_budget"),
            ("Model prices", "sell", "agents_modelprice_changelist", "agents.view_modelprice"),
            ("Suspended models", "block", "agents_suspendedmodel_changelist", "agents.view_suspendedmodel"),
            ("Model calls", "forum", "agents_inferencelog_changelist", "agents.view_inferencelog"),
        ),
    ),
    (
        "Evidence",
        (
            ("Record", "history_edu", "audit_auditevent_changelist", "audit.view_auditevent"),
            ("Agent events", "timeline", "agents_agentevent_changelist", "agents.view_agentevent"),
            ("Calls", "terminal", "agents_toolcall_changelist", "agents.view_toolcall"),
            ("Skill audit", "fact_check", "audit_skillaudit_changelist", "audit.view_skillaudit"),
            ("Halts", "front_hand", "agents_halt_changelist", "agents.view_halt"),
        ),
    ),
    (
        "Installation",
        (
            ("People", "group", "auth_user_changelist", "auth.view_user"),
            ("Roles", "badge", "auth_group_changelist", "auth.view_group"),
            ("API keys", "key", "agents_apikey_changelist", "agents.view_apikey"),
            ("Health", "monitor_heart", "health", "agents.view_agentsession"),
        ),
    ),
)


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    user = person(request)
    badges = _badges(request)
    built = []
    for title, pages in _SECTIONS:
        items: list[dict[str, Any]] = [
            {"title": name, "icon": icon, "link": reverse(f"admin:{page}"), **badges.get(page, {})}
            for name, icon, page, permission in pages
            if not permission or user.has_perm(permission)
        ]
        if items:
            built.append({"title": title, "separator": bool(title), "items": items})
    return built


def _badges(request: HttpRequest) -> dict[str, dict[str, str]]:
    """Numbers beside the pages where somebody is waited for; counted no further than is shown."""
    user = person(request)
    pending = 0
    if user.has_perm("agents.resolve_approval"):
        pending = _up_to(Approval.objects.filter(status=ApprovalStatus.PENDING))
    unread = _up_to(Notification.objects.filter(owner=user, read_at__isnull=True))
    asked = Question.objects.filter(status=QuestionStatus.PENDING)
    if not user.has_perm("agents.resolve_approval"):
        asked = asked.filter(session__owner=user)
    numbers = {
        "agents_approval_changelist": pending,
        "agents_question_changelist": _up_to(asked),
        "agents_notification_changelist": unread,
    }
    return {
        page: {"badge": str(number) if number < COUNTED else f"{COUNTED}+"}
        for page, number in numbers.items()
        if number
    }


def _up_to(rows: QuerySet[Any]) -> int:
    return len(rows.order_by().values_list("pk")[:COUNTED])
