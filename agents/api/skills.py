"""Prompt skills of the installation, to choose from. They are accepted by operators, and belong to nobody."""

import django_filters
from django.db.models import QuerySet

from agents.api.base import OwnedViewSet
from agents.api.fields import Shown
from agents.api.filtering import YesOrNo
from agents.models import PromptSkill


class SkillShown(Shown):
    class Meta:
        model = PromptSkill
        fields = ["id", "name", "description", "version", "digest", "enabled", "has_changed", "loaded_at"]


class SkillDetail(SkillShown):
    class Meta(SkillShown.Meta):
        fields = [*SkillShown.Meta.fields, "front_matter", "body"]


class SkillFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    enabled = YesOrNo(method="choose")

    def choose(self, rows: QuerySet[PromptSkill], name: str, value: str) -> QuerySet[PromptSkill]:
        return rows.filter(enabled=value == "true")


class Skills(OwnedViewSet[PromptSkill]):
    """The skills of the installation, by name. They are the same for everybody who is signed in."""

    queryset = PromptSkill.objects.all()
    filterset_class = SkillFilter
    ordering = ("name",)

    def get_serializer_class(self) -> type[SkillShown]:
        return SkillShown if self.action == "list" else SkillDetail

    def reachable(self, rows: QuerySet[PromptSkill]) -> QuerySet[PromptSkill]:
        return rows
