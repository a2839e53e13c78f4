"""Agents: named workers with one owner, one approval mode and one budget. Their YAML comes in and goes out."""

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.agent_definitions import (
    IF_MATCH,
    DefinitionBody,
    DefinitionPut,
    DefinitionShown,
    DefinitionText,
    OldDefinitionText,
    definition_shown,
    problems_told,
    version_said,
)
from agents.api.autonomy import AutonomousAgents
from agents.api.fields import Body, Shown, UsdField, WordField
from agents.api.halts import ReasonBody
from agents.api.parsers import StrictJSON
from agents.api.schema import described
from agents.api.sessions import HaltCountShown
from agents.downloads import yaml_file
from agents.enums import ApprovalMode
from agents.models import Agent
from agents.people.access import demand_start
from agents.roster.agents import NAME_CHARS, agent_create, agent_delete, agent_edit
from agents.roster.files import agent_define, agent_export, agent_import
from agents.sessions.halts import agents_halt

PARSERS = [StrictJSON, DefinitionText, OldDefinitionText]
TEXTS = {"application/json": DefinitionBody, "application/yaml": str, "text/yaml": str}
VERSIONED_TEXTS = {**TEXTS, "application/json": DefinitionPut}


class AgentShown(Shown):
    class Meta:
        model = Agent
        fields = ["id", "name", "mode", "enabled", "max_cost_per_day_usd", "allow_high_risk", "created_at"]


class AgentDetail(AgentShown):
    definition = serializers.CharField(read_only=True, help_text="Its YAML; empty when it never had any.")

    class Meta(AgentShown.Meta):
        fields = [*AgentShown.Meta.fields, "definition_version", "definition_digest", "definition"]


class AgentBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    mode = WordField(choices=ApprovalMode.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    max_cost_per_day_usd = UsdField(required=False, allow_null=True)
    allow_high_risk = serializers.BooleanField(
        required=False, help_text="In mode auto, calls of high risk run unasked. Only superusers set it."
    )


class Agents(AutonomousAgents):
    """Your agents, newest first."""

    queryset = Agent.objects.all()
    always_allowed = frozenset({"halt"})
    starts = AutonomousAgents.starts | {"define", "import_yaml"}  # a definition has triggers

    def get_serializer_class(self) -> type[AgentShown]:
        return AgentShown if self.action == "list" else AgentDetail

    @described("agents_create", {201: AgentDetail}, body=AgentBody)
    def create(self, request: Request) -> Response:
        said = self.body(AgentBody)
        return self.shown(agent_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("agents_edit", AgentDetail, body=AgentBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """While sessions of the agent are under way, its mode can be tightened and not loosened.

        Switching it on lets its triggers fire: that needs the permission to start sessions.
        """
        agent, said = self.get_object(), self.body(AgentBody, partial=True)
        if said.get("enabled"):
            demand_start(self.person)
        return self.shown(agent_edit(agent=agent, by=self.person, now=self.now, **said))

    @described("agents_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """Deletes an agent that has never run; one with a history is switched off instead (409)."""
        agent_delete(agent=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("agents_halt", HaltCountShown, body=ReasonBody)
    @action(detail=True, methods=["post"])
    def halt(self, request: Request, **_: Any) -> Response:
        """Halts every session of the agent that is under way, each on its own. The agent itself stays as it is."""
        agent, said = self.get_object(), self.body(ReasonBody)
        counted = agents_halt([agent.pk], by=self.person, reason=said["reason"], now=self.now)
        return Response(HaltCountShown(counted).data)

    @described("agents_import", AgentDetail, body=TEXTS)
    @action(detail=False, methods=["post"], url_path="import", parser_classes=PARSERS)
    def import_yaml(self, request: Request) -> Response:
        """An agent from an agent.yaml: a new one, or the next version of the one of that name."""
        text = self.body(DefinitionBody)["definition"]
        with problems_told():
            defined = agent_import(owner=self.person, text=text, by=self.person, now=self.now)
        return self.shown(defined.agent)

    @described("agents_definition", DefinitionShown)
    @action(detail=True, methods=["get"], url_path="definition", parser_classes=PARSERS)
    def definition(self, request: Request, **_: Any) -> Response:
        """The agent's YAML, and every setting that holds."""
        return Response(definition_shown(self.get_object()))

    @described("agents_define", DefinitionShown, body=VERSIONED_TEXTS, parameters=[IF_MATCH])
    @definition.mapping.put  # type: ignore[untyped-decorator]  # as DRF's router has it
    def define(self, request: Request, **_: Any) -> Response:
        """The next version of the agent's YAML; the same text changes nothing. Problems stand in `detail`, by line.

        409 when the version that the text was made from is said, and somebody has written a newer one.
        """
        agent, said = self.get_object(), self.body(DefinitionPut)
        version, text = version_said(request, said), said["definition"]
        with problems_told():
            agent = agent_define(agent=agent, text=text, by=self.person, now=self.now, version=version)
        return Response(definition_shown(agent))

    @described("agents_export", {(200, "application/yaml"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"], url_path="export")
    def export_yaml(self, request: Request, **_: Any) -> HttpResponse:
        agent = self.get_object()
        return yaml_file(agent.name, agent_export(agent))
