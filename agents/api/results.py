"""Precedents: patterns that keep coming back. A person dismisses one, or proposes it for a project's context."""

from collections.abc import Callable
from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, OwnRow, Shown, ref
from agents.api.paging import YesOrNo, public_id
from agents.api.schema import described
from agents.enums import NoticeKind, ProposalStatus
from agents.knowledge.projects import (
    CONTENT_CHARS,
    CONTEXT_CHARS,
    NAME_CHARS,
    PARTIES_CHARS,
    memory_delete,
    memory_dismiss,
    memory_keep,
    precedent_dismiss,
    precedent_promote,
    project_create,
    project_delete,
    project_edit,
    proposal_accept,
    proposal_reject,
    proposal_retire,
    proposal_trace,
)
from agents.models import AgentSession, ContextProposal, Memory, Notification, Precedent, Project
from agents.people.notifications import notice_read

# --- Memories: notes that agents propose. Only what a person keeps is ever put into a prompt ---


STATES = [(state, state) for state in ("proposed", "kept", "dismissed")]


class MemoryShown(Shown):
    session = ref("session")

    class Meta:
        model = Memory
        fields = ["id", "session", "content", "state", "created_at", "kept_at"]


class KeepBody(Body):
    content = serializers.CharField(
        max_length=CONTENT_CHARS, required=False, help_text="Other words for it; without them it is kept as it is."
    )


class MemoryFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    state = django_filters.ChoiceFilter(choices=STATES)


class Memories(OwnedViewSet[Memory]):
    """Notes that agents have proposed to you, newest first. Deleted ones are left out."""

    queryset = Memory.objects.all()
    serializer_class = MemoryShown
    filterset_class = MemoryFilter
    joins = ("session",)

    @described("memories_keep", MemoryShown, body=KeepBody)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, **_: Any) -> Response:
        """From now on prompts may hold it."""
        memory, said = self.get_object(), self.body(KeepBody)
        return self.shown(memory_keep(memory=memory, by=self.person, now=self.now, **said))

    @described("memories_dismiss", MemoryShown)
    @action(detail=True, methods=["post"])
    def dismiss(self, request: Request, **_: Any) -> Response:
        """No prompt holds it any more."""
        return self.shown(memory_dismiss(memory=self.get_object(), by=self.person, now=self.now))

    @described("memories_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        memory_delete(memory=self.get_object(), by=self.person, now=self.now)
        return self.gone()


# --- Notices for the person who asks. Reading one is dismissing it, and needs no opt-in ---


class NotificationShown(Shown):
    session = ref("session")

    class Meta:
        model = Notification
        fields = ["id", "kind", "title", "body", "session", "read_at", "created_at"]


class NotificationFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    kind = django_filters.ChoiceFilter(choices=NoticeKind.choices)
    unread = YesOrNo(method="choose", label="true: only what was not read; false: only what was.")

    def choose(self, rows: QuerySet[Notification], name: str, value: str) -> QuerySet[Notification]:
        return rows.filter(read_at__isnull=value == "true")


class Notifications(OwnedViewSet[Notification]):
    """Notices for you, newest first."""

    queryset = Notification.objects.all()
    serializer_class = NotificationShown
    filterset_class = NotificationFilter
    joins = ("session",)
    always_allowed = frozenset({"read"})

    @described("notifications_read", NotificationShown)
    @action(detail=True, methods=["post"])
    def read(self, request: Request, **_: Any) -> Response:
        return self.shown(notice_read(notification=self.get_object(), by=self.person, now=self.now))


# --- Projects: what runs may know of the matter at hand ---


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


# --- Proposals: precedents on their way into a project's context, decided on by the project's owner ---


class ProposalShown(Shown):
    project = ref("project")
    precedent = ref("precedent")

    class Meta:
        model = ContextProposal
        fields = [
            "id", "project", "precedent", "text", "status", "created_at", "decided_at", "applied_version",
            "retired_version",
        ]  # fmt: skip


class TracedRun(Shown):
    class Meta:
        model = AgentSession
        fields = ["id", "status", "context_version", "created_at"]


class ProposalFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    status = django_filters.ChoiceFilter(choices=ProposalStatus.choices)
    project = public_id("project", "The id of a project.")


class Proposals(OwnedViewSet[ContextProposal]):
    """Proposals for the contexts of your projects, newest first."""

    queryset = ContextProposal.objects.all()
    serializer_class = ProposalShown
    filterset_class = ProposalFilter
    joins = ("project", "precedent")

    @described("proposals_accept", ProposalShown)
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, **_: Any) -> Response:
        """Adds the text to the project's context, once."""
        return self._decided(proposal_accept)

    @described("proposals_reject", ProposalShown)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, **_: Any) -> Response:
        """Says no; the context stays as it is."""
        return self._decided(proposal_reject)

    @described("proposals_retire", ProposalShown)
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, **_: Any) -> Response:
        """Takes the text out of the context again, in a new version."""
        return self._decided(proposal_retire)

    @described("proposals_trace", TracedRun(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def trace(self, request: Request, **_: Any) -> Response:
        """Runs of yours that read a version of the context which held this text, newest first."""
        runs = proposal_trace(self.get_object()).filter(owner_id=self.person.pk)
        kind: type[serializers.BaseSerializer[Any]] = TracedRun
        return self.listed(runs, kind)

    def _decided(self, decide: Callable[..., ContextProposal]) -> Response:
        return self.shown(decide(proposal=self.get_object(), by=self.person, now=self.now))


class PrecedentShown(Shown):
    class Meta:
        model = Precedent
        fields = [
            "id", "pattern_kind", "summary", "observed_count", "first_seen_at", "last_seen_at", "dismissed_at",
        ]  # fmt: skip


class PromoteBody(Body):
    project = OwnRow(Project)


class PrecedentFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    kind = django_filters.CharFilter(field_name="pattern_kind", max_length=64)


class Precedents(OwnedViewSet[Precedent]):
    """What keeps coming back in your runs and was not dismissed, newest sighting first."""

    queryset = Precedent.objects.all()
    serializer_class = PrecedentShown
    filterset_class = PrecedentFilter
    ordering = ("-last_seen_at", "-id")

    def get_queryset(self) -> QuerySet[Precedent]:
        rows = super().get_queryset()
        return rows.filter(dismissed_at__isnull=True) if self.action == "list" else rows

    @described("precedents_dismiss", PrecedentShown)
    @action(detail=True, methods=["post"])
    def dismiss(self, request: Request, **_: Any) -> Response:
        """Takes it off the list; the next sighting begins a new count."""
        return self.shown(precedent_dismiss(precedent=self.get_object(), by=self.person, now=self.now))

    @described("precedents_promote", {201: ProposalShown}, body=PromoteBody)
    @action(detail=True, methods=["post"])
    def promote(self, request: Request, **_: Any) -> Response:
        """Proposes it for the context of a project of yours. Nothing reaches the context until it is accepted."""
        precedent, said = self.get_object(), self.body(PromoteBody)
        proposal = precedent_promote(precedent=precedent, project=said["project"], by=self.person, now=self.now)
        return Response(ProposalShown(proposal).data, status=201)
