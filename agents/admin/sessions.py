"""Sessions: the list, the page of one, halting, running again, and starting one by hand."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.display import cut, session_bar, short_id, visible, words
from agents.admin.filters import WordedFilter
from agents.admin.forms import ActForm, ReasonForm, usd_field
from agents.admin.looks import STATUS_LABELS
from agents.admin.owned import OwnedChoices
from agents.admin.pages import EditForm, EditingAdmin, Section
from agents.admin.session_page import session_context
from agents.conf import clock
from agents.enums import AnalysisMode, HaltState, Mode
from agents.models import AgentSession, Collection, Document, Playbook, PromptSkill
from agents.policy.transitions import TERMINAL
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.reads import purposes, titled
from agents.triggers.firing import GOAL_CHARS, run_now, session_restart

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
        session = run_now(owner=by, by=by, now=clock(), **form.cleaned_data)
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
