"""What runs leave behind for people: findings with their quotes, and notices."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from agents.admin.actions import Act, ActForm, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.display import (
    MEMORY_LABELS,
    PROPOSAL_LABELS,
    SEVERITY_LABELS,
    DeletedFilter,
    DismissedFilter,
    ReadFilter,
    WhoseFilter,
    WordedFilter,
    counted,
    cut,
    moment,
    told,
    visible,
    words,
)
from agents.admin.pages import EditForm, EditingAdmin, FactsAdmin
from agents.conf import clock
from agents.enums import ApprovalStatus, NoticeKind, ProposalStatus
from agents.knowledge.projects import (
    CONTENT_CHARS,
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_promote,
    precedent_trace,
    project_create,
    project_delete,
    project_edit,
    proposal_accept,
    proposal_reject,
    proposal_retire,
    proposal_text,
    proposal_trace,
)
from agents.models import Approval, ContextProposal, Finding, Memory, Notification, Precedent, Project
from agents.people.notifications import notice_read
from agents.sessions.reads import asked_by, purposes


@admin.register(Finding)
class FindingAdmin(FactsAdmin):
    quotes = True
    list_display = ["title_", "grave", "document", "quoted", "judged", "of_session", "found_at"]
    list_filter = ["quote_check"]
    ordering = ("-session_id", "created_at", "id")  # the last run first, and what it found in its order
    empty = "No run has found anything yet. Add a document to a watched collection, or start a run by hand."
    list_select_related = ["session", "document"]
    search_fields = ["session__public_id__exact", "title"]
    search_help_text = "Words of the title, or the public id of a session, in full."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Finding]:
        rows: QuerySet[Finding] = super().get_queryset(request)
        return rows.defer("document__text")

    @column("title")
    def title_(self, finding: Finding) -> str:
        return cut(finding.title, 100)

    @column("severity", labels=SEVERITY_LABELS)
    def grave(self, finding: Finding) -> str:
        return finding.severity

    @column("quote", labels={"verified": "success", "unverified": "warning"})
    def quoted(self, finding: Finding) -> str:
        return finding.quote_check

    @column("judges")
    def judged(self, finding: Finding) -> str:
        return f"{finding.judges_for} of {finding.judges_asked}" if finding.judges_asked else "—"

    @column("found")
    def found_at(self, finding: Finding) -> str:
        return moment(finding.created_at)


def _read(asked: Asked) -> Told:
    return each(asked, lambda row: notice_read(notification=row, by=asked.by, now=asked.now), "marked as read")


@admin.register(Notification)
class NotificationAdmin(FactsAdmin):
    """A person's own notices; everybody's when asked for, on record. Opening one's own is reading it."""

    quotes = True
    list_display = ["title_", "about", "kind_", "of_session", "came", "read"]
    list_filter = [WhoseFilter, ReadFilter, ("kind", WordedFilter)]
    list_select_related = ["owner", "session__agent", "session__trigger"]
    empty = "There is no notice for you. Runs tell their owner what they found, and approvers what waits for them."
    hidden = frozenset({"id", "public_id", "title", "body", "session", "read_at"})
    change_template = "admin/notice.html"
    acts = (
        Act("read", "Mark as read", "agents.view_notification", _read, fits=lambda row: row.read_at is None),
    )  # fmt: skip

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["owner"] if WhoseFilter.is_everybody(request) else [])]

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        return super().buttons(request, row) if row.owner_id == person(request).pk else []

    def carry_out(self, request: HttpRequest, act: Act, rows: Sequence[Any], **more: Any) -> HttpResponse:
        """Nobody reads a notice in somebody else's place: it would never be seen."""
        if any(row.owner_id != person(request).pk for row in rows):
            raise PermissionDenied
        return super().carry_out(request, act, rows, **more)

    def prepare(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows if row.session])
        waiting = Approval.objects.filter(session__in=known, status=ApprovalStatus.PENDING)
        open_ = set(waiting.values_list("session_id", flat=True))
        for row in rows:
            row.purpose = known.get(row.session_id, "")
            row.settled = row.kind == NoticeKind.APPROVAL_WAITING and row.session_id not in open_

    def title_of(self, row: Notification) -> str:
        return told(row.title)

    @column("title")
    def title_(self, notice: Notification) -> str:
        return told(notice.title)

    @column("about")
    def about(self, notice: Any) -> str:
        if notice.session is None:
            return "—"
        return format_html(
            '<span class="lq-wrap">{}</span><br><span class="lq-faint">{}</span>',
            visible(cut(notice.purpose, 80)),
            visible(asked_by(notice.session)),
        )

    @column("kind")
    def kind_(self, notice: Any) -> str:
        return "approval, decided" if notice.settled else words(notice.kind)

    @column("came")
    def came(self, notice: Notification) -> str:
        return moment(notice.created_at)

    @column("read", labels={"unread": "warning", "settled": "success"})
    def read(self, notice: Any) -> tuple[str, str]:
        if notice.read_at:
            return "read", moment(notice.read_at)
        return ("settled", "settled") if notice.settled else ("unread", "unread")

    def noticed(self, request: HttpRequest, row: Notification) -> None:
        if row.owner_id == person(request).pk:
            notice_read(notification=row, by=person(request), now=clock())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The words of the notice, with the ways to what they speak of in place of bare addresses."""
        self.prepare([row])
        lines = [line for line in row.body.splitlines() if not line.startswith("Receipt: /")]
        pending = row.session and row.session.approvals.filter(status=ApprovalStatus.PENDING).order_by("pk").first()
        return {"body": "\n".join(lines), "purpose": row.purpose, "settled": row.settled, "pending": pending}


# Patterns that keep coming back, what people propose to make of them, and notes that agents want to remember.


SHOWN_RUNS = 50


def traced(rows: Any) -> list[tuple[Any, str]]:
    sessions = list(rows.select_related("owner", "trigger")[:SHOWN_RUNS])
    known = purposes(sessions)
    return [(session, known[session.pk]) for session in sessions]


class PromoteForm(ActForm):
    """Projects that the person owns: nobody proposes for somebody else's."""

    project = forms.ModelChoiceField(
        Project.objects.none(), help_text="Its context changes only when the proposal is accepted."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mine = Project.objects.filter(owner=self.by).order_by("name")
        self.fields["project"].queryset = mine  # type: ignore[attr-defined]


def _promote(asked: Asked) -> Told:
    project = asked.given["project"]
    done = each(
        asked,
        lambda row: precedent_promote(precedent=row, project=project, by=asked.by, now=asked.now),
        f"proposed for {project}",
    )
    link = reverse("admin:agents_contextproposal_changelist") + "?status__exact=proposed"
    text = format_html('{} <a class="lq-link" href="{}">Decide on proposals</a>', done.text, link)
    return Told(text, done.refused)


def _seen(row: Precedent) -> str:
    return f"{words(row.pattern_kind).capitalize()}, seen {counted(row.observed_count, 'time')}"


def _dismiss(asked: Asked) -> Told:
    return each(asked, lambda row: precedent_dismiss(precedent=row, by=asked.by, now=asked.now), "dismissed")


@admin.register(Precedent)
class PrecedentAdmin(FactsAdmin):
    quotes = True
    list_display = ["said", "kind", "observed_count", "owner", "seen", "dismissed"]
    empty = "No pattern has been noted yet. Runs note what keeps coming back; a person decides what becomes of it."
    list_filter = [DismissedFilter]
    list_select_related = ["owner"]
    search_fields = ["pattern_kind__exact", "summary", "owner__username"]
    search_help_text = "A kind of pattern, words of the summary, or an owner."
    ordering = ("-last_seen_at", "-id")
    hidden = frozenset({"id", "summary_hash", "pattern_kind"})
    acts = (
        Act("promote", "Propose for a project", "agents.change_precedent", _promote, PromoteForm,
            fits=lambda row: row.dismissed_at is None, named=_seen, shows=proposal_text,
            explained="This line is proposed for the project's context. Nothing changes until it is accepted."),
        Act("dismiss", "Dismiss", "agents.change_precedent", _dismiss, fits=lambda row: row.dismissed_at is None,
            named=_seen, shows=lambda row: row.summary,
            explained="It leaves the board; the next time it is seen, counting begins anew."),
    )  # fmt: skip
    change_template = "admin/traced.html"

    @column("summary")
    def said(self, precedent: Precedent) -> str:
        return cut(precedent.summary, 120)

    def title_of(self, row: Precedent) -> str:
        return _seen(row)

    @column("kind")
    def kind(self, precedent: Precedent) -> str:
        return words(precedent.pattern_kind)

    @column("last seen")
    def seen(self, precedent: Precedent) -> str:
        return moment(precedent.last_seen_at)

    @column("dismissed")
    def dismissed(self, precedent: Precedent) -> str:
        return moment(precedent.dismissed_at)

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"sessions": traced(precedent_trace(row)), "runs_title": "Runs in which it was seen"}


def _accept(asked: Asked) -> Told:
    return each(asked, lambda row: proposal_accept(proposal=row, by=asked.by, now=asked.now), "accepted")


def _reject(asked: Asked) -> Told:
    return each(asked, lambda row: proposal_reject(proposal=row, by=asked.by, now=asked.now), "rejected")


def _retire(asked: Asked) -> Told:
    return each(asked, lambda row: proposal_retire(proposal=row, by=asked.by, now=asked.now), "retired")


def _for_project(row: ContextProposal) -> str:
    return f"For {row.project.name}, whose context is at version {row.project.context_version}"


@admin.register(ContextProposal)
class ContextProposalAdmin(FactsAdmin):
    quotes = True
    list_display = ["said", "project", "standing", "owner", "proposed_by", "made", "decided_by"]
    empty = "Nothing is proposed. Open a precedent and choose Propose for a project: its line then waits here."
    list_filter = ["status"]
    list_select_related = ["project", "owner", "proposed_by", "decided_by"]
    search_fields = ["text", "project__name"]
    acts = (
        Act("accept", "Accept", "agents.change_contextproposal", _accept,
            fits=lambda row: row.status in {ProposalStatus.PROPOSED, ProposalStatus.REJECTED},
            named=_for_project, shows=lambda row: row.text,
            explained="This very line is added to the project's context, once. Only the project's owner can."),
        Act("reject", "Reject", "agents.change_contextproposal", _reject,
            fits=lambda row: row.status in {ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED},
            named=_for_project, shows=lambda row: row.text, explained="The context stays as it is."),
        Act("retire", "Retire", "agents.change_contextproposal", _retire, grave=True,
            fits=lambda row: row.applied_version is not None and row.status != ProposalStatus.RETIRED,
            named=_for_project, shows=lambda row: row.text,
            explained="This line is taken out of the context, in a new version, and cannot be accepted again."),
    )  # fmt: skip
    change_template = "admin/traced.html"

    @column("text")
    def said(self, proposal: ContextProposal) -> str:
        return cut(proposal.text, 120)

    @column("status", labels=PROPOSAL_LABELS)
    def standing(self, proposal: ContextProposal) -> str:
        return proposal.status

    @column("proposed")
    def made(self, proposal: ContextProposal) -> str:
        return moment(proposal.created_at)

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"sessions": traced(proposal_trace(row)), "runs_title": "Runs that read a context with this line"}


class KeepForm(ActForm):
    content = forms.CharField(
        max_length=CONTENT_CHARS,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="Prompts hold it from now on, in these words.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        [memory] = self.rows
        self.fields["content"].initial = getattr(memory, "content", "")


def _keep(asked: Asked) -> Told:
    [memory] = asked.rows
    memory_keep(memory=memory, by=asked.by, now=asked.now, content=asked.given["content"])
    return Told("1 kept.")


def _forget(asked: Asked) -> Told:
    return each(asked, lambda row: memory_dismiss(memory=row, by=asked.by, now=asked.now), "dismissed")


def _delete_memories(asked: Asked) -> Told:
    return each(asked, lambda row: memory_delete(memory=row, by=asked.by, now=asked.now), "deleted")


def _noted(row: Memory) -> str:
    return f"A note of {moment(row.created_at)}, {row.state}"


@admin.register(Memory)
class MemoryAdmin(FactsAdmin):
    quotes = True
    list_display = ["said", "standing", "owner", "of_session", "made", "kept"]
    list_filter = [DeletedFilter, "state"]
    empty = "No run has proposed a note yet. What one wants to remember waits here until somebody keeps it."
    list_select_related = ["owner", "session"]
    search_fields = ["content", "owner__username"]
    acts = (
        Act("keep", "Keep", "agents.change_memory", _keep, KeepForm, many=False, reveals=True,
            fits=lambda row: row.deleted_at is None),
        Act("dismiss", "Dismiss", "agents.change_memory", _forget,
            fits=lambda row: row.state != "dismissed" and row.deleted_at is None,
            named=_noted, shows=lambda row: row.content, explained="No prompt holds it."),
        Act("delete", "Delete", "agents.delete_memory", _delete_memories, grave=True,
            fits=lambda row: row.deleted_at is None,
            named=_noted, shows=lambda row: row.content, explained="It is put away for good."),
    )  # fmt: skip

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "delete")

    @column("note")
    def said(self, memory: Memory) -> str:
        return cut(memory.content, 120)

    @column("state", labels=MEMORY_LABELS)
    def standing(self, memory: Memory) -> str:
        return memory.state

    @column("proposed")
    def made(self, memory: Memory) -> str:
        return moment(memory.created_at)

    @column("first kept")
    def kept(self, memory: Memory) -> str:
        return moment(memory.kept_at)


# Projects: what runs may know of the matter at hand, version by version, and what is proposed to be added.


SHOWN = 20


def _delete_projects(asked: Asked) -> Told:
    return each(asked, lambda row: project_delete(project=row, by=asked.by, now=asked.now), "deleted")


class ProjectForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))
    seen_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Project
        fields = ["name", "context_md", "parties"]
        labels = {"context_md": "Context"}
        widgets = {"context_md": forms.Textarea(attrs={"rows": 14}), "parties": forms.Textarea(attrs={"rows": 5})}

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]
            self.fields["seen_version"].initial = self.instance.context_version
            self.fields["context_md"].disabled = by.pk != self.instance.owner_id
        else:
            del self.fields["seen_version"]


@admin.register(Project)
class ProjectAdmin(EditingAdmin):
    list_display = ["name", "owner", "context_version", "made"]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    empty = "There are no projects. A project holds what its runs may know of the matter at hand."
    ordering = ["name", "id"]
    sortable_by = ("name",)
    edit_template = "admin/project.html"
    acts = (
        Act("delete", "Delete", "agents.delete_project", _delete_projects, grave=True, many=False,
            explained="Its context goes, with all versions and proposals. Runs and triggers stay, bound to none."),
    )  # fmt: skip

    @column("made")
    def made(self, project: Project) -> str:
        return moment(project.created_at)

    def make_form(self, request: HttpRequest, row: Project | None) -> ProjectForm:
        by, data = person(request), request.POST if request.method == "POST" else None
        if row is None:
            return ProjectForm(data, by=by, initial={"owner": by.pk})
        return ProjectForm(data, by=by, instance=Project.objects.get(pk=row.pk))

    def save_new(self, request: HttpRequest, form: Any) -> Project:
        return project_create(by=person(request), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: Project, form: Any) -> Project:
        changes = {name: value for name, value in form.changes().items() if name != "seen_version"}
        seen = form.cleaned_data["seen_version"]
        return project_edit(project=row, by=person(request), now=clock(), seen_version=seen, **changes)

    def beside(self, request: HttpRequest, row: Project | None) -> dict[str, Any]:
        if row is None:
            return {}
        return {
            "revisions": row.revisions.select_related("written_by", "proposal").order_by("-version")[:SHOWN],
            "proposals": row.proposals.select_related("proposed_by").order_by("-pk")[:SHOWN],
            "is_mine": row.owner_id == person(request).pk,
        }
