"""Proposals: precedents on their way into a project's context, decided on by the project's owner."""

from collections.abc import Callable
from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Shown, ref
from agents.api.filtering import public_id
from agents.api.schema import described
from agents.enums import ProposalStatus
from agents.knowledge.projects import proposal_accept, proposal_reject, proposal_retire, proposal_trace
from agents.models import AgentSession, ContextProposal


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
