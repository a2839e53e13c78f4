"""Playbooks: what runs check documents against. Each edit makes a new version; YAML comes in and goes out."""

from typing import Any

import django_filters
from django.db.models import Count, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample
from rest_framework import generics, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import Acting, OwnedViewSet
from agents.api.fields import Body, CountField, Shown, StrictJSON, WordField, YamlText
from agents.api.paging import YesOrNo
from agents.api.schema import described
from agents.definitions.playbooks import Position
from agents.enums import Level
from agents.exceptions import NotFound
from agents.http import yaml_file
from agents.knowledge.playbooks import playbook_create, playbook_delete, playbook_edit, playbook_export, playbook_import
from agents.models import Playbook, PlaybookPosition, PromptSkill, SkillSetting
from agents.skills.registry import MOST_PER_HOUR, skill_listed, skill_set, skill_to_set, skills_listed
from audit.models import SkillAudit
from audit.recorder import AUDITED_LEVELS

MOST_POSITIONS = 500
MOST_PHRASES = 100
TEXT_CHARS = 20_000


class PositionShown(serializers.ModelSerializer[PlaybookPosition]):
    class Meta:
        model = PlaybookPosition
        fields = ["issue", "severity", "standard", "fallbacks", "guidance", "must_contain", "must_not_contain"]
        read_only_fields = fields

    fallbacks = serializers.ListField(child=serializers.CharField(), read_only=True)
    must_contain = serializers.ListField(child=serializers.CharField(), read_only=True)
    must_not_contain = serializers.ListField(child=serializers.CharField(), read_only=True)


class PlaybookShown(Shown):
    positions_count = serializers.IntegerField(read_only=True)

    class Meta:
        model = Playbook
        fields = ["id", "name", "version", "digest", "positions_count", "created_at", "updated_at"]


class PlaybookDetail(PlaybookShown):
    positions = PositionShown(many=True, read_only=True)

    class Meta(PlaybookShown.Meta):
        fields = [*PlaybookShown.Meta.fields, "positions"]


class Phrases(serializers.ListField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            child=serializers.CharField(max_length=TEXT_CHARS), max_length=MOST_PHRASES, required=False, **kwargs
        )


class PositionBody(Body):
    issue = serializers.CharField(max_length=200)
    severity = serializers.CharField(max_length=32, required=False, help_text="info, warn or critical.")
    standard = serializers.CharField(max_length=TEXT_CHARS, required=False, allow_blank=True)
    fallbacks = Phrases(help_text="Wordings that would still do, best first.")
    guidance = serializers.CharField(max_length=TEXT_CHARS, required=False, allow_blank=True)
    must_contain = Phrases()
    must_not_contain = Phrases()


class PlaybookBody(Body):
    name = serializers.CharField(max_length=120)
    positions = serializers.ListField(child=PositionBody(), max_length=MOST_POSITIONS)


class YamlBody(Body):
    yaml = serializers.CharField(trim_whitespace=False, help_text="A playbook as export gives it.")


EXAMPLE = OpenApiExample(
    "One position",
    {
        "name": "NDA",
        "positions": [
            {"issue": "Term", "severity": "warn", "standard": "Two years.", "must_not_contain": ["perpetual"]},
        ],
    },
    request_only=True,
)


class Playbooks(OwnedViewSet[Playbook]):
    """Your playbooks, newest first."""

    queryset = Playbook.objects.all()

    def get_queryset(self) -> QuerySet[Playbook]:
        rows = super().get_queryset().annotate(positions_count=Count("positions"))
        return rows if self.action == "list" else rows.prefetch_related("positions")

    def get_serializer_class(self) -> type[PlaybookShown]:
        return PlaybookShown if self.action == "list" else PlaybookDetail

    @described("playbooks_create", {201: PlaybookDetail}, body=PlaybookBody, examples=[EXAMPLE])
    def create(self, request: Request) -> Response:
        said = _with_positions(self.body(PlaybookBody))
        return self.shown(playbook_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("playbooks_edit", PlaybookDetail, body=PlaybookBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Changes the name, or all positions at once; the version goes up."""
        playbook, said = self.get_object(), _with_positions(self.body(PlaybookBody, partial=True))
        return self.shown(playbook_edit(playbook=playbook, by=self.person, now=self.now, **said))

    @described("playbooks_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        playbook_delete(playbook=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("playbooks_import", PlaybookDetail, body={"application/json": YamlBody, "application/yaml": str})
    @action(detail=False, methods=["post"], url_path="import", parser_classes=[StrictJSON, YamlText])
    def import_yaml(self, request: Request) -> Response:
        """A playbook from YAML: a new one, or the next version of the one of that name."""
        text = self.body(YamlBody)["yaml"]
        return self.shown(playbook_import(owner=self.person, text=text, by=self.person, now=self.now))

    @described("playbooks_export", {(200, "application/yaml"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"], url_path="export")
    def export_yaml(self, request: Request, **_: Any) -> HttpResponse:
        playbook = self.get_object()
        return yaml_file(playbook.name, playbook_export(playbook))


def _with_positions(said: dict[str, Any]) -> dict[str, Any]:
    if "positions" not in said:
        return said
    lists = ("fallbacks", "must_contain", "must_not_contain")
    asked: list[dict[str, Any]] = [
        {name: tuple(value) if name in lists else value for name, value in row.items()} for row in said["positions"]
    ]
    return {**said, "positions": [Position(**row) for row in asked]}


# Callable skills of the installation: what agents may call, at which level, how often; and the setting of it.
#
# Setting one needs the scope `decide`: who lowers a level, or switches a skill on, consents to its calls beforehand.


class CallableSkillShown(serializers.Serializer[Any]):
    """What its author declared, what holds here, and how often it was called. Hours and days are UTC."""

    name = serializers.CharField()
    installed = serializers.BooleanField(help_text="False: it was set once and is not installed any more.")
    description = serializers.CharField()
    version = serializers.CharField(allow_null=True)
    enabled = serializers.BooleanField()
    lacking = serializers.CharField(help_text="What has to be set before it can work; empty: nothing.")
    declared_level = serializers.CharField(allow_null=True, help_text="The level that its author gave it.")
    level = serializers.ChoiceField(choices=Level.choices, allow_null=True, help_text="The level that holds.")
    hourly_limit = serializers.IntegerField(allow_null=True, help_text="As chosen; null: nobody has chosen one.")
    hourly_limit_in_force = serializers.IntegerField(allow_null=True, help_text="As it holds; null: no limit.")
    used_this_hour = serializers.IntegerField()
    refused_this_hour = serializers.IntegerField()
    used_today = serializers.IntegerField()
    refused_today = serializers.IntegerField()
    side_effects = serializers.BooleanField(allow_null=True)
    idempotent = serializers.BooleanField(allow_null=True)
    requires_approval = serializers.BooleanField(allow_null=True)
    timeout_seconds = serializers.FloatField(allow_null=True)
    isolation = serializers.CharField(allow_null=True, help_text="thread or process.")
    local = serializers.BooleanField(allow_null=True, help_text="It runs in the transaction of its record.")
    cooldown_seconds = serializers.FloatField(allow_null=True)
    addresses = serializers.ListField(child=serializers.CharField(), help_text="Arguments that say where to go.")
    arguments = serializers.DictField(allow_null=True, help_text="The JSON schema of its arguments.")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="When it was last set; null: never.")


class CallableSkillPatch(Body):
    enabled = serializers.BooleanField(required=False)
    level = WordField(
        choices=Level.choices, required=False, allow_null=True, help_text="null: as declared. Lowering: superusers."
    )
    hourly_limit = CountField(
        max_value=MOST_PER_HOUR, required=False, allow_null=True, help_text="null: no limit but that of its level."
    )


class CallableSkills(OwnedViewSet[SkillSetting]):
    """The callable skills of the installation, by name. They are the same for everybody who is signed in."""

    queryset = SkillSetting.objects.all()
    serializer_class = CallableSkillShown
    lookup_field = "name"
    lookup_url_kwarg = "name"
    lookup_value_converter = "str"
    decisions = frozenset({"partial_update"})

    def list(self, request: Request) -> Response:
        self.filter_queryset(self.queryset.none())  # refuses parameters that nobody knows
        return self.listed([listed.facts for listed in skills_listed(now=self.now)], CallableSkillShown)

    def retrieve(self, request: Request, name: str = "", **_: Any) -> Response:
        """One of them, by its name."""
        listed = skill_listed(name, now=self.now)
        if listed is None:
            raise NotFound(f"There is no callable skill {name[:64]}.")
        return Response(CallableSkillShown(listed.facts).data)

    @described("callable_skills_edit", CallableSkillShown, body=CallableSkillPatch)
    def partial_update(self, request: Request, name: str, **_: Any) -> Response:
        """Changes what is named, from the next call on; null clears. Needs the permission to change skill settings."""
        skill, said = skill_to_set(name), self.body(CallableSkillPatch, partial=True)
        skill_set(name=skill.name, declared=skill.level, by=self.person, now=self.now, **said)
        return self.retrieve(request, name=name)


# What skills were given and gave back in a person's own sessions, redacted and cut; newest first, never changed.


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


# --- Prompt skills of the installation, to choose from. They are accepted by operators, and belong to nobody ---


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
