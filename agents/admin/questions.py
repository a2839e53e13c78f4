"""The queue of what agents ask people. A question is answered by one form and one press: the run waits for it."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, ActingAdmin, DressedForm, reason
from agents.admin.approvals import QueueFilter
from agents.admin.base import column, person
from agents.admin.display import QUESTION_LABELS, ago, cut, visible
from agents.conf import clock
from agents.enums import QuestionStatus
from agents.models import Question
from agents.sessions.questions import MAX_CHARS, may_answer, question_answer
from agents.sessions.reads import purposes


class AnswerForm(DressedForm):
    answer = forms.CharField(
        max_length=MAX_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The run is told this and goes on. It can be answered once.",
    )


class AskedFilter(QueueFilter):
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("all", "All"), *((status, str(status).capitalize()) for status in QuestionStatus.values[1:])]


@admin.register(Question)
class QuestionAdmin(ActingAdmin):
    quotes = True
    list_display = ["asks", "about", "asked_by", "asked", "expires", "standing"]
    list_filter = [AskedFilter]
    list_before_template = "admin/question_queue.html"
    list_select_related = ["session__agent", "session__owner", "session__trigger"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "The public id of a session, in full."
    empty = "No agent asks anything. A run that needs an answer appears here by itself, and its owner gets a notice."
    sortable_by = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Question]:
        """Pending first, the oldest of them first; then what is closed, newest first."""
        pending = When(status=QuestionStatus.PENDING, then=F("asked_at"))
        rows: QuerySet[Question] = super().get_queryset(request)
        return rows.annotate(waits=Case(pending))

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        turn = Case(When(status=QuestionStatus.PENDING, then=F("id")), default=-F("id"))
        return [F("waits").asc(nulls_last=True), turn.asc()]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.answer_view))
        return [path("<int:pk>/answer/", view, name="agents_question_answer"), *super().get_urls()]

    def prepare(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows])
        for row in rows:
            row.purpose = known[row.session_id]

    @column("question")
    def asks(self, question: Question) -> str:
        return visible(cut(question.text, 160))

    @column("run")
    def about(self, question: Any) -> str:
        return format_html(
            '<a class="lq-link lq-wrap" href="{}" title="{}">{}</a>',
            reverse("admin:agents_agentsession_change", args=[question.session_id]),
            question.session.chain,
            visible(cut(question.purpose, 80)),
        )

    @column("asked by")
    def asked_by(self, question: Question) -> str:
        session = question.session
        return f"{session.agent} for {session.owner}" if session.agent else str(session.owner)

    @column("asked")
    def asked(self, question: Question) -> str:
        return ago(question.asked_at, clock())

    @column("expires")
    def expires(self, question: Question) -> str:
        return ago(question.expires_at, clock()) if question.status == QuestionStatus.PENDING else "—"

    @column("status", labels=QUESTION_LABELS)
    def standing(self, question: Question) -> str:
        return question.status

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        return self._show(request, self.found(request, object_id), AnswerForm())

    def answer_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One answer to one question, from its own page, the page of its run, or the chat that it came up in."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        by, question = person(request), self.found(request, str(pk))
        if not may_answer(question.session, by):
            raise PermissionDenied
        form = AnswerForm(request.POST)
        if not form.is_valid():
            return self._show(request, question, form, status=422)
        try:
            question_answer(question, answer=form.cleaned_data["answer"], by=by, now=clock())
        except REFUSALS as error:
            form.add_error(None, reason(error))
            return self._show(request, question, form, status=getattr(error, "http_status", 422))
        self.message_user(request, "Answered: the run goes on.")
        return HttpResponseRedirect(self._back(request, question))

    def _back(self, request: HttpRequest, question: Question) -> str:
        """Where the form stood. What the form says is a name, never an address."""
        match request.POST.get("from"):
            case "session":
                return reverse("admin:agents_agentsession_change", args=[question.session_id])
            case "chat" if chat := question.session.params.get("chat"):
                return reverse("admin:chat", args=[chat])
        return self.row_link(question.pk)

    def _show(self, request: HttpRequest, question: Question, form: AnswerForm, *, status: int = 200) -> HttpResponse:
        question.refresh_from_db()
        is_open = question.status == QuestionStatus.PENDING
        return self.page(
            request,
            "admin/question.html",
            cut(question.text, 120),
            status=status,
            original=question,
            question=question,
            purpose=purposes([question.session])[question.session_id],
            form=form,
            may_answer=is_open and may_answer(question.session, person(request)),
        )
