"""Projects: what runs may know of the matter at hand, version by version, and what is proposed to be added."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.display import moment
from agents.admin.pages import EditForm, EditingAdmin
from agents.conf import clock
from agents.knowledge.projects import project_create, project_delete, project_edit
from agents.models import Project

SHOWN = 20


def _delete(asked: Asked) -> Told:
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
        Act("delete", "Delete", "agents.delete_project", _delete, grave=True, many=False,
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
