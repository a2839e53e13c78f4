"""Playbooks: what runs check documents against. Each edit makes a new version; YAML comes in and goes out."""

from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown
from agents.api.parsers import StrictJSON, YamlText
from agents.api.schema import described
from agents.definitions.playbooks import Position
from agents.downloads import yaml_file
from agents.knowledge.playbooks import playbook_create, playbook_delete, playbook_edit, playbook_export, playbook_import
from agents.models import Playbook, PlaybookPosition

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
