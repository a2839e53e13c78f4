"""Patterns that keep coming back, what people propose to make of them, and notes that agents want to remember."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column
from agents.admin.display import counted, cut, moment, words
from agents.admin.facts import FactsAdmin
from agents.admin.filters import DeletedFilter, DismissedFilter
from agents.admin.forms import ActForm
from agents.admin.looks import MEMORY_LABELS, PROPOSAL_LABELS
from agents.enums import ProposalStatus
from agents.knowledge.projects import (
    CONTENT_CHARS,
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_promote,
    precedent_trace,
    proposal_accept,
    proposal_reject,
    proposal_retire,
    proposal_text,
    proposal_trace,
)
from agents.models import ContextProposal, Memory, Precedent, Project
from agents.sessions.reads import purposes

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


def _delete(asked: Asked) -> Told:
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
        Act("delete", "Delete", "agents.delete_memory", _delete, grave=True, fits=lambda row: row.deleted_at is None,
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
