"""Home, halt and release of the whole installation, Health, and the sidebar.

Each part is shown only to users who may view its rows.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from django.contrib import admin, messages
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from agents.admin.actions import ActionForm, ReasonForm
from agents.admin.ask import AskForm, may_ask
from agents.admin.base import confirm_page, current_user, require_permission, site_page
from agents.admin.display import counted, with_purposes
from agents.admin.forms import REFUSALS, error_text
from agents.conf import clock
from agents.doctor import diagnose
from agents.enums import ApprovalStatus, QuestionStatus
from agents.guard import selftest
from agents.ledger.boundary import current_halt, halt_message
from agents.models import Approval, Notification, Question
from agents.people.access import DECIDE_PERMISSION, HALT_PERMISSION
from agents.people.delegations import is_approver
from agents.sessions import control_room
from agents.sessions.control_room import health
from agents.sessions.halts import AllHalted, already_halted_message, halt_all_work, release_all_work
from agents.sessions.model_facts import models_known
from agents.sessions.questions import may_answer
from agents.skills.registry import skills_left_out
from agents.text.shown import visible

VIEW: Final = "agents.view_agentsession"
TEST: Final = "agents.change_agentsession"
PACKAGES: Final = ("lqops", "django", "django-q2", "django-unfold", "djangorestframework")
MAX_BADGE: Final = 99

# --- Home ---


def banner(request: HttpRequest) -> dict[str, Any]:
    """The banner of every page while the installation is halted."""
    if not admin.site.has_permission(request):
        return {}
    return {
        "halt": current_halt(),
        "may_halt": current_user(request).has_perm(HALT_PERMISSION),
        "halt_address": reverse("admin:halt_bar"),
    }


@never_cache
def halt_bar(request: HttpRequest) -> TemplateResponse:
    """The banner alone: open pages fetch it every few seconds."""
    return TemplateResponse(request, "admin/parts/halt_bar.html", banner(request))


def home_context(request: HttpRequest) -> dict[str, Any]:
    user = current_user(request)
    now = clock()
    context: dict[str, Any] = {"now": now}
    if may_ask(request):
        context["ask_form"] = AskForm()
    if user.has_perm(VIEW):
        context["running"] = control_room.sessions_running()
        context["sessions"] = control_room.sessions_ended()
        with_purposes([*context["running"].rows, *context["sessions"]])
    if user.has_perm("agents.view_approval"):
        waiting = context["waiting"] = control_room.waiting_for(user, now)
        with_purposes([one.session for one in waiting.approvals] + [one.session for one in waiting.given_up])
        with_purposes(waiting.unfinished)
        context["questions"] = [(row, may_answer(row.session, user)) for row in waiting.questions]
        context["may_decide"] = is_approver(user, now)
        context["may_resolve"] = user.has_perm(DECIDE_PERMISSION)
    if user.has_perm("agents.view_budget"):
        context["meters"] = control_room.meters_today(now)
    if user.has_perm("audit.view_auditevent"):
        context["refusals"] = control_room.refusals_lately()
    if user.has_perm("agents.view_trigger"):
        context["due"] = control_room.triggers_due_next()
        context |= control_room.is_new()
    return context


# --- Halt and release of the whole installation ---


@never_cache
def halt_everything(request: HttpRequest) -> HttpResponse:
    """Ask for a reason, then halt all runs. Repeated, it says what is in force."""
    by = require_permission(request, HALT_PERMISSION)
    form = ReasonForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        found = halt_all_work(by=by, reason=form.cleaned_data["reason"], now=clock())
        messages.warning(request, _halted_message(found))
        return HttpResponseRedirect(reverse("admin:index"))
    back = reverse("admin:index")
    return confirm_page(request, "Halt everything", form, back=back, description=_halt_description(), danger=True)


def _halted_message(found: AllHalted) -> str:
    if found.already:
        return visible(already_halted_message(found))
    return f"Everything is halted. Nothing starts until you release it. {counted(found.active, 'active run')} will end."


def _halt_description() -> str:
    halt = current_halt()
    if halt is not None:
        text = "Halting again changes nothing: its reason and author stay."
        return f"{visible(halt_message(halt, already=True))} {text}"
    active = control_room.sessions_running().total
    return (
        f"Halts {counted(active, 'current run')}: no further call starts and no trigger fires. Calls that are out "
        "are ended within a second. Halted runs stay halted after the release."
    )


@never_cache
def release(request: HttpRequest) -> HttpResponse:
    """Let new runs start again."""
    by = require_permission(request, HALT_PERMISSION)
    form = ActionForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        try:
            release_all_work(by=by, now=clock())
        except REFUSALS as error:
            messages.error(request, error_text(error))
        else:
            messages.success(request, "Released. New runs can start; halted runs stay halted.")
        return HttpResponseRedirect(reverse("admin:index"))
    description = "New runs can start and triggers fire again. Halted runs stay halted."
    return confirm_page(request, "Release", form, back=reverse("admin:index"), description=description)


# --- Health ---


@never_cache
def health_page(request: HttpRequest) -> TemplateResponse:
    """The health page. A POST tests every brake against the real guard, in a transaction that is rolled back."""
    by = require_permission(request, VIEW)
    if request.method == "POST":
        require_permission(request, TEST)
    checks = diagnose() if request.method == "POST" else []
    found = health(clock())
    return site_page(
        request,
        "admin/health.html",
        "Health",
        health=found,
        red=[*found.red, *skills_left_out()],
        failed=sum(not check.ok for check in checks),
        tested_at_start=selftest.is_armed(),
        checks=checks,
        may_test=by.has_perm(TEST),
        versions=versions(),
        models=models_known(clock()) if by.has_perm("agents.view_modelprice") else [],
    )


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


# --- Sidebar ---


# The pages of each section by its heading: title, icon, page, permission.
_SECTIONS: Final[dict[str, tuple[tuple[str, str, str, str], ...]]] = {
    "": (
        ("Home", "home", "index", ""),
        ("Approvals", "approval", "agents_approval_changelist", "agents.view_approval"),
        ("Questions", "contact_support", "agents_question_changelist", "agents.view_question"),
        ("Chats", "chat", "chats", "agents.view_agentsession"),
        ("Runs", "play_circle", "agents_agentsession_changelist", "agents.view_agentsession"),
        ("Triggers", "bolt", "agents_trigger_changelist", "agents.view_trigger"),
    ),
    "Knowledge": (
        ("Collections", "folder", "agents_collection_changelist", "agents.view_collection"),
        ("Documents", "description", "agents_document_changelist", "agents.view_document"),
        ("Playbooks", "rule", "agents_playbook_changelist", "agents.view_playbook"),
        ("Skills", "school", "agents_promptskill_changelist", "agents.view_promptskill"),
    ),
    "Results": (
        ("Findings", "search_insights", "agents_finding_changelist", "agents.view_finding"),
        ("Precedents", "repeat", "agents_precedent_changelist", "agents.view_precedent"),
        ("Proposals", "add_task", "agents_contextproposal_changelist", "agents.view_contextproposal"),
        ("Memories", "psychology", "agents_memory_changelist", "agents.view_memory"),
        ("Notifications", "notifications", "agents_notification_changelist", "agents.view_notification"),
    ),
    "Set-up": (
        ("Projects", "workspaces", "agents_project_changelist", "agents.view_project"),
        ("Agents", "smart_toy", "agents_agent_changelist", "agents.view_agent"),
        ("Approval rules", "policy", "agents_approvalrule_changelist", "agents.view_approvalrule"),
        ("Callable skills", "build", "agents_skillsetting_changelist", "agents.view_skillsetting"),
        ("Events received", "webhook", "agents_inboundevent_changelist", "agents.view_inboundevent"),
        ("Unread inputs", "unsubscribe", "agents_unreadinput_changelist", "agents.view_unreadinput"),
    ),
    "Money": (
        ("Spending and caps", "savings", "agents_budget_changelist", "agents.view_budget"),
        ("Model prices", "sell", "agents_modelprice_changelist", "agents.view_modelprice"),
        ("Suspended models", "block", "agents_suspendedmodel_changelist", "agents.view_suspendedmodel"),
        ("Model calls", "forum", "agents_inferencelog_changelist", "agents.view_inferencelog"),
    ),
    "Evidence": (
        ("Audit log", "history_edu", "audit_auditevent_changelist", "audit.view_auditevent"),
        ("Activity", "timeline", "agents_agentevent_changelist", "agents.view_agentevent"),
        ("Calls", "terminal", "agents_toolcall_changelist", "agents.view_toolcall"),
        ("Skill audit", "fact_check", "audit_skillaudit_changelist", "audit.view_skillaudit"),
        ("Halts", "front_hand", "agents_halt_changelist", "agents.view_halt"),
    ),
    "Installation": (
        ("People", "group", "auth_user_changelist", "auth.view_user"),
        ("Roles", "badge", "auth_group_changelist", "auth.view_group"),
        ("Delegations", "supervisor_account", "agents_delegation_changelist", "agents.view_delegation"),
        ("API keys", "key", "agents_apikey_changelist", "agents.view_apikey"),
        ("Models", "neurology", "models", "agents.view_modelprice"),
        ("Health", "monitor_heart", "health", "agents.view_agentsession"),
    ),
}


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar of unfold: the pages that the user may open."""
    user = current_user(request)
    badges = _badges(request)
    built = []
    for title, pages in _SECTIONS.items():
        items: list[dict[str, Any]] = [
            {"title": name, "icon": icon, "link": reverse(f"admin:{page}"), **badges.get(page, {})}
            for name, icon, page, permission in pages
            if not permission or user.has_perm(permission)
        ]
        if items:
            built.append({"title": title, "separator": bool(title), "items": items})
    return built


def _badges(request: HttpRequest) -> dict[str, dict[str, str]]:
    """Counts beside the pages with something to do, up to the highest number shown."""
    user = current_user(request)
    pending = 0
    if is_approver(user, clock()):
        pending = _up_to(Approval.objects.filter(status=ApprovalStatus.PENDING))
    unread = _up_to(Notification.objects.filter(owner=user, read_at__isnull=True))
    questions = Question.objects.filter(status=QuestionStatus.PENDING)
    if not user.has_perm(DECIDE_PERMISSION):
        questions = questions.filter(session__owner=user)
    numbers = {
        "agents_approval_changelist": pending,
        "agents_question_changelist": _up_to(questions),
        "agents_notification_changelist": unread,
    }
    return {
        page: {"badge": str(number) if number < MAX_BADGE else f"{MAX_BADGE}+"}
        for page, number in numbers.items()
        if number
    }


def _up_to(rows: QuerySet[Any]) -> int:
    return len(rows.order_by().values_list("pk")[:MAX_BADGE])
