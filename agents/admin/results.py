"""Results of runs: findings, notifications, precedents, proposals, memories; and the projects that they are for."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from unfold.decorators import display

from agents.admin.actions import (
    ActionForm,
    ActionRequest,
    ActionResult,
    RowAction,
    delete_action,
    each_row,
    for_each,
    is_in_use,
)
from agents.admin.base import DetailAdmin, NamedAdmin, RowList, current_user, found_by
from agents.admin.display import (
    DECISION_LABELS,
    FINDING_LABELS,
    ROW_BUTTON,
    ROW_LINK,
    SEVERITY_LABELS,
    SEVERITY_ORDER,
    DeletedFilter,
    NamedFilter,
    OptionFilter,
    PeriodFilter,
    WhoseFilter,
    WordedFilter,
    ago,
    column,
    counted,
    cut,
    moment,
    plain_sentence,
    two_lines,
    with_purposes,
    words,
)
from agents.admin.forms import OwnerForm
from agents.admin.money import caps_action
from agents.conf import clock
from agents.enums import ApprovalStatus, BudgetScope, FindingState, NoticeKind, PrecedentEnd, ProposalStatus
from agents.knowledge.findings import (
    COMMENT_CHARS,
    REASON_CHARS,
    assignable_users,
    finding_acknowledge,
    finding_assign,
    finding_comment,
    finding_dismiss,
    finding_reopen,
    finding_resolve,
    findings_export,
)
from agents.knowledge.findings import PERMISSION as FINDING_PERMISSION
from agents.knowledge.projects import (
    CONTENT_CHARS,
    LINE_CHARS,
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_merge,
    precedent_promote,
    precedent_trace,
    precedent_weight,
    precedents_open,
    project_create,
    project_delete,
    project_edit,
    proposal_accept,
    proposal_edit,
    proposal_reject,
    proposal_retire,
    proposal_text,
    proposal_trace,
)
from agents.knowledge.recall import near_duplicates, precedents_alike
from agents.models import (
    AgentSession,
    Approval,
    ContextProposal,
    Document,
    Finding,
    Memory,
    Notification,
    Precedent,
    Project,
)
from agents.people.notifications import (
    ABOUT_APPROVALS,
    ABOUT_QUESTIONS,
    approval_path,
    finding_path,
    findings_path,
    notification_mark_read,
)
from agents.policy.transitions import FINDING_MOVES
from agents.sessions.reads import SEVERITIES, asked_by
from agents.text.shown import visible

AROUND_CHARS: Final = 400  # of a document, before and after a quote
QUOTE_CHARS: Final = 4_000
SHOWN_RUNS = 50
SHOWN_PEOPLE = 50
SHOWN_COMMENTS = 200
SHOWN_VERSIONS = 20
# The names of the sidebar, as headings of the pages.
ContextProposal._meta.verbose_name = "proposal"
Notification._meta.verbose_name = "notification"
Notification._meta.verbose_name_plural = "notifications"

# --- Findings ---


class StateFilter(OptionFilter):
    """The queue, unless others are asked for. Notes of runs about themselves are no work."""

    title = "state"
    parameter_name = "state"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("Open", Q(state=FindingState.OPEN, about_run=False)),
        **{
            value: (label, Q(state=value, about_run=False))
            for value, label in FindingState.choices
            if value != FindingState.OPEN
        },
        "notes": ("Notes of runs", Q(about_run=True)),
        "all": ("All", Q()),
    }


class SeverityFilter(OptionFilter):
    title = "severity"
    parameter_name = "severity"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        **{value: (words(value).capitalize(), Q(severity=value)) for value in SEVERITIES},
        "other": ("Other", ~Q(severity__in=SEVERITIES)),
    }


class AssigneeFilter(admin.SimpleListFilter):
    title = "assignee"
    parameter_name = "assignee"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        people = assignable_users().values_list("pk", "username")[:SHOWN_PEOPLE]
        return [("me", "Me"), ("nobody", "Nobody"), *((str(pk), name) for pk, name in people)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value in {None, ""}:
            return queryset
        if value == "nobody":
            return queryset.filter(assignee__isnull=True)
        return queryset.filter(assignee_id=current_user(request).pk if value == "me" else int(str(value)))


class DismissForm(ActionForm):
    reason = forms.CharField(
        max_length=REASON_CHARS,
        widget=forms.TextInput(attrs={"list": "dismiss-reasons"}),
        help_text="Why it is no problem. Shown to the author of the playbook.",
    )
    teach = forms.BooleanField(
        required=False,
        initial=True,
        label="Teach later runs",
        help_text="Counts the reason as a precedent, which the prompts of similar runs hold. On by default.",
    )


class AssignForm(ActionForm):
    """Offers the owners of the runs, and those who may change findings."""

    assignee = forms.ModelChoiceField(User.objects.none(), required=False, empty_label="Nobody")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owners = {row.session.owner_id for row in self.rows}  # type: ignore[attr-defined]
        self.fields["assignee"].queryset = assignable_users(  # type: ignore[attr-defined]
            owners.pop() if len(owners) == 1 else None
        )


class CommentForm(ActionForm):
    text = forms.CharField(
        max_length=COMMENT_CHARS,
        label="Comment",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The owner of the run and the assignee are notified.",
    )


def _with_form(write: Any, done: str, *names: str) -> Any:
    """The `run` of an action that passes the named values of its form on."""

    def run(action: ActionRequest) -> ActionResult:
        given = {name: action.data[name] for name in names}
        return for_each(action, lambda row: write(finding=row, by=action.by, now=action.now, **given), done)

    return run


def _finding_label(row: Finding) -> str:
    return f"{words(row.severity).capitalize()}: {row.title}"


def _finding_action(name: str, title: str, run: Any, description: str, **more: Any) -> RowAction:
    given = {"label": _finding_label, "description": description, "shows_content": True, **more}
    return RowAction(name, title, run, permission=FINDING_PERMISSION, **given)


def _can_become(state: FindingState) -> Any:
    return lambda row: state in FINDING_MOVES[row.state]


def _around_quote(row: Finding) -> dict[str, Any]:
    """The quote with the text before and after it, as its document has them; nothing if it is not there."""
    start, end = row.quote_start, row.quote_end
    if row.document_id is None or start is None or end is None or not 0 <= start < end:
        return {}
    first, length = max(start - AROUND_CHARS, 0), min(end - start, QUOTE_CHARS)
    documents = Document.objects.filter(pk=row.document_id, deleted_at__isnull=True)
    text = documents.values_list(Substr("text", first + 1, start - first + length + AROUND_CHARS), flat=True).first()
    if not text or len(text) <= start - first:
        return {}
    before, rest = text[: start - first], text[start - first :]
    around = {
        "before": before,
        "starts": first == 0,
        "quote": rest[:length],
        "is_cut": end - start > length,
        "after": "" if end - start > length else rest[length:],
    }
    return {"around": around, "shown_rows": [row.document]}


_ROW_ICONS: Final = {"acknowledge": "visibility", "dismiss": "block", "resolve": "check"}


@admin.register(Finding)
class FindingAdmin(DetailAdmin):
    list_shows_content = True
    title_ = column("title", sort="title")
    severity_ = column("severity", words, label=SEVERITY_LABELS, sort=SEVERITY_ORDER)
    state_ = column("state", label=FINDING_LABELS, sort="state")
    document_ = column("document", title="document", sort="document__name")
    position_ = column("position", lambda text: text or "—", sort="position")
    agent_ = column(lambda row: row.session.agent or "—", title="agent", sort="session__agent__name")
    assignee_ = column("assignee", lambda user: user or "—", sort="assignee__username")
    found = column(lambda row: ago(row.created_at, clock()), title="found", sort="created_at")
    list_display = [
        "title_", "severity_", "state_", "document_", "position_", "agent_", "assignee_", "of_session", "found",
    ]  # fmt: skip
    list_filter = [
        StateFilter,
        SeverityFilter,
        AssigneeFilter,
        ("session__agent", NamedFilter),
        ("session__owner", NamedFilter),
        PeriodFilter,
        "quote_check",
    ]
    ordering = ("-id",)
    sortable_by = None
    empty_text = "No findings yet. Add a document to a watched collection, or start a run."
    list_select_related = ["session__agent", "session__owner", "document", "assignee"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "Words of the title, the document, the position or the agent, or the beginning of an id."
    change_form_template = "admin/finding.html"
    is_live = True
    has_views = True
    list_before_template = "admin/parts/live_bar.html"
    export_name = "admin:agents_finding_export"
    row_actions = (
        _finding_action(
            "acknowledge",
            "Acknowledge",
            each_row(finding_acknowledge, "finding", "acknowledged"),
            "Somebody has seen it and deals with it. It leaves the queue of open findings.",
            available=_can_become(FindingState.ACKNOWLEDGED),
        ),
        _finding_action(
            "resolve",
            "Resolve",
            each_row(finding_resolve, "finding", "resolved"),
            "It was right, and has been dealt with.",
            available=_can_become(FindingState.RESOLVED),
        ),
        _finding_action(
            "dismiss",
            "Dismiss",
            _with_form(finding_dismiss, "dismissed", "reason", "teach"),
            "It is no problem: a false alarm, an accepted risk, a duplicate.",
            form=DismissForm,
            template="admin/finding_dismiss.html",
            available=_can_become(FindingState.DISMISSED),
        ),
        _finding_action(
            "reopen",
            "Reopen",
            each_row(finding_reopen, "finding", "reopened"),
            "Puts it back among the open findings. What its dismissal taught is taken back.",
            available=lambda row: row.state != FindingState.OPEN,
        ),
        _finding_action(
            "assign",
            "Assign",
            _with_form(finding_assign, "assigned", "assignee"),
            "The person is notified and finds it under Assignee: Me.",
            form=AssignForm,
            initial=lambda row: {"assignee": row.assignee_id},
        ),
        _finding_action(
            "comment",
            "Comment",
            _with_form(finding_comment, "commented on", "text"),
            "Adds a comment to each of them.",
            form=CommentForm,
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Finding]:
        rows: QuerySet[Finding] = super().get_queryset(request)
        return rows.defer("document__text", "document__marks")

    def get_urls(self) -> Any:
        own = [self.url("by-id/<uuid:public_id>/", "by_id"), self.url("export/", "export")]
        return [*own, *super().get_urls()]

    def by_id_view(self, request: HttpRequest, public_id: UUID) -> HttpResponse:
        """The page of a finding by its public id: where notifications, exports and the API lead to."""
        return HttpResponseRedirect(self.row_link(get_object_or_404(Finding, public_id=public_id).pk))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        names = ("title", "position", "document__name", "session__agent__name")
        ids = ("public_id", "session__public_id")
        return queryset.filter(found_by(Finding, term, ids=ids, names=names)), False

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """The queue has buttons, if the user may press them; a list of other states says the state of each."""
        listed = [name for name in self.list_display if name != "state_" or request.GET.get("state")]
        may = current_user(request).has_perm(FINDING_PERMISSION)
        return [*listed, *(["act_buttons"] if may else [])]

    @display(description="")
    def act_buttons(self, row: Finding) -> str:
        """The acts that need no form, in one click; dismissing asks for its reason first."""
        shown = [action for action in self.row_actions if action.name in _ROW_ICONS and action.available(row)]
        parts = [(self._act_button(row, action),) for action in shown]
        return format_html('<span class="lq-row tight">{}</span>', format_html_join("", "{}", parts))

    def _act_button(self, row: Finding, action: RowAction) -> str:
        link, icon = self.action_link(row, action.name), _ROW_ICONS[action.name]
        if action.form is ActionForm:
            return format_html(ROW_BUTTON, f"{link}?from=list", action.title, icon)
        return format_html(ROW_LINK, link, action.title, icon)

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[RowAction, str]]:
        """The page has the forms of the acts itself."""
        return []

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        [session] = with_purposes([row.session])
        by = current_user(request)
        offered = {action.name: (action, link) for action, link in super().buttons(request, row)}
        forms_ = {
            name: action.form(by=by, rows=[row], initial=action.initial(row), auto_id=f"id_{name}_%s")
            for name, (action, _) in offered.items()
            if action.form is not ActionForm
        }
        nearby = Finding.objects.work().filter(session=session, state=FindingState.OPEN).order_by("pk")
        return {
            "finding": row,
            "session": session,
            "plain_acts": [pair for name, pair in offered.items() if name not in forms_],
            "forms": {name: {"form": form, "link": offered[name][1]} for name, form in forms_.items()},
            "comments": list(row.comments.select_related("author").order_by("pk")[:SHOWN_COMMENTS]),
            "next_open": nearby.filter(pk__gt=row.pk).first() or nearby.exclude(pk=row.pk).first(),
            "open_of_run": nearby.count(),
            **(_around_quote(row) if by.has_perm("agents.view_document") else {}),
            "address": request.build_absolute_uri(finding_path(row)),
        }

    def export_view(self, request: HttpRequest) -> HttpResponse:
        """The findings of the list as it is filtered and sorted, as CSV."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        text = findings_export(self.selected_rows(request), by=current_user(request), now=clock())
        headers = {"Content-Disposition": 'attachment; filename="findings.csv"', "Cache-Control": "no-store"}
        return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


# --- Notifications ---


DECIDED_BY: Final = {"approval": ABOUT_APPROVALS, "question": ABOUT_QUESTIONS}


class ReadFilter(OptionFilter):
    title = "read"
    parameter_name = "read"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        "no": ("Unread", Q(read_at__isnull=True)),
        "yes": ("Read", Q(read_at__isnull=False)),
    }


def settled_at(row: Notification) -> str:
    """The page where a notification is settled: a decision, a finding, a run; empty if it is about none."""
    if row.page or row.finding_id:
        return row.page or reverse("admin:agents_finding_change", args=[row.finding_id])
    if row.session is None:
        return ""
    waiting: dict[str, Any] = {"approval": row.session.approvals, "question": row.session.questions}
    for name, rows in waiting.items():
        pk = rows.filter(status="pending").order_by("pk").values_list("pk", flat=True).first()
        if pk is not None and row.kind in DECIDED_BY[name]:
            return reverse(f"admin:agents_{name}_change", args=[pk])
    if row.kind == NoticeKind.RUN_FINDINGS:
        return findings_path(row.session)
    return reverse("admin:agents_agentsession_change", args=[row.session_id])


MOST_SHOWN: Final = 5  # notifications that a browser shows at once
SHOWN_CHARS: Final = 160


class NotificationList(RowList):
    """A list that leads to the pages where things are settled. The message of an agent is its own page."""

    def url_for_result(self, result: Any) -> str:
        if result.kind == NoticeKind.AGENT:
            return str(super().url_for_result(result))
        return reverse("admin:agents_notification_go", args=[result.public_id])


@admin.register(Notification)
class NotificationAdmin(DetailAdmin):
    """A user's own notifications; everybody's when asked for. Opening one's own marks it as read."""

    list_shows_content = True
    title_ = column("title", plain_sentence)
    kind_ = column(lambda row: "approval, decided" if row.settled else words(row.kind), title="kind")
    list_display = ["title_", "about", "kind_", "of_session", "created_at", "read"]
    list_filter = [WhoseFilter, ReadFilter, ("kind", WordedFilter)]
    list_select_related = ["owner", "session__agent", "session__trigger"]
    empty_text = "No notifications. Runs notify their owner of findings, and approvers of pending approvals."
    exclude = ("id", "public_id", "title", "body", "session", "finding", "read_at", "page")
    change_form_template = "admin/notification.html"
    row_actions = (
        RowAction(
            "read",
            "Mark as read",
            each_row(notification_mark_read, "notification", "marked as read"),
            permission="agents.view_notification",
            available=lambda row: row.read_at is None,
        ),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RowList]:
        listed = super().get_changelist(request, **kwargs)
        return NotificationList if listed is RowList else listed

    def get_urls(self) -> Any:
        own = [self.url("go/<uuid:public_id>/", "go"), self.url("waiting/<int:pk>/", "waiting")]
        return [*own, *super().get_urls()]

    def waiting_view(self, request: HttpRequest, pk: int) -> JsonResponse:
        """Return the user's own unread notifications of decisions after this one, for browsers that show them."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        kinds = {*DECIDED_BY["approval"], *DECIDED_BY["question"]}
        own = Notification.objects.filter(owner=current_user(request), kind__in=kinds, read_at__isnull=True, pk__gt=pk)
        found = list(own.order_by("-pk")[:MOST_SHOWN])
        rows = [
            {
                "id": row.pk,
                "title": plain_sentence(visible(row.title)),
                "text": cut(visible(row.body.partition("\n")[0]), SHOWN_CHARS),
                "link": reverse("admin:agents_notification_go", args=[row.public_id]),
            }
            for row in reversed(found)
        ]
        return JsonResponse({"newest": found[0].pk if found else pk, "rows": rows})

    def go_view(self, request: HttpRequest, public_id: UUID) -> HttpResponse:
        """Lead from the list, or from a message outside, to the page where it is settled, and mark it as read."""
        by = current_user(request)
        row = get_object_or_404(Notification.objects.select_related("session"), public_id=public_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row.owner_id != by.pk:
            return HttpResponseRedirect(self.row_link(row.pk))
        notification_mark_read(notification=row, by=by, now=clock())
        return HttpResponseRedirect(settled_at(row) or self.row_link(row.pk))

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["owner"] if request.GET.get("whose") == "everybody" else [])]

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[RowAction, str]]:
        return super().buttons(request, row) if row.owner_id == current_user(request).pk else []

    def run_action(self, request: HttpRequest, action: RowAction, rows: Sequence[Any], **more: Any) -> HttpResponse:
        """Nobody marks somebody else's notification as read: its owner would never see it."""
        if any(row.owner_id != current_user(request).pk for row in rows):
            raise PermissionDenied
        return super().run_action(request, action, rows, **more)

    def prepare_rows(self, rows: list[Any]) -> None:
        sessions = with_purposes(row.session for row in rows if row.session)
        waiting = Approval.objects.filter(session__in=sessions, status=ApprovalStatus.PENDING)
        open_ = set(waiting.values_list("session_id", flat=True))
        for row in rows:
            row.settled = row.kind in ABOUT_APPROVALS and row.session_id not in open_

    @display(description="about")
    def about(self, notice: Any) -> str:
        if notice.session is None:
            return "—"
        return two_lines(visible(cut(notice.session.purpose, 80)), visible(asked_by(notice.session)))

    @display(description="read", label={"unread": "warning", "settled": "success"})
    def read(self, notice: Any) -> tuple[str, str]:
        if notice.read_at:
            return "read", moment(notice.read_at)
        return ("settled", "settled") if notice.settled else ("unread", "unread")

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The text of the notification, with buttons in place of bare addresses."""
        if row.owner_id == current_user(request).pk:
            notification_mark_read(notification=row, by=current_user(request), now=clock())
        self.prepare_rows([row])
        lines = [line for line in row.body.splitlines() if not line.startswith("Receipt: /")]
        found = row.session.findings.work().filter(state=FindingState.OPEN) if row.session else Finding.objects.none()
        return {
            "open_findings": 0 if row.finding_id else found.count(),
            "title": plain_sentence(row.title),
            "body": "\n".join(lines),
            "pending": _pending(row),
        }

    def change_view(self, request: HttpRequest, object_id: str, **more: Any) -> HttpResponse:
        """Open the call itself, if the notification asks for a decision that is still due."""
        row = self.get_row(request, object_id)
        by = current_user(request)
        pending = _pending(row) if row.kind in ABOUT_APPROVALS and row.owner_id == by.pk else None
        if request.method != "GET" or pending is None or not by.has_perm("agents.view_approval"):
            return super().change_view(request, object_id, **more)
        notification_mark_read(notification=row, by=by, now=clock())
        return HttpResponseRedirect(reverse("admin:agents_approval_change", args=[pending.pk]))


def _pending(notice: Notification) -> Approval | None:
    """The pending call that a notification names; else the first one of its run."""
    if notice.session is None:
        return None
    pending = notice.session.approvals.filter(status=ApprovalStatus.PENDING).order_by("pk")
    return next((row for row in pending if approval_path(row) == notice.page), None) or pending.first()


# --- Precedents and proposals ---


class BoardFilter(OptionFilter):
    title = "status"
    parameter_name = "board"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("Open", Q(dismissed_at__isnull=True)),
        "alike": ("Near-duplicates", Q(dismissed_at__isnull=True)),
        **{value: (label, Q(ended_as=value)) for value, label in PrecedentEnd.choices},
        "all": ("All", Q()),
    }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows = super().queryset(request, queryset)
        if self.value() != "alike":
            return rows
        owners = rows.order_by().values_list("owner_id", flat=True).distinct()
        return rows.filter(pk__in=[pk for owner_id in list(owners) for pk in near_duplicates(owner_id)])


def runs_of(rows: QuerySet[AgentSession]) -> list[AgentSession]:
    return with_purposes(rows.select_related("owner", "trigger")[:SHOWN_RUNS])


class PromoteForm(ActionForm):
    """Offers the user's own projects."""

    project = forms.ModelChoiceField(
        Project.objects.none(), help_text="Its context changes when the proposal is accepted."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mine = Project.objects.filter(owner=self.by).order_by("name")
        self.fields["project"].queryset = mine  # type: ignore[attr-defined]


def _promote(action: ActionRequest) -> ActionResult:
    project = action.data["project"]
    result = each_row(precedent_promote, "precedent", f"proposed for {project}", project=project)(action)
    link = reverse("admin:agents_contextproposal_changelist") + "?status__exact=proposed"
    message = format_html('{} <a class="lq-link" href="{}">Open proposals</a>', result.message, link)
    return ActionResult(message, result.errors)


class MergeForm(ActionForm):
    """Offers the open precedents that say nearly the same, then the owner's others."""

    into = forms.ModelChoiceField(
        Precedent.objects.none(),
        help_text="Gets the count. The most similar one is chosen; check that it says the same.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row: Any = self.rows[0]
        field: Any = self.fields["into"]
        field.queryset = precedents_open(row.owner_id).exclude(pk=row.pk)
        field.label_from_instance = lambda other: f"{cut(other.summary, 120)} ({_precedent_label(other)})"
        near = precedents_alike(row, limit=1)
        field.initial = near[0].pk if near else None


def _merge(action: ActionRequest) -> ActionResult:
    [row] = action.rows
    kept = precedent_merge(precedent=row, into=action.data["into"], by=action.by, now=action.now)
    return ActionResult(f"Merged. The other one was seen {counted(kept.observed_count, 'time')} now.")


def _precedent_label(row: Precedent) -> str:
    return f"{words(row.pattern_kind).capitalize()}, seen {counted(row.observed_count, 'time')}"


def _is_open(row: Precedent) -> bool:
    return row.dismissed_at is None


@admin.register(Precedent)
class PrecedentAdmin(DetailAdmin):
    list_shows_content = True
    summary_ = column("summary", partial(cut, limit=120))
    kind = column("pattern_kind", words, title="kind")
    weight = column(lambda row: f"{precedent_weight(row, now=clock()):g}", title="weight")
    list_display = ["summary_", "kind", "observed_count", "weight", "alike", "owner", "last_seen_at", "ended_as"]
    empty_text = "No precedents yet. Runs record recurring observations here; a person decides what to do with them."
    list_filter = [BoardFilter]
    list_select_related = ["owner"]
    search_fields = ["pattern_kind__exact", "summary", "owner__username"]
    search_help_text = "A kind, words of the summary, or an owner."
    ordering = ("-last_seen_at", "-id")
    exclude = ("id", "summary_hash", "pattern_kind")
    change_form_template = "admin/runs_of_row.html"
    row_actions = (
        RowAction(
            "promote",
            "Propose for a project",
            _promote,
            PromoteForm,
            available=_is_open,
            label=_precedent_label,
            content=proposal_text,
            description="Proposes this line for the project's context. Nothing changes until the proposal is accepted.",
        ),
        RowAction(
            "dismiss",
            "Dismiss",
            each_row(precedent_dismiss, "precedent", "dismissed"),
            available=_is_open,
            label=_precedent_label,
            content=lambda row: row.summary,
            description="Hides it from the list. If it is seen again, the count starts at 1.",
        ),
        RowAction(
            "merge",
            "Merge",
            _merge,
            MergeForm,
            bulk=False,
            available=_is_open,
            label=_precedent_label,
            content=lambda row: row.summary,
            description="Adds its count to another precedent that says the same, and ends it. This cannot be undone.",
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        """Find for each row the open precedent of the same owner that is most like it."""
        found: dict[int, int] = {}
        for owner_id in {row.owner_id for row in rows}:
            found |= near_duplicates(owner_id, of={row.pk for row in rows})
        others = Precedent.objects.in_bulk({found[row.pk] for row in rows if row.pk in found})
        for row in rows:
            row.most_alike = others.get(found.get(row.pk, 0))

    @display(description="similar to")
    def alike(self, row: Any) -> str:
        return visible(cut(row.most_alike.summary, 80)) if row.most_alike else "—"

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {
            "title": _precedent_label(row),
            "sessions": runs_of(precedent_trace(row)),
            "runs_title": "Runs with this observation",
        }


def _project_label(row: ContextProposal) -> str:
    return f"For {row.project.name}, context version {row.project.context_version}"


def _proposal_action(name: str, title: str, run: Any, description: str, **more: Any) -> RowAction:
    """An action whose confirm page shows the proposed line."""
    given = {"label": _project_label, "content": lambda row: row.text, "description": description, **more}
    return RowAction(name, title, run, **given)


class LineForm(ActionForm):
    text = forms.CharField(
        max_length=LINE_CHARS,
        label="Line",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One line for the project's context; line breaks become spaces.",
    )


def _edit_line(action: ActionRequest) -> ActionResult:
    [row] = action.rows
    proposal_edit(proposal=row, text=action.data["text"], by=action.by, now=action.now)
    return ActionResult("Line changed.")


@admin.register(ContextProposal)
class ContextProposalAdmin(DetailAdmin):
    list_shows_content = True
    text_ = column("text", partial(cut, limit=120))
    status_ = column("status", label=DECISION_LABELS)
    list_display = ["text_", "project", "status_", "owner", "proposed_by", "created_at", "decided_by"]
    empty_text = "No proposals. Open a precedent and choose Propose for a project."
    list_filter = ["status"]
    list_select_related = ["project", "owner", "proposed_by", "decided_by"]
    search_fields = ["text", "project__name"]
    row_actions = (
        _proposal_action(
            "edit",
            "Edit line",
            _edit_line,
            "Changes the line before it enters the context. Only the project's owner can change it.",
            form=LineForm,
            initial=lambda row: {"text": row.text},
            bulk=False,
            available=lambda row: row.applied_version is None and row.status != ProposalStatus.RETIRED,
        ),
        _proposal_action(
            "accept",
            "Accept",
            each_row(proposal_accept, "proposal", "accepted"),
            "Adds this line to the project's context, once. Only the project's owner can accept it.",
            available=lambda row: row.status in {ProposalStatus.PROPOSED, ProposalStatus.REJECTED},
        ),
        _proposal_action(
            "reject",
            "Reject",
            each_row(proposal_reject, "proposal", "rejected"),
            "The context does not change.",
            available=lambda row: row.status in {ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED},
        ),
        _proposal_action(
            "retire",
            "Retire",
            each_row(proposal_retire, "proposal", "retired"),
            "Removes this line from the context, in a new version. It cannot be accepted again.",
            available=lambda row: row.applied_version is not None and row.status != ProposalStatus.RETIRED,
            danger=True,
        ),
    )
    change_form_template = "admin/runs_of_row.html"

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"sessions": runs_of(proposal_trace(row)), "runs_title": "Runs with this line in their context"}


# --- Memories ---


class KeepForm(ActionForm):
    content = forms.CharField(
        max_length=CONTENT_CHARS,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="The text that prompts contain from now on.",
    )


def _keep(action: ActionRequest) -> ActionResult:
    [memory] = action.rows
    memory_keep(memory=memory, by=action.by, now=action.now, content=action.data["content"])
    return ActionResult("Memory kept.")


def _memory_label(row: Memory) -> str:
    return f"Memory of {moment(row.created_at)}, {row.state}"


@admin.register(Memory)
class MemoryAdmin(DetailAdmin):
    list_shows_content = True
    content_ = column("content", partial(cut, limit=120), title="memory")
    state_ = column("state", label=DECISION_LABELS)
    list_display = ["content_", "state_", "owner", "of_session", "created_at", "kept_at"]
    list_filter = [DeletedFilter, "state"]
    empty_text = "No memories yet. Runs propose them; they are used once a person keeps them."
    list_select_related = ["owner", "session"]
    search_fields = ["content", "owner__username"]
    row_actions = (
        RowAction(
            "keep",
            "Keep",
            _keep,
            KeepForm,
            initial=lambda row: {"content": row.content},
            bulk=False,
            shows_content=True,
            available=is_in_use,
        ),
        RowAction(
            "dismiss",
            "Dismiss",
            each_row(memory_dismiss, "memory", "dismissed"),
            available=lambda row: row.state != "dismissed" and is_in_use(row),
            label=_memory_label,
            content=lambda row: row.content,
            description="No prompt contains it any longer.",
        ),
        delete_action(
            each_row(memory_delete, "memory", "deleted"),
            "Deletes it. This cannot be undone.",
            label=_memory_label,
            content=lambda row: row.content,
        ),
    )


# --- Projects ---


class ProjectForm(OwnerForm):
    seen_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Project
        fields = ["name", "context_md", "parties"]
        labels = {"context_md": "Context"}
        help_texts = {"context_md": "Added to the prompts of all its runs."}
        widgets = {"context_md": forms.Textarea(attrs={"rows": 14}), "parties": forms.Textarea(attrs={"rows": 5})}

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["seen_version"].initial = self.instance.context_version
            self.fields["context_md"].disabled = by.pk != self.instance.owner_id
        else:
            del self.fields["seen_version"]


@admin.register(Project)
class ProjectAdmin(NamedAdmin):
    list_display = ["name", "owner", "context_version", "created_at"]
    empty_text = "No projects yet. A project holds the context that its runs read."
    form = ProjectForm
    change_form_template = "admin/project.html"
    row_actions = (
        caps_action(BudgetScope.PROJECT),
        delete_action(
            each_row(project_delete, "project", "deleted"),
            "Deletes its context with all versions and proposals. Its runs and triggers stay, without a project.",
            bulk=False,
        ),
    )

    def form_options(self, request: HttpRequest, row: Project | None) -> dict[str, Any]:
        return {"by": current_user(request)}

    def create(self, request: HttpRequest, form: Any) -> Project:
        return project_create(by=current_user(request), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: Project, form: Any) -> Project:
        changes = {name: value for name, value in form.changes().items() if name != "seen_version"}
        seen = form.cleaned_data["seen_version"]
        return project_edit(project=row, by=current_user(request), now=clock(), seen_version=seen, **changes)

    def extra_context(self, request: HttpRequest, row: Project) -> dict[str, Any]:
        return {
            "revisions": row.revisions.select_related("written_by", "proposal").order_by("-version")[:SHOWN_VERSIONS],
            "proposals": row.proposals.select_related("proposed_by").order_by("-pk")[:SHOWN_VERSIONS],
            "is_mine": row.owner_id == current_user(request).pk,
        }
