"""Home, halt and release of the whole installation, Health, the sidebar, and the search.

Each part is shown only to users who may view its rows.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db import connection, models
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agents.admin.actions import ActionForm, HaltAllForm, PauseForm, ReleaseForm
from agents.admin.ask import AskForm, may_ask
from agents.admin.base import confirm_page, current_user, require_permission, site_page
from agents.admin.charts import KINDS, chart
from agents.admin.display import (
    FULL_PERCENT,
    RESULT_COLORS,
    UNFINISHED_RUNS,
    Bar,
    ago,
    counted,
    cut,
    plain_error,
    plain_sentence,
    run_text,
    short_id,
    usd,
    with_purposes,
    words,
)
from agents.admin.forms import REFUSALS, error_text
from agents.admin.people import INVITE
from agents.ask.naming import id_range
from agents.checks.doctor import diagnose
from agents.conf import clock, manual_folder
from agents.definitions.catalogue import models_in_force
from agents.enums import BudgetPeriod, BudgetScope
from agents.guard import selftest
from agents.ledger.boundary import current_halt, halt_message
from agents.models import Agent, AgentSession, Approval, Document, Finding, Playbook, Project, Trigger
from agents.people.access import DECIDE_PERMISSION, HALT_PERMISSION
from agents.people.delegations import is_approver
from agents.roster.release import Ended, Released, ended_with, work_release
from agents.sessions import control_room
from agents.sessions.control_room import (
    COUNTED,
    FIRST_FEW,
    Attention,
    Counts,
    Fault,
    Health,
    Kind,
    Matter,
    Meter,
    health,
)
from agents.sessions.figures import MONTH_DAYS, Period, outcomes_by_day, spend_of_installation
from agents.sessions.halts import AllHalted, already_halted_message, halt_all_work
from agents.sessions.model_facts import models_known
from agents.sessions.pauses import (
    CHANGE_RUN,
    pause_message,
    pauses_open,
    triggers_paused,
    waiting_for_person,
    work_pause,
    work_paused,
    work_resume,
    work_stopped,
)
from agents.sessions.reads import asked_by, newest, purposes, titled
from agents.skills.registry import skills_left_out
from agents.text.clean import one_line
from agents.text.manual import find_sections
from agents.text.shown import visible
from agents.triggers.inputs import PERMISSION as RETRY_PERMISSION
from audit import receipts

VIEW: Final = "agents.view_agentsession"
TEST: Final = "agents.change_agentsession"
PACKAGES: Final = ("lqops", "django", "django-q2", "django-unfold", "djangorestframework")
MAX_BADGE: Final = 99
MODEL_FAULTS: Final = frozenset({"suspended", "away", "failing", "key"})
BUILT_IN_PROVIDERS: Final = frozenset({"offline", "scripted"})
STEPS_COOKIE: Final = "lqops_first_steps"
STEPS_SECONDS: Final = 365 * 24 * 3600
# Set on a request, so that one page asks once.
COUNTED_BEFORE: Final = "lqops_counts"
APPROVER: Final = "lqops_is_approver"
SHOWN_PAUSES: Final = 200

# --- Home ---


def banner(request: HttpRequest) -> dict[str, Any]:
    """The banner of every page while the installation is halted or paused."""
    if not admin.site.has_permission(request):
        return {}
    halt, pause = work_stopped()
    return {
        "halt": halt,
        "pause": pause,
        "may_halt": current_user(request).has_perm(HALT_PERMISSION),
        "halt_address": reverse("admin:halt_bar"),
        **tabs(request),
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
        context["faults"] = strip_lines(found, user)
        context["running"] = control_room.sessions_running()
        context["recent"] = control_room.sessions_ended()
        sessions += [*context["running"], *context["recent"]]
        attention = control_room.needs_attention(_kinds_for(user), now)
        sessions += [*attention.runs, *(one.session for one in attention.approvals)]
        with_purposes(sessions)
        context["groups"] = attention_groups(request, attention, context["counts"], found)
        context["outcomes"] = chart(KINDS["outcomes"], outcomes_by_day(Period.last_days(MONTH_DAYS, now)))
    if user.has_perm("agents.view_budget"):
        counts = context["counts"]
        spend, figures = spend_of_installation(counts.day_cap_usd, now, month_cap=counts.month_cap_usd)
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


@dataclass(frozen=True)
class Line:
    """A fault in a sentence, with a link to the page that it names, for those who may open it."""

    text: str
    link: str = ""


def fault_lines(faults: Iterable[Fault], user: User) -> list[Line]:
    """The faults, and the skills that were left out."""
    may_see = user.has_perm("agents.view_outboxmessage")
    undelivered = f"{reverse('admin:agents_outboxmessage_changelist')}?status__exact=failed&whose=everybody"
    lines = [Line(fault.text, undelivered if fault.code == "outbox" and may_see else "") for fault in faults]
    return lines + [Line(text) for text in skills_left_out()]


def strip_lines(found: Health, user: User) -> list[Line]:
    """Faults, in short: the halt has its banner, and each model has its row under Needs attention."""
    faults = [fault for fault in found.faults if fault.code != "halted"]
    models = [fault for fault in faults if fault.code.partition(":")[0] in MODEL_FAULTS]
    lines = fault_lines((fault for fault in faults if fault not in models), user)
    if models:
        lines.append(Line(f"{counted(len(models), 'model')} cannot be used: see Needs attention."))
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
    risk: str = ""


@dataclass(frozen=True)
class Group:
    """The items of one kind, and a link to all of them if there are more."""

    items: list[Item]
    more: str
    link: str


# By kind: the permission to see it, the list of all, and their name.
_KINDS: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.AGENT: ("agents.view_agent", "agents_agent_changelist", "agents"),
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
    Kind.RUN: f"?run_result__exact={UNFINISHED_RUNS}",
    Kind.CALL: "?outcome__exact=unknown",
}


def _kinds_for(user: User) -> list[Kind]:
    return [kind for kind, (permission, _, _) in _KINDS.items() if user.has_perm(permission)]


def attention_groups(request: HttpRequest, found: Attention, counts: Counts, health: Health) -> list[Group]:
    """Return what needs attention, the most urgent kind first."""
    user = current_user(request)
    items: dict[Kind, list[Item]] = {
        Kind.AGENT: _agent_items(health, user),
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
        if items[kind]:
            more = _more(name, counts.attention.get(kind), len(items[kind]))
            link = f"{reverse(f'admin:{page}')}{_FILTERS.get(kind, '')}"
            groups.append(Group(items[kind][:FIRST_FEW], more, link))
    return groups


def _more(name: str, number: int | None, found: int) -> str:
    """The words of the link to all of a kind. Models and budgets are not counted: their lists hold all of them."""
    if number is None:
        return f"All {name}" if found > FIRST_FEW else ""
    return f"All {number if number < COUNTED else f'{COUNTED} or more'} {name}" if number > FIRST_FEW else ""


def _page(name: str, pk: int) -> str:
    return reverse(f"admin:agents_{name}_change", args=[pk])


def _act(name: str, pk: int, action: str) -> str:
    return reverse(f"admin:agents_{name}_act", args=[pk, action])


def _agent_items(found: Health, user: User) -> list[Item]:
    """The agents that were started, do not run, and do not start again by themselves."""
    may_start = user.has_perm("agents.change_agentsession")
    items = {}
    for row in found.not_running:
        agent_pk = row.agent_id or 0
        link = _page("agent", agent_pk)
        reason = receipts.label_of("reason", row.terminal_reason) if row.terminal_reason else "its run is ending"
        items[agent_pk] = Item(
            chip="not running",
            color="bad",
            title=row.agent.name if row.agent else "",
            link=link,
            detail=f"It was started, and has ended: {reason}. Start it again, or stop it on its page.",
            when=ago(row.completed_at, clock(), empty=""),
            action="Start again" if may_start else "View",
            action_link=_act("agent", agent_pk, "start") if may_start else link,
        )
    return list(items.values())


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
        risk=approval.risk_level,
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
    for model in found.key_refused:
        yield Item("model", "bad", model, link, "Its server refuses the key: set another one.", "", "Test", link)


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
    when = "this month" if meter.period == BudgetPeriod.MONTH else "today"
    text = f"{usd(spent)} of {usd(meter.cap_usd)} {when}, in flight included."
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
    halt = current_halt()
    ended = ended_with(halt) if halt is not None else Ended((), ())
    agents = [(agent.pk, f"{agent.name} ({agent.owner})") for agent in ended.agents]
    named = purposes(ended.runs)
    runs = [(run.pk, f"{named[run.pk]} ({run.owner})") for run in ended.runs]
    form = ReleaseForm(request.POST or None, by=by, rows=(), agents=agents, runs=runs)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        start_again, run_again = ({int(key) for key in given.get(name, ())} for name in ("start_again", "run_again"))
        spared = not given["keep_paused"]
        try:
            found = work_release(by=by, now=clock(), resume_spared=spared, start_again=start_again, run_again=run_again)
        except REFUSALS as error:
            messages.error(request, error_text(error))
        else:
            _tell_released(request, found)
        return HttpResponseRedirect(reverse("admin:index"))
    description = "New runs can start and triggers fire again. Halted runs stay halted."
    return confirm_page(request, "Release", form, back=reverse("admin:index"), description=description)


def _tell_released(request: HttpRequest, found: Released) -> None:
    text = "Released. New runs can start; halted runs stay halted."
    if found.agents:
        text += f" Started again: {counted(len(found.agents), 'agent')}."
    if found.runs:
        text += f" Run again: {counted(len(found.runs), 'run')}."
    messages.success(request, text)
    for refused in found.refused:
        messages.error(request, visible(f"Not started again: {refused}"))
    if found.not_running:
        names = ", ".join(found.not_running)
        messages.warning(request, visible(f"Started earlier, and not running: {names}. See Needs attention."))


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


@dataclass(frozen=True)
class PausedRow:
    """One line of the page Paused. `resume` is the address of the act, for those who may do it."""

    kind: str
    name: str
    link: str
    by: str
    since: Any
    reason: str
    resume: str


@never_cache
def paused_page(request: HttpRequest) -> TemplateResponse:
    """Everything that is paused: all work, agents, triggers and runs, newest first."""
    user = require_permission(request, VIEW)
    found, found_triggers = pauses_open(SHOWN_PAUSES + 1), triggers_paused(SHOWN_PAUSES + 1)
    pauses, triggers = found[:SHOWN_PAUSES], found_triggers[:SHOWN_PAUSES]
    with_purposes(pause.session for pause in pauses if pause.session)
    rows = [*(_paused(pause, user) for pause in pauses), *(_paused_trigger(*one, user) for one in triggers)]
    return site_page(
        request,
        "admin/paused.html",
        "Paused",
        paused=sorted(rows, key=lambda row: row.since, reverse=True),
        is_cut=max(len(found), len(found_triggers)) > SHOWN_PAUSES,
        most=SHOWN_PAUSES,
    )


def _paused(pause: Any, user: User) -> PausedRow:
    kind, name, row, permission = "all work", "All work", None, HALT_PERMISSION
    if pause.agent is not None:
        kind, name, row, permission = "agent", pause.agent.name, pause.agent, CHANGE_RUN
    if pause.session is not None:
        kind, name, row, permission = "run", pause.session.purpose, pause.session, CHANGE_RUN
    link = _row_page(row, "change") if row is not None and _may_view(user, type(row)) else ""
    resume = _row_page(row, "act", "resume") if row is not None else reverse("admin:resume_everything")
    by = pause.requested_by.get_username() if pause.requested_by else pause.actor
    return PausedRow(
        kind, name, link, by, pause.requested_at, pause.reason, resume if user.has_perm(permission) else ""
    )


def _paused_trigger(trigger: Trigger, pause: Any, by: str, user: User) -> PausedRow:
    """A trigger that stopped itself says why on Home; its pause has nobody's name."""
    reason = PAUSED_FOR.get(trigger.pause_reason, words(trigger.pause_reason) or "by hand")
    resume = _row_page(trigger, "act", "resume") if user.has_perm("agents.change_trigger") else ""
    kind = "trigger and its runs" if pause else "trigger"
    link = _row_page(trigger, "change") if _may_view(user, Trigger) else ""
    return PausedRow(kind, trigger.name, link, by, trigger.paused_at, reason, resume)


def _row_page(row: Any, name: str, *more: str) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{name}", args=[row.pk, *more])


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
        refusals_among=control_room.CALLS_LOOKED_AT,
        red=fault_lines(found.faults, by),
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


@dataclass(frozen=True)
class Page:
    """A page that the sidebar or the tabs of its entry lead to, for those with the permission, or with all of them."""

    title: str
    name: str
    permission: str = ""

    def is_open_to(self, user: User) -> bool:
        return user.has_perms(self.permission.split())

    @property
    def link(self) -> str:
        return _address(self.name, get_script_prefix())


@cache
def _address(name: str, prefix: str) -> str:
    """The address of a page. Every page looks up those of all pages, so they are kept, for each prefix."""
    return reverse(f"admin:{name}")


@dataclass(frozen=True)
class Entry:
    """One line of the sidebar: its first page, and the pages that are tabs beside that."""

    icon: str
    pages: tuple[Page, ...]

    @property
    def title(self) -> str:
        return self.pages[0].title


def _rows(title: str, model: str) -> Page:
    """The list of a model."""
    app, _, name = model.rpartition(".")
    app = app or "agents"
    return Page(title, f"{app}_{name}_changelist", f"{app}.view_{name}")


_SECTIONS: Final[dict[str, tuple[Entry, ...]]] = {
    "": (
        Entry("home", (Page("Home", "index"), Page("Health", "health", VIEW))),
        Entry(
            "approval",
            (
                _rows("Approvals", "approval"),
                _rows("Questions", "question"),
                _rows("Approval rules", "approvalrule"),
                _rows("Delegations", "delegation"),
            ),
        ),
        Entry(
            "search_insights",
            (
                _rows("Findings", "finding"),
                _rows("Precedents", "precedent"),
                _rows("Proposals", "contextproposal"),
            ),
        ),
        Entry(
            "play_circle",
            (
                _rows("Runs", "agentsession"),
                Page("Paused", "paused", VIEW),
                Page("Chats", "chats", VIEW),
                _rows("Calls", "toolcall"),
            ),
        ),
        Entry(
            "notifications",
            (
                _rows("Notifications", "notification"),
                _rows("Channels", "channel"),
                _rows("Deliveries", "outboxmessage"),
            ),
        ),
    ),
    "Automation": (
        Entry("smart_toy", (_rows("Agents", "agent"), _rows("Projects", "project"), _rows("Memories", "memory"))),
        Entry(
            "bolt",
            (
                _rows("Triggers", "trigger"),
                _rows("Events received", "inboundevent"),
                _rows("Unread inputs", "unreadinput"),
            ),
        ),
        Entry(
            "build",
            (
                _rows("Skills", "promptskill"),
                _rows("Callable skills", "skillsetting"),
                _rows("Secrets", "secretbinding"),
            ),
        ),
    ),
    "Knowledge": (
        Entry("description", (_rows("Documents", "document"), _rows("Collections", "collection"))),
        Entry("rule", (_rows("Playbooks", "playbook"),)),
    ),
    "Cost": (
        Entry(
            "bar_chart",
            (
                Page("Charts", "charts", VIEW),
                _rows("Spending and caps", "budget"),
                _rows("Model calls", "inferencelog"),
            ),
        ),
        Entry(
            "neurology",
            (
                Page("Models", "models", "agents.view_modelprice"),
                _rows("Model prices", "modelprice"),
                _rows("Suspended models", "suspendedmodel"),
            ),
        ),
    ),
    "Administration": (
        Entry("group", (_rows("People", "auth.user"), _rows("Roles", "auth.group"), _rows("API keys", "apikey"))),
        Entry(
            "history_edu",
            (
                _rows("Audit log", "audit.auditevent"),
                _rows("Activity", "agentevent"),
                _rows("Skill audit", "audit.skillaudit"),
                _rows("Halts", "halt"),
            ),
        ),
    ),
}


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar of unfold: the entries with a page that the user may open."""
    user = current_user(request)
    numbers = _numbers(request)
    current = _current(request)
    built = []
    for title, entries in _SECTIONS.items():
        items: list[dict[str, Any]] = []
        for entry in entries:
            pages = [page for page in entry.pages if page.is_open_to(user)]
            if pages:
                counts = [number for page in pages if (number := numbers.get(page.name, 0))]
                shown = {"title": entry.title, "icon": entry.icon, "link": pages[0].link, "active": entry is current}
                items.append({**shown, **({"badge": " + ".join(map(_badge, counts))} if counts else {})})
        if items:
            built.append({"title": title, "separator": bool(title), "items": items})
    return built


def tabs(request: HttpRequest) -> dict[str, Any]:
    """The entry of the sidebar that a page belongs to, and the tabs of a page that is one of several of its entry."""
    current = _current(request)
    if current is None:
        return {}
    pages = [page for page in current.pages if page.is_open_to(current_user(request))]
    request.lqops_entry = {"title": current.title, "link": pages[0].link} if pages else None  # type: ignore[attr-defined]
    if len(pages) == 1 or all(page.link != request.path for page in pages):
        return {"page_tabs": []}
    numbers = _numbers(request) if any(page.name in _COUNTED_PAGES for page in pages) else {}
    return {
        "page_tabs": [
            {
                "title": page.title,
                "link": page.link,
                "active": page.link == request.path,
                "badge": _badge(numbers.get(page.name, 0)),
            }
            for page in pages
        ]
    }


def _current(request: HttpRequest) -> Entry | None:
    """The entry of the page: the one with the longest address that the page's own begins with. Home is only itself."""
    home = reverse("admin:index")
    fitting = [
        (len(link), entry)
        for entries in _SECTIONS.values()
        for entry in entries
        for page in entry.pages
        if request.path == (link := page.link) or (link != home and request.path.startswith(link))
    ]
    return max(fitting, key=lambda one: one[0], default=(0, None))[1]


def _badge(number: int) -> str:
    return "" if not number else str(number) if number < MAX_BADGE else f"{MAX_BADGE}+"


_COUNTED_PAGES: Final = ("agents_approval_changelist", "agents_question_changelist", "agents_notification_changelist")


def _numbers(request: HttpRequest) -> dict[str, int]:
    """How much waits on the pages with something to do."""
    user = current_user(request)
    if getattr(request, COUNTED_BEFORE, None) is None:
        setattr(
            request, COUNTED_BEFORE, control_room.badge_counts(user, all_questions=user.has_perm(DECIDE_PERMISSION))
        )
    counts = getattr(request, COUNTED_BEFORE)
    found = (counts["approvals"] if _is_approver(request) else 0, counts["questions"], counts["notifications"])
    return dict(zip(_COUNTED_PAGES, found, strict=True))


def _is_approver(request: HttpRequest) -> bool:
    """Whether the user decides on approvals; looked up once for a page."""
    if not hasattr(request, APPROVER):
        setattr(request, APPROVER, is_approver(current_user(request), clock()))
    return bool(getattr(request, APPROVER))


# --- Search: pages, actions, rows and documentation by a few letters ---


@dataclass(frozen=True)
class Found:
    """One result: where it leads, and what it is."""

    kind: str
    title: str
    link: str
    detail: str = ""


@dataclass(frozen=True)
class Searched:
    """Rows that are found by words in some fields, among the newest.

    `owner` names the field of their owner if everybody finds only their own: names and titles of these rows can be as
    confidential as the rows. Those of others are found in their lists, where views are recorded.
    """

    kind: str
    model: type[models.Model]
    fields: tuple[str, ...] = ("name",)
    among: Q = field(default_factory=Q)
    owner: str = ""


RESUME: Final = Page("Resume everything", "resume_everything", HALT_PERMISSION)  # offered while all work is paused
ACTIONS: Final = (
    Page("Run now", "agents_agentsession_add", "agents.add_agentsession"),
    Page("Add document", "agents_document_add", "agents.add_document"),
    Page("Add agent", "agents_agent_add", "agents.add_agent"),
    Page("Add trigger", "agents_trigger_add", "agents.add_trigger"),
    Page("Add playbook", "agents_playbook_add", "agents.add_playbook"),
    Page("Add person", "auth_user_add", "auth.add_user"),
    Page("Invite a person", "auth_user_invite", " ".join(INVITE)),
    Page("Create API key", "agents_apikey_add", "agents.add_apikey"),
    Page("Ask", "ask", VIEW),
    Page("Pause everything", "pause_everything", HALT_PERMISSION),
    RESUME,
    Page("Halt everything", "halt_everything", HALT_PERMISSION),
    Page("Release", "release", HALT_PERMISSION),
    Page("Change password", "password_change"),
)
SEARCHED: Final = (
    Searched("agent", Agent, among=Q(archived_at__isnull=True)),
    Searched("trigger", Trigger, among=Q(deleted_at__isnull=True)),
    Searched("document", Document, among=Q(deleted_at__isnull=True), owner="owner"),
    Searched("finding", Finding, ("title",), Q(about_run=False), owner="session__owner"),
    Searched("playbook", Playbook),
    Searched("project", Project),
    Searched("person", User, ("username", "first_name", "last_name", "email")),
)
BY_ID: Final[Mapping[str, type[models.Model]]] = {"run": AgentSession, "approval": Approval, "finding": Finding}
LISTS: Final[Mapping[str, type[models.Model]]] = {"runs": AgentSession, "findings": Finding, "documents": Document}
TERM_CHARS: Final = 100
LEAST_CHARS: Final = 2
OF_A_KIND: Final = 5
DOC_SECTIONS: Final = 4


@never_cache
def search_page(request: HttpRequest) -> TemplateResponse:
    """Show the results of a search as a page; the palette shows the same without leaving its page."""
    term = _term(request)
    return site_page(request, "admin/search.html", "Search", term=term, found=find(current_user(request), term))


@never_cache
def search_results(request: HttpRequest) -> JsonResponse:
    """The results for the palette."""
    return JsonResponse({"found": [asdict(one) for one in find(current_user(request), _term(request))]})


def _term(request: HttpRequest) -> str:
    return one_line(request.GET.get("s", ""), TERM_CHARS)


def find(user: User, term: str) -> list[Found]:
    """Return what the user may open, by a fixed number of statements; without a term, actions and pages."""
    pages = [page for entries in _SECTIONS.values() for entry in entries for page in entry.pages]
    actions = [action for action in ACTIONS if action is not RESUME or work_paused() is not None]
    named = [*_pages("action", actions, user, term), *_pages("page", pages, user, term)]
    if len(term) < LEAST_CHARS:
        return named
    rows = [found for searched in SEARCHED for found in _rows_found(searched, user, term)]
    return [
        *_by_id(user, term),
        *named,
        *rows,
        *_runs_found(user, term),
        *_documentation(user, term),
        *_in_lists(user, term),
    ]


def _pages(kind: str, pages: Iterable[Page], user: User, term: str) -> Iterator[Found]:
    for page in pages:
        if term.lower() in page.title.lower() and page.is_open_to(user):
            yield Found(kind, page.title, page.link)


def _by_id(user: User, term: str) -> Iterator[Found]:
    """Rows by the beginning of their id. Of other people's rows no more is said than whose they are."""
    between = id_range(term)
    for kind, model in BY_ID.items() if between else ():
        if not _may_view(user, model):
            continue
        rows: Any = models.QuerySet(model).filter(public_id__range=between)
        owner = "owner" if model is AgentSession else "session__owner"
        for row in rows.select_related(owner)[:OF_A_KIND]:
            whose = row.owner if model is AgentSession else row.session.owner
            yield Found(kind, f"{kind.capitalize()} {short_id(row)}", _row_link(row), f"of {whose}")


def _runs_found(user: User, term: str) -> Iterator[Found]:
    """The user's own runs by words of their purpose, among the newest runs, as the list of runs finds them."""
    if not user.has_perm(VIEW):
        return
    runs = AgentSession.objects.filter(newest(AgentSession) & titled(term, owner=user), owner=user).defer("result")
    for run in with_purposes(runs.select_related("agent", "trigger").order_by("-pk")[:OF_A_KIND]):
        title = visible(cut(run.purpose, TERM_CHARS))
        yield Found("run", title, _row_link(run), f"{run_text(run)}, {ago(run.created_at, clock())}")


def _rows_found(searched: Searched, user: User, term: str) -> Iterator[Found]:
    if not _may_view(user, searched.model):
        return
    holds = Q(*((f"{name}__icontains", term) for name in searched.fields), _connector=Q.OR)
    rows: Any = models.QuerySet(searched.model).filter(searched.among, newest(searched.model))
    rows = rows.filter(**{searched.owner: user}) if searched.owner else rows
    for row in rows.filter(holds).only(*searched.fields).order_by("-pk")[:OF_A_KIND]:
        yield Found(searched.kind, visible(cut(str(getattr(row, searched.fields[0])), TERM_CHARS)), _row_link(row))


def _documentation(user: User, term: str) -> Iterator[Found]:
    if user.has_perm(VIEW):
        for section in find_sections(manual_folder(), term, limit=DOC_SECTIONS):
            link = f"{reverse('admin:manual', args=[section.page])}#{section.anchor}"
            yield Found("docs", visible(section.title), link, section.page)


def _in_lists(user: User, term: str) -> Iterator[Found]:
    for name, model in LISTS.items():
        if _may_view(user, model):
            link = f"{reverse(f'admin:agents_{model._meta.model_name}_changelist')}?{urlencode({'q': term})}"
            yield Found("list", f"Search {name} for “{visible(term)}”", link)


def _may_view(user: User, model: type[models.Model]) -> bool:
    return user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")


def _row_link(row: models.Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
