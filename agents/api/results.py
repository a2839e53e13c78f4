"""Precedents: patterns that keep coming back. A person dismisses one, or proposes it for a project's context."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, OwnRow, Shown
from agents.api.proposals import ProposalShown
from agents.api.schema import described
from agents.knowledge.projects import precedent_dismiss, precedent_promote
from agents.models import Precedent, Project


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
