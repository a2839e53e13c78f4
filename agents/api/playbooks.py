"""Playbooks, prompt skills, callable skills and the calls of skills."""

from typing import Any, Final

import django_filters
from django.db.models import Count, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ListView, OwnedViewSet, create_with, delete_with
from agents.api.fields import Body, CountField, RowSerializer, StrictJSONParser, TextsField, WordField, YamlParser
from agents.api.paging import BooleanFilter
from agents.api.schema import describe, detail_action, list_action
from agents.definitions.playbooks import Position
from agents.enums import Level
from agents.exceptions import NotFound
from agents.knowledge.playbooks import playbook_create, playbook_delete, playbook_edit, playbook_export, playbook_import
from agents.models import Playbook, PlaybookPosition, PromptSkill, SkillSetting
from agents.skills.registry import MAX_PER_HOUR, installed_skill, skill_listed, skill_set, skills_listed
from agents.webhooks import yaml_download
from audit.models import SkillAudit
from audit.skill_audits import AUDITED_LEVELS

MOST_POSITIONS = 500
TEXT_CHARS = 20_000
PHRASES: Final[dict[str, Any]] = {"max_chars": TEXT_CHARS, "max_length": 100, "required": False}
SKILL_NAME_CHARS = 128
LEVELS = [(level, level) for level in sorted(AUDITED_LEVELS)]


# --- Playbooks: each edit makes a new version ---


class PositionSerializer(RowSerializer):
    fallbacks = serializers.ListField(child=serializers.CharField(), read_only=True)
    must_contain = serializers.ListField(child=serializers.CharField(), read_only=True)
    must_not_contain = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = PlaybookPosition
        fields = ["issue", "severity", "standard", "fallbacks", "guidance", "must_contain", "must_not_contain"]


class PlaybookSerializer(RowSerializer):
    positions_count = serializers.IntegerField(read_only=True)

    class Meta:
        model = Playbook
        fields = ["id", "name", "version", "digest", "positions_count", "created_at", "updated_at"]


class PlaybookDetailSerializer(PlaybookSerializer):
    positions = PositionSerializer(many=True, read_only=True)

    class Meta(PlaybookSerializer.Meta):
        fields = [*PlaybookSerializer.Meta.fields, "positions"]


class PositionBody(Body):
    issue = serializers.CharField(max_length=200)
    severity = serializers.CharField(max_length=32, required=False, help_text="info, warn or critical.")
    standard = serializers.CharField(max_length=TEXT_CHARS, required=False, allow_blank=True)
    fallbacks = TextsField(**PHRASES, help_text="Acceptable wordings, best first.")
    guidance = serializers.CharField(max_length=TEXT_CHARS, required=False, allow_blank=True)
    must_contain = TextsField(**PHRASES)
    must_not_contain = TextsField(**PHRASES)

    def validate(self, attrs: dict[str, Any]) -> Position:
        return Position(**attrs)


class PlaybookBody(Body):
    name = serializers.CharField(max_length=120)
    positions = serializers.ListField(child=PositionBody(), max_length=MOST_POSITIONS)


class YamlBody(Body):
    yaml = serializers.CharField(trim_whitespace=False, help_text="A playbook as exported.")


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


class PlaybookViewSet(OwnedViewSet[Playbook]):
    """Your playbooks, newest first."""

    queryset = Playbook.objects.all()
    serializer_class = PlaybookSerializer
    detail_serializer_class = PlaybookDetailSerializer
    create = create_with(playbook_create, PlaybookBody, examples=[EXAMPLE])
    destroy = delete_with(playbook_delete)

    def get_queryset(self) -> QuerySet[Playbook]:
        rows = super().get_queryset().annotate(positions_count=Count("positions"))
        return rows if self.action == "list" else rows.prefetch_related("positions")

    @describe(body=PlaybookBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Change the name, or replace all positions. Increases the version."""
        return self.act(playbook_edit, PlaybookBody, partial=True)

    @list_action(
        body={"application/json": YamlBody, "application/yaml": str},
        path="import",
        parsers=[StrictJSONParser, YamlParser],
    )
    def import_yaml(self, request: Request) -> Response:
        """Import YAML: creates the playbook, or the next version of the playbook with that name."""
        text = self.body(YamlBody)["yaml"]
        return self.respond(playbook_import(owner=self.user, text=text, **self.actor))

    @detail_action({(200, "application/yaml"): OpenApiTypes.STR}, method="get", path="export")
    def export_yaml(self, request: Request, **_: Any) -> HttpResponse:
        playbook = self.get_object()
        return yaml_download(playbook.name, playbook_export(playbook))


# --- Callable skills of the installation ---
#
# Changing one needs the scope `decide`: lowering a level or enabling a skill approves its calls in advance.


class CallableSkillSerializer(serializers.Serializer[Any]):
    """Declared and effective settings of a skill, and its number of calls. Hours and days are UTC."""

    name = serializers.CharField()
    installed = serializers.BooleanField(help_text="false: it has settings, but is no longer installed.")
    description = serializers.CharField()
    version = serializers.CharField(allow_null=True)
    enabled = serializers.BooleanField()
    lacking = serializers.CharField(help_text="Missing configuration; empty: none.")
    declared_level = serializers.CharField(allow_null=True, help_text="The level declared by its author.")
    level = serializers.ChoiceField(choices=Level.choices, allow_null=True, help_text="The level in force.")
    hourly_limit = serializers.IntegerField(allow_null=True, help_text="As set here; null: not set.")
    hourly_limit_in_force = serializers.IntegerField(allow_null=True, help_text="The limit in force; null: no limit.")
    used_this_hour = serializers.IntegerField()
    refused_this_hour = serializers.IntegerField()
    used_today = serializers.IntegerField()
    refused_today = serializers.IntegerField()
    side_effects = serializers.BooleanField(allow_null=True)
    idempotent = serializers.BooleanField(allow_null=True)
    requires_approval = serializers.BooleanField(allow_null=True)
    timeout_seconds = serializers.FloatField(allow_null=True)
    isolation = serializers.CharField(allow_null=True, help_text="thread or process.")
    local = serializers.BooleanField(
        allow_null=True, help_text="Whether it runs in the transaction of its audit event."
    )
    cooldown_seconds = serializers.FloatField(allow_null=True)
    addresses = serializers.ListField(child=serializers.CharField(), help_text="Arguments that hold an address.")
    hosts = serializers.ListField(
        child=serializers.CharField(), help_text="Hosts that it may fetch from besides those of its addresses."
    )
    arguments = serializers.DictField(allow_null=True, help_text="The JSON schema of its arguments.")
    updated_at = serializers.DateTimeField(
        allow_null=True, help_text="When its settings were last changed; null: never."
    )


class CallableSkillPatch(Body):
    enabled = serializers.BooleanField(required=False)
    level = WordField(
        choices=Level.choices,
        required=False,
        allow_null=True,
        help_text="null: as declared. Lowering it needs the permission agents.loosen.",
    )
    hourly_limit = CountField(
        max_value=MAX_PER_HOUR, required=False, allow_null=True, help_text="null: only the limit of its level."
    )


class CallableSkillViewSet(OwnedViewSet[SkillSetting]):
    """The callable skills of the installation, by name. The same for all users."""

    queryset = SkillSetting.objects.all()
    serializer_class = CallableSkillSerializer
    lookup_field = "name"
    lookup_url_kwarg = "name"
    lookup_value_converter = "str"
    decisions = frozenset({"partial_update"})

    def list(self, request: Request) -> Response:
        self.filter_queryset(self.queryset.none())  # refuses unknown parameters
        return self.page([listed.facts for listed in skills_listed(now=self.now)], CallableSkillSerializer)

    def retrieve(self, request: Request, name: str = "", **_: Any) -> Response:
        """One callable skill, by its name."""
        listed = skill_listed(name, now=self.now)
        if listed is None:
            raise NotFound(f"There is no callable skill {name[:64]}.")
        return Response(CallableSkillSerializer(listed.facts).data)

    @describe(body=CallableSkillPatch)
    def partial_update(self, request: Request, name: str, **_: Any) -> Response:
        """Change the fields that are sent, from the next call on. Needs the permission to change skill settings."""
        skill = installed_skill(name)
        data = self.body(CallableSkillPatch, partial=True)
        skill_set(name=skill.name, declared=skill.level, **self.actor, **data)
        return self.retrieve(request, name=name)


# --- Calls of skills in the user's sessions ---


class SkillAuditSerializer(RowSerializer):
    skill = serializers.CharField(source="skill_name", read_only=True)
    level = serializers.CharField(
        source="capability_level", read_only=True, help_text="The level at the time of the call."
    )
    risk = serializers.CharField(
        source="risk_level", read_only=True, allow_null=True, help_text="low, medium or high; null: not graded."
    )
    session = serializers.UUIDField(source="session_id", read_only=True, allow_null=True)

    class Meta:
        model = SkillAudit
        fields = ["skill", "level", "risk", "input_summary", "output_summary", "duration_ms", "session", "created_at"]


class SkillAuditView(ListView[SkillAudit]):
    queryset = SkillAudit.objects.order_by("-created_at", "-id")
    serializer_class = SkillAuditSerializer
    filters = {
        "skill": django_filters.CharFilter(field_name="skill_name", max_length=SKILL_NAME_CHARS),
        "level": django_filters.ChoiceFilter(field_name="capability_level", choices=LEVELS),
        "session": django_filters.UUIDFilter(field_name="session_id", label="The id of a session."),
    }

    @describe(SkillAuditSerializer(many=True), operation_id="skill_audits_list")
    def get(self, request: Request) -> Response:
        """Calls of CONTROLLED and higher skills in your sessions, newest first, with refused and failed ones."""
        return self.page(self.get_queryset().filter(user_id=self.user.pk))


# --- Prompt skills of the installation ---


class SkillSerializer(RowSerializer):
    class Meta:
        model = PromptSkill
        fields = ["id", "name", "description", "version", "digest", "enabled", "has_changed", "loaded_at"]


class SkillDetailSerializer(SkillSerializer):
    class Meta(SkillSerializer.Meta):
        fields = [*SkillSerializer.Meta.fields, "front_matter", "body"]


class SkillViewSet(OwnedViewSet[PromptSkill]):
    """The prompt skills of the installation, by name. The same for all users."""

    queryset = PromptSkill.objects.all()
    serializer_class = SkillSerializer
    detail_serializer_class = SkillDetailSerializer
    filters = {
        "enabled": BooleanFilter(field_name="enabled"),
    }
    ordering = ("name",)

    def visible(self, rows: QuerySet[PromptSkill]) -> QuerySet[PromptSkill]:
        return rows
