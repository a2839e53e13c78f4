"""Questions of agents to people: the queue, the page of one, and its answer. The run waits for the answer."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache
from unfold.decorators import display

from agents.admin.approvals import QueueFilter, pending_first
from agents.admin.base import DetailAdmin, current_user
from agents.admin.display import QUESTION_LABELS, ago, column, cut, visible
from agents.admin.forms import REFUSALS, StyledForm, error_text
from agents.conf import clock
from agents.enums import QuestionStatus
from agents.models import Question
from agents.sessions.questions import MAX_CHARS, may_answer, question_answer
from agents.sessions.reads import purposes


class AnswerForm(StyledForm):
    answer = forms.CharField(
        max_length=MAX_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The run continues with this answer. It cannot be changed later.",
    )


class QuestionFilter(QueueFilter):
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("all", "All"), *((status, str(status).capitalize()) for status in QuestionStatus.values[1:])]


@admin.register(Question)
class QuestionAdmin(DetailAdmin):
    list_shows_content = True
    status_ = column("status", label=QUESTION_LABELS)
    list_display = ["text_", "about", "asked_by", "asked_at_", "expires", "status_"]
    list_filter = [QuestionFilter]
    list_before_template = "admin/question_queue.html"
    list_select_related = ["session__agent", "session__owner", "session__trigger"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "The full id of a run."
    empty_text = "No open questions. A run that needs an answer appears here, and its owner is notified."
    change_form_template = "admin/question.html"

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Pending first, oldest first; then closed ones, newest first."""
        return pending_first("asked_at")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.answer_view))
        return [path("<int:pk>/answer/", view, name="agents_question_answer"), *super().get_urls()]

    def prepare_rows(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows])
        for row in rows:
            row.purpose = known[row.session_id]

    @display(description="question")
    def text_(self, question: Question) -> str:
        return visible(cut(question.text, 160))

    @display(description="run")
    def about(self, question: Any) -> str:
        return format_html(
            '<a class="lq-link lq-wrap" href="{}" title="{}">{}</a>',
            reverse("admin:agents_agentsession_change", args=[question.session_id]),
            question.session.chain,
            visible(cut(question.purpose, 80)),
        )

    @display(description="agent and owner")
    def asked_by(self, question: Question) -> str:
        session = question.session
        return f"{session.agent} for {session.owner}" if session.agent else str(session.owner)

    @display(description="asked")
    def asked_at_(self, question: Question) -> str:
        return ago(question.asked_at, clock())

    @display(description="expires")
    def expires(self, question: Question) -> str:
        return ago(question.expires_at, clock()) if question.status == QuestionStatus.PENDING else "—"

    def extra_context(self, request: HttpRequest, row: Question) -> dict[str, Any]:
        row.refresh_from_db()
        is_open = row.status == QuestionStatus.PENDING
        return {
            "title": cut(row.text, 120),
            "question": row,
            "purpose": purposes([row.session])[row.session_id],
            "form": AnswerForm(),
            "may_answer": is_open and may_answer(row.session, current_user(request)),
        }

    def answer_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the answer, from the question's own page, the page of its run, or its chat."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        by = current_user(request)
        question = self.get_row(request, pk)
        if not may_answer(question.session, by):
            raise PermissionDenied
        form = AnswerForm(request.POST)
        if not form.is_valid():
            return self.detail_page(request, question, form=form, status=422)
        try:
            question_answer(question, answer=form.cleaned_data["answer"], by=by, now=clock())
        except REFUSALS as error:
            form.add_error(None, error_text(error))
            return self.detail_page(request, question, form=form, status=getattr(error, "http_status", 422))
        self.message_user(request, "Answer sent. The run continues.")
        return HttpResponseRedirect(self._back(request, question))

    def _back(self, request: HttpRequest, question: Question) -> str:
        """The page that the form was on. The form gives a name, never an address."""
        match request.POST.get("from"):
            case "session":
                return reverse("admin:agents_agentsession_change", args=[question.session_id])
            case "chat" if chat := question.session.params.get("chat"):
                return reverse("admin:chat", args=[chat])
        return self.row_link(question.pk)
