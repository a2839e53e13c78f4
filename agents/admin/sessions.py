"""Sessions: the list, the page of one, halting, running again, and starting one by hand."""

from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.actions import Act, ActForm, ActingAdmin, ArgumentsField, Asked, ReasonForm, Told, each, usd_field
from agents.admin.base import column, look_token, person
from agents.admin.display import (
    OUTCOME_LABELS,
    STATUS_LABELS,
    STATUS_LOOKS,
    WordedFilter,
    cut,
    moment,
    session_bar,
    short_id,
    usd,
    visible,
    words,
)
from agents.admin.pages import EditForm, EditingAdmin, FactsAdmin, OwnedChoices, Section
from agents.admin.questions import AnswerForm
from agents.conf import clock
from agents.enums import (
    AnalysisMode,
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
from agents.policy.run_spec import GOAL_CHARS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.questions import may_answer
from agents.sessions.reads import purposes, read_by, timeline, titled
from agents.sessions.standing import PERMISSION
from agents.sessions.transcripts import questions_open, transcript_shown
from agents.triggers.firing import run_now, session_restart
from audit.receipt_text import outcome_sentence
from audit.receipts import ENDINGS

# --- Calls and halts as the journal has them; and what became of a call whose outcome a crash left unknown ---


class HappenedForm(ActForm):
    result = ArgumentsField(
        label="What it gave back",
        required=False,
        help_text="One JSON object for the run to go on with, if you know it. May be left empty.",
    )


def _happened(asked: Asked) -> Told:
    result = asked.given["result"]
    for call in asked.rows:
        tool_call_resolve(call.pk, Decision.HAPPENED, by=asked.by, now=asked.now, result=result)
    return Told("Noted: it happened. It is not made again.")


def _did_not_happen(asked: Asked) -> Told:
    for call in asked.rows:
        tool_call_resolve(call.pk, Decision.DID_NOT_HAPPEN, by=asked.by, now=asked.now)
    return Told("Noted: it did not happen. The run makes the call again.")


def _is_open(call: ToolCall) -> bool:
    return call.outcome == Outcome.UNKNOWN and call.resolved_at is None


@admin.register(ToolCall)
class ToolCallAdmin(ActingAdmin):
    list_display = ["what", "of_session", "phase", "ended", "charged", "actual", "model", "began"]
    list_filter = [("outcome", WordedFilter), ("intent", WordedFilter), ("phase", WordedFilter)]
    empty = "No run has made a call yet."
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "The public id of a session, in full."
    ordering = ["-id"]
    sortable_by = ()
    acts = (
        Act("happened", "It happened", PERMISSION, _happened, HappenedForm, many=False, fits=_is_open,
            explained="The call took effect. The run goes on with what you say it gave back, and does not repeat it."),
        Act("did_not_happen", "It did not happen", PERMISSION, _did_not_happen, many=False, fits=_is_open, grave=True,
            explained="The call had no effect. The run will make it again: if you are wrong, it happens twice."),
    )  # fmt: skip

    @column("call")
    def what(self, call: ToolCall) -> str:
        return f"{call.intent} · {call.name}" if call.name and call.name != call.intent else call.intent

    @column("outcome", labels=OUTCOME_LABELS)
    def ended(self, call: ToolCall) -> tuple[str, str]:
        return call.outcome, words(call.outcome)

    @column("charged")
    def charged(self, call: ToolCall) -> str:
        return usd(call.charged_usd)

    @column("booked")
    def actual(self, call: ToolCall) -> str:
        return usd(call.actual_usd)

    @column("started")
    def began(self, call: ToolCall) -> str:
        return moment(call.started_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        call = self.found(request, object_id)
        return self.page(
            request,
            "admin/call.html",
            self.what(call),
            original=call,
            call=call,
            open=_is_open(call),
            buttons=self.buttons(request, call),
        )


@admin.register(Halt)
class HaltAdmin(FactsAdmin):
    list_display = ["what", "of_session", "why", "requested_by", "asked", "released"]
    list_filter = [("scope", WordedFilter)]
    empty = "Nothing was ever halted. Halts of sessions, and of everything, are kept here with their reasons."
    list_select_related = ["session", "requested_by"]

    @column("what")
    def what(self, halt: Halt) -> str:
        return words(halt.scope)

    @column("reason")
    def why(self, halt: Halt) -> str:
        return cut(halt.reason, 120)

    @column("requested at")
    def asked(self, halt: Halt) -> str:
        return moment(halt.requested_at)

    @column("released at")
    def released(self, halt: Halt) -> str:
        return moment(halt.released_at)


# The page of one session: how it stands, what happened, what it found, what it cost, and what went into it.


SHOWN_FINDINGS: Final = 100
SHOWN_CALLS: Final = 200
SHOWN_REFUSED: Final = 3
REFRESH_SECONDS: Final = 4


def session_context(session: AgentSession, by: User) -> dict[str, Any]:
    """Everything that the page shows, by a fixed number of statements."""
    findings = session.findings.select_related("document").defer("document__text").order_by("created_at", "id")
    calls = ToolCall.objects.filter(session=session).order_by("pk")
    approvals = Approval.objects.filter(session=session, status=ApprovalStatus.PENDING)
    over = session.status in TERMINAL
    return {
        "session": session,
        "look": STATUS_LOOKS.get(session.status, ""),
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
        "ending": ending(session) if over else "",
        "nothing": nothing_words(session),
        "has_receipt": session.started_at is not None or over,
        "every": None if over else REFRESH_SECONDS,
        "token": look_token(by, session),
    }


def chips(session: AgentSession) -> list[tuple[str, str]]:
    """How it stands, each thing once: the status, then why it ended, what it waits for, or that it is to stop."""
    standing = (STATUS_LOOKS.get(session.status, ""), str(session.status))
    if session.status in TERMINAL:
        reason = words(session.terminal_reason)
        return [standing] if reason == session.status else [standing, ("", reason)]
    if session.waiting_on:
        standing = ("warn", f"waits for {session.waiting_on}")
    halts = session.halt_state != HaltState.RUNNING
    return [standing, ("bad", words(session.halt_state))] if halts else [standing]


def ending(session: AgentSession) -> str:
    """Why it ended, and what it wanted to do and was not allowed to."""
    refused = session.approvals.filter(status__in=(ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED))
    said = ENDINGS.get(session.terminal_reason or "", "")
    if session.result and session.terminal_reason != TerminalReason.COMPLETED:
        said = outcome_sentence(session.result)
    for approval in refused.select_related("resolved_by").order_by("pk")[:SHOWN_REFUSED]:
        what = "Its notice" if approval.intent == ToolIntent.NOTIFY else f"Its call {approval.action}"
        if approval.status == ApprovalStatus.EXPIRED:
            said += f" {what} was not sent: nobody decided on it in time."
        else:
            said += f" {what} was denied by {approval.resolved_by or 'a person'}."
    return said.strip()


def nothing_words(session: AgentSession) -> str:
    """What is said where there are no findings."""
    if session.status not in TERMINAL:
        return "None so far."
    if session.status == Status.COMPLETED:
        return "This run found nothing."
    if session.current_phase in {Phase.INTAKE, Phase.ANALYSIS}:
        return "This run was stopped before it looked at anything."
    return "This run was stopped; it had found nothing until then."


def _inputs(session: AgentSession) -> dict[str, Any]:
    """What the run read, by the ids that it noted; a row that is gone is shown by its id."""
    noted = session.metadata.get("inputs") or {}
    given = session.params
    playbook_id = noted.get("playbook_id") or given.get("playbook")
    rows = {
        "playbook": _first(Playbook, public_id=playbook_id),
        "skill": _first(PromptSkill, name=given.get("skill")),
        "read": read_by(session),
    }
    return {**noted, **rows, "context_version": session.context_version, "playbook_ref": playbook_id, "given": given}


def _first(source: Any, **which: Any) -> Any:
    if not all(which.values()):
        return None
    rows = source if hasattr(source, "filter") else source._meta.default_manager
    try:
        return rows.filter(**which).first()
    except ValidationError:  # what was given is no id
        return None


CHANGE = "agents.change_agentsession"


def halted(counted: HaltCount) -> Told:
    text = f"{counted.requested} asked to halt, {counted.already_halted} halted before, {counted.terminal} over."
    failed = f"{counted.failed} could not be halted: the database refused. Halt them again."
    return Told(text, (failed,) if counted.failed else ())


def _halt(asked: Asked) -> Told:
    pks = [session.pk for session in asked.rows]
    return halted(sessions_halt(pks, by=asked.by, reason=asked.given["reason"], now=asked.now))


def session_links(sessions: Sequence[AgentSession]) -> SafeString:
    """The way to sessions that were just started."""
    pages = [(reverse("admin:agents_agentsession_change", args=[row.pk]), short_id(row)) for row in sessions]
    return format_html_join(", ", '<a class="lq-link" href="{}">Open session {}</a>', pages)


def _restart(asked: Asked) -> Told:
    started: list[AgentSession] = []
    done = each(
        asked,
        lambda row: started.append(
            session_restart(session=row, by=asked.by, now=asked.now, max_cost_usd=asked.given["cap"])
        ),
        "started again",
    )
    return Told(format_html("{} {}", done.text, session_links(started)), done.refused)


class AgainForm(ActForm):
    cap = usd_field(
        label="Cap (USD)",
        required=False,
        help_text="Empty: the cap of its trigger, or else its own. The cap that stopped a run would stop it again.",
    )


class RunNowForm(OwnedChoices, EditForm):
    """What to read and what to go by. The choices are the person's own."""

    playbook = forms.ModelChoiceField(Playbook.objects.none(), required=False, help_text="What to check against.")
    skill = forms.ModelChoiceField(
        PromptSkill.objects.none(), required=False, help_text="Or: what to do with the documents."
    )
    goal = forms.CharField(
        required=False,
        max_length=GOAL_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What is to be reached, in your words. It is worked towards in steps, with skills.",
    )
    collection = forms.ModelChoiceField(Collection.objects.none(), required=False, help_text="or a whole collection,")
    document = forms.ModelChoiceField(Document.objects.none(), required=False, help_text="One document,")
    query = forms.CharField(required=False, max_length=500, help_text="or only the passages that fit these words.")
    max_cost_usd = usd_field(label="Cap (USD)", required=False, help_text="Empty: the installation's default.")
    emit_artifacts = forms.BooleanField(
        label="May save drafts", required=False, help_text="Drafts become documents of the collection."
    )

    review_flagged = forms.BooleanField(
        label="Ask before it tells of concerns",
        required=False,
        help_text="A run with privilege or scope concerns waits for a person before its notice goes out.",
    )
    analysis_mode = forms.ChoiceField(
        label="Analysis",
        required=False,
        choices=[("", "Single question; steps for a goal"), (AnalysisMode.AGENTIC, "Agentic")],
        help_text="Agentic: steps, in which the model may call skills. A goal is always worked towards in steps.",
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


@admin.register(AgentSession)
class AgentSessionAdmin(EditingAdmin):
    list_display = ["what_for", "standing", "phase", "spent", "whose", "began", "receipt"]
    list_filter = [
        *((name, WordedFilter) for name in ("status", "terminal_reason", "halt_state", "waiting_on")),
        "trigger_kind", "mode", "agent",
    ]  # fmt: skip
    list_select_related = ["owner", "agent", "trigger"]
    search_fields = ["public_id__exact", "owner__username__exact"]
    search_help_text = "Words of what it is for, the name of its agent, trigger or owner, or its public id in full."
    ordering = ["-id"]
    sortable_by = ()
    empty = "No session has run yet. Add a document to a watched collection, or start one by hand."
    form_class = RunNowForm
    save_word = "Run now"
    sections = (
        Section("What to go by", ("playbook", "skill", "goal"), "One playbook or skill; or a goal, alone or with one."),
        Section(
            "What to read",
            ("document", "collection", "query"),
            "A goal can do without; any other run then says that it was given nothing.",
        ),
        Section(
            "In which frame", ("project", "agent", "max_cost_usd", "emit_artifacts", "review_flagged", "analysis_mode")
        ),
    )
    acts = (
        Act(
            "halt", "Halt", CHANGE, _halt, ReasonForm, grave=True, fits=lambda row: row.status not in TERMINAL,
            explained="The halt takes effect at once: no further call starts. A call that is out ends by itself.",
        ),
        Act(
            "restart", "Run again", "agents.add_agentsession", _restart, AgainForm, many=False,
            fits=lambda row: row.status in TERMINAL and row.mode != Mode.CHAT,
            explained="A new session does the same work and names this one.",
        ),
    )  # fmt: skip

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def prepare(self, rows: list[Any]) -> None:
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
        return [*self.list_display, *(["lever_link"] if person(request).has_perm(CHANGE) else [])]

    @column("what for")
    def what_for(self, session: Any) -> str:
        return visible(cut(str(session.purpose), 80))

    @column("status", labels=STATUS_LABELS)
    def standing(self, session: AgentSession) -> tuple[str, str]:
        return session.status, standing_words(session)

    @column("phase")
    def phase(self, session: AgentSession) -> str:
        return words(session.current_phase)

    @column("spent / cap")
    def spent(self, session: AgentSession) -> SafeString:
        return spent_bar(session)

    @column("for")
    def whose(self, session: AgentSession) -> str:
        by = f"by {session.agent}" if session.agent else ""
        return format_html('<span>{}<br><span class="lq-faint">{}</span></span>', str(session.owner), visible(by))

    @column("started")
    def began(self, session: AgentSession) -> str:
        return f"{session.started_at or session.created_at:%d %b %H:%M}"

    @column("receipt")
    def receipt(self, session: AgentSession) -> str:
        if session.started_at is None and session.completed_at is None:
            return "not started"
        return format_html('<a class="lq-link" href="{}">receipt</a>', reverse("audit:receipt", args=[session.chain]))

    @column("")
    def lever_link(self, session: AgentSession) -> str:
        if session.status in TERMINAL:
            return ""
        return format_html('<a class="lq-button small grave" href="{}">Halt</a>', self.act_link(session, "halt"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        session, by = self.found(request, object_id), person(request)
        shown = session_context(session, by)
        return self.page(
            request,
            "admin/session.html",
            shown["purpose"],
            original=session,
            buttons=self.buttons(request, session),
            may_resolve=by.has_perm("agents.resolve_approval"),
            **shown,
        )

    def make_form(self, request: HttpRequest, row: Any) -> Any:
        data = request.POST if request.method == "POST" else None
        return RunNowForm(data, initial=request.GET.dict(), owner=person(request))

    def save_new(self, request: HttpRequest, form: Any) -> HttpResponse:
        by = person(request)
        session = run_now(form.spec(), owner=by, by=by, now=clock(), **form.bound())
        self.message_user(request, "The run is started. This page keeps itself fresh.")
        return HttpResponseRedirect(self.row_link(session.pk))


def standing_words(session: AgentSession) -> str:
    """Where a session stands, in the word that says most: why it ended, what it waits for, whether it is to halt."""
    if session.status in TERMINAL:
        return words(session.terminal_reason)
    if session.halt_state != HaltState.RUNNING:
        return words(session.halt_state)
    return f"waits for {session.waiting_on}" if session.waiting_on else session.status


def spent_bar(session: AgentSession) -> SafeString:
    booked = session.cost_actual_usd if session.cost_actual_usd != session.cost_total_usd else None
    shown = {
        "spent": session.cost_total_usd,
        "cap": session.max_cost_usd,
        "bar": session_bar(session),
        "booked": booked,
    }
    return render_to_string("admin/parts/spent.html", shown)
