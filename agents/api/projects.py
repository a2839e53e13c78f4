"""Projects: what runs may know of the matter at hand."""

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, Shown
from agents.api.schema import described
from agents.knowledge.projects import (
    CONTEXT_CHARS,
    NAME_CHARS,
    PARTIES_CHARS,
    project_create,
    project_delete,
    project_edit,
)
from agents.models import Project


class ProjectShown(Shown):
    class Meta:
        model = Project
        fields = ["id", "name", "context_md", "context_version", "parties", "created_at"]


class ProjectBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    context_md = serializers.CharField(
        max_length=CONTEXT_CHARS, required=False, allow_blank=True, trim_whitespace=False
    )
    parties = serializers.CharField(
        max_length=PARTIES_CHARS,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Names of people and firms, one per line, to hide from models.",
    )


class ProjectPatch(ProjectBody):
    seen_version = CountField(
        required=False, help_text="The version of the context that was edited; 409 if there is a newer one."
    )


EXAMPLE = OpenApiExample("A matter", {"name": "Acme lease", "parties": "Acme Ltd\nJane Doe"}, request_only=True)


class Projects(OwnedViewSet[Project]):
    """Your projects, newest first."""

    queryset = Project.objects.all()
    serializer_class = ProjectShown

    @described("projects_create", {201: ProjectShown}, body=ProjectBody, examples=[EXAMPLE])
    def create(self, request: Request) -> Response:
        said = self.body(ProjectBody)
        return self.shown(project_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("projects_edit", ProjectShown, body=ProjectPatch)
    def partial_update(self, request: Request, **_: Any) -> Response:
        project, said = self.get_object(), self.body(ProjectPatch, partial=True)
        return self.shown(project_edit(project=project, by=self.person, now=self.now, **said))

    @described("projects_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """Deletes the project with its proposals and versions. Runs and triggers stay, bound to none."""
        project_delete(project=self.get_object(), by=self.person, now=self.now)
        return self.gone()
