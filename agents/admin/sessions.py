"""Runs (sessions in code): the list, the page of one, halting, running again, run now; their calls and halts."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from unfold.decorators import display

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, PauseForm, ReasonForm, RowAction, for_each
from agents.admin.approvals import AnswerForm
from agents.admin.base import DetailAdmin, FormAdmin, current_user, view_token
from agents.admin.display import (
    OUTCOME_LABELS,
    RUN_LABELS,
    NamedFilter,
    OptionFilter,
    PeriodFilter,
    WordedFilter,
    column,
    cost_context,
    counted,
    cut,
    elapsed,
    even_usd,
    exact_usd,
    progress_text,
    run_color,
    run_text,
    short_id,
    short_span,
    short_usd,
    span,
    status_text,
    usd,
    with_purposes,
    with_tooltip,
    words,
)
from agents.admin.forms import ArgumentsField, OwnedChoices, StyledModelForm, usd_field
from agents.ask.naming import id_range
from agents.conf import clock
from agents.enums import (
    AnalysisMode,
    ApprovalStatus,
    FindingState,
    Mode,
    Status,
    TerminalReason,
    ToolIntent,
    WaitingOn,
)
from agents.ledger.loans import loan_text, runs_wait_of
from agents.ledger.outages import model_wait_of
from agents.loop.crossings import Instruction, instructions_of_chat, instructions_of_loop
from agents.models import (
    AgentSession,
    Approval,
    Collection,
    Document,
    Finding,
    Halt,
    InboundEvent,
    Playbook,
    PromptSkill,
    ToolCall,
    Trigger,
    UnreadInput,
)
from agents.people.delegations import is_approver
from agents.policy.run_spec import GOAL_CHARS, OPTION_NAMES, OPTIONS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.sessions.approvals import PERMISSION, Decision, tool_call_resolve
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.leases import session_try_now
from agents.sessions.pauses import pause_message, pauses_of, session_pause, session_resume
from agents.sessions.questions import may_answer
from agents.sessions.reads import as_uuid, asked_by, newest, read_by, timeline, titled, waterfall
from agents.sessions.transcripts import questions_open, transcript_shown
from agents.text.shown import visible
from agents.triggers.firing import run_estimate, run_now, session_restart
from agents.walk.analysis import ReadingPlan
from audit.receipts import ENDINGS, RESULT_ENDINGS, loans_sentence, outcome_sentence

CHANGE: Final = "agents.change_agentsession"
SHOWN_FINDINGS: Final = 100
SHOWN_NOTES: Final = 20
SHOWN_CALLS: Final = 200
SHOWN_REFUSED: Final = 3
SHOWN_ALIKE: Final = 25
GOAL_SHOWN: Final = 200
REFRESH_SECONDS: Final = 4
LARGEST_ID: Final = 2**63 - 1  # after which no piece of text comes
MOST_BY_ID: Final = 1_000  # runs whose id begins with what was searched for
DATABASE_ID: Final = re.compile(r"[0-9]{1,18}")
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


def _resolve(decision: Decision, message: str) -> Callable[[ActionRequest], ActionResult]:
    def run(action: ActionRequest) -> ActionResult:
        [call] = action.rows
        tool_call_resolve(call.pk, decision, by=action.by, now=action.now, result=action.data.get("result"))
        return ActionResult(message)

    return run


def _is_unresolved(call: ToolCall) -> bool:
    return call.unknown_since is not None


def call_name(call: ToolCall) -> str:
    """A request of the engine to its model has no skill, though it has the intent of one."""
    if call.intent == ToolIntent.RUN_SKILL and not call.name:
        return "model call"
    return f"{call.intent} · {call.name}" if call.name and call.name != call.intent else call.intent


@admin.register(ToolCall)
class ToolCallAdmin(DetailAdmin):
    call = column(call_name, title="call")
    outcome_ = column("outcome", words, label=OUTCOME_LABELS)
    cost = column(lambda call: short_usd(call.spent_usd), title="spent")
    list_display = ["call", "of_session", "phase", "outcome_", "cost", "model", "started_at"]
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
            _resolve(Decision.HAPPENED, "Recorded: it happened. The run does not repeat the call."),
            HappenedForm,
            PERMISSION,
            bulk=False,
            available=_is_unresolved,
            description="The call took effect. The run continues with your result and does not repeat it.",
        ),
        RowAction(
            "did_not_happen",
            "It did not happen",
            _resolve(Decision.DID_NOT_HAPPEN, "Recorded: it did not happen. The run makes the call again."),
            permission=PERMISSION,
            bulk=False,
            available=_is_unresolved,
            danger=True,
            description="The call had no effect. The run repeats it: if you are wrong, it happens twice.",
        ),
    )

    def extra_context(self, request: HttpRequest, row: ToolCall) -> dict[str, Any]:
        return {"title": call_name(row), "call": row, "open": _is_unresolved(row)}


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


def session_context(session: AgentSession, by: User, *, to_scale: bool = False) -> dict[str, Any]:
    """Return the context of a run's page with a fixed number of statements."""
    rows = session.findings.select_related("document").defer("document__text", "document__marks")
    findings = rows.filter(about_run=False).order_by("created_at", "id")
    calls = ToolCall.objects.filter(session=session).order_by("pk")
    approvals = Approval.objects.filter(session=session, status=ApprovalStatus.PENDING)
    over = session.status in TERMINAL
    line, known = timeline(session), list(calls[:SHOWN_CALLS])
    return {
        "session": session,
        "over": over,
        "model_wait": model_wait_of(session),
        "runs_wait": runs_wait_of(session),
        "loans": "" if over else loan_text(session),
        "pauses": pauses_of(session) if session.paused_at else [],
        "unread": UnreadInput.objects.filter(session=session).first() if session.trigger_id else None,
        "line": line,
        "fall": waterfall(session, line, known, now=clock(), folds_waits=not to_scale),
        "to_scale": to_scale,
        "findings": list(findings[:SHOWN_FINDINGS]),
        "finding_count": findings.count(),
        "notes": list(rows.filter(about_run=True).order_by("created_at", "id")[:SHOWN_NOTES]),
        "most_notes": SHOWN_NOTES,
        "calls": known,
        "pending": list(approvals.order_by("created_at")),
        "questions": list(questions_open([session])),
        "may_answer": may_answer(session, by),
        "answer_form": AnswerForm(),
        "transcript": transcript_shown(session),
        "chat": session.params.get("chat") if session.mode == Mode.CHAT and session.owner_id == by.pk else None,
        "unknown": list(calls.unknown()),
        "instructions": _instructions(session),
        "inputs": _inputs(session),
        "children": list(session.children.order_by("pk")[:20]),
        "restarts": list(session.restarts.order_by("pk")[:10]),
        "artifacts": list(session.artifacts.defer("text").filter(deleted_at__isnull=True)[:20]),
        "ending": ending_text(session) if over else "",
        "has_receipt": session.started_at is not None or over,
        "every": None if over else REFRESH_SECONDS,
        "token": view_token(by, session),
        "status_stream": _status_stream(session) if session.owner_id == by.pk else "",
    }


def _status_stream(session: AgentSession) -> str:
    """The address of the stream that the owner's page follows: changes of the status alone, no text."""
    return f"{reverse('api:stream', args=[session.public_id])}?after={LARGEST_ID}"


def neighbours(session: AgentSession) -> tuple[int | None, int | None]:
    """The next newer and the next older run of the list, by their keys."""
    pks = AgentSession.objects.values_list("pk", flat=True)
    newer = pks.filter(pk__gt=session.pk).order_by("pk").first()
    return newer, pks.filter(pk__lt=session.pk).order_by("-pk").first()


def _instructions(session: AgentSession) -> list[Instruction]:
    """Return what crossed between a chat and a loop, on the page of either."""
    if session.mode == Mode.CHAT:
        return instructions_of_chat(session)
    return instructions_of_loop(session) if session.mode == Mode.LOOP else []


def ending_text(session: AgentSession) -> str:
    """Why it ended, and which of its calls were denied."""
    refused = session.approvals.filter(status__in=(ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED))
    text = RESULT_ENDINGS.get(session.run_result) or ENDINGS["completed"]
    if session.terminal_reason != TerminalReason.COMPLETED:
        text = ENDINGS.get(session.terminal_reason or "", "")
    if session.terminal_reason == TerminalReason.COST_CAP_REACHED and not session.result:
        text = f"Stopped at its cost cap of {usd(session.cap_usd)}. Run again with a higher cap."
    elif session.result and session.terminal_reason != TerminalReason.COMPLETED:
        text = outcome_sentence(session.result)
    for approval in refused.select_related("resolved_by").order_by("pk")[:SHOWN_REFUSED]:
        what = "Its notification" if approval.intent == ToolIntent.NOTIFY else f"Its call {approval.action}"
        if approval.status == ApprovalStatus.EXPIRED:
            text += f" {what} was not sent: the approval expired."
        else:
            text += f" {what} was denied by {approval.resolved_by or 'a person'}."
    return text.strip()


def _inputs(session: AgentSession) -> dict[str, Any]:
    """Return the inputs of the run by their recorded ids; a deleted row is shown by its id."""
    recorded = session.metadata.get("inputs") or {}
    playbook_id = recorded.get("playbook_id") or session.params.get("playbook")
    public_id, event_id = as_uuid(playbook_id), as_uuid(session.spec.event)
    playbook = Playbook.objects.filter(public_id=public_id).first() if public_id else None
    skill = PromptSkill.objects.filter(name=session.spec.skill).first() if session.spec.skill else None
    return {
        **recorded,
        "playbook": playbook,
        "playbook_ref": playbook_id,
        "playbook_since": _since(recorded.get("playbook_digest"), playbook),
        "skill": skill,
        "skill_since": _since(recorded.get("skill_digest"), skill),
        "event": InboundEvent.objects.filter(public_id=event_id).first() if event_id else None,
        "event_ref": session.spec.event,
        "read": read_by(session),
        "context_version": session.context_version,
        "given": session.params,
    }


def _since(digest: str | None, row: Playbook | PromptSkill | None) -> str:
    """Say whether instructions are still as the run read them; nothing if that is not known."""
    if not digest:
        return ""
    if row is None or getattr(row, "deleted_at", None):
        return "deleted since"
    return "unchanged since" if row.digest == digest else f"changed since, now version {row.version}"


# --- Comparing two runs ---


def runs_alike(session: AgentSession) -> list[AgentSession]:
    """The newest other runs of the same trigger, or else of the same agent, by a fixed number of statements."""
    same: dict[str, Any] = {"trigger": session.trigger_id} if session.trigger_id else {"agent": session.agent_id}
    if not any(same.values()):
        return []
    rows = AgentSession.objects.filter(mode=session.mode, **same).exclude(pk=session.pk).defer("result")
    return with_purposes(rows.select_related("owner", "agent", "trigger").order_by("-pk")[:SHOWN_ALIKE])


def compared(left: AgentSession, right: AgentSession) -> dict[str, Any]:
    """Two runs side by side: inputs, results, and findings by title."""
    pair = (left, right)
    facts = [(name, *map(fact, pair)) for name, fact in COMPARED.items()]
    found = Finding.objects.work().filter(session__in=pair).order_by("pk")
    titles: dict[str, dict[int, str]] = {}
    for pk, title, severity in found.values_list("session", "title", "severity")[: 2 * SHOWN_FINDINGS]:
        titles.setdefault(title, {})[pk] = severity
    return {
        "facts": [(name, one, other, one != other) for name, one, other in facts],
        "titles": [(title, by.get(left.pk, ""), by.get(right.pk, "")) for title, by in sorted(titles.items())],
    }


def _documents(session: AgentSession) -> str:
    read = read_by(session)
    more = f" and {read.more} more" if read.more else ""
    return ", ".join(document.name for document in read.documents) + more or "none"


def _playbook(session: AgentSession) -> str:
    inputs = _inputs(session)
    version = inputs.get("playbook_version")
    return f"{inputs['playbook'].name}{f', version {version}' if version else ''}" if inputs["playbook"] else "none"


def _skill(session: AgentSession) -> str:
    version = (session.metadata.get("inputs") or {}).get("skill_version")
    return f"{session.spec.skill}{f', version {version}' if version else ''}" if session.spec.skill else "none"


def _options(session: AgentSession) -> str:
    spec = session.spec
    given = ((option, getattr(spec, option.name)) for option in OPTIONS)
    named = [
        f"{option.metadata['label']}: {'yes' if value is True else words(value)}" for option, value in given if value
    ]
    return "; ".join(named) or "none"


COMPARED: Final[Mapping[str, Callable[[AgentSession], str]]] = {
    "Result": run_text,
    "Elapsed": elapsed,
    "Spent": lambda row: usd(row.spent_usd),
    "Cap": lambda row: usd(row.cap_usd),
    "Tokens": lambda row: f"{row.total_tokens:,}",
    "Calls": lambda row: f"{row.tool_calls.count():,}",
    "Documents": _documents,
    "Playbook": _playbook,
    "Skill": _skill,
    "Goal": lambda row: cut(row.spec.goal, GOAL_SHOWN) or "none",
    "Query": lambda row: row.spec.query or "none",
    "Options": _options,
    "Agent": lambda row: f"{row.agent or 'none'}{f', definition {row.definition_version}' if row.agent else ''}",
    "Project context": lambda row: f"version {row.context_version}" if row.context_version else "none",
}


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


def _pause(action: ActionRequest) -> ActionResult:
    reason = action.data["reason"]
    return for_each(action, lambda row: session_pause(row.pk, by=action.by, reason=reason, now=action.now), "paused")


def _resume(action: ActionRequest) -> ActionResult:
    kept: list[str] = []

    def resume(row: AgentSession) -> None:
        session = session_resume(row.pk, by=action.by, now=action.now)
        kept.extend(f"{short_id(session)} stays paused. {pause_message(pause)}" for pause in pauses_of(session))

    result = for_each(action, resume, "resumed")
    return ActionResult(result.message, (*result.errors, *kept))


def run_label(session: AgentSession) -> str:
    """The run by its purpose and id, its state, and its call in flight."""
    [named] = with_purposes([session])
    since = f", {elapsed(session)}" if session.status == Status.RUNNING else ""
    text = f"{named.purpose} ({short_id(session)}): {run_text(session)}{since}"
    calls = session.tool_calls.open() if session.status == Status.RUNNING else []
    call = max(calls, key=lambda call: call.pk, default=None)
    return f"{text}. Call in flight: {call.name}, for {span(clock() - call.started_at)}" if call else text


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


def _try_now(action: ActionRequest) -> ActionResult:
    return for_each(action, lambda row: session_try_now(row.pk, by=action.by, now=action.now), "tries its model again")


class RestartForm(ActionForm):
    cap = usd_field(
        label="Cap (USD)",
        required=False,
        help_text="Maximum cost of the new run. Empty: the cap of its trigger, or the cap of this run.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(self.rows) == 1:
            self.fields["cap"].help_text = _about_cap(self.rows[0])


def _about_cap(run: Any) -> str:
    """Say what a run could cost, what another one may, and whether that would end it as well."""
    trigger = run.trigger if run.trigger is not None and run.trigger.deleted_at is None else None
    of_trigger = None if trigger is None else trigger.max_cost_usd
    again = f"{usd(of_trigger)}, the cap of its trigger" if of_trigger is not None else "the same cap"
    about = f"Maximum cost of the new run. The cap of this run was {usd(run.cap_usd)}. Empty: {again}."
    if run.terminal_reason == TerminalReason.COST_CAP_REACHED:
        loans = f" {loans}" if (loans := loans_sentence(run.result or {})) else ""
        about += f" This run ended because its next call did not fit into that: give the new one more.{loans}"
    elif run.terminal_reason == TerminalReason.BUDGET_EXCEEDED:
        about += f" This run ended because a budget was used up. {run.error}"
    return about


# Options of one run; the settings of the step loop are set on triggers.
RUN_OPTIONS: Final = tuple(name for name in OPTION_NAMES if name not in {"loop", "guardrails"})


class RunForm(OwnedChoices, StyledModelForm):
    """Inputs and options of a run, as triggers keep them. The choices are the owner's own rows."""

    class Meta:
        model = Trigger
        fields = ["playbook", "skill", "collection", "query", "project", "agent", *RUN_OPTIONS, "max_cost_usd"]
        labels = {"max_cost_usd": "Cap per run (USD)", **{option.name: option.metadata["label"] for option in OPTIONS}}
        help_texts = {
            "playbook": "Positions to check the documents against.",
            "skill": "Instructions to follow, instead of a playbook.",
            "collection": "Documents to read.",
            "query": "Only passages that match these words are read.",
            "project": "Project whose context is added to every prompt.",
            "agent": "Agent whose approval mode and budget apply.",
            **{option.name: option.metadata["help"] for option in OPTIONS},
            "max_cost_usd": "Maximum cost per run. Empty: the installation's default.",
        }


class RunNowForm(RunForm):
    goal = forms.CharField(
        required=False,
        max_length=GOAL_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The goal in your own words. The run works towards it in steps, with skills.",
    )
    document = forms.ModelChoiceField(Document.objects.none(), required=False, help_text="One document to read.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mode: Any = self.fields["analysis_mode"]
        mode.choices = [("", "Default"), *AnalysisMode.choices]
        mode.required = False
        self.initial["analysis_mode"] = (kwargs.get("initial") or {}).get("analysis_mode", "")

    def start(self, by: User, restarted_from: AgentSession | None = None) -> AgentSession:
        spec, rows = self._asked()
        return run_now(spec, owner=by, by=by, now=clock(), restarted_from=restarted_from, **rows)

    def estimate(self, by: User) -> ReadingPlan:
        spec, rows = self._asked()
        return run_estimate(spec, owner=by, by=by, **rows)

    def _asked(self) -> tuple[RunSpec, dict[str, Any]]:
        given = dict(self.cleaned_data)
        rows = {name: given.pop(name) for name in ("project", "agent")}
        return RunSpec.of(**given), rows


def form_of(session: AgentSession) -> dict[str, Any]:
    """The form of a new run, filled in like an earlier one. What is gone since is left empty."""
    spec = session.spec
    rows: dict[str, QuerySet[Any]] = {
        "playbook": Playbook.objects.filter(deleted_at__isnull=True),
        "document": Document.objects.filter(deleted_at__isnull=True),
        "collection": Collection.objects.filter(deleted_at__isnull=True),
    }
    named = {
        name: found.filter(owner=session.owner_id, public_id=public_id).values_list("pk", flat=True).first()
        for name, found in rows.items()
        if (public_id := as_uuid(getattr(spec, name)))
    }
    skill = PromptSkill.objects.filter(name=spec.skill).values_list("pk", flat=True).first() if spec.skill else None
    values = {name: getattr(spec, name) for name in ("goal", "query", *RUN_OPTIONS)}
    bound = {"project": session.project_id, "agent": session.agent_id, "max_cost_usd": session.cap_usd}
    return {**values, **bound, **named, "skill": skill}


# --- The list of runs ---


def _findings(**conditions: str) -> QuerySet[Finding]:
    return Finding.objects.work().filter(session=OuterRef("pk"), **conditions)


FINDINGS_OF_RUN: Final = Coalesce(
    Subquery(
        Finding.objects.work()
        .filter(session=OuterRef("pk"))
        .order_by()
        .values("session")
        .annotate(number=Count("pk"))
        .values("number")
    ),
    0,
)


def _result(row: AgentSession) -> tuple[str, str]:
    """The result of a run that is over; of an active one its status and how far it is."""
    if row.status in TERMINAL or row.status == Status.QUEUED:
        return run_color(row), run_text(row)
    place = progress_text(row).partition(",")[0] or words(row.current_phase)
    return run_color(row), f"{status_text(row)}: {place}" if place else status_text(row)


def _findings_link(row: Any) -> str:
    if not row.finding_count:
        return "—"
    link = reverse("admin:agents_finding_changelist") + f"?q={row.chain}&state=all"
    return format_html('<a class="lq-link" href="{}">{}</a>', link, row.finding_count)


def _cost(row: AgentSession) -> str:
    """The cost of a run; the exact amount and the cap are the tooltip."""
    cost = cost_context(row)
    level = cost["bar"].level if cost["bar"] else "fine"
    look = {"warn": "lq-warn", "full": "lq-bad"}.get(level, "")
    title = f"{exact_usd(cost['spent'])}. Cap: {usd(cost['cap'])}"
    return format_html('<span class="{}" title="{}">{}</span>', look, title, even_usd(cost["spent"]))


def _duration(row: AgentSession) -> str:
    return short_span((row.completed_at or clock()) - row.started_at) if row.started_at else "—"


class FindingsFilter(OptionFilter):
    title = "findings"
    parameter_name = "findings"
    is_indexed = False
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        "open": ("Open findings", Q(Exists(_findings(state=FindingState.OPEN)))),
        "critical": ("Critical findings", Q(Exists(_findings(severity="critical")))),
        "any": ("Any findings", Q(Exists(_findings()))),
        "none": ("No findings", ~Q(Exists(_findings()))),
    }


class CostFilter(OptionFilter):
    title = "spent"
    parameter_name = "cost"
    is_indexed = False
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        **{
            least: (f"${least} or more", Q(cost_total_usd__gte=Decimal(least)) | Q(cost_actual_usd__gte=Decimal(least)))
            for least in ("0.01", "0.10", "1", "10")
        },
    }


class DurationFilter(OptionFilter):
    """Of runs that are over."""

    title = "duration"
    parameter_name = "duration"
    is_indexed = False
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        **{
            str(minutes): (f"{label} or more", Q(completed_at__gte=F("started_at") + timedelta(minutes=minutes)))
            for minutes, label in ((1, "1 minute"), (10, "10 minutes"), (60, "1 hour"), (1440, "1 day"))
        },
    }


@admin.register(AgentSession)
class AgentSessionAdmin(FormAdmin):
    purpose = column("purpose", visible)
    result_ = column(_result, title="result", label=RUN_LABELS, sort="run_result")
    found = column(_findings_link, title="findings", sort=FINDINGS_OF_RUN)
    cost = column(_cost, title="spent", sort=Greatest("cost_total_usd", "cost_actual_usd"))
    duration = column(_duration, title="duration", sort=F("completed_at") - F("started_at"))
    trigger_ = column(lambda row: with_tooltip(asked_by(row)), title="trigger", sort="trigger__name")
    agent_ = column(lambda row: with_tooltip(row.agent or "—"), title="agent", sort="agent__name")
    owner_ = column("owner", sort="owner__username")
    started = column(lambda row: row.started_at or row.created_at, title="started", sort="created_at")
    list_display = [
        "purpose", "result_", "found", "cost", "duration", "trigger_", "agent_", "owner_", "started",
    ]  # fmt: skip
    list_filter = [
        *((name, WordedFilter) for name in ("status", "run_result")),
        PeriodFilter,
        ("owner", NamedFilter),
        ("agent", NamedFilter),
        ("trigger", NamedFilter),
        FindingsFilter,
        CostFilter,
        DurationFilter,
        *((name, WordedFilter) for name in ("terminal_reason", "halt_state", "waiting_on")),
        "trigger_kind",
        "mode",
    ]
    list_select_related = ["owner", "agent", "trigger"]
    search_fields = ["public_id__exact"]
    search_help_text = "Words of its purpose, the name of its agent, trigger or owner, or the beginning of its id."
    sortable_by = None
    is_live = True
    has_views = True
    list_before_template = "admin/parts/live_bar.html"
    empty_text = "No runs yet. Add a document to a watched collection, or start a run."
    form = RunNowForm
    can_change = False
    row_views = ("compare",)
    add_form_template = "admin/run_now.html"
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
            {"fields": ("project", "agent", "max_cost_usd", *RUN_OPTIONS)},
        ),
    )
    row_actions = (
        RowAction(
            "halt",
            "Halt run",
            _halt,
            ReasonForm,
            danger=True,
            available=lambda row: row.status not in TERMINAL,
            description="Ends the run for good: no further call starts. A call in flight is cut within a "
            "second; what it had done by then stays done. To go on later, pause the run instead.",
            label=run_label,
        ),
        RowAction(
            "pause",
            "Pause run",
            _pause,
            PauseForm,
            CHANGE,
            available=lambda row: row.status not in TERMINAL and row.paused_at is None,
            description="The call in flight ends normally, and no other begins. The run keeps everything and goes on "
            "where it was when it is resumed.",
            label=run_label,
        ),
        RowAction(
            "resume",
            "Resume run",
            _resume,
            permission=CHANGE,
            available=lambda row: row.status not in TERMINAL and row.paused_at is not None,
            description="Puts the run back into the queue. It goes on where it was.",
            label=run_label,
        ),
        RowAction(
            "try_now",
            "Try now",
            _try_now,
            permission=CHANGE,
            available=lambda row: row.waiting_on == WaitingOn.MODEL,
            description="Asks the model again at once. If it answers, all runs that wait for it go on.",
        ),
        RowAction(
            "restart",
            "Run again",
            _restart,
            RestartForm,
            "agents.add_agentsession",
            available=lambda row: row.status in TERMINAL and row.mode not in {Mode.CHAT, Mode.INDEX},
            description="Starts a new run with the same inputs and a link to this one.",
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        with_purposes(rows)
        found = Finding.objects.work().filter(session__in=rows).order_by().values("session")
        counts = dict(found.values_list("session").annotate(number=Count("pk")))
        for row in rows:
            row.finding_count = counts.get(row.pk, 0)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AgentSession]:
        rows: QuerySet[AgentSession] = super().get_queryset(request)
        return rows.defer("result")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By the beginning of the id, which an index serves, and by words in the newest runs."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = newest(AgentSession) & (titled(term) | Q(owner__username__iexact=term))
        if ids := id_range(term):
            begin_so = AgentSession.objects.filter(public_id__range=ids).order_by("-pk").values_list("pk", flat=True)
            found |= Q(pk__in=list(begin_so[:MOST_BY_ID]))  # looked up first: no index serves both
        return queryset.filter(found), False

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["halt_link"] if current_user(request).has_perm(CHANGE) else [])]

    @display(description="")
    def halt_link(self, session: AgentSession) -> str:
        if session.status in TERMINAL:
            return ""
        return format_html('<a class="lq-button small danger" href="{}">Halt</a>', self.action_link(session, "halt"))

    def extra_context(self, request: HttpRequest, row: AgentSession) -> dict[str, Any]:
        by = current_user(request)
        [session] = with_purposes([row])
        may = {"may_resolve": by.has_perm(PERMISSION), "may_decide": is_approver(by, clock())}
        newer, older = neighbours(session)
        may["may_change"] = row.owner_id == by.pk and row.mode == Mode.PHASED and by.has_perm("agents.add_agentsession")
        to_scale = request.GET.get("scale") == "time"
        return {
            **session_context(session, by, to_scale=to_scale),
            "title": session.purpose,
            "newer": newer,
            "older": older,
            **may,
        }

    def form_options(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        like = self._like(request)
        return {"owner": current_user(request), **({"initial": form_of(like)} if like else {})}

    def compare_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show a run beside another one of the same trigger or agent."""
        [row] = with_purposes([self.get_row(request, pk)])
        alike = runs_alike(row)
        chosen = request.GET.get("with", "")
        older = next((one for one in alike if one.pk < row.pk), alike[0] if alike else None)
        other = next((one for one in alike if str(one.pk) == chosen), older)
        context = compared(row, other) if other else {}
        shown = [other] if other else []
        return self.render_page(
            request,
            "admin/session/compare.html",
            f"Compare {row.purpose}",
            original=row,
            session=row,
            other=other,
            alike=alike,
            shown_rows=shown,
            **context,
        )

    def _like(self, request: HttpRequest) -> AgentSession | None:
        """The run of this user that the form is filled in like."""
        pk = request.GET.get("like", "")
        rows = AgentSession.objects.filter(owner=current_user(request), mode=Mode.PHASED)
        return rows.filter(pk=int(pk)).first() if DATABASE_ID.fullmatch(pk) else None

    def create(self, request: HttpRequest, form: Any) -> HttpResponse:
        if "estimate" in request.POST:
            plan, cap = form.estimate(current_user(request)), form.cleaned_data["max_cost_usd"]
            return self.show_form(request, None, form, plan=plan, too_low=cap is not None and cap < plan.cap_usd)
        like = self._like(request)
        session = form.start(current_user(request), like if like and like.status in TERMINAL else None)
        self.message_user(request, "Run started. This page updates automatically.")
        return HttpResponseRedirect(self.row_link(session.pk))
