"""Runs (sessions in code): the list, the page of one, halting, running again, run now; their calls and halts."""

from collections.abc import Callable, Iterable
from dataclasses import Field
from functools import partial
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, ReasonForm, RowAction, for_each
from agents.admin.approvals import AnswerForm
from agents.admin.base import DetailAdmin, FormAdmin, current_user, view_token
from agents.admin.display import (
    OUTCOME_LABELS,
    STATUS_COLORS,
    STATUS_LABELS,
    WordedFilter,
    column,
    counted,
    cut,
    session_bar,
    short_id,
    usd,
    visible,
    words,
)
from agents.admin.forms import ArgumentsField, OwnedChoices, StyledModelForm, usd_field
from agents.conf import clock
from agents.enums import (
    ApprovalStatus,
    HaltState,
    Mode,
    Outcome,
    Phase,
    Status,
    TerminalReason,
    ToolIntent,
)
from agents.models import AgentSession, Approval, Collection, Document, Halt, Playbook, PromptSkill, ToolCall
from agents.policy.run_spec import GOAL_CHARS, OPTIONS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.sessions.approvals import PERMISSION, Decision, tool_call_resolve
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.questions import may_answer
from agents.sessions.reads import purposes, read_by, timeline, titled
from agents.sessions.transcripts import questions_open, transcript_shown
from agents.triggers.firing import run_now, session_restart
from audit.receipts import ENDINGS, outcome_sentence

CHANGE: Final = "agents.change_agentsession"
SHOWN_FINDINGS: Final = 100
SHOWN_CALLS: Final = 200
SHOWN_REFUSED: Final = 3
REFRESH_SECONDS: Final = 4
# The names of the sidebar, as headings of the pages.
AgentSession._meta.verbose_name = "run"
AgentSession._meta.verbose_name_plural = "runs"
ToolCall._meta.verbose_name_plural = "calls"

# --- Calls ---


class HappenedForm(ActionForm):
    result = ArgumentsField(
        label="Result",
        required=False,
        help_text="The result of the call as one JSON object. Optional.",
    )


def _happened(action: ActionRequest) -> ActionResult:
    [call] = action.rows
    tool_call_resolve(call.pk, Decision.HAPPENED, by=action.by, now=action.now, result=action.data["result"])
    return ActionResult("Recorded: it happened. The run does not repeat the call.")


def _did_not_happen(action: ActionRequest) -> ActionResult:
    [call] = action.rows
    tool_call_resolve(call.pk, Decision.DID_NOT_HAPPEN, by=action.by, now=action.now)
    return ActionResult("Recorded: it did not happen. The run makes the call again.")


def _is_unresolved(call: ToolCall) -> bool:
    return call.outcome == Outcome.UNKNOWN and call.resolved_at is None


@admin.register(ToolCall)
class ToolCallAdmin(DetailAdmin):
    outcome_ = column("outcome", words, label=OUTCOME_LABELS)
    charged = column("charged_usd", usd, title="approved cost")
    actual = column("actual_usd", usd, title="reported cost")
    list_display = ["call", "of_session", "phase", "outcome_", "charged", "actual", "model", "started_at"]
    list_filter = [("outcome", WordedFilter), ("intent", WordedFilter), ("phase", WordedFilter)]
    empty_text = "No calls yet."
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "The full id of a run."
    change_form_template = "admin/call.html"
    row_actions = (
        RowAction(
            "happened",
            "It happened",
            PERMISSION,
            _happened,
            HappenedForm,
            bulk=False,
            available=_is_unresolved,
            description="The call took effect. The run continues with your result and does not repeat it.",
        ),
        RowAction(
            "did_not_happen",
            "It did not happen",
            PERMISSION,
            _did_not_happen,
            bulk=False,
            available=_is_unresolved,
            danger=True,
            description="The call had no effect. The run repeats it: if you are wrong, it happens twice.",
        ),
    )

    @display(description="call")
    def call(self, call: ToolCall) -> str:
        return f"{call.intent} · {call.name}" if call.name and call.name != call.intent else call.intent

    def extra_context(self, request: HttpRequest, row: ToolCall) -> dict[str, Any]:
        return {"title": self.call(row), "call": row, "open": _is_unresolved(row)}


# --- Halts ---


@admin.register(Halt)
class HaltAdmin(DetailAdmin):
    scope_ = column("scope", words)
    reason_ = column("reason", partial(cut, limit=120))
    list_display = ["scope_", "of_session", "reason_", "requested_by", "requested_at", "released_at"]
    list_filter = [("scope", WordedFilter)]
    empty_text = "No halts yet. Halts of runs and of the whole installation are listed here."
    list_select_related = ["session", "requested_by"]


# --- The page of a run ---


def session_context(session: AgentSession, by: User) -> dict[str, Any]:
    """What the page of a run shows, by a fixed number of statements."""
    findings = session.findings.select_related("document").defer("document__text").order_by("created_at", "id")
    calls = ToolCall.objects.filter(session=session).order_by("pk")
    approvals = Approval.objects.filter(session=session, status=ApprovalStatus.PENDING)
    over = session.status in TERMINAL
    return {
        "session": session,
        "over": over,
        "purpose": purposes([session])[session.pk],
        "bar": session_bar(session),
        "chips": chips(session),
        "line": timeline(session),
        "findings": list(findings[:SHOWN_FINDINGS]),
        "calls": list(calls[:SHOWN_CALLS]),
        "pending": list(approvals.order_by("created_at")),
        "questions": list(questions_open([session])),
        "may_answer": may_answer(session, by),
        "answer_form": AnswerForm(),
        "transcript": transcript_shown(session),
        "chat": session.params.get("chat") if session.mode == Mode.CHAT and session.owner_id == by.pk else None,
        "unknown": list(calls.filter(outcome=Outcome.UNKNOWN, resolved_at__isnull=True)),
        "inputs": _inputs(session),
        "restarts": list(session.restarts.order_by("pk")[:10]),
        "artifacts": list(session.artifacts.defer("text").filter(deleted_at__isnull=True)[:20]),
        "ending": ending_text(session) if over else "",
        "no_findings": no_findings_text(session),
        "has_receipt": session.started_at is not None or over,
        "every": None if over else REFRESH_SECONDS,
        "token": view_token(by, session),
    }


def chips(session: AgentSession) -> list[tuple[str, str]]:
    """Status chips, each fact once: the status, then why it ended, what it waits for, or the halt."""
    status = (STATUS_COLORS.get(session.status, ""), str(session.status))
    if session.status in TERMINAL:
        reason = words(session.terminal_reason)
        return [status] if reason == session.status else [status, ("", reason)]
    if session.waiting_on:
        status = ("warn", f"waiting for {session.waiting_on}")
    is_halting = session.halt_state != HaltState.RUNNING
    return [status, ("bad", words(session.halt_state))] if is_halting else [status]


def ending_text(session: AgentSession) -> str:
    """Why it ended, and which of its calls were denied."""
    refused = session.approvals.filter(status__in=(ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED))
    text = ENDINGS.get(session.terminal_reason or "", "")
    if session.terminal_reason == TerminalReason.COST_CAP_REACHED:
        text = f"Stopped at its cost cap of {usd(session.max_cost_usd)}. Run again with a higher cap."
    elif session.result and session.terminal_reason != TerminalReason.COMPLETED:
        text = outcome_sentence(session.result)
    for approval in refused.select_related("resolved_by").order_by("pk")[:SHOWN_REFUSED]:
        what = "Its notification" if approval.intent == ToolIntent.NOTIFY else f"Its call {approval.action}"
        if approval.status == ApprovalStatus.EXPIRED:
            text += f" {what} was not sent: the approval expired."
        else:
            text += f" {what} was denied by {approval.resolved_by or 'a person'}."
    return text.strip()


def no_findings_text(session: AgentSession) -> str:
    if session.status not in TERMINAL:
        return "No findings so far."
    if session.status == Status.COMPLETED:
        return "No findings."
    if session.current_phase in {Phase.INTAKE, Phase.ANALYSIS}:
        return "No findings: the run was stopped before it read anything."
    return "No findings before the run was stopped."


def _inputs(session: AgentSession) -> dict[str, Any]:
    """What the run read, by the ids that it recorded; a deleted row is shown by its id."""
    recorded = session.metadata.get("inputs") or {}
    given = session.params
    playbook_id = recorded.get("playbook_id") or given.get("playbook")
    rows = {
        "playbook": _first(Playbook, public_id=playbook_id),
        "skill": _first(PromptSkill, name=given.get("skill")),
        "read": read_by(session),
    }
    return {
        **recorded,
        **rows,
        "context_version": session.context_version,
        "playbook_ref": playbook_id,
        "given": given,
    }


def _first(model: Any, **which: Any) -> Any:
    if not all(which.values()):
        return None
    try:
        return model._meta.default_manager.filter(**which).first()
    except ValidationError:  # not an id
        return None


# --- Actions on runs ---


def halt_result(halted: HaltCount) -> ActionResult:
    message = f"Halt requested for {counted(halted.requested, 'run')}."
    if halted.already_halted:
        message += f" {counted(halted.already_halted, 'run was', 'runs were')} halted already."
    if halted.terminal:
        message += f" {counted(halted.terminal, 'run has', 'runs have')} ended already."
    failed = f"{counted(halted.failed, 'run')} not halted: the database refused. Halt again."
    return ActionResult(message, (failed,) if halted.failed else ())


def _halt(action: ActionRequest) -> ActionResult:
    pks = [session.pk for session in action.rows]
    return halt_result(sessions_halt(pks, by=action.by, reason=action.data["reason"], now=action.now))


def start_each(action: ActionRequest, start: Callable[[Any], Iterable[AgentSession]], done: str) -> ActionResult:
    """Start runs for each row; the message links to them."""
    started: list[AgentSession] = []
    result = for_each(action, lambda row: started.extend(start(row)), done)
    pages = [(reverse("admin:agents_agentsession_change", args=[row.pk]), short_id(row)) for row in started]
    links = format_html_join(", ", '<a class="lq-link" href="{}">Open run {}</a>', pages)
    return ActionResult(format_html("{} {}", result.message, links), result.errors)


def _restart(action: ActionRequest) -> ActionResult:
    cap = action.data["cap"]

    def restart(row: AgentSession) -> Iterable[AgentSession]:
        return [session_restart(session=row, by=action.by, now=action.now, max_cost_usd=cap)]

    return start_each(action, restart, "started again")


class RestartForm(ActionForm):
    cap = usd_field(
        label="Cap (USD)",
        required=False,
        help_text="Maximum cost of the new run. Empty: the cap of its trigger, or the cap of this run.",
    )


# Options that a form has a field for; step loop settings are set on triggers.
FORM_OPTIONS: Final = tuple(option for option in OPTIONS if not isinstance(getattr(RunSpec(), option.name), dict))


def _option_field(option: Field[Any]) -> forms.Field:
    about: dict[str, Any] = {
        "label": option.metadata["label"],
        "help_text": option.metadata["help"],
        "required": False,
    }
    if choices := option.metadata["choices"]:
        return forms.ChoiceField(choices=[("", "Default"), *choices.choices], **about)
    return forms.BooleanField(**about)


class RunNowForm(OwnedChoices, StyledModelForm):
    """Inputs and options of a run. The choices are the user's own rows."""

    playbook = forms.ModelChoiceField(
        Playbook.objects.none(), required=False, help_text="The positions to check the documents against."
    )
    skill = forms.ModelChoiceField(
        PromptSkill.objects.none(), required=False, help_text="The instructions to follow, instead of a playbook."
    )
    goal = forms.CharField(
        required=False,
        max_length=GOAL_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The goal in your own words. The run works towards it in steps, with skills.",
    )
    document = forms.ModelChoiceField(Document.objects.none(), required=False, help_text="One document.")
    collection = forms.ModelChoiceField(Collection.objects.none(), required=False, help_text="A whole collection.")
    query = forms.CharField(required=False, max_length=500, help_text="Only the passages that match these words.")
    max_cost_usd = usd_field(
        label="Cap (USD)", required=False, help_text="Maximum cost of the run. Empty: the installation's default."
    )

    class Meta:
        model = AgentSession
        fields = ["project", "agent"]

    def bound(self) -> dict[str, Any]:
        """Whom the run is for: the rows that a session has columns for."""
        return {name: self.cleaned_data[name] for name in self.Meta.fields}

    def spec(self) -> RunSpec:
        said = {name: value for name, value in self.cleaned_data.items() if name not in self.Meta.fields}
        return RunSpec.of(**said)


RunNowForm.base_fields.update({option.name: _option_field(option) for option in FORM_OPTIONS})


@admin.register(AgentSession)
class AgentSessionAdmin(FormAdmin):
    phase = column("current_phase", words, title="phase")
    list_display = ["purpose", "status_", "phase", "spent", "owner_", "started", "receipt"]
    list_filter = [
        *((name, WordedFilter) for name in ("status", "terminal_reason", "halt_state", "waiting_on")),
        "trigger_kind",
        "mode",
        "agent",
    ]
    list_select_related = ["owner", "agent", "trigger"]
    search_fields = ["public_id__exact", "owner__username__exact"]
    search_help_text = "Words of its purpose, the name of its agent, trigger or owner, or its full id."
    sortable_by = ()
    empty_text = "No runs yet. Add a document to a watched collection, or start a run."
    form = RunNowForm
    can_change = False
    add_form_template = "admin/form.html"
    change_form_template = "admin/session.html"
    save_label = "Run now"
    fieldsets = (
        (
            "Instructions",
            {
                "fields": ("playbook", "skill", "goal"),
                "description": "One playbook or skill, or a goal, alone or with one.",
            },
        ),
        (
            "Inputs",
            {
                "fields": ("document", "collection", "query"),
                "description": "A document, a collection or a query. Optional for a goal.",
            },
        ),
        (
            "Options",
            {"fields": ("project", "agent", "max_cost_usd", *(option.name for option in FORM_OPTIONS))},
        ),
    )
    row_actions = (
        RowAction(
            "halt",
            "Halt run",
            CHANGE,
            _halt,
            ReasonForm,
            danger=True,
            available=lambda row: row.status not in TERMINAL,
            description="No further call starts. A call that was sent already ends first.",
        ),
        RowAction(
            "restart",
            "Run again",
            "agents.add_agentsession",
            _restart,
            RestartForm,
            bulk=False,
            available=lambda row: row.status in TERMINAL and row.mode != Mode.CHAT,
            description="Starts a new run with the same inputs and a link to this one.",
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        known = purposes(rows)
        for row in rows:
            row.purpose = known[row.pk]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AgentSession]:
        rows: QuerySet[AgentSession] = super().get_queryset(request)
        return rows.defer("result")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        found, _ = super().get_search_results(request, queryset, search_term)
        if not search_term.strip():
            return found, False
        return queryset.filter(Q(pk__in=found.order_by().values("pk")) | titled(search_term.strip())), False

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["halt_link"] if current_user(request).has_perm(CHANGE) else [])]

    @display(description="purpose")
    def purpose(self, session: Any) -> str:
        return visible(cut(str(session.purpose), 80))

    @display(description="status", label=STATUS_LABELS)
    def status_(self, session: AgentSession) -> tuple[str, str]:
        return session.status, status_text(session)

    @display(description="cost / cap")
    def spent(self, session: AgentSession) -> SafeString:
        return cost_bar(session)

    @display(description="owner")
    def owner_(self, session: AgentSession) -> str:
        by = f"by {session.agent}" if session.agent else ""
        return format_html('<span>{}<br><span class="lq-faint">{}</span></span>', str(session.owner), visible(by))

    @display(description="started")
    def started(self, session: AgentSession) -> str:
        return f"{session.started_at or session.created_at:%d %b %H:%M}"

    @display(description="receipt")
    def receipt(self, session: AgentSession) -> str:
        if session.started_at is None and session.completed_at is None:
            return "not started"
        return format_html('<a class="lq-link" href="{}">receipt</a>', reverse("audit:receipt", args=[session.chain]))

    @display(description="")
    def halt_link(self, session: AgentSession) -> str:
        if session.status in TERMINAL:
            return ""
        return format_html('<a class="lq-button small danger" href="{}">Halt</a>', self.action_link(session, "halt"))

    def extra_context(self, request: HttpRequest, row: AgentSession | None) -> dict[str, Any]:
        if row is None:
            return {}
        by = current_user(request)
        context = session_context(row, by)
        return {**context, "title": context["purpose"], "may_resolve": by.has_perm(PERMISSION)}

    def build_form(self, request: HttpRequest, row: Any) -> Any:
        data = request.POST if request.method == "POST" else None
        return RunNowForm(data, initial=request.GET.dict(), owner=current_user(request))

    def create(self, request: HttpRequest, form: Any) -> HttpResponse:
        by = current_user(request)
        session = run_now(form.spec(), owner=by, by=by, now=clock(), **form.bound())
        self.message_user(request, "Run started. This page updates automatically.")
        return HttpResponseRedirect(self.row_link(session.pk))


def status_text(session: AgentSession) -> str:
    """The status in one phrase: why it ended, the halt, what it waits for, or the status itself."""
    if session.status in TERMINAL:
        return words(session.terminal_reason)
    if session.halt_state != HaltState.RUNNING:
        return words(session.halt_state)
    return f"waiting for {session.waiting_on}" if session.waiting_on else session.status


def cost_bar(session: AgentSession) -> SafeString:
    differs = session.cost_actual_usd != session.cost_total_usd
    context = {
        "spent": session.cost_total_usd,
        "cap": session.max_cost_usd,
        "bar": session_bar(session),
        "reported": session.cost_actual_usd if differs else None,
    }
    return render_to_string("admin/parts/spent.html", context)
