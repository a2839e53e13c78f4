"""The queue of calls that need a person. What is asked is shown as the server stored it, first and in full.

Every form carries the digest of the call that it shows; the service refuses a decision on any other.
"""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, Act, ActingAdmin, Asked, Told, each, reason
from agents.admin.approval_forms import DECISIONS, BulkForm, decision_forms
from agents.admin.approval_reasons import decided_words, reasons_of
from agents.admin.base import column, person
from agents.admin.display import ago, cut, difference, pretty, usd, visible
from agents.admin.looks import APPROVAL_LABELS, LEVEL_LABELS, RISK_LABELS
from agents.conf import clock
from agents.enums import ApprovalStatus
from agents.models import Approval
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.reads import asked_by, purposes
from agents.sessions.standing import PERMISSION

LISTED_CHARS = 3_000


class QueueFilter(admin.SimpleListFilter):
    """What waits, unless something else is asked for: an index serves that, however long the list has grown."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        decided = ((status, decided_words(status).capitalize()) for status in ApprovalStatus.values[1:])
        return [("all", "All"), *decided]

    def choices(self, changelist: Any) -> Any:
        for choice in super().choices(changelist):
            yield (
                {**choice, "display": "Waiting"}
                if choice["query_string"] == changelist.get_query_string(remove=[self.parameter_name])
                else choice
            )

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if self.value() == "all":
            return queryset
        return queryset.filter(status=self.value() or ApprovalStatus.PENDING)


def _one_session(rows: Any) -> str:
    if len({row.session_id for row in rows}) > 1:
        return "Calls of several sessions cannot be decided on together: choose those of one session."
    return ""


def _approve(asked: Asked) -> Told:
    def approve(row: Approval) -> Approval:
        digest = asked.given[f"digest_{row.pk}"]
        return approval_approve(row.pk, by=asked.by, digest=digest, now=asked.now, note=asked.given["note"])

    return each(asked, approve, "approved")


def _deny(asked: Asked) -> Told:
    def reject(row: Approval) -> Approval:
        digest = asked.given[f"digest_{row.pk}"]
        return approval_reject(row.pk, by=asked.by, digest=digest, now=asked.now, note=asked.given["note"])

    return each(asked, reject, "denied")


def _is_pending(row: Approval) -> bool:
    return row.status == ApprovalStatus.PENDING


@admin.register(Approval)
class ApprovalAdmin(ActingAdmin):
    list_display = ["call", "about", "canonical", "level_", "risk", "asked_by", "left", "expires", "standing_"]
    list_filter = [QueueFilter, "level", "risk_level"]
    list_select_related = ["session__agent", "session__owner", "session__trigger"]
    list_before_template = "admin/approval_queue.html"
    search_fields = ["session__public_id__exact"]
    search_help_text = "The public id of a session, in full."
    empty = "Nothing waits for a decision. A run that needs one appears here by itself, and its approvers get a notice."
    sortable_by = ()
    acts = (
        Act("approve", "Approve", PERMISSION, _approve, BulkForm, fits=_is_pending, against=_one_session,
            template="admin/approval_act.html", reveals=True,
            explained="Each call is allowed once, exactly as it stands here, and judged by every brake again."),
        Act("deny", "Deny", PERMISSION, _deny, BulkForm, fits=_is_pending, against=_one_session, grave=True,
            template="admin/approval_act.html", reveals=True,
            explained="The run goes on without the call and is told so; the same call is refused from then on."),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        """Pending first, the oldest of them first; then what was decided, newest first."""
        pending = When(status=ApprovalStatus.PENDING, then=F("created_at"))
        rows: QuerySet[Approval] = super().get_queryset(request)
        return rows.annotate(waits=Case(pending))

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        turn = Case(When(status=ApprovalStatus.PENDING, then=F("id")), default=-F("id"))
        return [F("waits").asc(nulls_last=True), turn.asc()]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.decide_view))
        return [path("<int:pk>/decide/", view, name="agents_approval_decide"), *super().get_urls()]

    def prepare(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows])
        for row in rows:
            row.purpose = known[row.session_id]

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """The first column leads to the call: for those who may decide it says so."""
        first = "call_to_decide" if person(request).has_perm(PERMISSION) else "call"
        return [first, *self.list_display[1:]]

    @column("call")
    def call(self, approval: Approval) -> str:
        return approval.action

    @column("call")
    def call_to_decide(self, approval: Approval) -> str:
        if not _is_pending(approval):
            return self.call(approval)
        return format_html('{}<br><span class="lq-button small main">Decide</span>', approval.action)

    @column("about")
    def about(self, approval: Any) -> str:
        """What the run is about and what started it: two calls of the same name are told apart by it."""
        return format_html(
            '<span><a class="lq-link lq-wrap" href="{}" title="{}">{}</a><br><span class="lq-faint">{}</span></span>',
            reverse("admin:agents_agentsession_change", args=[approval.session_id]),
            approval.session.chain,
            visible(cut(approval.purpose, 80)),
            visible(asked_by(approval.session)),
        )

    @column("arguments")
    def canonical(self, approval: Approval) -> str:
        return format_html('<pre class="lq-pre short">{}</pre>', listed(approval))

    @column("level", labels=LEVEL_LABELS)
    def level_(self, approval: Approval) -> str:
        return approval.level

    @column("risk", labels=RISK_LABELS)
    def risk(self, approval: Approval) -> str:
        return approval.risk_level

    @column("asked by")
    def asked_by(self, approval: Approval) -> str:
        session = approval.session
        return f"{session.agent} for {session.owner}" if session.agent else str(session.owner)

    @column("left of the cap")
    def left(self, approval: Approval) -> str:
        return left_of(approval)

    @column("expires")
    def expires(self, approval: Approval) -> str:
        return ago(approval.expires_at, clock()) if _is_pending(approval) else "—"

    @column("status", labels=APPROVAL_LABELS)
    def standing_(self, approval: Approval) -> tuple[str, str]:
        return approval.status, decided_words(approval.status)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        return self._show(request, self.found(request, object_id))

    def decide_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One decision on one call. A change of arguments is shown as a difference first, and decided on after that."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        by = person(request)
        if not by.has_perm(PERMISSION):
            raise PermissionDenied
        approval = self.found(request, str(pk))
        decision = DECISIONS.get(request.POST.get("decision", ""))
        if decision is None:
            return self._show(request, approval, fault="Choose a decision.", status=422)
        form = decision.form(request.POST, approval=approval)
        if not form.is_valid():
            return self._show(request, approval, bound={decision.name: form}, status=422)
        if decision.name == "edit" and "seen" not in request.POST:
            return self._show_difference(request, approval, form)
        try:
            told = decision.run(approval, by, form.cleaned_data, clock())
        except REFUSALS as error:
            return self._show(request, approval, fault=reason(error), status=getattr(error, "http_status", 422))
        self.message_user(request, told)
        return HttpResponseRedirect(self.row_link(approval.pk))

    def _show(
        self,
        request: HttpRequest,
        approval: Approval,
        *,
        fault: str = "",
        bound: dict[str, forms.Form] | None = None,
        status: int = 200,
    ) -> HttpResponse:
        approval.refresh_from_db()
        deciding = _is_pending(approval) and person(request).has_perm(PERMISSION)
        changed = difference(approval.original_arguments, approval.arguments) if approval.original_arguments else []
        reasons = reasons_of(approval)
        return self.page(
            request,
            "admin/approval.html",
            f"{approval.action}: {reasons['purpose']}",
            status=status,
            original=approval,
            approval=approval,
            left=left_of(approval),
            **reasons,
            changed=changed,
            fault=fault,
            forms={**decision_forms(approval), **(bound or {})} if deciding else {},
        )

    def _show_difference(self, request: HttpRequest, approval: Approval, form: Any) -> HttpResponse:
        return self.page(
            request,
            "admin/approval_edit.html",
            "Approve with these changes",
            original=approval,
            approval=approval,
            lines=difference(approval.arguments, form.cleaned_data["arguments"]),
            form=form,
            back=self.row_link(approval.pk),
        )


def listed(approval: Approval) -> str:
    """The arguments in full; only what would fill the screen is cut, and then says so."""
    text = pretty(approval.arguments)
    if len(text) <= LISTED_CHARS:
        return text
    return f"{text[:LISTED_CHARS]}\n… {len(text) - LISTED_CHARS} more characters: open the call to see all of it."


def left_of(approval: Approval) -> str:
    """What is left of the session's cap, open calls counted as spent."""
    session = approval.session
    if session.max_cost_usd is None:
        return "no cap"
    left = session.max_cost_usd - session.cost_total_usd - session.cost_reserved_usd
    return usd(max(left, Decimal(0)))
