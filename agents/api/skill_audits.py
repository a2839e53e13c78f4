"""What skills were given and gave back in a person's own sessions, redacted and cut; newest first, never changed."""

from typing import Any

import django_filters
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import Acting
from agents.api.schema import described
from audit.models import SkillAudit
from audit.recorder import AUDITED_LEVELS

NAME_CHARS = 128
LEVELS = [(level, level) for level in sorted(AUDITED_LEVELS)]


class SkillAuditShown(serializers.ModelSerializer[Any]):
    skill = serializers.CharField(source="skill_name", read_only=True)
    level = serializers.CharField(source="capability_level", read_only=True, help_text="When it was called.")
    risk = serializers.CharField(
        source="risk_level", read_only=True, allow_null=True, help_text="low, medium or high; null: not graded."
    )
    session = serializers.UUIDField(source="session_id", read_only=True, allow_null=True)

    class Meta:
        model = SkillAudit
        fields = ["skill", "level", "risk", "input_summary", "output_summary", "duration_ms", "session", "created_at"]
        read_only_fields = fields


class SkillAuditFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    skill = django_filters.CharFilter(field_name="skill_name", max_length=NAME_CHARS)
    level = django_filters.ChoiceFilter(field_name="capability_level", choices=LEVELS)
    session = django_filters.UUIDFilter(field_name="session_id", label="The id of a session.")


class SkillAudits(Acting, generics.GenericAPIView[SkillAudit]):
    queryset = SkillAudit.objects.order_by("-created_at", "-id")
    serializer_class = SkillAuditShown
    filterset_class = SkillAuditFilter

    @described("skill_audits_list", SkillAuditShown(many=True))
    def get(self, request: Request) -> Response:
        """Calls of skills of level CONTROLLED and above in your sessions, newest first; refusals and failures, too."""
        own = self.get_queryset().filter(user_id=self.person.pk)
        page = self.paginate_queryset(self.filter_queryset(own))
        return self.get_paginated_response(SkillAuditShown(page, many=True).data)
