"""Home, halt and release of the whole installation, Health, and the sidebar.

Each part is shown only to users who may view its rows.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agents.admin.actions import ActionForm, HaltAllForm, PauseForm, ReleaseForm
from agents.admin.ask import AskForm, may_ask
from agents.admin.base import confirm_page, current_user, require_permission, site_page
from agents.admin.charts import KINDS, chart
from agents.admin.display import (
    FULL_PERCENT,
    RESULT_COLORS,
    Bar,
    ago,
    counted,
    plain_error,
    plain_sentence,
    usd,
    with_purposes,
    words,
)
from agents.admin.forms import REFUSALS, error_text
from agents.checks.doctor import diagnose
from agents.conf import clock
from agents.definitions.catalogue import models_in_force
from agents.enums import BudgetScope
from agents.guard import selftest
from agents.ledger.boundary import current_halt, halt_message
from agents.people.access import DECIDE_PERMISSION, HALT_PERMISSION
from agents.people.delegations import is_approver
from agents.sessions import control_room
from agents.sessions.control_room import COUNTED, SHOWN, Attention, Counts, Health, Kind, Matter, Meter, health
from agents.sessions.figures import MONTH_DAYS, Period, outcomes_by_day, spend_of_installation
from agents.sessions.halts import AllHalted, already_halted_message, halt_all_work, release_all_work
from agents.sessions.model_facts import models_known
from agents.sessions.pauses import pause_message, waiting_for_person, work_pause, work_paused, work_resume
from agents.sessions.reads import asked_by
from agents.skills.registry import skills_left_out
from agents.text.shown import visible
from agents.triggers.inputs import PERMISSION as RETRY_PERMISSION
from audit import receipts

VIEW: Final = "agents.view_agentsession"
TEST: Final = "agents.change_agentsession"
PACKAGES: Final = ("lqops", "django", "django-q2", "django-unfold", "djangorestframework")
MAX_BADGE: Final = 99
MODEL_FAULTS: Final = frozenset({"suspended", "away", "failing"})
BUILT_IN_PROVIDERS: Final = frozenset({"offline", "scripted"})
STEPS_COOKIE: Final = "lqops_first_steps"
STEPS_SECONDS: Final = 365 * 24 * 3600
# Set on a request, so that one page asks once.
COUNTED_BEFORE: Final = "lqops_counts"
APPROVER: Final = "lqops_is_approver"

# --- Home ---


def banner(request: HttpRequest) -> dict[str, Any]:
    """The banner of every page while the installation is halted or paused."""
    if not admin.site.has_permission(request):
        return {}
    return {
        "halt": current_halt(),
        "pause": work_paused(),
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
    context: dict[str, Any] = {"now": now, **_counts_context(request, now)}
    if may_ask(request):
        context["ask_form"] = AskForm()
    sessions: list[Any] = []
    if user.has_perm(VIEW):
        found = health(now)
        context["faults"] = strip_lines(found)
        context["running"] = control_room.sessions_running()
        context["recent"] = control_room.sessions_ended()
        sessions += [*context["running"], *context["recent"]]
        attention = control_room.needs_attention(_kinds_for(user), now)
        sessions += [*attention.runs, *(one.session for one in attention.approvals)]
        with_purposes(sessions)
        context["groups"] = attention_groups(request, attention, context["counts"], found)
        context["outcomes"] = chart(KINDS["outcomes"], outcomes_by_day(Period.last_days(MONTH_DAYS, now)))
    if user.has_perm("agents.view_budget"):
        spend, figures = spend_of_installation(context["counts"].day_cap_usd, now)
        context |= {"spend": spend, "spend_chart": chart(KINDS["spend"], figures)}
        context["month_end"] = now.date().replace(day=spend.month_days)
        context["today_bar"] = Bar.of(spend.today_usd + spend.in_flight_usd, spend.cap_usd)
        context["forecast_bar"] = Bar.of(spend.forecast_usd, spend.month_cap_usd)
    if user.has_perm("agents.view_trigger"):
        context["due"] = control_room.triggers_due_next()
    return context


def _counts_context(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The numbers of Home, which the sidebar uses, too, and the first steps of a new installation."""
    user = current_user(request)
    counts = control_room.counts_for(
        user, now, all_questions=user.has_perm(DECIDE_PERMISSION), samples=_sample_documents()
    )
    numbers = {"questions": counts.questions, "notifications": counts.notifications}
    setattr(request, COUNTED_BEFORE, {"approvals": counts.attention[Kind.APPROVAL], **numbers})
    return {"counts": counts, "first_steps": first_steps(request, counts)}


# --- Health strip ---


def strip_lines(found: Health) -> list[str]:
    """Faults, in short: the halt has its banner, and each model has its row under Needs attention."""
    faults = [fault for fault in found.faults if fault.code != "halted"]
    models = [fault for fault in faults if fault.code.partition(":")[0] in MODEL_FAULTS]
    lines = [fault.text for fault in faults if fault not in models] + list(skills_left_out())
    if models:
        lines.append(f"{counted(len(models), 'model')} cannot be used: see Needs attention.")
    return lines


# --- Needs attention ---


@dataclass(frozen=True)
class Item:
    """One thing that needs attention, with the one action that settles it."""

    chip: str
    color: str
    title: str
    link: str
    detail: str
    when: str
    action: str
    action_link: str
    level: str = ""


@dataclass(frozen=True)
class Group:
    """The items of one kind, and a link to all of them if there are more."""

    items: list[Item]
    more: str
    link: str


# By kind: the permission to see it, the list of all, and their name.
_KINDS: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.RUN: (VIEW, "agents_agentsession_changelist", "failed and partial runs"),
    Kind.INPUT: ("agents.view_unreadinput", "agents_unreadinput_changelist", "unread inputs"),
    Kind.APPROVAL: ("agents.view_approval", "agents_approval_changelist", "approvals"),
    Kind.QUESTION: ("agents.view_question", "agents_question_changelist", "questions"),
    Kind.CALL: ("agents.view_toolcall", "agents_toolcall_changelist", "calls with unknown outcome"),
    Kind.SENSOR: ("agents.view_agent", "agents_agent_changelist", "failing sensors"),
    Kind.TRIGGER: ("agents.view_trigger", "agents_trigger_changelist", "failing triggers"),
    Kind.MODEL: ("agents.view_modelprice", "models", "models"),
    Kind.BUDGET: ("agents.view_budget", "agents_budget_changelist", "budgets"),
}
_FILTERS: Final[Mapping[Kind, str]] = {
    Kind.INPUT: "?state__exact=given_up",
    Kind.RUN: "?run_result__exact=failed",
    Kind.CALL: "?outcome__exact=unknown",
}


def _kinds_for(user: User) -> list[Kind]:
    return [kind for kind, (permission, _, _) in _KINDS.items() if user.has_perm(permission)]


def attention_groups(request: HttpRequest, found: Attention, counts: Counts, health: Health) -> list[Group]:
    """Return what needs attention, the most urgent kind first."""
    user = current_user(request)
    items: dict[Kind, list[Item]] = {
        Kind.RUN: [_run_item(run, user) for run in found.runs],
        Kind.APPROVAL: [_approval_item(one, is_approver=_is_approver(request)) for one in found.approvals],
        Kind.MODEL: list(_model_items(health)),
        Kind.BUDGET: [_budget_item(meter, user) for meter in found.budgets],
        **{kind: [] for kind in MATTERS},
    }
    for matter in found.matters:
        items[matter.kind].append(MATTERS[matter.kind](matter, user))
    groups = []
    for kind in _kinds_for(user):
        _, page, name = _KINDS[kind]
        number = counts.attention.get(kind, 0)
        more = f"All {number if number < COUNTED else f'{COUNTED} or more'} {name}" if number > SHOWN else ""
        if items[kind]:
            groups.append(Group(items[kind], more, f"{reverse(f'admin:{page}')}{_FILTERS.get(kind, '')}"))
    return groups


def _page(name: str, pk: int) -> str:
    return reverse(f"admin:agents_{name}_change", args=[pk])


def _act(name: str, pk: int, action: str) -> str:
    return reverse(f"admin:agents_{name}_act", args=[pk, action])


def _run_item(run: Any, user: User) -> Item:
    link = _page("agentsession", run.pk)
    may_run = user.has_perm("agents.add_agentsession")
    return Item(
        chip=run.run_result,
        color=RESULT_COLORS[run.run_result],
        title=run.purpose,
        link=link,
        detail=plain_sentence(run.result_reason) or words(run.terminal_reason),
        when=ago(run.completed_at, clock()),
        action="Run again" if may_run else "View",
        action_link=_act("agentsession", run.pk, "restart") if may_run else link,
    )


def _approval_item(approval: Any, *, is_approver: bool) -> Item:
    link, now = _page("approval", approval.pk), clock()
    return Item(
        chip="approval",
        color="warn",
        title=f"{approval.action}: {approval.session.purpose}",
        link=link,
        detail=f"Expires {ago(approval.expires_at, now)}. {asked_by(approval.session)}, for {approval.session.owner}.",
        when=ago(approval.created_at, now),
        action="Decide" if is_approver else "View",
        action_link=link,
        level=approval.level,
    )


def _question_item(matter: Matter, user: User) -> Item:
    link = _page("question", matter.pk)
    may_answer = matter.owner_id == user.pk or user.has_perm(DECIDE_PERMISSION)
    by = f"Asked by {matter.detail}." if matter.detail else ""
    return _item(matter, ("question", "warn"), link, by, ("Answer" if may_answer else "View", link))


def _call_item(matter: Matter, user: User) -> Item:
    link = _page("toolcall", matter.pk)
    text = "Outcome unknown: its worker was lost during the call. Check the other system."
    return _item(
        matter, ("unknown", "bad"), link, text, ("Resolve" if user.has_perm(DECIDE_PERMISSION) else "View", link)
    )


def _input_item(matter: Matter, user: User) -> Item:
    link = _page("unreadinput", matter.pk)
    may_retry = user.has_perm(RETRY_PERMISSION)
    action = ("Retry", _act("unreadinput", matter.pk, "retry")) if may_retry else ("View", link)
    text = f"An input was given up: {receipts.label_of('reason', matter.detail)}."
    return _item(matter, ("input", "bad"), link, text, action)


def _sensor_item(matter: Matter, user: User) -> Item:
    link = _page("agent", matter.agent_id)
    may_try = user.has_perm("agents.change_agentsession")
    action = ("Try sensors", _act("agent", matter.agent_id, "try")) if may_try else ("View", link)
    return _item(matter, ("sensor", "bad"), link, plain_error(matter.detail), action)


def _trigger_item(matter: Matter, user: User) -> Item:
    link = _page("trigger", matter.pk)
    if matter.at is None:
        return _item(matter, ("trigger", "bad"), link, "Its last runs failed.", ("View", link))
    may_resume = user.has_perm("agents.change_trigger")
    action = ("Resume", _act("trigger", matter.pk, "resume")) if may_resume else ("View", link)
    return _item(matter, ("trigger", "bad"), link, PAUSED_FOR.get(matter.detail, "It is paused."), action)


MATTERS: Final[Mapping[Kind, Callable[[Matter, User], Item]]] = {
    Kind.INPUT: _input_item,
    Kind.QUESTION: _question_item,
    Kind.CALL: _call_item,
    Kind.SENSOR: _sensor_item,
    Kind.TRIGGER: _trigger_item,
}
PAUSED_FOR: Final = {
    "failing": "Paused: its last runs failed.",
    "empty": "Paused: its last runs found nothing.",
    "storm": "Paused: it was asked to fire far more often than its limit.",
    "bad_cron": "Paused: its schedule or time zone cannot be read.",
}


def _item(matter: Matter, chip: tuple[str, str], link: str, detail: str, action: tuple[str, str]) -> Item:
    when = ago(matter.at, clock(), empty="")
    return Item(*chip, matter.name, link, detail, when, *action)


def _model_items(found: Health) -> Iterator[Item]:
    link = reverse("admin:models")
    for one in found.away:
        text = f"Does not answer; next try {ago(one.next_try_at, clock())}. Runs wait for it. {plain_error(one.error)}"
        yield Item("model", "bad", one.model, link, text, ago(one.since, clock()), "Test", link)
    for model in found.suspended:
        text = "Suspended: it billed more than its bound. Nobody calls it until somebody accepts it again."
        suspended = reverse("admin:agents_suspendedmodel_changelist")
        yield Item("model", "bad", model, suspended, text, "", "View", suspended)
    for model in sorted(set(found.failing) - {one.model for one in found.away}):
        yield Item("model", "bad", model, link, "Fails every request.", "", "Test", link)


def _budget_item(meter: Meter, user: User) -> Item:
    is_whole = meter.scope == BudgetScope.INSTALLATION
    link = reverse("admin:agents_budget_changelist")
    spent = max(meter.charged_usd + meter.open_usd, meter.actual_usd)
    bar = Bar.of(spent, meter.cap_usd)
    percent = bar.percent if bar else 0
    action = ("View", link)
    if is_whole and user.has_perm("agents.change_installation"):
        action = ("Change cap", reverse("admin:agents_installation_change", args=[1]))
    elif not is_whole and user.has_perm("agents.change_budget"):
        action = ("Change cap", _act("budget", meter.budget_id or 0, "set_cap"))
    scope = "" if is_whole else f" ({meter.scope})"
    text = f"{usd(spent)} of {usd(meter.cap_usd)} today, in flight included."
    return Item(
        f"budget {percent} %",
        "bad" if percent >= FULL_PERCENT else "warn",
        f"{meter.name}{scope}",
        link,
        text,
        "",
        *action,
    )


# --- First steps of a new installation ---


@cache
def _sample_documents() -> frozenset[str]:
    folder = Path(settings.SAMPLES_DIR, "documents")
    return frozenset(path.name for path in folder.glob("*"))


def first_steps(request: HttpRequest, counts: Counts) -> list[dict[str, Any]]:
    """Return what to do first, until all of it is done or somebody dismisses it; empty for those who only read."""
    user = current_user(request)
    if STEPS_COOKIE in request.COOKIES or not user.has_perm(HALT_PERMISSION) or not user.has_perm(VIEW):
        return []
    done = counts.done
    steps = [
        ("Connect a model", "models", "Until then a built-in offline analyst answers.", _has_model()),
        (
            "Add a document",
            "agents_document_add",
            "A trigger that watches its collection reads it.",
            counts.done["document"],
        ),
        (
            "Decide on a call",
            "agents_approval_changelist",
            "Approve or deny what an agent asks for.",
            counts.done["decision"],
        ),
        ("Try the brake", "halt_everything", "Halt all work once, then release it.", done["halt"]),
    ]
    if all(done for *_, done in steps):
        return []
    return [
        {"title": title, "link": reverse(f"admin:{page}"), "text": text, "done": done}
        for title, page, text, done in steps
    ]


def _has_model() -> bool:
    """Whether a model beyond the built-in ones is declared."""
    declared = models_in_force().declared.values()
    return any(one.get("provider") not in BUILT_IN_PROVIDERS for one in declared)


@require_POST
def dismiss_first_steps(request: HttpRequest) -> HttpResponse:
    """Hide the first steps in this browser."""
    response = HttpResponseRedirect(reverse("admin:index"))
    response.set_cookie(STEPS_COOKIE, "dismissed", max_age=STEPS_SECONDS, httponly=True, samesite="Lax")
    return response


# --- Halt and release of the whole installation ---


@never_cache
def halt_everything(request: HttpRequest) -> HttpResponse:
    """Ask for a reason, then halt all runs. Repeated, it says what is in force."""
    by = require_permission(request, HALT_PERMISSION)
    form = HaltAllForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        found = halt_all_work(by=by, reason=given["reason"], spare_waiting=not given["end_waiting"], now=clock())
        messages.warning(request, _halted_message(found))
        return HttpResponseRedirect(reverse("admin:index"))
    back = reverse("admin:index")
    return confirm_page(request, "Halt everything", form, back=back, description=_halt_description(), danger=True)


def _halted_message(found: AllHalted) -> str:
    if found.already:
        return visible(already_halted_message(found))
    spared = f" Paused, because they wait for a person: {counted(found.spared, 'run')}." if found.spared else ""
    ending = f"{counted(found.ending, 'active run')} will end.{spared}"
    return f"Everything is halted. Nothing starts until you release it. {ending}"


def _halt_description() -> str:
    halt = current_halt()
    if halt is not None:
        text = "Halting again changes nothing: its reason and author stay."
        return f"{visible(halt_message(halt, already=True))} {text}"
    waiting = waiting_for_person()
    ending = control_room.sessions_active().exclude(pk__in=waiting.values("pk")).order_by()
    states = ending.values_list("status").annotate(number=Count("pk")).order_by("status")
    ends = ", ".join(f"{number} {status}" for status, number in states) or "none"
    return (
        f"No further call starts and no trigger fires until the release. Ends for good: {ends}. Calls in flight are "
        f"cut within a second. Spared, because they only wait for a person: {waiting.count()}; "
        "they are paused. To keep every run, pause everything instead."
    )


@never_cache
def release(request: HttpRequest) -> HttpResponse:
    """Let new runs start again."""
    by = require_permission(request, HALT_PERMISSION)
    form = ReleaseForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        try:
            release_all_work(by=by, now=clock(), resume_spared=not form.cleaned_data["keep_paused"])
        except REFUSALS as error:
            messages.error(request, error_text(error))
        else:
            messages.success(request, "Released. New runs can start; halted runs stay halted.")
        return HttpResponseRedirect(reverse("admin:index"))
    description = "New runs can start and triggers fire again. Halted runs stay halted."
    return confirm_page(request, "Release", form, back=reverse("admin:index"), description=description)


@never_cache
def pause_everything(request: HttpRequest) -> HttpResponse:
    """Ask for a reason, then pause all runs."""
    by = require_permission(request, HALT_PERMISSION)
    form = PauseForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        paused = work_pause(by=by, reason=form.cleaned_data["reason"], now=clock())
        text = f"Everything is paused: {counted(paused.sessions, 'run')}. Nothing goes on until you resume it."
        messages.warning(request, visible(pause_message(paused.pause)) if paused.already else text)
        return HttpResponseRedirect(reverse("admin:index"))
    description = (
        f"Puts {counted(control_room.sessions_active().count(), 'current run')} aside: calls in flight end normally, "
        "and no other begins. Triggers fire, and their runs wait. Nothing ends, and nothing is lost."
    )
    return confirm_page(request, "Pause everything", form, back=reverse("admin:index"), description=description)


@never_cache
def resume_everything(request: HttpRequest) -> HttpResponse:
    """Let all runs go on."""
    by = require_permission(request, HALT_PERMISSION)
    form = ActionForm(request.POST or None, by=by, rows=())
    if request.method == "POST" and form.is_valid():
        try:
            work_resume(by=by, now=clock())
        except REFUSALS as error:
            messages.error(request, error_text(error))
        else:
            messages.success(request, "Resumed. Runs and agents that were paused on their own stay paused.")
        return HttpResponseRedirect(reverse("admin:index"))
    description = "All runs go on where they were. Runs and agents that were paused on their own stay paused."
    return confirm_page(request, "Resume everything", form, back=reverse("admin:index"), description=description)


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
        workers=control_room.workers_active(),
        refusals=control_room.refusals_lately() if by.has_perm("audit.view_auditevent") else None,
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
        ("Charts", "bar_chart", "charts", "agents.view_agentsession"),
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
    counts = getattr(request, COUNTED_BEFORE, None) or control_room.badge_counts(
        user, all_questions=user.has_perm(DECIDE_PERMISSION)
    )
    numbers = {
        "agents_approval_changelist": counts["approvals"] if _is_approver(request) else 0,
        "agents_question_changelist": counts["questions"],
        "agents_notification_changelist": counts["notifications"],
    }
    return {
        page: {"badge": str(number) if number < MAX_BADGE else f"{MAX_BADGE}+"}
        for page, number in numbers.items()
        if number
    }


def _is_approver(request: HttpRequest) -> bool:
    """Whether the user decides on approvals; looked up once for a page."""
    if not hasattr(request, APPROVER):
        setattr(request, APPROVER, is_approver(current_user(request), clock()))
    return bool(getattr(request, APPROVER))
